//! The engine's only access to the machine: time, tasks, other shards and memory.
//! Owns: [`World`], [`Pool`]. Not here: any machine; `host` and `sim` implement the trait.
//! Invariant: mail from one shard to another arrives once and in order.

pub use crate::shard::mail::Mail;
use std::future::Future;
use std::time::Duration;
use uraid_block::{Arena, Device, ShardIndex, Tick};

/// A pool of buffers. Each kind of work has its own, so that none can starve another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// A request's scratch on the shard that received it.
    Request,
    /// Rows: old data, parity, recovery.
    Row,
    /// Superblocks.
    Metadata,
    /// Resync and other passes.
    Pass,
}

impl Pool {
    /// The number of pools.
    pub const COUNT: usize = 4;

    /// Its index in a list of all pools.
    pub const fn index(self) -> usize {
        match self {
            Pool::Request => 0,
            Pool::Row => 1,
            Pool::Metadata => 2,
            Pool::Pass => 3,
        }
    }
}

const _: () = assert!(Pool::Pass.index() + 1 == Pool::COUNT, "a list of all pools has no gap");

/// The machine as one shard sees it. Clones are handles of the same shard.
pub trait World: Clone + 'static {
    /// A member as this shard drives it.
    type Member: Device + 'static;

    /// The monotonic clock.
    fn now(&self) -> Tick;

    /// The clock at the start of this turn of the shard, for measurements only. It may be cheaper than [`World::now`],
    /// and must not be used for deadlines.
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
