//! The superblock 0.90: words, roles, checksum, byte order, and its conversion to the later versions.
//! Owns: superblocks built word by word. Not here: those of real kernels (tests/golden.rs).

use uraid_block::{Sector, Sectors, Slot};
use uraid_format::{
    Disk090, Features, FindError, Role, SUPERBLOCK_BYTES, Superblock, Superblock090, SuperblockError, Version, find,
    uuid,
};

const SIZE: Sectors = Sectors(16_384);
const PLACE: Sector = Sector(16_256);

type Bytes = Box<[u8; SUPERBLOCK_BYTES]>;

fn set(bytes: &mut Bytes, word: usize, value: u32) {
    bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
}

/// The sum of docs/md/formats.md#checksums, written once more.
fn seal(bytes: &mut Bytes) {
    set(bytes, 38, 0);
    let words = bytes.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap())));
    let sum: u64 = words.sum();
    set(bytes, 38, ((sum & 0xffff_ffff) + (sum >> 32)) as u32);
}

/// Device 1 of a dirty raid5 of three with one slot empty, one spare and a bitmap.
fn raid5() -> Bytes {
    let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
    let words = [(0, 0xa92b_4efc), (2, 90), (5, 0x1011_1213), (6, 1_700_000_000), (7, 5), (8, 8064), (9, 3), (10, 3)];
    let more = [(11, 127), (13, 0x1415_1617), (14, 0x1819_1a1b), (15, 0x1c1d_1e1f), (32, 1_700_000_100), (33, 1 << 8)];
    let counts = [(34, 2), (35, 3), (36, 1), (37, 1), (39, 42), (41, 42), (43, 4096), (64, 2), (65, 65_536)];
    for (word, value) in words.into_iter().chain(more).chain(counts) {
        set(&mut bytes, word, value);
    }
    let disks = [[0, 8, 0, 0, 6], [1, 8, 16, 1, 6 | 1 << 9 | 1 << 10], [2, 0, 0, 2, 8 | 1], [3, 8, 48, 3, 0]];
    for (at, disk) in disks.into_iter().enumerate() {
        for (field, value) in disk.into_iter().enumerate() {
            set(&mut bytes, 128 + at * 32 + field, value);
            if at == 1 {
                set(&mut bytes, 992 + field, value);
            }
        }
    }
    seal(&mut bytes);
    bytes
}

#[test]
fn a_0_90_superblock_is_converted_to_the_later_versions() {
    let bytes = raid5();
    let own = Superblock090::parse(&bytes).unwrap();
    assert!(own.encode() == bytes, "written back as it was");
    assert_eq!((own.md_minor, own.working_disks, own.this_disk.minor), (127, 3, 16));
    let superblock = Superblock::parse(&bytes, PLACE, SIZE).unwrap();
    assert_eq!((superblock.version, superblock.super_offset), (Version::V0_90, PLACE));
    assert_eq!(uuid::text(&superblock.set_uuid), "10111213:14151617:18191a1b:1c1d1e1f");
    assert_eq!((superblock.level, superblock.layout, superblock.raid_disks), (5, 2, 3));
    assert_eq!((superblock.size, superblock.chunk), (Sectors(16_128), Sectors(128)));
    assert_eq!((superblock.data_offset, superblock.data_size), (Sector(0), Sectors(PLACE.0)));
    assert_eq!((superblock.features, superblock.bitmap_offset), (Features::BITMAP_OFFSET, 8));
    assert_eq!((superblock.events, superblock.resync_offset), (42, 4096));
    assert_eq!((superblock.created_seconds(), superblock.updated_seconds()), (1_700_000_000, 1_700_000_100));
    let roles = [Role::Slot(Slot(0)), Role::Slot(Slot(1)), Role::Faulty, Role::Spare];
    assert_eq!((superblock.roles.len(), &superblock.roles[..4]), (27, &roles[..]));
    assert_eq!((superblock.dev_number, superblock.own_role(), superblock.devflags), (1, roles[1], 3));
    assert_eq!(uuid::text(&superblock.device_uuid), "10111213:14151617:18191a1b:1c1d1e21");
    assert_eq!((superblock.reshape, superblock.set_name.as_str()), (None, "".into()));
}

#[test]
fn resync_progress_is_valid_only_if_no_event_followed() {
    let resync_offset = |state: u32, cp_events: u32| {
        let mut bytes = raid5();
        set(&mut bytes, 33, state);
        set(&mut bytes, 41, cp_events);
        seal(&mut bytes);
        Superblock::parse(&bytes, PLACE, SIZE).unwrap().resync_offset
    };
    assert_eq!(resync_offset(0, 42), 4096);
    assert_eq!(resync_offset(0, 41), 0);
    assert_eq!(resync_offset(Superblock090::CLEAN, 42), Superblock::CLEAN);
}

