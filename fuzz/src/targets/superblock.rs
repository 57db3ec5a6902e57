//! A superblock of any version at any place of a device of any size.
//! Owns: parse, write, parse. Not here: which of several superblocks is used (`find`).
//! Input: place 1 (bit 7: keep the checksum as it is), device sectors 8 (0: a usual device), then the bytes.

use crate::input::Input;
use uraid_block::{Sector, Sectors};
use uraid_format::{SUPERBLOCK_BYTES, Superblock, Superblock090, Version};

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (place, size) = (input.byte(), input.u64());
    let device_size = Sectors(if size == 0 { 1 << 20 } else { size });
    let mut bytes: [u8; SUPERBLOCK_BYTES] = input.array();
    if place & 0x80 == 0 {
        super::seal(&mut bytes);
    }
    let found_at = match place & 7 {
        at @ 0..4 => Version::ALL[usize::from(at)].location(device_size).unwrap_or(Sector(0)),
        _ => Sector(size),
    };
    check(&bytes, found_at, device_size);
}

/// An accepted superblock is the same after it is written and read again. One of version 0.90 is written and read as a
/// `Superblock090`.
pub(super) fn check(bytes: &[u8; SUPERBLOCK_BYTES], found_at: Sector, device_size: Sectors) {
    match Superblock::parse(bytes, found_at, device_size) {
        Ok(superblock) if superblock.version == Version::V0_90 => {}
        Ok(superblock) => {
            assert_eq!(superblock.super_offset, found_at);
            let written = superblock.encode();
            assert_eq!(Superblock::parse(&written, found_at, device_size), Ok(superblock));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(superblock) = Superblock::parse(bytes, found_at, device_size) {
        let places = [superblock.ppl_extent(), superblock.bad_blocks_extent()];
        assert!(places.iter().flatten().all(|place| place.start.0.checked_add(place.length.0).is_some()));
        let _ = (superblock.bitmap_start(), superblock.reshape_plan());
    }
    if let Ok(old) = Superblock090::parse(bytes) {
        assert_eq!(Superblock090::parse(&old.encode()), Ok(old));
    }
}
