//! Which sectors of an array no member can give, as far as that follows from what the members lack.
//! Owns: [`Gone`]. Not here: sectors that a device cannot read (`super`), stand-ins for missing members (`uraid copy`).
//! Invariant: a sector is called gone only if every way to read or compute it needs a member that has nothing there.
//!
//! Without it, each sector of a missing member would be tried alone: a copy of half a TB of them would take days.

use crate::stack::Assembled;
use uraid_arrays::Members;
use uraid_block::{ArraySector, MemberSector, Range, Sector, Sectors, Slot, SlotSet};
use uraid_engine::Place;
use uraid_layout::Layout;

/// How much is looked through at once of what is there: 1 GiB.
const LOOK_AHEAD: Sectors = Sectors(1 << 21);

/// The sectors of an array that are gone.
pub struct Gone {
    layout: Layout,
    /// Slots without a member.
    missing: SlotSet,
    /// From where on nothing of a slot's data can be read.
    ends: Vec<(Slot, MemberSector)>,
}

impl Gone {
    /// `None`: nothing is, as far as is known.
    pub fn of(array: &Assembled) -> Option<Gone> {
        let Members::Claimed(members) = &array.members else { return None };
        let layout = array.plan.layout.clone();
        let ends = array.plan.members.iter().zip(members).filter_map(|(planned, member)| match planned.place {
            Place::Slot(slot) if member.good_end() < Sector(member.size().0) => {
                let data = planned.superblock.data_offset.0;
                Some((slot, MemberSector(member.good_end().0.saturating_sub(data))))
            }
            Place::Slot(_) | Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
        });
        let ends: Vec<(Slot, MemberSector)> = ends.collect();
        (!ends.is_empty()).then_some(Gone { layout, missing: array.plan.missing, ends })
    }

    /// Cuts a range into pieces that are gone, and others.
    pub(super) fn cut(&self, range: Range) -> Vec<(Range, bool)> {
        let mut pieces = Vec::new();
        let mut rest = range;
        while !rest.length.is_zero() {
            let (first, is_gone) = self.first(rest);
            pieces.push((first, is_gone));
            rest = Range::between(first.end(), range.end());
        }
        pieces
    }

    /// The piece of one kind at the start of a range, and whether it is gone. A piece that is there may go on.
    pub(super) fn first(&self, range: Range) -> (Range, bool) {
        let is_gone = self.is_gone(ArraySector(range.start.0));
        let mut end = range.start;
        let looks_to = if is_gone { range.end() } else { range.end().min(range.start + LOOK_AHEAD) };
        while end < looks_to && self.is_gone(ArraySector(end.0)) == is_gone {
            end = Sector((end.0 + self.even(ArraySector(end.0)).0).min(range.end().0));
        }
        (Range::between(range.start, end), is_gone)
    }

    /// How many sectors from here on are all gone, or all not: no member's end is among them.
    fn even(&self, here: ArraySector) -> Sectors {
        let run = self.layout.contiguous(here);
        let places = self.layout.copies(here).into_iter();
        // All blocks of a row begin at the same sector of their members.
        let starts = places.map(|(_, at)| at.0);
        let to_end = |start: u64| {
            let behind = self.ends.iter().map(move |(_, end)| end.0.saturating_sub(start));
            behind.filter(|length| *length > 0).min()
        };
        Sectors(starts.filter_map(to_end).min().map_or(run.0, |length| length.min(run.0)))
    }

    fn is_gone(&self, here: ArraySector) -> bool {
        let lacks = |slot: Slot, at: MemberSector| {
            self.missing.contains(slot) || self.ends.iter().any(|(other, end)| *other == slot && *end <= at)
        };
        let mut copies = self.layout.copies(here).into_iter();
        match &self.layout {
            Layout::Copies(_) => copies.all(|(slot, at)| lacks(slot, at)),
            // A row gives its lost blocks as long as it lacks no more of them than it has parity.
            Layout::Parity(_) => copies.next().is_some_and(|(slot, at)| {
                let lost = (0..self.layout.slots()).filter(|other| lacks(Slot(*other), at)).count();
                lacks(slot, at) && lost > usize::from(self.layout.tolerates())
            }),
        }
    }

