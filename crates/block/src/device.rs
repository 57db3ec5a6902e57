//! The one trait of everything that stores sectors: a member, an array, a simulated disk.
//! Owns: [`Device`], [`Geometry`], [`Allocation`], [`Fua`]. Not here: any implementation.
//! Invariant: a device answers every operation once, and holds the buffers until it has.

use crate::{IoError, Range, ReadPieces, Sector, Sectors, WritePieces};
use std::time::Duration;

/// Whether a write must be on stable storage before it is answered (force unit access).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fua {
    /// A later flush makes it stable.
    No,
    /// Stable when answered.
    Yes,
}

/// A device's size, limits and abilities. All lengths in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The size, in whole sectors.
    pub size: Sectors,
    /// The smallest unit and the alignment of reads and writes: 1, or 8 on a 4Kn disk.
    pub logical_block: Sectors,
    /// The unit that it can write without a read-modify-write: 1 or 8.
    pub physical_block: Sectors,
    /// For an array: the chunk size. Zero if it has no chunks.
    pub chunk: Sectors,
    /// For an array: the data of one stripe. Writes of whole stripes are fastest. Zero if it has no stripes.
    pub stripe: Sectors,
    /// The largest read or write that is submitted as one request; the device cuts longer ones itself.
    pub io_max: Sectors,
    /// The most pieces of memory in one request; the device cuts longer lists itself.
    pub segments_max: usize,
    /// Granularity of discard; zero if discard is not supported.
    pub discard_granularity: Sectors,
    /// Whether [`Device::punch_hole`] moves no data, so that a long range takes hardly longer than a short one.
    pub fast_holes: bool,
    /// The same of [`Device::write_zeroes`].
    pub fast_zeroes: bool,
    /// Whether a write can be lost before a flush.
    pub volatile_cache: bool,
}

impl Geometry {
    /// Of a disk of this size: sectors of 512 bytes, no chunks, no discard, and a write can be lost before a flush.
    pub const fn of_disk(size: Sectors) -> Geometry {
        Geometry {
            size,
            logical_block: Sectors(1),
            physical_block: Sectors(1),
            chunk: Sectors::ZERO,
            stripe: Sectors::ZERO,
            io_max: Sectors(1 << 20),
            segments_max: 1024,
            discard_granularity: Sectors::ZERO,
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        }
    }
}

/// A stretch of sectors of one kind, as far as the kind is known without reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Its length from the start of the requested range; never zero unless the range is empty.
    pub length: Sectors,
    /// Whether all of it certainly reads as zeroes and occupies no space. False: it may contain anything.
    pub is_zero: bool,
}

/// Something that stores sectors.
///
/// Many operations may be in flight at once, in any order. A range that exceeds `geometry().size` is answered with
/// `OutOfRange`. A future stays on the shard that made it.
#[allow(async_fn_in_trait, reason = "static dispatch only; futures stay on their shard, so no Send bound is wanted")]
pub trait Device {
    /// The device's geometry at this moment. The size, the chunk and what follows from them may change while it is open;
    /// the blocks and the abilities stay. Who keeps one keeps what was true once.
    fn geometry(&self) -> Geometry;

    /// Whether writes, discards and zeroes are refused now, by choice. It may change while the device is open.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Reads `into.length()` sectors from `at` into the buffers, in order, and returns them filled. On error the
    /// buffers are not returned: they go back to their arena when the device releases them.
    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError>;

    /// Writes the buffers' bytes, in order, starting at `at`.
    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError>;

    /// Makes every write that was answered before this call stable.
    async fn flush(&self) -> Result<(), IoError>;

    /// Tells the device that the sectors' content is no longer needed. Advisory: afterwards they may read as anything.
    async fn discard(&self, range: Range) -> Result<(), IoError>;

    /// Makes the sectors read as zeroes. Exact. They keep their space where the device can tell.
    async fn write_zeroes(&self, range: Range) -> Result<(), IoError>;

    /// The same, and gives back the space of the sectors where that makes them zeroes.
    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        self.write_zeroes(range).await
    }

    /// The first stretch of one kind from the start of `range`, at most as long as `range`. It may end before its kind
    /// does. Writes in flight may or may not be included.
    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        Ok(Allocation { length: range.length, is_zero: false })
    }

    /// The array has failed this member. Requests in flight and all later ones are answered `Gone` at once, although
    /// the device below may still work on those in flight. Their buffers stay leased until it releases them. An
    /// operation that cannot be cut here, such as a request to an array below, ends by itself.
    fn mark_dead(&self) {}

    /// Reads in flight are answered [`ErrorKind::Late`](crate::ErrorKind::Late) at once, because another copy will
    /// serve them. The device below may still work on them; their buffers stay leased as long as it does. A device that
    /// does not support this leaves them in flight.
    fn cut_reads(&self) {}

    /// How long the oldest request in flight has been with the device, to within about a second; zero if unknown.
    fn unanswered_for(&self) -> Duration {
        Duration::ZERO
    }
}
