//! Passes over a whole array, beside its requests: today the resync.
//! Owns: [`Passes`], when the resync begins, its progress, what its end changes. Not here: the part of each shard
//! (`pass`), what is done in a window (`resync`), the superblocks that say how far it has come (`clean`, `record`).
//! Invariant: copies are read at will, and parity is relied upon, only when every shard has passed over all that it owns.
//!
//! ```text
//!   start      superblocks say dirty -> the gate opens, mirrors read the canonical copy -> every shard passes
//!   end        flush -> publish "consistent" -> superblocks, if no write is under way
//!   stop       the gate closes -> drain (windows are inside the epoch) -> flush -> superblocks: dirty from here on
//!   a crash    before any of these superblocks: the next start passes over all, or from the last one that was recorded
//! ```

use crate::flush::Flusher;
use crate::mail::{Answer, Call};
use crate::mark::{self, Mark};
use crate::master::Change;
use crate::progress::{self, PassCounts, PassReport, Progress};
use crate::record::Recorder;
use crate::sabotage::{self, Sabotage};
use crate::steward::Steward;
use crate::view::Gate;
use crate::world::World;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, race};
use uraid_block::{IoError, Sectors};

/// How often the shards are asked how far they have come.
const REPORT_PERIOD: Duration = Duration::from_millis(200);

/// While no write is under way, the superblocks are updated after each of this many equal parts of a pass.
const CHECKPOINTS: u64 = 16;

/// Why a pass ended before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PassError {
    /// The array was stopped. The next start continues.
    #[error("the array was stopped before it was consistent")]
    Stopped,
    /// The array froze.
    #[error("the array froze before it was consistent")]
    Frozen(#[source] IoError),
}

/// The passes of an array; on shard 0 only.
pub(crate) struct Passes<W: World> {
    steward: Rc<Steward<W>>,
    recorder: Rc<Recorder<W>>,
    flusher: Rc<Flusher<W>>,
    is_running: Cell<bool>,
    is_flushing: Cell<bool>,
    progress: Cell<Progress>,
    changed: Notify,
}

impl<W: World> Passes<W> {
    pub(crate) fn new(steward: &Rc<Steward<W>>, recorder: &Rc<Recorder<W>>, flusher: &Rc<Flusher<W>>) -> Rc<Passes<W>> {
        let (steward, recorder, flusher) = (steward.clone(), recorder.clone(), flusher.clone());
        let total = progress::total(&steward.shared.layout);
        let progress = Cell::new(Progress { total, ..Progress::default() });
        let (is_running, is_flushing) = (Cell::new(false), Cell::new(false));
        Rc::new(Passes { steward, recorder, flusher, is_running, is_flushing, progress, changed: Notify::new() })
    }

    /// Begins a resync if the array needs one and none is running. The caller holds the transition, and has just opened
    /// the gate.
    pub(crate) fn begin(self: &Rc<Self>) {
        if !self.is_due() || self.is_running.replace(true) {
            return;
        }
        let done = self.steward.master().resync_from().expect("a resync is needed");
        self.progress.set(Progress { done, total: self.progress.get().total, ..Progress::default() });
        self.steward.shared.world.spawn(self.clone().resync());
        self.changed.notify_all();
    }

    /// Whether a resync runs, or should. An array that is only read has none.
    fn is_due(&self) -> bool {
        self.steward.master().needs_resync() && !self.steward.shared.config.read_only
    }

    /// How far the resync has come, if one runs or was stopped.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let recorded = self.steward.master().resync_from().filter(|_| self.is_due())?;
        let progress = self.progress.get();
        Some(Progress { done: progress.done.max(recorded), ..progress })
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

    /// `None`: a pass runs, or will when a frozen array lets writes in again.
    fn outcome(&self) -> Option<Result<Progress, PassError>> {
        let master = self.steward.master();
        match master.frozen_error() {
            _ if self.is_running.get() => None,
            _ if !self.is_due() => Some(Ok(self.progress.get())),
            Some(error) => Some(Err(PassError::Frozen(error))),
            None if master.gate() == Gate::Stopped => Some(Err(PassError::Stopped)),
            None => None,
        }
    }