    /// Sectors of a range that are gone.
    pub fn count(&self, range: Range) -> Sectors {
        Sectors(self.cut(range).iter().filter(|(_, is_gone)| *is_gone).map(|(piece, _)| piece.length.0).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_layout::{Level, Spec};

    fn gone(level: Level, layout: u32, raid_disks: u16, dead: &[u16]) -> Gone {
        let of_members = if level == Level::Raid0 { vec![Sectors(64); raid_disks.into()] } else { Vec::new() };
        let size = if level == Level::Raid0 { Sectors::ZERO } else { Sectors(64) };
        let spec = Spec { level, layout, chunk: Sectors(8), raid_disks, size, member_sizes: of_members };
        let ends = dead.iter().map(|slot| (Slot(*slot), MemberSector(0))).collect();
        Gone { layout: Layout::new(&spec).expect("a layout"), missing: SlotSet::EMPTY, ends }
    }

    #[test]
    fn what_only_dead_members_have_is_gone() {
        for (level, layout, slots, dead, sixths) in [
            (Level::Raid0, 1, 3, &[1][..], 2),
            (Level::Raid0, 1, 3, &[], 0),
            (Level::Raid5, 2, 4, &[1], 0),
            (Level::Raid5, 2, 4, &[0, 1], 3),
            (Level::Raid6, 2, 5, &[0, 1], 0),
            (Level::Raid10, 0x102, 6, &[0, 1], 2),
            (Level::Raid10, 0x102, 6, &[1, 2], 0),
        ] {
            let gone = gone(level, layout, slots, dead);
            let all = Range::new(Sector(0), gone.layout.array_size());
            assert_eq!(gone.count(all).0 * 6, gone.layout.array_size().0 * sixths, "{level:?} of {slots}, {dead:?}");
            // Pieces are adjacent, cover the range, and alternate.
            for (from, to) in [(0, 5), (3, 70), (8, 16), (1, all.length.0)] {
                let pieces = gone.cut(Range::between(Sector(from), Sector(to)));
                let total: u64 = pieces.iter().map(|(piece, _)| piece.length.0).sum();
                assert_eq!((total, pieces[0].0.start.0), (to - from, from));
                assert!(pieces.windows(2).all(|two| two[0].0.end() == two[1].0.start && two[0].1 != two[1].1));
            }
        }
    }
    /// ```text
    ///   raid0 of two, 64 sectors each, chunks of 8: slot 1 ends at its sector 20
    ///     chunk 5 of the array is sectors 16 to 24 of slot 1: its last four are gone, and so is every second chunk behind
    /// ```
    #[test]
    fn what_is_behind_a_members_end_is_gone() {
        let short =
            |level, layout, slots| Gone { ends: vec![(Slot(1), MemberSector(20))], ..gone(level, layout, slots, &[]) };
        let raid0 = short(Level::Raid0, 1, 2);
        assert_eq!(raid0.first(Range::new(Sector(0), Sectors(128))), (Range::new(Sector(0), Sectors(44)), false));
        assert_eq!(raid0.first(Range::new(Sector(44), Sectors(84))), (Range::new(Sector(44), Sectors(4)), true));
        assert_eq!(raid0.count(Range::new(Sector(0), Sectors(128))), Sectors(64 - 20));
        assert_eq!(short(Level::Raid5, 2, 3).count(Range::new(Sector(0), Sectors(128))), Sectors::ZERO);
        let mut two = short(Level::Raid5, 2, 3);
        two.ends.push((Slot(2), MemberSector(60)));
        // From sector 60 on each row has only the block of slot 0: two rows of eight sectors, cut at 60.
        let lost = two.count(Range::new(Sector(0), Sectors(128)));
        assert!(lost >= Sectors(4) && lost <= Sectors(8), "{lost:?}");
    }
}
