//! Pending requests of devices with a simulated cost.
//! Owns: [`Trials`]: when each request is due. Not here: how long requests take and what they do (`lane::Trial`).
//! Invariant: requests of one shard end in the order of their due times; with equal times, in the order of their start.

use super::lane::Lane;
use crate::sys;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;
use uraid_block::Tick;

/// A request in flight.
pub(super) struct Pending {
    due: Tick,
    number: u64,
    pub(super) token: u32,
    pub(super) lane: Rc<Lane>,
}

impl Pending {
    fn key(&self) -> (Tick, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Pending) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    /// Reversed, because `BinaryHeap` pops the greatest, and the one that is due first must be popped.
    fn cmp(&self, other: &Pending) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The pending requests of one shard.
#[derive(Default)]
pub(super) struct Trials {
    pending: RefCell<BinaryHeap<Pending>>,
    numbers: Cell<u64>,
}

impl Trials {
    pub(super) fn start(&self, due: Tick, token: u32, lane: Rc<Lane>) {
        let number = self.numbers.get();
        if number == 0 {
            // The requests' times are shorter than the default slack of a sleep.
            sys::sleep_precisely();
        }
        self.numbers.set(number + 1);
        self.pending.borrow_mut().push(Pending { due, number, token, lane });
    }

    /// When the next request ends.
    pub(super) fn next(&self) -> Option<Tick> {
        self.pending.borrow().peek().map(|pending| pending.due)
    }

    /// The next request that has ended by `now`.
    pub(super) fn take(&self, now: Tick) -> Option<Pending> {
        let mut pending = self.pending.borrow_mut();
        if pending.peek()?.due <= now { pending.pop() } else { None }
    }
}
