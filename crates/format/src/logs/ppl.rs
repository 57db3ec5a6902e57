//! The partial parity log of a raid5: header and entries.
//! Owns: the codec of one header, its sums, where uraid puts headers. Not here: a member's whole log (`log`), when to log,
//! how to recover (`engine`), the place on a member (`Superblock::ppl_extent`).
//! Invariant: what is parsed, encoded and parsed again is the same header.
//! Spec: docs/format/ppl.md; docs/md/formats.md#partial-parity-log.

mod log;

pub use log::{LoggedStretch, PplLog, PplState};

use crate::crc32::CASTAGNOLI;
use std::mem::offset_of;
use uraid_block::{ArraySector, SECTOR_BYTES, Sectors};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const PPL_HEADER_BYTES: usize = 4096;

/// Sectors of a header.
pub const PPL_HEADER_SECTORS: Sectors = Sectors((PPL_HEADER_BYTES / SECTOR_BYTES) as u64);

/// Entries that fit in a header.
pub const PPL_ENTRIES_MAX: usize = 148;

/// The most partial parity after one header: md's limit.
pub const PPL_PARITY_MAX: Sectors = Sectors((128 << 10) / SECTOR_BYTES as u64);

/// The generation of a first header that says [`PplState::Complete`]. md's empty headers have 0, and its headers of this
/// generation have entries.
const COMPLETE: u64 = 1;

/// A stretch of rows that were written together, all with the same parity member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PplEntry {
    /// The first sector of the data that was to be written.
    pub data_sector: ArraySector,
    /// Bytes of partial parity after the header; 0 if whole rows were written.
    pub parity_bytes: u32,
    /// Bytes of data that were to be written.
    pub data_bytes: u32,
    /// The slot of the parity.
    pub parity_slot: u32,
    /// The sum of the partial parity.
    pub checksum: u32,
}

impl PplEntry {
    /// Whether these bytes are the entry's partial parity.
    pub fn matches(&self, parity: &[u8]) -> bool {
        parity.len() as u64 == u64::from(self.parity_bytes) && parity_checksum(parity) == self.checksum
    }
}

/// One header; the partial parity of its entries follows, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PplHeader {
    /// The array's signature, see [`signature`].
    pub signature: u32,
    /// Counts headers: the highest good one is the last.
    pub generation: u64,
    /// At most [`PPL_ENTRIES_MAX`].
    pub entries: Vec<PplEntry>,
}

/// Why 4096 bytes are not a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PplError {
    /// Not this array's.
    #[error("partial parity log has signature {found:#010x}, expected {expected:#010x} for this array")]
    Signature {
        /// The value in the header.
        found: u32,
        /// The value computed from the array's id.
        expected: u32,
    },
    /// Bytes are damaged, or a write was torn.
    #[error("partial parity log's checksum is {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// The sum in the header.
        found: u32,
        /// The sum of its bytes.
        computed: u32,
    },
    /// More entries than fit.
    #[error("partial parity log counts {found} entries, at most {maximum} fit")]
    TooManyEntries {
        /// The value in the header.
        found: u32,
        /// The largest that fits.
        maximum: usize,
    },
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    data_sector: U64,
    pp_size: U32,
    data_size: U32,
    parity_disk: U32,
    checksum: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    reserved: [u8; 512],
    signature: U32,
    padding: U32,
    generation: U64,
    entries_count: U32,
    checksum: U32,
    entries: [RawEntry; PPL_ENTRIES_MAX],
    rest: [u8; 8],
}

const CHECKSUM_AT: usize = offset_of!(RawHeader, checksum);
const _: () = assert!(size_of::<RawHeader>() == PPL_HEADER_BYTES);
const _: () = assert!(size_of::<RawEntry>() == 24);
const _: () = assert!(CHECKSUM_AT == 532);
const _: () = assert!(offset_of!(RawHeader, entries) == 536);

/// The signature of an array in its headers: the CRC-32C of its id.
pub fn signature(set_uuid: &[u8; 16]) -> u32 {
    CASTAGNOLI.standard(set_uuid)
}

