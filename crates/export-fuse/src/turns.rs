//! Turns of whole and ragged writes of one file, over all shards.
//! Owns: [`Turns`]. Not here: what a write does (`transfer`).
//! Invariant: while a ragged write runs, no other write of the file does.
//!
//! A ragged write - one that begins or ends inside a sector - reads the sector, changes some of its bytes and writes
//! it. Another write that changes the other bytes meanwhile would be undone. Whole writes run beside each other.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The writes of one file that run, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whole writes that run.
    whole: usize,
    is_ragged: bool,
    /// Ragged writes that wait: whole ones wait behind them.
    ragged_waiting: usize,
    wakers: Vec<Waker>,
}

/// A write's turn, until dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    of: &'a Turns,
    is_ragged: bool,
}

/// Counts a ragged write as waiting, until dropped.
struct Waiting<'a>(&'a Turns);

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of a write of whole sectors.
    pub(crate) async fn whole(&self) -> Turn<'_> {
        poll_fn(|context| self.poll(context, false)).await
    }

    /// The turn of a write that begins or ends inside a sector.
    pub(crate) async fn ragged(&self) -> Turn<'_> {
        self.state().ragged_waiting += 1;
        let _waiting = Waiting(self);
        poll_fn(|context| self.poll(context, true)).await
    }

    fn poll(&self, context: &Context<'_>, is_ragged: bool) -> Poll<Turn<'_>> {
        let mut state = self.state();
        let is_free = !state.is_ragged && if is_ragged { state.whole == 0 } else { state.ragged_waiting == 0 };
        if !is_free {
            state.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        match is_ragged {
            true => state.is_ragged = true,
            false => state.whole += 1,
        }
        Poll::Ready(Turn { of: self, is_ragged })
    }

    /// Changes the state, and lets those that wait look at it again.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.state();
            change(&mut state);
            let may_begin = !state.is_ragged && (state.whole == 0 || state.ragged_waiting == 0);
            if may_begin { std::mem::take(&mut state.wakers) } else { Vec::new() }
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.change(|state| match self.is_ragged {
            true => state.is_ragged = false,
            false => state.whole -= 1,
        });
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.ragged_waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ragged_write_runs_alone_and_before_whole_ones_that_come_later() {
        let (turns, wakes) = (Turns::default(), Arc::new(Wakes::default()));
        let waker = wakes.clone().into();
        let context = &mut Context::from_waker(&waker);
        let Poll::Ready(first) = pin!(turns.whole()).poll(context) else { panic!("nothing runs") };
        let Poll::Ready(second) = pin!(turns.whole()).poll(context) else { panic!("whole ones run together") };
        let mut ragged = pin!(turns.ragged());
        assert!(ragged.as_mut().poll(context).is_pending(), "two whole ones run");
        let mut later = pin!(turns.whole());
        assert!(later.as_mut().poll(context).is_pending(), "a ragged one waits");
        drop(first);
        assert!(ragged.as_mut().poll(context).is_pending(), "a whole one runs");
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        drop(second);
        assert!(wakes.0.load(Ordering::Relaxed) >= 2, "both look again");
        let Poll::Ready(alone) = ragged.as_mut().poll(context) else { panic!("nothing runs") };
        assert!(later.as_mut().poll(context).is_pending() && pin!(turns.ragged()).poll(context).is_pending());
        drop(alone);
        assert!(later.as_mut().poll(context).is_ready(), "the second ragged one was dropped");
    }

    #[test]
    fn a_ragged_write_that_is_dropped_while_it_waits_lets_whole_ones_run() {
        let (turns, wakes) = (Turns::default(), Arc::new(Wakes::default()));
        let waker = wakes.clone().into();
        let context = &mut Context::from_waker(&waker);
        let Poll::Ready(first) = pin!(turns.whole()).poll(context) else { panic!("nothing runs") };
        {
            let mut ragged = pin!(turns.ragged());
            assert!(ragged.as_mut().poll(context).is_pending());
        }
        assert!(pin!(turns.whole()).poll(context).is_ready());
        let mut ragged = Box::pin(turns.ragged());
        assert!(ragged.as_mut().poll(context).is_pending());
        let mut later = pin!(turns.whole());
        assert!(later.as_mut().poll(context).is_pending());
        let before = wakes.0.load(Ordering::Relaxed);
        drop(ragged);
        assert!(wakes.0.load(Ordering::Relaxed) > before, "it may run beside the first one");
        assert!(later.as_mut().poll(context).is_ready());
        drop(first);
    }
}
