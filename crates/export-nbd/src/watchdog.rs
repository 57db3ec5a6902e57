//! Cuts clients that are too slow.
//! Owns: the deadlines of handshakes and of last replies; which clients are cut when memory is short.
//! Not here: how memory is shared (`shares`), which connections are admitted (`places`).
//! Invariant: a client that owes nothing, or makes progress, is never cut here. While memory is plentiful, no client is
//! cut in the middle of its work.

use crate::connection::{Connection, Phase};
use crate::machine::{Machine, Transport};
use crate::server::Server;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::race;
use uraid_block::{Device, Tick};

/// How often the watchdog checks, while there are connections.
const WATCH_EVERY: Duration = Duration::from_millis(500);
/// The same while a request waits for memory that others hold.
const WATCH_EVERY_IF_SHORT: Duration = Duration::from_millis(50);

/// Each stretch of this length of a payload is progress, and so is its end: 128 KiB/s are enough if the client holds more
/// than its share (64 KiB in half a second, 4 MiB in 32 s), 2.1 KiB/s if not (in 30 s). A byte a second keeps no buffer.
/// While memory is short, bytes are seen 256 KiB at a time at most, so 512 KiB/s are always enough.
const PROGRESS_BYTES: u64 = 64 << 10;

/// A client that has sent less than [`PROGRESS_BYTES`] of a payload for this long gives up its place if one is wanted.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// A client that owes the rest of a payload, or taking its replies, as one check found it.
#[derive(Clone, Copy)]
pub(crate) struct Debt {
    owed: Owed,
    /// The first check that found it so.
    since: Tick,
    /// The last check found that it had taken too long.
    is_due: bool,
}

/// What shows the progress of a client. While it has replies to take, what it sends is none: it would otherwise keep all
/// that they hold with one byte a second of a payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owed {
    Replies {
        sends: u64,
        /// Sent bytes that it has not received: within one large send they show that a slow client makes progress.
        unsent: usize,
    },
    Payload {
        payloads: u64,
        received_bytes: u64,
    },
}

impl Owed {
    fn of<M: Machine, T: Transport, D: Device + 'static>(connection: &Connection<M, T, D>) -> Option<Owed> {
        if connection.is_sending.get() {
            return Some(Owed::Replies { sends: connection.sends.get(), unsent: connection.unsent() });
        }
        let (payloads, received_bytes) = (connection.payloads.get(), connection.received_bytes.get());
        connection.payload_is_due.get().then_some(Owed::Payload { payloads, received_bytes })
    }

    /// Whether the client has made too little progress since `before`.
    fn stands_still(self, before: Owed) -> bool {
        match (before, self) {
            (Owed::Replies { .. }, Owed::Replies { .. }) => self == before,
            (
                Owed::Payload { payloads: before, received_bytes: bytes_before },
                Owed::Payload { payloads, received_bytes },
            ) => payloads == before && received_bytes - bytes_before < PROGRESS_BYTES,
            // A send has ended, or begun: that one has its own time.
            (Owed::Replies { .. }, Owed::Payload { .. }) | (Owed::Payload { .. }, Owed::Replies { .. }) => false,
        }
    }
}

impl<M: Machine, T: Transport, D: Device + 'static> Server<M, T, D> {
    /// Checks all connections periodically, until the server stops.
    pub(crate) async fn watch(self: Rc<Self>) {
        while self.has_clients().await {
            // When memory becomes short, check at once: clients that have stalled for long are cut.
            race(self.machine.sleep(WATCH_EVERY), self.shortage()).await;
            self.look();
            if self.is_short() {
                self.machine.sleep(WATCH_EVERY_IF_SHORT).await;
            }
        }
    }

    /// One check of all connections.
    fn look(&self) {
        let now = self.machine.now();
        let mut stalled = Vec::new();
        let connections = self.connections.borrow();
        for connection in connections.values() {
            let time = now.since(connection.since.get());
            let must_go = match connection.phase.get() {
                Phase::Handshake => time > self.limits.handshake_time_max,
                Phase::Ending => time > self.limits.linger_time_max,
                Phase::Transmission => false,
            };
            if must_go {
                self.cut(connection);
            } else if connection.phase.get() != Phase::Handshake && self.has_stalled(connection, now) {
                stalled.push(connection);
            }
        }
        // Of each device's clients, cut those that hold the most; the next check finds out whether that was enough.
        stalled.sort_by_key(|connection| Reverse(connection.held()));
        let mut returned = BTreeMap::<usize, usize>::new();
        for connection in stalled {
            let returned = returned.entry(self.device_of[connection.export()]).or_default();
            if *returned < self.shares(connection.export()).enough() {
                *returned += connection.held().max(1);
                self.cut(connection);
            }
        }
    }

    /// Whether all that keeps the connection busy is a payload of which nothing comes.
    pub(crate) fn waits_for_a_payload_in_vain(&self, connection: &Connection<M, T, D>) -> bool {
        let Some(debt) = connection.debt.get().filter(|_| connection.owes_only_a_payload()) else { return false };
        let stands_still = Owed::of(connection).is_some_and(|owed| owed.stands_still(debt.owed));
        stands_still && self.machine.now().since(debt.since) >= STALLED_AFTER
    }

    fn cut(&self, connection: &Connection<M, T, D>) {
        self.count(|counts| counts.broken += 1);
        connection.kill();
    }

    /// Whether the client made no progress for too long while others wait for memory that it may hold.
    fn has_stalled(&self, connection: &Connection<M, T, D>, now: Tick) -> bool {
        let Some(owed) = Owed::of(connection) else {
            connection.debt.set(None);
            return false;
        };
        let before = connection.debt.get().filter(|debt| owed.stands_still(debt.owed));
        // The bytes of several checks together may be enough.
        let (owed, since) = before.map_or((owed, now), |debt| (debt.owed, debt.since));
        let time_max = match connection.is_over() {
            true => self.limits.stall_time_max,
            false => self.limits.hold_time_max,
        };
        let is_due = now.since(since) > time_max;
        connection.debt.set(Some(Debt { owed, since, is_due }));
        // Due twice in a row: this thread may have been delayed itself and not have seen the client's progress.
        self.shares(connection.export()).is_short() && is_due && before.is_some_and(|debt| debt.is_due)
    }
}
