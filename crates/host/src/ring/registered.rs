//! Files and memory registered with an io_uring. With a registered file, a request does not take a reference count that
//! all shards share; with registered memory, it does not pin pages.
//! Owns: [`Registered`]: which file has which slot, which parts of the arenas are registered. Not here: their use
//! (`uring`).
//! Invariant: registered memory is held here, so its addresses stay mapped to the pages that the kernel has.
//!
//! Memory is registered in parts, each when it is first used: memory that is never touched costs nothing and is not
//! pinned. If the system refuses (memlock, an old kernel), requests pass the file descriptor and the addresses as
//! usual.

use io_uring::Submitter;
use std::os::fd::RawFd;
use uraid_block::Arena;

/// One slot for each member with direct I/O; the others have none.
const FILES_MAX: u32 = 1024;
/// Memory is registered in parts of this many bytes.
const PART_BYTES: usize = 1 << 20;
/// The most registered buffers that Linux accepts.
const PARTS_MAX: usize = 1 << 14;

struct Region {
    start: usize,
    bytes: usize,
    /// The number of its first part.
    first: usize,
    _held: Arena,
}

/// What is registered with one ring.
pub(super) struct Registered {
    free_files: Vec<u32>,
    regions: Vec<Region>,
    /// Whether each part is registered.
    parts: Vec<bool>,
    takes_memory: bool,
    /// False after the first refusal, such as a limit: then no more is registered.
    takes_more: bool,
}

impl Registered {
    /// Starts with nothing registered. If the system refuses the tables, nothing will be.
    pub(super) fn new(submitter: &Submitter<'_>) -> Registered {
        let has_files = submitter.register_files_sparse(FILES_MAX).is_ok();
        let free_files = if has_files { (0..FILES_MAX).rev().collect() } else { Vec::new() };
        Registered { free_files, regions: Vec::new(), parts: Vec::new(), takes_memory: false, takes_more: true }
    }

    /// Registers a file and returns its slot; `None` if it cannot be registered.
    pub(super) fn add_file(&mut self, submitter: &Submitter<'_>, fd: RawFd) -> Option<u32> {
        let slot = self.free_files.pop()?;
        if submitter.register_files_update(slot, &[fd]).is_err() {
            self.free_files.push(slot);
            return None;
        }
        Some(slot)
    }

    /// Frees the slot. Requests in flight hold their file themselves.
    pub(super) fn remove_file(&mut self, submitter: &Submitter<'_>, slot: u32) {
        // If this fails, the file stays open with its locks, in a slot that is never reused. There is no remedy.
        if submitter.register_files_update(slot, &[-1]).is_ok() {
            self.free_files.push(slot);
        }
    }

    /// Notes memory that requests will often use. Call this once.
    pub(super) fn announce_memory(&mut self, submitter: &Submitter<'_>, arenas: &[Arena]) {
        assert!(self.regions.is_empty());
        for arena in arenas {
            let (start, bytes) = arena.region();
            let first = self.parts.len();
            let count = bytes.div_ceil(PART_BYTES);
            if first + count <= PARTS_MAX {
                self.parts.resize(first + count, false);
                self.regions.push(Region { start: start.addr(), bytes, first, _held: arena.clone() });
            }
        }
        self.takes_memory = submitter.register_buffers_sparse(self.parts.len() as u32).is_ok();
    }

    /// The number of the registered part that contains all these bytes. Registers the part first if needed.
    #[inline]
    pub(super) fn memory(&mut self, submitter: &Submitter<'_>, at: usize, bytes: usize) -> Option<u16> {
        if !self.takes_memory {
            return None;
        }
        let region = self.regions.iter().find(|region| at.wrapping_sub(region.start) < region.bytes)?;
        let offset = at - region.start;
        let part = offset / PART_BYTES;
        // A block may cross the boundary of two parts if an odd number of pages precedes it in the arena.
        if (offset + bytes - 1) / PART_BYTES != part {
            return None;
        }
        let number = region.first + part;
        let start = region.start + part * PART_BYTES;
        let length = PART_BYTES.min(region.bytes - part * PART_BYTES);
        let is_there = self.parts[number] || (self.takes_more && self.register(submitter, number, start, length));
        is_there.then_some(number as u16)
    }

    #[cold]
    fn register(&mut self, submitter: &Submitter<'_>, number: usize, start: usize, length: usize) -> bool {
        let memory = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(start), iov_len: length };
        // SAFETY: a part of an arena that is held as long as the ring.
        let result = unsafe { submitter.register_buffers_update(number as u32, &[memory], None) };
        self.parts[number] = result.is_ok();
        self.takes_more = result.is_ok();
        result.is_ok()
    }

    /// Bytes of memory that are registered.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().filter(|is_registered| **is_registered).count() * PART_BYTES
    }
}
