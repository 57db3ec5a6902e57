//! Operations that end at once, and the tasks that want their turn.
//! Owns: [`Turns`]. Not here: which operations those are.
//! Invariant: a task that only does such operations lets the others of its shard run now and then.

use std::cell::Cell;
use uraid_block::local::yield_now;

/// So many may follow each other.
const AT_ONCE_MAX: u32 = 64;

/// Counts the operations of one member on one shard that did not wait.
#[derive(Default)]
pub(super) struct Turns(Cell<u32>);

impl Turns {
    /// Before each such operation.
    #[inline]
    pub(super) async fn breathe(&self) {
        let count = self.0.get() + 1;
        self.0.set(count % AT_ONCE_MAX);
        if count == AT_ONCE_MAX {
            yield_now().await;
        }
    }
}
