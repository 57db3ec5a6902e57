//! The write-intent bitmap: its header, and which bit stands for which sectors.
//! Owns: header codec, chunk <-> bit arithmetic, counting. Not here: when a bit is set or cleared, whether a bitmap is
//! current (`engine`), its place on a member (`Superblock::bitmap_start`, `create::bitmap_placement`), all of its bits
//! (`image`).
//! Invariant: what is parsed, encoded and parsed again is the same header.
//! Spec: docs/format/bitmap.md; docs/md/formats.md#bitmap.

mod image;

pub use image::{BITMAP_CHUNKS_MAX, BITMAP_PAGE, BitmapImage, BitmapUnusable};

use std::mem::offset_of;
use uraid_block::{Extent, MemberSector, SECTOR_BYTES, Sectors};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header; the bits follow, except in [`BitmapVersion::Lockless`].
pub const BITMAP_HEADER_BYTES: usize = 256;

/// Where the bytes of a lockless bitmap start, counted from the header.
const LOCKLESS_START: u64 = 1024;
/// The unit in which md writes a bitmap.
const PAGE_BYTES: u64 = 4096;
const MAGIC: u32 = 0x6d74_6962;
const CHUNK_BYTES_MIN: u32 = 512;
/// The most writes that may be behind.
pub const WRITE_BEHIND_MAX: u32 = 16_383;
/// The largest number of seconds that md accepts between two rounds.
const DAEMON_SLEEP_MAX: u32 = i32::MAX as u32;
/// No length on disk reaches this: 2^63 bytes.
const SECTORS_END: u64 = 1 << 54;

/// The format of the bytes after the header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BitmapVersion {
    /// 3: bits in the byte order of the host that wrote them; on a little-endian host the same as 4.
    HostEndian,
    /// 4: a bit for each chunk.
    LittleEndian,
    /// 5: the same, one bitmap for each node of a cluster, one after the other.
    Clustered,
    /// 6: a byte for each chunk.
    Lockless,
}

impl BitmapVersion {
    /// All, in the order of their numbers.
    pub const ALL: [BitmapVersion; 4] =
        [BitmapVersion::HostEndian, BitmapVersion::LittleEndian, BitmapVersion::Clustered, BitmapVersion::Lockless];

    /// The number in the header.
    pub const fn number(self) -> u32 {
        match self {
            BitmapVersion::HostEndian => 3,
            BitmapVersion::LittleEndian => 4,
            BitmapVersion::Clustered => 5,
            BitmapVersion::Lockless => 6,
        }
    }
}

/// The state of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkState {
    /// Never written; lockless only.
    Unwritten,
    /// In sync: a bit that is 0.
    Clean,
    /// A write may be in flight: a bit that is 1.
    Dirty,
    /// To be resynced; lockless only.
    NeedsSync,
    /// Being resynced; lockless only.
    Syncing,
}

impl ChunkState {
    /// All, in the order of their numbers in a lockless bitmap.
    pub const ALL: [ChunkState; 5] =
        [ChunkState::Unwritten, ChunkState::Clean, ChunkState::Dirty, ChunkState::NeedsSync, ChunkState::Syncing];
}

/// The header, on every member with a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitmapHeader {
    /// The format of the bytes after it.
    pub version: BitmapVersion,
    /// The raw id of the array. Beside a 0.90 superblock, each group of four bytes is in the reverse order of that
    /// superblock's `set_uuid`.
    pub set_uuid: [u8; 16],
    /// The event count when it was written.
    pub events: u64,
    /// The event count when bits were last cleared. A member with a lower count lacks writes whose bits are cleared.
    pub events_cleared: u64,
    /// The size that the bits cover: that of each member, or for raid10 that of the array.
    pub sync_size: Sectors,
    /// Bits: see the constants. Others are kept.
    pub state: u32,
    /// The bytes that one bit covers: a power of two, at least 512.
    pub chunk_bytes: u32,
    /// Seconds between two rounds that clear bits, at least 1.
    pub daemon_sleep_seconds: u32,
    /// Writes that may be answered before a write-mostly member has them; at most 16383.
    pub write_behind: u32,
    /// The size of the bitmap's area; 0 if it is not recorded.
    pub sectors_reserved: Sectors,
    /// Nodes of a cluster.
    pub nodes: u32,
    /// The cluster, NUL padded.
    pub cluster_name: [u8; 64],
}

