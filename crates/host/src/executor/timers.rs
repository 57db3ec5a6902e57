//! Waiting for time to pass, on one shard.
//! Owns: [`Timers`]. Not here: the clock (`sys`), sleeping until the next one is due (`shard`).
//! Invariant: due timers fire in the order of their deadlines. A dropped sleep leaves nothing behind.

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
    /// Completes in the first turn at or after `deadline`.
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

    /// Wakes all tasks whose deadline has passed.
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake};

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

    /// Counts how often its waker was used.
    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Counted {
        fn new() -> (Arc<Counted>, Waker) {
            let counted = Arc::new(Counted::default());
            (counted.clone(), Waker::from(counted))
        }

        fn wakes(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn due_timers_wake_together_each_by_the_waker_that_polled_last() {
        let timers = Timers::default();
        let (old, old_waker) = Counted::new();
        let counts = [(); 4].map(|()| Counted::new());
        let woken = || counts.each_ref().map(|(counted, _)| counted.wakes());
        let mut sleeps = [10, 20, 20, 30].map(|at| Box::pin(timers.sleep_until(Tick(at), || Tick(5))));
        for (sleep, (_, waker)) in sleeps.iter_mut().zip(&counts) {
            for waker in [&old_waker, waker] {
                assert!(sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
        }
        timers.fire(Tick(9));
        assert_eq!(woken(), [0, 0, 0, 0]);
        timers.fire(Tick(20));
        assert_eq!(woken(), [1, 1, 1, 0], "due is also what is due right now");
        assert_eq!(timers.next(), Some(Tick(30)));
        timers.fire(Tick(u64::MAX));
        assert_eq!((woken(), old.wakes()), ([1, 1, 1, 1], 0));
    }
}
