//! One file for each target.
//! Owns: the list, sealing of superblocks, the sums that other seals need. Not here: names and bounds (the crate's root).

pub(crate) mod assemble;
pub(crate) mod bad_blocks;
pub(crate) mod bitmap;
pub(crate) mod find;
pub(crate) mod journal;
mod nbd_client;
pub(crate) mod nbd_extended;
pub(crate) mod nbd_handshake;
pub(crate) mod nbd_session;
pub(crate) mod nbd_transmission;
pub(crate) mod partition;
pub(crate) mod planner;
pub(crate) mod ppl;
pub(crate) mod signature;
pub(crate) mod superblock;

use uraid_format::SUPERBLOCK_BYTES;

/// Sets the right checksum of a superblock of major version 1, and of one of 0.90; otherwise no mutated superblock
/// would pass it. Written from docs/md/formats.md#checksums, not from the code under test.
fn seal(bytes: &mut [u8; SUPERBLOCK_BYTES]) {
    let is_old = bytes[4..8] == [0; 4];
    let (at, covered) = if is_old {
        (152, SUPERBLOCK_BYTES)
    } else {
        let max_dev = u32::from_le_bytes([bytes[220], bytes[221], bytes[222], bytes[223]]).min(1920) as usize;
        (216, 256 + 2 * max_dev)
    };
    bytes[at..at + 4].fill(0);
    let mut sum = 0u64;
    for word in bytes[..covered].chunks(4) {
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        sum += u64::from(u32::from_le_bytes(padded));
    }
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// CRC-32C without the inversions at both ends: bit by bit, from its polynomial.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    crc(0x82f6_3b78, seed, bytes)
}

fn crc(polynomial: u32, seed: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ polynomial };
    bytes.iter().fold(seed, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
