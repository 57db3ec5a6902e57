//! The sectors read so far, from members and from an array in an assumed order.
//! Owns: one read per sector, arrays sector by sector. Not here: the meaning of the bytes (`marks`, `rows`, `seams`).
//! Invariant: a sector is read once. An unreadable sector counts as no evidence, not as contrary evidence.

use crate::order::question::Members;
use std::collections::BTreeMap;
use uraid_block::{ArraySector, SECTOR_BYTES, Sector, Sectors};
use uraid_layout::{Layout, Row};

/// Sectors of a block: the allocation unit of file systems, and the unit of the parity evidence.
pub(crate) const BLOCK: Sectors = Sectors(8);

type Bytes = [u8; SECTOR_BYTES];

/// An order of a geometry.
pub(crate) struct Assumed<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) data_offset: Sector,
    pub(crate) order: &'a [Option<usize>],
}

/// The sectors read so far.
pub(crate) struct Bench<'a> {
    members: &'a mut dyn Members,
    sectors: BTreeMap<(usize, Sector), Option<Box<Bytes>>>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(members: &'a mut dyn Members) -> Bench<'a> {
        Bench { members, sectors: BTreeMap::new() }
    }

    pub(crate) fn progress(&mut self, done: usize, of: usize) {
        self.members.progress(done, of);
    }

    /// A sector of a member, counted from its start.
    pub(crate) fn sector(&mut self, member: usize, at: Sector) -> Option<&Bytes> {
        let members = &mut *self.members;
        let read = || {
            let mut sector = Box::new([0; SECTOR_BYTES]);
            members.read(member, at, &mut sector).then_some(sector)
        };
        self.sectors.entry((member, at)).or_insert_with(read).as_deref()
    }

    /// Whether the sector was read and contains anything but zeroes.
    pub(crate) fn has_data(&mut self, member: usize, at: Sector) -> bool {
        self.sector(member, at).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
    }

    /// The block that begins at this sector.
    pub(crate) fn block(&mut self, member: usize, at: Sector) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(BLOCK.len_bytes());
        for nth in 0..BLOCK.0 {
            bytes.extend_from_slice(self.sector(member, at + Sectors(nth))?);
        }
        Some(bytes)
    }

    /// A sector of the array in this order; computed from P if its member is missing.
    pub(crate) fn of_array(&mut self, assumed: &Assumed<'_>, at: ArraySector) -> Option<Bytes> {
        let layout = assumed.layout;
        if at.0 >= layout.array_size().0 {
            return None;
        }
        let copies = layout.copies(at);
        for (slot, on_member) in &copies {
            if let Some(member) = assumed.order[slot.index()] {
                return self.sector(member, assumed.data_offset + Sectors(on_member.0)).copied();
            }
        }
        let Layout::Parity(layout) = layout else { return None };
        let (slot, on_member) = *copies.first()?;
        let on_device = assumed.data_offset + Sectors(on_member.0);
        let row = layout.row(Row(on_member.0 / layout.chunk().0));
        let mut sum = [0; SECTOR_BYTES];
        for other in row.data.iter().chain([&row.parity]).filter(|other| **other != slot) {
            // If two members are missing, Q would be needed: return nothing for that sector.
            let bytes = self.sector(assumed.order[other.index()]?, on_device)?;
            uraid_parity::xor_into(&mut sum, bytes);
        }
        Some(sum)
    }
}
