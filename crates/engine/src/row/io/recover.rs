//! Reading what a member of a row cannot give: its block is computed from the others.
//! Owns: which blocks are read for it, torn rows, rows that are not in sync. Not here: the fast path with one lost member
//! (`one_lost`), the arithmetic (`row::parity`), who holds the row (`row`).
//! Invariant: nothing is computed from blocks that do not belong together, as far as this shard knows.

use super::{RowIo, blocks, lost_error};
use crate::row::parity::{parities_agree, recover_blocks};
use crate::row::plan::{reads_to_recover, reads_to_verify};
use crate::shard::torn::TornState;
use crate::shard::unsynced::Computable;
use crate::words::failure::ReadError;
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use uraid_block::{ErrorKind, IoError, ReadPieces, Sectors, Slot, SlotSet};
use uraid_layout::RowMap;

/// The members that are not read when a lost block is computed.
struct Without {
    /// Members that did not supply the block.
    avoid: SlotSet,
    /// Members that do not answer now. They are read only if the other members do not suffice.
    late: SlotSet,
    /// Reads for the block that have failed already.
    earlier: Vec<ReadError>,
}

impl<W: World> RowIo<W> {
    /// Computes one stretch of data chunk `data` without the slots in `avoid` and those that fail meanwhile. `earlier`:
    /// reads for it that have failed already.
    pub(crate) async fn recover_interval(
        &self,
        map: &RowMap,
        data: usize,
        start: Sectors,
        into: ReadPieces,
        avoid: SlotSet,
        earlier: Vec<ReadError>,
    ) -> Result<ReadPieces, IoError> {
        assert!(data < map.data.len(), "a data block of the row");
        assert!(start + into.length() <= self.layout().chunk(), "the stretch is in one chunk");
        let mut read_errors = Vec::new();
        let without = Without { avoid, late: self.shared.slow_members(), earlier };
        let outcome = self.recover_around(map, data, start, into, without, &mut read_errors).await;
        if !read_errors.is_empty() {
            self.shared.settle_read_errors(read_errors, outcome.is_ok()).await;
        }
        outcome
    }

    async fn recover_around(
        &self,
        map: &RowMap,
        data: usize,
        start: Sectors,
        mut into: ReadPieces,
        without: Without,
        read_errors: &mut Vec<ReadError>,
    ) -> Result<ReadPieces, IoError> {
        let Without { avoid, mut late, earlier } = without;
        let room = self.blocks_to_read.acquire(self.interval_blocks()).await;
        self.shared.count(|counters| counters.rows_recovered += 1);
        let (length, slot) = (into.length(), map.data[data]);
        let (mut unreadable, mut suspected) = (avoid, avoid);
        if !earlier.is_empty() {
            self.note_failed_reads(earlier, &mut unreadable, &mut late, read_errors).await?;
        }
        loop {
            let state = self.shared.torn.state(map.row, &(start..start + length));
            if state != TornState::Whole && length > Sectors(1) {
                drop(room);
                // The halves meet these errors again.
                read_errors.clear();
                return self.recover_halves(map, data, start, into).await;
            }
            let Some(missed) = missed_beside(slot, state) else {
                mark::hit(Mark::TornRowRefused);
                return Err(ErrorKind::Media.into());
            };
            let view = self.shared.view();
            let blocks = blocks(map, &view, unreadable.or(missed).or(late));
            let is_whole = blocks.readable.contains(slot);
            if !is_whole && self.shared.unsynced.computable(slot, map.start + start, length) != Computable::Yes {
                if !late.is_empty() {
                    late = SlotSet::EMPTY;
                    continue;
                }
                drop(room);
                read_errors.clear();
                return self.recover_unsynced(map, data, start, into).await;
            }
            let wanted = if is_whole { Some(SlotSet::EMPTY.with(slot)) } else { reads_to_recover(&blocks) };
            let Some(wanted) = wanted else {
                if !late.is_empty() {
                    // The other members do not suffice: wait for the late ones.
                    late = SlotSet::EMPTY;
                    continue;
                }
                if length > Sectors(1) && !unreadable.is_empty() {
                    drop(room);
                    // The halves will meet these errors again.
                    read_errors.clear();
                    return self.recover_halves(map, data, start, into).await;
                }
                if suspected.is_empty() {
                    return Err(lost_error(unreadable.or(missed)));
                }
                // A member to be avoided may have failed only for neighbouring sectors.
                (unreadable, suspected) = (SlotSet::EMPTY, SlotSet::EMPTY);
                continue;
            };
            assert!(is_whole || !wanted.contains(slot), "what is to be computed cannot be read");
            match self.read_blocks(map, wanted, map.start + start, length).await {
                Ok(old) => {
                    let all = if old.data[data].is_some() {
                        old
                    } else {
                        recover_blocks(&self.shared.world, map, old, length, Pool::Row).await
                    };
                    into.copy_from(all.data[data].as_ref().expect("the block was read or computed"));
                    return Ok(into);
                }
                Err(failures) => {
                    mark::hit(Mark::RecoveredAround);
                    self.note_failed_reads(failures, &mut unreadable, &mut late, read_errors).await?;
                }
            }
        }
    }

