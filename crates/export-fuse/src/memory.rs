//! The buffers of one shard's FUSE requests.
//! Owns: [`Memory`]: the arena, who waits when it is full. Not here: what the buffers are for (`inbox`, `transfer`).
//! Invariant: a request that has all of its buffers needs no more to end, so one that waits for memory gets it.

use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, Semaphore, race};
use uraid_block::{Arena, ReadPieces};
use uraid_host::{ArenaBlocks, Local};

/// The memory for requests of each shard, in full size: 36 MiB.
pub const ARENA_BLOCKS: ArenaBlocks = ArenaBlocks { small: 1024, large: 512 };
/// The least with which requests of the longest kind are served: 4.25 MiB.
pub const ARENA_BLOCKS_MIN: ArenaBlocks = ArenaBlocks { small: 64, large: 64 };
/// How long to wait before trying a full arena again, if no request ends: a device may keep buffers longer than that.
const RETRY: Duration = Duration::from_millis(1);
/// After this many retries a request allocates its own memory.
const RETRIES_MAX: u32 = 1000;

/// The buffers of one shard's requests.
pub(crate) struct Memory {
    local: Local,
    arena: Arena,
    /// One request at a time waits for the arena, the others behind it.
    retry: Rc<Semaphore>,
    freed: Notify,
}

impl Memory {
    pub(crate) fn new(local: Local, blocks: ArenaBlocks) -> Memory {
        let arena = Arena::new(blocks.small, blocks.large);
        Memory { local, arena, retry: Semaphore::new(1), freed: Notify::new() }
    }

    /// Buffers if there are any now, and no request waits for some.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<ReadPieces> {
        if self.retry.free() > 0 { self.arena.take(bytes).ok() } else { None }
    }

    /// Buffers of `bytes` bytes, in the order of the calls. Panics on zero bytes.
    pub(crate) async fn take(&self, bytes: usize) -> ReadPieces {
        if let Some(pieces) = self.try_take(bytes) {
            return pieces;
        }
        let _turn = self.retry.acquire(1).await;
        for _ in 0..RETRIES_MAX {
            if let Ok(pieces) = self.arena.take(bytes) {
                return pieces;
            }
            self.wait().await;
        }
        // A device that does not answer keeps its buffers.
        Arena::for_one(bytes).take(bytes).expect("the arena was made for this")
    }

    async fn wait(&self) {
        let mut is_first = true;
        let freed = self.freed.wait_for(|| (!std::mem::take(&mut is_first)).then_some(()));
        match race(freed, self.local.sleep(RETRY)).await {
            Either::Left(()) | Either::Right(()) => {}
        }
    }

    /// A request has ended, and its buffers may be free.
    pub(crate) fn request_ended(&self) {
        self.freed.notify_all();
    }
}
