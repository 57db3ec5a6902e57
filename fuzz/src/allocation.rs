//! How much memory one input asks for at once.
//! Owns: the watching allocator, the bound. Not here: what is done about it (`main`, tests).
//! Invariant: watching allocates nothing itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The most bytes of a single allocation that hostile bytes may lead to.
pub const BYTES_MAX: usize = 1 << 20;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which remembers the largest allocation of each thread. A program makes it the global one.
pub struct Watched;

fn note(bytes: usize) {
    LARGEST.set(LARGEST.get().max(bytes));
}

// SAFETY: the system's allocator does the work; noting a number touches no memory that it hands out.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, memory: Layout) -> *mut u8 {
        note(memory.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(memory) }
    }

    unsafe fn alloc_zeroed(&self, memory: Layout) -> *mut u8 {
        note(memory.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(memory) }
    }

    unsafe fn realloc(&self, at: *mut u8, memory: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(at, memory, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, memory: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, memory) }
    }
}

/// Work whose allocations do not count for [`largest_of`]: what is there before any hostile byte is.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let before = LARGEST.get();
    let value = work();
    LARGEST.set(before);
    value
}

/// The bytes of the largest allocation that this thread makes meanwhile; 0 where [`Watched`] is not the global allocator.
pub fn largest_of(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}
