//! What a check or repair has found.
//! Owns: [`Mismatch`], [`Findings`] (bounded), [`Checked`], the result of a pass. Not here: comparing (`resync`).
//! Invariant: the list keeps the lowest addresses and is bounded; the counts in `Progress` are of everything.

use crate::words::progress::{PassKind, Progress};
use uraid_block::{ArraySector, MemberSector, Sectors, SlotSet};

/// At most this many mismatches are listed. Further ones are only counted.
pub(crate) const MISMATCHES_MAX: usize = 1000;

/// Consecutive sectors whose copies, or whose parity and data, disagree in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The first sector of the array that may be wrong.
    pub sector: ArraySector,
    /// How many sectors of the array from there are concerned. If it is unknown which block of a row is wrong, or if it
    /// is parity: all data of the row's chunks.
    pub length: Sectors,
    /// The first sector on the members in `slots`, in sectors of their data. On raid10, on the first of these members.
    pub at: MemberSector,
    /// How many sectors of each member disagree.
    pub count: Sectors,
    /// The members that disagree with the rest. In a row: the block that is known to be wrong, or else those of P and Q
    /// that differ. Of copies: those that differ from the copy that counts.
    pub slots: SlotSet,
    /// Whether these are known to be wrong, because most of the others contradict them. If not, any member may be
    /// wrong.
    pub is_known: bool,
    /// Whether the repair has written them.
    pub is_corrected: bool,
}

impl Mismatch {
    fn address(&self) -> (ArraySector, MemberSector) {
        (self.sector, self.at)
    }
}

/// A bounded list of mismatches.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Sorted by address: windows do not end in the order of their addresses.
    list: Vec<Mismatch>,
}

impl Findings {
    pub(crate) fn add(&mut self, found: Mismatch) {
        let place = self.list.partition_point(|other| other.address() <= found.address());
        if place < MISMATCHES_MAX {
            self.list.truncate(MISMATCHES_MAX - 1);
            self.list.insert(place, found);
        }
    }

    /// Returns what was found, and empties the list.
    pub(crate) fn take(&mut self) -> Vec<Mismatch> {
        std::mem::take(&mut self.list)
    }

    /// The lists of all shards as one, by address.
    pub(crate) fn merge(lists: impl Iterator<Item = Vec<Mismatch>>) -> Vec<Mismatch> {
        let mut all: Vec<Mismatch> = lists.flatten().collect();
        all.sort_by_key(Mismatch::address);
        all.truncate(MISMATCHES_MAX);
        all
    }
}

/// How a check or repair ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckEnd {
    /// It has compared everything.
    Complete,
    /// By command.
    Ended,
    /// A resync or recovery became due.
    Superseded,
    /// The array stopped or froze.
    Stopped,
}

/// The result of a check or repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Which of the two.
    pub kind: PassKind,
    /// How it ended.
    pub end: CheckEnd,
    /// How far it came, and what it counted.
    pub progress: Progress,
    /// The first mismatches, by address; at most 1,000.
    pub mismatches: Vec<Mismatch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_addresses_are_kept_in_whatever_order_they_come() {
        let found = |sector| Mismatch {
            sector: ArraySector(sector),
            length: Sectors(1),
            at: MemberSector(sector),
            count: Sectors(1),
            slots: SlotSet::EMPTY,
            is_known: false,
            is_corrected: false,
        };
        let (mut findings, many) = (Findings::default(), MISMATCHES_MAX as u64 + 100);
        (0..many).rev().for_each(|sector| findings.add(found(sector)));
        let kept: Vec<u64> = findings.take().iter().map(|mismatch| mismatch.sector.0).collect();
        assert!(kept.into_iter().eq(0..MISMATCHES_MAX as u64), "the last ones are left out");
        // Two full lists, of even and odd addresses, are one of the same length.
        let of = |first: u64| (0..MISMATCHES_MAX as u64).map(move |at| found(first + 2 * at)).collect();
        let merged: Vec<u64> =
            Findings::merge([of(1), of(0)].into_iter()).iter().map(|mismatch| mismatch.sector.0).collect();
        assert!(merged.into_iter().eq(0..MISMATCHES_MAX as u64), "the first ones of both are kept");
    }
}
