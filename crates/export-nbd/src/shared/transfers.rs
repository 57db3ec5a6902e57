//! Reads and writes in flight on the devices: those of one connection, and those of all.
//! Owns: [`Transfers`]: whether other clients read or write beside a connection's trims and zeroes.
//! Not here: what follows from it (`clear_pieces`, `reader`).
//! Invariant: one connection never has more in flight than all connections together.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::Tick;

/// Other clients count as reading or writing for this time after their last answer, because a client at depth 1 has
/// nothing in flight between two requests.
const BESIDE_OTHERS: Duration = Duration::from_millis(100);

/// The reads and writes in flight of all connections of a server. Clones are the same count.
#[derive(Clone, Default)]
pub(crate) struct AllTransfers(Rc<Cell<usize>>);

/// One connection's reads and writes.
pub(crate) struct Transfers {
    in_flight: Cell<usize>,
    in_flight_of_all: AllTransfers,
    answered: Cell<u64>,
    /// The answers to other clients at the last call of [`Transfers::is_contended`], and when a call last found new
    /// ones.
    answered_to_others: Cell<u64>,
    others_answered_at: Cell<Option<Tick>>,
}

impl Transfers {
    /// For a new connection.
    pub(crate) fn new(all: AllTransfers) -> Transfers {
        Transfers {
            in_flight: Cell::new(0),
            in_flight_of_all: all,
            answered: Cell::new(0),
            answered_to_others: Cell::new(0),
            others_answered_at: Cell::new(None),
        }
    }

    /// A read or write of the connection begins.
    pub(crate) fn begin(&self) {
        self.in_flight.update(|count| count + 1);
        self.in_flight_of_all.0.update(|count| count + 1);
        assert!(self.in_flight.get() <= self.in_flight_of_all.0.get());
    }

    /// A read or write of the connection was answered.
    pub(crate) fn end(&self) {
        assert!(self.in_flight.get() > 0, "what ends has begun");
        self.answered.update(|count| count + 1);
        self.in_flight.update(|count| count - 1);
        self.in_flight_of_all.0.update(|count| count - 1);
    }

    /// Whether others have reads or writes in flight.
    pub(crate) fn has_others(&self) -> bool {
        self.in_flight_of_all.0.get() > self.in_flight.get()
    }

    /// Whether others have reads or writes in flight, or had one answered in the last [`BESIDE_OTHERS`].
    /// `answered_to_all`: how many were answered on all connections.
    pub(crate) fn is_contended(&self, answered_to_all: u64, now: Tick) -> bool {
        assert!(answered_to_all >= self.answered.get());
        let others = answered_to_all - self.answered.get();
        if self.answered_to_others.replace(others) != others {
            self.others_answered_at.set(Some(now));
        }
        let is_recent = self.others_answered_at.get().is_some_and(|at| now.since(at) <= BESIDE_OTHERS);
        is_recent || self.has_others()
    }
}
