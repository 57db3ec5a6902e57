//! The journal of a raid4, 5 or 6: its meta blocks.
//! Owns: the codec of one meta block, its sums. Not here: the blocks of data that follow it, replaying (`engine`).
//! Invariant: what is parsed, encoded and parsed again is the same block.
//! Spec: docs/format/journal.md; docs/md/formats.md#journal.

use crate::crc32::CASTAGNOLI;
use uraid_block::{ArraySector, MemberSector, Sector, Sectors};

/// Bytes of a meta block; everything in a journal comes in blocks of this size.
pub const JOURNAL_BLOCK_BYTES: usize = 4096;

const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = 4;
const BLOCK_SECTORS: u32 = 8;

/// Blocks of data or parity that follow the meta block, and their addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged<Address> {
    /// md's flags: 1 discard, 2 reshaped, 4 reshaping. Kept.
    pub flags: u16,
    /// The first sector that they belong to.
    pub location: Address,
    /// The sum of each 4 KiB block, see [`block_checksum`].
    pub checksums: Vec<u32>,
}

/// One entry of a meta block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalEntry {
    /// Data, of one block each.
    Data(Logged<ArraySector>),
    /// Parity of a row: a block of P, and of Q on raid6.
    Parity(Logged<MemberSector>),
    /// Rows that are on the members now: earlier log entries for them are obsolete.
    Flushed {
        /// Kept.
        flags: u16,
        /// The first member sector of each.
        rows: Vec<MemberSector>,
    },
}

/// A meta block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalBlock {
    /// Counts meta blocks.
    pub sequence: u64,
    /// Its place, counted from the start of the log.
    pub position: Sector,
    /// Its entries, in order; the blocks follow it in the same order.
    pub entries: Vec<JournalEntry>,
}

/// Why 4096 bytes are not a meta block. Offsets are bytes in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no meta block here.
    #[error("no journal block: magic is {found:#010x}, expected 0x6433c509")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// An unknown format.
    #[error("journal block has version {found}, expected 1")]
    Version {
        /// The version in the block.
        found: u8,
    },
    /// Damaged, torn, or of another array.
    #[error("journal block's checksum is {found:#010x}, computed {computed:#010x} for this array")]
    Checksum {
        /// The sum in the block.
        found: u32,
        /// The sum of its bytes and the array's id.
        computed: u32,
    },
    /// The entries would end in the header, or after the block.
    #[error("journal block says that {found} bytes of it are used, expected {HEADER_BYTES} to {JOURNAL_BLOCK_BYTES}")]
    Size {
        /// The value in the block.
        found: u32,
    },
    /// An unknown kind of entry.
    #[error("journal entry at byte {at} has type {found}, expected 0, 1 or 2")]
    Kind {
        /// Where the entry starts.
        at: usize,
        /// Its type.
        found: u16,
    },
    /// An entry without items, or whose size is not a whole number of items.
    #[error("journal entry at byte {at} has size {found}, expected a multiple of 8")]
    EntrySize {
        /// Where the entry starts.
        at: usize,
        /// Its size.
        found: u32,
    },
    /// An entry that ends behind the used bytes.
    #[error("journal entry at byte {at} does not fit in the {end} bytes that are used")]
    Truncated {
        /// Where the entry starts.
        at: usize,
        /// The end of the used bytes.
        end: usize,
    },
}

/// The sum of one 4 KiB block of data or parity of an array.
pub fn block_checksum(set_uuid: &[u8; 16], block: &[u8]) -> u32 {
    CASTAGNOLI.raw(seed(set_uuid), block)
}

impl JournalBlock {
    /// The first block of a new journal: nothing is to be replayed. mdadm accepts any sequence.
    pub fn empty(sequence: u64) -> JournalBlock {
        JournalBlock { sequence, position: Sector(0), entries: Vec::new() }
    }

    /// Reads and checks a meta block of this array.
    pub fn parse(bytes: &[u8; JOURNAL_BLOCK_BYTES], set_uuid: &[u8; 16]) -> Result<JournalBlock, JournalError> {
        let mut header = Reader { bytes, at: 0, start: 0 };
        let (magic, found) = (header.u32()?, header.u32()?);
        if magic != MAGIC {
            return Err(JournalError::Magic { found: magic });
        }
        if bytes[8] != VERSION {
            return Err(JournalError::Version { found: bytes[8] });
        }
        let computed = checksum(bytes, set_uuid);
        if found != computed {
            return Err(JournalError::Checksum { found, computed });
        }
        header.at += 4;
        let (size, sequence, position) = (header.u32()?, header.u64()?, header.u64()?);
        let used = bytes.get(..size as usize).filter(|used| used.len() >= HEADER_BYTES);
        let used = used.ok_or(JournalError::Size { found: size })?;
        let mut reader = Reader { bytes: used, at: HEADER_BYTES, start: HEADER_BYTES };
        let mut entries = Vec::new();
        while reader.at < used.len() {
            entries.push(reader.entry()?);
        }
        Ok(JournalBlock { sequence, position: Sector(position), entries })
    }

