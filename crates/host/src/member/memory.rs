//! Memory that behaves like a disk.
//! Owns: [`Memory`]: zeroed pages, shared by all shards, freed by discard. Not here: its claim, its async operations.
//! Invariant: its bytes are accessed only through `copy`, which is opaque to the compiler. Two shards may read and
//! write the same sectors at once, as on a disk. Each byte is then that of one of them, and the behaviour is defined.

mod copy;

use crate::sys::{self, Errno};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use uraid_block::Shared;
use uraid_block::buffer::Piece;

/// A RAM disk: a mapped memfd.
pub(super) struct Memory {
    file: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is only reached through `copy`, see the module's invariant.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no address in it is in use any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Memory {
    pub(super) fn new(bytes: u64) -> Result<Memory, Errno> {
        let file = sys::memory_file(bytes)?;
        let bytes = usize::try_from(bytes).map_err(|_| Errno(libc::ENOMEM))?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: advice for the mapping just made. If the system ignores it, pages are small.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        let base = NonNull::new(base.cast()).expect("a mapping is not at address 0");
        Ok(Memory { file, base, bytes })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Panics outside the memory.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) {
        let from = self.address(at, into.len());
        // SAFETY: both ends are valid for the length, and distinct: no slice points into the mapping.
        unsafe { copy::read(into.as_mut_ptr(), from, into.len()) }
    }

    /// Panics outside the memory.
    pub(super) fn write(&self, at: u64, from: &[u8]) {
        let to = self.address(at, from.len());
        // SAFETY: as above.
        unsafe { copy::write(to, from.as_ptr(), from.len()) }
    }

    /// The same of a piece, whose bytes may change meanwhile. Panics outside the memory.
    #[inline]
    pub(super) fn write_piece(&self, at: u64, piece: &Shared) {
        let to = self.address(at, piece.len());
        // SAFETY: as above; no reference to the piece's bytes is made.
        unsafe { copy::write(to, piece.address(), piece.len()) }
    }

    /// Frees the pages; the bytes then read as zeroes.
    pub(super) fn zero(&self, at: u64, length: u64) -> i32 {
        sys::allocate(self.file.as_raw_fd(), libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at, length)
    }

    fn address(&self, at: u64, length: usize) -> *mut u8 {
        let at = usize::try_from(at).expect("inside memory");
        assert!(at <= self.bytes && length <= self.bytes - at);
        // SAFETY: inside the mapping, by the assert.
        unsafe { self.base.add(at) }.as_ptr()
    }
}
