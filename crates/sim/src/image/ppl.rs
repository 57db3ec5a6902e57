//! Partial parity logs of simulated members.
//! Owns: how long they are, a new one, reading one back by the real parser. Not here: where they are (`areas`), which rows
//! a crash may leave wrong (`judge::checks`).

use crate::image::areas::{PPL_AT, SUPER_AT};
use uraid_block::SECTOR_BYTES;
use uraid_format::Superblock;
use uraid_format::ppl::{PPL_HEADER_SECTORS, PplHeader, PplLog};

/// Sectors of an area: two headers, and room for two stretches as long as a chunk, or as a row writes at once.
pub fn sectors(chunk: u64) -> u64 {
    2 * PPL_HEADER_SECTORS.0 + 2 * chunk.clamp(4, 128)
}

/// The word of the superblock that says where the log is: its offset, and above it its size.
pub fn word(chunk: u64) -> i32 {
    ((sectors(chunk) << 16) | (PPL_AT - SUPER_AT)) as i32
}

/// Writes the log of a new member to its image, as mdadm does.
pub fn put_first(image: &mut [u8], chunk: u64, set_uuid: &[u8; 16]) {
    let start = PPL_AT as usize * SECTOR_BYTES;
    image[start..start + sectors(chunk) as usize * SECTOR_BYTES].fill(0);
    let header = PplHeader::empty(set_uuid).encode();
    image[start..start + header.len()].copy_from_slice(&header[..]);
}

/// The log in a member's image.
pub fn ppl_of(image: &[u8], superblock: &Superblock) -> Option<PplLog> {
    PplLog::read_beside(superblock, |at, into| match image.get(at as usize..at as usize + into.len()) {
        Some(bytes) => {
            into.copy_from_slice(bytes);
            true
        }
        None => false,
    })
}
