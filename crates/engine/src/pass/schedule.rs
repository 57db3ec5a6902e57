//! The passes over a whole array, beside its requests, one after the other.
//! Owns: which pass is next, the course of a pass, progress, when superblocks say how far it has come, [`PassError`].
//! Not here: what distinguishes the kinds of passes, of which this file names none (`kinds`), the part of each shard
//! (`shard_pass`), the superblocks (`dirty_mark`, `recorder`).
//! Invariant: a pass ends when every shard has gone through all that it owns, and the members were flushed since.
//!
//! ```text
//!   next       a spare takes a slot; else the first kind of the list that is due
//!   course     every shard passes; now and then: flush -> superblocks say how far, if its kind may say so now
//!   end        every shard is through -> flush -> what its kind changes. Meanwhile no command opens or closes the gate
//! ```

mod asked;

pub use asked::CheckError;

use crate::pass::passes::{Clients, Passes};
use crate::shard::mail::{Answer, Call};
use crate::shard::world::World;
use crate::state::view::Gate;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassKind, PassOrder, PassReport, Progress};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, race};
use uraid_block::{IoError, Sectors, SlotSet};

/// How often the shards are asked how far they have come.
const REPORT_PERIOD: Duration = Duration::from_millis(200);

/// The superblocks are updated after each of this many equal parts of a pass; of a resync, only while no write is under
/// way.
const CHECKPOINTS: u64 = 16;

/// Why a pass ended before it was complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PassError {
    /// The array was stopped. The next start continues.
    #[error("the array was stopped before it was consistent")]
    Stopped,
    /// The array froze.
    #[error("the array froze before it was consistent")]
    Frozen(#[source] IoError),
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    TakeSpare,
    Pass(PassKind),
    /// The gate is frozen, read-only or stopped: nothing, until it is opened again.
    End,
}

impl<W: World> Passes<W> {
    /// Runs what is due until the array stops or freezes. The caller holds the transition, and has just opened the gate.
    /// What a recovery did before a freeze does not count: the recovery begins anew.
    pub(crate) fn begin(self: &Rc<Self>) {
        let order = self.steward.pass_order.get();
        self.steward.pass_order.set(order.filter(|order| order.kind.outlives_freeze()));
        if !self.steward.shared.is_redundant() || self.is_driven.replace(true) {
            return;
        }
        self.steward.shared.world.spawn(self.clone().drive());
    }

    async fn drive(self: Rc<Self>) {
        loop {
            let next = self.steward.shared.view_changed.wait_for(|| self.next()).await;
            self.is_running.set(next != Next::End);
            self.changed.notify_all();
            match next {
                Next::TakeSpare => self.take_spare().await,
                Next::Pass(kind) if kind.is_by_command() => self.check(kind).await,
                Next::Pass(kind) => self.pass(kind).await,
                Next::End => {
                    self.drop_asked();
                    self.is_driven.set(false);
                    return;
                }
            }
            self.is_running.set(false);
            self.changed.notify_all();
        }
    }

    /// `None`: nothing until the view changes.
    fn next(&self) -> Option<Next> {
        match self.steward.master().gate() {
            Gate::Closed | Gate::NoNewWrites => None,
            Gate::Open => self.due(),
            Gate::ReadOnly | Gate::Frozen(_) | Gate::Stopped => Some(Next::End),
        }
    }

    /// What an open array does next.
    fn due(&self) -> Option<Next> {
        let waits = self.steward.is_stopping.get() || self.steering.get().is_paused || self.has_undrained();
        if waits { None } else { self.needed() }
    }

    /// What the array needs, now or when it takes writes again. A read-only array has no pass.
    fn needed(&self) -> Option<Next> {
        if self.steward.shared.config.read_only {
            None
        } else if self.wanted_spare().is_some() {
            Some(Next::TakeSpare)
        } else {
            self.first_due().map(Next::Pass)
        }
    }

    fn first_due(&self) -> Option<PassKind> {
        PassKind::ALL.into_iter().find(|kind| kind.is_due(self))
    }

