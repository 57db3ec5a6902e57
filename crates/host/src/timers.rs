//! Waiting for time to pass, on one shard.
//! Owns: [`Timers`]. Not here: the clock (`sys`), sleeping until the next one is due (`shard`).
//! Invariant: timers that are due fire in the order of their deadlines; a dropped sleep leaves nothing behind.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::{Poll, Waker};
use uraid_block::Tick;

/// The timers of one shard.
#[derive(Default)]
pub(crate) struct Timers {
    waiting: RefCell<BTreeMap<(Tick, u64), Waker>>,
    numbers: Cell<u64>,
}

struct Registered<'a> {
    timers: &'a Timers,
    key: Option<(Tick, u64)>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timers.waiting.borrow_mut().remove(&key);
        }
    }
}

impl Timers {
    /// Ends at the first turn at or after `deadline`.
    pub(crate) async fn sleep_until(&self, deadline: Tick, now: impl Fn() -> Tick) {
        let mut registered = Registered { timers: self, key: None };
        std::future::poll_fn(|context| {
            if now() >= deadline {
                return Poll::Ready(());
            }
            let key = *registered.key.get_or_insert_with(|| {
                let number = self.numbers.get();
                self.numbers.set(number + 1);
                (deadline, number)
            });
            self.waiting.borrow_mut().insert(key, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// When the next timer is due.
    pub(crate) fn next(&self) -> Option<Tick> {
        self.waiting.borrow().first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Wakes all that are due.
    pub(crate) fn fire(&self, now: Tick) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(first) = waiting.first_entry()
            && first.key().0 <= now
        {
            first.remove().wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn a_dropped_sleep_leaves_no_timer() {
        let timers = Timers::default();
        let clock = Cell::new(Tick(5));
        {
            let mut sleep = pin!(timers.sleep_until(Tick(10), || clock.get()));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(timers.next(), Some(Tick(10)));
            timers.fire(Tick(9));
            assert_eq!(timers.next(), Some(Tick(10)), "not due yet");
        }
        assert_eq!(timers.next(), None);
        let mut sleep = pin!(timers.sleep_until(Tick(10), || clock.get()));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        clock.set(Tick(10));
        timers.fire(Tick(10));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
