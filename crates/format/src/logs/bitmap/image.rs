//! A whole bitmap in memory: its header and a bit for each chunk, as its area on a member holds them.
//! Owns: [`BitmapImage`], reading one within bounds, its pages. Not here: when a bit is set or cleared, and whether a
//! bitmap is believed (`engine`).
//! Invariant: the first 256 bytes are the header. What is allocated is bounded, whatever a header says.
//! Spec: docs/format/bitmap.md; docs/md/formats.md#bitmap.
//!
//! ```text
//!   page 0 [ header 256 bytes | bits of chunks 0..30720 ]   page 1 [ bits of chunks 30720..63488 ]   ...
//! ```

use super::{BITMAP_HEADER_BYTES, BitmapError, BitmapHeader, BitmapVersion, PAGE_BYTES};
use crate::{Superblock, uuid};
use std::ops::Range;
use uraid_block::{SECTOR_BYTES, Sectors};

/// The most chunks of a bitmap that is kept in memory: 512 KiB of bits. mdadm's bitmaps have at most 2^20.
pub const BITMAP_CHUNKS_MAX: u64 = 1 << 22;

/// Sectors of a page, the unit in which a bitmap is written.
pub const BITMAP_PAGE: Sectors = Sectors(PAGE_BYTES / SECTOR_BYTES as u64);

/// Why a bitmap cannot be kept up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BitmapUnusable {
    /// Its header cannot be read.
    #[error("its bitmap cannot be read")]
    Unreadable,
    /// The superblock's word leads outside of the device, or into the data.
    #[error("its bitmap has no room beside its superblock")]
    NoRoom,
    /// There is none.
    #[error(transparent)]
    Header(#[from] BitmapError),
    /// That of another array.
    #[error("its bitmap belongs to array {}, expected {}", uuid::text(found), uuid::text(expected))]
    Foreign {
        /// By the bitmap.
        found: [u8; 16],
        /// The array that is being assembled.
        expected: [u8; 16],
    },
    /// One for each node of a cluster.
    #[error("its bitmap is clustered (version 5), expected version 4")]
    Clustered,
    /// Bytes in place of bits.
    #[error("its bitmap is lockless (version 6), expected version 4")]
    Lockless,
    /// More bits than there is room for.
    #[error("its bitmap takes {}, expected at most {}", found.size(), maximum.size())]
    TooLarge {
        /// What the header asks for.
        found: Sectors,
        /// The room for it.
        maximum: Sectors,
    },
    /// More bits than are kept in memory.
    #[error("its bitmap has {found} chunks, expected at most {BITMAP_CHUNKS_MAX}")]
    TooManyChunks {
        /// By its header.
        found: u64,
    },
}

/// A bitmap of version 3 or 4.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitmapImage {
    header: BitmapHeader,
    /// Whole pages.
    bytes: Vec<u8>,
}

/// The bits of a header can be kept in memory, and in a room of this size on a member.
fn check(header: &BitmapHeader, room: Sectors) -> Result<(), BitmapUnusable> {
    match header.version {
        BitmapVersion::HostEndian | BitmapVersion::LittleEndian => {}
        BitmapVersion::Clustered => return Err(BitmapUnusable::Clustered),
        BitmapVersion::Lockless => return Err(BitmapUnusable::Lockless),
    }
    if header.chunks() > BITMAP_CHUNKS_MAX {
        return Err(BitmapUnusable::TooManyChunks { found: header.chunks() });
    }
    let found = header.used_sectors();
    if found > room { Err(BitmapUnusable::TooLarge { found, maximum: room }) } else { Ok(()) }
}

