//! A device with anything at the places of superblocks, some of them unreadable.
//! Owns: what `find` may answer. Not here: the superblock's own bytes (`superblock`).
//! Input: device sectors 8 (0: a usual device), then for each place kind 1, length 2, bytes.

use crate::input::Input;
use uraid_block::{Sector, Sectors};
use uraid_format::{FindError, SUPERBLOCK_BYTES, Version, find};

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let size = input.u64();
    let device_size = Sectors(if size == 0 { 1 << 20 } else { size });
    let places: [(u8, [u8; SUPERBLOCK_BYTES]); 4] = std::array::from_fn(|_| {
        let (kind, length) = (input.byte(), usize::from(input.u16() % 1025));
        let mut block = [0; SUPERBLOCK_BYTES];
        let front = input.bytes(length);
        block[..front.len()].copy_from_slice(front);
        if kind & 1 == 0 {
            super::seal(&mut block);
        }
        (kind, block)
    });
    let at_of = |version: &Version| version.location(device_size);
    let read = |at: Sector, into: &mut [u8; SUPERBLOCK_BYTES]| {
        assert!(at.0 + 8 <= device_size.0, "read outside the device");
        let place = Version::ALL.iter().position(|version| at_of(version) == Some(at)).expect("the place of a version");
        let (kind, block) = &places[place];
        *into = *block;
        if kind >> 6 == 3 { Err("unreadable") } else { Ok(()) }
    };
    match find(device_size, read) {
        Ok(found) => {
            assert_eq!(Some(found.superblock.super_offset), at_of(&found.superblock.version));
            assert!(found.others.len() < Version::ALL.len());
            assert!(found.others.is_sorted_by_key(|other| other.at));
        }
        Err(FindError::DeviceTooSmall { found, minimum }) => assert!(found < minimum),
        Err(FindError::Read { at, .. } | FindError::Superblock { at, .. }) => assert!(at.0 + 8 <= device_size.0),
    }
}
