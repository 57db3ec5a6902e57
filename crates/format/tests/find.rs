//! Devices of unknown version: which superblock is found, and which error is returned.
//! Owns: `find`. Not here: the bytes of a superblock (tests/vectors.rs, tests/mutations.rs).

use uraid_block::{Sector, Sectors};
use uraid_format::create::{CreateError, CreateOptions, NewMember, NewPolicy, create};
use uraid_format::{FindError, Found, SetName, Standing, Superblock, Superblock090, SuperblockError, Version, find};
use uraid_layout::Level;

const SIZE: Sectors = Sectors(16_391);
const MAJOR_1: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

fn options(version: Version, now_seconds: u64) -> CreateOptions {
    CreateOptions {
        version,
        level: Level::Raid1,
        layout: 0,
        chunk: Sectors::ZERO,
        raid_disks: 2,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("host", "name").unwrap(),
        now_seconds,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    }
}

/// The bytes of a device with a superblock of each of these versions, made at these times.
fn device(superblocks: &[(Version, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; SIZE.bytes() as usize];
    for (version, now) in superblocks {
        let member = NewMember::Device { size: SIZE, uuid: [1; 16] };
        let made = create(&options(*version, *now), &[member, member]).unwrap().superblocks.remove(0).unwrap();
        assert_eq!(Some(made.super_offset), version.location(SIZE));
        let at = made.super_offset.0 as usize * 512;
        bytes[at..at + 4096].copy_from_slice(&made.encode()[..]);
    }
    bytes
}

fn look(bytes: &[u8], broken: Option<Sector>) -> Result<Found, FindError<&'static str>> {
    find(SIZE, |at, block| {
        block.copy_from_slice(&bytes[at.0 as usize * 512..][..4096]);
        if broken == Some(at) { Err("a bad sector") } else { Ok(()) }
    })
}

#[test]
fn every_version_is_found_at_its_place() {
    for version in MAJOR_1 {
        let found = look(&device(&[(version, 5)]), None).unwrap();
        assert_eq!((found.superblock.version, found.others.len()), (version, 0));
        assert_eq!(Some(found.superblock.super_offset), version.location(SIZE));
    }
}

#[test]
fn the_superblock_created_last_counts_and_the_other_is_named() {
    for older in MAJOR_1 {
        for newer in MAJOR_1.into_iter().filter(|newer| *newer != older) {
            let found = look(&device(&[(older, 5), (newer, 6)]), None);
            // 1.1 and 1.2 overlap nowhere, so both stay whole.
            let found = found.unwrap();
            assert_eq!(found.superblock.version, newer);
            assert_eq!((found.others[0].version, found.others[0].standing), (older, Standing::Earlier));
            assert_eq!(found.rivals().count(), 1);
        }
    }
    let tie = look(&device(&[(Version::V1_2, 5), (Version::V1_0, 5)]), None).unwrap();
    assert_eq!(tie.superblock.version, Version::V1_0);
}

#[test]
fn damage_is_reported_unless_a_good_superblock_is_found() {
    let mut bytes = device(&[(Version::V1_0, 5), (Version::V1_2, 6)]);
    bytes[4096 + 33] ^= 1;
    let found = look(&bytes, None).unwrap();
    assert_eq!(found.superblock.version, Version::V1_0);
    assert!(matches!(found.others[0].standing, Standing::Damaged(SuperblockError::Checksum { .. })));
    assert_eq!(found.rivals().count(), 0);
    let end = SIZE.bytes() as usize - 16384;
    bytes[end..].fill(0);
    let error = look(&bytes, None).unwrap_err();
    assert!(matches!(
        error,
        FindError::Superblock { version: Version::V1_2, source: SuperblockError::Checksum { .. }, .. }
    ));
    let error = look(&vec![0; bytes.len()], None).unwrap_err();
    assert!(matches!(error, FindError::Superblock { source: SuperblockError::Magic { found: 0 }, .. }));
}