impl BitmapImage {
    /// A bitmap with this header, and all bits set, if it can be kept in memory and fits this room on a member.
    pub fn filled(header: BitmapHeader, room: Sectors) -> Result<BitmapImage, BitmapUnusable> {
        check(&header, room)?;
        let bytes = vec![0xff; usize::try_from(header.area_bytes()).expect("the number of chunks was checked")];
        let mut image = BitmapImage { header, bytes };
        image.bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&image.header.encode());
        Ok(image)
    }

    /// The same bitmap with no bit set.
    pub fn cleared(mut self) -> BitmapImage {
        self.bytes[BITMAP_HEADER_BYTES..].fill(0);
        self
    }

    /// Reads the bitmap beside a superblock. `read` fills a buffer from a byte of the device on, and says whether it
    /// could.
    pub fn read_beside(
        superblock: &Superblock,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<BitmapImage, BitmapUnusable> {
        let place = superblock.bitmap_start().and_then(|_| superblock.bitmap_room(superblock.bitmap_offset));
        let place = place.ok_or(BitmapUnusable::NoRoom)?;
        let start = place.start.0 * SECTOR_BYTES as u64;
        BitmapImage::read(place.length, |at, into| read(start + at, into))
    }

    /// Reads a bitmap that has `room` on its member. `read` fills a buffer from a byte of the bitmap on, and says
    /// whether it could; it is asked for whole sectors. Bits that cannot be read count as set.
    pub fn read(room: Sectors, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Result<BitmapImage, BitmapUnusable> {
        let mut first = [0; SECTOR_BYTES];
        if room.is_zero() {
            return Err(BitmapUnusable::NoRoom);
        }
        if !read(0, &mut first) {
            return Err(BitmapUnusable::Unreadable);
        }
        let header = BitmapHeader::parse(first.first_chunk().expect("a sector holds the header"))?;
        let used = header.used_sectors().len_bytes();
        let mut image = BitmapImage::filled(header, room)?;
        for (at, page) in (0..).step_by(PAGE_BYTES as usize).zip(image.bytes[..used].chunks_mut(PAGE_BYTES as usize)) {
            if !read(at, page) {
                page.fill(0xff);
            }
        }
        image.bytes[..SECTOR_BYTES].copy_from_slice(&first);
        image.bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&image.header.encode());
        Ok(image)
    }

    /// Its header.
    pub fn header(&self) -> &BitmapHeader {
        &self.header
    }

    /// Changes the header's counts and state, not what the bits stand for.
    pub fn change_header(&mut self, change: impl FnOnce(&mut BitmapHeader)) {
        let before = (self.header.version, self.header.chunk_bytes, self.header.sync_size);
        change(&mut self.header);
        assert_eq!(before, (self.header.version, self.header.chunk_bytes, self.header.sync_size));
        self.bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&self.header.encode());
    }

    /// Whether two bitmaps' bits stand for the same sectors.
    pub fn is_alike(&self, other: &BitmapImage) -> bool {
        self.header.chunk_bytes == other.header.chunk_bytes && self.header.sync_size == other.header.sync_size
    }

    /// Whether exactly the same bits are set as in a bitmap alike.
    pub fn has_bits_of(&self, other: &BitmapImage) -> bool {
        assert!(self.is_alike(other), "the bits stand for the same sectors");
        // Behind the last chunk anything may be.
        let whole = BITMAP_HEADER_BYTES + (self.header.chunks() / 8) as usize;
        let are_equal = self.bytes[BITMAP_HEADER_BYTES..whole] == other.bytes[BITMAP_HEADER_BYTES..whole];
        let last = self.header.chunks() / 8 * 8..self.header.chunks();
        are_equal && last.into_iter().all(|chunk| self.is_set(chunk) == other.is_set(chunk))
    }

    /// The number of pages.
    pub fn pages(&self) -> usize {
        self.bytes.len() / PAGE_BYTES as usize
    }

    /// What is written of a page: up to the end of the bits, in whole `blocks`.
    pub fn page(&self, page: usize, block: Sectors) -> &[u8] {
        let start = page * PAGE_BYTES as usize;
        let used = self.header.used_sectors().len_bytes().next_multiple_of(block.len_bytes());
        &self.bytes[start..used.min(start + PAGE_BYTES as usize).min(self.bytes.len())]
    }

    /// All of a page.
    pub fn page_bytes(&self, page: usize) -> &[u8] {
        let start = page * PAGE_BYTES as usize;
        &self.bytes[start..start + PAGE_BYTES as usize]
    }

    /// Replaces a page by that of a bitmap alike.
    pub fn set_page(&mut self, page: usize, bytes: &[u8]) {
        let start = page * PAGE_BYTES as usize;
        self.bytes[start..start + PAGE_BYTES as usize].copy_from_slice(bytes);
        self.bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&self.header.encode());
    }

    /// Clears all bits of a page that are clear in `bytes`, a page too.
    pub fn restrict_page(&mut self, page: usize, bytes: &[u8]) {
        let start = page * PAGE_BYTES as usize;
        for (own, other) in self.bytes[start..start + PAGE_BYTES as usize].iter_mut().zip(bytes) {
            *own &= other;
        }
        self.bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&self.header.encode());
    }

    /// The page that holds a chunk's bit.
    pub fn page_of(&self, chunk: u64) -> usize {
        (self.header.position_of(chunk).0 / PAGE_BYTES) as usize
    }

    fn place(&self, chunk: u64) -> (usize, u8) {
        assert!(chunk < self.header.chunks(), "chunk {chunk} of {}", self.header.chunks());
        let (byte, mask) = self.header.position_of(chunk);
        (byte as usize, mask)
    }

    /// Whether a chunk's bit is set.
    pub fn is_set(&self, chunk: u64) -> bool {
        let (byte, mask) = self.place(chunk);
        self.bytes[byte] & mask != 0
    }

    /// Sets a chunk's bit.
    pub fn set(&mut self, chunk: u64) {
        let (byte, mask) = self.place(chunk);
        self.bytes[byte] |= mask;
    }

    /// Clears a chunk's bit.
    pub fn clear(&mut self, chunk: u64) {
        let (byte, mask) = self.place(chunk);
        self.bytes[byte] &= !mask;
    }

    /// Clears all bits.
    pub fn clear_all(&mut self) {
        self.bytes[BITMAP_HEADER_BYTES..].fill(0);
    }

    /// Sets the bits that are set in a bitmap alike.
    pub fn unite(&mut self, other: &BitmapImage) {
        assert!(self.is_alike(other), "the bits stand for the same sectors");
        let own = &mut self.bytes[BITMAP_HEADER_BYTES..];
        for (own, other) in own.iter_mut().zip(&other.bytes[BITMAP_HEADER_BYTES..]) {
            *own |= other;
        }
    }

    /// The first chunk at or after this one whose bit is set.
    pub fn next_set(&self, from: u64) -> Option<u64> {
        self.next(from..self.header.chunks(), 0)
    }

    /// The first chunk at or after this one whose bit is set, and is not set in a bitmap alike.
    pub fn next_set_besides(&self, from: u64, other: &BitmapImage) -> Option<u64> {
        assert!(self.is_alike(other), "the bits stand for the same sectors");
        let (chunks, mut chunk) = (self.header.chunks(), from);
        while chunk < chunks {
            let (byte, mask) = self.place(chunk);
            let more = self.bytes[byte] & !other.bytes[byte];
            if more == 0 {
                chunk = (chunk / 8 + 1) * 8;
            } else if more & mask != 0 {
                return Some(chunk);
            } else {
                chunk += 1;
            }
        }
        None
    }

    /// The first of these chunks whose bit differs from those of `skipped`, which is all ones or all zeroes.
    fn next(&self, chunks: Range<u64>, skipped: u8) -> Option<u64> {
        let mut chunk = chunks.start;
        while chunk < chunks.end {
            let (byte, mask) = self.place(chunk);
            if self.bytes[byte] == skipped {
                // The last byte may hold bits of no chunk.
                chunk = (chunk / 8 + 1) * 8;
            } else if (self.bytes[byte] ^ skipped) & mask != 0 {
                return Some(chunk);
            } else {
                chunk += 1;
            }
        }
        None
    }

    /// The first chunk of a range whose bit is set.
    pub fn first_set_in(&self, chunks: Range<u64>) -> Option<u64> {
        assert!(chunks.end <= self.header.chunks(), "chunks of this bitmap");
        self.next(chunks, 0)
    }

    /// The first chunk of a range whose bit is not set.
    pub fn first_clear_in(&self, chunks: Range<u64>) -> Option<u64> {
        assert!(chunks.end <= self.header.chunks(), "chunks of this bitmap");
        self.next(chunks, 0xff)
    }

    /// How many bits are set.
    pub fn count(&self) -> u64 {
        let mut statistics = super::BitmapStatistics::new(&self.header);
        statistics.add(&self.bytes[BITMAP_HEADER_BYTES..]);
        statistics.count(super::ChunkState::Dirty)
    }
}

