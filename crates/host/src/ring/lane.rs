//! One member's path to the ring, on one shard.
//! Owns: [`Lane`]: the holder of the member's file, its trace, and the trial device if one replaces the ring.
//! Not here: when waiting requests are sent (`ring`), what may be merged (`merge`).
//! Invariant: all reads and writes of a member go through its lane, so order and counts are decided in one place.

use super::merge::{Limits, RecentRequests, Waiting};
use super::trace::{Trace, TracedKind};
use super::{FileSlot, Holder, Kind, LaneNumber};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use uraid_block::{SECTOR_BYTES, Sector, Sectors, Tick};

/// A device simulated in this process, in place of the ring: see `mem:SIZE,request=TIME`.
pub(crate) trait Trial {
    /// When a request of `bytes` bytes that is submitted `now` ends. Requests end one after the other.
    fn due(&self, now: Tick, bytes: u64) -> Tick;

    /// Runs a request, and returns what the kernel would: a count of bytes, or a negative errno.
    ///
    /// # Safety
    /// The segments describe live buffers. Nothing else uses the buffers of a read or writes those of a write.
    unsafe fn run(&self, kind: &Kind, segments: &[libc::iovec]) -> i32;
}

/// The most requests of one member that the system may have at once: a member that hangs must not block all its
/// threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Depth(pub(crate) u32);

impl Depth {
    /// Each request through the page cache occupies a kernel thread while it waits.
    pub(crate) const CACHED: Depth = Depth(32);
    /// A direct request occupies a kernel thread only when a queue is full.
    pub(crate) const DIRECT: Depth = Depth(256);
}

/// One member as one shard reaches it.
pub(crate) struct Lane {
    number: LaneNumber,
    /// The member's name in messages.
    pub(super) name: Rc<str>,
    // Dropped before the file is closed, because the file's locks end only when its last user has closed it.
    slot: Option<FileSlot>,
    holder: Holder,
    // The file's byte at which the member starts.
    base: u64,
    pub(super) limits: Limits,
    pub(super) trial: Option<Box<dyn Trial>>,
    is_remote: bool,
    trace: Option<Rc<Trace>>,
    /// The count of unanswered changes, see `answers`; shared by all shards' lanes of one member.
    pub(super) unanswered_changes: Arc<AtomicUsize>,
    /// Requests that were started in this turn, and held ones.
    pub(super) waiting: RefCell<Vec<Waiting>>,
    pub(super) recent: RefCell<RecentRequests>,
}

impl AsRawFd for Lane {
    fn as_raw_fd(&self) -> RawFd {
        self.holder.as_raw_fd()
    }
}

impl Lane {
    /// `base`: the byte at which the member starts in the file that `holder` keeps open.
    pub(crate) fn new(holder: Holder, base: u64, limits: Limits, trial: Option<Box<dyn Trial>>) -> Lane {
        Lane {
            number: LaneNumber::NONE,
            name: "".into(),
            slot: None,
            holder,
            base,
            limits,
            trial,
            is_remote: false,
            trace: None,
            unanswered_changes: Arc::default(),
            waiting: RefCell::default(),
            recent: RefCell::default(),
        }
    }

    /// Adds a trace if `is_traced`.
    pub(crate) fn traced(self, is_traced: bool) -> Lane {
        Lane { trace: is_traced.then(Rc::default), ..self }
    }

    /// Marks a file on a file system that waits for a server or a process (NFS, FUSE). Its requests go to the kernel's
    /// worker threads at once: some, such as reads of a FUSE file without FUSE_ASYNC_READ, would otherwise block the
    /// shard while they are submitted.
    pub(crate) fn remote(self, is_remote: bool) -> Lane {
        Lane { is_remote, ..self }
    }

    /// See [`Lane::remote`].
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Sets the count that all shards' lanes of its member share.
    pub(crate) fn sharing(self, unanswered_changes: Arc<AtomicUsize>) -> Lane {
        Lane { unanswered_changes, ..self }
    }

    /// Sets the member's name.
    pub(crate) fn called(self, name: &str) -> Lane {
        Lane { name: name.into(), ..self }
    }

    pub(super) fn numbered(self, number: LaneNumber) -> Lane {
        Lane { number, ..self }
    }

    #[inline]
    pub(super) fn number(&self) -> LaneNumber {
        self.number
    }

    /// Sets the file's slot in the ring.
    pub(crate) fn with_slot(self, slot: Option<FileSlot>) -> Lane {
        Lane { slot, ..self }
    }

    /// The file's slot in the ring, if it has one.
    #[inline]
    pub(super) fn slot(&self) -> Option<u32> {
        self.slot.as_ref().map(|slot| slot.slot)
    }

    /// The lane's trace, if it has one.
    pub(crate) fn trace(&self) -> Option<&Rc<Trace>> {
        self.trace.as_ref()
    }

    /// Notes a submitted request; `at` in bytes of the file.
    #[inline]
    pub(crate) fn note(&self, kind: TracedKind, at: u64, bytes: u64, parts: u32) {
        if let Some(trace) = &self.trace {
            let sector = |bytes| bytes / SECTOR_BYTES as u64;
            trace.note(kind, Sector(sector(at - self.base)), Sectors(sector(bytes)), parts);
        }
    }

    /// The place of the member's byte 0.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Notes a part of a merged request that is submitted again.
    pub(super) fn note_parted(&self, kind: TracedKind, at: u64, bytes: u64) {
        self.note(kind, at, bytes, 1);
        if let Some(trace) = &self.trace {
            trace.note_parted();
        }
    }

    /// Notes a flush.
    #[inline]
    pub(crate) fn note_flush(&self) {
        self.note(TracedKind::Flush, self.base, 0, 1);
    }
}