    /// How far the pass has come, if one runs, is due or was stopped.
    pub(crate) fn progress(&self) -> Option<Progress> {
        // A check or repair that was told to end still has windows in flight, and no result yet.
        if self.steward.pass_order.get().is_some_and(|order| order.kind.is_by_command()) {
            return Some(self.progress.get());
        }
        let kind = match self.needed()? {
            Next::Pass(kind) => kind,
            Next::TakeSpare | Next::End => self.first_due()?,
        };
        let begun = match self.steward.pass_order.get() {
            Some(order) if order.kind == kind => self.progress.get(),
            Some(_) | None => {
                Progress { kind, total: kind.total(&self.steward.shared.layout()), ..Progress::default() }
            }
        };
        let recorded = kind.recorded(self, kind.slots(self)).min(begun.total);
        Some(Progress { done: begun.done.max(recorded), ..begun })
    }

    /// Waits until no pass runs, calling `show` now and then. Returns how far the last one came, if there was one.
    pub(crate) async fn wait(&self, mut show: impl FnMut(Progress)) -> Result<Progress, PassError> {
        let mut shown = None;
        loop {
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            let now = self.progress.get();
            if self.is_running.get() && shown.replace(now) != Some(now) {
                show(now);
            }
            let has_changed = || (self.outcome().is_some() || self.progress.get() != now).then_some(());
            let view_changed = &self.steward.shared.view_changed;
            race(self.changed.wait_for(has_changed), view_changed.wait_for(has_changed)).await;
        }
    }

    /// `None`: a pass runs, or will when the gate opens.
    fn outcome(&self) -> Option<Result<Progress, PassError>> {
        let master = self.steward.master();
        let is_due = self.needed().is_some();
        // A pass has not ended until the superblocks show its end: after a crash it would be due again.
        let is_shown = master.shows(master.version());
        match master.frozen_error() {
            _ if self.is_running.get() => None,
            _ if self.steward.shared.config.read_only => Some(Ok(self.progress.get())),
            // A spare may take the slot once the failure is recorded.
            None if master.gate() == Gate::Open && !master.is_recorded() => None,
            Some(error) if is_due || !is_shown => Some(Err(PassError::Frozen(error))),
            _ if !is_due => Some(Ok(self.progress.get())),
            _ if master.gate() == Gate::Stopped => Some(Err(PassError::Stopped)),
            _ => None,
        }
    }

    /// Passes over the array, and ends the pass, unless the array stops or freezes, or no member is left to recover.
    async fn pass(self: &Rc<Self>, kind: PassKind) {
        let steward = &self.steward;
        let order = self.order(kind);
        steward.pass_order.set(Some(order));
        if order.by_bits {
            let bits = self.bitmap.get().expect("it has bits").snapshot_bits();
            // Every write that sets a further bit after this snapshot goes to these members, too.
            steward
                .shared
                .calls
                .call_all(|| Call::BitsToRecover(bits.clone()))
                .await
                .into_iter()
                .for_each(Answer::done);
        }
        loop {
            self.pass_over_all(&order).await;
            // Copies that were made equal must not differ again after a crash, and a member that is read must not lose
            // what it was given. If this fails, the array has frozen, or the member has failed.
            let is_flushed = self.is_over() && self.flush().await;
            // A stop or command that closes the gate holds the transition until it has opened it, or stopped the array.
            let _one = steward.transition.acquire(1).await;
            let gate = steward.master().gate();
            assert!(!matches!(gate, Gate::Closed | Gate::NoNewWrites), "only a transition closes the gate");
            if !kind.outlives_freeze() && !self.is_current(&order) {
                mark::hit(Mark::RecoveryAnew);
                return;
            }
            if gate == Gate::Open && !is_flushed && !kind.is_needless(self, &order) {
                continue;
            }
            if gate == Gate::Open {
                kind.end(self, &order).await;
                steward.pass_order.set(None);
            }
            return;
        }
    }

    /// What every shard is to do, and where the pass begins.
    fn order(&self, kind: PassKind) -> PassOrder {
        let layout = self.steward.shared.layout();
        let recovering = kind.slots(self);
        let total = kind.total(&layout);
        let from = kind.recorded(self, recovering).min(total);
        self.progress.set(Progress { kind, done: from, total, ..Progress::default() });
        self.number.set(self.number.get() + 1);
        let mut order = PassOrder {
            number: self.number.get(),
            kind,
            recovering,
            second: None,
            from,
            written_below: Sectors::ZERO,
            unreadable: SlotSet::EMPTY,
            by_bits: false,
            fills: false,
        };
        kind.complete(self, &mut order);
        order
    }

