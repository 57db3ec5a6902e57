//! The heap of a program, which ends it with one sentence when it is exhausted.
//! Owns: [`Heap`]. Not here: memory that is asked for before it is needed (`memory`), the arenas (`block`).
//! Invariant: no caller gets a null pointer. Nothing is allocated for the sentence.
//!
//! The standard library would abort instead, with a trace that needs memory itself. What a crash is safe at, this is safe
//! at, too: nothing is flushed or dropped.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

/// The allocator of a program: `#[global_allocator] static HEAP: Heap = Heap;`.
pub struct Heap;

// SAFETY: what it returns, and what it is given back, is the system's, or it does not return.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        there(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        there(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        there(unsafe { System.realloc(at, layout, size) }, size)
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[inline]
fn there(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        end(bytes);
    }
    memory
}

/// Says why, and ends the process with code 1.
#[cold]
#[inline(never)]
fn end(bytes: usize) -> ! {
    let mut room = [0; 160];
    let left = {
        let mut rest = &mut room[..];
        let _ = writeln!(
            rest,
            "uraid: out of memory: {bytes} bytes more are needed; the limits are ulimit -d, ulimit -v and the system's memory"
        );
        rest.len()
    };
    let text = &room[..room.len() - left];
    // SAFETY: the bytes are there for as long as the call takes; `_exit` runs no code of this process.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(1)
    }
}
