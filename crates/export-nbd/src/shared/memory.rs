//! The buffers of one server.
//! Owns: [`Memory`]: the server's own blocks, and blocks of the clients' arena for requests that have their permits.
//! Not here: the permits (`shares`), the blocks themselves (`block::buffer`).
//! Invariant: memory for receiving and for reply headers is reserved, so replies can leave even if the clients' arena
//! is full.

use crate::machine::Machine;
use crate::shared::limits::Limits;
use crate::shared::shares::Shares;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::buffer::{LARGE_BLOCK_BYTES, SMALL_BLOCK_BYTES};
use uraid_block::local::Semaphore;
use uraid_block::{Arena, Lease, ReadPieces};

/// How long to wait before trying a full arena again: blocks of other sizes may come back meanwhile.
const ARENA_RETRY: Duration = Duration::from_millis(1);
/// After this many retries a request allocates its own memory.
const ARENA_RETRIES_MAX: u32 = 1000;

/// The memory of one server.
pub(crate) struct Memory<M> {
    machine: M,
    /// Blocks for receiving and for reply headers.
    own: Arena,
    /// The longest list of buffers that all devices accept.
    segments_max: usize,
    /// So that at most one request for small blocks and one for large blocks retry a full arena at a time.
    retries: [Rc<Semaphore>; 2],
}

impl<M: Machine> Memory<M> {
    pub(crate) fn new(machine: M, limits: &Limits, segments_max: usize) -> Memory<M> {
        assert!(segments_max > 0, "a device takes at least one buffer");
        let (small, large) = limits.own_blocks();
        let retries = [Semaphore::new(1), Semaphore::new(1)];
        Memory { machine, own: Arena::new(small, large), segments_max, retries }
    }

    /// A large block of the server's own memory, if one is free.
    pub(crate) fn large_block(&self) -> Option<Lease> {
        self.own_piece(LARGE_BLOCK_BYTES)
    }

    /// A small block of the server's own memory. There is one for every connection, so this waits only while
    /// connections that were cut have not ended yet.
    pub(crate) async fn own_block(&self, bytes: usize) -> Lease {
        assert!(bytes > 0 && bytes <= SMALL_BLOCK_BYTES);
        loop {
            if let Some(block) = self.own_piece(bytes) {
                return block;
            }
            self.machine.sleep(ARENA_RETRY).await;
        }
    }

    fn own_piece(&self, bytes: usize) -> Option<Lease> {
        let pieces = self.own.take(bytes).ok()?;
        if pieces.count() == 1 { pieces.into_iter().next() } else { None }
    }

    /// Buffers for a read or write that has its permits of `shares`. Waits if the arena has enough bytes free, but not
    /// in usable blocks: one request of each class retries, the others wait behind it.
    pub(crate) async fn buffers(&self, shares: &Shares, bytes: usize) -> ReadPieces {
        let retry = &self.retries[usize::from(needs_large_blocks(bytes))];
        if retry.free() > 0
            && let Some(pieces) = self.take(bytes)
        {
            return pieces;
        }
        let _waiting = shares.wait();
        let _retry = retry.acquire(1).await;
        for _ in 0..ARENA_RETRIES_MAX {
            if let Some(pieces) = self.take(bytes) {
                return pieces;
            }
            self.machine.sleep(ARENA_RETRY).await;
        }
        // A device that does not answer keeps its buffers. The permits bound what all requests hold.
        Arena::for_one(bytes).take(bytes).expect("the arena was made for this")
    }

    fn take(&self, bytes: usize) -> Option<ReadPieces> {
        let pieces = self.machine.arena().take(bytes).ok()?;
        assert_eq!(pieces.bytes(), bytes);
        (pieces.count() <= self.segments_max).then_some(pieces)
    }
}

fn needs_large_blocks(bytes: usize) -> bool {
    bytes > 16 << 10
}
