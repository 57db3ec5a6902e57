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
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::{ArrayRange, IoError, SECTOR_BYTES, Sectors, Slot, SlotSet};
use uraid_layout::Row;
use uraid_parity::{generate_p, generate_pq};

/// A torn part is read and written in pieces of at most this length.
const PIECE_MAX: Sectors = Sectors((LARGE_BLOCK_BYTES / SECTOR_BYTES) as u64);

/// The torn parts of one shard's writes.
#[derive(Clone, Default, Debug)]
pub(crate) struct TornParts {
    /// Of mirrors: stretches of the array.
    copies: Vec<ArrayRange>,
    /// Of parity levels: parts of rows, from the start of their chunks.
    rows: BTreeMap<Row, Vec<Range<Sectors>>>,
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

    pub(crate) fn mark_row(&self, row: Row, part: Range<Sectors>) {
        self.parts.borrow_mut().rows.entry(row).or_default().push(part);
    }

    /// Whether any sector of this part of the row was left half written: nothing can be computed from its blocks.
    pub(crate) fn has_row(&self, row: Row, part: Range<Sectors>) -> bool {
        let parts = self.parts.borrow();
        let of_row = parts.rows.get(&row);
        of_row.is_some_and(|torn| torn.iter().any(|torn| torn.start < part.end && part.start < torn.end))
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
                self.mend_row(*row, part.clone(), leaving).await?;
            }
        }
        Ok(())
    }

    /// Writes what the canonical copy has to all the others.
    async fn mend_copies(&self, range: ArrayRange, leaving: SlotSet) -> Result<(), MendError> {
        let (layout, usable) = (&self.shape.layout, self.view().usable);
        let mut at = range.start;
        while at < range.end() {
            let length = (range.end() - at).min(PIECE_MAX).min(layout.contiguous(at));
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

    /// Writes the parity of the data that the row has.
    async fn mend_row(&self, row: Row, part: Range<Sectors>, leaving: SlotSet) -> Result<(), MendError> {
        let map = self.shape.layout.row(row);
        let usable = self.view().usable;
        let mut start = part.start;
        while start < part.end {
            let length = (part.end - start).min(PIECE_MAX);
            let at = map.start + start;
            let mut data = Vec::with_capacity(map.data.len());
            for slot in &map.data {
                if !usable.contains(*slot) {
                    return Err(MendError::Missing(*slot));
                }
                let block = self.read_block(*slot, at, length, Pool::Pass).await;
                data.push(block.map_err(|failed| MendError::Read(*slot, failed.error))?);
            }
            let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let mut p = vec![0; length.len_bytes()];
            let mut q = vec![0; length.len_bytes()];
            match map.syndrome {
                Some(_) => generate_pq(&mut p, &mut q, &data, &map.exponents),
                None => generate_p(&mut p, &data),
            }
            for (slot, parity) in [(Some(map.parity), &p), (map.syndrome, &q)] {
                let Some(slot) = slot.filter(|slot| usable.contains(*slot) && !leaving.contains(*slot)) else {
                    continue;
                };
                let outcome = self.write_window(slot, at, parity).await;
                outcome.map_err(|failure| MendError::Write(slot, failure.error))?;
            }
            start += length;
            self.torn.mended.set(self.torn.mended() + 1);
        }
        Ok(())
    }
}