#[test]
fn a_reshape_of_a_0_90_array_is_converted_to_the_later_versions() {
    let mut bytes = raid5();
    for (word, value) in [(2, 91), (44, 7), (45, 1), (46, 6), (47, u32::MAX), (48, 3), (49, 131_072)] {
        set(&mut bytes, word, value);
    }
    set(&mut bytes, 128 + 3 * 32 + 4, Disk090::ACTIVE);
    seal(&mut bytes);
    let own = Superblock090::parse(&bytes).unwrap();
    assert!(own.encode() == bytes);
    let superblock = own.to_superblock(PLACE, SIZE).unwrap();
    let reshape = superblock.reshape.unwrap();
    assert!(superblock.features.contains(Features::RESHAPE_ACTIVE));
    assert_eq!((reshape.position, reshape.new_level, reshape.delta_disks), (1 << 32 | 7, 6, -1));
    assert_eq!((reshape.new_layout, reshape.new_chunk), (3, 256));
    assert_eq!(superblock.roles[3], Role::Slot(Slot(3)));
}

#[test]
fn checksums_are_compared_after_folding_both() {
    let mut bytes = raid5();
    let sum = u32::from_le_bytes(bytes[152..156].try_into().unwrap());
    let folded = (sum & 0xffff) + (sum >> 16);
    set(&mut bytes, 38, folded);
    assert!(Superblock090::parse(&bytes).is_ok(), "as a host with another sum writes it");
    set(&mut bytes, 38, folded ^ 1);
    assert!(matches!(Superblock090::parse(&bytes), Err(SuperblockError::Checksum { .. })));
}

#[test]
fn impossible_superblocks_are_refused_with_the_reason() {
    let refused = |word: usize, value: u32| {
        let mut bytes = raid5();
        set(&mut bytes, word, value);
        seal(&mut bytes);
        Superblock::parse(&bytes, PLACE, SIZE).unwrap_err()
    };
    assert_eq!(refused(2, 92), SuperblockError::MinorVersion { found: 92 });
    assert_eq!(refused(1, 2), SuperblockError::Version { found: 2 });
    assert_eq!(refused(10, 28), SuperblockError::RaidDisks { found: 28, maximum: 27 });
    assert_eq!(refused(10, 0), SuperblockError::RaidDisks { found: 0, maximum: 27 });
    assert_eq!(refused(65, 1000), SuperblockError::ChunkBytes { found: 1000 });
    assert_eq!(refused(131, 27), SuperblockError::DiskSlot { number: 0, found: 27, maximum: 26 });
    assert_eq!(refused(40, 1 << 30), SuperblockError::Events { found: 1 << 62 | 42 });
    assert_eq!(refused(8, 8129), SuperblockError::Size { found: 16_258, maximum: 16_256 });
    let elsewhere = Superblock::parse(&raid5(), Sector(8), SIZE).unwrap_err();
    assert_eq!(elsewhere, SuperblockError::NoPlace { found_at: 8 });
    let mut turned = raid5();
    turned.chunks_mut(4).for_each(|word| word.reverse());
    assert_eq!(Superblock090::parse(&turned), Err(SuperblockError::ByteOrder));
}

#[test]
fn an_old_superblock_is_found_and_one_of_the_other_byte_order_is_named() {
    let look = |bytes: &Bytes| {
        find(SIZE, |at, block| {
            block.fill(0);
            if at == PLACE {
                block.copy_from_slice(&bytes[..]);
            }
            Ok::<_, ()>(())
        })
    };
    assert_eq!(look(&raid5()).unwrap().superblock.version, Version::V0_90);
    let mut turned = raid5();
    turned.chunks_mut(4).for_each(|word| word.reverse());
    let error = look(&turned).unwrap_err();
    assert!(matches!(error, FindError::Superblock { source: SuperblockError::ByteOrder, at: PLACE, .. }), "{error:?}");
}

#[test]
fn mutated_0_90_superblocks_are_refused_or_mean_the_same_after_a_round_trip() {
    let mut random = 0x5eed_u64;
    let mut next = move || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) as u32
    };
    let mut accepted = 0;
    for round in 0..10_000 {
        let mut bytes = raid5();
        for _ in 0..1 + next() % 5 {
            // A word of the fields, of the first descriptors, or of this device's descriptor.
            let word = [next() % 66, 128 + next() % 128, 992 + next() % 32][(next() % 3) as usize] as usize;
            set(&mut bytes, word, if next() % 2 == 0 { next() << 1 ^ next() } else { next() % 32 });
        }
        if next() % 16 != 0 {
            seal(&mut bytes);
        }
        let Ok(own) = Superblock090::parse(&bytes) else { continue };
        assert_eq!(Superblock090::parse(&own.encode()).as_ref(), Ok(&own), "round {round}");
        let place = [PLACE, Sector(u64::from(next()))][usize::from(next() % 8 == 0)];
        if let Ok(superblock) = own.to_superblock(place, SIZE) {
            accepted += 1;
            let _ = (superblock.own_role(), superblock.level_layout(), superblock.features.to_string());
        }
    }
    assert!(accepted > 1_000, "{accepted} of 10000 are accepted, too few to mean anything");
}