impl BitmapHeader {
    /// Sectors that hold the header and the bits.
    pub fn used_sectors(&self) -> Sectors {
        Sectors(self.used_bytes().div_ceil(SECTOR_BYTES as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sync_size: u64, chunk_bytes: u32) -> BitmapHeader {
        BitmapHeader {
            version: BitmapVersion::LittleEndian,
            set_uuid: [7; 16],
            events: 1,
            events_cleared: 1,
            sync_size: Sectors(sync_size),
            state: 0,
            chunk_bytes,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: Sectors::ZERO,
            nodes: 0,
            cluster_name: [0; 64],
        }
    }

    #[test]
    fn one_bit_makes_a_difference_and_what_is_behind_the_last_one_does_not() {
        // With and without a last byte of which some bits stand for nothing.
        for chunks in [16, 17, 23] {
            let image = BitmapImage::filled(header(chunks, 512), Sectors(32)).unwrap().cleared();
            for chunk in 0..chunks {
                let mut other = image.clone();
                other.set(chunk);
                assert!(!image.has_bits_of(&other) && !other.has_bits_of(&image), "{chunk} of {chunks}");
                assert!(other.has_bits_of(&other.clone()));
            }
            let mut other = image.clone();
            let first = BITMAP_HEADER_BYTES + (chunks / 8) as usize;
            other.bytes[first] = (0xff_u16 << (chunks % 8)) as u8;
            assert!(image.has_bits_of(&other), "{chunks}: bits that stand for nothing");
        }
    }

    #[test]
    fn a_bit_that_is_set_is_found_and_only_it() {
        let mut image = BitmapImage::filled(header(100_000, 512), Sectors(32)).unwrap().cleared();
        assert_eq!((image.next_set(0), image.first_clear_in(7..100_000), image.pages()), (None, Some(7), 4));
        for chunk in [0, 7, 8, 30_719, 30_720, 99_999] {
            image.set(chunk);
        }
        let mut found = Vec::new();
        while let Some(chunk) = image.next_set(found.last().map_or(0, |last| last + 1)) {
            found.push(chunk);
        }
        assert_eq!(found, [0, 7, 8, 30_719, 30_720, 99_999]);
        assert_eq!((image.first_set_in(1..7), image.first_set_in(1..8)), (None, Some(7)));
        assert_eq!((image.count(), image.page_of(30_719), image.page_of(30_720)), (6, 0, 1));
        assert_eq!(
            (image.first_clear_in(7..100_000), image.first_clear_in(7..9), image.first_clear_in(7..10)),
            (Some(9), None, Some(9))
        );
        image.clear(7);
        assert!(!image.is_set(7) && image.is_set(8));
        let mut other = image.clone().cleared();
        [0, 30_719, 99_998].into_iter().for_each(|chunk| other.set(chunk));
        let besides = |from| image.next_set_besides(from, &other);
        assert_eq!((besides(0), besides(9), besides(30_721)), (Some(8), Some(30_720), Some(99_999)));
        assert_eq!(image.next_set_besides(0, &image), None);
    }

    #[test]
    fn what_is_written_is_read_again_and_unreadable_bits_count_as_set() {
        let mut image = BitmapImage::filled(header(100_000, 512), Sectors(32)).unwrap().cleared();
        image.set(3);
        image.set(40_000);
        let disk: Vec<u8> = (0..image.pages()).flat_map(|page| image.page_bytes(page).to_vec()).collect();
        let fill = |at: u64, into: &mut [u8]| into.copy_from_slice(&disk[at as usize..at as usize + into.len()]);
        let whole = BitmapImage::read(Sectors(32), |at, into| {
            fill(at, into);
            true
        });
        let whole = whole.unwrap();
        assert!(whole.header() == image.header() && whole.has_bits_of(&image));
        let torn = BitmapImage::read(Sectors(32), |at, into| {
            fill(at, into);
            at != 4096
        });
        let torn = torn.unwrap();
        assert_eq!((torn.count(), torn.is_set(3), torn.is_set(4)), (32_768 + 1, true, false));
    }

    /// 256 bytes of header and 12,500 of bits: 25 sectors, in 4 pages.
    #[test]
    fn a_bitmap_may_take_all_of_its_room_and_not_one_sector_more() {
        let pages = |room| BitmapImage::filled(header(100_000, 512), Sectors(room)).map(|image| image.pages());
        let (found, maximum) = (Sectors(25), Sectors(24));
        assert_eq!([24, 25, 26].map(pages), [Err(BitmapUnusable::TooLarge { found, maximum }), Ok(4), Ok(4)]);
    }

    #[test]
    fn a_header_that_asks_for_too_much_is_refused() {
        let ask = |header: BitmapHeader, room: u64| {
            let bytes = header.encode();
            let read = |_: u64, into: &mut [u8]| {
                into.fill(0);
                let length = bytes.len().min(into.len());
                into[..length].copy_from_slice(&bytes[..length]);
                true
            };
            BitmapImage::read(Sectors(room), read).map(|image| image.pages())
        };
        assert_eq!(ask(header(1000, 512), 8), Ok(1));
        let (found, maximum) = (Sectors(25), Sectors(8));
        assert_eq!(ask(header(100_000, 512), 8), Err(BitmapUnusable::TooLarge { found, maximum }));
        assert_eq!(ask(header(8, 512), 0), Err(BitmapUnusable::NoRoom));
        let found = BITMAP_CHUNKS_MAX + 1;
        assert_eq!(ask(header(found, 512), u64::MAX), Err(BitmapUnusable::TooManyChunks { found }));
        assert_eq!(ask(header(1 << 53, 512), u64::MAX), Err(BitmapUnusable::TooManyChunks { found: 1 << 53 }));
        let clustered = BitmapHeader { version: BitmapVersion::Clustered, ..header(8, 512) };
        assert_eq!(ask(clustered, 8), Err(BitmapUnusable::Clustered));
        let lockless = BitmapHeader { version: BitmapVersion::Lockless, ..header(8, 512) };
        assert_eq!(ask(lockless, 8), Err(BitmapUnusable::Lockless));
    }
}
