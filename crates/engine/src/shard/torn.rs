//! Writes that a freeze left half done: some members have them, others do not.
//! Owns: [`Torn`], one shard's list of them. Not here: making them whole (`torn_resync`), when that is done
//! (`fail`, the resync of the next start).
//! Invariant: readers see one version of a torn part, the one that a resync keeps: the canonical copy of a mirror, the
//! data of a row. Making it whole keeps that version, too.
//!
//! ```text
//!   raid1, member 1 is full             raid5, the member of D1 is full
//!     member 0   new    read            D0 new   read
//!     member 1   old                    D1 old   read
//!   whole: member 1 is failed           P  of the new D1: D1 cannot be computed from it
//!                                       whole: P of D0 and D1 as they are read
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use uraid_block::{ArrayRange, Sectors, SlotSet};
use uraid_layout::Row;

/// The torn parts of one shard's writes.
#[derive(Clone, Default, Debug)]
pub(crate) struct TornParts {
    /// Of mirrors: stretches of the array.
    pub(crate) copies: Vec<ArrayRange>,
    /// Of parity levels: parts of rows, from the start of their chunks.
    pub(crate) rows: BTreeMap<Row, Vec<TornPart>>,
}

/// A part of a row that a refused write left half done.
#[derive(Clone, Debug)]
pub(crate) struct TornPart {
    /// From the start of the row's chunks.
    pub(crate) range: Range<Sectors>,
    pub(crate) state: TornState,
}

/// What can be computed from the blocks of a part of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TornState {
    /// All blocks belong together.
    Whole,
    /// All blocks except those in these slots, whose members missed the last write. Readers see these blocks as they
    /// are on the members.
    Missed(SlotSet),
    /// Nothing: the part was being made whole, and some of its parity is already new.
    Unknown,
}

/// The writes of one shard that the array's freeze left half done.
#[derive(Default)]
pub(crate) struct Torn {
    parts: RefCell<TornParts>,
}

impl Torn {
    /// Whether no write is left half done here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let parts = self.parts.borrow();
        parts.rows.is_empty() && parts.copies.is_empty()
    }

    pub(crate) fn mark_copies(&self, range: ArrayRange) {
        assert!(!range.length.is_zero(), "a write is of some sector");
        self.parts.borrow_mut().copies.push(range);
    }

    /// `missed`: the slots whose members do not have the write.
    pub(crate) fn mark_row(&self, row: Row, range: Range<Sectors>, missed: SlotSet) {
        assert!(range.start < range.end, "a write is of some sector");
        let mut parts = self.parts.borrow_mut();
        let of_row = parts.rows.entry(row).or_default();
        let meets = |part: &TornPart| part.range.start < range.end && range.start < part.range.end;
        assert!(!of_row.iter().any(meets), "no write goes to a torn part");
        of_row.push(TornPart { range, state: TornState::Missed(missed) });
    }

    /// The state of a part of a row. No write goes to a torn part, so a sector belongs to at most one. A range that
    /// overlaps several torn parts has the worst of their states.
    pub(crate) fn state(&self, row: Row, range: &Range<Sectors>) -> TornState {
        let parts = self.parts.borrow();
        let of_row = parts.rows.get(&row).into_iter().flatten();
        let meets = |part: &&TornPart| part.range.start < range.end && range.start < part.range.end;
        of_row.filter(meets).fold(TornState::Whole, |sum, part| match (sum, part.state) {
            (TornState::Unknown, _) | (_, TornState::Unknown) => TornState::Unknown,
            (TornState::Whole, state) | (state, TornState::Whole) => state,
            (TornState::Missed(sum), TornState::Missed(slots)) => TornState::Missed(sum.or(slots)),
        })
    }

    /// Replaces the state of the torn part that begins at `start`.
    pub(crate) fn set_state(&self, row: Row, start: Sectors, state: TornState) {
        assert_ne!(state, TornState::Whole, "a part that is whole is taken off the list with all others");
        let mut parts = self.parts.borrow_mut();
        let of_row = parts.rows.get_mut(&row).into_iter().flatten();
        let part = of_row.into_iter().find(|part| part.range.start == start);
        part.expect("a part that is made whole is torn").state = state;
    }

    pub(crate) fn parts(&self) -> TornParts {
        self.parts.borrow().clone()
    }

    pub(crate) fn clear(&self) {
        self.parts.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Slot;

    #[test]
    fn exactly_the_sectors_of_a_torn_part_are_torn() {
        let ranges = || (0..7).flat_map(|start| (start + 1..=7).map(move |end| Sectors(start)..Sectors(end)));
        let missed = SlotSet::EMPTY.with(Slot(1));
        for part in ranges() {
            let torn = Torn::default();
            torn.mark_row(Row(4), part.clone(), missed);
            for asked in ranges() {
                let meets = (asked.start.0..asked.end.0).any(|at| (part.start.0..part.end.0).contains(&at));
                let expected = if meets { TornState::Missed(missed) } else { TornState::Whole };
                assert_eq!(torn.state(Row(4), &asked), expected, "{part:?} is torn, asked for {asked:?}");
                assert_eq!(torn.state(Row(5), &asked), TornState::Whole, "another row");
            }
        }
    }
}
