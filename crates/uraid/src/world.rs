//! The host's shard as the engine's world: implements `engine::World`.
//! Owns: [`HostWorld`], messages between shards of one process ([`Message`]). Not here: the implementation of either
//! side.
//! Invariant: the engine's mail arrives once and in order, because the host's mailbox keeps the order. No array waits
//! for buffers that another one holds, because each has its own.

use crate::member::ArrayMember;
use std::collections::BTreeSet;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Arena, ShardIndex, Tick};
use uraid_engine::{Array, Counters, Mail, MemberCounts, Pool, World};
use uraid_export_nbd::Statistics;
use uraid_host::{Options, Shard};

/// The engine's array on the host's machine.
pub type HostArray = Array<HostWorld>;

/// The index of an array in the process: member arrays come before those made of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ArrayIndex(pub usize);

/// What a shard's clients have left when the time to finish is over.
#[derive(Clone, Default, Debug)]
pub struct ClientsLeft {
    /// Requests that are not done.
    pub requests: usize,
    /// The members that have not answered this shard for a while.
    pub members: BTreeSet<String>,
}

/// What one shard has counted of an array so far.
#[derive(Clone, Debug)]
pub struct ArrayCounts {
    /// Of its requests.
    pub requests: Counters,
    /// Of each member of its plan.
    pub members: Vec<MemberCounts>,
}

/// A message between the shards of a process.
pub enum Message {
    /// The engine's own, of one array.
    Engine(ArrayIndex, Mail),
    /// From shard 0: a client that has just connected.
    Client(OwnedFd),
    /// From shard 0: accept no more clients, let the current ones finish.
    Close,
    /// To shard 0: this shard has no more clients.
    Closed(ClientsLeft),
    /// From shard 0: send your counts.
    CountsWanted,
    /// To shard 0: what a shard has counted so far, for each array and for its clients.
    Counts(ShardIndex, Vec<ArrayCounts>, Statistics),
    /// From shard 0: the arrays have been stopped, this shard may end.
    End,
}

impl Message {
    /// The engine's mail: the only kind if nothing is served.
    pub fn unserved(self) -> (ArrayIndex, Mail) {
        match self {
            Message::Engine(array, mail) => (array, mail),
            Message::Client(_)
            | Message::Close
            | Message::Closed(_)
            | Message::CountsWanted
            | Message::Counts(..)
            | Message::End => unreachable!("nothing is served"),
        }
    }
}

/// The engine's pools are host's first arenas, by their index.
const POOLS: usize = Pool::COUNT;

/// One shard of the host as the world of one array.
#[derive(Clone)]
pub struct HostWorld {
    shard: Shard<Message>,
    array: ArrayIndex,
    arenas: Rc<[Arena; POOLS]>,
}

impl HostWorld {
    /// The world of one array. The first array uses the shard's own arenas, later ones get separate arenas of the same
    /// size: an array that waits for its member array must not hold the buffers which that one needs.
    pub fn new(shard: &Shard<Message>, array: ArrayIndex, options: &Options) -> HostWorld {
        let arena = |pool: usize| match array {
            ArrayIndex(0) => shard.arena(pool).clone(),
            ArrayIndex(_) => Arena::new(options.arenas[pool].small, options.arenas[pool].large),
        };
        HostWorld { shard: shard.clone(), array, arenas: Rc::new(std::array::from_fn(arena)) }
    }
}

impl World for HostWorld {
    type Member = ArrayMember;

    fn now(&self) -> Tick {
        self.shard.now()
    }

    fn turn_time(&self) -> Tick {
        self.shard.turn_time()
    }

    fn unix_seconds(&self) -> u64 {
        self.shard.unix_seconds()
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self.shard.sleep(time)
    }

    fn shard(&self) -> ShardIndex {
        self.shard.index()
    }

    fn shards(&self) -> u16 {
        self.shard.count()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.shard.spawn(task);
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        self.shard.post(to, Message::Engine(self.array, mail));
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.arenas[pool.index()]
    }
}
