//! Zeroes for whole rows of parity levels: one request for each member, whatever the length.
//! Owns: which rows of a range are whole, their locks at every owner, the requests. Not here: parts of rows, which are
//! written as data (`row`); the locks themselves (`permit`).
//! Invariant: P and Q of zeroes are zeroes, so rows are consistent again when every member has its zeroes. Until the
//! failures of the request are recorded, no other request and no window of a pass is in these rows.
//!
//! ```text
//!   range       |row 3, a part|row 4|row 5|row 6|row 7, a part|
//!   as data     ===============                 ===============
//!   locks                      rows 4..7 at shard 0, then rows 4..7 at shard 1
//!   requests                   m0: zeroes of 3 chunks; m1: the same; m2: the same
//! ```

use crate::row::io::RowIo;
use crate::shard::mail::{Answer, Call, Mail, Message, ZeroedRows};
use crate::shard::member_io::{MemberRun, Zeroing};
use crate::shard::shared::Shared;
use crate::shard::world::World;
use crate::state::recorded::{NotRecorded, Recorded};
use crate::state::view::{Gate, frozen_error};
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use smallvec::SmallVec;
use std::ops::Range;
use uraid_block::local::{join_all, join_each};
use uraid_block::{ArrayRange, ArraySector, IoError, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::Row;

/// At most this many rows are locked together. What a freeze leaves half done is listed row by row.
const ROWS_MAX: u64 = 65_536;

/// A range of a parity level, cut into whole rows and the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WholeRows {
    /// Before the first whole row; all of the range if it has none.
    pub(crate) before: Option<ArrayRange>,
    /// May be empty.
    pub(crate) rows: Range<u64>,
    /// Behind the last whole row.
    pub(crate) behind: Option<ArrayRange>,
}

impl WholeRows {
    pub(crate) fn of(range: ArrayRange, stripe: Sectors) -> WholeRows {
        let (start, end) = (range.start.0, range.end().0);
        let (first, last) = (start.div_ceil(stripe.0), end / stripe.0);
        let part = |from: u64, to: u64| (from < to).then(|| ArrayRange::new(ArraySector(from), Sectors(to - from)));
        if first >= last {
            return WholeRows { before: part(start, end), rows: 0..0, behind: None };
        }
        WholeRows { before: part(start, first * stripe.0), rows: first..last, behind: part(last * stripe.0, end) }
    }

    /// The rows in steps that are locked one after the other.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let end = self.rows.end;
        self.rows.clone().step_by(ROWS_MAX as usize).map(move |first| first..end.min(first + ROWS_MAX))
    }
}

/// A part of what a slot's member holds.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) slot: Slot,
    pub(crate) at: MemberSector,
    pub(crate) length: Sectors,
}

impl<W: World> RowIo<W> {
    /// Makes these rows zeroes on every member, P and Q too. It is answered when the superblocks record the members that
    /// missed it.
    pub(crate) async fn zero_rows(&self, rows: Range<u64>, how: Zeroing) -> Result<Recorded, IoError> {
        mark::hit(Mark::RowsZeroed);
        let _locks = self.shared().lock_rows(rows.clone()).await;
        let all = {
            let layout = self.layout();
            let (at, length) = (layout.row_start(Row(rows.start)), Sectors((rows.end - rows.start) * layout.chunk().0));
            (0..layout.slots()).map(move |slot| Stretch { slot: Slot(slot), at, length })
        };
        self.zero_held(rows, all, how).await
    }

