//! The one task of an array that changes its view: members, gate, dirty mark.
//! Owns: [`Steward`], `publish`, `drain`, when a command may begin, the order of the semaphores. Not here: the state and its invariants
//! (`master`), which members are failed (`judge`), dirty and clean (`dirty_mark`), writing superblocks (`recorder`), start and
//! stop (`lifecycle`).
//! Invariant: the view may stop trusting a member at once. It starts to trust one, or lifts a mark, only after older
//! requests have left.
//!
//! ```text
//!   failure:       take trust away -> publish -> superblocks -> answer       (never waits for a drain)
//!   first write, idle, stop: see `dirty_mark`
//! ```
//!
//! Order of the semaphores: a task that holds one of them may wait for those below it, never for one above it.
//!
//! ```text
//!   transition      one change between dirty, clean, frozen and stopped at a time
//!   Flusher::turn   one round of flushes at a time (`flusher`)
//!   Recorder::turn  one round of superblocks at a time (`recorder`)
//!   collection      failures that are judged together (`judge`): judging them waits for none of the three
//! ```

pub(crate) mod bad_block_log;
pub(crate) mod bitmap;
pub(crate) mod current_bitmap;
pub(crate) mod dirty_mark;
pub(crate) mod flusher;
pub(crate) mod health;
pub(crate) mod judge;
pub(crate) mod ppl;
pub(crate) mod recorder;

use crate::shard::mail::{Answer, Call, STEWARD};
use crate::shard::shared::Shared;
use crate::shard::world::World;
use crate::state::master::{Change, Master, Replace};
use crate::state::view::{Epoch, Gate};
use crate::words::progress::{self, PassOrder, PassReport};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use uraid_block::local::{Semaphore, join_all};
use uraid_block::{IoError, Sectors, ShardIndex};

/// The steward's state; on shard 0 only.
pub(crate) struct Steward<W: World> {
    pub(crate) shared: Rc<Shared<W>>,
    master: RefCell<Master>,
    /// One change between dirty, clean, frozen and stopped at a time.
    pub(crate) transition: Rc<Semaphore>,
    pub(crate) is_stopping: Cell<bool>,
    /// The order of the pass that runs or was interrupted; `None` if there is none.
    pub(crate) pass_order: Cell<Option<PassOrder>>,
}

/// What may be recorded once the members are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    /// All is consistent below this.
    pub(crate) in_sync_below: Sectors,
    /// By this order, members hold what is below this.
    pub(crate) recovered: Option<(PassOrder, Sectors)>,
}

/// Why an array takes no command now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotNow {
    /// It is read-only.
    ReadOnly,
    /// It is starting, stopping or stopped.
    NotOpen,
    /// It is frozen.
    Frozen(IoError),
}

