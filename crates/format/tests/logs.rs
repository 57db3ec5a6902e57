//! The metadata beside the superblock: bitmaps, partial parity logs, journals, and their places in the superblock.
//! Owns: ppl.json, the bitmap of superblock_v12.json, mutated bytes. Not here: what real kernels write (tests/golden.rs).

use serde_json::Value;
use uraid_block::{ArraySector, Extent, MemberSector, Sector, Sectors};
use uraid_format::bitmap::{BitmapHeader, BitmapVersion};
use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
use uraid_format::journal::{JournalBlock, JournalEntry, JournalError, Logged, block_checksum};
use uraid_format::ppl::{PplEntry, PplError, PplHeader, parity_checksum, signature};
use uraid_format::{Features, Reshape, ReshapeError, SetName, Superblock, Version, uuid};
use uraid_layout::Level;

const PPL: &str = include_str!("vectors/ppl.json");
const SUPERBLOCK: &str = include_str!("vectors/superblock_v12.json");
const SET_UUID: [u8; 16] = [7; 16];

/// xorshift64*: good enough for tests, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Changes a few of the first `end` bytes, whole words among them.
    fn mutate(&mut self, bytes: &mut [u8], end: u64) {
        for _ in 0..1 + self.below(5) {
            let at = self.below(end) as usize;
            match self.below(4) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => bytes[at & !3..(at & !3) + 4].copy_from_slice(&(1u32 << self.below(32)).to_le_bytes()),
                _ => bytes[at & !3..(at & !3) + 4].copy_from_slice(&(self.next() as u32).to_le_bytes()),
            }
        }
    }
}

/// CRC-32C bit by bit, seeded, not inverted: an independent twin of the table-driven one.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 })
    })
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn made(version: Version) -> Superblock {
    let options = CreateOptions {
        version,
        level: Level::Raid5,
        layout: 2,
        chunk: Sectors(128),
        raid_disks: 3,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: SET_UUID,
        set_name: SetName::new("host", "name").unwrap(),
        now_seconds: 1_700_000_000,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    };
    let members = [NewMember::Device { size: SIZE, uuid: [1; 16] }; 3];
    create(&options, &members).unwrap().superblocks.remove(0).unwrap()
}

const SIZE: Sectors = Sectors(1 << 17);

#[test]
fn mdadms_bitmap_round_trips_byte_by_byte() {
    let vector: Value = serde_json::from_str(SUPERBLOCK).unwrap();
    let bytes: [u8; 256] = hex(&vector["bitmap_first_256"]).try_into().unwrap();
    let header = BitmapHeader::parse(&bytes).unwrap();
    assert_eq!((header.version, header.chunk_bytes), (BitmapVersion::LittleEndian, 64 << 20));
    assert_eq!((header.events, header.events_cleared, header.sync_size), (42, 42, Sectors(36_864)));
    assert_eq!((header.daemon_sleep_seconds, header.write_behind, header.state), (5, 0, 0));
    assert_eq!(uuid::text(&header.set_uuid), "10111213:14151617:18191a1b:1c1d1e1f");
    assert_eq!(header.chunks(), 1);
    assert_eq!(header.encode(), bytes);
}

#[test]
fn the_partial_parity_logs_of_the_vectors_round_trip() {
    let vector: Value = serde_json::from_str(PPL).unwrap();
    let number = |name: &str| vector[name].as_u64().unwrap() as u32;
    let set_uuid: [u8; 16] = hex(&vector["array_uuid"]).try_into().unwrap();
    assert_eq!(signature(&set_uuid), number("signature"));
    let parity: Vec<u8> = (0..4096).map(|at| (7 * at + 3) as u8).collect();
    assert_eq!(parity_checksum(&parity), number("partial_parity_crc"));
    for (name, sum) in [("empty_header_at_512", "empty_checksum"), ("header_at_512", "header_checksum")] {
        let mut bytes = Box::new([0; 4096]);
        bytes[..512].fill(0xff);
        let start = hex(&vector[name]);
        bytes[512..512 + start.len()].copy_from_slice(&start);
        let header = PplHeader::parse(&bytes, &set_uuid).unwrap();
        assert!(header.encode() == bytes, "{name}");
        assert_eq!(bytes[532..536], number(sum).to_le_bytes());
        if let [entry] = header.entries[..] {
            assert!(entry.matches(&parity) && !entry.matches(&parity[1..]));
            assert_eq!((entry.data_sector, entry.data_bytes, entry.parity_slot), (ArraySector(0x808), 8192, 2));
            assert_eq!((header.generation, header.log_bytes()), (9, 8192));
        } else {
            assert_eq!(header, PplHeader::empty(&set_uuid));
        }
    }
}

