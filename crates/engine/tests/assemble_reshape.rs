//! Reshapes over all of them: both directions, three to five members, every position of each member at which it left,
//! every set of those that are given.
//! Owns: a model of members whose blocks say what they are. Not here: superblocks of real reshapes (`format`, `xtask vm`).
//! Invariant checked: what a part gives for a chunk, directly or computed, is that chunk and nothing else.
//!
//! ```text
//!   raid5 of 3 to 4    chunks of the array    0 1 2 3 4 5 | 6 7 8 9 ...     the array's position: 6 chunks
//!   member 1 left at 3:  up to chunk 2 it has the new rows, from 3 on the old ones
//! ```

use super::candidates::{DEVICE, FORCE, array};
use std::collections::BTreeMap;
use uraid_block::{ArraySector, MemberSector, Sectors, Slot, SlotSet};
use uraid_engine::{AssembleError, Candidate, HalfReshaped, Place, ReshapedPart, assemble_half_reshaped};
use uraid_format::{Features, Reshape, Role, Superblock};
use uraid_layout::{Layout, Level, ParityLayout, Row, Spec};

const CHUNK: u64 = 128;
/// Rows of the wider geometry.
const ROWS: u64 = 5;

/// What a chunk of a member is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Block {
    Data(u64),
    /// Of a row of the geometry with so many slots.
    Parity(u16, u64),
}

/// What each member holds, by its slot and the number of its chunk.
type Members = Vec<BTreeMap<u64, Block>>;

struct Case {
    level: Level,
    from: u16,
    to: u16,
    /// Where each member left the reshape, in chunks of the array; the position of the array for those that never did.
    left_at: Vec<u64>,
    position: u64,
}

fn layout(level: Level, slots: u16) -> ParityLayout {
    let size = Sectors(CHUNK * ROWS);
    let spec = Spec { level, layout: 2, chunk: Sectors(CHUNK), raid_disks: slots, size, member_sizes: Vec::new() };
    let Ok(Layout::Parity(layout)) = Layout::new(&spec) else { panic!("{spec:?}") };
    layout
}

impl Case {
    fn is_backwards(&self) -> bool {
        self.to < self.from
    }

    /// Chunks of the array while it is reshaped.
    fn chunks(&self) -> u64 {
        let data = |slots: u16| u64::from(slots) - if self.level == Level::Raid6 { 2 } else { 1 };
        ROWS * data(self.from).min(data(self.to))
    }

    /// All rows of the old geometry, and over them those of the new one as far as each member took part.
    fn members(&self) -> Members {
        let mut members = vec![BTreeMap::new(); usize::from(self.from.max(self.to))];
        let chunks = self.chunks();
        let mut lay = |slots: u16, is_new: bool| {
            let layout = layout(self.level, slots);
            for row in 0..ROWS {
                let map = layout.row(Row(row));
                let across = map.data.len() as u64;
                let (first, end) = (row * across, ((row + 1) * across).min(chunks));
                let data = (0..).zip(&map.data).map(|(nth, slot)| (*slot, Block::Data(first + nth)));
                let parity = [Some(map.parity), map.syndrome].into_iter().flatten();
                let parity = parity.map(|slot| (slot, Block::Parity(slots, row)));
                for (slot, block) in data.chain(parity) {
                    let left_at = self.left_at[slot.index()];
                    let is_reached = if self.is_backwards() { left_at <= first } else { end <= left_at };
                    if first < chunks && (!is_new || is_reached) {
                        members[slot.index()].insert(row, block);
                    }
                }
            }
        };
        lay(self.from, false);
        lay(self.to, true);
        members
    }

    /// The superblocks of the members; one that left has fewer events, and is not listed by those that stayed longer.
    fn candidates(&self) -> Vec<Candidate> {
        let slots = self.from.max(self.to);
        let whole = array(self.level, slots, 0);
        let passed = |at: u64| if self.is_backwards() { self.chunks() - at } else { at };
        let member = |slot: usize| {
            let left_at = self.left_at[slot];
            let mut roles = whole[slot].superblock.roles.clone();
            for (other, role) in roles.iter_mut().enumerate().take(usize::from(slots)) {
                if passed(self.left_at[other]) < passed(left_at) {
                    *role = Role::Faulty;
                }
            }
            let superblock = Superblock {
                features: Features::RESHAPE_ACTIVE,
                raid_disks: self.to.into(),
                layout: 2,
                chunk: Sectors(CHUNK),
                size: Sectors(CHUNK * ROWS),
                events: 100 + 10 * passed(left_at),
                roles,
                reshape: Some(Reshape {
                    new_level: if self.level == Level::Raid6 { 6 } else { 5 },
                    position: left_at * CHUNK,
                    delta_disks: i32::from(self.to) - i32::from(self.from),
                    new_layout: 2,
                    new_chunk: CHUNK as u32,
                    new_offset: 0,
                }),
                ..whole[slot].superblock.clone()
            };
            Candidate::new(superblock, DEVICE)
        };
        (0..usize::from(slots)).map(member).collect()
    }
}

