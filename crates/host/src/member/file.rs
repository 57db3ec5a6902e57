//! Reads and writes a file through the ring until the whole range is done.
//! Owns: [`FileIo`]: continuing short transfers, cutting long lists, buffers for direct I/O. Not here: range checks.
//! Invariant: `Ok` means that the last byte was transferred, and no write makes a file longer.

use super::device_error;
use super::retry::Retries;
use super::turns::Turns;
use super::watch::Watch;
use crate::ring::{Buffers, Depth, Driver, Holder, Kind, Lane, SEGMENTS_MAX, TracedKind, cut};
use crate::sys::Errno;
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::buffer::Piece;
use uraid_block::{Arena, ErrorKind, IoError, Pieces, ReadPieces, SECTOR_BYTES, WritePieces};

/// Larger transfers of files in memory use the ring, where another processor can do the copy meanwhile.
const AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// Transfers of files in memory are not merged beyond this size: one processor would copy what two could copy in
/// parallel.
const MERGED_IN_MEMORY_MAX: u64 = 256 << 10;

/// The result of a read that was cut off because it was late. The kernel never returns this errno to user space.
const IS_LATE: i32 = libc::ERESTART;

/// How a file's bytes move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Past the page cache, with memory aligned to this many bytes.
    Direct { memory_align: usize },
    /// Through the page cache.
    Cached,
    /// The file is on tmpfs: its pages are the storage.
    InMemory,
}

/// A file as one shard drives it. Addresses are bytes of the member; ring operations use bytes of the file.
pub(super) struct FileIo {
    pub(super) driver: Rc<Driver>,
    pub(super) lane: Rc<Lane>,
    /// The holder that only flushes use, see [`super::claim::FlushHolder`].
    flush_holder: Holder,
    watch: Arc<Watch>,
    way: Way,
    turns: Turns,
    /// The driver's turn in which the file's size was last checked.
    looked: Cell<u64>,
    /// Whether the file accepts durable writes (RWF_DSYNC); the first attempt finds out.
    has_durable_write: Cell<bool>,
}

/// Why a transfer ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// The file ends before the range does.
    Ended,
    /// An errno.
    Failed(i32),
}

/// The progress of a transfer of `count` bytes. Counts whole sectors, because direct I/O can continue only at the start
/// of a sector.
#[derive(Default)]
struct Progress {
    failed_once: bool,
    retries: Retries,
}

impl Progress {
    /// The bytes transferred. `Err` if the transfer must end.
    fn step(&mut self, count: i32, bytes: usize) -> Result<usize, Stop> {
        if count < 0 {
            return Err(Stop::Failed(-count));
        }
        let count = count as usize;
        assert!(count <= bytes, "the kernel transfers at most what was asked for");
        if count == bytes {
            return Ok(bytes);
        }
        let step = count - count % SECTOR_BYTES;
        // The file ends here or inside this sector, so it shrank. Try once more first: a device may return short
        // anywhere.
        if step == 0 && (count == 0 || std::mem::replace(&mut self.failed_once, true)) {
            return Err(Stop::Ended);
        }
        Ok(step)
    }
}

impl Way {
    /// The largest merged request, in bytes.
    pub(super) fn merged_max(self) -> u64 {
        match self {
            Way::Direct { .. } | Way::Cached => u64::MAX,
            Way::InMemory => MERGED_IN_MEMORY_MAX,
        }
    }
}

impl FileIo {
    /// `flush_holder`: another open file description of the same file, which only flushes use.
    pub(super) fn new(driver: Rc<Driver>, lane: Lane, flush_holder: Holder, watch: Arc<Watch>, way: Way) -> FileIo {
        let depth = match way {
            Way::Direct { .. } if !lane.is_remote() => Depth::DIRECT,
            Way::Direct { .. } | Way::Cached | Way::InMemory => Depth::CACHED,
        };
        let lane = driver.add_lane(lane.sharing(watch.unanswered_changes.clone()), depth);
        if let Way::Direct { memory_align } = way {
            // If the alignment is at most a sector, the rest of a short transfer is aligned, too.
            assert!(memory_align.is_power_of_two() && memory_align <= SECTOR_BYTES);
        }
        let (turns, looked, has_durable_write) = (Turns::default(), Cell::new(0), Cell::new(true));
        FileIo { driver, lane, flush_holder, watch, way, turns, looked, has_durable_write }
    }

