//! Every bound of parsing and creating, on both sides: the last accepted value and the first refused one.
//! Owns: the checks of `Superblock::parse`, places beside it, chunks, and the order of the first writes. Not here: random
//! bytes (`mutations`).

use uraid_block::{Extent, Sector, Sectors};
use uraid_format::bad_blocks::{BadBlockLog, BadRange};
use uraid_format::create::{
    CreateError, CreateOptions, Geometry, NewMember, NewPolicy, beside, create, data_size, writes,
};
use uraid_format::{BadBlocks, Features, SUPERBLOCK_BYTES, SetName, Superblock, SuperblockError, Version};
use uraid_layout::{Level, default_layout};

const DEVICE: Sectors = Sectors(1 << 20);
const DATA_OFFSET: u64 = 2048;
const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

fn options(version: Version) -> CreateOptions {
    CreateOptions {
        version,
        level: Level::Raid1,
        layout: 0,
        chunk: Sectors::ZERO,
        raid_disks: 2,
        spare_devices: 0,
        size: None,
        data_offset: (version != Version::V1_0).then_some(Sectors(DATA_OFFSET)),
        set_uuid: [7; 16],
        set_name: SetName::new("host", "name").unwrap(),
        now_seconds: 1_700_000_000,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    }
}

fn devices() -> [NewMember; 2] {
    [1, 2].map(|n| NewMember::Device { size: DEVICE, uuid: [n; 16] })
}

fn made(version: Version) -> Superblock {
    create(&options(version), &devices()).unwrap().superblocks.remove(0).unwrap()
}

/// Parses the superblock with these fields changed, given as offset and bytes, and with the right checksum.
fn parsed(version: Version, fields: &[(usize, &[u8])]) -> Result<Superblock, SuperblockError> {
    let superblock = made(version);
    let mut bytes: Box<[u8; SUPERBLOCK_BYTES]> = superblock.encode();
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes[216..220].fill(0);
    let max_dev = u32::from_le_bytes(bytes[220..224].try_into().unwrap()).min(1920) as usize;
    let words = bytes[..256 + 2 * max_dev].chunks(4);
    let sum: u64 = words.map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[216..220].copy_from_slice(&folded.to_le_bytes());
    Superblock::parse(&bytes, superblock.super_offset, DEVICE)
}

const SIZE: usize = 80;
const DATA_OFFSET_AT: usize = 128;
const DATA_SIZE: usize = 136;

#[test]
fn a_used_size_larger_than_the_data_by_one_sector_is_refused() {
    for version in VERSIONS {
        let room = made(version).data_size.0;
        let whole = parsed(version, &[(SIZE, &room.to_le_bytes())]).unwrap();
        assert_eq!(whole.size, Sectors(room));
        // By less than the data offset it would still be inside the device.
        for more in [1, 8, DATA_OFFSET - 1, DATA_OFFSET, 1 << 40] {
            let found = room + more;
            let expected = Err(SuperblockError::Size { found, maximum: room });
            assert_eq!(parsed(version, &[(SIZE, &found.to_le_bytes())]), expected, "{version} {more}");
        }
        assert!(parsed(version, &[(SIZE, &u64::MAX.to_le_bytes())]).is_err());
    }
}

