//! The connections of one server.
//! Owns: [`Connections`]: their numbers, and what each currently does. Not here: which connection is closed for a new
//! one (`admission`), one connection's state (`connection`).
//! Invariant: a connection is in the list from its arrival to its end. Numbers are in the order of arrival.

use crate::clients::admission::{Activity, Candidate};
use crate::connection::{Connection, Phase};
use crate::machine::{Machine, Transport};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uraid_block::{Device, Tick};

type ByNumber<M, T, D> = BTreeMap<u64, Rc<Connection<M, T, D>>>;

pub(crate) struct Connections<M: Machine, T: Transport, D: Device + 'static> {
    by_number: RefCell<ByNumber<M, T, D>>,
    next: Cell<u64>,
}

impl<M: Machine, T: Transport, D: Device + 'static> Connections<M, T, D> {
    pub(crate) fn new() -> Connections<M, T, D> {
        Connections { by_number: RefCell::default(), next: Cell::new(0) }
    }

    /// Adds one; returns its number.
    pub(crate) fn add(&self, connection: Rc<Connection<M, T, D>>) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        let before = self.by_number.borrow_mut().insert(number, connection);
        assert!(before.is_none(), "a number is given once");
        number
    }

    /// Removes one that has ended.
    pub(crate) fn remove(&self, number: u64) {
        let removed = self.by_number.borrow_mut().remove(&number);
        assert!(removed.is_some(), "a connection ends once");
    }

    pub(crate) fn count(&self) -> usize {
        self.by_number.borrow().len()
    }

    /// How many have a client that may write.
    pub(crate) fn writers(&self) -> usize {
        self.by_number.borrow().values().filter(|connection| connection.may_write()).count()
    }

    /// All of them now, in the order of their arrival.
    pub(crate) fn all(&self) -> Vec<Rc<Connection<M, T, D>>> {
        self.by_number.borrow().values().cloned().collect()
    }

    /// Ends the one with this number.
    pub(crate) fn kill(&self, number: u64) {
        let connection = self.by_number.borrow()[&number].clone();
        assert!(!connection.is_closing(), "one that ends already makes no room");
        connection.kill();
    }

    /// Those that are not closing.
    pub(crate) fn candidates(&self, now: Tick) -> Vec<Candidate> {
        let connections = self.by_number.borrow();
        let stay = connections.iter().filter(|(_, connection)| !connection.is_closing());
        let candidate = |(&number, connection): (&u64, &Rc<Connection<M, T, D>>)| Candidate {
            number,
            peer: connection.peer(),
            activity: activity_of(connection, now),
        };
        stay.map(candidate).collect()
    }
}

fn activity_of<M: Machine, T: Transport, D: Device + 'static>(connection: &Connection<M, T, D>, now: Tick) -> Activity {
    let last = connection.progress().last_activity();
    match connection.phase() {
        Phase::Handshake => Activity::Handshake,
        Phase::Transmission if connection.is_idle() => Activity::Idle { last },
        Phase::Transmission if has_stopped_sending(connection, now) => Activity::Stalled { last },
        Phase::Transmission | Phase::Ending => Activity::Busy,
    }
}

/// Whether nothing keeps the connection busy but a payload that the client has stopped sending.
fn has_stopped_sending<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    now: Tick,
) -> bool {
    let awaited = connection.awaited().filter(|_| connection.has_only_a_due_payload());
    awaited.is_some_and(|awaited| connection.progress().has_stopped_sending(awaited, now))
}
