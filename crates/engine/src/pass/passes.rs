//! Passes over a whole array, beside its requests: the resync, and the recovery of members that have taken a slot.
//! Owns: [`Passes`], which pass is next, when a spare takes a slot, progress, what the end of a pass changes. Not here:
//! the part of each shard (`shard_pass`), what is done in a window (`resync`), the superblocks that say how far a pass has
//! come (`dirty_mark`, `recorder`).
//! Invariant: any copy may be read, and parity is relied upon, only when every shard has gone through all that it
//! owns. A member is read only when its recovery has ended on every shard, and it was flushed.
//!
//! ```text
//!   start      superblocks say dirty -> the gate opens, mirrors read the canonical copy -> every shard passes
//!   end        flush -> publish "consistent" -> superblocks, if no write is under way
//!   stop       the gate closes -> drain (windows are inside the epoch) -> flush -> superblocks: dirty from here on
//!   a crash    before any of these superblocks: the next start begins anew, or at the last recorded sector
//!
//!   spare      drain (no request knows the slot's last member) -> superblocks list it in the slot, recovered up to 0
//!              -> publish: every write goes to it -> drain (no write misses it) -> every shard passes
//!   end        flush -> superblocks list it without a recovery -> publish: it is read
//!   a crash    its superblock says how far it was recovered; what is below was flushed, and is written by a resync
//! ```
//!
//! A spare takes its slot before a resync, which then writes nothing to it. The recovery follows the resync.

mod asked;
mod replace;
mod take_slot;

pub use asked::CheckError;
pub use replace::ReplaceError;

use crate::shard::mail::{Answer, Call};
use crate::shard::world::World;
use crate::state::master::Change;
use crate::state::view::Gate;
use crate::steward::current_bitmap::CurrentBitmap;
use crate::steward::flusher::Flusher;
use crate::steward::ppl::Ppl;
use crate::steward::recorder::Recorder;
use crate::steward::{Steward, recovered_below};
use crate::words::findings::Checked;
use crate::words::mark::{self, Mark};
use crate::words::progress::Steering;
use crate::words::progress::{self, PassCounts, PassKind, PassOrder, PassReport, Progress};
use crate::words::sabotage::{self, Sabotage};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, race};
use uraid_block::{IoError, Sectors, Slot, SlotSet};
use uraid_layout::Layout;

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

/// The passes of an array; on shard 0 only.
pub(crate) struct Passes<W: World> {
    steward: Rc<Steward<W>>,
    recorder: Rc<Recorder<W>>,
    flusher: Rc<Flusher<W>>,
    bitmap: Rc<CurrentBitmap<W>>,
    ppl: Option<Rc<Ppl<W>>>,
    /// There is a task that runs passes.
    is_driven: Cell<bool>,
    /// A pass runs, or a spare takes its slot.
    is_running: Cell<bool>,
    is_flushing: Cell<bool>,
    /// Members with a slot, or the second place of one, that writes under way may not go to.
    undrained: Cell<u32>,
    /// The number of the last order.
    number: Cell<u64>,
    /// Slots whose recovery met sectors that no member could give.
    given_up: Cell<SlotSet>,
    /// The same, of copies to another member.
    copy_given_up: Cell<SlotSet>,
    progress: Cell<Progress>,
    /// The check or repair that a command asked for, until it has ended.
    asked: Cell<Option<PassKind>>,
    /// The result of the last check or repair.
    checked: RefCell<Option<Checked>>,
    steering: Cell<Steering>,
    changed: Notify,
}

