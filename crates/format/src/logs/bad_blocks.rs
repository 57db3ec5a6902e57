//! The bad-block log of a member: bytes <-> ranges.
//! Owns: the codec of the list. Not here: whether the list counts (`Features::BAD_BLOCKS`), what to do about it (`engine`).
//! Invariant: what is parsed, encoded and parsed again is the same list.
//! Spec: docs/format/bad-blocks.md; docs/md/formats.md#bad-blocks.

use crate::{Features, Superblock};
use uraid_block::{Extent, SECTOR_BYTES, Sector, Sectors};

/// Bytes of the largest list, the only size that mdadm makes: 8 sectors.
pub const BAD_BLOCKS_BYTES: usize = 8 * SECTOR_BYTES;

const ENTRY_BYTES: usize = 8;
const LENGTH_BITS: u32 = 10;
/// The largest length that fits in the ten bits.
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
/// The end mark; it also fills the unused rest of the list.
const END: u64 = u64::MAX;

/// A range that could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRange {
    /// Counted from the start of the device, not from data_offset.
    pub start: Sector,
    /// At least one block of the list's shift.
    pub length: Sectors,
}

/// A list in the order of the disk; at most 512 entries.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BadBlockLog {
    /// Entries count blocks of 2^shift sectors.
    pub shift: u8,
    /// The ranges.
    pub ranges: Vec<BadRange>,
}

/// Why bytes cannot be parsed as a list, or a list cannot be encoded. Entries count from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadBlocksError {
    /// An entry without a length.
    #[error("bad-block entry {entry} has length 0, expected 1 to {LENGTH_MAX}")]
    Empty {
        /// Its number.
        entry: usize,
    },
    /// The range exceeds what can be addressed, given the shift.
    #[error(
        "bad-block entry {entry} is out of range: block {block} with shift {shift}, expected an end below sector 2^54"
    )]
    Range {
        /// Its number.
        entry: usize,
        /// Its first block.
        block: u64,
        /// The list's shift.
        shift: u8,
    },
    /// A range that the list's blocks cannot express.
    #[error("bad range {entry} cannot be written with shift {shift}, expected whole blocks, 1 to {LENGTH_MAX} of them")]
    Blocks {
        /// Its number.
        entry: usize,
        /// The list's shift.
        shift: u8,
    },
    /// The superblock says that the list is in force, but not where it is.
    #[error("the superblock does not say where its bad-block list is")]
    Place,
    /// The list's area is larger than a list can be.
    #[error("has a bad-block list of {} sectors, expected at most {}", found.0, BAD_BLOCKS_BYTES / SECTOR_BYTES)]
    Room {
        /// What the superblock says.
        found: Sectors,
    },
    /// More ranges than fit into the area.
    #[error("{found} bad ranges, at most {maximum} fit")]
    TooMany {
        /// Ranges.
        found: usize,
        /// The room.
        maximum: usize,
    },
}

/// The bytes of an empty list in an area of this size.
pub fn empty(room: Sectors) -> Vec<u8> {
    vec![END.to_le_bytes()[0]; room.len_bytes()]
}

/// The place of the list in force for a member, for [`BadBlockLog::parse`]. `None`: no list is in force, so no block is
/// bad.
pub fn counting_extent(superblock: &Superblock) -> Result<Option<Extent<Sector>>, BadBlocksError> {
    if !superblock.features.contains(Features::BAD_BLOCKS) {
        return Ok(None);
    }
    let extent = superblock.bad_blocks_extent().ok_or(BadBlocksError::Place)?;
    if extent.length.len_bytes() > BAD_BLOCKS_BYTES {
        return Err(BadBlocksError::Room { found: extent.length });
    }
    Ok(Some(extent))
}

impl BadBlockLog {
    /// Reads the list up to its end mark, or to the end of its area; `shift` is the superblock's.
    pub fn parse(bytes: &[u8], shift: u8) -> Result<BadBlockLog, BadBlocksError> {
        let mut ranges = Vec::new();
        for (entry, raw) in bytes.chunks_exact(ENTRY_BYTES).enumerate() {
            let raw = u64::from_le_bytes(raw.try_into().expect("eight bytes"));
            if raw == END {
                break;
            }
            let (block, blocks) = (raw >> LENGTH_BITS, raw & LENGTH_MAX);
            if blocks == 0 {
                return Err(BadBlocksError::Empty { entry });
            }
            // The block has 54 bits and the sum 55, so shifted by less than 64 it fits in 128 bits.
            let end = (u128::from(block) + u128::from(blocks)) << shift.min(63);
            if shift > 54 || end >= 1 << 54 {
                return Err(BadBlocksError::Range { entry, block, shift });
            }
            ranges.push(BadRange { start: Sector(block << shift), length: Sectors(blocks << shift) });
        }
        Ok(BadBlockLog { shift, ranges })
    }

