//! The places of data, bitmap and bad-block list as mdadm chooses them: arithmetic only.
//! Owns: the reserve before the data, the bitmap's room and chunk. Not here: levels' rules (the parent).
//! Spec: docs/md/formats.md#what-mdadm-creates; every number is checked against tests/vectors/create.json.

use crate::Version;
use uraid_block::{SECTOR_BYTES, Sectors};

const GIB: u64 = (1 << 30) / SECTOR_BYTES as u64;
/// Sectors of a 4 KiB block, in which superblock, bitmap and list are placed.
const BLOCK: u64 = 8;
/// Sectors of the bad-block list: 512 entries of 8 bytes.
const BAD_BLOCKS: u64 = 8;
/// Sectors of a partial parity log: 1 MiB.
pub const PPL: Sectors = Sectors(2048);
/// Data starts at a multiple of this, 1 MiB.
const DATA_ALIGNMENT: u64 = 2048;
/// The largest reserve before the data, 128 MiB.
const RESERVE_MAX: u64 = 262_144;

/// The offsets and sizes of one array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Where data starts on every member.
    pub data_offset: Sectors,
    /// Sectors used of each member; 0 for linear and raid0.
    pub size: Sectors,
    /// Sectors from the superblock to the bad-block list; `None` without one.
    pub bad_blocks_offset: Option<i32>,
    /// Entries of the role table.
    pub max_dev: u16,
}

/// Bytes of a bitmap's header.
const HEADER_BYTES: u64 = 256;

/// Where an internal bitmap goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitmapPlacement {
    /// Sectors from the superblock.
    pub offset: i32,
    /// The bytes of the array that one bit covers.
    pub chunk_bytes: u64,
    /// Bytes of the header and the bits.
    pub bytes: u64,
}

/// The sectors that mdadm reserves for a bitmap on a device, or a used size, of `length` sectors.
pub fn bitmap_space(length: Sectors) -> Sectors {
    Sectors(match length.0 {
        0..128 => 0,
        n if n - 128 >= 200 * GIB => 256,
        n if n - 8 > 8 * GIB => 128,
        _ => 8,
    })
}

/// The data offset on a member of this size. `chunk` is zero if the level has none, `ppl` without a partial parity log.
///
/// The reserve is about a thousandth of the device: 1 GiB (2^21 sectors) leaves head = 2048, and with 24 sectors
/// for the superblock, 8 for a bitmap, rounded up to 1 MiB, that is sector 4096.
pub fn data_offset(device_size: Sectors, chunk: Sectors, ppl: Sectors) -> Sectors {
    let chunk_kib = chunk.0 / 2;
    let mut head = RESERVE_MAX;
    while head * 1024 > device_size.0 && (chunk_kib == 0 || head / 2 >= 4 * chunk_kib) {
        if head == 0 {
            break;
        }
        head /= 2;
    }
    let beside = if ppl.is_zero() { bitmap_space(device_size) } else { ppl };
    Sectors((24 + beside.0 + head).next_multiple_of(DATA_ALIGNMENT))
}

/// The place of an internal bitmap that covers `covered` sectors, on members with `size` used; `None` if there is no
/// room. `covered` is `size`, for raid10 `size * raid_disks / copies`.
pub fn bitmap_placement(version: Version, size: Sectors, covered: Sectors) -> Option<BitmapPlacement> {
    const CHUNK_BYTES_DEFAULT: u64 = 64 << 20;
    let chunk_bytes = bitmap_chunk_min(size, covered)?.max(CHUNK_BYTES_DEFAULT);
    Some(bitmap_of_chunk(version, covered, chunk_bytes))
}

/// The least bytes that one bit must cover, so that all bits have room; `None` if there is no room.
pub fn bitmap_chunk_min(size: Sectors, covered: Sectors) -> Option<u64> {
    const CHUNK_BYTES_MIN: u64 = 4096;
    let room = bitmap_space(size).0.min(256);
    if room <= 1 {
        return None;
    }
    let bits_max = (room * SECTOR_BYTES as u64 - HEADER_BYTES) * 8;
    let mut chunk_bytes = CHUNK_BYTES_MIN;
    let mut bits = covered.0 / (CHUNK_BYTES_MIN / SECTOR_BYTES as u64) + 1;
    while bits > bits_max {
        chunk_bytes *= 2;
        bits = bits.div_ceil(2);
    }
    Some(chunk_bytes)
}