/// Why bytes are not a bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BitmapError {
    /// There is no bitmap here.
    #[error("no md bitmap: magic is {found:#010x}, expected 0x6d746962")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// An unknown format.
    #[error("bitmap has version {found}, expected 3, 4, 5 or 6")]
    Version {
        /// The version in the header.
        found: u32,
    },
    /// An impossible chunk.
    #[error("bitmap has a chunk of {found} bytes, expected a power of two, at least 512")]
    Chunk {
        /// The value in the header.
        found: u32,
    },
    /// An interval that md does not allow.
    #[error("bitmap is to be cleared every {found} seconds, expected 1 to {maximum}")]
    DaemonSleep {
        /// The value in the header.
        found: u32,
        /// The longest.
        maximum: u32,
    },
    /// More write-behind writes than md counts.
    #[error("bitmap allows {found} writes behind, expected at most {maximum}")]
    WriteBehind {
        /// The value in the header.
        found: u32,
        /// The most.
        maximum: u32,
    },
    /// More than can be addressed.
    #[error("bitmap covers {found} sectors, expected below 2^54")]
    SyncSize {
        /// The value in the header.
        found: u64,
    },
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U32,
    uuid: [u8; 16],
    events: U64,
    events_cleared: U64,
    sync_size: U64,
    state: U32,
    chunk_size: U32,
    daemon_sleep: U32,
    write_behind: U32,
    sectors_reserved: U32,
    nodes: U32,
    cluster_name: [u8; 64],
    pad: [u8; 120],
}

const _: () = assert!(size_of::<RawHeader>() == BITMAP_HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, sync_size) == 40);
const _: () = assert!(offset_of!(RawHeader, sectors_reserved) == 64);
const _: () = assert!(offset_of!(RawHeader, pad) == 136);

impl BitmapHeader {
    /// Bit of `state`: all bits must be taken as set.
    pub const STALE: u32 = 1 << 1;
    /// Bit of `state`: the bitmap could not be written.
    pub const WRITE_ERROR: u32 = 1 << 2;
    /// Bit of `state`: the bits are in the order of the host.
    pub const HOST_ENDIAN: u32 = 1 << 15;

    /// Reads and checks the header. The bytes after the fields are not checked, as in md.
    pub fn parse(bytes: &[u8; BITMAP_HEADER_BYTES]) -> Result<BitmapHeader, BitmapError> {
        let raw = RawHeader::read_from_bytes(bytes).expect("the struct has the size of the header");
        if raw.magic.get() != MAGIC {
            return Err(BitmapError::Magic { found: raw.magic.get() });
        }
        let found = raw.version.get();
        let version = BitmapVersion::ALL.into_iter().find(|version| version.number() == found);
        let version = version.ok_or(BitmapError::Version { found })?;
        let chunk_bytes = raw.chunk_size.get();
        if !chunk_bytes.is_power_of_two() || chunk_bytes < CHUNK_BYTES_MIN {
            return Err(BitmapError::Chunk { found: chunk_bytes });
        }
        if !(1..=DAEMON_SLEEP_MAX).contains(&raw.daemon_sleep.get()) {
            return Err(BitmapError::DaemonSleep { found: raw.daemon_sleep.get(), maximum: DAEMON_SLEEP_MAX });
        }
        if raw.write_behind.get() > WRITE_BEHIND_MAX {
            return Err(BitmapError::WriteBehind { found: raw.write_behind.get(), maximum: WRITE_BEHIND_MAX });
        }
        if raw.sync_size.get() >= SECTORS_END {
            return Err(BitmapError::SyncSize { found: raw.sync_size.get() });
        }
        Ok(BitmapHeader {
            version,
            set_uuid: raw.uuid,
            events: raw.events.get(),
            events_cleared: raw.events_cleared.get(),
            sync_size: Sectors(raw.sync_size.get()),
            state: raw.state.get(),
            chunk_bytes,
            daemon_sleep_seconds: raw.daemon_sleep.get(),
            write_behind: raw.write_behind.get(),
            sectors_reserved: Sectors(raw.sectors_reserved.get().into()),
            nodes: raw.nodes.get(),
            cluster_name: raw.cluster_name,
        })
    }