#[test]
fn a_partial_parity_log_of_another_array_or_with_too_many_entries_is_refused() {
    let bytes = PplHeader::empty(&SET_UUID).encode();
    assert!(matches!(PplHeader::parse(&bytes, &[8; 16]), Err(PplError::Signature { .. })));
    let mut wrong = bytes.clone();
    wrong[4095] = 1;
    assert!(matches!(PplHeader::parse(&wrong, &SET_UUID), Err(PplError::Checksum { .. })));
    let mut long = bytes;
    long[528] = 149;
    seal_ppl(&mut long);
    assert_eq!(PplHeader::parse(&long, &SET_UUID), Err(PplError::TooManyEntries { found: 149, maximum: 148 }));
    let entry = PplEntry { parity_bytes: u32::MAX, ..PplEntry::default() };
    let full = PplHeader { entries: vec![entry; 148], ..PplHeader::empty(&SET_UUID) };
    assert_eq!(PplHeader::parse(&full.encode(), &SET_UUID), Ok(full.clone()));
    assert_eq!(full.log_bytes(), 4096 + 148 * u64::from(u32::MAX));
}

fn seal_ppl(bytes: &mut [u8; 4096]) {
    bytes[532..536].fill(0);
    let sum = !crc32c(!0, &bytes[..]);
    bytes[532..536].copy_from_slice(&sum.to_le_bytes());
}

