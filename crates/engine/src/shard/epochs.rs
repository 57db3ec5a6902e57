//! The requests of one shard that are in flight, counted per epoch.
//! Owns: [`Epochs`]: entering, leaving, draining. Not here: when views change (`steward`).
//! Invariant: a request is counted in the epoch it entered until it leaves.
//!
//! ```text
//!   epoch      7        8        9          a shard counts its own requests per epoch, in plain integers
//!   count      2        0        5          drain(9): answered when 7 and 8 are empty
//! ```

use crate::state::view::Epoch;
use std::cell::{Cell, RefCell};
use uraid_block::local::Notify;

/// Requests in flight on this shard, per epoch.
pub(crate) struct Epochs {
    current: Cell<Epoch>,
    /// Requests of the current epoch.
    count: Cell<u64>,
    /// Earlier epochs that still have requests, ascending.
    older: RefCell<Vec<(Epoch, u64)>>,
    drained: Notify,
}

impl Epochs {
    pub(crate) fn new(first: Epoch) -> Epochs {
        Epochs { current: Cell::new(first), count: Cell::new(0), older: RefCell::default(), drained: Notify::new() }
    }

    /// Later requests enter `epoch`.
    pub(crate) fn switch(&self, epoch: Epoch) {
        let before = self.current.replace(epoch);
        assert!(epoch > before, "views arrive in order");
        let count = self.count.replace(0);
        if count > 0 {
            let mut older = self.older.borrow_mut();
            assert!(older.last().is_none_or(|(last, _)| *last < before), "older epochs ascend");
            older.push((before, count));
        }
        self.drained.notify_all();
    }

    #[inline]
    pub(crate) fn enter(&self) -> Epoch {
        self.count.set(self.count.get() + 1);
        self.current.get()
    }

    #[inline]
    pub(crate) fn leave(&self, epoch: Epoch) {
        if epoch == self.current.get() {
            let count = self.count.get();
            assert!(count > 0, "a request leaves its epoch once");
            self.count.set(count - 1);
        } else {
            self.leave_older(epoch);
        }
    }

    #[cold]
    fn leave_older(&self, epoch: Epoch) {
        assert!(epoch < self.current.get(), "a request entered in an epoch of this shard");
        let mut older = self.older.borrow_mut();
        let at = older.iter().position(|(of, _)| *of == epoch).expect("a request leaves its epoch once");
        assert!(older[at].1 > 0, "an epoch without requests is not kept");
        older[at].1 -= 1;
        if older[at].1 == 0 {
            older.remove(at);
            drop(older);
            self.drained.notify_all();
        }
    }

    /// Waits until no request of an epoch before `epoch` is in flight here.
    pub(crate) async fn drain(&self, epoch: Epoch) {
        assert!(epoch <= self.current.get(), "a drain follows its view");
        self.drained.wait_for(|| self.older.borrow().iter().all(|(of, _)| *of >= epoch).then_some(())).await;
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.count.get() + self.older.borrow().iter().map(|(_, count)| count).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_drain_waits_for_older_epochs_only() {
        let epochs = Epochs::new(Epoch(0));
        let old = epochs.enter();
        epochs.switch(Epoch(1));
        let new = epochs.enter();
        let mut drain = pin!(epochs.drain(Epoch(1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(drain.as_mut().poll(&mut context).is_pending());
        epochs.leave(old);
        assert!(drain.as_mut().poll(&mut context).is_ready());
        assert_eq!(epochs.in_flight(), 1);
        epochs.leave(new);
    }
}
