//! The machine as the engine sees it: host's shard in the words of `engine::World`.
//! Owns: [`HostWorld`], what shards of one process tell each other ([`Letter`]). Not here: either side's insides.
//! Invariant: the engine's mail arrives once and in order, because it travels alone in host's mailbox.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::time::Duration;
use uraid_block::{Arena, ShardIndex, Tick};
use uraid_engine::{Counters, Mail, Pool, World};
use uraid_host::{Member, Shard};

/// Mail between the shards of a serving process.
pub enum Letter {
    /// The engine's own.
    Engine(Mail),
    /// From shard 0: a client that has just connected.
    Client(OwnedFd),
    /// From shard 0: take no more clients, let those that are there finish.
    Close,
    /// To shard 0: this shard has no client any more.
    Closed,
    /// From shard 0: say what you have counted.
    CountsWanted,
    /// To shard 0: what a shard has counted so far.
    Counts(ShardIndex, Counters),
    /// From shard 0: the array has been stopped, this shard may end.
    End,
}

/// One shard of the host as a world.
#[derive(Clone)]
pub struct HostWorld(pub Shard<Letter>);

impl World for HostWorld {
    type Member = Member;

    fn now(&self) -> Tick {
        self.0.now()
    }

    fn unix_seconds(&self) -> u64 {
        self.0.unix_seconds()
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self.0.sleep(time)
    }

    fn shard(&self) -> ShardIndex {
        self.0.index()
    }

    fn shards(&self) -> u16 {
        self.0.count()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(task);
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        self.0.post(to, Letter::Engine(mail));
    }

    fn arena(&self, pool: Pool) -> &Arena {
        self.0.arena(match pool {
            Pool::Request => 0,
            Pool::Row => 1,
            Pool::Metadata => 2,
            Pool::Pass => 3,
        })
    }
}
