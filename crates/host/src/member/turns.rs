//! Fairness for operations that complete without waiting.
//! Owns: [`Turns`]. Not here: which operations those are.
//! Invariant: a task yields to the other tasks of its shard even if all its operations complete without waiting.

use std::cell::Cell;
use uraid_block::local::yield_now;

/// The most such operations in a row.
const AT_ONCE_MAX: u32 = 64;

/// Counts the operations of one member on one shard that completed without waiting.
pub(super) struct Turns {
    count: Cell<u32>,
    at_once_max: u32,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { count: Cell::new(0), at_once_max: AT_ONCE_MAX }
    }
}

impl Turns {
    /// Yields before every operation, so that none completes before its future was pending once.
    pub(super) fn of_each() -> Turns {
        Turns { at_once_max: 1, ..Turns::default() }
    }

    /// Call it before each such operation. Yields once per `at_once_max` of them.
    #[inline]
    pub(super) async fn maybe_yield(&self) {
        let count = self.count.get() + 1;
        if count < self.at_once_max {
            self.count.set(count);
            return;
        }
        self.count.set(0);
        yield_now().await;
    }
}
