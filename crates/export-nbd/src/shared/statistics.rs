//! Counters of one server, that is of one shard.
//! Owns: [`Statistics`]. Not here: summing over shards and showing them.
//! Invariant: plain integers of one shard; only that shard writes them.

use std::ops::AddAssign;
use uraid_nbd::Command;

/// What a server has done since it started. The sum over all shards is the total.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections now.
    pub connected: u64,
    /// Those whose client may write.
    pub writers: u64,
    /// Connections that were closed at once because there were too many.
    pub turned_away: u64,
    /// Connections that ended outside of the protocol: invalid bytes, a broken handshake, a deadline.
    pub broken: u64,
    /// Reads that were answered, also with an error.
    pub reads: u64,
    /// Bytes that were read for clients.
    pub read_bytes: u64,
    /// Writes that were answered, also with an error.
    pub writes: u64,
    /// Bytes that were written for clients.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Write-zeroes.
    pub write_zeroes: u64,
    /// Cache requests.
    pub caches: u64,
    /// Block status requests.
    pub statuses: u64,
    /// Requests that were refused before they reached the device.
    pub refused: u64,
    /// Requests that the device failed.
    pub failed: u64,
    /// Sends; one send may carry many replies.
    pub sends: u64,
    /// Receives; one receive may bring many requests.
    pub receives: u64,
}

impl Statistics {
    /// A request of `length` bytes was answered.
    pub(crate) fn answered(&mut self, command: Command, length: u64, is_ok: bool) {
        let bytes = if is_ok { length } else { 0 };
        self.failed += u64::from(!is_ok);
        match command {
            Command::Read => (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes + bytes),
            Command::Write => (self.writes, self.written_bytes) = (self.writes + 1, self.written_bytes + bytes),
            Command::Flush => self.flushes += 1,
            Command::Trim => self.trims += 1,
            Command::WriteZeroes => self.write_zeroes += 1,
            Command::Cache => self.caches += 1,
            Command::BlockStatus => self.statuses += 1,
            Command::Disconnect | Command::Resize | Command::Unknown(_) => unreachable!("these are never begun"),
        }
    }
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Statistics) {
        self.connections += other.connections;
        self.connected += other.connected;
        self.writers += other.writers;
        self.turned_away += other.turned_away;
        self.broken += other.broken;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.flushes += other.flushes;
        self.trims += other.trims;
        self.write_zeroes += other.write_zeroes;
        self.caches += other.caches;
        self.statuses += other.statuses;
        self.refused += other.refused;
        self.failed += other.failed;
        self.sends += other.sends;
        self.receives += other.receives;
    }
}