#[test]
fn data_starts_after_the_superblock_and_ends_below_2_to_54() {
    const END: u64 = 1 << 54;
    for (version, minimum) in [(Version::V1_0, 0), (Version::V1_1, 8), (Version::V1_2, 16)] {
        let offset = |found: u64| {
            let fields: [(usize, &[u8]); 3] = [
                (DATA_OFFSET_AT, &found.to_le_bytes()),
                (SIZE, &10u64.to_le_bytes()),
                (DATA_SIZE, &10u64.to_le_bytes()),
            ];
            parsed(version, &fields)
        };
        assert_eq!(offset(minimum).unwrap().data_offset, Sector(minimum), "{version}");
        let refused = |found| Err(SuperblockError::DataOffset { found, minimum });
        if minimum > 0 {
            assert_eq!(offset(minimum - 1), refused(minimum - 1), "{version}");
        }
        assert_eq!(offset(END), refused(END));
        assert_eq!(offset(u64::MAX), refused(u64::MAX));
        match version {
            Version::V1_0 => assert!(matches!(offset(END - 1), Err(SuperblockError::DataEnd { .. }))),
            Version::V0_90 | Version::V1_1 | Version::V1_2 => assert!(offset(END - 1).is_ok()),
        }
        let size = |found: u64| parsed(version, &[(DATA_SIZE, &found.to_le_bytes()), (SIZE, &8u64.to_le_bytes())]);
        let refused = |found| Err(SuperblockError::DataSize { found, minimum: 10 });
        assert_eq!((size(9), size(END)), (refused(9), refused(END)), "{version}");
        assert_eq!(size(10).unwrap().data_size, Sectors(10));
    }
    // With 1.0, data ends before the superblock.
    let at = made(Version::V1_0).super_offset.0;
    let ends = |start: u64, length: u64| {
        let fields: [(usize, &[u8]); 3] =
            [(DATA_OFFSET_AT, &start.to_le_bytes()), (DATA_SIZE, &length.to_le_bytes()), (SIZE, &10u64.to_le_bytes())];
        parsed(Version::V1_0, &fields)
    };
    assert!(ends(0, at).is_ok() && ends(16, at - 16).is_ok());
    assert_eq!(ends(0, at + 1), Err(SuperblockError::DataEnd { found: at + 1, maximum: at }));
    assert_eq!(ends(16, at - 15), Err(SuperblockError::DataEnd { found: at + 1, maximum: at }));
}

#[test]
fn the_other_fields_are_accepted_up_to_their_bounds() {
    let v12 = |fields: &[(usize, &[u8])]| parsed(Version::V1_2, fields);
    for (at, value) in [(12, 1u32), (12, 1 << 31)] {
        assert_eq!(v12(&[(at, &value.to_le_bytes())]), Err(SuperblockError::Padding { at: 12 }));
    }
    for at in [228, 229, 240, 255] {
        assert_eq!(v12(&[(at, &[1])]), Err(SuperblockError::Padding { at }));
    }
    for block in [0u32, 512, 4096, 65536] {
        assert_eq!(v12(&[(224, &block.to_le_bytes())]).unwrap().logical_block_size, block);
    }
    for found in [1u32, 256, 1536, 131_072] {
        assert_eq!(v12(&[(224, &found.to_le_bytes())]), Err(SuperblockError::LogicalBlockSize { found }));
    }
    assert_eq!(v12(&[(200, &((1u64 << 62) - 1).to_le_bytes())]).unwrap().events, (1 << 62) - 1);
    for found in [1u64 << 62, (1 << 63) - 3, (1 << 63) - 1, 1 << 63, u64::MAX] {
        assert_eq!(v12(&[(200, &found.to_le_bytes())]), Err(SuperblockError::Events { found }));
    }
    for disks in [1u32, 1920] {
        assert_eq!(v12(&[(92, &disks.to_le_bytes())]).unwrap().raid_disks, disks);
    }
    for found in [0u32, 1921] {
        let expected = Err(SuperblockError::RaidDisks { found, maximum: 1920 });
        assert_eq!(v12(&[(92, &found.to_le_bytes())]), expected);
    }
    assert_eq!(v12(&[(220, &1920u32.to_le_bytes())]).unwrap().roles.len(), 1920);
    let too_many = Err(SuperblockError::TooManyRoles { found: 1921, maximum: 1920 });
    assert_eq!(v12(&[(220, &1921u32.to_le_bytes())]), too_many);
    assert_eq!(v12(&[(4, &[2])]), Err(SuperblockError::Version { found: 2 }));
    assert_eq!(v12(&[(144, &[16])]), Err(SuperblockError::Place { found: 8, expected: 16 }));
}

