//! The limits of one server's clients, and the memory and tasks that they cost.
//! Owns: [`Limits`], the memory and the tasks that follow from them. Not here: the clients' arena, which the machine
//! brings; enforcing the limits (`admission`, `watchdog`, `connection`).
//! Invariant: the counted memory is that of all connections when each has all its requests in flight.

use crate::request::clear_queue;
use std::time::Duration;

/// A connection without its waiting requests.
const CONNECTION_BYTES: u64 = 8 << 10;
/// Connections that may still be ending while new ones arrive.
pub(crate) const SPARE_CONNECTIONS: usize = 16;
/// The most connections with a large inbox at a time: those whose clients send much at once.
const LARGE_INBOXES_MAX: u32 = 256;

/// Limits of one server, that is of one shard.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once. An idle one costs a block of 4 KiB and some hundred bytes, a busy one at most
    /// [`Limits::connection_bytes`].
    pub connections_max: usize,
    /// Connections at once of one peer: a user, or a host.
    pub peer_connections_max: usize,
    /// Connections in their handshake at once; one more replaces the oldest of them.
    pub handshakes_max: usize,
    /// Requests in flight on one connection; further ones stay in the socket.
    pub requests_max: usize,
    /// How long a handshake may take from the first byte to the last.
    pub handshake_time_max: Duration,
    /// How long a client that holds more than its share of the memory may make no progress while another client waits
    /// for memory: it neither sends the rest of a payload nor takes replies.
    pub stall_time_max: Duration,
    /// The same for a client that holds at most its share.
    pub hold_time_max: Duration,
    /// How long replies may take to leave after the client's last request.
    pub linger_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 4096,
            peer_connections_max: 2048,
            handshakes_max: 512,
            requests_max: 128,
            handshake_time_max: Duration::from_secs(10),
            stall_time_max: Duration::from_millis(500),
            hold_time_max: Duration::from_secs(30),
            linger_time_max: Duration::from_secs(10),
        }
    }
}

/// Tasks for the requests of a shard's clients, for each client; half of them are for reads. 4,096 clients have 16,384
/// tasks. Each half is more than the reads or writes that fit into memory, so reads and writes do not wait for a task,
/// unless flushes that wait for a member occupy the half for writes.
const TASKS_PER_CONNECTION: usize = 4;
/// The least number of tasks, which take 18 MiB; fewer only if the clients can have fewer requests in flight. So the 32
/// clients of the lowest `--memory-limit` have tasks left when all their requests wait for a member that hangs.
const TASKS_MIN: usize = 4096;
/// A task that runs requests.
const TASK_BYTES: usize = 4400;
/// A request that waits for a task.
pub(crate) const JOB_BYTES: usize = 192;

impl Limits {
    /// What one connection takes besides its blocks, in bytes: its own state, its tasks and lists, and the queue that
    /// it needs if all of its requests are trims and write-zeroes that wait.
    pub fn connection_bytes(&self) -> u64 {
        let waiting = clear_queue::queue_bytes(self.requests_max).max(self.requests_max * JOB_BYTES);
        let tasks = self.tasks_max().div_ceil(self.connections_max) * TASK_BYTES;
        CONNECTION_BYTES + (waiting + tasks) as u64
    }

    /// How many requests of a shard's clients run at once, besides trims and write-zeroes: half of them reads. Others
    /// wait without a task.
    pub fn tasks_max(&self) -> usize {
        let all = self.connections_max * self.requests_max;
        let tasks = (TASKS_PER_CONNECTION * self.connections_max).max(TASKS_MIN).min(all);
        assert!(tasks > 0, "a server has a connection, and that a request");
        tasks
    }

    /// The server's own memory on each shard, besides the clients' arena: small blocks and large ones.
    pub fn own_blocks(&self) -> (u32, u32) {
        let blocks = u32::try_from(self.connections_max + SPARE_CONNECTIONS).expect("connections are few");
        (2 * blocks, blocks.min(LARGE_INBOXES_MAX))
    }
}
