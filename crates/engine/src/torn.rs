//! Writes that a freeze left half done: some members have them, others do not.
//! Owns: [`Torn`], making them whole. Not here: when that is done (`by_command`, the resync of the next start).
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

use crate::array::Array;
use crate::mail::Call;
use crate::resync::{WINDOW, parity_of};
use crate::row_io::{self, OldBytes};
use crate::row_plan::reads_to_recover;
use crate::{Pool, World};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use uraid_block::{ArrayRange, IoError, Lease, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::{Row, RowMap};

/// The torn parts of one shard's writes.
#[derive(Clone, Default, Debug)]
pub(crate) struct TornParts {
    /// Of mirrors: stretches of the array.
    copies: Vec<ArrayRange>,
    /// Of parity levels: parts of rows, from the start of their chunks.
    rows: BTreeMap<Row, Vec<TornPart>>,
}

/// A part of a row that a refused write left half done.
#[derive(Clone, Debug)]
struct TornPart {
    /// From the start of the row's chunks.
    range: Range<Sectors>,
    state: TornState,
}

/// What can be computed from the blocks of a part of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TornState {
    /// All blocks belong together.
    Whole,
    /// All but those in these slots, whose members missed the last write. What these hold is what readers see of them.
    Missed(SlotSet),
    /// Nothing: it was being made whole, and some of its parity is new.
    Unknown,
}

/// The writes of one shard that the array's freeze left half done.
#[derive(Default)]
pub(crate) struct Torn {
    parts: RefCell<TornParts>,
    /// Pieces that were made whole so far.
    mended: Cell<u64>,
}

/// Why a torn part was not made whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MendError {
    /// A member whose version is kept could not be read.
    Read(Slot, IoError),
    /// A member could not be written.
    Write(Slot, IoError),
    /// A data member of the row is missing, and cannot be computed.
    Missing(Slot),
}

impl Torn {
    pub(crate) fn mark_copies(&self, range: ArrayRange) {
        self.parts.borrow_mut().copies.push(range);
    }

    /// `missed`: the slots whose members do not have the write.
    pub(crate) fn mark_row(&self, row: Row, range: Range<Sectors>, missed: SlotSet) {
        let part = TornPart { range, state: TornState::Missed(missed) };
        self.parts.borrow_mut().rows.entry(row).or_default().push(part);
    }

    /// The state of a part of a row. No write goes to a torn part, so each sector is of one torn part at most; where a
    /// longer part meets several, it is as bad as all of them.
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
        let mut parts = self.parts.borrow_mut();
        let of_row = parts.rows.get_mut(&row).into_iter().flatten();
        of_row.filter(|part| part.range.start == start).for_each(|part| part.state = state);
    }

    pub(crate) fn parts(&self) -> TornParts {
        self.parts.borrow().clone()
    }

    /// Grows with each piece that is made whole.
    pub(crate) fn mended(&self) -> u64 {
        self.mended.get()
    }

    pub(crate) fn clear(&self) {
        self.parts.take();
    }
}

impl<W: World> Array<W> {
    /// Makes torn parts whole on all members but those in `leaving`, which will be failed. Nothing else may read or
    /// write the array meanwhile.
    pub(crate) async fn mend(&self, torn: &TornParts, leaving: SlotSet) -> Result<(), MendError> {
        assert!(self.is_redundant(), "a level without redundancy has no two versions");
        for range in &torn.copies {
            self.mend_copies(*range, leaving).await?;
        }
        for (row, parts) in &torn.rows {
            for part in parts {
                let state = self.mend_row(*row, part, leaving).await?;
                self.set_row_state(*row, part.range.start, state).await;
            }
        }
        Ok(())
    }

    /// Tells the owner of a row.
    async fn set_row_state(&self, row: Row, start: Sectors, state: TornState) {
        self.call(self.owner_of(row), Call::SetTorn { row, start, state }).await.done();
    }

