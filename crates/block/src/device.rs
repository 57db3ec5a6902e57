//! The one shape of everything that stores sectors: a member, an array, a simulated disk.
//! Owns: [`Device`], [`Geometry`], [`Allocation`], [`Fua`]. Not here: any implementation.
//! Invariant: a device answers every operation once, and keeps its own hold on the buffers until it has.

use crate::{IoError, Range, ReadPieces, Sector, Sectors, WritePieces};

/// Whether a write must be on stable storage before it is answered (force unit access).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fua {
    /// A later flush makes it stable.
    No,
    /// Stable when answered.
    Yes,
}

/// What a device is like. All lengths in sectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// How many sectors it has.
    pub size: Sectors,
    /// Smallest and alignment of what it can read or write: 1, or 8 on a 4Kn disk.
    pub logical_block: Sectors,
    /// What it writes without reading first: 1 or 8.
    pub physical_block: Sectors,
    /// For an array: consecutive sectors on one member. Zero where it has no meaning.
    pub chunk: Sectors,
    /// For an array: the data of one stripe, which a write should cover whole. Zero where it has no meaning.
    pub stripe: Sectors,
    /// The largest read or write that goes down as one; the device cuts longer ones itself.
    pub io_max: Sectors,
    /// The most pieces of memory that go down in one; the device cuts longer lists itself.
    pub segments_max: usize,
    /// Granularity of discard; zero: discard is not supported.
    pub discard_granularity: Sectors,
    /// Whether discarded sectors are certain to read as zeroes.
    pub zeroes_after_discard: bool,
    /// Whether a write can be lost before a flush.
    pub volatile_cache: bool,
}

/// What is known of a stretch of sectors without reading them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// How far it goes, from the start of what was asked; never zero for a range that is not empty.
    pub length: Sectors,
    /// Whether all of it is certain to read as zeroes, and takes no room. False: it may hold anything.
    pub is_zero: bool,
}

/// Something that stores sectors.
///
/// Every operation may be in flight many times at once, in any order. Ranges lie inside `geometry().size`; what does
/// not is answered `OutOfRange`. Futures stay on the shard they were made on.
#[allow(async_fn_in_trait, reason = "static dispatch only; futures stay on their shard, so no Send bound is wanted")]
pub trait Device {
    /// What the device is like; constant while it is open.
    fn geometry(&self) -> &Geometry;

    /// Reads `into.length()` sectors from `at` into the buffers, in order, and gives them back filled.
    /// On error the buffers are gone: they return to their arena when the device lets go of them.
    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError>;

    /// Writes the buffers' bytes, in order, from `at` on.
    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError>;

    /// Makes every write that was answered before this call stable.
    async fn flush(&self) -> Result<(), IoError>;

    /// Tells that the sectors' content is no longer wanted. Advisory: afterwards they read as anything.
    async fn discard(&self, range: Range) -> Result<(), IoError>;

    /// Makes the sectors read as zeroes. Exact.
    async fn write_zeroes(&self, range: Range) -> Result<(), IoError>;

    /// What is known of the sectors from the start of `range` on: the first stretch of one kind, at most `range` long.
    /// It may end before its kind does. Writes that are under way meanwhile may or may not be seen.
    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        Ok(Allocation { length: range.length, is_zero: false })
    }

    /// The array has failed this member: what is under way here is answered `Gone` now, though the device below may
    /// still be at it, and so is all that comes later. The buffers stay leased until the device has let go of them.
    /// What this cannot end, like a request to an array below, ends by itself.
    fn mark_dead(&self) {}

    /// Reads that are under way here are answered [`ErrorKind::Late`](crate::ErrorKind::Late) now, for they are to be
    /// served from elsewhere. The device below may still be at them, and their buffers stay leased as long as it is.
    /// A device that cannot do this leaves them under way.
    fn cut_reads(&self) {}
}