/// The sum of an entry's partial parity: its CRC-32C, 0 for none.
pub fn parity_checksum(parity: &[u8]) -> u32 {
    CASTAGNOLI.standard(parity)
}

impl PplHeader {
    /// A header without entries: nothing is to be recovered.
    pub fn empty(set_uuid: &[u8; 16]) -> PplHeader {
        PplHeader { signature: signature(set_uuid), generation: 0, entries: Vec::new() }
    }

    /// The first header of a log that is complete: see [`PplState::Complete`]. The log's own header follows it.
    pub fn complete(set_uuid: &[u8; 16]) -> PplHeader {
        PplHeader { generation: COMPLETE, ..PplHeader::empty(set_uuid) }
    }

    /// The generation of the first header that follows one of [`PplHeader::complete`].
    pub fn first_generation() -> u64 {
        COMPLETE + 1
    }

    fn is_complete(&self) -> bool {
        self.entries.is_empty() && self.generation == COMPLETE
    }

    /// Reads and checks a header of this array. The caller, which has the layout, must check the entries against it.
    pub fn parse(bytes: &[u8; PPL_HEADER_BYTES], set_uuid: &[u8; 16]) -> Result<PplHeader, PplError> {
        let raw = RawHeader::read_from_bytes(bytes).expect("the struct has the size of the header");
        let expected = signature(set_uuid);
        if raw.signature.get() != expected {
            return Err(PplError::Signature { found: raw.signature.get(), expected });
        }
        let computed = checksum(bytes);
        if raw.checksum.get() != computed {
            return Err(PplError::Checksum { found: raw.checksum.get(), computed });
        }
        let count = raw.entries_count.get();
        let Some(entries) = raw.entries.get(..count as usize) else {
            return Err(PplError::TooManyEntries { found: count, maximum: PPL_ENTRIES_MAX });
        };
        let entries = entries.iter().map(|entry| PplEntry {
            data_sector: ArraySector(entry.data_sector.get()),
            parity_bytes: entry.pp_size.get(),
            data_bytes: entry.data_size.get(),
            parity_slot: entry.parity_disk.get(),
            checksum: entry.checksum.get(),
        });
        Ok(PplHeader { signature: expected, generation: raw.generation.get(), entries: entries.collect() })
    }

    /// The bytes of the header. Panics with more entries than fit.
    pub fn encode(&self) -> Box<[u8; PPL_HEADER_BYTES]> {
        assert!(self.entries.len() <= PPL_ENTRIES_MAX);
        let mut raw = RawHeader::new_zeroed();
        raw.reserved.fill(0xff);
        raw.signature = self.signature.into();
        raw.generation = self.generation.into();
        raw.entries_count = (self.entries.len() as u32).into();
        for (out, entry) in raw.entries.iter_mut().zip(&self.entries) {
            *out = RawEntry {
                data_sector: entry.data_sector.0.into(),
                pp_size: entry.parity_bytes.into(),
                data_size: entry.data_bytes.into(),
                parity_disk: entry.parity_slot.into(),
                checksum: entry.checksum.into(),
            };
        }
        let mut bytes = Box::new([0; PPL_HEADER_BYTES]);
        bytes.copy_from_slice(raw.as_bytes());
        let sum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Bytes of the header and all the partial parity after it: the distance to the next header of a ring.
    pub fn log_bytes(&self) -> u64 {
        let parity: u64 = self.entries.iter().map(|entry| u64::from(entry.parity_bytes)).sum();
        PPL_HEADER_BYTES as u64 + parity
    }
}

/// The CRC-32C of the header, its own field counted as 0.
fn checksum(bytes: &[u8; PPL_HEADER_BYTES]) -> u32 {
    let before = CASTAGNOLI.raw(!0, &bytes[..CHECKSUM_AT]);
    !CASTAGNOLI.raw(CASTAGNOLI.raw(before, &[0; 4]), &bytes[CHECKSUM_AT + 4..])
}
