//! Resyncs torn parts: what a freeze left half done.
//! Owns: [`TornResync`], the writes that make torn parts whole. Not here: which parts are torn (`torn`), when this is
//! done (`fail`), the pass over the whole array (`kinds::resync`).
//! Invariant: what readers see of a torn part stays: the canonical copy of a mirror, the data of a row. Members are not read
//! where their lists name sectors, and need not take them.

use crate::row::io::RowIo;
use crate::row::parity::{OldBytes, parity_of, recover_blocks};
use crate::row::plan::{blocks_of, reads_to_recover};
use crate::shard::mail::Call;
use crate::shard::shared::Shared;
use crate::shard::torn::{TornPart, TornParts, TornState};
use crate::shard::world::{Pool, World};
use crate::words::mark::{self, Mark};
use crate::words::progress::WINDOW;
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;
use uraid_block::{ArrayRange, ErrorKind, IoError, Lease, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::{Row, RowMap};

/// Why a torn part was not made whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TornResyncError {
    /// A member whose version is kept could not be read.
    Read(Slot, IoError),
    /// A member could not be written.
    Write(Slot, IoError),
    /// A data member of the row is missing, and cannot be computed.
    Missing(Slot),
}

/// Makes torn parts whole; on shard 0 only.
pub(crate) struct TornResync<W: World> {
    shared: Rc<Shared<W>>,
    /// `None` on mirrors.
    rows: Option<Rc<RowIo<W>>>,
    resynced: Cell<u64>,
}

