//! `create` against mdadm: its numbers by an independent model of mdadm's rules, its bytes by one superblock that mdadm
//! accepts.
//! Owns: create.json and superblock_v12.json. Not here: real mdadm (tests/mdadm.rs).

use serde_json::Value;
use uraid_block::{Sector, Sectors, Slot};
use uraid_format::create::{
    BitmapPlacement, CreateOptions, NewMember, NewPolicy, bad_blocks_offset, beside, bitmap_placement, create,
    data_size,
};
use uraid_format::{Features, Role, SUPERBLOCK_BYTES, SetName, Superblock, SuperblockError, Version, location_v12};
use uraid_layout::{Level, default_layout};

const CREATE: &str = include_str!("vectors/create.json");
const SUPERBLOCK: &str = include_str!("vectors/superblock_v12.json");

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a vector's number")
}

fn options(version: Version, level: Level, chunk: Sectors, raid_disks: u16) -> CreateOptions {
    CreateOptions {
        version,
        level,
        layout: default_layout(level),
        chunk,
        raid_disks,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("vector", "one").unwrap(),
        now_seconds: 1_700_000_000,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    }
}

#[test]
fn create_chooses_mdadms_numbers() {
    let vectors: Value = serde_json::from_str(CREATE).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 792);
    for case in cases {
        let version = [Version::V1_0, Version::V1_1, Version::V1_2][number(&case["minor"]) as usize];
        let level = Level::from_md(case["level"].as_i64().unwrap() as i32).unwrap();
        let chunk = Sectors(number(&case["chunk_kib"]) * 2);
        let disks = number(&case["disks"]) as u16;
        let size = Sectors(number(&case["dev_sectors"]));
        let members: Vec<_> = (0..disks).map(|n| NewMember::Device { size, uuid: [n as u8; 16] }).collect();
        let made =
            create(&options(version, level, chunk, disks), &members).unwrap_or_else(|error| panic!("{case}: {error}"));
        let out = &case["out"];
        assert_eq!(made.geometry.data_offset.0, number(&out["data_offset"]), "{case}");
        assert_eq!(made.geometry.size.0, number(&out["size"]), "{case}");
        for superblock in made.superblocks.iter().flatten() {
            assert_eq!(superblock.super_offset.0, number(&out["super_offset"]), "{case}");
            let found = Superblock::parse(&superblock.encode(), superblock.super_offset, size);
            assert_eq!(found.as_ref(), Ok(superblock), "{case}");
            assert_eq!(u64::from(superblock.bad_blocks.size), number(&out["bblog_size"]), "{case}");
        }
        let bitmap = if case["bitmap"].as_bool().unwrap() {
            let covered = if level == Level::Raid10 {
                Sectors(made.geometry.size.0 * u64::from(disks) / 2)
            } else {
                made.geometry.size
            };
            let bitmap = bitmap_placement(version, made.geometry.size, covered).unwrap_or_else(|| panic!("{case}"));
            let expected = BitmapPlacement {
                offset: out["bitmap_offset"].as_i64().unwrap() as i32,
                chunk_bytes: number(&out["bitmap_chunk"]),
                bytes: number(&out["bitmap_bytes"]),
            };
            assert_eq!(bitmap, expected, "{case}");
            Some(bitmap)
        } else {
            let expected = out["bblog_offset"].as_i64().map(|offset| offset as i32);
            assert_eq!(made.geometry.bad_blocks_offset, expected, "{case}");
            None
        };
        let beside = beside(made.geometry.size, bitmap.as_ref(), Sectors::ZERO);
        let room = data_size(version, size, &made.geometry, beside).unwrap();
        assert_eq!(room.0, number(&out["data_size"]), "{case}");
        let offset = bad_blocks_offset(version, made.geometry.data_offset, beside);
        assert_eq!(offset.map(i64::from), out["bblog_offset"].as_i64(), "{case}");
    }
}

/// The vector's superblock, and the size of its device.
fn vector() -> (Box<[u8; SUPERBLOCK_BYTES]>, Sectors, Value) {
    let vector: Value = serde_json::from_str(SUPERBLOCK).unwrap();
    let mut bytes = Box::new([0xff; SUPERBLOCK_BYTES]);
    let digits = vector["first_512"].as_str().unwrap();
    for (at, byte) in bytes[..512].iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap();
    }
    let size = Sectors(number(&vector["dev_sectors"]));
    (bytes, size, vector)
}

#[test]
fn mdadms_superblock_round_trips_byte_by_byte() {
    let (bytes, size, vector) = vector();
    assert_eq!(number(&vector["superblock_at_byte"]), location_v12().0 * 512);
    let superblock = Superblock::parse(&bytes, location_v12(), size).unwrap();
    assert_eq!(superblock.features, Features::BITMAP_OFFSET);
    assert_eq!(superblock.set_name.as_str(), "vector:one");
    assert_eq!(superblock.set_uuid, std::array::from_fn(|n| 0x10 + n as u8));
    assert_eq!(superblock.created_seconds(), 1_700_000_000);
    assert_eq!(superblock.known_level(), Some(Level::Raid5));
    assert_eq!(superblock.level_layout(), Some((Level::Raid5, 2)));
    assert_eq!((superblock.size, superblock.chunk), (Sectors(36864), Sectors(1024)));
    assert_eq!((superblock.raid_disks, superblock.bitmap_offset), (4, 8));
    assert_eq!((superblock.data_offset, superblock.data_size), (Sector(4096), Sectors(36864)));
    assert_eq!((superblock.dev_number, superblock.own_role()), (1, Role::Slot(Slot(1))));
    assert_eq!((superblock.bad_blocks.size, superblock.bad_blocks.offset), (8, 16));
    assert_eq!(superblock.updated_seconds(), 1_700_000_100);
    assert_eq!((superblock.events, superblock.is_dirty()), (42, false));
    assert_eq!(superblock.roles.len(), 128);
    assert_eq!(superblock.roles[..5].iter().map(|role| role.raw()).collect::<Vec<_>>(), [0, 1, 2, 0xffff, 3]);
    assert_eq!(superblock.reshape, None);
    assert_eq!(superblock.written_bytes(), 512);
    assert!(superblock.encode() == bytes);
}

#[test]
fn any_flipped_bit_in_the_summed_bytes_is_detected() {
    let (bytes, size, vector) = vector();
    for bit in 0..512 * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let error = Superblock::parse(&wrong, location_v12(), size).expect_err("a wrong bit");
        if bit / 8 >= 224 {
            let SuperblockError::Checksum { found, .. } = error else { panic!("bit {bit}: {error}") };
            assert_eq!(u64::from(found), number(&vector["csum"]));
        }
    }
}
