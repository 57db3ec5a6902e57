//! The right of a row request to take scratch without waiting, on the fast paths.
//! Owns: [`Room`]. Not here: requests that wait for their room (`row::io`), the blocks themselves (`uraid_block::buffer`).
//! Invariant: requests with permits never lack a block. Permits count large blocks. A request with a permit takes small
//! blocks while some are free, and large blocks otherwise. A request without a permit takes only small blocks.
//!
//! ```text
//!   4 KiB     small blocks, as long as there are some: many such requests may be in flight
//!   64 KiB    a permit for a whole interval, as for other requests of rows
//! ```

use super::RowIo;
use crate::{Pool, World};
use std::rc::Rc;
use uraid_block::buffer::SMALL_BLOCK_BYTES;
use uraid_block::local::{Permit, Semaphore};
use uraid_block::{Lease, Sectors};

/// The right to take scratch.
pub(super) enum Room {
    /// Small blocks.
    Small,
    /// Any blocks, as many as an interval needs.
    Interval(Permit),
}

impl<W: World> RowIo<W> {
    /// Room for blocks of this length, if there is some now.
    #[inline]
    pub(super) fn try_room(&self, permits: &Rc<Semaphore>, length: Sectors) -> Option<Room> {
        match length.len_bytes() <= SMALL_BLOCK_BYTES {
            true => Some(Room::Small),
            false => permits.try_acquire(self.interval_blocks()).map(Room::Interval),
        }
    }

    /// A block of scratch. `None`: too many small ones are taken.
    #[inline]
    pub(super) fn scratch(&self, room: &Room, length: Sectors) -> Option<Lease> {
        let arena = self.shared.world.arena(Pool::Row);
        match room {
            Room::Small => arena.take_small(length.len_bytes()),
            Room::Interval(_) => arena.take_contiguous(length.len_bytes()).ok(),
        }
    }
}
