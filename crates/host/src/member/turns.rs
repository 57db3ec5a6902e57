//! Operations that end at once, and the tasks that want their turn.
//! Owns: [`Turns`]. Not here: which operations those are.
//! Invariant: a task that only does such operations lets the others of its shard run now and then.

use std::cell::Cell;
use std::task::Poll;

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
            let mut has_waited = false;
            std::future::poll_fn(|context| {
                if std::mem::replace(&mut has_waited, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    }
}