    /// The array has failed the member: requests in flight and later ones end as `Gone`, whether or not the device
    /// answers.
    pub(super) fn mark_dead(&self) {
        self.watch.lost();
        self.driver.mark_dead(&self.lane, libc::ENODEV);
    }

    /// Ends reads in flight: another copy will serve them.
    pub(super) fn cut_reads(&self) {
        self.driver.cut_reads(&self.lane, IS_LATE);
    }

    pub(super) fn unanswered_for(&self) -> Duration {
        self.driver.unanswered_for(&self.lane)
    }

    /// The byte of the file for a byte of the member.
    #[inline]
    pub(super) fn place(&self, at: u64) -> u64 {
        self.lane.base() + at
    }

    /// Checks that the file still has all its sectors. Call it before and after every change of the file.
    #[inline]
    pub(super) async fn check_size(&self) -> Result<(), IoError> {
        if self.lane.is_remote() {
            return Box::pin(self.check_size_by_helper()).await;
        }
        self.watch.check_size(self.lane.as_raw_fd())
    }

    /// The check after a write by the ring. One check covers all writes that had ended when the turn began.
    #[inline]
    async fn check_size_after_write(&self) -> Result<(), IoError> {
        let turn = self.driver.turns();
        if self.looked.get() == turn {
            return self.watch.check();
        }
        self.check_size().await?;
        self.looked.set(turn);
        Ok(())
    }

    /// Checks the size on a helper thread: a file server that does not answer must not block the shard.
    async fn check_size_by_helper(&self) -> Result<(), IoError> {
        self.watch.check()?;
        let fd = self.lane.as_raw_fd();
        // The operation holds the claim, so the descriptor stays open.
        let call = || {
            let watch = self.watch.clone();
            Kind::short_call(move || watch.check_size(fd).map_or_else(|error| -error.os.max(1), |()| 0))
        };
        let result = self.call(call).await;
        self.watch.check()?;
        if result < 0 { Err(device_error(-result)) } else { Ok(()) }
    }

    /// The bytes transferred. After a transient error it waits and returns 0, so that the caller tries the same again.
    async fn step(&self, progress: &mut Progress, count: i32, bytes: usize) -> Result<usize, IoError> {
        match progress.step(count, bytes) {
            Err(Stop::Failed(os)) if progress.retries.wait_to_retry(&self.driver, os).await => Ok(0),
            step => {
                progress.retries = Retries::default();
                self.noted(step)
            }
        }
    }

    /// Records in `watch` if a transfer ended early.
    fn noted(&self, step: Result<usize, Stop>) -> Result<usize, IoError> {
        step.map_err(|stop| match stop {
            Stop::Ended => self.watch.lost(),
            Stop::Failed(os) => self.watch.error(self.lane.as_raw_fd(), os),
        })
    }

    fn suits<P: Piece>(&self, pieces: &Pieces<P>) -> bool {
        match self.way {
            Way::Direct { memory_align } => {
                let is_aligned = |piece: &P| piece.address().addr().is_multiple_of(memory_align);
                pieces.iter().all(|piece| is_aligned(piece) && piece.len().is_multiple_of(SECTOR_BYTES))
            }
            Way::Cached | Way::InMemory => true,
        }
    }

