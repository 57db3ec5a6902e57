//! Partition tables: the range of a disk that is partition N.
//! Owns: GPT with its backup header, MBR with its chain of logical partitions. Not here: md's own bytes, the read itself
//! (the caller).
//! Invariant: any bytes give a result after a bounded number of small reads, and its size in memory is bounded. A
//! partition may still lie outside the disk: the caller that opens it must check that.
//! Spec: UEFI Specification 2.10, section 5 (GPT Disk Layout); the MBR as Linux reads it.
//! No crate for tables: of those that read a GPT, `gptman` reserves memory for as many entries as the disk claims (up to
//! 4 billion), and `gpt` asserts that an entry has 128 bytes. Neither knows an MBR's logical partitions, nor what Linux
//! does if both tables are there.

use crate::crc32::ETHERNET;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};

/// The most entries that a GPT may have here; 128 is usual, and Linux makes devices of 255.
const GPT_ENTRIES_MAX: u32 = 1024;
/// The range of bytes of an entry; 128 is usual.
const GPT_ENTRY_BYTES: std::ops::RangeInclusive<u32> = 128..=4096;
/// The most logical partitions of an MBR that are followed.
const LOGICAL_MAX: usize = 128;
/// The type of the protective MBR entry that covers a GPT.
const KIND_GPT_COVER: u8 = 0xee;
const KINDS_EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Sizes of the disk's own blocks in which a GPT counts.
const BLOCK_BYTES: [u64; 2] = [512, 4096];

/// A stretch of a disk with a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The number that Linux uses: from 1; logical partitions of an MBR from 5.
    pub number: u32,
    /// The first sector, from the start of the disk.
    pub start: Sector,
    /// Its length; never zero.
    pub length: Sectors,
    /// The type that the table records.
    pub kind: Kind,
    /// The name in a GPT; empty in an MBR.
    pub name: String,
}

/// A partition's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The byte of an MBR: 0xfd for an md member, 0x83 for Linux.
    Mbr(u8),
    /// The GUID of a GPT, as its bytes lie on the disk.
    Gpt([u8; 16]),
}

/// A table that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// By number.
    pub partitions: Vec<Partition>,
    /// What is wrong with the table, although it is usable.
    pub damage: Option<Damage>,
}

/// Damage that was worked around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// The GPT at the start is unusable, the one at the end is good.
    #[error("the first GPT is broken ({0}), the backup is used")]
    FirstGpt(GptError),
    /// Logical partitions after this place are not found.
    #[error("the chain of logical partitions breaks at sector {}", at.0)]
    Chain {
        /// Where the next link should be.
        at: Sector,
    },
}

/// Why a GPT cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GptError {
    /// There is none.
    #[error("no signature")]
    Signature,
    /// The header's length is outside what the standard allows.
    #[error("header of {found} bytes, expected 92 to {max}")]
    HeaderBytes {
        /// The value in the header.
        found: u32,
        /// One block.
        max: u32,
    },
    /// The header does not match its checksum.
    #[error("header checksum is {found:#010x}, computed {computed:#010x}")]
    HeaderChecksum {
        /// The value in the header.
        found: u32,
        /// The value computed from its bytes.
        computed: u32,
    },
    /// The header says that it belongs elsewhere.
    #[error("header says that it is block {found}, expected {expected}")]
    Place {
        /// The value in the header.
        found: u64,
        /// Where it is.
        expected: u64,
    },
    /// Too many entries, or of an impossible length.
    #[error("{count} entries of {bytes} bytes, expected at most {GPT_ENTRIES_MAX} of 128 to 4096")]
    Entries {
        /// How many.
        count: u32,
        /// How long each.
        bytes: u32,
    },
    /// The entries reach past the end of the disk.
    #[error("entries at block {at} are past the end of the disk")]
    EntriesOutside {
        /// Where they start.
        at: u64,
    },
    /// The entries do not match their checksum.
    #[error("checksum of the entries is {found:#010x}, computed {computed:#010x}")]
    EntriesChecksum {
        /// The value in the header.
        found: u32,
        /// The value computed from their bytes.
        computed: u32,
    },
}

/// Why no partition table was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError<E> {
    /// Neither kind of table is there.
    #[error("has no partition table")]
    None,
    /// There was a GPT, and both of its copies are unusable.
    #[error("the GPT is broken at the start ({first}) and at the end ({backup})")]
    Gpt {
        /// What is wrong with the one at the start.
        first: GptError,
        /// What is wrong with the one at the end.
        backup: GptError,
    },
    /// A read failed.
    #[error("cannot be read at byte {at}")]
    Read {
        /// The first byte of the read.
        at: u64,
        /// Why.
        source: E,
    },
}