impl<W: World> Passes<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        recorder: &Rc<Recorder<W>>,
        flusher: &Rc<Flusher<W>>,
        bitmap: &Rc<CurrentBitmap<W>>,
        ppl: Option<Rc<Ppl<W>>>,
    ) -> Rc<Passes<W>> {
        let total = progress::total(&steward.shared.layout);
        Rc::new(Passes {
            steward: steward.clone(),
            recorder: recorder.clone(),
            flusher: flusher.clone(),
            bitmap: bitmap.clone(),
            ppl,
            is_driven: Cell::new(false),
            is_running: Cell::new(false),
            is_flushing: Cell::new(false),
            undrained: Cell::new(0),
            number: Cell::new(0),
            given_up: Cell::new(SlotSet::EMPTY),
            copy_given_up: Cell::new(SlotSet::EMPTY),
            progress: Cell::new(Progress { total, ..Progress::default() }),
            asked: Cell::new(None),
            checked: RefCell::default(),
            steering: Cell::default(),
            changed: Notify::new(),
        })
    }

    /// Runs what is due until the array stops or freezes. The caller holds the transition, and has just opened the gate.
    /// What a recovery did before a freeze does not count: the recovery begins anew.
    pub(crate) fn begin(self: &Rc<Self>) {
        let order = self.steward.pass_order.get();
        self.steward.pass_order.set(order.filter(|order| order.kind == PassKind::Resync));
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
        let master = self.steward.master();
        if self.steward.shared.config.read_only {
            None
        } else if master.wanted_spare().is_some() {
            Some(Next::TakeSpare)
        } else if master.needs_resync() {
            Some(Next::Pass(PassKind::Resync))
        } else {
            let recovery = (!self.to_recover().is_empty()).then_some(PassKind::Recovery);
            let copy = || self.to_copy().map(|_| PassKind::Replace);
            recovery.or_else(copy).or_else(|| self.asked.get()).map(Next::Pass)
        }
    }

    /// Whether a member has a slot, or the second place of one, and writes under way may not go to it.
    pub(crate) fn has_undrained(&self) -> bool {
        self.undrained.get() > 0
    }

    /// The slots whose member is to be recovered.
    fn to_recover(&self) -> SlotSet {
        self.steward.master().recovering().minus(self.given_up.get())
    }

    /// The slot whose member is to be copied next.
    fn to_copy(&self) -> Option<Slot> {
        self.steward.master().replaced().find(|slot| !self.copy_given_up.get().contains(*slot))
    }

    /// How far the pass has come, if one runs, is due or was stopped.
    pub(crate) fn progress(&self) -> Option<Progress> {
        // A check or repair that was told to end still has windows in flight, and no result yet.
        if self.steward.pass_order.get().is_some_and(|order| order.kind.is_by_command()) {
            return Some(self.progress.get());
        }
        let kind = match self.needed()? {
            Next::Pass(kind) => kind,
            Next::TakeSpare if self.steward.master().needs_resync() => PassKind::Resync,
            Next::TakeSpare | Next::End => PassKind::Recovery,
        };
        let begun = match self.steward.pass_order.get() {
            Some(order) if order.kind == kind => self.progress.get(),
            Some(_) | None => {
                Progress { kind, total: progress::total_of(&self.steward.shared.layout, kind), ..Progress::default() }
            }
        };
        let slots = self.slots_of(kind);
        // A spare that has no slot yet holds nothing.
        let is_spare = kind == PassKind::Recovery && slots.is_empty();
        let recorded = if is_spare { Sectors::ZERO } else { self.recorded(kind, slots).min(begun.total) };
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
            let is_skipped = kind == PassKind::Resync && sabotage::is(Sabotage::SkipResync);
            if !is_skipped {
                self.pass_over_all(&order).await;
            }
            // Copies that were made equal must not differ again after a crash, and a member that is read must not lose
            // what it was given. If this fails, the array has frozen, or the member has failed.
            let skips_flush = match kind {
                PassKind::Resync => sabotage::is(Sabotage::SkipPassFlush),
                PassKind::Recovery => sabotage::is(Sabotage::TrustUnflushed),
                PassKind::Replace => sabotage::is(Sabotage::ReplaceUnflushed),
                PassKind::Check | PassKind::Repair => unreachable!("no superblock waits for these"),
            };
            let is_flushed = (self.is_over() || is_skipped) && (skips_flush || self.flush().await);
            // A stop or command that closes the gate holds the transition until it has opened it, or stopped the array.
            let _one = steward.transition.acquire(1).await;
            let gate = steward.master().gate();
            assert!(!matches!(gate, Gate::Closed | Gate::NoNewWrites), "only a transition closes the gate");
            if !self.is_valid(&order) {
                mark::hit(Mark::RecoveryAnew);
                return;
            }
            if gate == Gate::Open && !is_flushed && !self.is_needless(&order) {
                continue;
            }
            if gate == Gate::Open {
                match kind {
                    PassKind::Resync => self.end_resync().await,
                    PassKind::Recovery => self.end_recovery(&order).await,
                    PassKind::Replace => self.end_copy(&order).await,
                    PassKind::Check | PassKind::Repair => unreachable!("these end by themselves"),
                }
                steward.pass_order.set(None);
            }
            return;
        }
    }

    /// What every shard is to do, and where the pass begins.
    fn order(&self, kind: PassKind) -> PassOrder {
        let layout = &self.steward.shared.layout;
        let recovering = self.slots_of(kind);
        let written_below = match kind {
            // It keeps right what these members hold already. What they lack is recovered afterwards.
            PassKind::Resync => self.steward.master().most_recovered(),
            PassKind::Recovery | PassKind::Replace => Sectors(u64::MAX),
            PassKind::Check | PassKind::Repair => Sectors::ZERO,
        };
        let total = progress::total_of(layout, kind);
        let from = self.recorded(kind, recovering).min(total);
        self.progress.set(Progress { kind, done: from, total, ..Progress::default() });
        self.number.set(self.number.get() + 1);
        let by_bits = kind == PassKind::Recovery && self.steward.master().lack_only_bits(recovering);
        let second = match kind {
            PassKind::Replace => self.to_copy().and_then(|slot| self.steward.master().replacing(slot)),
            PassKind::Resync | PassKind::Recovery | PassKind::Check | PassKind::Repair => None,
        };
        let second = second.map(|(member, _)| member);
        PassOrder {
            number: self.number.get(),
            kind,
            recovering,
            second,
            from,
            written_below,
            unreadable: SlotSet::EMPTY,
            by_bits,
        }
    }

    /// The slots whose members a pass of this kind writes now, though they are not read.
    fn slots_of(&self, kind: PassKind) -> SlotSet {
        match (kind, &self.steward.shared.layout) {
            (PassKind::Resync, _) => self.steward.master().recovering(),
            (PassKind::Recovery, Layout::Parity(_)) => self.to_recover(),
            (PassKind::Recovery, Layout::Copies(_)) => self.to_recover().iter().take(1).collect(),
            (PassKind::Replace, _) => self.to_copy().into_iter().collect(),
            (PassKind::Check | PassKind::Repair, _) => SlotSet::EMPTY,
        }
    }

    /// Whether the work of this pass still counts: that of a recovery does not if a freeze has ended since it began.
    fn is_valid(&self, order: &PassOrder) -> bool {
        order.kind == PassKind::Resync || self.steward.pass_order.get() == Some(*order)
    }

    /// Whether all members that the order would recover have failed.
    fn is_needless(&self, order: &PassOrder) -> bool {
        let master = self.steward.master();
        match order.kind {
            PassKind::Recovery => order.recovering.and(master.recovering()).is_empty(),
            PassKind::Replace => {
                let second = |slot: Slot| master.replacing(slot).map(|(member, _)| member);
                order.recovering.iter().all(|slot| second(slot) != order.second)
            }
            PassKind::Resync | PassKind::Check | PassKind::Repair => false,
        }
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
        let mut all = pin!(steward.shared.calls.call_all(|| Call::Pass(*order)));
        loop {
            // Only the sleep is dropped: a round of superblocks must not be.
            if let Either::Left(reports) = race(all.as_mut(), steward.shared.world.sleep(REPORT_PERIOD)).await {
                self.note(order, reports.into_iter().map(Answer::passed).collect());
                if !steward.is_stopping.get() {
                    self.tell_of_clients(false).await;
                }
                return;
            }
            if steward.is_stopping.get() {
                continue;
            }
            let reports = steward.pass_reports().await;
            let has_clients = reports.len() > 1 && reports.iter().any(|report| report.has_clients);
            let below = self.note(order, reports);
            self.tell_of_clients(has_clients).await;
            self.end_superseded(order).await;
            let total = self.progress.get().total;
            let recorded = self.recorded(order.kind, order.recovering).min(total);
            let is_far = below.0 >= recorded.0 + total.0.div_ceil(CHECKPOINTS);
            if is_far && self.may_record(order) && self.flush().await {
                self.record_checkpoint(order, below).await;
            }
        }
    }

    /// How far a pass has come according to the superblocks; for a recovery, the one of the members in these slots.
    fn recorded(&self, kind: PassKind, recovering: SlotSet) -> Sectors {
        let master = self.steward.master();
        match kind {
            PassKind::Resync => master.resync_from().expect("a resync is needed"),
            PassKind::Recovery => master.recovered_below(recovering),
            PassKind::Replace => {
                let copied = recovering.iter().filter_map(|slot| master.copied_below(slot)).min();
                copied.unwrap_or(Sectors::ZERO)
            }
            PassKind::Check | PassKind::Repair => Sectors::ZERO,
        }
    }

    fn may_record(&self, order: &PassOrder) -> bool {
        let steward = &self.steward;
        match order.kind {
            PassKind::Resync => steward.may_record_checkpoint(),
            PassKind::Recovery | PassKind::Replace => {
                self.is_valid(order) && steward.master().gate() == Gate::Open && !steward.is_stopping.get()
            }
            PassKind::Check | PassKind::Repair => false,
        }
    }

    /// Every shard has gone through all that it owns, and the members were flushed. The caller holds the transition.
    async fn end_resync(&self) {
        let steward = &self.steward;
        // If no write is under way, the superblocks are not marked dirty, and must record that the array is consistent.
        let is_recorded_now = !steward.master().takes_writes();
        if self.progress.get().unreadable.is_zero() {
            steward.publish(Change::EndResync).await;
            if let Some(ppl) = &self.ppl {
                // If this fails, the array has frozen.
                let _ = ppl.complete().await;
            }
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

    /// Every shard has gone through all that it owns, and the members were flushed; or the members to be recovered have
    /// failed. The caller holds the transition.
    async fn end_recovery(&self, order: &PassOrder) {
        let steward = &self.steward;
        let slots = order.recovering.and(steward.master().recovering());
        if slots.is_empty() {
            mark::hit(Mark::RecoveryNeedless);
            return;
        }
        if !self.progress.get().unreadable.is_zero() {
            // The member stays as it is: written, and not read.
            mark::hit(Mark::RecoveryGivenUp);
            self.given_up.set(self.given_up.get().or(slots));
            return;
        }
        mark::hit(Mark::RecoveryEnded);
        // The end is recorded before the member is read: then a write that counts on the member need not flush the
        // others from which its content would be computed.
        steward.apply(Change::ShowRecovered(slots));
        let version = steward.master().version();
        let is_recorded = self.recorder.record_up_to(version).await.is_ok();
        // A member may have failed meanwhile.
        let slots = slots.and(steward.master().recovering());
        if is_recorded && !slots.is_empty() {
            steward.publish(Change::EndRecovery(slots)).await;
        }
    }

    /// All below `below` is done on every shard, and was flushed.
    async fn record_checkpoint(&self, order: &PassOrder, below: Sectors) {
        let steward = &self.steward;
        let _one = steward.transition.acquire(1).await;
        if !self.may_record(order) {
            return;
        }
        match order.kind {
            PassKind::Resync => steward.note_checkpoint(below),
            PassKind::Recovery | PassKind::Replace => {
                mark::hit(Mark::RecoveryCheckpoint);
                steward.note_recovered(Some((*order, below)));
            }
            PassKind::Check | PassKind::Repair => unreachable!("no superblock says how far these are"),
        }
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
        let readable_below = match order.kind {
            PassKind::Resync => reports.iter().map(|report| report.in_sync_below).min().expect("an array has a shard"),
            PassKind::Recovery | PassKind::Replace | PassKind::Check | PassKind::Repair => {
                recovered_below(order, &reports)
            }
        };
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