    /// Writes what the canonical copy has to all the others.
    async fn mend_copies(&self, range: ArrayRange, leaving: SlotSet) -> Result<(), MendError> {
        let (layout, usable) = (&self.shape.layout, self.view().usable);
        let mut at = range.start;
        while at < range.end() {
            let length = (range.end() - at).min(Sectors(WINDOW)).min(layout.contiguous(at));
            let copies = layout.copies(at);
            let mut places = copies.iter().filter(|(slot, _)| usable.contains(*slot));
            let (slot, place) = *places.next().expect("every sector has a usable copy");
            let bytes = self.read_block(slot, place, length, Pool::Pass).await;
            let bytes = bytes.map_err(|failed| MendError::Read(slot, failed.error))?;
            for (slot, place) in places.filter(|(slot, _)| !leaving.contains(*slot)) {
                let outcome = self.write_window(*slot, *place, &bytes).await;
                outcome.map_err(|failure| MendError::Write(*slot, failure.error))?;
            }
            at = at + length;
            self.torn.mended.set(self.torn.mended() + 1);
        }
        Ok(())
    }

    /// Writes the parity of the data that the row has. Returns what can be computed from it then.
    async fn mend_row(&self, row: Row, part: &TornPart, leaving: SlotSet) -> Result<TornState, MendError> {
        let map = self.shape.layout.row(row);
        let mut start = part.range.start;
        while start < part.range.end {
            let length = (part.range.end - start).min(Sectors(WINDOW));
            let at = map.start + start;
            let data = self.data_of(&map, at, length, part.state).await?;
            let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let (p, q) = parity_of(&map, &data);
            // Until both are written, they do not belong together.
            self.set_row_state(row, part.range.start, TornState::Unknown).await;
            for (slot, parity) in [(Some(map.parity), &p), (map.syndrome, &q)] {
                let Some(slot) = slot.filter(|slot| self.view().usable.minus(leaving).contains(*slot)) else {
                    continue;
                };
                let outcome = self.write_window(slot, at, parity).await;
                outcome.map_err(|failure| MendError::Write(slot, failure.error))?;
            }
            start += length;
            self.torn.mended.set(self.torn.mended() + 1);
        }
        let parity: SlotSet = [Some(map.parity), map.syndrome].into_iter().flatten().collect();
        Ok(TornState::Missed(parity.and(leaving)))
    }

    /// The data of a stretch of a torn row, as readers see it. What a missing member held is computed from the blocks that
    /// belong together.
    async fn data_of(
        &self,
        map: &RowMap,
        at: MemberSector,
        length: Sectors,
        state: TornState,
    ) -> Result<SmallVec<[Lease; 8]>, MendError> {
        let usable = self.view().usable;
        let read = async |slot: Slot| {
            let block = self.read_block(slot, at, length, Pool::Pass).await;
            block.map_err(|failed| MendError::Read(slot, failed.error))
        };
        let mut data: SmallVec<[Option<Lease>; 8]> = SmallVec::new();
        for slot in &map.data {
            data.push(if usable.contains(*slot) { Some(read(*slot).await?) } else { None });
        }
        if let Some(missing) = map.data.iter().find(|slot| !usable.contains(**slot)) {
            let TornState::Missed(missed) = state else { return Err(MendError::Missing(*missing)) };
            let together = usable.minus(missed);
            let wanted = reads_to_recover(&row_io::blocks_of(map, usable, together));
            let wanted = wanted.ok_or(MendError::Missing(*missing))?;
            let mut known = OldBytes::default();
            for slot in &map.data {
                known.data.push(if wanted.contains(*slot) { Some(read(*slot).await?) } else { None });
            }
            for (slot, block) in [(Some(map.parity), &mut known.p), (map.syndrome, &mut known.q)] {
                if let Some(slot) = slot.filter(|slot| wanted.contains(*slot)) {
                    *block = Some(read(slot).await?);
                }
            }
            let _room = self.rows.blocks.acquire(usize::from(self.shape.layout.slots()) + 2).await;
            let known = self.recover_blocks(map, known, length, Pool::Row).await;
            for (seen, computed) in data.iter_mut().zip(known.data) {
                if seen.is_none() {
                    *seen = computed;
                }
            }
        }
        Ok(data.into_iter().map(|block| block.expect("it was read or computed")).collect())
    }
}
