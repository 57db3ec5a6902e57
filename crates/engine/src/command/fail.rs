//! Members failed by command, in an open array and in one that froze.
//! Owns: [`FailError`], `fail`, [`Commands`], for whose end a stop waits. Not here: what a failure changes (`judge`,
//! `steward`), superblocks (`recorder`).
//! Invariant: `fail` does not change what readers see. They see the same data while the array is frozen, afterwards,
//! and after a crash at any step and a new start.
//!
//! An array froze because members are full. Each write that it refused may be on some members and not on others. `fail`
//! takes the full members out, and the array takes writes again:
//!
//! ```text
//!   step                                       a crash after it: the next start has
//!   close the gate, wait for older requests    all members, dirty: the resync keeps the canonical copies, and the data
//!   make torn parts whole, but not on those    the same: what was written is what this resync would write
//!     that leave (`torn`)
//!   flush the members that stay                the same
//!   round 1 of superblocks: all in their slots the same
//!   round 2: those that leave are faulty       the members that stay, dirty, all redundancy right
//!   open the gate                              the same
//! ```

use crate::World;
use crate::pass::passes::Passes;
use crate::pass::torn_resync::{TornResync, TornResyncError};
use crate::shard::mail::Call;
use crate::state::master::{Change, FreezeCause};
use crate::state::recorded::FailureOutcome;
use crate::state::view::Gate;
use crate::steward::dirty_mark::DirtyMark;
use crate::steward::flusher::Flusher;
use crate::steward::judge::Judge;
use crate::steward::recorder::Recorder;
use crate::steward::{NotNow, Steward};
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::verdict::Operation;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, oneshot, race};
use uraid_block::{ErrorKind, IoError, Slot, SlotSet};

/// How long `fail` keeps readers out of a frozen array while older requests wait for members. A member that does not
/// answer is failed after its timeout, which is usually 30 s. Readers of the other members need not wait for that.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The time limit for a member to read or write a piece of a torn part: as long as a disk may take for one request.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const _: () = assert!(DRAIN_MAX.as_secs() < ANSWER_MAX.as_secs(), "readers wait for less than one slow request");

/// Why no member was failed by command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FailError {
    /// There is no working member in that slot.
    #[error("{slot} has no working member")]
    NoMember {
        /// The slot that was named.
        slot: Slot,
    },
    /// The array cannot serve without them.
    #[error("the array cannot serve without {left} of its {working} working members: {needed} are needed")]
    Needed {
        /// Members that were named.
        left: usize,
        /// Members that work now.
        working: usize,
        /// How many must work.
        needed: usize,
    },
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The failure could not be recorded.
    #[error("the failure could not be recorded, the array is frozen")]
    Frozen(#[source] IoError),
    /// The array is frozen, and would stay so without these members.
    #[error("the array stays frozen")]
    StaysFrozen(#[source] StaysFrozen),
}

/// Why a frozen array would not take writes again after the named members are failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StaysFrozen {
    /// It froze during its start.
    #[error("it froze while it was started; make room, stop it and start it again")]
    NotStarted,
    /// More members were full or failed together than it can lose.
    #[error("more members were full or failed together than it can lose; see to them, stop it and start it again")]
    TooMany,
    /// A flush failed on more members than it can lose.
    #[error("a flush failed, so writes may be lost; stop it and start it again")]
    LostFlush,
    /// A member failed after the array froze, and no superblock says so.
    #[error("another member failed after the array froze; stop it and start it again")]
    FailedSince,
    /// A member does not answer.
    #[error("a member does not answer; try again when it does, or stop the array and start it again")]
    Unanswered,
    /// A member that would stay cannot be written where a refused write was left half done.
    #[error("{slot} would stay and cannot be written: make room for it, or name it in the same command ({error})")]
    CannotWrite {
        /// Its slot.
        slot: Slot,
        /// The error.
        error: IoError,
    },
    /// Readers see this member's copy of a refused write, and that copy cannot be read.
    #[error("{slot} cannot be read where a write was left half done; stop it and start it again ({error})")]
    CannotRead {
        /// Its slot.
        slot: Slot,
        /// The error.
        error: IoError,
    },
    /// A write was left half done in a stripe that lacks a data member already.
    #[error("a write was left half done in a stripe whose data on {slot} is missing; stop it and start it again")]
    LostData {
        /// The slot of the missing member.
        slot: Slot,
    },
}

impl From<NotNow> for FailError {
    fn from(reason: NotNow) -> FailError {
        match reason {
            NotNow::ReadOnly => FailError::ReadOnly,
            NotNow::NotOpen => FailError::NotOpen,
            NotNow::Frozen(error) => FailError::Frozen(error),
        }
    }
}

