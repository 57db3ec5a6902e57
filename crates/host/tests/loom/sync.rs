//! loom's atomics and locks under the names of `src/sync.rs`, which can be sabotaged.
//! Owns: [`Sabotage`]. Not here: the models.
//! Invariant: unless sabotaged, each behaves as loom's does.

pub(crate) use loom::cell::Cell;
pub(crate) use loom::sync::Mutex;
pub(crate) use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mistake that a model must detect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sabotage {
    Not,
    /// Fences do nothing.
    NoFence,
    /// Every access is relaxed.
    AllRelaxed,
    /// The lowest bit of exchanged values is cleared: a block of an arena never says that it is in the list of returned
    /// ones.
    NoBit,
}

thread_local! {
    // loom runs all threads of a model on the one that explores it.
    static SABOTAGE: std::cell::Cell<Sabotage> = const { std::cell::Cell::new(Sabotage::Not) };
    static STORES_ARE_SWAPS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Turns every later store of a bool into a swap. A swap directly follows the value that it read, so a later store of the
/// same thread follows both. loom does not know that: with the stores X1 X2 of one thread and a swap S that read X1, it
/// allows the order X1 X2 S, and a load that must see X2 may see S. It does order swaps correctly.
pub(crate) fn stores_are_swaps() {
    STORES_ARE_SWAPS.set(true);
}

pub(crate) fn set_sabotage(how: Sabotage) {
    SABOTAGE.set(how);
}

pub(crate) fn fence(order: Ordering) {
    if SABOTAGE.get() != Sabotage::NoFence {
        loom::sync::atomic::fence(order);
    }
}

fn weak(order: Ordering) -> Ordering {
    if SABOTAGE.get() == Sabotage::AllRelaxed { Ordering::Relaxed } else { order }
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
    pub(crate) fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value, weak(order))
    }
    pub(crate) fn compare_exchange_weak(&self, old: u32, new: u32, set: Ordering, not: Ordering) -> Result<u32, u32> {
        let new = if SABOTAGE.get() == Sabotage::NoBit { new & !1 } else { new };
        self.0.compare_exchange(old, new, weak(set), weak(not))
    }
}

loom::thread_local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn this_thread() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
