//! Cuts clients that are too slow.
//! Owns: the deadlines of handshakes and of last replies; which clients are cut when memory is short.
//! Not here: how memory is shared (`shares`), which connections are admitted (`places`).
//! Invariant: a client that owes nothing, or makes progress, is never cut here. While memory is plentiful, no client is
//! cut in the middle of its work.

use crate::connection::{Connection, Phase};
use crate::machine::{Machine, Transport};
use crate::server::Server;
use std::cmp::Reverse;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::race;
use uraid_block::{Device, Tick};

/// How often the watchdog checks, while there are connections.
const WATCH_EVERY: Duration = Duration::from_millis(500);
/// The same while a request waits for memory that others hold.
const WATCH_EVERY_IF_SHORT: Duration = Duration::from_millis(50);

/// A client that owes the rest of a payload, or taking its replies, as one check found it.
#[derive(Clone, Copy)]
pub(crate) struct Debt {
    /// What shows progress: sends while replies wait for the client, else receives and sends. A client that takes no
    /// replies would otherwise keep all that they hold with one byte a second of a payload.
    moves: u64,
    is_sending: bool,
    /// Sent bytes that it has not received: within one large send they show that a slow client makes progress.
    unsent: usize,
    /// The first check that found it so.
    since: Tick,
    /// The last check found that it had taken too long.
    is_due: bool,
}

impl<M: Machine, T: Transport, D: Device + 'static> Server<M, T, D> {
    /// Checks all connections periodically, until the server stops.
    pub(crate) async fn watch(self: Rc<Self>) {
        while self.has_clients().await {
            // When memory becomes short, check at once: clients that have stalled for long are cut.
            race(self.machine.sleep(WATCH_EVERY), self.shares.shortage()).await;
            self.look();
            if self.shares.is_short() {
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
        // Cut those that hold the most; the next check finds out whether that was enough.
        stalled.sort_by_key(|connection| Reverse(connection.account.held()));
        let mut missing = self.shares.enough();
        for connection in stalled {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(connection.account.held().max(1));
            self.cut(connection);
        }
    }

    fn cut(&self, connection: &Connection<M, T, D>) {
        self.count(|counts| counts.broken += 1);
        connection.kill();
    }

    /// Whether the client made no progress for too long while others wait for memory that it may hold.
    fn has_stalled(&self, connection: &Connection<M, T, D>, now: Tick) -> bool {
        if !connection.payload_is_due.get() && !connection.is_sending.get() {
            connection.debt.set(None);
            return false;
        }
        let (is_sending, unsent) = (connection.is_sending.get(), connection.unsent());
        let moves = if is_sending { connection.sends.get() } else { connection.moves.get() };
        let is_same = |debt: &Debt| (debt.moves, debt.is_sending, debt.unsent) == (moves, is_sending, unsent);
        let before = connection.debt.get().filter(is_same);
        let since = before.map_or(now, |debt| debt.since);
        let time_max = match self.shares.is_over(&connection.account) {
            true => self.limits.stall_time_max,
            false => self.limits.hold_time_max,
        };
        let is_due = now.since(since) > time_max;
        connection.debt.set(Some(Debt { moves, is_sending, unsent, since, is_due }));
        // Due twice in a row: this thread may have been delayed itself and not have seen the client's progress.
        self.shares.is_short() && is_due && before.is_some_and(|debt| debt.is_due)
    }
}
