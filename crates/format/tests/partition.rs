//! Partition tables written by sfdisk are read, intact and damaged; hostile ones give a result.
//! The images are made by `truncate -s 64M X.img; sfdisk -q X.img < partition/X.sfdisk` (`LC_ALL=C.UTF-8`).
//! `partition/X.txt` has their bytes that are not zero.

use uraid_block::{Sector, Sectors};
use uraid_format::partition::{Damage, GptError, Kind, Partition, Table, TableError, read};

const DISK_BYTES: usize = 64 << 20;
const LINUX: [u8; 16] =
    [0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4];
const RAID: [u8; 16] = [0x0f, 0x88, 0x9d, 0xa1, 0xfc, 0x05, 0x3b, 0x4d, 0xa0, 0x06, 0x74, 0x3f, 0x0f, 0x84, 0x91, 0x1e];

fn image(text: &str) -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (at, row) = line.split_once(' ').expect("an offset and bytes");
        let at: usize = at.parse().expect("an offset");
        for n in 0..row.len() / 2 {
            disk[at + n] = u8::from_str_radix(&row[2 * n..2 * n + 2], 16).expect("hex");
        }
    }
    disk
}

fn gpt() -> Vec<u8> {
    image(include_str!("partition/gpt.txt"))
}

fn mbr() -> Vec<u8> {
    image(include_str!("partition/mbr.txt"))
}

/// Every read is inside the disk, at most a page, and there are not too many.
fn table(disk: &[u8]) -> Result<Table, TableError<()>> {
    let mut reads = 0;
    let answer = read(disk.len() as u64, |at, into| {
        reads += 1;
        assert!(into.len() <= 4096);
        into.copy_from_slice(&disk[at as usize..at as usize + into.len()]);
        Ok(())
    });
    assert!(reads <= 4 * 1025 + 129, "{reads} reads");
    answer
}

fn partition(number: u32, start: u64, length: u64, kind: Kind, name: &str) -> Partition {
    Partition { number, start: Sector(start), length: Sectors(length), kind, name: name.to_owned() }
}

fn gpt_partitions() -> Vec<Partition> {
    vec![
        partition(1, 2048, 20_480, Kind::Gpt(RAID), "raid half"),
        partition(2, 22_528, 63, Kind::Gpt(LINUX), "größe"),
        partition(5, 40_960, 88_064, Kind::Gpt(LINUX), ""),
    ]
}

fn mbr_partitions() -> Vec<Partition> {
    vec![
        partition(1, 2048, 20_480, Kind::Mbr(0xfd), ""),
        partition(2, 22_528, 63, Kind::Mbr(0x83), ""),
        partition(5, 26_624, 10_000, Kind::Mbr(0xfd), ""),
        partition(6, 38_912, 20_000, Kind::Mbr(0x83), ""),
        partition(7, 61_440, 2048, Kind::Mbr(0xfd), ""),
    ]
}

#[test]
fn a_gpt_by_sfdisk_has_the_requested_partitions() {
    assert_eq!(table(&gpt()), Ok(Table { partitions: gpt_partitions(), damage: None }));
}

#[test]
fn an_mbr_by_sfdisk_has_primary_and_logical_partitions_but_not_the_extended_one() {
    assert_eq!(table(&mbr()), Ok(Table { partitions: mbr_partitions(), damage: None }));
}

#[test]
fn the_backup_is_used_when_any_byte_of_the_first_gpt_is_wrong() {
    // In the signature, the length, the checksum, the place, the entries' place and checksum; in two entries.
    for at in [512, 512 + 12, 512 + 16, 512 + 24, 512 + 72, 512 + 88, 1024 + 33, 1024 + 127 * 128] {
        let mut disk = gpt();
        disk[at] ^= 0x10;
        let found = table(&disk).expect("the backup is whole");
        assert_eq!(found.partitions, gpt_partitions(), "byte {at}");
        assert!(matches!(found.damage, Some(Damage::FirstGpt(_))), "byte {at}: {:?}", found.damage);
    }
    let mut disk = gpt();
    disk[..34 * 512].fill(0);
    assert_eq!(table(&disk).expect("the backup is whole").damage, Some(Damage::FirstGpt(GptError::Signature)));
    disk[DISK_BYTES - 512] = 0;
    assert_eq!(table(&disk), Err(TableError::None), "nothing is left");
}

#[test]
fn two_broken_copies_are_reported_with_both_reasons() {
    let mut disk = gpt();
    disk[1024 + 33] ^= 1;
    disk[DISK_BYTES - 512 + 40] ^= 1;
    let Err(TableError::Gpt { first, backup }) = table(&disk) else { panic!("not refused") };
    assert!(matches!(first, GptError::EntriesChecksum { .. }), "{first}");
    assert!(matches!(backup, GptError::HeaderChecksum { .. }), "{backup}");
    // Only the protective MBR is left.
    let mut disk = gpt();
    disk[512..].fill(0);
    let gone = TableError::Gpt { first: GptError::Signature, backup: GptError::Signature };
    assert_eq!(table(&disk), Err(gone));
}