fn seal_journal(bytes: &mut [u8; 4096]) {
    bytes[4..8].fill(0);
    let sum = crc32c(crc32c(!0, &SET_UUID), &bytes[..]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn journal() -> JournalBlock {
    let data = Logged { flags: 0, location: ArraySector(640), checksums: vec![1, 2] };
    let parity = Logged { flags: 0, location: MemberSector(128), checksums: vec![3] };
    let rows = vec![MemberSector(8), MemberSector(1 << 40)];
    JournalBlock {
        sequence: 77,
        position: Sector(16),
        entries: vec![JournalEntry::Data(data), JournalEntry::Parity(parity), JournalEntry::Flushed { flags: 0, rows }],
    }
}

#[test]
fn a_journal_block_is_encoded_as_specified_and_round_trips() {
    let empty = JournalBlock::empty(0x1122_3344).encode(&SET_UUID);
    assert_eq!(empty[..4], [0x09, 0xc5, 0x33, 0x64]);
    assert_eq!(empty[8..32], [1, 0, 0, 0, 32, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut sealed = empty.clone();
    seal_journal(&mut sealed);
    assert!(sealed == empty);
    let block = journal();
    let bytes = block.encode(&SET_UUID);
    // 32 + data 16 + 8, parity 16 + 4, flushed 8 + 16.
    assert_eq!(bytes[12..16], 100u32.to_le_bytes());
    assert_eq!(bytes[32..40], [0, 0, 0, 0, 16, 0, 0, 0]);
    assert_eq!(bytes[56..64], [1, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(bytes[76..84], [2, 0, 0, 0, 16, 0, 0, 0]);
    assert_eq!(JournalBlock::parse(&bytes, &SET_UUID), Ok(block.clone()));
    assert_eq!((block.log_length(), JournalBlock::empty(1).log_length()), (Sectors(32), Sectors(8)));
    assert_eq!(block_checksum(&SET_UUID, &[5; 4096]), crc32c(crc32c(!0, &SET_UUID), &[5; 4096]));
}

#[test]
fn impossible_journal_blocks_are_refused() {
    let refused = |at: usize, value: u32| {
        let mut bytes = journal().encode(&SET_UUID);
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        seal_journal(&mut bytes);
        JournalBlock::parse(&bytes, &SET_UUID).unwrap_err()
    };
    assert_eq!(refused(0, 5), JournalError::Magic { found: 5 });
    assert_eq!(refused(8, 2), JournalError::Version { found: 2 });
    assert_eq!(refused(12, 31), JournalError::Size { found: 31 });
    assert_eq!(refused(12, 4097), JournalError::Size { found: 4097 });
    assert_eq!(refused(12, 99), JournalError::Truncated { at: 76, end: 99 });
    assert_eq!(refused(32, 3), JournalError::Kind { at: 32, found: 3 });
    assert_eq!(refused(36, 12), JournalError::EntrySize { at: 32, found: 12 });
    assert_eq!(refused(80, 0), JournalError::EntrySize { at: 76, found: 0 });
    assert_eq!(refused(36, u32::MAX - 7), JournalError::Truncated { at: 32, end: 100 });
    let other = JournalBlock::parse(&journal().encode(&SET_UUID), &[8; 16]);
    assert!(matches!(other, Err(JournalError::Checksum { .. })));
}

#[test]
fn mutated_logs_are_refused_or_mean_the_same_after_a_round_trip() {
    let entry = PplEntry { data_sector: ArraySector(640), parity_bytes: 4096, ..PplEntry::default() };
    let ppl = PplHeader { generation: 5, entries: vec![entry; 3], ..PplHeader::empty(&SET_UUID) };
    let vector: Value = serde_json::from_str(SUPERBLOCK).unwrap();
    let bitmap: [u8; 256] = hex(&vector["bitmap_first_256"]).try_into().unwrap();
    let mut accepted = [0; 3];
    for seed in 1..=1_500u64 {
        let mut random = Random(seed);
        let mut bytes = ppl.encode();
        random.mutate(&mut bytes[520..], 96);
        seal_ppl(&mut bytes);
        if let Ok(header) = PplHeader::parse(&bytes, &SET_UUID) {
            accepted[0] += 1;
            assert_eq!(PplHeader::parse(&header.encode(), &SET_UUID), Ok(header), "seed {seed}");
        }
        let mut bytes = journal().encode(&SET_UUID);
        random.mutate(&mut bytes[..], 128);
        seal_journal(&mut bytes);
        if let Ok(block) = JournalBlock::parse(&bytes, &SET_UUID) {
            accepted[1] += 1;
            assert_eq!(JournalBlock::parse(&block.encode(&SET_UUID), &SET_UUID), Ok(block), "seed {seed}");
        }
        let mut bytes = bitmap;
        random.mutate(&mut bytes, 140);
        if let Ok(header) = BitmapHeader::parse(&bytes) {
            accepted[2] += 1;
            assert_eq!(BitmapHeader::parse(&header.encode()), Ok(header.clone()), "seed {seed}");
            if let Some(last) = header.chunks().checked_sub(1) {
                let sectors = header.sectors_of(last);
                assert_eq!(sectors.end().0, header.sync_size.0, "seed {seed}");
                assert_eq!(header.position_of(last).0 + 1, header.used_bytes(), "seed {seed}");
            }
            assert!(header.area_bytes() >= header.used_bytes(), "seed {seed}");
        }
    }
    assert!(accepted.iter().all(|count| *count > 200), "{accepted:?} of 1500 are accepted, too few to mean anything");
}

#[test]
fn mutated_superblocks_1_0_and_1_1_are_refused_or_round_trip() {
    for version in [Version::V1_0, Version::V1_1] {
        let good = made(version);
        let mut accepted = 0;
        for seed in 1..=4_000u64 {
            let mut random = Random(seed);
            let mut bytes = good.encode();
            random.mutate(&mut bytes[..], 300);
            let max_dev = u32::from_le_bytes(bytes[220..224].try_into().unwrap()).min(1920) as usize;
            bytes[216..220].fill(0);
            let mut sum = 0;
            for word in bytes[..256 + 2 * max_dev].chunks(4) {
                sum += word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            }
            bytes[216..220].copy_from_slice(&((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
            let Ok(superblock) = Superblock::parse(&bytes, good.super_offset, SIZE) else { continue };
            accepted += 1;
            assert_eq!(superblock.version, version);
            let covered = 256 + 2 * superblock.roles.len();
            assert_eq!(superblock.encode()[..covered], bytes[..covered], "seed {seed}");
            let _ = (superblock.bitmap_start(), superblock.ppl_extent(), superblock.bad_blocks_extent());
            let _ = superblock.reshape_plan();
        }
        assert!(accepted > 500, "{version}: {accepted} of 4000 are accepted, too few to mean anything");
    }
}

#[test]
fn the_superblock_gives_the_places_of_the_other_metadata() {
    let plain = made(Version::V1_2);
    assert_eq!((plain.bitmap_start(), plain.ppl_extent()), (None, None));
    assert_eq!(plain.bad_blocks_extent(), Some(Extent::new(Sector(24), Sectors(8))));
    let bitmap = Superblock { features: Features::BITMAP_OFFSET, bitmap_offset: -8, ..plain.clone() };
    assert_eq!(bitmap.bitmap_start(), Some(Sector(0)));
    assert_eq!(Superblock { bitmap_offset: -9, ..bitmap }.bitmap_start(), None);
    let ppl = Superblock { features: Features::MULTIPLE_PPLS, bitmap_offset: 2048 << 16 | 8, ..plain.clone() };
    assert_eq!((ppl.ppl_extent(), ppl.bitmap_start()), (Some(Extent::new(Sector(16), Sectors(2048))), None));
    let before = Superblock { bitmap_offset: 2048 << 16 | 0xf7f8, ..ppl };
    assert_eq!(before.ppl_extent(), None);
    let at_end = Superblock { super_offset: Sector(100_000), ..before };
    assert_eq!(at_end.ppl_extent(), Some(Extent::new(Sector(100_000 - 2056), Sectors(2048))));
}

#[test]
fn a_reshape_plan_has_both_geometries_and_a_direction() {
    let plain = made(Version::V1_2);
    assert_eq!(plain.reshape_plan(), Ok(None));
    let reshape =
        Reshape { new_level: 6, position: 6144, delta_disks: 1, new_layout: 18, new_chunk: 64, new_offset: -128 };
    let growing = Superblock { features: Features::RESHAPE_ACTIVE, raid_disks: 4, reshape: Some(reshape), ..plain };
    let plan = growing.reshape_plan().unwrap().unwrap();
    assert_eq!((plan.from.level, plan.from.layout, plan.from.chunk), (5, 2, Sectors(128)));
    assert_eq!((plan.to.level, plan.to.layout, plan.to.chunk), (6, 18, Sectors(64)));
    assert_eq!((plan.from.raid_disks, plan.to.raid_disks, plan.position), (3, 4, ArraySector(6144)));
    assert_eq!((plan.is_backwards, plan.from.data_offset), (false, plan.to.data_offset));
    let moving = growing.features.with(Features::NEW_OFFSET).with(Features::RESHAPE_BACKWARDS);
    let moved = Superblock { features: moving, ..growing.clone() }.reshape_plan().unwrap().unwrap();
    assert_eq!((moved.to.data_offset.0 + 128, moved.is_backwards), (moved.from.data_offset.0, false));
    let with = |delta_disks: i32, new_offset: i32| {
        let reshape = Some(Reshape { delta_disks, new_offset, ..reshape });
        Superblock { features: moving, reshape, ..growing.clone() }.reshape_plan()
    };
    assert!(with(-1, 0).unwrap().unwrap().is_backwards && with(0, 0).unwrap().unwrap().is_backwards);
    let empty = Superblock { reshape: None, ..growing.clone() };
    assert_eq!(empty.reshape_plan(), Err(ReshapeError::Empty));
    assert_eq!(with(4, 0), Err(ReshapeError::Slots { from: 0, to: 4, maximum: 1920 }));
    assert_eq!(with(i32::MIN, 0), Err(ReshapeError::Slots { from: 4 - i64::from(i32::MIN), to: 4, maximum: 1920 }));
    let from = growing.data_offset.0;
    assert_eq!(with(0, i32::MIN), Err(ReshapeError::DataOffset { from, by: i32::MIN }));
}
