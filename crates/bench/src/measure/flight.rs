//! Tracks the requests in flight, to compare the time of a drain with the time until these requests were answered.
//! Owns: [`Flight`], [`Inside`]. Not here: the clients (`drive`), the array's own count of its requests (the engine).
//! Invariant: a request counts from before its device gets it until its client has the answer, or its future is
//! dropped.

use std::cell::Cell;
use uraid_block::local::Notify;

/// The requests of one shard's clients, counted in two halves. [`Flight::pass`] lets new requests count in the other
/// half, and waits until the old half is empty.
#[derive(Default)]
pub(crate) struct Flight {
    is_second: Cell<bool>,
    inside: [Cell<u32>; 2],
    left: Notify,
}

/// A request in flight.
pub(crate) struct Inside<'a> {
    flight: &'a Flight,
    half: usize,
}

impl Flight {
    /// A request begins; it ends when the value is dropped.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let half = usize::from(self.is_second.get());
        self.inside[half].set(self.inside[half].get() + 1);
        Inside { flight: self, half }
    }

    /// How many requests are in flight.
    pub(crate) fn count(&self) -> u32 {
        self.inside.iter().map(Cell::get).sum()
    }

    /// Returns when all requests in flight now are answered; later ones do not count. One call at a time.
    pub(crate) async fn pass(&self) {
        let half = usize::from(self.is_second.replace(!self.is_second.get()));
        self.left.wait_for(|| (self.inside[half].get() == 0).then_some(())).await;
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let inside = &self.flight.inside[self.half];
        inside.set(inside.get() - 1);
        if inside.get() == 0 {
            self.flight.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_pass_waits_for_those_inside_and_for_nobody_who_comes_later() {
        let flight = Flight::default();
        let first = flight.enter();
        let mut pass = pin!(flight.pass());
        let mut look = || pass.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(look().is_pending());
        let later = flight.enter();
        assert_eq!(flight.count(), 2);
        assert!(look().is_pending());
        drop(first);
        assert_eq!(look(), Poll::Ready(()));
        drop(later);
        assert_eq!(flight.count(), 0);
    }
}