#[test]
fn a_new_member_gets_its_empty_bad_block_list_before_the_superblock_that_points_to_it() {
    for version in VERSIONS {
        let superblock = made(version);
        let list = superblock.bad_blocks_extent().unwrap();
        let [(first, empty), (last, own)] = &writes(&superblock, None)[..] else { panic!("{version}: two writes") };
        assert_eq!((*first, *last), (list.start, superblock.super_offset), "{version}");
        assert!(empty.len() == 4096 && empty.iter().all(|byte| *byte == 0xff));
        assert_eq!(Superblock::parse(own[..].try_into().unwrap(), *last, DEVICE), Ok(superblock));
    }
    let mut without = made(Version::V1_2);
    without.bad_blocks.size = 0;
    assert_eq!(writes(&without, None).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [Sector(8)]);
}

#[test]
fn bad_ranges_end_below_the_last_address() {
    const END: u64 = 1 << 54;
    let entry = |block: u64, length: u64| {
        let mut bytes = vec![0xff; 4096];
        bytes[..8].copy_from_slice(&(block << 10 | length).to_le_bytes());
        bytes
    };
    for (shift, block, length, is_good) in [
        (0, END - 9, 8, true),
        (0, END - 8, 8, false),
        (3, (END >> 3) - 2, 1, true),
        (3, (END >> 3) - 1, 1, false),
        (54, 0, 1, false),
        (53, 0, 1, true),
        (53, 0, 2, false),
        (55, 0, 1, false),
        (0, 0, 1023, true),
    ] {
        let parsed = BadBlockLog::parse(&entry(block, length), shift);
        assert_eq!(parsed.is_ok(), is_good, "{shift} {block} {length}");
        let ranges = vec![BadRange { start: Sector(block << shift.min(10)), length: Sectors(length << shift.min(10)) }];
        if shift < 10 {
            let written = BadBlockLog { shift, ranges: ranges.clone() }.encode();
            assert_eq!(written.is_ok(), is_good, "{shift} {block} {length}");
            assert!(parsed.is_err() || parsed.is_ok_and(|log| log.ranges == ranges));
        }
    }
}

#[test]
fn the_other_areas_are_at_the_recorded_places() {
    let mut superblock = made(Version::V1_2);
    let at = |superblock: &Superblock| (superblock.bitmap_start(), superblock.ppl_extent());
    superblock.bitmap_offset = 8;
    assert_eq!(at(&superblock), (None, None), "without its bit");
    superblock.features = Features::BITMAP_OFFSET;
    assert_eq!(at(&superblock), (Some(Sector(16)), None));
    superblock.bitmap_offset = -9;
    assert_eq!(at(&superblock), (None, None), "before the device");
    // The same word holds offset and size of a partial parity log; then there is no bitmap, whatever the feature bits
    // are.
    superblock.bitmap_offset = 24 | 2048 << 16;
    for ppl in [Features::PPL, Features::MULTIPLE_PPLS] {
        superblock.features = Features::BITMAP_OFFSET.with(ppl);
        assert_eq!(at(&superblock), (None, Some(Extent::new(Sector(32), Sectors(2048)))));
    }
    superblock.bitmap_offset = 24;
    assert_eq!(at(&superblock), (None, None), "a log without room");
    superblock.bitmap_offset = -8 & 0xffff | 16 << 16;
    assert_eq!(at(&superblock), (None, Some(Extent::new(Sector(0), Sectors(16)))));
    superblock.bad_blocks = BadBlocks { shift: 0, size: 8, offset: -8 };
    assert_eq!(superblock.bad_blocks_extent(), Some(Extent::new(Sector(0), Sectors(8))));
    for (size, offset) in [(0, 16), (8, 0), (8, -9)] {
        superblock.bad_blocks = BadBlocks { shift: 0, size, offset };
        assert_eq!(superblock.bad_blocks_extent(), None, "{size} {offset}");
    }
}

