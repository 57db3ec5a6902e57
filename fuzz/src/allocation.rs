//! The largest single allocation that an input causes.
//! Owns: the counting allocator, the bound. Not here: the reaction to a violation (`main`, tests).
//! Invariant: counting allocates nothing itself.

#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The most bytes of a single allocation that hostile bytes may lead to.
pub const BYTES_MAX: usize = 1 << 20;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which records the largest allocation of each thread. A program makes it the global one.
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

/// Runs work whose allocations do not count for [`largest_of`]: what exists before any hostile byte arrives.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let before = LARGEST.get();
    let value = work();
    LARGEST.set(before);
    value
}

/// The size of the largest allocation by this thread during `work`; 0 if [`Watched`] is not the global allocator.
pub fn largest_of(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}