    /// The bytes of the block. Panics if the entries do not fit; those of a parsed block do.
    pub fn encode(&self, set_uuid: &[u8; 16]) -> Box<[u8; JOURNAL_BLOCK_BYTES]> {
        let mut out = Vec::with_capacity(JOURNAL_BLOCK_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, VERSION, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.position.0.to_le_bytes());
        for entry in &self.entries {
            write_entry(&mut out, entry);
        }
        assert!(out.len() <= JOURNAL_BLOCK_BYTES, "{} bytes of entries do not fit in a block", out.len());
        let size = out.len() as u32;
        out[12..16].copy_from_slice(&size.to_le_bytes());
        let mut bytes = Box::new([0; JOURNAL_BLOCK_BYTES]);
        bytes[..out.len()].copy_from_slice(&out);
        let sum = checksum(&bytes, set_uuid);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The length of the block and of everything that follows it: the distance to the next meta block, wrapping at the
    /// log's end.
    pub fn log_length(&self) -> Sectors {
        let blocks: usize = self.entries.iter().map(JournalEntry::blocks).sum();
        Sectors((1 + blocks as u64) * u64::from(BLOCK_SECTORS))
    }
}

impl JournalEntry {
    /// Blocks of 4 KiB that follow the meta block for it.
    pub fn blocks(&self) -> usize {
        match self {
            JournalEntry::Data(logged) => logged.checksums.len(),
            JournalEntry::Parity(logged) => logged.checksums.len(),
            JournalEntry::Flushed { .. } => 0,
        }
    }
}

fn seed(set_uuid: &[u8; 16]) -> u32 {
    CASTAGNOLI.raw(!0, set_uuid)
}

/// CRC-32C seeded with the array's id and not inverted at the end; the block's own field counts as 0.
fn checksum(bytes: &[u8; JOURNAL_BLOCK_BYTES], set_uuid: &[u8; 16]) -> u32 {
    let before = CASTAGNOLI.raw(seed(set_uuid), &bytes[..CHECKSUM_AT]);
    CASTAGNOLI.raw(CASTAGNOLI.raw(before, &[0; 4]), &bytes[CHECKSUM_AT + 4..])
}

/// Reads one number after the other; `start` is where the entry of an error began.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    start: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], JournalError> {
        let Some(found) = self.bytes.get(self.at..self.at + N) else {
            return Err(JournalError::Truncated { at: self.start, end: self.bytes.len() });
        };
        self.at += N;
        Ok(found.try_into().expect("a slice of this length"))
    }

    fn u16(&mut self) -> Result<u16, JournalError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, JournalError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, JournalError> {
        self.take().map(u64::from_le_bytes)
    }

    fn entry(&mut self) -> Result<JournalEntry, JournalError> {
        self.start = self.at;
        let (kind, flags, size) = (self.u16()?, self.u16()?, self.u32()?);
        if kind > 2 {
            return Err(JournalError::Kind { at: self.start, found: kind });
        }
        if size == 0 || !size.is_multiple_of(BLOCK_SECTORS) {
            return Err(JournalError::EntrySize { at: self.start, found: size });
        }
        // Data sizes are in units of 8 sectors, flushed rows in 8-byte numbers: both give the same count. Nothing is
        // allocated in advance, so a wrong count is stopped by the end of the bytes.
        let count = size / BLOCK_SECTORS;
        if kind == 2 {
            let rows = (0..count).map(|_| self.u64().map(MemberSector)).collect::<Result<_, _>>()?;
            return Ok(JournalEntry::Flushed { flags, rows });
        }
        let location = self.u64()?;
        let checksums = (0..count).map(|_| self.u32()).collect::<Result<_, _>>()?;
        Ok(if kind == 0 {
            JournalEntry::Data(Logged { flags, location: ArraySector(location), checksums })
        } else {
            JournalEntry::Parity(Logged { flags, location: MemberSector(location), checksums })
        })
    }
}

fn write_entry(out: &mut Vec<u8>, entry: &JournalEntry) {
    let (kind, flags, count) = match entry {
        JournalEntry::Data(logged) => (0u16, logged.flags, logged.checksums.len()),
        JournalEntry::Parity(logged) => (1, logged.flags, logged.checksums.len()),
        JournalEntry::Flushed { flags, rows } => (2, *flags, rows.len()),
    };
    assert!((1..=JOURNAL_BLOCK_BYTES / 4).contains(&count), "an entry of {count} things");
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&(count as u32 * BLOCK_SECTORS).to_le_bytes());
    let (location, checksums) = match entry {
        JournalEntry::Data(logged) => (logged.location.0, &logged.checksums),
        JournalEntry::Parity(logged) => (logged.location.0, &logged.checksums),
        JournalEntry::Flushed { rows, .. } => {
            rows.iter().for_each(|row| out.extend_from_slice(&row.0.to_le_bytes()));
            return;
        }
    };
    out.extend_from_slice(&location.to_le_bytes());
    checksums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
}
