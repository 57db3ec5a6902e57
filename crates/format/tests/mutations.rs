//! Bytes from outside: parsing any bytes returns a result, and accepted ones are written back unchanged.
//! Owns: mutated superblocks, with a small generator. Not here: a coverage-guided fuzzer.

use uraid_block::{Sector, Sectors};
use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
use uraid_format::{
    Features, Reshape, Role, SUPERBLOCK_BYTES, SetName, Superblock, SuperblockError, location_v12, signature,
};
use uraid_layout::{Level, default_layout};

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
}

const SIZE: Sectors = Sectors(1 << 20);

fn made(level: Level, slots: u16) -> Superblock {
    let options = CreateOptions {
        version: uraid_format::Version::V1_2,
        level,
        layout: default_layout(level),
        chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
        raid_disks: slots,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("host", "name").unwrap(),
        now_seconds: 1_700_000_000,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    };
    let members: Vec<_> = (0..slots).map(|n| NewMember::Device { size: SIZE, uuid: [n as u8; 16] }).collect();
    create(&options, &members).unwrap().superblocks.remove(0).unwrap()
}

/// The checksum by docs/md/formats.md#checksums, written a second time and differently.
fn seal(bytes: &mut [u8; SUPERBLOCK_BYTES]) {
    let max_dev = u32::from_le_bytes(bytes[220..224].try_into().unwrap()).min(1920) as usize;
    bytes[216..220].fill(0);
    let covered = &bytes[..256 + 2 * max_dev];
    let (words, rest) = covered.split_at(covered.len() / 4 * 4);
    let mut sum: u64 = words.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    if let [low, high] = rest {
        sum += u64::from(u16::from_le_bytes([*low, *high]));
    }
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    bytes[216..220].copy_from_slice(&sum.to_le_bytes());
}

/// Accepted bytes must be written back with every significant byte.
fn check(bytes: &[u8; SUPERBLOCK_BYTES], seed: u64) -> bool {
    let Ok(superblock) = Superblock::parse(bytes, location_v12(), SIZE) else { return false };
    let covered = 256 + 2 * superblock.roles.len();
    assert_eq!(superblock.encode()[..covered], bytes[..covered], "seed {seed:#x}");
    let again = Superblock::parse(&superblock.encode(), location_v12(), SIZE);
    assert_eq!(again.as_ref(), Ok(&superblock), "seed {seed:#x}");
    // Displaying it must not panic either.
    let _ = (superblock.set_name.name(), superblock.features.to_string(), superblock.level_layout());
    let _ = (superblock.own_role(), superblock.written_bytes());
    true
}

#[test]
fn mutated_superblocks_are_refused_or_round_trip() {
    let mut accepted = 0;
    for seed in 1..=20_000u64 {
        let mut random = Random(seed);
        let level = Level::ALL[random.below(7) as usize];
        let mut bytes = made(level, 4).encode();
        for _ in 0..1 + random.below(6) {
            let at = random.below(300) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => bytes[at..at + 4].fill(0xff),
                _ => bytes[at & !3..(at & !3) + 4].copy_from_slice(&(random.next() as u32).to_le_bytes()),
            }
        }
        if random.below(8) != 0 {
            seal(&mut bytes);
        }
        accepted += usize::from(check(&bytes, seed));
    }
    assert!(accepted > 2_000, "{accepted} of 20000 get past the checks, too few to mean anything");
}

#[test]
fn random_bytes_are_no_superblock_and_do_not_panic() {
    for seed in 1..=2_000u64 {
        let mut random = Random(seed);
        let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        if random.below(2) == 0 {
            bytes[..8].copy_from_slice(b"\xfc\x4e\x2b\xa9\x01\0\0\0");
            seal(&mut bytes);
        }
        let found_at = Sector([0, 8, random.next()][random.below(3) as usize]);
        let size = Sectors([0, 24, u64::MAX, random.next()][random.below(4) as usize]);
        assert!(Superblock::parse(&bytes, found_at, size).is_err(), "seed {seed:#x}");
        signature::detect_all(&bytes[..], &bytes[random.below(4096) as usize..], size);
    }
}

#[test]
fn every_field_survives_a_round_trip() {
    let mut superblock = made(Level::Raid6, 5);
    superblock.features = Features(0xffff_ffff);
    superblock.reshape = Some(Reshape {
        new_level: 5,
        position: 1 << 40,
        delta_disks: -1,
        new_layout: 2,
        new_chunk: 256,
        new_offset: -2048,
    });
    superblock.bitmap_offset = -16;
    superblock.recovery_offset = 12345;
    superblock.dev_number = 77;
    superblock.corrected_reads = 3;
    superblock.devflags = 3;
    superblock.bad_blocks.shift = 1;
    superblock.bad_blocks.offset = -8;
    superblock.updated |= 5 << 40;
    superblock.events = Superblock::EVENTS_END - 1;
    superblock.resync_offset = 99;
    superblock.logical_block_size = 4096;
    superblock.roles = (0..=1919u16).map(|n| Role::from_raw(n.wrapping_mul(257))).collect();
    let bytes = superblock.encode();
    assert_eq!(Superblock::parse(&bytes, location_v12(), SIZE), Ok(superblock.clone()));
    assert_eq!(superblock.written_bytes(), 4096);
    assert_eq!(superblock.own_role(), superblock.roles[77]);
    let uncountable = Superblock { events: 1 << 62, ..superblock.clone() };
    let error = Superblock::parse(&uncountable.encode(), location_v12(), SIZE);
    assert_eq!(error, Err(SuperblockError::Events { found: 1 << 62 }));
    // With a table of odd length the checksum has two bytes left over.
    superblock.roles.truncate(5);
    let mut bytes = superblock.encode();
    assert_eq!(Superblock::parse(&bytes, location_v12(), SIZE), Ok(superblock.clone()));
    let sum = bytes[216..220].to_vec();
    seal(&mut bytes);
    assert_eq!(bytes[216..220], sum);
    assert_eq!(superblock.own_role(), Role::Spare);
}
