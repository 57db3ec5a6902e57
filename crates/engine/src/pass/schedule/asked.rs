//! Passes by command: check and repair, and what every pass is told: pause, end, speed.
//! Owns: [`CheckError`], when a check may begin, its order, its end and its result. Not here: what a window compares
//! (`resync::check`), the passes that an array needs (`schedule`).
//! Invariant: a check waits for no other pass, and no other pass waits for a check: a resync or recovery that becomes
//! due ends it. A check changes no state of the array and no superblock.

use super::Next;
use crate::pass::passes::Passes;
use crate::shard::mail::{Answer, Call};
use crate::shard::world::World;
use crate::state::view::Gate;
use crate::steward::NotNow;
use crate::words::findings::{CheckEnd, Checked, Findings};
use crate::words::mark::{self, Mark};
use crate::words::progress::{self, PassKind, PassOrder, Progress};
use crate::words::progress::{SpeedLimits, Steering};
use std::time::Duration;
use uraid_block::local::race;
use uraid_block::{IoError, Sectors};
use uraid_layout::Layout;

/// The longest time that the end of a check by command waits for windows in flight.
const END_MAX: Duration = Duration::from_secs(2);

/// Why a check or repair cannot begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckError {
    /// The level has no redundancy.
    #[error("the level has no copies and no parity: there is nothing to compare")]
    NotRedundant,
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting, stopping or stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The array is frozen.
    #[error("the array is frozen")]
    Frozen(#[source] IoError),
    /// Passes are paused.
    #[error("passes are paused; let them go on first")]
    Paused,
    /// Another pass runs or is due.
    #[error("another pass runs already, or is due")]
    Busy(PassKind),
    /// A recovery met sectors that it could not read, and a member does not hold everything.
    #[error("a member does not hold everything, and its recovery was given up; replace it first")]
    NotRecovered,
    /// Members are missing.
    #[error("too many members are missing: no redundancy is left to compare")]
    NothingLeft,
}

impl From<NotNow> for CheckError {
    fn from(reason: NotNow) -> CheckError {
        match reason {
            NotNow::ReadOnly => CheckError::ReadOnly,
            NotNow::NotOpen => CheckError::NotOpen,
            NotNow::Frozen(error) => CheckError::Frozen(error),
        }
    }
}

impl<W: World> Passes<W> {
    /// Begins a check or repair, from this place on.
    pub(crate) fn ask(&self, kind: PassKind, from: Sectors) -> Result<(), CheckError> {
        assert!(kind.is_by_command(), "the others begin by themselves");
        self.may_ask()?;
        let total = progress::total(&self.steward.shared.layout());
        let from = from.min(total);
        self.asked.set(Some(kind));
        self.asked_from.set(from);
        *self.checked.borrow_mut() = None;
        self.progress.set(Progress { kind, done: from, total, ..Progress::default() });
        self.steward.shared.view_changed.notify_all();
        Ok(())
    }

    fn may_ask(&self) -> Result<(), CheckError> {
        let steward = &self.steward;
        let shared = &steward.shared;
        if !shared.is_redundant() {
            return Err(CheckError::NotRedundant);
        }
        steward.check_open()?;
        match (self.steering.get().is_paused, self.progress().map(|progress| progress.kind)) {
            (_, Some(kind)) => return Err(CheckError::Busy(kind)),
            (true, None) => return Err(CheckError::Paused),
            (false, None) => {}
        }
        let master = steward.master();
        if !master.recovering().is_empty() {
            return Err(CheckError::NotRecovered);
        }
        let (slots, readable) = (usize::from(shared.layout().slots()), master.readable().count());
        let needed = match &*shared.layout() {
            Layout::Parity(_) => slots - usize::from(shared.layout().tolerates()),
            Layout::Copies(_) => 1,
        };
        if readable > needed { Ok(()) } else { Err(CheckError::NothingLeft) }
    }