/// Reads every chunk as a part says, and compares. Returns how many chunks no member could give.
fn read(case: &Case, half: &HalfReshaped, given: &[usize], members: &Members, told: &dyn Fn() -> String) -> u64 {
    let mut lost = 0;
    let mut next = 0;
    for ReshapedPart { range, is_new, start, lacking } in &half.parts {
        assert_eq!(range.start.0, next, "{}", told());
        next = range.end.0;
        let Layout::Parity(layout) = &start.layout else { panic!("a parity level") };
        assert_eq!(start.layout.slots(), if *is_new { case.to } else { case.from }, "{}", told());
        let usable: SlotSet = start
            .members
            .iter()
            .enumerate()
            .filter(|(at, _)| !lacking.contains(at))
            .filter_map(|(_, member)| match member.place {
                Place::Slot(slot) => {
                    assert_eq!(given[member.candidate], slot.index(), "{}", told());
                    Some(slot)
                }
                Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
            })
            .collect();
        for chunk in range.start.0.div_ceil(CHUNK)..range.end.0 / CHUNK {
            let (slot, at) = Layout::Parity(layout.clone()).copies(ArraySector(chunk * CHUNK))[0];
            let row = at.0 / CHUNK;
            if usable.contains(slot) {
                assert_eq!(members[slot.index()].get(&row), Some(&Block::Data(chunk)), "{}, chunk {chunk}", told());
            } else if !is_computed(layout, row, usable, members, start.layout.slots()) {
                lost += 1;
            }
            assert_eq!(MemberSector(row * CHUNK), at);
        }
    }
    assert_eq!(next, case.chunks() * CHUNK, "{}: the parts are all of the array", told());
    lost
}

/// Whether a row's lost blocks are computed from blocks that are all of that row; panics if one is of another.
fn is_computed(layout: &ParityLayout, row: u64, usable: SlotSet, members: &Members, slots: u16) -> bool {
    let map = layout.row(Row(row));
    let across = map.data.len() as u64;
    let missing = (0..slots).map(Slot).filter(|slot| !usable.contains(*slot)).count();
    if missing > usize::from(Layout::Parity(layout.clone()).tolerates()) {
        return false;
    }
    for (nth, slot) in (0..).zip(&map.data).filter(|(_, slot)| usable.contains(**slot)) {
        assert_eq!(members[slot.index()].get(&row), Some(&Block::Data(row * across + nth)), "{slot} of row {row}");
    }
    for slot in [Some(map.parity), map.syndrome].into_iter().flatten().filter(|slot| usable.contains(*slot)) {
        assert_eq!(members[slot.index()].get(&row), Some(&Block::Parity(slots, row)), "{slot} of row {row}");
    }
    true
}

#[test]
fn a_member_that_left_a_reshape_is_read_in_the_new_geometry_up_to_its_own_position() {
    let (mut read_all, mut with_holes, mut refused) = (0, 0, 0);
    for (level, from, to) in [(5, 2, 3), (5, 3, 4), (5, 4, 5), (6, 4, 5), (5, 3, 2), (5, 4, 3), (5, 5, 4), (6, 5, 4)]
        .map(|(level, from, to)| (if level == 6 { Level::Raid6 } else { Level::Raid5 }, from, to))
    {
        let count = usize::from(u16::max(from, to));
        let data = u64::from(to) - if level == Level::Raid6 { 2 } else { 1 };
        let chunks = Case { level, from, to, left_at: Vec::new(), position: 0 }.chunks();
        // Whole rows of the new geometry: begun, early, late, ended.
        let rows = [0, 1, 3, chunks / data].map(|row| row * data);
        for position in rows {
            let is_behind = |at: &u64| if to < from { *at > position } else { *at < position };
            let left: Vec<u64> = rows.into_iter().filter(is_behind).collect();
            let kinds = left.len() + 1;
            for kind in 0..kinds.pow(count as u32) {
                let mut rest = kind;
                let left_at: Vec<u64> = (0..count)
                    .map(|_| {
                        let at = left.get(rest % kinds).copied().unwrap_or(position);
                        rest /= kinds;
                        at
                    })
                    .collect();
                let case = Case { level, from, to, left_at, position };
                let (members, candidates) = (case.members(), case.candidates());
                for set in 1..1u32 << count {
                    let given: Vec<usize> = (0..count).filter(|at| set >> at & 1 == 1).collect();
                    // The position is that of the members which are there.
                    let some: Vec<Candidate> = given.iter().map(|at| candidates[*at].clone()).collect();
                    let told = || {
                        let Case { level, from, to, left_at, position } = &case;
                        format!("{level:?} {from} to {to} at {position}, {left_at:?}, given {given:?}")
                    };
                    match assemble_half_reshaped(&some, &FORCE).expect("it is being reshaped") {
                        Ok(half) => match read(&case, &half, &given, &members, &told) {
                            0 => read_all += 1,
                            _ => with_holes += 1,
                        },
                        Err(AssembleError::TooFewMembers { .. } | AssembleError::OnlySpares { .. }) => refused += 1,
                        Err(error) => panic!("{}: {error}", told()),
                    }
                }
            }
        }
    }
    println!("{read_all} read, {with_holes} with holes, {refused} refused");
    assert!(read_all > 10_000 && with_holes > 10_000, "{read_all} read, {with_holes} with holes, {refused} refused");
}
