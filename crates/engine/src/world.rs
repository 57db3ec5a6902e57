//! What the engine needs from the machine it runs on: the only door to time, tasks, other shards and memory.
//! Owns: [`World`], [`Pool`]. Not here: any machine; production's and the simulator's are above.
//! Invariant: mail from one shard to another arrives once and in order.

pub use crate::mail::Mail;
use std::future::Future;
use std::time::Duration;
use uraid_block::{Arena, Device, ShardIndex, Tick};

/// Which buffers: each kind of work has its own, so that none can starve another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// A request's own scratch on the shard that received it.
    Request,
    /// Rows: old data, parity, recovery.
    Row,
    /// Superblocks.
    Metadata,
    /// Resync and other passes.
    Pass,
}

impl Pool {
    /// How many kinds there are.
    pub const COUNT: usize = 4;

    /// Its place in a list of all kinds, from 0.
    pub fn index(self) -> usize {
        match self {
            Pool::Request => 0,
            Pool::Row => 1,
            Pool::Metadata => 2,
            Pool::Pass => 3,
        }
    }
}

/// The machine as one shard sees it. Clones are handles of the same shard.
pub trait World: Clone + 'static {
    /// A member as this shard drives it.
    type Member: Device + 'static;

    /// The monotonic clock.
    fn now(&self) -> Tick;

    /// The same as of the beginning of this turn of the shard, where reading the clock costs something: to measure by,
    /// not to wait by.
    fn turn_time(&self) -> Tick {
        self.now()
    }

    /// Seconds since 1970, for the superblock's update time only: never to decide what is newer.
    fn unix_seconds(&self) -> u64;

    /// Ends after `time` has passed.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()>;

    /// Which shard this is.
    fn shard(&self) -> ShardIndex;

    /// How many shards there are.
    fn shards(&self) -> u16;

    /// Starts a task on this shard.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Sends mail to a shard, also to this one; it arrives at that shard's `Array::deliver`, later, in order.
    fn post(&self, to: ShardIndex, mail: Mail);

    /// The buffers of this shard for one kind of work.
    fn arena(&self, pool: Pool) -> &Arena;
}
