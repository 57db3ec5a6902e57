//! Flushes: one round at a time for the whole array, driven by the steward.
//! Owns: [`Flusher`], which round serves which caller. Not here: what a failed flush means (`verdict`).
//! Invariant: no flush is answered with success while another one's failure is not yet recorded.
//!
//! A member that fails one flush may answer the next one with success, though it has lost what was in its cache. Of two
//! flushes at the same time, the second could be answered before the superblocks record the failure of the first. So
//! flushes take turns, and callers that arrive during a round share the next one:
//!
//! ```text
//!   round      |== 1 ==|======= 2 =======|=== 3 ===|
//!   arrivals   a        b  c              d            a: round 1; b and c: one flush for both
//! ```

use crate::World;
use crate::array::Array;
use crate::failure::Failure;
use crate::mail::{Call, STEWARD};
use crate::mark::{self, Mark};
use crate::recorded::Recorded;
use crate::sabotage::{self, Sabotage};
use crate::verdict::Operation;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::{Semaphore, join_all};
use uraid_block::{Device, ErrorKind, IoError, Slot, SlotSet};

/// Turns at flushing; held by the steward.
pub(crate) struct Flusher {
    turn: Rc<Semaphore>,
    /// Tickets given out so far; a round serves all of them.
    tickets: Cell<u64>,
    /// The last ticket that was served, and its outcome.
    served: RefCell<(u64, Result<Recorded, IoError>)>,
}

impl Flusher {
    pub(crate) fn new() -> Flusher {
        let none_served = (0, Err(ErrorKind::Stopping.into()));
        Flusher { turn: Semaphore::new(1), tickets: Cell::new(0), served: RefCell::new(none_served) }
    }
}

impl<W: World> Array<W> {
    /// Makes all writes that were answered before this call stable on every usable member.
    pub(crate) async fn flush_members(&self) -> Result<Recorded, IoError> {
        if self.world.shard() == STEWARD {
            return self.flush_round().await;
        }
        self.calls.call(STEWARD, Call::Flush).await.settled()
    }

    /// Runs a flush round, or returns the outcome of a round that began after this call. Shard 0 only.
    pub(crate) async fn flush_round(&self) -> Result<Recorded, IoError> {
        if sabotage::is(Sabotage::FlushTogether) {
            return self.flush_once().await;
        }
        let flusher = &self.steward().flusher;
        let ticket = flusher.tickets.get() + 1;
        flusher.tickets.set(ticket);
        let _turn = flusher.turn.acquire(1).await;
        {
            let served = flusher.served.borrow();
            if served.0 >= ticket {
                mark::hit(Mark::FlushShared);
                return served.1.clone();
            }
        }
        let serves = flusher.tickets.get();
        let outcome = self.flush_once().await;
        *flusher.served.borrow_mut() = (serves, outcome.clone());
        outcome
    }

    async fn flush_once(&self) -> Result<Recorded, IoError> {
        let view = self.view();
        if self.steward().master().has_lost_flush() {
            mark::hit(Mark::FlushRefused);
            // The flush that froze the array may have lost writes: a later flush must not succeed.
            return Err(ErrorKind::Frozen.into());
        }
        // What a member lost that this view leaves out is known to the superblocks before the flush is answered: it
        // may have held answered writes in its cache.
        let failures = self.flush_slots(view.writable()).await;
        if !failures.is_empty() {
            mark::hit(Mark::FlushFailed);
        }
        self.settle(&view, &failures).await
    }

    pub(crate) async fn flush_slots(&self, slots: SlotSet) -> Vec<Failure> {
        let outcomes = join_all(slots.iter().map(async |slot: Slot| (slot, self.member(slot).flush().await)));
        let outcomes = outcomes.await.into_iter();
        outcomes.filter_map(|(slot, outcome)| Some(Failure::new(slot, Operation::Flush, outcome.err()?))).collect()
    }
}