/// Reads the partition table of a disk of `disk_bytes` bytes. `read` fills the slice, at most 4096 bytes, from a byte
/// of the disk on, always inside it.
pub fn read<E>(disk_bytes: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<Table, TableError<E>> {
    let mut read = |at: u64, into: &mut [u8]| read(at, into).map_err(|source| TableError::Read { at, source });
    let mut block = [0; SECTOR_BYTES];
    if disk_bytes < SECTOR_BYTES as u64 {
        return Err(TableError::None);
    }
    read(0, &mut block)?;
    let first = Record::parse(&block);
    // As Linux does: if an MBR has partitions of its own and no protective entry, a GPT on the disk is a leftover. If
    // the first sector is empty or not a table, a GPT may still be complete.
    match first {
        Some(record) if !record.covers_gpt() && record.entries.iter().any(Entry::is_used) => {
            return mbr(disk_bytes, &record, &mut read);
        }
        Some(_) | None => {}
    }
    let mut errors = None;
    for block_bytes in BLOCK_BYTES {
        let blocks = disk_bytes / block_bytes;
        if blocks < 3 {
            continue;
        }
        let first = match gpt(disk_bytes, block_bytes, 1, &mut read)? {
            Ok(partitions) => return Ok(Table { partitions, damage: None }),
            Err(error) => error,
        };
        let backup = match gpt(disk_bytes, block_bytes, blocks - 1, &mut read)? {
            Ok(partitions) => return Ok(Table { partitions, damage: Some(Damage::FirstGpt(first)) }),
            Err(error) => error,
        };
        let is_there = first != GptError::Signature || backup != GptError::Signature;
        errors = errors.or(is_there.then_some((first, backup)));
    }
    match (errors, first) {
        (Some((first, backup)), _) => Err(TableError::Gpt { first, backup }),
        (None, Some(record)) if record.covers_gpt() => {
            Err(TableError::Gpt { first: GptError::Signature, backup: GptError::Signature })
        }
        (None, Some(_) | None) => Err(TableError::None),
    }
}

type Read<'a, E> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<(), TableError<E>>;

/// Where a header says the entries are.
struct Header {
    entries_at: u64,
    count: u32,
    entry_bytes: u32,
    checksum: u32,
}

impl Header {
    /// `block` is the block of the disk with the number `own`.
    fn parse(block: &[u8], own: u64) -> Result<Header, GptError> {
        if block[..8] != *b"EFI PART" {
            return Err(GptError::Signature);
        }
        let (length, max) = (u32_at(block, 12), block.len() as u32);
        if !(92..=max).contains(&length) {
            return Err(GptError::HeaderBytes { found: length, max });
        }
        let found = u32_at(block, 16);
        // The checksum is computed with zeroes in its own field.
        let state = ETHERNET.raw(ETHERNET.raw(!0, &block[..16]), &[0; 4]);
        let computed = !ETHERNET.raw(state, &block[20..length as usize]);
        if found != computed {
            return Err(GptError::HeaderChecksum { found, computed });
        }
        let place = u64_at(block, 24);
        if place != own {
            return Err(GptError::Place { found: place, expected: own });
        }
        let (count, entry_bytes) = (u32_at(block, 80), u32_at(block, 84));
        if count > GPT_ENTRIES_MAX || !GPT_ENTRY_BYTES.contains(&entry_bytes) {
            return Err(GptError::Entries { count, bytes: entry_bytes });
        }
        Ok(Header { entries_at: u64_at(block, 72), count, entry_bytes, checksum: u32_at(block, 88) })
    }
}

/// One of the two copies of a GPT. The outer error is the disk's, the inner one the table's.
fn gpt<E>(
    disk_bytes: u64,
    block_bytes: u64,
    own: u64,
    read: Read<'_, E>,
) -> Result<Result<Vec<Partition>, GptError>, TableError<E>> {
    let mut buffer = [0; 4096];
    let block = &mut buffer[..block_bytes as usize];
    read(own * block_bytes, block)?;
    let header = match Header::parse(block, own) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let length = u64::from(header.count) * u64::from(header.entry_bytes);
    let start = header.entries_at.checked_mul(block_bytes);
    let Some(start) = start.filter(|start| start.checked_add(length).is_some_and(|end| end <= disk_bytes)) else {
        return Ok(Err(GptError::EntriesOutside { at: header.entries_at }));
    };
    let mut partitions = Vec::new();
    let mut state = !0;
    let entry = &mut buffer[..header.entry_bytes as usize];
    for index in 0..header.count {
        read(start + u64::from(index) * u64::from(header.entry_bytes), entry)?;
        state = ETHERNET.raw(state, entry);
        partitions.extend(gpt_partition(index + 1, entry, block_bytes));
    }
    let computed = !state;
    if computed != header.checksum {
        return Ok(Err(GptError::EntriesChecksum { found: header.checksum, computed }));
    }
    Ok(Ok(partitions))
}

/// `None` for an unused entry, and for impossible blocks.
fn gpt_partition(number: u32, entry: &[u8], block_bytes: u64) -> Option<Partition> {
    let kind: [u8; 16] = entry[..16].try_into().expect("an entry has 128 bytes at least");
    let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
    if kind == [0; 16] || last < first {
        return None;
    }
    let sectors = block_bytes / SECTOR_BYTES as u64;
    let start = first.checked_mul(sectors)?;
    let length = (last - first).checked_add(1)?.checked_mul(sectors)?;
    start.checked_add(length)?;
    let units = entry[56..128].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let name =
        char::decode_utf16(units.take_while(|unit| *unit != 0)).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    Some(Partition {
        number,
        start: Sector(start),
        length: Sectors(length),
        kind: Kind::Gpt(kind),
        name: name.collect(),
    })
}

/// An entry of a boot record, in sectors.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start: u32,
    length: u32,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.length != 0
    }

    fn is_extended(&self) -> bool {
        self.is_used() && KINDS_EXTENDED.contains(&self.kind)
    }

    fn partition(&self, number: u32, base: u64) -> Partition {
        let (start, length) = (Sector(base + u64::from(self.start)), Sectors(u64::from(self.length)));
        Partition { number, start, length, kind: Kind::Mbr(self.kind), name: String::new() }
    }
}