impl From<TornResyncError> for StaysFrozen {
    fn from(error: TornResyncError) -> StaysFrozen {
        match error {
            TornResyncError::Read(slot, error) => StaysFrozen::CannotRead { slot, error },
            TornResyncError::Write(slot, error) => StaysFrozen::CannotWrite { slot, error },
            TornResyncError::Missing(slot) => StaysFrozen::LostData { slot },
        }
    }
}

/// Carries out commands, and counts those under way, so that a stop can wait for them; on shard 0 only.
pub(crate) struct Commands<W: World> {
    steward: Rc<Steward<W>>,
    judge: Rc<Judge<W>>,
    recorder: Rc<Recorder<W>>,
    dirty_mark: Rc<DirtyMark<W>>,
    flusher: Rc<Flusher<W>>,
    passes: Rc<Passes<W>>,
    torn_resync: TornResync<W>,
    under_way: UnderWay,
}

#[derive(Default)]
struct UnderWay {
    running: Cell<usize>,
    are_over: Cell<bool>,
    changed: Notify,
}

/// A `fail` command under way, until this is dropped.
struct Running<'a>(&'a UnderWay);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        assert!(self.0.running.get() > 0, "a command ends once");
        assert!(!self.0.are_over.get(), "the end waits for each command");
        self.0.running.set(self.0.running.get() - 1);
        self.0.changed.notify_all();
    }
}

impl UnderWay {
    fn begin(&self) -> Option<Running<'_>> {
        if self.are_over.get() {
            assert_eq!(self.running.get(), 0, "none runs after the end");
            return None;
        }
        self.running.set(self.running.get() + 1);
        Some(Running(self))
    }

    async fn end(&self) {
        self.changed.wait_for(|| (self.running.get() == 0).then_some(())).await;
        assert!(!self.are_over.replace(true), "an array stops once");
    }
}

/// What became of members of a frozen array that were to be failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drained {
    /// They are failed, and the array takes writes again.
    Failed,
    /// A failure that came late has frozen the array again, for the same cause, and let readers in.
    FrozenAnew,
}

