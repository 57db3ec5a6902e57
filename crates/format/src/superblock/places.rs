//! The places of a member's other metadata, as its superblock records them.
//! Owns: signed distances from the superblock -> extents of the device. Not here: the bytes there (`bitmap`, `ppl`,
//! ...).
//! Invariant: a returned extent starts at an addressable sector and is not empty.
//! Spec: docs/format/superblock-1.md; docs/md/formats.md#version-1-superblock.

use super::{SECTORS_END, SUPERBLOCK_BYTES, Superblock};
use crate::Features;
use uraid_block::{Extent, SECTOR_BYTES, Sector, Sectors};

const SUPERBLOCK_SECTORS: u64 = (SUPERBLOCK_BYTES / SECTOR_BYTES) as u64;

impl Superblock {
    /// The first sector of the write-intent bitmap; `None` without one, or if it would be outside of every device.
    pub fn bitmap_start(&self) -> Option<Sector> {
        let has_bitmap = self.features.contains(Features::BITMAP_OFFSET) && self.ppl_word().is_none();
        if has_bitmap { self.at_distance(self.bitmap_offset) } else { None }
    }

    /// The place of a bitmap at `offset` sectors from this superblock, up to what follows it: the superblock, the list of
    /// bad blocks, the data. `None` if something is there already, or nothing follows.
    ///
    /// Version 1.2, superblock at 8, offset 8, list at 16 sectors, data from 2048: 16..24.
    pub fn bitmap_room(&self, offset: i32) -> Option<Extent<Sector>> {
        let start = self.at_distance(offset)?;
        let superblock = Extent::new(self.super_offset, Sectors(SUPERBLOCK_SECTORS));
        let data = (!self.data_size.is_zero()).then(|| Extent::new(self.data_offset, self.data_size));
        let taken = [Some(superblock), self.bad_blocks_extent(), data];
        let mut end = SECTORS_END;
        for other in taken.into_iter().flatten() {
            if other.start > start {
                end = end.min(other.start.0);
            } else if other.start + other.length > start {
                return None;
            }
        }
        (end < SECTORS_END).then(|| Extent::between(start, Sector(end)))
    }

    /// The area of the partial parity log; `None` without one, or if it would be outside of every device.
    pub fn ppl_extent(&self) -> Option<Extent<Sector>> {
        let (offset, size) = self.ppl_word()?;
        let start = self.at_distance(offset.into())?;
        (size > 0).then(|| Extent::new(start, Sectors(size.into())))
    }

    /// The same area, if nothing else lies in it: superblock, bad-block log, data.
    pub fn ppl_room(&self) -> Option<Extent<Sector>> {
        let area = self.ppl_extent()?;
        let superblock = Extent::new(self.super_offset, Sectors(SUPERBLOCK_SECTORS));
        let data = (!self.data_size.is_zero()).then(|| Extent::new(self.data_offset, self.data_size));
        let mut taken = [Some(superblock), self.bad_blocks_extent(), data].into_iter().flatten();
        let overlaps =
            |other: Extent<Sector>| other.start < area.start + area.length && area.start < other.start + other.length;
        (!taken.any(overlaps)).then_some(area)
    }

    /// The area of the bad-block log, whether it is in force or not; `None` without one, or if it would be outside of
    /// every device.
    pub fn bad_blocks_extent(&self) -> Option<Extent<Sector>> {
        let list = self.bad_blocks;
        if list.size == 0 || list.offset == 0 {
            return None;
        }
        Some(Extent::new(self.at_distance(list.offset)?, Sectors(list.size.into())))
    }

    /// The distance from the superblock and the size of the partial parity log, both in sectors. They share the field
    /// of the bitmap's offset. `None` without one.
    pub fn ppl_word(&self) -> Option<(i16, u16)> {
        let bytes = self.bitmap_offset.to_le_bytes();
        let has_ppl = self.features.intersects(Features::PPL.with(Features::MULTIPLE_PPLS));
        has_ppl.then(|| (i16::from_le_bytes([bytes[0], bytes[1]]), u16::from_le_bytes([bytes[2], bytes[3]])))
    }

    fn at_distance(&self, distance: i32) -> Option<Sector> {
        let at = self.super_offset.0.checked_add_signed(distance.into())?;
        (at < SECTORS_END).then_some(Sector(at))
    }
}
