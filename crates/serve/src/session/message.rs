//! The messages between the shards of a process that serves.
//! Owns: [`Message`]: what shards tell each other about clients and counts. Not here: when they are sent, and what
//! follows (`session`), the engine's mail (`uraid_arrays`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use uraid_arrays::{ArrayIndex, ArrayMail};
use uraid_block::ShardIndex;
use uraid_engine::{Counters, MemberCounts, RequestTimes};
use uraid_export_nbd::Statistics;
use uraid_host::Claimed;

/// The unfinished work of a shard's clients when the time limit of a stop is over.
#[derive(Clone, Default, Debug)]
pub(crate) struct ClientsLeft {
    /// Requests that are not done.
    pub requests: usize,
    /// The members that have not answered this shard for a while.
    pub members: BTreeSet<String>,
}

/// What one shard has counted of an array so far.
#[derive(Clone, Debug)]
pub(crate) struct ArrayCounts {
    /// The counts of the array's requests on this shard.
    pub requests: Counters,
    /// How long these took.
    pub times: RequestTimes,
    /// The counts of each member, by index.
    pub members: Vec<MemberCounts>,
}

/// What one shard has counted of some arrays.
pub(crate) type ShardCounts = BTreeMap<ArrayIndex, ArrayCounts>;

impl ArrayCounts {
    /// The counts of one member. A shard that did not have it yet when it counted has none.
    pub(crate) fn member(&self, index: usize) -> MemberCounts {
        self.members.get(index).copied().unwrap_or_default()
    }
}

/// A message between the shards of a process.
pub(crate) enum Message {
    /// The engine's own, of one array.
    Array(ArrayMail),
    /// From shard 0: a client of this frontend that has just connected.
    Client(usize, OwnedFd),
    /// From shard 0: the arrays are started, serve them.
    Serve,
    /// From shard 0: accept no more clients, let the current ones finish.
    Close,
    /// To shard 0: this shard has no more clients.
    Closed(ClientsLeft),
    /// From shard 0: send your counts of this array, or of all.
    CountsWanted(Option<ArrayIndex>),
    /// To shard 0: what a shard has counted so far of the arrays that were asked for, and of its clients.
    Counts(ShardIndex, ShardCounts, Statistics),
    /// From shard 0: this is the device of a member that joins.
    Install(ArrayIndex, usize, Claimed),
    /// From shard 0: let the device of this member go.
    LetGo(ArrayIndex, usize),
    /// To shard 0: either of them is done.
    Seated,
    /// From shard 0: the arrays have been stopped, this shard may end.
    End,
}

impl From<ArrayMail> for Message {
    fn from(mail: ArrayMail) -> Message {
        Message::Array(mail)
    }
}
