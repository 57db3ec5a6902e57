//! Memory that behaves like a disk.
//! Owns: [`Memory`]: zeroed pages, shared by all shards, freed by discard. Not here: its claim, its async operations.
//! Invariant: its bytes are accessed only through `copy`, which is opaque to the compiler. Two shards may read and
//! write the same sectors at once, as on a disk. They get either's bytes, never undefined behaviour.

use crate::sys::{self, Errno};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

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
        unsafe { copy(into.as_mut_ptr(), from, into.len()) }
    }

    /// Panics outside the memory.
    pub(super) fn write(&self, at: u64, from: &[u8]) {
        let to = self.address(at, from.len());
        // SAFETY: as above.
        unsafe { copy(to, from.as_ptr(), from.len()) }
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

/// # Safety
/// `target` and `source` are valid for `bytes` bytes and do not overlap. Other threads may change one of them meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") target => _,
            inout("rsi") source => _,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// `target` and `source` are valid for `bytes` bytes and do not overlap. Other threads may change one of them meanwhile.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize) {
    for n in 0..bytes {
        // SAFETY: the caller's promise.
        unsafe { target.add(n).write_volatile(source.add(n).read_volatile()) };
    }
}
