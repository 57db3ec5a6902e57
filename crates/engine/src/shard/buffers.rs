//! Buffers from a shard's pools, for requests that cannot go on without them.
//! Owns: waiting for a pool that is empty, and how long. Not here: the pools (`World::arena`), their memory
//! (`uraid_block::buffer`).
//! Invariant: a request always gets its buffers in the end, even if a device that does not answer keeps those of the
//! pool.

use crate::shard::world::{Pool, World};
use std::time::Duration;
use uraid_block::{Arena, Lease, ReadPieces, Sectors, WritePieces};

/// How long a request waits before it tries an empty pool again: the first time, and at most.
const RETRY_FIRST: Duration = Duration::from_micros(100);
const RETRY_MAX: Duration = Duration::from_millis(10);
/// After this time a request allocates its own memory.
const WAIT_MAX: Duration = Duration::from_secs(1);
const _: () = assert!(RETRY_FIRST.as_nanos() <= RETRY_MAX.as_nanos() && RETRY_MAX.as_nanos() < WAIT_MAX.as_nanos());

/// Buffers for scratch or a retry. The request keeps the buffers that it holds already, and waits until other requests
/// return theirs.
pub(crate) async fn take<W: World>(world: &W, pool: Pool, length: Sectors) -> ReadPieces {
    let pieces = match world.arena(pool).take(length.len_bytes()) {
        Ok(pieces) => pieces,
        Err(_) => wait_for(world, pool, length, |arena| arena.take(length.len_bytes()).ok()).await,
    };
    assert_eq!(pieces.bytes(), length.len_bytes(), "a pool gives as much as is asked for");
    pieces
}

/// Scratch in one piece. The caller's permit guarantees that there is room, or that there is when a device returns its
/// buffers.
pub(crate) async fn take_contiguous<W: World>(world: &W, pool: Pool, length: Sectors) -> Lease {
    match world.arena(pool).take_contiguous(length.len_bytes()) {
        Ok(lease) => lease,
        Err(_) => {
            let take = |arena: &Arena| arena.take_contiguous(length.len_bytes()).ok();
            Box::pin(wait_for(world, pool, length, take)).await
        }
    }
}

/// The bytes of a write in memory that nobody else can write. They are looked at once: what their owner writes later
/// reaches no member.
#[cold]
pub(crate) async fn private_copy<W: World>(world: &W, from: WritePieces) -> WritePieces {
    let length = from.length();
    let mut copy = match length.len_bytes() <= world.arena(Pool::Request).capacity_bytes() / 2 {
        true => take(world, Pool::Request, length).await,
        // It would wait for all others, and they for it.
        false => Arena::for_one(length.len_bytes()).take(length.len_bytes()).expect("it was made for this"),
    };
    copy.copy_from_pieces(&from);
    copy.freeze()
}

/// Tries an empty pool again until it has room. After [`WAIT_MAX`] the request allocates its own memory.
async fn wait_for<W: World, T>(world: &W, pool: Pool, length: Sectors, take: impl Fn(&Arena) -> Option<T>) -> T {
    assert!(!length.is_zero(), "an empty buffer needs no room");
    let (began, mut pause) = (world.now(), RETRY_FIRST);
    loop {
        world.sleep(pause).await;
        if let Some(taken) = take(world.arena(pool)) {
            return taken;
        }
        if world.now().since(began) >= WAIT_MAX {
            return take(&Arena::for_one(length.len_bytes())).expect("it was made for this");
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// A lease as a list of one piece.
pub(crate) fn one_piece(lease: Lease) -> ReadPieces {
    assert!(!lease.is_empty(), "an empty lease is no piece");
    let mut pieces = ReadPieces::new();
    pieces.push(lease);
    pieces
}
