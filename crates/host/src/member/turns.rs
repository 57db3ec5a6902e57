//! Fairness for operations that complete without waiting.
//! Owns: [`Turns`]. Not here: which operations those are.
//! Invariant: a task that does only such operations still yields to the other tasks of its shard.

use std::cell::Cell;
use uraid_block::local::yield_now;

/// The most such operations in a row.
const AT_ONCE_MAX: u32 = 64;

/// Counts the operations of one member on one shard that completed without waiting.
#[derive(Default)]
pub(super) struct Turns(Cell<u32>);

impl Turns {
    /// Call it before each such operation. Yields once per [`AT_ONCE_MAX`] of them.
    #[inline]
    pub(super) async fn maybe_yield(&self) {
        let count = self.0.get() + 1;
        self.0.set(count % AT_ONCE_MAX);
        if count == AT_ONCE_MAX {
            yield_now().await;
        }
    }
}