#[test]
fn a_superblock_inside_a_damaged_1_0_array_is_not_its_members() {
    let mut bytes = device(&[(Version::V1_0, 5)]);
    let inner = look(&bytes, None).unwrap().superblock;
    put(&mut bytes, Version::V1_2, 6, Some((2048, inner.size.0 - 2048)));
    bytes[inner.super_offset.0 as usize * 512 + 33] ^= 1;
    let error = look(&bytes, None).unwrap_err();
    let FindError::Superblock { version: Version::V1_0, at, source } = error else { panic!("{error:?}") };
    assert_eq!(at, inner.super_offset);
    let block: &[u8; 4096] = bytes[at.0 as usize * 512..][..4096].try_into().unwrap();
    let (fields, sum) = Superblock::parse_damaged(block, at, SIZE).unwrap();
    assert_eq!(source, SuperblockError::Checksum { found: sum.found, computed: sum.computed });
    assert!(!sum.is_correct() && fields.set_name.as_str() != inner.set_name.as_str());
    assert_eq!(Superblock { set_name: inner.set_name, ..fields }, inner);
}

#[test]
fn an_unreadable_place_matters_only_without_another_superblock() {
    let bytes = device(&[(Version::V1_0, 5)]);
    assert_eq!(look(&bytes, Some(Sector(8))).unwrap().superblock.version, Version::V1_0);
    let error = look(&vec![0; bytes.len()], Some(Sector(8))).unwrap_err();
    assert_eq!(error, FindError::Read { at: Sector(8), source: "a bad sector" });
}

#[test]
fn devices_of_any_size_can_be_searched() {
    for size in (0..2000).chain([u64::MAX - 1, u64::MAX]) {
        let result: Result<_, FindError<()>> = find(Sectors(size), |at, block| {
            assert!(at.0 + 8 <= size);
            block.fill(0);
            Ok(())
        });
        assert_eq!(matches!(result, Err(FindError::DeviceTooSmall { .. })), size < 24, "{size}");
    }
}

#[test]
fn a_1_0_superblock_whose_data_runs_into_it_is_refused() {
    let bytes = device(&[(Version::V1_0, 5)]);
    let good = look(&bytes, None).unwrap().superblock;
    let end = good.super_offset.0;
    let touching = Superblock { data_size: Sectors(end), ..good.clone() };
    assert!(Superblock::parse(&touching.encode(), good.super_offset, SIZE).is_ok());
    let over = Superblock { data_size: Sectors(end + 1), ..good };
    let error = Superblock::parse(&over.encode(), over.super_offset, SIZE).unwrap_err();
    assert_eq!(error, SuperblockError::DataEnd { found: end + 1, maximum: end });
}

#[test]
fn a_device_too_small_for_a_superblock_is_refused_by_create() {
    let member = NewMember::Device { size: SIZE, uuid: [1; 16] };
    let make = |options: CreateOptions| create(&options, &[member, member]).map(|_| ());
    assert_eq!(make(options(Version::V0_90, 1)), Err(CreateError::OldVersion));
    let moved = CreateOptions { data_offset: Some(Sectors(2048)), ..options(Version::V1_0, 1) };
    assert_eq!(make(moved), Err(CreateError::DataOffsetNotZero { found: Sectors(2048) }));
    let low = |version, at| CreateOptions { data_offset: Some(Sectors(at)), ..options(version, 1) };
    assert!(make(low(Version::V1_1, 8)).is_ok() && make(low(Version::V1_2, 16)).is_ok());
    assert!(make(low(Version::V1_1, 7)).is_err() && make(low(Version::V1_2, 15)).is_err());
}

/// Puts a superblock on the device, with another data area than it was created with.
fn put(bytes: &mut [u8], version: Version, now: u64, data: Option<(u64, u64)>) -> Superblock {
    let member = NewMember::Device { size: SIZE, uuid: [1; 16] };
    let made = create(&options(version, now), &[member, member]).unwrap().superblocks.remove(0).unwrap();
    let (offset, size) = data.unwrap_or((made.data_offset.0, made.data_size.0));
    let made = Superblock { data_offset: Sector(offset), data_size: Sectors(size), size: Sectors(10), ..made };
    let at = made.super_offset.0 as usize * 512;
    bytes[at..at + 4096].copy_from_slice(&made.encode()[..]);
    made
}