    /// Flushes the members, unless a stop has begun: the stop waits for what is under way, and flushes them itself.
    async fn flush(&self) -> bool {
        if self.steward.is_stopping.get() {
            return false;
        }
        assert!(!self.is_flushing.replace(true), "one pass, one flush");
        let is_flushed = self.flusher.flush_round().await.is_ok();
        self.is_flushing.set(false);
        self.changed.notify_all();
        is_flushed
    }

    /// Waits until no flush of a pass is under way. After a stop has begun, no such flush begins.
    pub(crate) async fn flush_over(&self) {
        assert!(self.steward.is_stopping.get(), "a stop waits for it");
        self.changed.wait_for(|| (!self.is_flushing.get()).then_some(())).await;
    }

    fn is_over(&self) -> bool {
        let progress = self.progress.get();
        assert!(progress.done <= progress.total, "a pass goes over what there is");
        progress.done == progress.total
    }

    /// Lets every shard go through all that it owns, and asks the shards now and then how far they are. The superblocks
    /// record that, too; for a resync, only while no write is under way. When a stop has begun, they are asked nothing more:
    /// a shard that has nothing left to do may be gone before it answers.
    async fn pass_over_all(&self, order: &PassOrder) {
        let steward = &self.steward;
        self.client_bytes.set(None);
        self.tell_of_clients(Clients::default()).await;
        let mut all = pin!(steward.shared.calls.call_all(|| Call::Pass(*order)));
        loop {
            // Only the sleep is dropped: a round of superblocks must not be.
            if let Either::Left(reports) = race(all.as_mut(), steward.shared.world.sleep(REPORT_PERIOD)).await {
                self.note(order, reports.into_iter().map(Answer::passed).collect());
                if !steward.is_stopping.get() {
                    self.tell_of_clients(Clients::default()).await;
                }
                return;
            }
            if steward.is_stopping.get() {
                continue;
            }
            let reports = steward.pass_reports().await;
            let clients = self.clients(&reports);
            let below = self.note(order, reports);
            self.tell_of_clients(clients).await;
            self.end_superseded(order).await;
            let total = self.progress.get().total;
            let recorded = order.kind.recorded(self, order.recovering).min(total);
            let is_far = below.0 >= recorded.0 + total.0.div_ceil(CHECKPOINTS);
            if is_far && order.kind.may_record(self, order) && self.flush().await {
                self.record_checkpoint(order, below).await;
            }
        }
    }

    /// All below `below` is done on every shard, and was flushed.
    async fn record_checkpoint(&self, order: &PassOrder, below: Sectors) {
        let steward = &self.steward;
        let _one = steward.transition.acquire(1).await;
        if !order.kind.may_record(self, order) {
            return;
        }
        order.kind.record(self, order, below);
        let version = steward.master().version();
        let _ = self.recorder.record_up_to(version).await;
    }

    /// Sums up what the shards have reported. Returns the sector below which all is done on all shards and could be
    /// read.
    fn note(&self, order: &PassOrder, reports: Vec<PassReport>) -> Sectors {
        let before = self.progress.get();
        let (mut below, mut met) = (before.total, PassCounts::default());
        // A shard that has not begun this order has done nothing of it.
        for report in reports.iter().filter(|report| report.number == order.number) {
            below = below.min(report.below);
            met.add(report.counts);
        }
        if reports.iter().any(|report| report.number != order.number) {
            below = before.done;
        }
        let readable_below = order.kind.readable_below(order, &reports);
        assert!(readable_below <= before.total && below <= before.total, "a shard goes through what there is");
        let [corrected, skipped, unreadable, lacking] =
            [met.corrected, met.skipped, met.unreadable, met.lacking].map(Sectors);
        let [mismatched, healed, listed, unknown] = [met.mismatched, met.healed, met.listed, met.unknown].map(Sectors);
        self.progress.set(Progress {
            done: below,
            corrected,
            mismatched,
            healed,
            lacking,
            skipped,
            unreadable,
            unknown,
            listed,
            ..before
        });
        self.changed.notify_all();
        readable_below
    }
}
