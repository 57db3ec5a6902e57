//! How many sectors no member can give any more, because those that are there list them as bad blocks.
//! Owns: that count. Not here: the lists (`bad_blocks`), members that are out as a whole (`Layout::can_serve`).
//! Invariant: the count is a lower bound: raid10 in copies that are no pairs of members is not looked at.
//!
//! ```text
//!   raid1, member 0 was set faulty      raid5 of 4, member 0 was set faulty
//!     member 1 lists 100..108             member 1 lists 100..108
//!     8 sectors have no copy              8 sectors of each block of these rows need two that are not there
//! ```

use uraid_block::{Range, Sectors, Slot, SlotSet};
use uraid_layout::{Layout, Level};

/// `listed`: what the member of each slot lists, from the start of its data. `readable`: the slots whose member is there.
pub(crate) fn without_source(layout: &Layout, readable: SlotSet, listed: &[(Slot, Range)]) -> Sectors {
    let slots = layout.slots();
    let of_some = |group: SlotSet, needed: usize| {
        let own = listed.iter().filter(|(slot, _)| group.contains(*slot)).map(|(_, range)| *range);
        covered_by(&own.collect::<Vec<Range>>(), needed)
    };
    match layout.level() {
        Level::Linear | Level::Raid0 => of_some(readable, 1),
        Level::Raid1 => of_some(readable, readable.count()),
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            let missing = usize::from(slots) - readable.count();
            of_some(readable, (usize::from(layout.tolerates()) + 1).saturating_sub(missing).max(1))
        }
        Level::Raid10 => {
            let (near, far) = ((layout.spec().layout & 0xff) as u16, layout.spec().layout >> 8 & 0xff);
            if far != 1 || near == 0 || !slots.is_multiple_of(near) {
                return Sectors::ZERO;
            }
            let groups =
                (0..slots / near).map(|group| (group * near..(group + 1) * near).map(Slot).collect::<SlotSet>());
            let counts = groups.map(|group| of_some(group.and(readable), group.and(readable).count()).0);
            Sectors(counts.sum())
        }
    }
}

/// How many sectors are in at least `needed` of the ranges, of which each member's do not overlap.
fn covered_by(ranges: &[Range], needed: usize) -> Sectors {
    assert!(needed > 0, "no sector needs no list");
    let mut edges: Vec<(u64, i64)> =
        ranges.iter().flat_map(|range| [(range.start.0, 1), (range.end().0, -1)]).collect();
    edges.sort_unstable();
    let (mut depth, mut last, mut count) = (0_i64, 0, 0);
    for (at, step) in edges {
        if depth >= needed as i64 {
            count += at - last;
        }
        (depth, last) = (depth + step, at);
    }
    Sectors(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sector;
    use uraid_layout::Spec;

    fn count(level: Level, layout: u32, slots: u16, away: &[u16], listed: &[(u16, u64, u64)]) -> u64 {
        let spec =
            Spec { level, layout, chunk: Sectors(8), raid_disks: slots, size: Sectors(64), member_sizes: Vec::new() };
        let readable: SlotSet = (0..slots).filter(|slot| !away.contains(slot)).map(Slot).collect();
        let of = |(slot, start, end): &(u16, u64, u64)| (Slot(*slot), Range::between(Sector(*start), Sector(*end)));
        without_source(&Layout::new(&spec).expect("a layout"), readable, &listed.iter().map(of).collect::<Vec<_>>()).0
    }

    #[test]
    fn a_sector_counts_when_all_that_could_give_it_are_out_or_list_it() {
        let lists = [(0, 0, 10), (1, 4, 20)];
        assert_eq!(count(Level::Raid1, 0, 2, &[], &lists), 6);
        assert_eq!(count(Level::Raid1, 0, 3, &[], &lists), 0);
        assert_eq!(count(Level::Raid1, 0, 3, &[2], &lists), 6);
        assert_eq!(count(Level::Raid1, 0, 2, &[0], &lists[1..]), 16);
        assert_eq!(count(Level::Raid5, 2, 4, &[], &lists), 6);
        assert_eq!(count(Level::Raid5, 2, 4, &[3], &lists), 20);
        assert_eq!(count(Level::Raid6, 2, 5, &[3], &lists), 6);
        assert_eq!(count(Level::Raid6, 2, 5, &[], &lists), 0);
        assert_eq!(count(Level::Raid10, 0x102, 4, &[1], &lists[..1]), 10);
        assert_eq!(count(Level::Raid10, 0x102, 4, &[2], &lists[..1]), 0, "the other pair");
        assert_eq!(count(Level::Raid10, 0x102, 4, &[], &lists), 6);
        assert_eq!(count(Level::Raid10, 0x102, 3, &[1], &lists[..1]), 0, "no pairs");
    }
}