    fn start(&self, kind: Kind, buffers: Buffers) -> crate::ring::Operation<'_> {
        self.driver.start_on(&self.lane, kind, buffers)
    }

    /// Whether to bypass the ring, as for a small transfer of a file in memory. io_uring would hand the transfer to a
    /// kernel thread, which takes several times as long as the copy. (For file systems that can report "would block",
    /// io_uring itself tries the copy inline first.)
    #[inline]
    fn is_quick(&self, bytes: usize) -> bool {
        self.way == Way::InMemory && bytes <= AT_ONCE_BYTES_MAX
    }

    /// Runs the operation on this thread, without the ring.
    fn at_once(&self, kind: Kind, buffers: Buffers) -> (Buffers, i32) {
        match (&kind, &buffers) {
            (Kind::Read { at }, Buffers::Read(into)) => self.lane.note(TracedKind::Read, *at, into.bytes() as u64, 1),
            (Kind::Write { at, .. }, Buffers::Write(from)) => {
                self.lane.note(TracedKind::Write, *at, from.bytes() as u64, 1);
            }
            (_, _) => panic!("only bytes are moved at once"),
        }
        Driver::at_once(kind, buffers, self.lane.clone())
    }

    async fn transfer(&self, kind: Kind, buffers: Buffers, bytes: usize) -> (Buffers, i32) {
        if self.is_quick(bytes) {
            self.turns.maybe_yield().await;
            return self.at_once(kind, buffers);
        }
        self.start(kind, buffers).await
    }

    /// Runs an operation without buffers and returns its result. Transient errors are retried.
    pub(super) async fn call(&self, kind: impl Fn() -> Kind) -> i32 {
        let mut retries = Retries::default();
        loop {
            let (_, result) = self.start(kind(), Buffers::None).await;
            if !retries.wait_to_retry(&self.driver, -result).await {
                return result;
            }
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(super) fn read(&self, at: u64, into: ReadPieces) -> impl Future<Output = Result<ReadPieces, IoError>> {
        async move {
            // The common path is short; all others are boxed to keep this future small.
            self.watch.check()?;
            if into.count() > SEGMENTS_MAX || !self.suits(&into) {
                return Box::pin(self.read_slowly(at, into, 0, Progress::default())).await;
            }
            let bytes = into.bytes();
            // Like `transfer`, but inlined so that the buffers are not stored in one more future.
            let (buffers, result) = if self.is_quick(bytes) {
                self.turns.maybe_yield().await;
                self.at_once(Kind::Read { at: self.place(at) }, Buffers::Read(into))
            } else {
                self.start(Kind::Read { at: self.place(at) }, Buffers::Read(into)).await
            };
            // Check again: if the file was short meanwhile, a later write may have made the hole that was read.
            self.watch.check()?;
            let Buffers::Read(pieces) = buffers else { return Err(not_answered(result)) };
            if usize::try_from(result) == Ok(bytes) {
                return Ok(pieces);
            }
            Box::pin(self.read_on(at, pieces, result)).await
        }
    }

    /// Reads the rest after a short first call.
    async fn read_on(&self, at: u64, pieces: ReadPieces, result: i32) -> Result<ReadPieces, IoError> {
        let mut progress = Progress::default();
        let step = self.step(&mut progress, result, pieces.bytes()).await?;
        self.read_slowly(at, pieces, step, progress).await
    }

    async fn read_slowly(
        &self,
        at: u64,
        mut rest: ReadPieces,
        done: usize,
        mut progress: Progress,
    ) -> Result<ReadPieces, IoError> {
        if !self.suits(&rest) {
            return self.read_bounced(at, rest).await;
        }
        let mut all = rest.split_to(done);
        while !rest.is_empty() {
            let part = cut(&mut rest);
            let bytes = part.bytes();
            let kind = Kind::Read { at: self.place(at + all.bytes() as u64) };
            let (buffers, result) = self.transfer(kind, Buffers::Read(part), bytes).await;
            self.watch.check()?;
            let Buffers::Read(mut part) = buffers else { return Err(not_answered(result)) };
            let step = self.step(&mut progress, result, bytes).await?;
            all.append(part.split_to(step));
            part.append(rest);
            rest = part;
        }
        Ok(all)
    }

    async fn read_bounced(&self, at: u64, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        let bounce = Box::pin(self.read_slowly(at, bounce(into.bytes()), 0, Progress::default())).await?;
        into.copy_from_pieces(&bounce);
        Ok(into)
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(super) fn write(&self, at: u64, from: WritePieces, sync: bool) -> impl Future<Output = Result<(), IoError>> {
        async move {
            if from.count() > SEGMENTS_MAX || !self.suits(&from) || (sync && !self.has_durable_write.get()) {
                return Box::pin(self.write_slowly(at, from, sync, 0, Progress::default())).await;
            }
            let bytes = from.bytes();
            self.check_size().await?;
            let is_quick = self.is_quick(bytes);
            let (buffers, result) = if is_quick {
                self.turns.maybe_yield().await;
                self.at_once(Kind::Write { at: self.place(at), sync }, Buffers::Write(from))
            } else {
                self.start(Kind::Write { at: self.place(at), sync }, Buffers::Write(from)).await
            };
            if usize::try_from(result) == Ok(bytes) {
                return if is_quick { self.check_size().await } else { self.check_size_after_write().await };
            }
            let Buffers::Write(pieces) = buffers else { return Err(not_answered(result)) };
            Box::pin(self.write_on(at, pieces, sync, result)).await
        }
    }

    /// Writes the rest after a short first call.
    async fn write_on(&self, at: u64, pieces: WritePieces, sync: bool, result: i32) -> Result<(), IoError> {
        let mut progress = Progress::default();
        let step = if self.cannot_write_durably(sync, result) {
            0
        } else {
            self.step(&mut progress, result, pieces.bytes()).await?
        };
        self.write_slowly(at, pieces, sync, step, progress).await
    }

    async fn write_slowly(
        &self,
        mut at: u64,
        mut rest: WritePieces,
        sync: bool,
        done: usize,
        mut progress: Progress,
    ) -> Result<(), IoError> {
        if !self.suits(&rest) {
            let mut bounce = bounce(rest.bytes());
            bounce.copy_from_pieces(&rest);
            rest = bounce.freeze();
        }
        drop(rest.split_to(done));
        at += done as u64;
        // A durable first call that was short has made durable what it wrote.
        let mut is_stable = true;
        while !rest.is_empty() {
            let part = cut(&mut rest);
            let bytes = part.bytes();
            let sync_now = sync && self.has_durable_write.get();
            is_stable &= sync_now;
            self.check_size().await?;
            let (buffers, result) =
                self.transfer(Kind::Write { at: self.place(at), sync: sync_now }, Buffers::Write(part), bytes).await;
            let Buffers::Write(mut part) = buffers else { return Err(not_answered(result)) };
            let step = if self.cannot_write_durably(sync_now, result) {
                0
            } else {
                self.step(&mut progress, result, bytes).await?
            };
            drop(part.split_to(step));
            at += step as u64;
            part.append(rest);
            rest = part;
        }
        self.check_size().await?;
        if sync && !is_stable { self.flush().await } else { Ok(()) }
    }

    /// Whether the kernel refused a durable write. The caller then writes and flushes instead.
    fn cannot_write_durably(&self, sync: bool, result: i32) -> bool {
        let cannot = sync && result == -libc::EOPNOTSUPP;
        if cannot {
            self.has_durable_write.set(false);
        }
        cannot
    }

    /// Whether a failed flush may be repeated. With a page cache, an error may report lost writes, and only once: the
    /// next flush would succeed. A flush may be repeated after an interruption, and after any transient error if no
    /// page cache is used.
    fn may_flush_again(&self, os: i32) -> bool {
        os == libc::EINTR || matches!(self.way, Way::Direct { .. })
    }

    pub(super) async fn flush(&self) -> Result<(), IoError> {
        self.watch.check()?;
        let mut retries = Retries::default();
        let result = loop {
            self.lane.note_flush();
            let operation = self.driver.start_with(&self.lane, self.flush_holder.clone(), Kind::Sync, Buffers::None);
            match operation.await.1 {
                0.. => break Ok(()),
                os if self.may_flush_again(-os) && retries.wait_to_retry(&self.driver, -os).await => {}
                os => {
                    self.watch.error(self.lane.as_raw_fd(), -os);
                    break Err(Errno(-os));
                }
            }
        };
        self.watch.flushed(result)
    }
}

/// The error for a request that the member did not answer. Its buffers stay with the device.
fn not_answered(result: i32) -> IoError {
    assert!(result < 0, "what ends well gives its buffers back");
    if result == -IS_LATE { ErrorKind::Late.into() } else { device_error(-result) }
}

/// Newly allocated, page-aligned memory. Rarely needed: buffers filled from the network are aligned.
fn bounce(bytes: usize) -> ReadPieces {
    Arena::for_one(bytes).take(bytes).expect("the arena was made for this")
}

#[cfg(test)]
mod tests;