/// The place of an internal bitmap whose bits cover so much each, which is at least [`bitmap_chunk_min`].
pub fn bitmap_of_chunk(version: Version, covered: Sectors, chunk_bytes: u64) -> BitmapPlacement {
    let bits = covered.0.div_ceil(chunk_bytes / SECTOR_BYTES as u64);
    let bytes = HEADER_BYTES + bits.div_ceil(8);
    let offset = match version {
        Version::V1_1 | Version::V1_2 => BLOCK as i32,
        // mdadm counts one bit more than exists, then rounds up to whole bytes and whole blocks; the bad-block list
        // lies in between.
        Version::V0_90 | Version::V1_0 => {
            let bits = covered.0 / (chunk_bytes / SECTOR_BYTES as u64) + 1;
            let blocks = (bits.div_ceil(8) + HEADER_BYTES).div_ceil(4096);
            -i32::try_from(blocks * BLOCK + BAD_BLOCKS).expect("the room for a bitmap is at most 256 sectors")
        }
    };
    BitmapPlacement { offset, chunk_bytes, bytes }
}

/// Sectors from the superblock to the bad-block list: after what lies `beside` the superblock; if that does not fit, directly
/// before the data; `None` if that does not fit either.
pub fn bad_blocks_offset(version: Version, data_offset: Sectors, beside: Sectors) -> Option<i32> {
    let superblock = match version {
        // Directly before the superblock, after the data.
        Version::V0_90 | Version::V1_0 => return Some(-(BAD_BLOCKS as i32)),
        Version::V1_1 => 0,
        Version::V1_2 => 8,
    };
    let behind = superblock + BLOCK + beside.0;
    let before_data = data_offset.0.checked_sub(BAD_BLOCKS)?;
    let at = if behind <= before_data { behind } else { before_data };
    let offset = at.checked_sub(superblock).filter(|offset| *offset >= BLOCK)?;
    i32::try_from(offset).ok()
}

/// The sectors that a 1.0 member of this size reserves after its data when the size of an array is chosen: superblock,
/// bad-block list, room for a bitmap, and the rest of the last 4 KiB.
pub(super) fn reserve_at_end(device_size: Sectors, ppl: Sectors) -> Sectors {
    let beside = if ppl.is_zero() { bitmap_space(device_size) } else { ppl };
    Sectors(device_size.0 % BLOCK + 16 + BAD_BLOCKS + beside.0)
}

/// Sectors for data on a member of this size; `None` if there are none.
pub fn data_size(version: Version, device_size: Sectors, geometry: &Geometry, beside: Sectors) -> Option<Sectors> {
    let end = match version {
        Version::V1_1 | Version::V1_2 => device_size.0,
        Version::V0_90 | Version::V1_0 => {
            let superblock = Version::V1_0.location(device_size)?.0;
            superblock.checked_sub(beside.0 + BAD_BLOCKS)?.max(geometry.size.0)
        }
    };
    end.checked_sub(geometry.data_offset.0).filter(|size| *size > 0).map(Sectors)
}

/// The sectors reserved beside the superblock: for the partial parity log, the bitmap, or one that may come.
pub fn beside(size: Sectors, bitmap: Option<&BitmapPlacement>, ppl: Sectors) -> Sectors {
    match bitmap {
        _ if !ppl.is_zero() => ppl,
        Some(bitmap) => Sectors(bitmap.bytes.next_multiple_of(4096) / SECTOR_BYTES as u64),
        None => bitmap_space(size),
    }
}

/// The word of the superblock that says where the partial parity log is: its offset from the superblock, and above it its
/// size. In 1.0 it lies before the bad-block list.
pub(super) fn ppl_word(version: Version) -> i32 {
    let offset = match version {
        Version::V1_1 | Version::V1_2 => BLOCK as i16,
        Version::V0_90 | Version::V1_0 => -((PPL.0 + BAD_BLOCKS) as i16),
    };
    let (offset, size) = (offset.to_le_bytes(), (PPL.0 as u16).to_le_bytes());
    i32::from_le_bytes([offset[0], offset[1], size[0], size[1]])
}
