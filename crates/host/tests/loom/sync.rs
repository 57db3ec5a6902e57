//! loom's atomics and locks under the names of `src/sync.rs`, which can be spoilt on purpose.
//! Owns: [`Spoilt`]. Not here: the models.
//! Invariant: not spoilt, each does what loom's does.

pub(crate) use loom::sync::Mutex;
use std::cell::Cell;
pub(crate) use std::sync::RwLock;
use std::sync::atomic::Ordering;

/// A mistake that a model must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spoilt {
    Not,
    /// Fences do nothing.
    NoFence,
    /// Every access is relaxed.
    AllRelaxed,
    /// The count beside the head of a list of free blocks stays 0.
    NoCount,
}

thread_local! {
    // loom runs all threads of a model on the one that explores it.
    static SPOILT: Cell<Spoilt> = const { Cell::new(Spoilt::Not) };
    static STORES_ARE_SWAPS: Cell<bool> = const { Cell::new(false) };
}

/// From now on every store of a bool is a swap. A swap stands right behind what it read, so what its own thread stores
/// later comes behind both. loom does not know that: to it, the stores A1 A2 of one thread and a swap S that read A1
/// may come in the order A1 A2 S, and a load that must see A2 may see S. It does order swaps.
pub(crate) fn stores_are_swaps() {
    STORES_ARE_SWAPS.set(true);
}

pub(crate) fn spoil(how: Spoilt) {
    SPOILT.set(how);
}

pub(crate) fn fence(order: Ordering) {
    if SPOILT.get() != Spoilt::NoFence {
        loom::sync::atomic::fence(order);
    }
}

fn weak(order: Ordering) -> Ordering {
    if SPOILT.get() == Spoilt::AllRelaxed { Ordering::Relaxed } else { order }
}

pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }
    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(weak(order))
    }
    pub(crate) fn store(&self, value: bool, order: Ordering) {
        if STORES_ARE_SWAPS.get() {
            self.0.swap(value, weak(order));
        } else {
            self.0.store(value, weak(order));
        }
    }
    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value, weak(order))
    }
    pub(crate) fn compare_exchange(&self, old: bool, new: bool, set: Ordering, not: Ordering) -> Result<bool, bool> {
        self.0.compare_exchange(old, new, weak(set), weak(not))
    }
}

pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> AtomicU32 {
        AtomicU32(loom::sync::atomic::AtomicU32::new(value))
    }
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(weak(order))
    }
    pub(crate) fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, weak(order));
    }
    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, weak(order))
    }
    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, weak(order))
    }
    pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(value, weak(order))
    }
}

pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> AtomicU64 {
        AtomicU64(loom::sync::atomic::AtomicU64::new(value))
    }
    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(weak(order))
    }
    pub(crate) fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let new = if SPOILT.get() == Spoilt::NoCount { u64::from(new as u32) } else { new };
        self.0.compare_exchange(current, new, weak(success), weak(failure))
    }
}