    /// Reads a block that is lost where its row may not be in sync. On raid6 P and Q show where it is.
    async fn recover_unsynced(
        &self,
        map: &RowMap,
        data: usize,
        start: Sectors,
        mut into: ReadPieces,
    ) -> Result<ReadPieces, IoError> {
        let (at, length) = (map.start + start, into.length());
        let computable = self.shared.unsynced.computable(map.data[data], at, length);
        let may_agree = computable == Computable::IfParitiesAgree && map.syndrome.is_some();
        if may_agree && Box::pin(self.read_verified(map, data, start, &mut into)).await {
            return Ok(into);
        }
        if length > Sectors(1) && (may_agree || computable == Computable::Partly) {
            return self.recover_halves(map, data, start, into).await;
        }
        mark::hit(Mark::UnsyncedRefused);
        Err(ErrorKind::Media.into())
    }

    /// Computes a lost block if all other blocks of its row can be read, and P and Q agree about it.
    async fn read_verified(&self, map: &RowMap, data: usize, start: Sectors, into: &mut ReadPieces) -> bool {
        let length = into.length();
        let _room = self.blocks_to_read.acquire(self.interval_blocks()).await;
        let blocks = blocks(map, &self.shared.view(), SlotSet::EMPTY);
        let Some(wanted) = reads_to_verify(&blocks).filter(|_| !blocks.readable.contains(map.data[data])) else {
            return false;
        };
        let Ok(old) = self.read_blocks(map, wanted, map.start + start, length).await else { return false };
        let all = recover_blocks(&self.shared.world, map, old, length, Pool::Row).await;
        let agree = parities_agree(map, &all);
        if agree {
            into.copy_from(all.data[data].as_ref().expect("it was computed"));
        }
        agree
    }

    /// Like `write_halves`, for a read.
    async fn recover_halves(
        &self,
        map: &RowMap,
        data: usize,
        start: Sectors,
        into: ReadPieces,
    ) -> Result<ReadPieces, IoError> {
        mark::hit(Mark::RecoveredInHalves);
        let mut rest = into;
        let length = rest.length();
        assert!(length > Sectors(1), "a sector has no halves");
        let half = Sectors(length.0 / 2);
        let first = rest.split_to(half.len_bytes());
        let mut whole = Box::pin(self.recover_interval(map, data, start, first, SlotSet::EMPTY, Vec::new())).await?;
        whole.append(Box::pin(self.recover_interval(map, data, start + half, rest, SlotSet::EMPTY, Vec::new())).await?);
        assert_eq!(whole.length(), length);
        Ok(whole)
    }
}

/// The slots that missed a write of their row. `None` if `slot` missed it too, or if that is unknown. Then the other
/// members hold another version of its block than the one that readers have seen.
fn missed_beside(slot: Slot, state: TornState) -> Option<SlotSet> {
    match state {
        TornState::Whole => Some(SlotSet::EMPTY),
        TornState::Missed(missed) if !missed.contains(slot) => Some(missed),
        TornState::Missed(_) | TornState::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ```text
    ///   slot   0 new   1 new   2 old, missed the write   3 parity of the new ones
    /// ```
    /// From the others slot 2 would become new, which no reader has seen of it.
    #[test]
    fn a_block_that_missed_a_write_is_not_computed_from_those_that_have_it() {
        let missed = SlotSet::EMPTY.with(Slot(2));
        assert_eq!(missed_beside(Slot(1), TornState::Missed(missed)), Some(missed));
        assert_eq!(missed_beside(Slot(2), TornState::Missed(missed)), None);
        assert_eq!(missed_beside(Slot(2), TornState::Whole), Some(SlotSet::EMPTY));
        assert_eq!(missed_beside(Slot(2), TornState::Unknown), None);
    }
}
