//! Members of arrays that share their spares, at a start.
//! Owns: which array of a spare group gets which member. Not here: when a spare moves (`crate::overseer::spare_groups`), whether the
//! members make up an array (`engine::assemble`).
//! Invariant: every member is of the array that its superblock names, if an array of its group is that one.
//!
//! A spare that has moved is still listed with its former array on the command line.
//!
//! ```text
//!   on the command line      give: g0 g1 s0 s1 s2    take: t0       s0, s1 and s2 have moved: their superblocks name take
//!   superblocks              give: 2, take: 3        take: 1        so the members of one --array do not tell which it is
//!   started                  take: s0 s1 s2 t0       give: g0 g1
//! ```

use super::{Opened, ReadMember};
use uraid_host::Claimed;

/// An array's id.
type SetUuid = [u8; 16];

/// Moves members between the arrays of each group. An array stays as it is if no id is left for it.
pub(super) fn share(opened: &mut [Opened], spare_groups: &[Option<String>]) {
    let mut groups: Vec<&String> = spare_groups.iter().flatten().collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let arrays: Vec<usize> =
            (0..opened.len()).filter(|&at| spare_groups.get(at).and_then(Option::as_ref) == Some(group)).collect();
        let given: Vec<Vec<SetUuid>> = arrays.iter().map(|&at| opened[at].sets()).collect();
        let ids = ids(&given);
        for (&from, own) in arrays.iter().zip(&ids).filter(|(_, own)| own.is_some()) {
            let is_of_another = |set: &SetUuid| *own != Some(*set) && ids.contains(&Some(*set));
            while let Some(at) = opened[from].sets().iter().position(is_of_another) {
                let set = opened[from].candidates[at].superblock.set_uuid;
                let to = ids.iter().position(|id| *id == Some(set)).expect("an array has it");
                let member = opened[from].take(at);
                opened[arrays[to]].put(member);
            }
        }
    }
}

/// The id of each array, from those that its members name: that of most of them, but each id once.
fn ids(given: &[Vec<SetUuid>]) -> Vec<Option<SetUuid>> {
    let mut counts: Vec<(usize, usize, SetUuid)> = Vec::new();
    for (array, sets) in given.iter().enumerate() {
        for set in sets {
            match counts.iter_mut().find(|(_, of, id)| *of == array && id == set) {
                Some((count, _, _)) => *count += 1,
                None => counts.push((1, array, *set)),
            }
        }
    }
    // Stable: of equal counts the first one given.
    counts.sort_by_key(|(count, _, _)| std::cmp::Reverse(*count));
    let mut ids: Vec<Option<SetUuid>> = vec![None; given.len()];
    for (_, array, set) in &counts {
        if ids[*array].is_none() && !ids.contains(&Some(*set)) {
            ids[*array] = Some(*set);
        }
    }
    let all: Vec<SetUuid> = given.iter().flatten().copied().collect();
    for array in 0..ids.len() {
        if ids[array].is_none() && !given[array].is_empty() {
            ids[array] = all.iter().copied().find(|set| !ids.contains(&Some(*set)));
        }
    }
    ids
}

impl Opened {
    /// What the superblock of each member names.
    fn sets(&self) -> Vec<SetUuid> {
        self.candidates.iter().map(|candidate| candidate.superblock.set_uuid).collect()
    }

    fn take(&mut self, at: usize) -> (Claimed, ReadMember) {
        (self.members.remove(at), (self.candidates.remove(at), self.bitmaps.remove(at)))
    }

    fn put(&mut self, (member, (candidate, bitmap)): (Claimed, ReadMember)) {
        self.members.push(member);
        self.candidates.push(candidate);
        self.bitmaps.push(bitmap);
    }
}

#[cfg(test)]
mod tests {
    use super::ids;

    /// The ids of arrays whose members are given by one letter each: the id that it names.
    fn told(given: &[&str]) -> String {
        let sets = |members: &&str| members.bytes().map(|letter| [letter; 16]).collect::<Vec<[u8; 16]>>();
        let ids = ids(&given.iter().map(sets).collect::<Vec<Vec<[u8; 16]>>>());
        ids.iter().map(|id| id.map_or('-', |id| char::from(id[0]))).collect()
    }

    #[test]
    fn each_id_is_that_of_one_array_and_of_the_one_that_most_members_name() {
        for (given, expected) in [
            (&["aaa", "bb"][..], "ab"),
            (&["aab", "bb"], "ab"),
            (&["bab", "ab"], "ba"),
            // More spares have moved than members are left, to one array, and to two.
            (&["aabbb", "b"], "ba"),
            (&["aabcc", "b", "cc"], "abc"),
            (&["abbcc", "b", "c"], "bac"),
            // Two arrays of one id: the second one has none.
            (&["aaa", "a"], "a-"),
            (&["ab", "ab"], "ab"),
            // A member of an array that is not of the group.
            (&["aax", "bb"], "ab"),
        ] {
            assert_eq!(told(given), expected, "{given:?}");
        }
    }
}
