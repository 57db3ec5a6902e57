//! The primitives for state that threads share.
//! Owns: their names, the numbers of threads. Not here: the shared state. host's `tests/loom` substitutes loom's
//! primitives and compiles the same files.

pub(crate) use std::cell::Cell;
pub(crate) use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The number of the calling thread, unique in the process for all time.
#[inline]
pub(crate) fn this_thread() -> u64 {
    match NUMBER.get() {
        0 => number_it(),
        number => number,
    }
}

#[cold]
fn number_it() -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}
