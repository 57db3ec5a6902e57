//! Devices whose version nobody tells: which superblock is found, and which error is told.
//! Owns: `find`. Not here: the bytes of a superblock (tests/vectors.rs, tests/mutations.rs).

use uraid_block::{Sector, Sectors};
use uraid_format::create::{CreateError, CreateOptions, NewMember, create};
use uraid_format::{FindError, Found, SetName, Superblock, SuperblockError, Version, find};
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
fn the_superblock_that_was_made_last_counts_and_the_other_is_named() {
    for older in MAJOR_1 {
        for newer in MAJOR_1.into_iter().filter(|newer| *newer != older) {
            let found = look(&device(&[(older, 5), (newer, 6)]), None);
            // 1.1 and 1.2 overlap nowhere, so both stay whole.
            let found = found.unwrap();
            assert_eq!(found.superblock.version, newer);
            assert_eq!((found.others[0].version, found.others[0].error), (older, None));
        }
    }
    let tie = look(&device(&[(Version::V1_2, 5), (Version::V1_0, 5)]), None).unwrap();
    assert_eq!(tie.superblock.version, Version::V1_0);
}

#[test]
fn damage_is_told_before_emptiness_and_does_not_hide_what_is_good() {
    let mut bytes = device(&[(Version::V1_0, 5), (Version::V1_2, 6)]);
    bytes[4096 + 33] ^= 1;
    let found = look(&bytes, None).unwrap();
    assert_eq!(found.superblock.version, Version::V1_0);
    assert!(matches!(found.others[0].error, Some(SuperblockError::Checksum { .. })));
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
fn a_place_that_cannot_be_read_matters_only_where_nothing_else_is() {
    let bytes = device(&[(Version::V1_0, 5)]);
    assert_eq!(look(&bytes, Some(Sector(8))).unwrap().superblock.version, Version::V1_0);
    let error = look(&vec![0; bytes.len()], Some(Sector(8))).unwrap_err();
    assert_eq!(error, FindError::Read { at: Sector(8), source: "a bad sector" });
}

#[test]
fn no_device_is_too_small_or_too_large_to_be_looked_at() {
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
fn what_has_no_place_for_it_cannot_be_created() {
    let member = NewMember::Device { size: SIZE, uuid: [1; 16] };
    let make = |options: CreateOptions| create(&options, &[member, member]).map(|_| ());
    assert_eq!(make(options(Version::V0_90, 1)), Err(CreateError::OldVersion));
    let moved = CreateOptions { data_offset: Some(Sectors(2048)), ..options(Version::V1_0, 1) };
    assert_eq!(make(moved), Err(CreateError::DataOffsetNotZero { found: Sectors(2048) }));
    let low = |version, at| CreateOptions { data_offset: Some(Sectors(at)), ..options(version, 1) };
    assert!(make(low(Version::V1_1, 8)).is_ok() && make(low(Version::V1_2, 16)).is_ok());
    assert!(make(low(Version::V1_1, 7)).is_err() && make(low(Version::V1_2, 15)).is_err());
}
