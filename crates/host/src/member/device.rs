//! A claimed member as a device of one shard.
//! Owns: [`Member`]: range checks, how each kind of member does each operation. Not here: claims, file I/O (`file`).
//! Invariant: nothing reaches past the member's end, nothing is written to a member claimed for reading.

use super::allocation;
use super::claim::{Backing, Claim, ClaimHolder, FlushHolder};
use super::cost::Completion;
use super::device_error;
use super::error::Access;
use super::file::{FileIo, Way};
use super::memory::Memory;
use super::overlay::Overlay;
use super::trial::TrialMember;
use super::turns::Turns;
use crate::ring::{Buffers, Driver, Kind, Lane, Limits, Trace, TracedKind};
use crate::sys;
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::{Allocation, Arena, Device, ErrorKind, Fua, Geometry, IoError, Range};
use uraid_block::{ReadPieces, Sector, Sectors, WritePieces};

/// Larger holes in memory are punched by a helper thread, because freeing pages takes time.
const ZERO_AT_ONCE: Sectors = Sectors(1 << 11);
/// Bytes of one write when zeroes have to be written.
const ZEROES_BYTES: usize = 16 * LARGE_BLOCK_BYTES;

/// How to write zeroes to a file. The ways are tried in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ZeroWay {
    /// FALLOC_FL_ZERO_RANGE. Sectors stay allocated: later writes cannot run out of space.
    Range,
    /// Punch a hole.
    Hole,
    /// Write zeroes.
    Buffers,
}

/// How one shard reaches a member.
#[derive(Clone, Copy)]
enum Reach<'a> {
    /// By the ring: files, block devices, and members with a cost.
    Ring { is_block_device: bool },
    /// Directly, without waiting for a device.
    Memory(&'a Arc<Memory>),
    /// Directly, without waiting for a device.
    Null,
}

/// A claimed member on one shard.
pub struct Member {
    claim: Arc<Claim>,
    file: FileIo,
    zero_way: Cell<ZeroWay>,
    /// It has refused to punch a hole.
    refuses_holes: Cell<bool>,
    turns: Turns,
    /// What is read instead of its own bytes.
    overlay: Option<Arc<Overlay>>,
}

impl Member {
    pub(super) fn new(claim: Arc<Claim>, driver: Rc<Driver>) -> Member {
        let way = match &claim.backing {
            Backing::File { direct: Some(align), .. } => Way::Direct { memory_align: align.memory.max(1) as usize },
            Backing::File { file, direct: None, .. } if sys::is_in_memory(file.as_fd()) => Way::InMemory,
            Backing::File { direct: None, .. } | Backing::Memory(_) | Backing::Null => Way::Cached,
        };
        let flush_holder = Rc::new(FlushHolder::new(claim.clone()));
        let data_holder = Rc::new(ClaimHolder(claim.clone()));
        let base = match &claim.backing {
            Backing::File { base, .. } => *base,
            Backing::Memory(_) | Backing::Null => 0,
        };
        let bytes_max = claim.geometry.io_max.bytes().min(way.merged_max());
        let limits = Limits { bytes_max, segments_max: claim.geometry.segments_max };
        let slot = match &claim.backing {
            Backing::File { file, direct: Some(_), .. } => driver.add_file(file.as_raw_fd()),
            Backing::File { direct: None, .. } | Backing::Memory(_) | Backing::Null => None,
        };
        let lane = Lane::new(data_holder, base, limits, TrialMember::of(&claim));
        let is_remote = match &claim.backing {
            Backing::File { file, is_block_device, .. } => !is_block_device && sys::is_remote(file.as_fd()),
            Backing::Memory(_) | Backing::Null => false,
        };
        let lane = lane.traced(driver.traces()).with_slot(slot).called(&claim.name).remote(is_remote);
        let file = FileIo::new(driver, lane, flush_holder, claim.watch.clone(), way);
        let turns = match claim.completion {
            Completion::Inline | Completion::Timed(_) => Turns::default(),
            Completion::Deferred => Turns::of_each(),
        };
        let overlay = claim.overlay.get().cloned();
        Member { claim, file, zero_way: Cell::new(ZeroWay::Range), refuses_holes: Cell::new(false), turns, overlay }
    }

