//! What a running array and its process have counted.
//! Owns: the fields of these counts and their JSON. Not here: counting (`uraid_engine`, `uraid_export_nbd`), their lines
//! in `uraid detail` (`report`), the requests to each member (`member_io`).

use serde::{Deserialize, Serialize};

/// What the request paths of a running array have counted since it was started, over all shards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// Reads served.
    pub reads: u64,
    /// Writes, zeroes and discards served.
    pub writes: u64,
    /// Rows written without reading: what aligned writes of whole stripes become.
    pub rows_full: u64,
    /// Row parts written by read-modify-write.
    pub rows_modified: u64,
    /// Row parts written after reading the rest of their row.
    pub rows_reconstructed: u64,
    /// Row parts read by computing what a lost member held.
    pub rows_recovered: u64,
    /// Writes that waited for a row, and were written by the task that held it together with its own write.
    pub writes_absorbed: u64,
    /// Reads that failed on one member and were served by others.
    pub reads_retried: u64,
    /// Member reads that failed on the medium.
    pub read_errors: u64,
}

/// How long requests of one kind took, over all shards, from the array's getting them to its answer.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Requests that took no longer than the bound of the same place in [`RequestTimes::bounds_ns`], and longer than the one
    /// before it. The last count, one more than there are bounds, is of those that took longer than all.
    pub counts: Vec<u64>,
    /// All times together, in nanoseconds.
    pub sum_ns: u64,
}

/// How long the requests of a running array took since it was started, also of those that failed.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RequestTimes {
    /// In nanoseconds, growing.
    pub bounds_ns: Vec<u64>,
    /// Reads.
    pub reads: Times,
    /// Writes of data.
    pub writes: Times,
    /// Flushes.
    pub flushes: Times,
}

/// The requests of NBD clients since the process was started, for all its arrays together. A request counts when it is
/// answered, also with an error.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Clients {
    /// Arrays that the process serves.
    pub exports: usize,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections now.
    #[serde(default)]
    pub connected: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Writes of zeroes.
    pub write_zeroes: u64,
    /// Cache requests: read ahead of time.
    pub caches: u64,
    /// Block status requests.
    pub block_statuses: u64,
    /// Requests that were refused before they reached an array.
    pub refused: u64,
    /// Requests that an array failed.
    pub failed: u64,
}