/// ```text
///   0     8          16        24    32              2048            3048
///   |     superblock |         list  |               data            |
/// ```
#[test]
fn a_bitmap_and_a_log_have_the_room_up_to_what_is_around_them() {
    let plain = Superblock { data_size: Sectors(1000), size: Sectors(1000), ..made(Version::V1_2) };
    let plain = Superblock { bad_blocks: BadBlocks { shift: 0, size: 8, offset: 16 }, ..plain };
    let extent = |start: u64, end: u64| Extent::new(Sector(start), Sectors(end - start));
    for (start, end) in [
        (0, Some(8)),
        (7, Some(8)),
        (8, None),
        (15, None),
        (16, Some(24)),
        (17, Some(24)),
        (23, Some(24)),
        (24, None),
        (31, None),
        (32, Some(2048)),
        (2047, Some(2048)),
        (2048, None),
        (3047, None),
        // Nothing follows that would bound it.
        (3048, None),
    ] {
        let room = plain.bitmap_room(start as i32 - 8);
        assert_eq!(room, end.map(|end| extent(start, end)), "a bitmap at {start}");
    }
    for (start, end, is_free) in [
        (0, 7, true),
        (0, 8, true),
        (0, 9, false),
        (15, 17, false),
        (16, 23, true),
        (16, 24, true),
        (16, 25, false),
        (31, 40, false),
        (32, 2047, true),
        (32, 2048, true),
        (32, 2049, false),
        (3047, 3100, false),
        (3048, 3100, true),
        (0, 3100, false),
    ] {
        let word = i32::from(start as i16 - 8) & 0xffff | (end - start) << 16;
        let log = Superblock { features: Features::PPL, bitmap_offset: word, ..plain.clone() };
        let area = extent(start as u64, end as u64);
        assert_eq!(log.ppl_extent(), Some(area));
        assert_eq!(log.ppl_room(), is_free.then_some(area), "a log from {start} to {end}");
    }
}

#[test]
fn what_is_beside_a_superblock_begins_below_the_last_address() {
    const END: u64 = 1 << 54;
    let at_end = Superblock { super_offset: Sector(END - 24), ..made(Version::V1_0) };
    for (offset, start) in [(-24, Some(END - 48)), (23, Some(END - 1)), (24, None), (25, None)] {
        let bits = Superblock { features: Features::BITMAP_OFFSET, bitmap_offset: offset, ..at_end.clone() };
        assert_eq!(bits.bitmap_start(), start.map(Sector), "a bitmap at {offset}");
        let list = Superblock { bad_blocks: BadBlocks { shift: 0, size: 8, offset }, ..at_end.clone() };
        assert_eq!(list.bad_blocks_extent().map(|list| list.start), start.map(Sector), "a list at {offset}");
    }
}

#[test]
fn times_have_seconds_in_the_low_bits_and_microseconds_above() {
    let mut superblock = made(Version::V1_1);
    assert_eq!((superblock.created_seconds(), superblock.updated_seconds()), (1_700_000_000, 1_700_000_000));
    (superblock.created, superblock.updated) = (7 | 999_999 << 40, ((1 << 40) - 1) | 5 << 40);
    assert_eq!((superblock.created_seconds(), superblock.updated_seconds()), (7, (1 << 40) - 1));
    let now_seconds = 5 | 1 << 40;
    let options = CreateOptions { now_seconds, ..options(Version::V1_2) };
    let creation = create(&options, &devices()).unwrap();
    assert!(creation.superblocks.iter().flatten().all(|made| (made.created, made.updated) == (5, 5)));
}