    /// The name it was opened by, for messages.
    pub fn name(&self) -> &str {
        &self.claim.name
    }

    /// The trace of this shard's requests to it, if [`crate::Options::trace`] is set. It outlives the member.
    pub fn trace(&self) -> Option<Rc<Trace>> {
        self.file.lane.trace().cloned()
    }

    #[inline]
    fn reach(&self) -> Reach<'_> {
        match &self.claim.backing {
            Backing::File { is_block_device, .. } => Reach::Ring { is_block_device: *is_block_device },
            Backing::Memory(_) | Backing::Null if self.claim.completion.cost().is_some() => {
                Reach::Ring { is_block_device: false }
            }
            Backing::Memory(memory) => Reach::Memory(memory),
            Backing::Null => Reach::Null,
        }
    }

    #[inline]
    fn note(&self, kind: TracedKind, at: Sector, length: Sectors) {
        self.file.lane.note(kind, self.file.place(at.byte()), length.bytes(), 1);
    }

    /// Fails if a sector of the range is bad. Members with a cost check this when a request ends instead: see
    /// [`TrialMember`].
    #[inline]
    fn check_bad(&self, range: Range) -> Result<(), IoError> {
        if self.claim.completion.cost().is_some() {
            Ok(())
        } else {
            self.claim.bad.check(range).map_err(|error| self.bad_error(range, error))
        }
    }

    /// The error for this range. If it covers listed bad sectors, the error has no errno, as if the device had not been
    /// asked.
    #[cold]
    fn bad_error(&self, range: Range, error: IoError) -> IoError {
        if self.claim.listed.first_in(range).is_some() { IoError::new(error.kind) } else { error }
    }

    #[inline]
    fn check(&self, at: Sector, length: Sectors) -> Result<(), IoError> {
        let size = self.claim.geometry.size.0;
        if at.0 > size || length.0 > size - at.0 { Err(ErrorKind::OutOfRange.into()) } else { Ok(()) }
    }

    #[inline]
    fn check_write(&self, at: Sector, length: Sectors) -> Result<(), IoError> {
        match self.claim.access {
            Access::ReadWrite => self.check(at, length),
            Access::ReadOnly => Err(ErrorKind::ReadOnly.into()),
        }
    }

    /// What was read, with what is laid over it.
    #[inline]
    fn overlaid(&self, at: Sector, mut into: ReadPieces) -> ReadPieces {
        if let Some(overlay) = &self.overlay {
            let mut byte = at.byte();
            for piece in into.iter_mut() {
                overlay.apply(byte, piece);
                byte += piece.len() as u64;
            }
        }
        into
    }

    async fn zero_memory(&self, memory: &Arc<Memory>, range: Range) -> Result<(), IoError> {
        let (at, length) = (range.start.byte(), range.length.bytes());
        let result = if range.length <= ZERO_AT_ONCE {
            memory.zero(at, length)
        } else {
            let memory = memory.clone();
            let call = Kind::call(move || memory.zero(at, length));
            self.file.driver.start(call, Buffers::None, None).await.1
        };
        as_unit(result)
    }

    async fn allocate(&self, mode: i32, range: Range) -> i32 {
        let (at, length) = (self.file.place(range.start.byte()), range.length.bytes());
        self.file.call(|| Kind::Allocate { mode: mode | libc::FALLOC_FL_KEEP_SIZE, at, length }).await
    }

    async fn discard_file(&self, is_block_device: bool, range: Range) -> Result<(), IoError> {
        self.file.check_size().await?;
        if self.claim.geometry.discard_granularity.is_zero() {
            return Err(ErrorKind::Unsupported.into());
        }
        if !is_block_device {
            return as_unit(self.allocate(libc::FALLOC_FL_PUNCH_HOLE, range).await);
        }
        let (at, length) = (self.file.place(range.start.byte()), range.length.bytes());
        let fd = self.file.lane.as_raw_fd();
        // The operation holds the claim, so the descriptor stays open.
        as_unit(self.file.call(|| Kind::call(move || sys::block_discard(fd, at, length))).await)
    }

    async fn zero(&self, range: Range, gives_space_back: bool) -> Result<(), IoError> {
        self.check_write(range.start, range.length)?;
        self.claim.bad.check(range)?;
        if range.length.is_zero() {
            return Ok(());
        }
        self.note(TracedKind::Zero, range.start, range.length);
        match self.reach() {
            Reach::Ring { is_block_device } if gives_space_back => self.punch_file(is_block_device, range).await,
            Reach::Ring { is_block_device } => self.zero_file(is_block_device, range).await,
            Reach::Memory(memory) => self.zero_memory(memory, range).await,
            Reach::Null => Ok(()),
        }
    }

    /// On a block device, too, a hole is certain to read as zeroes: the kernel refuses what the device cannot promise.
    async fn punch_file(&self, is_block_device: bool, range: Range) -> Result<(), IoError> {
        self.file.check_size().await?;
        if !self.refuses_holes.get() {
            match as_unit(self.allocate(libc::FALLOC_FL_PUNCH_HOLE, range).await) {
                Err(IoError { kind: ErrorKind::Unsupported, .. }) => self.refuses_holes.set(true),
                Err(error) => return Err(error),
                Ok(()) => return self.file.check_size().await,
            }
        }
        self.zero_file(is_block_device, range).await
    }

    async fn zero_file(&self, is_block_device: bool, range: Range) -> Result<(), IoError> {
        self.file.check_size().await?;
        loop {
            let (mode, next) = match self.zero_way.get() {
                ZeroWay::Range if is_block_device => (libc::FALLOC_FL_ZERO_RANGE, ZeroWay::Buffers),
                ZeroWay::Range => (libc::FALLOC_FL_ZERO_RANGE, ZeroWay::Hole),
                ZeroWay::Hole => (libc::FALLOC_FL_PUNCH_HOLE, ZeroWay::Buffers),
                ZeroWay::Buffers => return self.write_zero_buffers(range).await,
            };
            match as_unit(self.allocate(mode, range).await) {
                Err(IoError { kind: ErrorKind::Unsupported, .. }) => self.zero_way.set(next),
                Err(error) => return Err(error),
                Ok(()) => return self.file.check_size().await,
            }
        }
    }

    /// Finds holes on a helper thread, because the file system may block.
    async fn file_allocation(&self, range: Range) -> Result<Allocation, IoError> {
        // Check the size before and after the search: past the end of a file that shrank, SEEK_HOLE finds no holes.
        self.file.check_size().await?;
        let (at, length) = (self.file.place(range.start.byte()), range.length.bytes());
        let fd = self.file.lane.as_raw_fd();
        let found = Arc::new(OnceLock::new());
        // The operation holds the claim, so the descriptor stays open.
        let call = || {
            let found = found.clone();
            Kind::call(move || {
                found.get_or_init(|| allocation::of_file(fd, at, length));
                0
            })
        };
        let result = self.file.call(call).await;
        self.file.check_size().await?;
        // If the member answered, the call has set a result.
        as_unit(result)?;
        Ok(*found.get().expect("the call has ended"))
    }

    async fn write_zero_buffers(&self, range: Range) -> Result<(), IoError> {
        let block = Arena::for_one(LARGE_BLOCK_BYTES)
            .take_zeroed(LARGE_BLOCK_BYTES)
            .expect("the arena was made for this")
            .freeze();
        let mut zeroes = WritePieces::new();
        while zeroes.bytes() < ZEROES_BYTES {
            zeroes.append(block.clone());
        }
        let mut at = range.start.byte();
        while at < range.end().byte() {
            let bytes = (range.end().byte() - at).min(ZEROES_BYTES as u64) as usize;
            self.file.write(at, zeroes.slice(0, bytes), false).await?;
            at += bytes as u64;
        }
        Ok(())
    }
}