    /// The bytes of the list, filled up with end marks.
    pub fn encode(&self) -> Result<Box<[u8; BAD_BLOCKS_BYTES]>, BadBlocksError> {
        const MAXIMUM: usize = BAD_BLOCKS_BYTES / ENTRY_BYTES;
        if self.ranges.len() > MAXIMUM {
            return Err(BadBlocksError::TooMany { found: self.ranges.len(), maximum: MAXIMUM });
        }
        let mut bytes = Box::new([0xff; BAD_BLOCKS_BYTES]);
        for (entry, (range, out)) in self.ranges.iter().zip(bytes.chunks_exact_mut(ENTRY_BYTES)).enumerate() {
            let shift = self.shift;
            let unit = 1u64.checked_shl(shift.into()).ok_or(BadBlocksError::Blocks { entry, shift })?;
            let (block, blocks) = (range.start.0 / unit, range.length.0 / unit);
            let is_whole = range.start.0 % unit == 0 && range.length.0 % unit == 0;
            if !is_whole || !(1..=LENGTH_MAX).contains(&blocks) {
                return Err(BadBlocksError::Blocks { entry, shift });
            }
            if range.start.0 >= 1 << 54 || range.start.0 + range.length.0 >= 1 << 54 {
                return Err(BadBlocksError::Range { entry, block, shift });
            }
            out.copy_from_slice(&(block << LENGTH_BITS | blocks).to_le_bytes());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_ranges_count_from_the_start_of_the_device() {
        // Sector 1000 of the data of a member whose data starts at 2048.
        let log = BadBlockLog { shift: 0, ranges: vec![BadRange { start: Sector(3048), length: Sectors(8) }] };
        let bytes = log.encode().unwrap();
        assert_eq!(bytes[..16], [0x08, 0xa0, 0x2f, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(BadBlockLog::parse(&bytes[..], 0), Ok(log));
    }

    #[test]
    fn the_list_ends_at_its_end_mark_and_the_shift_scales_both_numbers() {
        let mut bytes = [0xff; BAD_BLOCKS_BYTES];
        bytes[..8].copy_from_slice(&(5u64 << 10 | 3).to_le_bytes());
        bytes[16..24].fill(0);
        let log = BadBlockLog::parse(&bytes, 3).unwrap();
        assert_eq!(log.ranges, [BadRange { start: Sector(40), length: Sectors(24) }]);
        bytes[8..16].fill(0);
        assert_eq!(BadBlockLog::parse(&bytes, 3), Err(BadBlocksError::Empty { entry: 1 }));
    }

    #[test]
    fn a_list_without_an_end_mark_ends_with_its_area() {
        let bytes = (1u64 << 10 | 1).to_le_bytes().repeat(64);
        assert_eq!(BadBlockLog::parse(&bytes, 0).map(|log| log.ranges.len()), Ok(64));
    }

    #[test]
    fn a_list_is_in_force_with_its_feature_bit_and_needs_a_place_of_at_most_8_sectors() {
        let bytes = {
            let mut bytes = vec![0; 4096];
            let fields: [(usize, &[u8]); 8] = [
                (0, &0xa92b_4efc_u32.to_le_bytes()),
                (4, &[1]),
                (92, &[1]),
                (128, &2048u64.to_le_bytes()),
                (136, &100u64.to_le_bytes()),
                (144, &[8]),
                (186, &[8]),
                (188, &[16]),
            ];
            fields.into_iter().for_each(|(at, field)| bytes[at..at + field.len()].copy_from_slice(field));
            bytes
        };
        let bytes: [u8; 4096] = bytes.try_into().unwrap();
        let (mut superblock, _) = Superblock::parse_damaged(&bytes, Sector(8), Sectors(4096)).unwrap();
        assert_eq!(counting_extent(&superblock), Ok(None));
        superblock.features = Features::BAD_BLOCKS;
        assert_eq!(counting_extent(&superblock), Ok(Some(Extent::new(Sector(24), Sectors(8)))));
        superblock.bad_blocks.size = 9;
        assert_eq!(counting_extent(&superblock), Err(BadBlocksError::Room { found: Sectors(9) }));
        superblock.bad_blocks.size = 0;
        assert_eq!(counting_extent(&superblock), Err(BadBlocksError::Place));
    }

    #[test]
    fn any_bytes_are_refused_or_written_back_unchanged() {
        let mut random = 0x5eed_u64;
        let mut accepted = 0;
        for _ in 0..2_000 {
            let mut bytes = [0xff; BAD_BLOCKS_BYTES];
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let entries = (random >> 60) as usize;
            for entry in bytes.chunks_exact_mut(8).take(entries) {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                entry.copy_from_slice(&(random >> (random >> 59)).to_le_bytes());
            }
            let shift = if random & 256 == 0 { (random >> 40) as u8 } else { (random >> 40) as u8 & 3 };
            let Ok(log) = BadBlockLog::parse(&bytes, shift) else { continue };
            accepted += 1;
            assert_eq!(log.encode().unwrap()[..], bytes[..]);
        }
        assert!(accepted > 200, "{accepted} of 2000 are accepted, too few to mean anything");
        let many = BadBlockLog { shift: 0, ranges: vec![BadRange { start: Sector(1), length: Sectors(1) }; 513] };
        assert_eq!(many.encode(), Err(BadBlocksError::TooMany { found: 513, maximum: 512 }));
        let long = BadBlockLog { shift: 0, ranges: vec![BadRange { start: Sector(1), length: Sectors(1024) }] };
        assert_eq!(long.encode(), Err(BadBlocksError::Blocks { entry: 0, shift: 0 }));
    }
}