    /// Ends a check or repair where it is, and waits until the next one could begin, unless a member does not answer.
    /// Returns whether there was one.
    pub(crate) async fn end_asked(&self) -> bool {
        let asked = self.asked.take();
        let running = || self.steward.pass_order.get().filter(|order| order.kind.is_by_command());
        match (running(), asked) {
            (Some(order), _) => {
                self.steer(|steering| steering.ended = steering.ended.max(order.number)).await;
                let is_over = || running().is_none_or(|now| now.number != order.number).then_some(());
                race(self.changed.wait_for(is_over), self.steward.shared.world.sleep(END_MAX)).await;
            }
            (None, Some(kind)) => self.end_unbegun(kind, CheckEnd::Ended),
            (None, None) => {}
        }
        self.changed.notify_all();
        asked.is_some()
    }

    /// Pauses every pass and lets none begin; or lets passes go on.
    pub(crate) async fn pause(&self, is_paused: bool) {
        self.steer(|steering| steering.is_paused = is_paused).await;
    }

    pub(crate) async fn set_limits(&self, limits: SpeedLimits) {
        let share = self.share(limits);
        self.steer(|steering| {
            steering.limits = limits;
            steering.share = share;
        })
        .await;
    }

    pub(crate) fn steering(&self) -> Steering {
        self.steering.get()
    }

    /// The result of the last check or repair, if it has ended and none has begun since.
    pub(crate) fn checked(&self) -> Option<Checked> {
        self.checked.borrow().clone()
    }

    /// Passes over the array for a command.
    pub(super) async fn check(&self, kind: PassKind) {
        let order = self.order(kind);
        self.steward.pass_order.set(Some(order));
        self.pass_over_all(&order).await;
        // Only a flush makes durable what a repair wrote. A flush that fails makes its member fail or the array freeze,
        // and that is reported there.
        let is_flushed = kind.skips_flush() || self.flush().await;
        let end = self.end_of(&order, is_flushed);
        let mismatches = self.steward.shared.calls.call_all(|| Call::TakeFindings).await;
        let mismatches = Findings::merge(mismatches.into_iter().map(Answer::findings));
        *self.checked.borrow_mut() = Some(Checked { kind, end, progress: self.progress.get(), mismatches });
        self.steward.pass_order.set(None);
        self.asked.set(None);
    }

    fn end_of(&self, order: &PassOrder, is_flushed: bool) -> CheckEnd {
        if self.is_over() && is_flushed {
            return CheckEnd::Complete;
        }
        mark::hit(Mark::CheckEnded);
        match self.asked.get() {
            None => CheckEnd::Ended,
            Some(_) if self.steward.master().gate() == Gate::Open && self.is_superseded(order) => CheckEnd::Superseded,
            Some(_) => CheckEnd::Stopped,
        }
    }

    /// The array stops or froze before the pass has begun.
    pub(super) fn drop_asked(&self) {
        let Some(kind) = self.asked.take() else { return };
        self.end_unbegun(kind, CheckEnd::Stopped);
    }

    /// The result of a pass that no shard has begun.
    fn end_unbegun(&self, kind: PassKind, end: CheckEnd) {
        let total = progress::total(&self.steward.shared.layout());
        let progress = Progress { kind, done: self.asked_from.get(), total, ..Progress::default() };
        *self.checked.borrow_mut() = Some(Checked { kind, end, progress, mismatches: Vec::new() });
    }

    /// Whether a pass by command must end: a command ended it, or the array needs another pass.
    fn is_superseded(&self, order: &PassOrder) -> bool {
        order.kind.is_by_command() && self.needed() != Some(Next::Pass(order.kind))
    }

    /// Ends a pass by command if it must end.
    pub(super) async fn end_superseded(&self, order: &PassOrder) {
        if self.is_superseded(order) {
            self.steer(|steering| steering.ended = steering.ended.max(order.number)).await;
        }
    }
}