trait Byte {
    fn byte(self) -> u64;
}

impl Byte for Sector {
    fn byte(self) -> u64 {
        Sectors(self.0).bytes()
    }
}

fn as_unit(result: i32) -> Result<(), IoError> {
    if result < 0 { Err(device_error(-result)) } else { Ok(()) }
}

impl Device for Member {
    fn geometry(&self) -> Geometry {
        self.claim.geometry
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    fn read(&self, at: Sector, mut into: ReadPieces) -> impl Future<Output = Result<ReadPieces, IoError>> {
        async move {
            self.check(at, into.length())?;
            self.check_bad(Range::new(at, into.length()))?;
            match self.reach() {
                Reach::Ring { .. } if into.is_empty() => Ok(into),
                Reach::Ring { .. } => Ok(self.overlaid(at, self.file.read(at.byte(), into).await?)),
                Reach::Memory(memory) => {
                    self.note(TracedKind::Read, at, into.length());
                    self.turns.maybe_yield().await;
                    let mut byte = at.byte();
                    for piece in into.iter_mut() {
                        memory.read(byte, piece);
                        byte += piece.len() as u64;
                    }
                    Ok(self.overlaid(at, into))
                }
                // The contents are arbitrary: leave the buffers as they are.
                Reach::Null => {
                    self.note(TracedKind::Read, at, into.length());
                    self.turns.maybe_yield().await;
                    Ok(into)
                }
            }
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> impl Future<Output = Result<(), IoError>> {
        async move {
            self.check_write(at, from.length())?;
            self.check_bad(Range::new(at, from.length()))?;
            match self.reach() {
                Reach::Ring { .. } if from.is_empty() => Ok(()),
                Reach::Ring { .. } => self.file.write(at.byte(), from, fua == Fua::Yes).await,
                Reach::Memory(memory) => {
                    self.note(TracedKind::Write, at, from.length());
                    self.turns.maybe_yield().await;
                    let mut byte = at.byte();
                    for piece in from.iter() {
                        memory.write_piece(byte, piece);
                        byte += piece.len() as u64;
                    }
                    Ok(())
                }
                Reach::Null => {
                    self.note(TracedKind::Write, at, from.length());
                    self.turns.maybe_yield().await;
                    Ok(())
                }
            }
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self.reach() {
            Reach::Ring { .. } => self.file.flush().await,
            Reach::Memory(_) | Reach::Null => {
                self.note(TracedKind::Flush, Sector(0), Sectors::ZERO);
                Ok(())
            }
        }
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.check_write(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(());
        }
        self.note(TracedKind::Discard, range.start, range.length);
        match self.reach() {
            Reach::Ring { is_block_device } => self.discard_file(is_block_device, range).await,
            Reach::Memory(memory) => self.zero_memory(memory, range).await,
            Reach::Null => Ok(()),
        }
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.zero(range, false).await
    }

    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        self.zero(range, true).await
    }

    fn mark_dead(&self) {
        self.file.mark_dead();
    }

    fn cut_reads(&self) {
        self.file.cut_reads();
    }

    fn unanswered_for(&self) -> Duration {
        self.file.unanswered_for()
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        self.check(range.start, range.length)?;
        let is_unknown = match &self.claim.backing {
            Backing::File { is_block_device, .. } => *is_block_device,
            Backing::Memory(_) => false,
            Backing::Null => true,
        };
        // A bad sector does not read as zeroes, so the stretch ends before it.
        let length = match self.claim.bad.first_in(range) {
            None => range.length,
            Some(bad) if bad.start > range.start => Sectors(bad.start.0 - range.start.0),
            Some(bad) => {
                let length = bad.end().0.min(range.end().0) - range.start.0;
                return Ok(Allocation { length: Sectors(length), is_zero: false });
            }
        };
        let overlaid = self.overlay.as_ref().and_then(|overlay| overlay.first_in(Range::new(range.start, length)));
        if is_unknown || length.is_zero() || overlaid.is_some() {
            return Ok(Allocation { length, is_zero: false });
        }
        self.file_allocation(Range::new(range.start, length)).await
    }
}

#[cfg(test)]
mod tests;