impl<W: World> Steward<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, master: Master) -> Rc<Steward<W>> {
        assert_eq!(shared.world.shard(), STEWARD, "the steward lives on one shard");
        assert!(*shared.view() == master.view(), "shard 0 begins with the view of the state");
        let (master, transition) = (RefCell::new(master), Semaphore::new(1));
        let (is_stopping, pass_order) = (Cell::new(false), Cell::new(None));
        Rc::new(Steward { shared, master, transition, is_stopping, pass_order })
    }

    /// The state. Do not keep it across an await.
    pub(crate) fn master(&self) -> Ref<'_, Master> {
        self.master.borrow()
    }

    /// Whether the array is open, and no stop has begun.
    pub(crate) fn check_open(&self) -> Result<(), NotNow> {
        let master = self.master();
        if let Some(error) = master.frozen_error() {
            return Err(NotNow::Frozen(error));
        }
        match master.gate() {
            _ if self.is_stopping.get() => Err(NotNow::NotOpen),
            Gate::ReadOnly | Gate::NoNewWrites => Err(NotNow::ReadOnly),
            Gate::Closed | Gate::Stopped | Gate::Frozen(_) => Err(NotNow::NotOpen),
            Gate::Open => Ok(()),
        }
    }

    /// Changes the state without telling the shards; [`Steward::publish`] tells them, too.
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
            .map(|shard| self.shared.calls.call(ShardIndex(shard), Call::Switch(Box::new(view.clone()))))
            .collect();
        self.shared.switch(view);
        for answer in join_all(calls).await {
            answer.done();
        }
        assert!(self.shared.view().epoch >= epoch, "a later view may have followed");
        epoch
    }

    /// How far each shard has come in its part of the pass.
    pub(crate) async fn pass_reports(&self) -> Vec<PassReport> {
        self.shared.calls.call_all(|| Call::PassReport).await.into_iter().map(Answer::passed).collect()
    }

    /// What the shards have gone through.
    pub(crate) async fn passed(&self) -> Passed {
        let recovery = self.pass_order.get().filter(|order| order.fills);
        if recovery.is_none() && self.master().resync_from().is_none() {
            return Passed { in_sync_below: progress::total(&self.shared.layout()), recovered: None };
        }
        let reports = self.pass_reports().await;
        let in_sync_below = reports.iter().map(|report| report.in_sync_below).min().expect("an array has a shard");
        let recovered = recovery.map(|order| (order, recovered_below(&order, &reports)));
        Passed { in_sync_below, recovered }
    }

    /// Whether the superblocks may record how far the resync has come. They may while no write is under way, because a
    /// write could leave something inconsistent.
    pub(crate) fn may_record_checkpoint(&self) -> bool {
        let master = self.master();
        let is_idle = master.gate() == Gate::Open && !master.takes_writes();
        is_idle && master.needs_resync() && !self.is_stopping.get()
    }

    /// Notes that everything below this sector is consistent and flushed, unless a higher sector is noted already.
    pub(crate) fn note_checkpoint(&self, below: Sectors) {
        let from = self.master().resync_from();
        let below = below.min(progress::total(&self.shared.layout()));
        if from.is_some_and(|from| from < below) {
            self.apply(Change::Checkpoint(below));
        }
    }

    /// Notes that the members of this order hold what is below this sector, and were flushed.
    pub(crate) fn note_recovered(&self, recovered: Option<(PassOrder, Sectors)>) {
        let Some((order, below)) = recovered else { return };
        if order.second.is_some() {
            for slot in order.recovering.iter() {
                let copied = self.master().replacing(slot).filter(|(member, _)| Some(*member) == order.second);
                if copied.is_some_and(|(_, copied)| copied < below) {
                    self.apply(Change::Replace(Replace::Checkpoint(slot, below)));
                }
            }
            return;
        }
        let slots = order.recovering;
        let is_more = !slots.and(self.master().recovering()).is_empty() && self.master().recovered_below(slots) < below;
        if is_more {
            self.apply(Change::CheckpointRecovery(slots, below));
        }
    }

    /// Waits until no request that entered before `epoch` is in flight on any shard.
    pub(crate) async fn drain(&self, epoch: Epoch) {
        assert!(epoch <= self.shared.view().epoch, "a drain follows its view");
        self.shared.calls.call_all(|| Call::Drain(epoch)).await.into_iter().for_each(Answer::done);
    }
}

/// How far members in recovery hold their data, by the reports of all shards. A shard that has not begun has passed
/// over nothing.
pub(crate) fn recovered_below(order: &PassOrder, reports: &[PassReport]) -> Sectors {
    let of_shard = |report: &PassReport| if report.number == order.number { report.readable_below } else { order.from };
    reports.iter().map(of_shard).min().expect("an array has a shard")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::progress::{PassCounts, PassKind};
    use uraid_block::{Slot, SlotSet};

    #[test]
    fn a_shard_that_has_not_begun_a_recovery_has_recovered_nothing_of_it() {
        let order = PassOrder {
            number: 7,
            kind: PassKind::Recovery,
            recovering: SlotSet::EMPTY.with(Slot(1)),
            second: None,
            from: Sectors(10),
            written_below: Sectors::ZERO,
            unreadable: SlotSet::EMPTY,
            by_bits: false,
            fills: true,
        };
        let report = |number, below| PassReport {
            number,
            below: Sectors(below),
            readable_below: Sectors(below),
            in_sync_below: Sectors::ZERO,
            counts: PassCounts::default(),
            has_clients: false,
            client_bytes: 0,
        };
        assert_eq!(recovered_below(&order, &[report(7, 30), report(7, 20)]), Sectors(20));
        assert_eq!(recovered_below(&order, &[report(7, 30), report(6, 90)]), Sectors(10), "90 is of the pass before");
    }
}
