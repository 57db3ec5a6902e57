//! Which sectors of an array no member can give, as far as that follows from the members that are not there.
//! Owns: [`Gone`]. Not here: sectors that a device cannot read (`super`), stand-ins for missing members (`uraid copy`).
//! Invariant: a sector is called gone only if every way to read or compute it needs a member of which nothing is there.
//!
//! Without it, each sector of a missing member would be tried alone: a copy of half a TB of them would take days.

use crate::stack::Assembled;
use uraid_arrays::Members;
use uraid_block::{ArraySector, Range, Sector, Sectors, Slot, SlotSet};
use uraid_engine::Place;
use uraid_layout::Layout;

/// The sectors of an array that are gone.
pub struct Gone {
    layout: Layout,
    /// Slots without a member, or with one of which no sector can be read.
    dead: SlotSet,
}

impl Gone {
    /// `None`: nothing is, as far as is known.
    pub fn of(array: &Assembled) -> Option<Gone> {
        let Members::Claimed(members) = &array.members else { return None };
        let unreadable = array.plan.members.iter().zip(members).filter_map(|(planned, member)| match planned.place {
            Place::Slot(slot) => member.has_no_good_sector().then_some(slot),
            Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
        });
        let unreadable: SlotSet = unreadable.collect();
        let dead = unreadable.or(array.plan.missing);
        (!unreadable.is_empty()).then(|| Gone { layout: array.plan.layout.clone(), dead })
    }

    /// Cuts a range into pieces that are gone, and others.
    pub(super) fn cut(&self, range: Range) -> Vec<(Range, bool)> {
        let mut pieces: Vec<(Range, bool)> = Vec::new();
        let mut at = range.start;
        while at < range.end() {
            let here = ArraySector(at.0);
            let end = Sector((at.0 + self.layout.contiguous(here).0).min(range.end().0));
            let is_gone = self.is_gone(here);
            match pieces.last_mut() {
                Some((before, same)) if *same == is_gone => *before = Range::between(before.start, end),
                Some(_) | None => pieces.push((Range::between(at, end), is_gone)),
            }
            at = end;
        }
        pieces
    }

    fn is_gone(&self, at: ArraySector) -> bool {
        let mut copies = self.layout.copies(at).into_iter();
        let is_dead = |slot: Slot| self.dead.contains(slot);
        match &self.layout {
            Layout::Copies(_) => copies.all(|(slot, _)| is_dead(slot)),
            // A row gives its lost blocks as long as it lacks no more of them than it has parity.
            Layout::Parity(_) => {
                let is_lost = copies.next().is_some_and(|(slot, _)| is_dead(slot));
                is_lost && self.dead.count() > usize::from(self.layout.tolerates())
            }
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
        Gone { layout: Layout::new(&spec).expect("a layout"), dead: dead.iter().map(|slot| Slot(*slot)).collect() }
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
}