#[test]
fn an_mbr_has_precedence_over_a_leftover_gpt() {
    let mut disk = gpt();
    let record = mbr()[..512].to_vec();
    disk[..512].copy_from_slice(&record);
    let found = table(&disk).expect("a table").partitions;
    assert_eq!(found, mbr_partitions()[..2], "its own; the chain is not there");
}

#[test]
fn a_broken_chain_keeps_the_partitions_before_it() {
    for link in 1..3 {
        let mut disk = mbr();
        let partitions = mbr_partitions();
        // sfdisk puts each extended record 2048 sectors before its partition.
        let at = partitions[2 + link].start.0 - 2048;
        disk[at as usize * 512 + 510] = 0;
        let found = table(&disk).expect("a table");
        assert_eq!(found.damage, Some(Damage::Chain { at: Sector(at) }));
        assert_eq!(found.partitions, partitions[..2 + link]);
    }
}

#[test]
fn a_cyclic_chain_ends() {
    let mut disk = mbr();
    // The second link of the third record points to the first one.
    let last = (61_440 - 2048) * 512;
    disk[last + 446 + 16..last + 446 + 32].copy_from_slice(&[0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    let found = table(&disk).expect("a table");
    assert_eq!(found.partitions, mbr_partitions());
    assert_eq!(found.damage, Some(Damage::Chain { at: Sector(24_576) }));
}

/// A disk with one extended partition in its last sector, which is the record of a logical one.
#[test]
fn a_record_of_a_logical_partition_may_be_in_the_last_sector_and_not_behind_it() {
    const LAST: usize = 99;
    let entry = |kind: u8, start: u32, length: u32| {
        let mut bytes = [0; 16];
        bytes[4] = kind;
        bytes[8..12].copy_from_slice(&start.to_le_bytes());
        bytes[12..].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    for (sectors, is_there) in [(LAST, false), (LAST + 1, true), (LAST + 2, true)] {
        let mut disk = vec![0; (LAST + 2) * 512];
        for (at, entry) in [(0, entry(5, LAST as u32, 9)), (LAST, entry(0x83, 1, 8))] {
            disk[at * 512 + 446..at * 512 + 462].copy_from_slice(&entry);
            disk[at * 512 + 510..at * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
        }
        disk.truncate(sectors * 512);
        let found = table(&disk).expect("a table");
        let logical = partition(5, LAST as u64 + 1, 8, Kind::Mbr(0x83), "");
        let damage = Damage::Chain { at: Sector(LAST as u64) };
        let expected = if is_there { (vec![logical], None) } else { (Vec::new(), Some(damage)) };
        assert_eq!((found.partitions, found.damage), expected, "{sectors} sectors");
    }
}

/// Makes the first GPT's checksums right. Its entries are at this block, unless they lie behind the disk.
fn seal(disk: &mut [u8], entries: usize) {
    disk[512 + 72..512 + 80].copy_from_slice(&(entries as u64).to_le_bytes());
    if let Some(entries) = disk.get(entries * 512..entries * 512 + 128 * 128) {
        let checksum = crc32(entries);
        disk[512 + 88..512 + 92].copy_from_slice(&checksum.to_le_bytes());
    }
    disk[512 + 16..512 + 20].fill(0);
    let checksum = crc32(&disk[512..512 + 92]);
    disk[512 + 16..512 + 20].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn the_entries_of_a_gpt_end_with_the_disk_at_the_latest() {
    let blocks = DISK_BYTES / 512;
    for (start, is_inside) in [(blocks - 33, true), (blocks - 32, true), (blocks - 31, false)] {
        let mut disk = gpt();
        if is_inside {
            disk.copy_within(1024..1024 + 128 * 128, start * 512);
        }
        seal(&mut disk, start);
        let damage = Damage::FirstGpt(GptError::EntriesOutside { at: start as u64 });
        let found = table(&disk).expect("a table, of the backup if need be");
        let expected = (gpt_partitions(), if is_inside { None } else { Some(damage) });
        assert_eq!((found.partitions, found.damage), expected, "entries from block {start} of {blocks}");
    }
}

#[test]
fn a_partition_of_a_gpt_has_one_block_at_least() {
    for (last, length) in [(22_527, None), (22_528, Some(1)), (22_529, Some(2))] {
        let mut disk = gpt();
        let second = 1024 + 128;
        disk[second + 40..second + 48].copy_from_slice(&u64::to_le_bytes(last));
        seal(&mut disk, 2);
        let found = table(&disk).expect("a table");
        let of_second = found.partitions.iter().find(|found| found.number == 2).map(|found| found.length.0);
        assert_eq!((of_second, found.damage), (length, None), "22528 to {last}");
    }
}

#[test]
fn other_bytes_are_no_partition_table() {
    assert_eq!(table(&[]), Err(TableError::None));
    assert_eq!(table(&[0; 511]), Err(TableError::None));
    assert_eq!(table(&vec![0; 1 << 20]), Err(TableError::None));
    // The boot sector of a FAT file system: code where the entries would be.
    let mut fat = vec![0x90; 1 << 20];
    fat[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(table(&fat), Err(TableError::None));
}

#[test]
fn a_disk_that_cannot_be_read_says_where() {
    let disk = gpt();
    let answer = read(disk.len() as u64, |at, into| {
        into.copy_from_slice(&disk[at as usize..at as usize + into.len()]);
        if at < 1024 { Ok(()) } else { Err("gone") }
    });
    assert_eq!(answer, Err(TableError::Read { at: 1024, source: "gone" }));
}

#[test]
fn a_gpt_of_a_disk_with_blocks_of_4096_bytes_is_read() {
    // The same table on a disk with larger blocks: header and entries start at block boundaries, and places count
    // blocks.
    let small = gpt();
    let mut disk = vec![0; DISK_BYTES];
    disk[..512].copy_from_slice(&small[..512]);
    let blocks = DISK_BYTES as u64 / 4096;
    for (own, other, entries) in [(1, blocks - 1, 2), (blocks - 1, 1, blocks - 5)] {
        let at = own as usize * 4096;
        disk[at..at + 92].copy_from_slice(&small[512..512 + 92]);
        disk[at + 24..at + 32].copy_from_slice(&u64::to_le_bytes(own));
        disk[at + 32..at + 40].copy_from_slice(&u64::to_le_bytes(other));
        disk[at + 72..at + 80].copy_from_slice(&u64::to_le_bytes(entries));
        disk[at + 16..at + 20].fill(0);
        let checksum = crc32(&disk[at..at + 92]);
        disk[at + 16..at + 20].copy_from_slice(&checksum.to_le_bytes());
        disk[entries as usize * 4096..][..16_384].copy_from_slice(&small[1024..1024 + 16_384]);
    }
    let scaled = gpt_partitions().into_iter().map(|it| Partition {
        start: Sector(it.start.0 * 8),
        length: Sectors(it.length.0 * 8),
        ..it
    });
    let scaled: Vec<Partition> = scaled.collect();
    assert_eq!(table(&disk), Ok(Table { partitions: scaled.clone(), damage: None }));
    disk[4096] = 0;
    assert_eq!(table(&disk).expect("the backup is whole").partitions, scaled);
}

/// Bit by bit, as in the standard; it checks the table-driven one.
fn crc32(bytes: &[u8]) -> u32 {
    let mut state = u32::MAX;
    for byte in bytes {
        state ^= u32::from(*byte);
        for _ in 0..8 {
            state = if state & 1 == 1 { state >> 1 ^ 0xedb8_8320 } else { state >> 1 };
        }
    }
    !state
}

#[test]
fn hostile_tables_give_a_result() {
    let (gpt, mbr) = (gpt(), mbr());
    // Small disks with the same heads, so that thousands of them are fast; they have no backup table.
    let small = |disk: &[u8]| disk[..64 * 512].to_vec();
    let mut state = 0x5eed_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut tables, mut refusals) = (0, 0);
    for round in 0..4000 {
        let mut disk = small(if round % 2 == 0 { &gpt } else { &mbr });
        for _ in 0..1 + random() % 4 {
            let at = if round % 2 == 0 { 512 + random() as usize % 92 } else { 446 + random() as usize % 64 };
            disk[at] = [0, 1, 0x7f, 0x80, 0xff, random() as u8][random() as usize % 6];
        }
        // A wrong checksum would hide everything behind it.
        if round % 4 == 0 {
            disk[512 + 16..512 + 20].fill(0);
            let checksum = crc32(&disk[512..512 + 92]);
            disk[512 + 16..512 + 20].copy_from_slice(&checksum.to_le_bytes());
        }
        match table(&disk) {
            Ok(found) => {
                tables += 1;
                assert!(found.partitions.len() <= 1024);
                assert!(found.partitions.iter().all(|it| it.length > Sectors::ZERO));
            }
            Err(_) => refusals += 1,
        }
    }
    assert!(tables > 500 && refusals > 500, "{tables} tables, {refusals} refusals: one of the ways is not taken");
}