    async fn resync(self: Rc<Self>) {
        let steward = &self.steward;
        loop {
            if !sabotage::is(Sabotage::SkipResync) {
                self.pass_over_all().await;
            }
            // Copies that were made equal must not differ again after a crash. If this fails, the array has frozen.
            let is_over = self.is_over() || sabotage::is(Sabotage::SkipResync);
            let is_flushed = is_over && (sabotage::is(Sabotage::SkipPassFlush) || self.flush().await);
            // A stop or command that closes the gate holds the transition until it has opened it, or stopped the array.
            let _one = steward.transition.acquire(1).await;
            let gate = steward.master().gate();
            assert_ne!(gate, Gate::Closed, "only a transition closes the gate");
            if gate == Gate::Open && !is_flushed {
                continue;
            }
            if gate == Gate::Open {
                self.end().await;
            }
            self.is_running.set(false);
            self.changed.notify_all();
            return;
        }
    }

    /// Flushes the members, unless a stop has begun: that waits for what is under way, and flushes them itself.
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

    /// Waits until no flush of a pass is under way. None begins after a stop has.
    pub(crate) async fn flush_over(&self) {
        assert!(self.steward.is_stopping.get(), "a stop waits for it");
        self.changed.wait_for(|| (!self.is_flushing.get()).then_some(())).await;
    }

    fn is_over(&self) -> bool {
        let progress = self.progress.get();
        assert!(progress.done <= progress.total, "a pass goes over what there is");
        progress.done == progress.total
    }

    /// Lets every shard pass over all that it owns, and asks them now and then how far they are. Of an idle array, the
    /// superblocks learn it too.
    async fn pass_over_all(&self) {
        let steward = &self.steward;
        let mut all = pin!(steward.shared.calls.call_all(|| Call::Pass));
        loop {
            // Only the sleep is dropped: a round of superblocks must not be.
            if let Either::Left(reports) = race(all.as_mut(), steward.shared.world.sleep(REPORT_PERIOD)).await {
                self.note(reports.into_iter().map(Answer::passed));
                return;
            }
            let below = self.note(steward.pass_reports().await.into_iter());
            let recorded = steward.master().resync_from().expect("the resync runs");
            let is_far = below.0 >= recorded.0 + self.progress.get().total.0.div_ceil(CHECKPOINTS);
            if is_far && steward.may_record_checkpoint() && self.flush().await {
                self.record_checkpoint(below).await;
            }
        }
    }

    /// Every shard has passed over all that it owns, and the members were flushed. The caller holds the transition.
    async fn end(&self) {
        let steward = &self.steward;
        // Without a write under way the superblocks do not say dirty, and must learn that the array is consistent.
        let is_recorded_now = !steward.master().takes_writes();
        if self.progress.get().unreadable.is_zero() {
            steward.publish(Change::EndResync).await;
        } else {
            // A sector that no member could give now may become readable later and then disagree: do not mark the array
            // clean.
            mark::hit(Mark::ResyncUnreadable);
            steward.publish(Change::MarkSuspect).await;
        }
        if is_recorded_now {
            let version = steward.master().version();
            // If this fails, the array freezes, and the next write gets that error.
            let _ = self.recorder.record_up_to(version).await;
        }
    }

    /// `below` is consistent on every shard, and was flushed.
    async fn record_checkpoint(&self, below: Sectors) {
        let steward = &self.steward;
        let _one = steward.transition.acquire(1).await;
        if steward.may_record_checkpoint() {
            steward.note_checkpoint(below);
            let version = steward.master().version();
            let _ = self.recorder.record_up_to(version).await;
        }
    }

    /// Sums up what the shards have said. Returns what is consistent on all of them.
    fn note(&self, reports: impl Iterator<Item = PassReport>) -> Sectors {
        let total = self.progress.get().total;
        let (mut below, mut readable_below, mut met) = (total, total, PassCounts::default());
        for report in reports {
            below = below.min(report.below);
            readable_below = readable_below.min(report.readable_below);
            met.add(report.counts);
        }
        assert!(readable_below <= below && below <= total, "a shard passes over what there is");
        let [corrected, skipped, unreadable] = [met.corrected, met.skipped, met.unreadable].map(Sectors);
        self.progress.set(Progress { done: below, total, corrected, skipped, unreadable });
        self.changed.notify_all();
        readable_below
    }
}