impl<W: World> TornResync<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, rows: Option<Rc<RowIo<W>>>) -> TornResync<W> {
        assert_eq!(shared.layout().level().is_parity(), rows.is_some(), "only parity levels have rows");
        TornResync { shared, rows, resynced: Cell::new(0) }
    }

    /// How many pieces were made whole so far. A caller can see from it whether the resync still makes progress.
    pub(crate) fn resynced(&self) -> u64 {
        self.resynced.get()
    }

    /// Makes torn parts whole on all members but those in `leaving`, which will be failed. Nothing else may read or
    /// write the array meanwhile.
    pub(crate) async fn resync(&self, torn: &TornParts, leaving: SlotSet) -> Result<(), TornResyncError> {
        assert!(self.shared.is_redundant(), "a level without redundancy has no two versions");
        for range in &torn.copies {
            self.resync_copies(*range, leaving).await?;
        }
        assert!(self.rows.is_some() || torn.rows.is_empty(), "only parity levels have rows");
        for (rows, (row, parts)) in self.rows.iter().flat_map(|rows| torn.rows.iter().map(move |of_row| (rows, of_row)))
        {
            for part in parts {
                let state = self.resync_row(rows, *row, part, leaving).await?;
                self.set_row_state(*row, part.range.start, state).await;
            }
        }
        Ok(())
    }

    /// Sends the new state of a torn part to the owner of its row.
    async fn set_row_state(&self, row: Row, start: Sectors, state: TornState) {
        self.shared.calls.call(self.shared.owner_of(row), Call::SetTorn { row, start, state }).await.done();
    }

    /// Copies the canonical copy to all others: the first one that is not listed.
    async fn resync_copies(&self, range: ArrayRange, leaving: SlotSet) -> Result<(), TornResyncError> {
        let view = self.shared.view();
        let layout = view.shape.layout();
        let usable = view.readable();
        let mut at = range.start;
        while at < range.end() {
            let length = (range.end() - at).min(Sectors(WINDOW)).min(layout.contiguous(at));
            let copies = view.in_order(layout.copies(at));
            let places = || copies.iter().copied().filter(|(slot, _)| usable.contains(*slot));
            assert!(places().next().is_some(), "every sector has a usable copy");
            let length = self.shared.listed_alike(places(), length);
            assert!(!length.is_zero(), "a step goes on");
            let source = places().find(|(slot, place)| !self.shared.lists_some(*slot, *place, length));
            // What all of them list cannot be read, and stays so.
            if let Some((source, place)) = source {
                let bytes = self.shared.read_block(source, place, length, Pool::Pass).await;
                let bytes = bytes.map_err(|failed| TornResyncError::Read(source, failed.error))?;
                for (slot, place) in places().filter(|(slot, _)| *slot != source && !leaving.contains(*slot)) {
                    self.write(slot, place, &bytes).await?;
                }
            }
            at = at + length;
            self.resynced.set(self.resynced.get() + 1);
        }
        Ok(())
    }

    /// Writes a block that the member's list names as a whole, or not at all. What is listed and cannot be written stays
    /// listed: nobody reads it.
    async fn write(&self, slot: Slot, at: MemberSector, bytes: &[u8]) -> Result<(), TornResyncError> {
        let is_listed = self.shared.lists_some(slot, at, Sectors::from_bytes_floor(bytes.len() as u64));
        match self.shared.write_first(slot, at, bytes).await {
            Ok(()) => Ok(()),
            Err(failure) if is_listed && failure.error.kind == ErrorKind::Media => {
                mark::hit(Mark::TornStaysListed);
                Ok(())
            }
            Err(failure) => Err(TornResyncError::Write(slot, failure.error)),
        }
    }

    /// Computes the row's parity from its present data, and writes that parity. Returns the state of the row
    /// afterwards.
    async fn resync_row(
        &self,
        rows: &RowIo<W>,
        row: Row,
        part: &TornPart,
        leaving: SlotSet,
    ) -> Result<TornState, TornResyncError> {
        assert!(part.range.start < part.range.end && part.range.end <= rows.layout().chunk(), "a part of a row");
        assert_ne!(part.state, TornState::Whole, "only torn parts are listed");
        let map = rows.layout().row(row);
        let mut start = part.range.start;
        while start < part.range.end {
            let at = map.start + start;
            let usable = self.shared.view().readable();
            let places = usable.iter().map(|slot| (slot, at));
            let length = self.shared.listed_alike(places, (part.range.end - start).min(Sectors(WINDOW)));
            assert!(!length.is_zero(), "a step goes on");
            let data = self.data_of(rows, &map, at, length, part.state).await?;
            let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let (p, q) = parity_of(&map, &data);
            // Until all parity is written, the blocks do not belong together.
            self.set_row_state(row, part.range.start, TornState::Unknown).await;
            for (slot, parity) in [(Some(map.parity), &p), (map.syndrome, &q)] {
                let Some(slot) = slot.filter(|slot| self.shared.view().writable().minus(leaving).contains(*slot))
                else {
                    continue;
                };
                self.write(slot, at, parity).await?;
            }
            start += length;
            self.resynced.set(self.resynced.get() + 1);
        }
        let parity: SlotSet = [Some(map.parity), map.syndrome].into_iter().flatten().collect();
        Ok(TornState::Missed(parity.and(leaving)))
    }

    /// The data of a stretch of a torn row, as readers see it. What a missing member held, or one that lists it, is computed
    /// from the blocks that belong together.
    async fn data_of(
        &self,
        rows: &RowIo<W>,
        map: &RowMap,
        at: MemberSector,
        length: Sectors,
        state: TornState,
    ) -> Result<SmallVec<[Lease; 8]>, TornResyncError> {
        let readable = self.shared.view().readable();
        let usable: SlotSet = readable.iter().filter(|slot| !self.shared.lists_some(*slot, at, length)).collect();
        let read = async |slot: Slot| {
            let block = self.shared.read_block(slot, at, length, Pool::Pass).await;
            block.map_err(|failed| TornResyncError::Read(slot, failed.error))
        };
        let mut data: SmallVec<[Option<Lease>; 8]> = SmallVec::new();
        for slot in &map.data {
            data.push(if usable.contains(*slot) { Some(read(*slot).await?) } else { None });
        }
        if let Some(missing) = map.data.iter().find(|slot| !usable.contains(**slot)) {
            let TornState::Missed(missed) = state else { return Err(TornResyncError::Missing(*missing)) };
            let together = usable.minus(missed);
            let wanted = reads_to_recover(&blocks_of(map, usable, together));
            let wanted = wanted.ok_or(TornResyncError::Missing(*missing))?;
            let mut known = OldBytes::default();
            for slot in &map.data {
                known.data.push(if wanted.contains(*slot) { Some(read(*slot).await?) } else { None });
            }
            for (slot, block) in [(Some(map.parity), &mut known.p), (map.syndrome, &mut known.q)] {
                if let Some(slot) = slot.filter(|slot| wanted.contains(*slot)) {
                    *block = Some(read(slot).await?);
                }
            }
            let _room = rows.room_for_interval().await;
            let known = recover_blocks(&self.shared.world, map, known, length, Pool::Row).await;
            for (seen, computed) in data.iter_mut().zip(known.data) {
                if seen.is_none() {
                    *seen = computed;
                }
            }
        }
        assert_eq!(data.len(), map.data.len());
        let data: SmallVec<[Lease; 8]> =
            data.into_iter().map(|block| block.expect("it was read or computed")).collect();
        assert!(data.iter().all(|block| block.len() == length.len_bytes()), "each block is as long as the stretch");
        Ok(data)
    }
}