impl<W: World> Commands<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        judge: &Rc<Judge<W>>,
        recorder: &Rc<Recorder<W>>,
        dirty_mark: &Rc<DirtyMark<W>>,
        flusher: &Rc<Flusher<W>>,
        passes: &Rc<Passes<W>>,
        torn_resync: TornResync<W>,
    ) -> Rc<Commands<W>> {
        Rc::new(Commands {
            steward: steward.clone(),
            judge: judge.clone(),
            recorder: recorder.clone(),
            dirty_mark: dirty_mark.clone(),
            flusher: flusher.clone(),
            passes: passes.clone(),
            torn_resync,
            under_way: UnderWay::default(),
        })
    }

    /// Refuses new commands and waits until none is under way. A stop calls this, and afterwards it writes no
    /// superblock that could record a member as failed.
    pub(crate) async fn end(&self) {
        self.under_way.end().await;
    }

    /// Fails members by command: all of them or none. It works also while a stop waits for these members. Returns when
    /// the superblocks of the other members record the failure. If the array froze because these members are full, it
    /// then takes writes again.
    pub(crate) async fn fail(self: &Rc<Self>, slots: SlotSet) -> Result<(), FailError> {
        match self.steward.shared.view().gate {
            Gate::ReadOnly => return Err(FailError::ReadOnly),
            Gate::Closed if self.is_closed_to_stop() => {}
            Gate::Closed | Gate::Stopped => return Err(FailError::NotOpen),
            Gate::Frozen(_) => return self.fail_frozen(slots).await,
            // An array that becomes read-only may wait for this member.
            Gate::Open | Gate::NoNewWrites => {}
        }
        let Some(_running) = self.under_way.begin() else { return Err(FailError::NotOpen) };
        self.check_fail(slots)?;
        mark::hit(Mark::FailedByHand);
        match self.recorder.fail_members(&self.by_command(slots)).await {
            // Spares may have taken the slots of these members by now.
            FailureOutcome::Recorded | FailureOutcome::Unwritten(_) => Ok(()),
            FailureOutcome::Frozen(error) => Err(FailError::Frozen(error)),
        }
    }

    /// Whether a stop has closed the gate of an array that was open, so that its copies agree. The stop may wait for a
    /// member that does not answer, and continues once that member is failed.
    fn is_closed_to_stop(&self) -> bool {
        let steward = &self.steward;
        let master = steward.master();
        let takes_records = master.frozen().is_none() && !master.writes_nothing();
        steward.is_stopping.get() && master.has_opened() && takes_records
    }

    /// Whether the array has these members and can serve without them.
    fn check_fail(&self, slots: SlotSet) -> Result<(), FailError> {
        let (usable, writable) = self.steward.shared.with_view(|view| (view.readable(), view.writable()));
        if let Some(slot) = slots.minus(writable).iter().next() {
            return Err(FailError::NoMember { slot });
        }
        let left = usable.minus(self.judge.collected()).minus(slots);
        assert_eq!(usable, self.steward.master().readable(), "shard 0 has the newest view");
        if !self.steward.shared.is_redundant() || !self.steward.shared.layout().can_serve(&left) {
            mark::hit(Mark::NeededByHand);
            let needed = usize::from(self.steward.shared.layout().slots())
                - usize::from(self.steward.shared.layout().tolerates());
            return Err(FailError::Needed { left: slots.count(), working: usable.count(), needed });
        }
        Ok(())
    }

    async fn fail_frozen(self: &Rc<Self>, slots: SlotSet) -> Result<(), FailError> {
        let steward = &self.steward;
        self.dirty_mark.revoke_clean_up().await;
        // A round of superblocks may hold it, and wait for a member that does not answer.
        let Either::Left(_one) = race(steward.transition.acquire(1), steward.shared.world.sleep(DRAIN_MAX)).await
        else {
            return Err(FailError::StaysFrozen(StaysFrozen::Unanswered));
        };
        if steward.is_stopping.get() || !matches!(self.steward.shared.view().gate, Gate::Frozen(_)) {
            return Err(FailError::NotOpen);
        }
        assert!(self.steward.master().frozen().is_some(), "the view says so");
        self.check_fail_frozen(slots)?;
        let failures = self.by_command(slots);
        let outcome = loop {
            let outcome = match self.close_and_drain().await {
                Ok(()) => self.fail_drained(slots, &failures).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(Drained::FrozenAnew) => mark::hit(Mark::FailedFrozenAgain),
                Ok(Drained::Failed) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if outcome.is_err() {
            self.steward.publish(Change::OpenFrozen).await;
        }
        outcome
    }

    /// [`Commands::check_fail`], and whether the array would take writes again.
    fn check_fail_frozen(&self, slots: SlotSet) -> Result<(), FailError> {
        self.check_fail(slots)?;
        match self.stays_frozen(slots) {
            Some(cause) => Err(FailError::StaysFrozen(cause)),
            None => Ok(()),
        }
    }

    /// Why the array could not take writes again without these members, if that is known before anything is written.
    fn stays_frozen(&self, slots: SlotSet) -> Option<StaysFrozen> {
        let master = self.steward.master();
        // A member that stays must not be two events behind: the next start would leave it out.
        let behind = master.missed_round().and(master.writable()).minus(slots).iter().next();
        let frozen = master.frozen().expect("only a frozen array is asked");
        match frozen.cause {
            FreezeCause::LostFlush => Some(StaysFrozen::LostFlush),
            FreezeCause::TooMany => Some(StaysFrozen::TooMany),
            FreezeCause::FailedSince => Some(StaysFrozen::FailedSince),
            FreezeCause::Full if !master.has_opened() => Some(StaysFrozen::NotStarted),
            FreezeCause::Full if !master.is_recorded() => Some(StaysFrozen::FailedSince),
            FreezeCause::Full => behind.map(|slot| StaysFrozen::CannotWrite { slot, error: ErrorKind::NoSpace.into() }),
        }
    }

    /// Closes the gate and waits until no request is inside. If a request fails a member meanwhile, the array freezes
    /// again and admits reads. Then this function starts over.
    async fn close_and_drain(&self) -> Result<(), FailError> {
        let drained = async {
            loop {
                let epoch = self.steward.publish(Change::Close).await;
                self.steward.drain(epoch).await;
                self.judge.collection_over().await;
                if self.steward.shared.view().gate == Gate::Closed {
                    assert_eq!(self.steward.shared.epochs.in_flight(), 0, "none has entered since the drain");
                    return;
                }
            }
        };
        match race(drained, self.steward.shared.world.sleep(DRAIN_MAX)).await {
            Either::Left(()) => Ok(()),
            Either::Right(()) => Err(FailError::StaysFrozen(StaysFrozen::Unanswered)),
        }
    }

    /// `failures`: the members that were in the slots when the command came.
    async fn fail_drained(self: &Rc<Self>, slots: SlotSet, failures: &[Failure]) -> Result<Drained, FailError> {
        // Requests that ended meanwhile may have failed members or lost a flush. The flush of a revoked clean-up may do
        // the same at any time.
        self.check_fail_frozen(slots)?;
        self.make_whole(slots).await.map_err(FailError::StaysFrozen)?;
        self.judge.collection_over().await;
        self.check_fail_frozen(slots)?;
        if self.by_command(slots) != failures {
            // A member failed meanwhile, and the one that was to replace it has its slot.
            return Err(FailError::NotOpen);
        }
        let steward = &self.steward;
        if steward.master().gate() != Gate::Closed {
            return Ok(Drained::FrozenAnew);
        }
        mark::hit(Mark::FailedFrozen);
        let frozen = steward.master().frozen().expect("it froze before");
        self.steward.publish(Change::Unfreeze(failures, self.steward.shared.world.now())).await;
        let version = steward.master().version();
        if let Err(error) = self.recorder.record_up_to(version).await {
            steward.apply(Change::Refreeze(frozen));
            return Err(FailError::Frozen(error));
        }
        assert!(slots.and(steward.master().writable()).is_empty(), "the superblocks name them");
        let is_open = steward.master().frozen().is_none();
        if is_open {
            self.steward.publish(Change::OpenForWrites).await;
            self.passes.begin();
        }
        let is_open = steward.master().frozen().is_none();
        if is_open { Ok(Drained::Failed) } else { Err(FailError::StaysFrozen(StaysFrozen::FailedSince)) }
    }

    /// Makes torn parts whole on the members that stay, and flushes these members. The work runs as a separate task,
    /// which the time limit here does not end: an abandoned write could reach its member after the array takes writes
    /// again.
    async fn make_whole(self: &Rc<Self>, leaving: SlotSet) -> Result<(), StaysFrozen> {
        assert_eq!(self.steward.shared.view().gate, Gate::Closed, "readers would see a part that is half whole");
        let (sender, whole) = oneshot();
        let commands = self.clone();
        self.steward.shared.world.spawn(async move {
            sender.send(commands.resync_and_flush(leaving).await);
        });
        let mut whole = pin!(whole);
        let cause = loop {
            let seen = self.torn_resync.resynced();
            match race(whole.as_mut(), self.steward.shared.world.sleep(ANSWER_MAX)).await {
                Either::Left(Some(Ok(()))) => return Ok(()),
                Either::Left(Some(Err(cause @ StaysFrozen::LostFlush))) => break cause,
                Either::Left(Some(Err(cause))) => return Err(cause),
                Either::Left(None) => unreachable!("the task ends with an answer"),
                Either::Right(()) if self.torn_resync.resynced() > seen => {}
                Either::Right(()) => break StaysFrozen::Unanswered,
            }
        };
        assert!(matches!(cause, StaysFrozen::LostFlush | StaysFrozen::Unanswered));
        // A flush has lost writes, or a write may reach its member later: the array stays frozen for good.
        let is_lost = cause == StaysFrozen::LostFlush;
        let freeze = if is_lost { FreezeCause::LostFlush } else { FreezeCause::TooMany };
        self.steward.apply(Change::Freeze(ErrorKind::Gone, freeze));
        Err(cause)
    }

    async fn resync_and_flush(&self, leaving: SlotSet) -> Result<(), StaysFrozen> {
        for torn in self.steward.shared.calls.call_all(|| Call::Torn).await {
            self.torn_resync.resync(&torn.torn(), leaving).await?;
        }
        let lost = self.flusher.flush_slots(self.steward.shared.view().writable().minus(leaving)).await;
        // A member that replaces another one is copied anew.
        let is_of_first =
            |failure: &Failure| self.steward.master().members()[failure.member].slot() == Some(failure.slot);
        if lost.iter().any(is_of_first) { Err(StaysFrozen::LostFlush) } else { Ok(()) }
    }

    /// Fails the member that replaces that of a slot. The array loses nothing with it.
    pub(crate) async fn fail_replacement(&self, slot: Slot) -> Result<(), FailError> {
        match self.steward.shared.view().gate {
            Gate::Closed if self.is_closed_to_stop() => {}
            // Also while a stop has begun, which may wait for this member.
            Gate::Open | Gate::NoNewWrites => {}
            Gate::ReadOnly | Gate::Closed | Gate::Stopped | Gate::Frozen(_) => self.steward.check_open()?,
        }
        let Some(_running) = self.under_way.begin() else { return Err(FailError::NotOpen) };
        let replacement = self.steward.shared.with_view(|view| view.replacement(slot));
        let member = replacement.ok_or(FailError::NoMember { slot })?.index;
        let failure = Failure::new((slot, member), Operation::Command, ErrorKind::Gone.into());
        match self.recorder.fail_members(&[failure]).await {
            FailureOutcome::Recorded | FailureOutcome::Unwritten(_) => Ok(()),
            FailureOutcome::Frozen(error) => Err(FailError::Frozen(error)),
        }
    }

    fn by_command(&self, slots: SlotSet) -> Vec<Failure> {
        let view = self.steward.shared.view();
        let failure = |slot| Failure::new((slot, view.member(slot).index), Operation::Command, ErrorKind::Gone.into());
        slots.iter().map(failure).collect()
    }
}
