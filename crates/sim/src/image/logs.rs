//! Bad-block logs of simulated members.
//! Owns: reading one without `format`. Not here: where it is (`areas`), which sectors may be listed (`judge`).

use crate::image::areas::{LOG_AT, LOG_SECTORS, SUPER_AT};
use std::ops::Range;
use uraid_block::SECTOR_BYTES;

/// The feature bit that says that the log counts, in byte 8 of the superblock.
const IN_FORCE: u8 = 8;

fn place() -> Range<usize> {
    LOG_AT as usize * SECTOR_BYTES..(LOG_AT + LOG_SECTORS) as usize * SECTOR_BYTES
}

/// The ranges of sectors that the log of a member's image lists.
fn ranges(image: &[u8]) -> impl Iterator<Item = Range<u64>> {
    let entries =
        image[place()].chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().expect("eight bytes")));
    let entries = entries.take_while(|entry| *entry != u64::MAX && is_in_force(image));
    entries.map(|entry| entry >> 10..(entry >> 10) + (entry & 1023))
}

/// The sectors that the log of a member's image lists.
pub fn listed(image: &[u8]) -> Vec<u64> {
    ranges(image).flatten().collect()
}

/// Whether the log of a member's image lists a sector.
pub fn is_listed(image: &[u8], sector: u64) -> bool {
    ranges(image).any(|range| range.contains(&sector))
}

/// Whether the log of a member's image counts.
pub fn is_in_force(image: &[u8]) -> bool {
    image[SUPER_AT as usize * SECTOR_BYTES + 8] & IN_FORCE != 0
}

/// Makes the log of an image empty.
pub fn clear(image: &mut [u8]) {
    image[place()].fill(0xff);
}

/// Whether the log of an image lists nothing.
pub fn is_empty(image: &[u8]) -> bool {
    image[place()].iter().all(|byte| *byte == 0xff)
}
