//! The host's shard as the `engine::World` of one array, as in the binary.
//! Owns: [`ShuttleWorld`], [`Message`]. Not here: the shard (the host's own), members (`disk`).
//! Invariant: as in production, the engine's mail travels in the host's mailbox, in order.

use crate::disk::Member;
use crate::shard::Shard;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Arena, ShardIndex, Tick};
use uraid_engine::{Array, Mail, Pool, World};

/// Mail between shards.
pub(crate) enum Message {
    /// The engine's mail.
    Engine(Mail),
    /// To shard 0: the given number of requests was answered, stop now.
    Stop,
    /// To shard 0: fail this slot's member.
    Fail,
    /// To shard 0: the clients of this shard have ended.
    ClientsDone,
    /// From shard 0: the array was stopped, this shard may end.
    End,
}

/// The engine on one of the host's shards.
pub(crate) type ShuttleArray = Array<ShuttleWorld>;

const SMALL_BLOCKS: u32 = 24;
const LARGE_BLOCKS: u32 = 8;

std::thread_local! {
    // Arenas of earlier executions, all blocks free. They are reused because mapping memory costs more than an
    // execution.
    static SPARE: RefCell<Vec<Arena>> = const { RefCell::new(Vec::new()) };
}

struct Inner {
    shard: Shard<Message>,
    // The engine's pools, then the clients'.
    arenas: [Arena; 5],
}

impl Drop for Inner {
    fn drop(&mut self) {
        for arena in self.arenas.iter().filter(|arena| arena.blocks_in_use() == 0) {
            SPARE.with_borrow_mut(|spare| spare.push(arena.clone()));
        }
    }
}

/// One shard. Clones are handles of the same one.
#[derive(Clone)]
pub(crate) struct ShuttleWorld(Rc<Inner>);

impl ShuttleWorld {
    pub(crate) fn new(shard: &Shard<Message>) -> ShuttleWorld {
        let take = |_| SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| Arena::new(SMALL_BLOCKS, LARGE_BLOCKS));
        ShuttleWorld(Rc::new(Inner { shard: shard.clone(), arenas: std::array::from_fn(take) }))
    }

    /// The clients' buffers.
    pub(crate) fn client_arena(&self) -> &Arena {
        &self.0.arenas[4]
    }

    /// Blocks leased now, per pool: request, row, metadata, pass, client.
    pub(crate) fn blocks_in_use(&self) -> [usize; 5] {
        std::array::from_fn(|at| self.0.arenas[at].blocks_in_use())
    }
}

impl World for ShuttleWorld {
    type Member = Member;

    fn now(&self) -> Tick {
        self.0.shard.now()
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        let shard = self.0.shard.clone();
        async move { shard.sleep(time).await }
    }

    fn shard(&self) -> ShardIndex {
        self.0.shard.index()
    }

    fn shards(&self) -> u16 {
        self.0.shard.count()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.shard.spawn(task);
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        self.0.shard.post(to, Message::Engine(mail));
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.0.arenas[pool.index()]
    }
}