/// A master or extended boot record.
#[derive(Clone, Copy)]
struct Record {
    entries: [Entry; 4],
}

impl Record {
    /// `None` for anything else, such as the first sector of a FAT file system, which ends in the same two bytes.
    fn parse(sector: &[u8; SECTOR_BYTES]) -> Option<Record> {
        let rows = || sector[446..510].chunks_exact(16);
        if sector[510..] != [0x55, 0xaa] || rows().any(|row| row[0] & 0x7f != 0) {
            return None;
        }
        let mut entries = [Entry { kind: 0, start: 0, length: 0 }; 4];
        for (entry, row) in entries.iter_mut().zip(rows()) {
            *entry = Entry { kind: row[4], start: u32_at(row, 8), length: u32_at(row, 12) };
        }
        Some(Record { entries })
    }

    fn covers_gpt(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == KIND_GPT_COVER)
    }
}

fn mbr<E>(disk_bytes: u64, record: &Record, read: Read<'_, E>) -> Result<Table, TableError<E>> {
    let mut table = Table { partitions: Vec::new(), damage: None };
    for (number, entry) in (1..).zip(&record.entries) {
        // The extended partition itself only contains others.
        if entry.is_used() && !entry.is_extended() {
            table.partitions.push(entry.partition(number, 0));
        }
    }
    if let Some(extended) = record.entries.iter().find(|entry| entry.is_extended()) {
        logical(disk_bytes, u64::from(extended.start), &mut table, read)?;
    }
    Ok(table)
}

/// Follows the chain of extended boot records: each has one partition, counted from itself, and the place of the next
/// record, counted from the start of the extended partition.
fn logical<E>(disk_bytes: u64, base: u64, table: &mut Table, read: Read<'_, E>) -> Result<(), TableError<E>> {
    let mut own = base;
    let mut seen = Vec::new();
    loop {
        let byte = own * SECTOR_BYTES as u64;
        let mut sector = [0; SECTOR_BYTES];
        let is_inside = byte + SECTOR_BYTES as u64 <= disk_bytes;
        if is_inside && seen.len() < LOGICAL_MAX && !seen.contains(&own) {
            read(byte, &mut sector)?;
        }
        // A sector that could not be read is not a record either.
        let Some(record) = Record::parse(&sector) else {
            table.damage = Some(Damage::Chain { at: Sector(own) });
            return Ok(());
        };
        let number = 5 + seen.len() as u32;
        seen.push(own);
        if let Some(entry) = record.entries.iter().find(|entry| entry.is_used() && !entry.is_extended()) {
            table.partitions.push(entry.partition(number, own));
        }
        match record.entries.iter().find(|entry| entry.is_extended()) {
            Some(next) => own = base + u64::from(next.start),
            None => return Ok(()),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