#[test]
fn the_smallest_and_the_largest_chunk_are_accepted() {
    let chunk = |level, chunk| {
        let layout = default_layout(level);
        let options = CreateOptions { level, layout, chunk: Sectors(chunk), raid_disks: 2, ..options(Version::V1_2) };
        !matches!(create(&options, &devices()), Err(CreateError::Chunk { .. }))
    };
    for (level, found, is_good) in [
        (Level::Raid0, 6, false),
        (Level::Raid0, 8, true),
        (Level::Raid0, 9, false),
        (Level::Raid0, 10, true),
        (Level::Raid5, 8, true),
        (Level::Raid5, 12, false),
        (Level::Raid10, 8, true),
        (Level::Raid0, 0x7fff_fffe, true),
        (Level::Raid0, 0x8000_0000, false),
        (Level::Raid5, 0x7fff_fff8, true),
        (Level::Raid5, 0x8000_0000, false),
        (Level::Raid5, 1 << 32, false),
        (Level::Linear, 0, true),
        (Level::Linear, 3, false),
        (Level::Linear, 4, true),
    ] {
        assert_eq!(chunk(level, found), is_good, "{level} {found}");
    }
}

#[test]
fn the_data_size_of_1_0_is_at_least_the_used_size() {
    let geometry =
        |size| Geometry { data_offset: Sectors::ZERO, size: Sectors(size), bad_blocks_offset: Some(-8), max_dev: 128 };
    let superblock = Version::V1_0.location(DEVICE).unwrap().0;
    // Before the superblock: 8 sectors for a bitmap, 8 for the list.
    let behind = |size| data_size(Version::V1_0, DEVICE, &geometry(size), beside(Sectors(size), None, Sectors::ZERO));
    assert_eq!(behind(1 << 19), Some(Sectors(superblock - 16)));
    assert_eq!(behind(superblock - 16), Some(Sectors(superblock - 16)));
    assert_eq!(behind(superblock - 8), Some(Sectors(superblock - 8)));
}

#[test]
fn a_device_of_24_sectors_is_the_smallest_with_a_superblock() {
    let made = made(Version::V1_2);
    let parse = |sectors: u64| Superblock::parse(&made.encode(), made.super_offset, Sectors(sectors)).map(|_| ());
    let refused = |found| Err(SuperblockError::DeviceTooSmall { found: Sectors(found), minimum: Sectors(24) });
    assert_eq!([23, 24, 25].map(parse), [refused(23), Ok(()), Ok(())]);
    assert_eq!([23, 24, 25].map(|size| Version::V1_2.location(Sectors(size)).is_some()), [false, true, true]);
}

/// Data of version 1.2 begins at 2048 here, and a chunk has 128 sectors.
#[test]
fn a_new_array_has_at_least_a_chunk_of_each_member_and_at_most_all_of_it() {
    let made = |device: u64, size: Option<u64>| {
        let (level, layout, chunk) = (Level::Raid5, default_layout(Level::Raid5), Sectors(128));
        let options = CreateOptions { level, layout, chunk, size: size.map(Sectors), ..options(Version::V1_2) };
        let members = [1, 2].map(|n| NewMember::Device { size: Sectors(device), uuid: [n; 16] });
        create(&options, &members).map(|made| made.superblocks[0].as_ref().unwrap().size.0)
    };
    let too_small = |found| {
        Err(CreateError::DeviceTooSmall { member: 0, found: Sectors(found), minimum: Sectors(DATA_OFFSET + 128) })
    };
    assert_eq!(made(DATA_OFFSET + 127, None), too_small(DATA_OFFSET + 127));
    assert_eq!((made(DATA_OFFSET + 128, None), made(DATA_OFFSET + 129, None)), (Ok(128), Ok(128)));
    let device = DATA_OFFSET + 10 * 128 + 5;
    let asked = |size| made(device, Some(size));
    let too_large =
        |expected| Err(CreateError::SizeTooLarge { member: 0, found: Sectors(1280), expected: Sectors(expected) });
    assert_eq!([1279, 1280, 1281, 1285].map(asked), [Ok(1152), Ok(1280), too_large(1281), too_large(1285)]);
    let too_small = |found| Err(CreateError::SizeTooSmall { found: Sectors(found), minimum: Sectors(128) });
    assert_eq!([0, 127, 128, 129].map(asked), [too_small(0), too_small(127), Ok(128), Ok(128)]);
}
