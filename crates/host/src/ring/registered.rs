//! What an io_uring knows beforehand: files, so that no request counts a reference that other shards count too, and
//! memory, so that no request pins its pages.
//! Owns: [`Registered`]: which file has which slot, which parts of the arenas are registered. Not here: who uses it (`uring`).
//! Invariant: memory that is registered is held here, so an address in it means the pages that the kernel has.
//!
//! Memory is registered in parts, each when it is first used: what is never touched costs nothing, and is not pinned.
//! Where the system refuses (memlock, an old kernel), requests name their file and memory themselves, as ever.

use io_uring::Submitter;
use std::os::fd::RawFd;
use uraid_block::Arena;

/// A slot for each direct member; the others have none.
const FILES_MAX: u32 = 1024;
/// Bytes that are registered at once.
const PART_BYTES: usize = 1 << 20;
/// The most that Linux takes.
const PARTS_MAX: usize = 1 << 14;

struct Region {
    start: usize,
    bytes: usize,
    /// Its first part among those of all regions.
    first: usize,
    _held: Arena,
}

/// What one ring knows.
pub(super) struct Registered {
    free_files: Vec<u32>,
    regions: Vec<Region>,
    /// Whether each part is registered.
    parts: Vec<bool>,
    takes_memory: bool,
    /// What is refused once, as a limit is, would be refused again and again.
    takes_more: bool,
}

impl Registered {
    /// Nothing yet, but room for it; or no room where the system gives none.
    pub(super) fn new(submitter: &Submitter<'_>) -> Registered {
        let has_files = submitter.register_files_sparse(FILES_MAX).is_ok();
        let free_files = if has_files { (0..FILES_MAX).rev().collect() } else { Vec::new() };
        Registered { free_files, regions: Vec::new(), parts: Vec::new(), takes_memory: false, takes_more: true }
    }

    /// The slot of a file from now on; `None`: it has none.
    pub(super) fn add_file(&mut self, submitter: &Submitter<'_>, fd: RawFd) -> Option<u32> {
        let slot = self.free_files.pop()?;
        if submitter.register_files_update(slot, &[fd]).is_err() {
            self.free_files.push(slot);
            return None;
        }
        Some(slot)
    }

    /// The slot is free again. Requests under way hold their file themselves.
    pub(super) fn remove_file(&mut self, submitter: &Submitter<'_>, slot: u32) {
        // Else the file would stay open with its locks, in a slot that is never used again: nothing to be done about it.
        if submitter.register_files_update(slot, &[-1]).is_ok() {
            self.free_files.push(slot);
        }
    }

    /// Memory that requests will often use. To be called once.
    pub(super) fn expect_memory(&mut self, submitter: &Submitter<'_>, arenas: &[Arena]) {
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

    /// The number of the registered memory that has all these bytes.
    #[inline]
    pub(super) fn memory(&mut self, submitter: &Submitter<'_>, at: usize, bytes: usize) -> Option<u16> {
        if !self.takes_memory {
            return None;
        }
        let region = self.regions.iter().find(|region| at.wrapping_sub(region.start) < region.bytes)?;
        let offset = at - region.start;
        let part = offset / PART_BYTES;
        // Blocks may lie across the edge of two parts where an arena has an odd number of pages before them.
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