/// Puts a 0.90 superblock on the device.
fn put_old(bytes: &mut [u8], now: u32) {
    let at = Version::V0_90.location(SIZE).unwrap();
    let mut plain = [0; 4096];
    plain[..12].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0, 90, 0, 0, 0]);
    // Word 10: slots; word 6: ctime; word 38: the checksum, which the error of the first parse reports.
    plain[40..44].copy_from_slice(&2u32.to_le_bytes());
    plain[24..28].copy_from_slice(&now.to_le_bytes());
    let Err(SuperblockError::Checksum { computed, .. }) = Superblock090::parse(&plain) else { panic!("the sum is 0") };
    plain[38 * 4..39 * 4].copy_from_slice(&computed.to_le_bytes());
    bytes[at.0 as usize * 512..][..4096].copy_from_slice(&plain);
}

#[test]
fn a_superblock_inside_a_1_0_array_is_not_its_members() {
    for outer in [Version::V1_1, Version::V1_2] {
        let mut bytes = device(&[(Version::V1_0, 5)]);
        let inner = look(&bytes, None).unwrap().superblock;
        let fresh = bytes.clone();
        // The mirror's size, as a member of the outer array has it; and a stripe's, longer than one of its devices.
        for end in [inner.size.0, SIZE.0 + 1, 20 * SIZE.0] {
            bytes.clone_from(&fresh);
            put(&mut bytes, outer, 6, Some((2048, end - 2048)));
            let found = look(&bytes, None).unwrap();
            assert_eq!(found.superblock.version, Version::V1_0, "{outer} to {end}");
            // It may be today's array only if it could have been made on this device itself.
            let is_doubtful = end <= SIZE.0;
            assert_eq!((found.others[0].version, found.others[0].standing), (outer, Standing::Content { is_doubtful }));
            assert_eq!(found.doubtful_contents().count(), usize::from(is_doubtful));
            assert_eq!(found.rivals().count(), 0);
            // The array around it was updated since, so it is in use.
            let inner = Superblock { updated: 6, ..inner.clone() };
            let at = inner.super_offset.0 as usize * 512;
            bytes[at..at + 4096].copy_from_slice(&inner.encode()[..]);
            assert_eq!(look(&bytes, None).unwrap().doubtful_contents().count(), 0, "{outer} to {end}");
        }
    }
}

/// What is written through an array that has redundancy is written after its superblocks say so.
#[test]
fn an_array_that_was_clean_before_what_lies_in_its_data_was_made_is_a_leftover() {
    for (is_dirty, level, made, expected) in [
        (false, 1, 61, Version::V1_2),
        (false, 1, 60, Version::V1_0),
        (true, 1, 61, Version::V1_0),
        (false, -1, 61, Version::V1_0),
    ] {
        let mut bytes = device(&[]);
        let outer = put(&mut bytes, Version::V1_0, 500, None);
        let resync_offset = if is_dirty { 0 } else { uraid_format::Superblock::CLEAN };
        let outer = Superblock { resync_offset, level, updated: 500, ..outer };
        let at = outer.super_offset.0 as usize * 512;
        bytes[at..at + 4096].copy_from_slice(&outer.encode()[..]);
        put(&mut bytes, Version::V1_2, 500 + made, Some((2048, outer.data_size.0 - 2048)));
        let found = look(&bytes, None).unwrap();
        assert_eq!(found.superblock.version, expected, "dirty {is_dirty}, level {level}, {made} s later");
        assert_eq!(found.rivals().count() + found.doubtful_contents().count(), 1, "both are named");
    }
}

