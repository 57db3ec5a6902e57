//! Cuts clients that are too slow.
//! Owns: the deadlines of handshakes and of last replies; which clients are cut when memory is short.
//! Not here: what is progress (`progress`), how memory is shared (`shares`), which connections are admitted (`admission`).
//! Invariant: a client is never cut here if the server waits for nothing from it, or if it makes progress. While no
//! request waits for memory, no client is cut in the middle of its work.

use crate::clients::connections::Connections;
use crate::connection::{Connection, Phase};
use crate::machine::{Machine, Transport};
use crate::shared::Shared;
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

/// A task: checks all connections periodically, until the server stops.
pub(crate) async fn watch<M: Machine, T: Transport, D: Device + 'static>(
    shared: Rc<Shared<M, D>>,
    connections: Rc<Connections<M, T, D>>,
) {
    let has_clients = || match connections.count() {
        0 => shared.is_stopping().then_some(false),
        _ => Some(true),
    };
    while shared.wait_for(has_clients).await {
        // When memory becomes short, check at once: clients that have stalled for long are cut.
        race(shared.machine().sleep(WATCH_EVERY), shared.shortage()).await;
        check(&shared, &connections.all());
        if shared.is_short() {
            shared.machine().sleep(WATCH_EVERY_IF_SHORT).await;
        }
    }
}

/// One check of all connections.
fn check<M: Machine, T: Transport, D: Device + 'static>(
    shared: &Shared<M, D>,
    connections: &[Rc<Connection<M, T, D>>],
) {
    let now = shared.machine().now();
    let mut stalled = Vec::new();
    for connection in connections {
        let time = now.since(connection.since());
        let must_go = match connection.phase() {
            Phase::Handshake => time > shared.limits().handshake_time_max,
            Phase::Ending => time > shared.limits().linger_time_max,
            Phase::Transmission => false,
        };
        if must_go {
            cut(connection);
        } else if connection.phase() != Phase::Handshake && has_stalled(connection, now) {
            stalled.push(connection);
        }
    }
    // Cut those clients of each device that hold the most. The next check finds out whether that was enough.
    stalled.sort_by_key(|connection| Reverse(connection.held()));
    let mut returned = BTreeMap::<usize, usize>::new();
    for connection in stalled {
        let device = connection.device();
        let returned = returned.entry(device.index()).or_default();
        if *returned < device.shares().bytes_to_reclaim() {
            *returned += connection.held().max(1);
            cut(connection);
        }
    }
}

fn cut<M: Machine, T: Transport, D: Device + 'static>(connection: &Connection<M, T, D>) {
    connection.shared().count(|counts| counts.broken += 1);
    connection.kill();
}

/// Whether the client has made no progress for too long while others wait for memory of the kind that it holds.
fn has_stalled<M: Machine, T: Transport, D: Device + 'static>(connection: &Connection<M, T, D>, now: Tick) -> bool {
    let Some(awaited) = connection.awaited() else {
        connection.progress().forget_stall();
        return false;
    };
    let (limits, shares) = (connection.shared().limits(), connection.device().shares());
    let time_max = match connection.exceeds_share() {
        true => limits.stall_time_max,
        false => limits.hold_time_max,
    };
    connection.progress().has_stalled(awaited, now, time_max) && shares.is_short()
}