    /// The bytes of the header. Panics if `sectors_reserved` is 2^32 or more, which no parsed header has.
    pub fn encode(&self) -> [u8; BITMAP_HEADER_BYTES] {
        let raw = RawHeader {
            magic: MAGIC.into(),
            version: self.version.number().into(),
            uuid: self.set_uuid,
            events: self.events.into(),
            events_cleared: self.events_cleared.into(),
            sync_size: self.sync_size.0.into(),
            state: self.state.into(),
            chunk_size: self.chunk_bytes.into(),
            daemon_sleep: self.daemon_sleep_seconds.into(),
            write_behind: self.write_behind.into(),
            sectors_reserved: u32::try_from(self.sectors_reserved.0).expect("the room fits its field").into(),
            nodes: self.nodes.into(),
            cluster_name: self.cluster_name,
            pad: [0; 120],
        };
        let mut bytes = [0; BITMAP_HEADER_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The chunk.
    pub fn chunk(&self) -> Sectors {
        Sectors(u64::from(self.chunk_bytes) / SECTOR_BYTES as u64)
    }

    /// Chunks of the covered range; the last one may be shorter. Below 2^54.
    pub fn chunks(&self) -> u64 {
        self.sync_size.0.div_ceil(self.chunk().0)
    }

    /// The chunk that holds a sector of the covered range; `None` after its end.
    pub fn chunk_of(&self, sector: MemberSector) -> Option<u64> {
        (sector.0 < self.sync_size.0).then(|| sector.0 / self.chunk().0)
    }

    /// The sectors of a chunk. For raid10 they are the array's. Panics if there is no such chunk.
    pub fn sectors_of(&self, chunk: u64) -> Extent<MemberSector> {
        assert!(chunk < self.chunks(), "chunk {chunk} of {}", self.chunks());
        let start = chunk * self.chunk().0;
        Extent::new(MemberSector(start), Sectors(self.chunk().0.min(self.sync_size.0 - start)))
    }

    /// The place of a chunk's state: a byte, counted from the header, and the bits of it.
    ///
    /// Chunk 13 with a bit for each: byte 256 + 1, mask 0b0010_0000. Lockless: byte 1024 + 13, all bits.
    pub fn position_of(&self, chunk: u64) -> (u64, u8) {
        match self.version {
            BitmapVersion::HostEndian | BitmapVersion::LittleEndian | BitmapVersion::Clustered => {
                (BITMAP_HEADER_BYTES as u64 + chunk / 8, 1 << (chunk % 8))
            }
            BitmapVersion::Lockless => (LOCKLESS_START + chunk, 0xff),
        }
    }

    /// Bytes from the header to the end of the last chunk's state: the part of one bitmap that must be read.
    pub fn used_bytes(&self) -> u64 {
        match self.version {
            BitmapVersion::HostEndian | BitmapVersion::LittleEndian | BitmapVersion::Clustered => {
                BITMAP_HEADER_BYTES as u64 + self.chunks().div_ceil(8)
            }
            BitmapVersion::Lockless => LOCKLESS_START + self.chunks(),
        }
    }

    /// The area of one bitmap in whole pages of 4 KiB, in bytes; the areas of a cluster's nodes follow each other.
    pub fn area_bytes(&self) -> u64 {
        self.used_bytes().next_multiple_of(PAGE_BYTES)
    }
}

/// Counts how many chunks are in each state, as `mdadm --examine-bitmap` does. The caller adds the bytes piece by
/// piece, so that no bitmap has to fit into memory, whatever its header says.
#[derive(Clone, Debug)]
pub struct BitmapStatistics {
    version: BitmapVersion,
    left: u64,
    counts: [u64; ChunkState::ALL.len()],
    unknown: u64,
}

impl BitmapStatistics {
    /// Nothing counted yet.
    pub fn new(header: &BitmapHeader) -> BitmapStatistics {
        BitmapStatistics { version: header.version, left: header.chunks(), counts: [0; 5], unknown: 0 }
    }

    /// Counts the next bytes. The first call must start at the byte that [`BitmapHeader::position_of`] gives for chunk
    /// 0. Bytes after the last chunk are ignored.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.left == 0 {
                return;
            }
            match self.version {
                BitmapVersion::HostEndian | BitmapVersion::LittleEndian | BitmapVersion::Clustered => {
                    let bits = self.left.min(8);
                    let counting = u8::MAX >> (8 - bits);
                    let ones = u64::from((byte & counting).count_ones());
                    self.counts[ChunkState::Dirty as usize] += ones;
                    self.counts[ChunkState::Clean as usize] += bits - ones;
                    self.left -= bits;
                }
                BitmapVersion::Lockless => {
                    let count = self.counts.get_mut(usize::from(*byte)).unwrap_or(&mut self.unknown);
                    *count += 1;
                    self.left -= 1;
                }
            }
        }
    }

    /// Chunks counted in this state.
    pub fn count(&self, state: ChunkState) -> u64 {
        self.counts[state as usize]
    }

    /// Chunks of a lockless bitmap in an unknown state.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Chunks whose bytes have not been added yet.
    pub fn uncounted(&self) -> u64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: BitmapVersion, sync_size: u64, chunk_bytes: u32) -> BitmapHeader {
        BitmapHeader {
            version,
            set_uuid: [7; 16],
            events: 1,
            events_cleared: 1,
            sync_size: Sectors(sync_size),
            state: 0,
            chunk_bytes,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: Sectors(8),
            nodes: 0,
            cluster_name: [0; 64],
        }
    }

    #[test]
    fn every_sector_has_its_chunk_and_every_chunk_its_bit() {
        let header = header(BitmapVersion::LittleEndian, 1001, 4096);
        assert_eq!((header.chunks(), header.used_bytes(), header.area_bytes()), (126, 272, 4096));
        for chunk in 0..126 {
            let sectors = header.sectors_of(chunk);
            assert_eq!(header.chunk_of(sectors.start), Some(chunk));
            assert_eq!(header.chunk_of(MemberSector(sectors.start.0 + sectors.length.0 - 1)), Some(chunk));
        }
        assert_eq!((header.sectors_of(125).length, header.chunk_of(MemberSector(1001))), (Sectors(1), None));
        assert_eq!(header.position_of(13), (257, 0b0010_0000));
        assert_eq!(self::header(BitmapVersion::Lockless, 1001, 4096).position_of(13), (1037, 0xff));
    }

    #[test]
    fn only_chunks_that_exist_are_counted() {
        let header = header(BitmapVersion::Clustered, 13 * 8, 4096);
        let mut statistics = BitmapStatistics::new(&header);
        statistics.add(&[0b0000_0101]);
        assert_eq!(statistics.uncounted(), 5);
        statistics.add(&[0xff, 0xff]);
        let counts = (statistics.count(ChunkState::Dirty), statistics.count(ChunkState::Clean));
        assert_eq!((counts, statistics.uncounted()), ((7, 6), 0));
        let mut lockless = BitmapStatistics::new(&self::header(BitmapVersion::Lockless, 8 * 8, 4096));
        lockless.add(&[0, 1, 2, 3, 4, 5, 255, 1, 0]);
        assert_eq!(ChunkState::ALL.map(|state| lockless.count(state)), [1, 2, 1, 1, 1]);
        assert_eq!((lockless.unknown(), lockless.uncounted()), (2, 0));
    }

    #[test]
    fn impossible_headers_are_refused() {
        let good = header(BitmapVersion::Lockless, SECTORS_END - 1, 512);
        assert_eq!(BitmapHeader::parse(&good.encode()), Ok(good.clone()));
        assert_eq!(good.used_bytes(), 1024 + SECTORS_END - 1);
        let refused = |wrong: BitmapHeader| BitmapHeader::parse(&wrong.encode()).unwrap_err();
        assert_eq!(refused(header(BitmapVersion::Clustered, 8, 1000)), BitmapError::Chunk { found: 1000 });
        assert_eq!(refused(header(BitmapVersion::Clustered, 8, 256)), BitmapError::Chunk { found: 256 });
        let long = BitmapHeader { sync_size: Sectors(SECTORS_END), ..good.clone() };
        assert_eq!(refused(long), BitmapError::SyncSize { found: SECTORS_END });
        let restless = BitmapHeader { daemon_sleep_seconds: 0, ..good.clone() };
        assert!(matches!(refused(restless), BitmapError::DaemonSleep { found: 0, .. }));
        let behind = BitmapHeader { write_behind: 16_384, ..good.clone() };
        assert_eq!(refused(behind), BitmapError::WriteBehind { found: 16_384, maximum: 16_383 });
        let mut bytes = good.encode();
        bytes[4] = 7;
        assert_eq!(BitmapHeader::parse(&bytes), Err(BitmapError::Version { found: 7 }));
        assert_eq!(BitmapHeader::parse(&[0; 256]), Err(BitmapError::Magic { found: 0 }));
    }
}