#[test]
fn a_superblock_inside_a_0_90_array_is_not_its_members() {
    for outer in [Version::V1_1, Version::V1_2] {
        let mut bytes = vec![0; SIZE.bytes() as usize];
        put_old(&mut bytes, 5);
        let end = Version::V0_90.location(SIZE).unwrap().0;
        put(&mut bytes, outer, 6, Some((2048, end - 2048)));
        let found = look(&bytes, None).unwrap();
        assert_eq!(
            (found.superblock.version, found.others[0].standing),
            (Version::V0_90, Standing::Content { is_doubtful: true })
        );
    }
    // Before a superblock 1.0, and within its data: a 0.90 does not record its place, so it counts as content.
    let mut bytes = device(&[(Version::V1_0, 5)]);
    put_old(&mut bytes, 6);
    let found = look(&bytes, None).unwrap();
    assert_eq!(
        (found.superblock.version, found.others[0].standing),
        (Version::V1_0, Standing::Content { is_doubtful: true })
    );
}

#[test]
fn of_two_superblocks_inside_each_others_data_the_later_counts() {
    // A leftover at the start, whose data reached to the end of the device; and one at the end.
    for (times, counts) in [((5, 6), Version::V1_0), ((6, 5), Version::V1_2)] {
        let mut bytes = vec![0; SIZE.bytes() as usize];
        put(&mut bytes, Version::V1_2, times.0, None);
        put(&mut bytes, Version::V1_0, times.1, None);
        let found = look(&bytes, None).unwrap();
        assert_eq!((found.superblock.version, found.rivals().count()), (counts, 1));
    }
    // A 0.90 at the end of the data of a 1.2: it may be the array's content or newer than it; this is undecidable.
    for (now, counts) in [(5, Version::V1_2), (7, Version::V0_90)] {
        let mut bytes = vec![0; SIZE.bytes() as usize];
        put(&mut bytes, Version::V1_2, 6, None);
        put_old(&mut bytes, now);
        let found = look(&bytes, None).unwrap();
        assert_eq!((found.superblock.version, found.rivals().count()), (counts, 1));
    }
    // Neither lies among the other's data.
    let mut bytes = vec![0; SIZE.bytes() as usize];
    put(&mut bytes, Version::V1_2, 7, Some((2048, 100)));
    put(&mut bytes, Version::V1_0, 6, Some((4096, 100)));
    let found = look(&bytes, None).unwrap();
    assert_eq!((found.superblock.version, found.rivals().count()), (Version::V1_2, 1));
}

#[test]
fn creation_times_compare_by_seconds_then_microseconds() {
    let mut bytes = vec![0; SIZE.bytes() as usize];
    put(&mut bytes, Version::V1_2, 5 | 7 << 40, None);
    put(&mut bytes, Version::V1_0, 6, None);
    assert_eq!(look(&bytes, None).unwrap().superblock.version, Version::V1_0);
}

#[test]
fn an_array_with_a_data_offset_contains_no_superblock_at_its_members_places() {
    // Sector 8 of the member is sector 0 of the array: a 1.2 there is no member of an array over this one.
    let mut bytes = vec![0; SIZE.bytes() as usize];
    put(&mut bytes, Version::V1_1, 5, Some((8, 16_000)));
    put(&mut bytes, Version::V1_2, 6, Some((16, 16_000)));
    let found = look(&bytes, None).unwrap();
    assert_eq!((found.superblock.version, found.rivals().count()), (Version::V1_2, 1));
}

/// A 1.2 superblock, at 8 to 16, that was made later than a 1.0 whose data begins at sector 0.
#[test]
fn a_superblock_up_to_the_end_of_another_ones_data_is_content() {
    for (data, version) in [(15, Version::V1_2), (16, Version::V1_0), (17, Version::V1_0)] {
        let mut bytes = device(&[]);
        put(&mut bytes, Version::V1_0, 5, Some((0, data)));
        put(&mut bytes, Version::V1_2, 6, Some((2048, 100)));
        assert_eq!(look(&bytes, None).unwrap().superblock.version, version, "data of {data} sectors");
    }
}