    /// Makes rows that this task holds zeroes by these stretches; the rest of their data is zeroes already.
    pub(crate) async fn zero_held(
        &self,
        rows: Range<u64>,
        stretches: impl Iterator<Item = Stretch>,
        how: Zeroing,
    ) -> Result<Recorded, IoError> {
        assert!(!rows.is_empty() && !self.shared().has_log, "a logged row is written as data");
        let shared = self.shared();
        let view = shared.view();
        // A freeze is known here before any row that it left half done is unlocked.
        if let Gate::Frozen(kind) = view.gate {
            return Err(frozen_error(kind));
        }
        let runs = stretches.filter(|part| view.writable().contains(part.slot)).flat_map(|part| {
            let run = |member| MemberRun::of(part.slot, &member, part.at, part.length);
            view.writers(part.slot).map(run).collect::<SmallVec<[MemberRun; 2]>>()
        });
        let outcomes = join_each(runs.map(async |run| how.run(shared, &run).await));
        let failures: Vec<Failure> = outcomes.await.filter_map(Result::err).collect();
        shared.count(|counters| counters.rows_full += rows.end - rows.start);
        let outcome = shared.settle_planned(Recorded::by(&view), &failures).await;
        let left = match &outcome {
            Ok(_) => Some(Ok(())),
            Err(NotRecorded::Frozen(_)) => {
                mark::hit(Mark::RowsZeroedTorn);
                Some(Err(failures.iter().map(|failure| failure.slot).collect()))
            }
            Err(NotRecorded::Unwritten(_)) => None,
        };
        if let Some(outcome) = left {
            self.tell_owners(&ZeroedRows { rows, outcome }).await;
        }
        Ok(outcome?)
    }

    /// Tells the owners of rows, while these are locked. Rows that are whole need no answer: an owner gets its mail in
    /// order, so it knows of them before it unlocks them.
    async fn tell_owners(&self, zeroed: &ZeroedRows) {
        let shared = self.shared();
        let here = shared.world.shard();
        let others = || shared.owners_of(zeroed.rows.clone()).filter(|owner| *owner != here);
        shared.note_zeroed(zeroed);
        if zeroed.outcome.is_ok() {
            others().for_each(|owner| shared.world.post(owner, Mail(Message::ZeroedRows(zeroed.clone()))));
            return;
        }
        let told = join_all(others().map(|owner| shared.calls.call(owner, Call::ZeroedRows(zeroed.clone()))));
        told.await.into_iter().for_each(Answer::done);
    }
}

impl<W: World> Shared<W> {
    /// Notes what the zeroing of rows has left, for those that this shard owns.
    pub(crate) fn note_zeroed(&self, zeroed: &ZeroedRows) {
        let layout = self.rows();
        let ZeroedRows { rows, outcome } = zeroed;
        match outcome {
            Ok(()) => {
                let (at, length) = (layout.row_start(Row(rows.start)), (rows.end - rows.start) * layout.chunk().0);
                let known = SlotSet::first(layout.slots());
                self.unsynced.settle(at, Sectors(length), (SlotSet::EMPTY, SlotSet::EMPTY), known);
            }
            Err(missed) => {
                let own = rows.clone().map(Row).filter(|row| self.owner_of(*row) == self.world.shard());
                own.for_each(|row| self.torn.mark_row(row, Sectors::ZERO..layout.chunk(), *missed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sector_is_in_one_part_and_only_whole_rows_are_rows() {
        for stripe in 1..6 {
            for start in 0..20 {
                for length in 1..20 {
                    let range = ArrayRange::new(ArraySector(start), Sectors(length));
                    let cut = WholeRows::of(range, Sectors(stripe));
                    let sectors = |part: &Option<ArrayRange>| {
                        part.map_or(0..0, |part| part.start.0..part.end().0).collect::<Vec<u64>>()
                    };
                    let mut all = sectors(&cut.before);
                    all.extend(cut.rows.start * stripe..cut.rows.end * stripe);
                    all.extend(sectors(&cut.behind));
                    assert_eq!(all, (start..start + length).collect::<Vec<u64>>(), "stripe {stripe}: {cut:?}");
                    let has_row = (start..start + length).any(|x| x % stripe == 0 && x + stripe <= start + length);
                    assert_eq!(!cut.rows.is_empty(), has_row, "stripe {stripe}: {cut:?}");
                }
            }
        }
    }

    #[test]
    fn steps_cover_the_rows() {
        let cut = WholeRows { before: None, rows: 7..2 * ROWS_MAX + 8, behind: None };
        let steps: Vec<Range<u64>> = cut.steps().collect();
        assert_eq!(steps, [7..ROWS_MAX + 7, ROWS_MAX + 7..2 * ROWS_MAX + 7, 2 * ROWS_MAX + 7..2 * ROWS_MAX + 8]);
        assert_eq!(WholeRows { rows: 0..0, ..cut }.steps().count(), 0);
    }
}
