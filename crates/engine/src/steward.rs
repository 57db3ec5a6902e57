//! The one task of an array that changes its view: members, gate, dirty mark.
//! Owns: [`Steward`], `publish`, `drain`, the order of the semaphores. Not here: the state and its invariants
//! (`master`), which members are failed (`failing`), dirty and clean (`clean`), writing superblocks (`record`), start and
//! stop (`lifecycle`).
//! Invariant: trust may be taken away at once. It is given, and a mark is lifted, only after older requests have left.
//!
//! ```text
//!   failure:       take trust away -> publish -> superblocks -> answer       (never waits for a drain)
//!   first write, idle, stop: see `clean`
//! ```
//!
//! Order of the semaphores: a task that holds one of them may wait for those below it, never for one above it.
//!
//! ```text
//!   transition      one change between dirty, clean, frozen and stopped at a time
//!   Flusher::turn   one round of flushes at a time (`flush`)
//!   Recorder::turn  one round of superblocks at a time (`record`)
//!   collection      failures that are judged together (`failing`): judging them waits for none of the three
//! ```

use crate::mail::{Answer, Call, STEWARD};
use crate::master::{Change, Master};
use crate::progress::{self, PassReport};
use crate::sabotage::{self, Sabotage};
use crate::shared::Shared;
use crate::view::{Epoch, Gate};
use crate::world::World;
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use uraid_block::local::{Semaphore, join_all};
use uraid_block::{Sectors, ShardIndex};

/// The steward's state; on shard 0 only.
pub(crate) struct Steward<W: World> {
    pub(crate) shared: Rc<Shared<W>>,
    master: RefCell<Master>,
    /// One change between dirty, clean, frozen and stopped at a time.
    pub(crate) transition: Rc<Semaphore>,
    pub(crate) is_stopping: Cell<bool>,
}

impl<W: World> Steward<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, master: Master) -> Rc<Steward<W>> {
        assert_eq!(shared.world.shard(), STEWARD, "the steward lives on one shard");
        assert!(*shared.view() == master.view(), "shard 0 begins with the view of the state");
        let (master, transition) = (RefCell::new(master), Semaphore::new(1));
        Rc::new(Steward { shared, master, transition, is_stopping: Cell::new(false) })
    }

    /// The state. Do not keep it across an await.
    pub(crate) fn master(&self) -> Ref<'_, Master> {
        self.master.borrow()
    }

    /// Changes the state, which no shard learns: that takes [`Steward::publish`].
    pub(crate) fn apply(&self, change: Change<'_>) {
        self.master.borrow_mut().apply(change);
    }

    /// Changes the state and waits until every shard uses the view that follows. Requests already inside continue in
    /// their epoch.
    pub(crate) async fn publish(&self, change: Change<'_>) -> Epoch {
        let view = self.master.borrow_mut().apply_and_view(change);
        let epoch = view.epoch;
        assert_eq!(self.shared.view().epoch.0 + 1, epoch.0, "shard 0 has every view");
        // Post before the first await: views must leave in the order of their epochs.
        let calls: Vec<_> = (1..self.shared.world.shards())
            .map(|shard| self.shared.calls.call(ShardIndex(shard), Call::Switch(view.clone())))
            .collect();
        self.shared.switch(view);
        for answer in join_all(calls).await {
            answer.done();
        }
        assert!(self.shared.view().epoch >= epoch, "a later view may have followed");
        epoch
    }

    /// How far each shard has come in its part of the resync.
    pub(crate) async fn pass_reports(&self) -> Vec<PassReport> {
        self.shared.calls.call_all(|| Call::PassReport).await.into_iter().map(Answer::passed).collect()
    }

    /// What is consistent on every shard and could be read. Of a consistent array, all.
    pub(crate) async fn consistent_below(&self) -> Sectors {
        if self.master().resync_from().is_none() {
            return progress::total(&self.shared.layout);
        }
        let reports = self.pass_reports().await;
        reports.into_iter().map(|report| report.readable_below).min().expect("an array has a shard")
    }

    /// Whether the superblocks may say how far the resync has come: no write is under way, which could leave anything
    /// inconsistent.
    pub(crate) fn may_record_checkpoint(&self) -> bool {
        let master = self.master();
        let is_idle = master.gate() == Gate::Open && !master.takes_writes();
        is_idle && master.needs_resync() && !self.is_stopping.get()
    }

    /// Notes that all is consistent below this sector, and flushed, unless more is known already.
    pub(crate) fn note_checkpoint(&self, below: Sectors) {
        let from = self.master().resync_from();
        let ahead = if sabotage::is(Sabotage::CheckpointAhead) { Sectors(1) } else { Sectors::ZERO };
        let below = (below + ahead).min(progress::total(&self.shared.layout));
        if from.is_some_and(|from| from < below) {
            self.apply(Change::Checkpoint(below));
        }
    }

    /// Waits until no request that entered before `epoch` is in flight on any shard.
    pub(crate) async fn drain(&self, epoch: Epoch) {
        assert!(epoch <= self.shared.view().epoch, "a drain follows its view");
        self.shared.calls.call_all(|| Call::Drain(epoch)).await.into_iter().for_each(Answer::done);
    }
}
