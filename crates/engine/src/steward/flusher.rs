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
use crate::state::recorded::Recorded;
use crate::steward::Steward;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::verdict::Operation;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::{Semaphore, join_all};
use uraid_block::{Device, ErrorKind, IoError, Slot, SlotSet};

/// The last ticket that was served, and the outcome of its round.
type Served = (u64, Result<Recorded, IoError>);

/// Flushes for the whole array; on shard 0 only.
pub(crate) struct Flusher<W: World> {
    steward: Rc<Steward<W>>,
    turn: Rc<Semaphore>,
    /// Tickets given out so far; a round serves all of them.
    tickets: Cell<u64>,
    served: RefCell<Served>,
}

impl<W: World> Flusher<W> {
    pub(crate) fn new(steward: &Rc<Steward<W>>) -> Rc<Flusher<W>> {
        let (steward, served) = (steward.clone(), RefCell::new((0, Err(ErrorKind::Stopping.into()))));
        Rc::new(Flusher { steward, turn: Semaphore::new(1), tickets: Cell::new(0), served })
    }

    /// Runs a flush round, or returns the outcome of a round that began after this call.
    pub(crate) async fn flush_round(&self) -> Result<Recorded, IoError> {
        let ticket = self.tickets.get() + 1;
        self.tickets.set(ticket);
        let _turn = self.turn.acquire(1).await;
        {
            let served = self.served.borrow();
            if served.0 >= ticket {
                mark::hit(Mark::FlushShared);
                return served.1.clone();
            }
        }
        let serves = self.tickets.get();
        assert!(serves >= ticket, "a round serves the caller that runs it");
        let outcome = self.flush_once().await;
        let before = self.served.replace((serves, outcome.clone()));
        assert!(before.0 < serves, "rounds serve their callers in turn");
        outcome
    }

    async fn flush_once(&self) -> Result<Recorded, IoError> {
        let is_recorded = self.steward.shared.behind_over().await;
        let view = self.steward.shared.view();
        let is_frozen = self.steward.master().frozen().is_some();
        if is_frozen && !is_recorded || self.steward.shared.behind.has_lost() {
            return Err(ErrorKind::Frozen.into());
        }
        if self.steward.master().has_lost_flush() {
            mark::hit(Mark::FlushRefused);
            // The flush that froze the array may have lost writes: a later flush must not succeed.
            return Err(ErrorKind::Frozen.into());
        }
        // A member that this view leaves out may have lost answered writes in its cache: the superblocks must say so
        // before the flush is answered.
        let failures = self.flush_slots(view.writable()).await;
        if !failures.is_empty() {
            mark::hit(Mark::FlushFailed);
            assert!(failures.iter().all(|failure| view.writable().contains(failure.slot)));
        }
        self.steward.shared.settle(&view, &failures).await
    }

    pub(crate) async fn flush_slots(&self, slots: SlotSet) -> Vec<Failure> {
        assert!(slots.is_within(SlotSet::first(self.steward.shared.layout().slots())));
        let shared = &self.steward.shared;
        let writers = shared.with_view(|view| {
            let of_slot = |slot: Slot| view.writers(slot).map(move |member| (slot, member.index));
            slots.iter().flat_map(of_slot).collect::<Vec<_>>()
        });
        let outcomes = join_all(writers.into_iter().map(async |of: (Slot, usize)| {
            let outcome = shared.members.get(of.1).flush().await;
            outcome.err().map(|error| Failure::new(of, Operation::Flush, error))
        }));
        outcomes.await.into_iter().flatten().collect()
    }
}
