//! A member that is copied to another one, which then takes its slot.
//! Owns: [`ReplaceError`], [`ReplacePass`], when a copy may begin, its window, what its end changes. Not here: writes that
//! go to both members (`view`), the state (`master::replace`).
//! Invariant: the second member is read only when it holds everything and was flushed.
//!
//! ```text
//!   step                                            a crash after it: the next start has
//!   every bit of a bitmap is on the spare           the array as it was
//!   superblocks list it as the slot's second        a copy from 0
//!   publish: every write goes to both; drain        the same
//!   every shard copies; now and then: flush, and    a copy from there, if no write was under way; else from 0
//!   superblocks say how far
//!   flush; publish: it has the slot, the first      the same
//!   one has none: no write is answered until
//!   two rounds of superblocks name the first        after round 1 the same two, both whole; then the new one
//!
//!   the first member fails meanwhile: the second one is recovered from where it is, and every write goes to it already
//!   the second one fails: the array is as it was
//! ```

use super::pass_type::{PassNames, PassType, ReportedAs};
use crate::pass::passes::Passes;
use crate::pass::resync::Resync;
use crate::shard::mail::{Answer, Call, Window};
use crate::shard::world::World;
use crate::state::master::{Change, MemberState, Replace};
use crate::state::view::{Epoch, SlotMember, View};
use crate::steward::NotNow;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassOrder};
use smallvec::SmallVec;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, race};
use uraid_block::{IoError, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::Level;

/// How long a member that was replaced may take for its last requests.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Why a member cannot be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The level has no redundancy.
    #[error("{} has no redundancy: md replaces no member of it", level.name())]
    NoRedundancy {
        /// The level.
        level: Level,
    },
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The slot has no member that holds everything.
    #[error("{slot} has no member in sync that could be copied")]
    NotInSync {
        /// The slot.
        slot: Slot,
    },
    /// It is being replaced already.
    #[error("is being replaced already")]
    Already,
    /// There is no spare.
    #[error("there is no spare that it could be copied to: add one first")]
    NoSpare,
    /// The given member is none that could take a slot.
    #[error("is no spare that can take a slot")]
    NotASpare,
    /// The failure of a member is not recorded yet.
    #[error("the failure of a member is being recorded; try again")]
    Unrecorded,
    /// The spare could not take the array's bitmap.
    #[error("the spare could not take the write-intent bitmap")]
    Bitmap(#[source] IoError),
    /// The spare could not take its partial parity log.
    #[error("the spare could not take a partial parity log")]
    Log(#[source] IoError),
    /// The spare failed when its superblock was written.
    #[error("the spare has failed")]
    Failed(#[source] IoError),
    /// The array is frozen.
    #[error("the array is frozen")]
    Frozen(#[source] IoError),
}

impl From<NotNow> for ReplaceError {
    fn from(reason: NotNow) -> ReplaceError {
        match reason {
            NotNow::ReadOnly => ReplaceError::ReadOnly,
            NotNow::NotOpen => ReplaceError::NotOpen,
            NotNow::Frozen(error) => ReplaceError::Frozen(error),
        }
    }
}

/// See [`PassKind::Replace`](crate::PassKind).
pub(super) struct ReplacePass;

impl PassType for ReplacePass {
    const NAMES: PassNames = PassNames {
        word: "recovery",
        state: "recovering",
        reported_as: ReportedAs::Recovery,
        always_tells_corrected: false,
        if_unreadable: "the new member gets all writes, and the old one keeps its slot",
    };
    const FILLS: bool = true;

    fn is_due<W: World>(passes: &Passes<W>) -> bool {
        passes.to_copy().is_some()
    }

    fn slots<W: World>(passes: &Passes<W>) -> SlotSet {
        passes.to_copy().into_iter().collect()
    }

    fn recorded<W: World>(passes: &Passes<W>, slots: SlotSet) -> Sectors {
        let master = passes.steward.master();
        let copied = slots.iter().filter_map(|slot| master.copied_below(slot)).min();
        copied.unwrap_or(Sectors::ZERO)
    }

    fn complete<W: World>(passes: &Passes<W>, order: &mut PassOrder) {
        order.written_below = Sectors(u64::MAX);
        let second = passes.to_copy().and_then(|slot| passes.steward.master().replacing(slot));
        order.second = second.map(|(member, _)| member);
    }

    fn may_record<W: World>(passes: &Passes<W>, order: &PassOrder) -> bool {
        passes.may_record_filled(order)
    }

    fn record<W: World>(passes: &Passes<W>, order: &PassOrder, below: Sectors) {
        passes.record_filled(order, below);
    }

    fn is_needless<W: World>(passes: &Passes<W>, order: &PassOrder) -> bool {
        let second = |slot: Slot| passes.steward.master().replacing(slot).map(|(member, _)| member);
        order.recovering.iter().all(|slot| second(slot) != order.second)
    }

    async fn end<W: World>(passes: &Rc<Passes<W>>, order: &PassOrder) {
        let steward = &passes.steward;
        let slot = order.recovering.iter().next().expect("one member at a time is replaced");
        if Self::is_needless(passes, order) {
            return;
        }
        if !passes.progress.get().unreadable.is_zero() {
            mark::hit(Mark::CopyGivenUp);
            passes.copy_given_up.set(passes.copy_given_up.get().with(slot));
            return;
        }
        // The failure of another member may have no record yet.
        while !steward.master().is_recorded() {
            let version = steward.master().version();
            if passes.recorder.record_up_to(version).await.is_err() || Self::is_needless(passes, order) {
                return;
            }
        }
        mark::hit(Mark::Replaced);
        let first = steward.shared.with_view(|view| view.member(slot).index);
        let epoch = steward.publish(Change::Replace(Replace::End(slot, steward.shared.world.now()))).await;
        steward.shared.world.spawn(passes.clone().cut_off(first, epoch));
        let version = steward.master().version();
        // If this fails, the array has frozen, or another member has failed and the next round says all.
        let _ = passes.recorder.record_up_to(version).await;
    }

    fn target(view: &View, order: &PassOrder, slot: Slot) -> Option<SlotMember> {
        view.replacement(slot).filter(|second| Some(second.index) == order.second)
    }

    async fn window<W: World>(
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError> {
        windows.copy_block(order, piece).await
    }
}

impl<W: World> Passes<W> {
    /// Makes a spare the second member of a slot. Returns its index when the superblocks say so, and every write goes to
    /// it.
    pub(crate) async fn replace(&self, slot: Slot, with: Option<usize>) -> Result<usize, ReplaceError> {
        let steward = &self.steward;
        let (epoch, spare) = {
            let _one = steward.transition.acquire(1).await;
            let at_rest = steward.master().second_at_rest(slot);
            if let Some(second) = at_rest.filter(|second| with.is_none_or(|with| with == *second)) {
                steward.check_open()?;
                steward.publish(Change::Replace(Replace::Resume(slot))).await;
                return Ok(second);
            }
            let spare = self.check_replace(slot, with)?;
            // Every bit must be on the spare before any write goes to it.
            if let Some(bitmap) = self.bitmap.get()
                && let Err(error) = bitmap.give_to(spare).await
            {
                bitmap.judge(spare, error).await;
                let version = steward.master().version();
                // If this fails, the array has frozen.
                let _ = self.recorder.record_up_to(version).await;
                return Err(ReplaceError::Bitmap(error));
            }
            if let Some(ppl) = &self.ppl
                && let Err(error) = ppl.give_to(spare).await
            {
                ppl.judge(spare, error).await;
                let version = steward.master().version();
                let _ = self.recorder.record_up_to(version).await;
                return Err(ReplaceError::Log(error));
            }
            if self.check_replace(slot, Some(spare))? != spare {
                return Err(ReplaceError::NotASpare);
            }
            // No pass of the spare begins before the drain, not even if the first member fails.
            self.undrained.set(self.undrained.get() + 1);
            steward.apply(Change::Replace(Replace::Begin { member: spare, slot }));
            self.copy_given_up.set(self.copy_given_up.get().without(slot));
            let version = steward.master().version();
            if let Err(error) = self.recorder.record_up_to(version).await {
                self.undrained.set(self.undrained.get() - 1);
                return Err(ReplaceError::Frozen(error));
            }
            (steward.publish(Change::Nothing).await, spare)
        };
        // When the copy begins, no write that does not go to both is under way.
        steward.drain(epoch).await;
        self.undrained.set(self.undrained.get() - 1);
        steward.shared.view_changed.notify_all();
        match steward.master().members()[spare] {
            MemberState::Faulty { error, .. } => Err(ReplaceError::Failed(error)),
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare
            | MemberState::Removed => Ok(spare),
        }
    }

    /// The slot whose member is to be copied next.
    fn to_copy(&self) -> Option<Slot> {
        self.steward.master().replaced().find(|slot| !self.copy_given_up.get().contains(*slot))
    }

    fn check_replace(&self, slot: Slot, with: Option<usize>) -> Result<usize, ReplaceError> {
        let (steward, master) = (&self.steward, self.steward.master());
        if !steward.shared.is_redundant() {
            return Err(ReplaceError::NoRedundancy { level: steward.shared.layout().level() });
        }
        steward.check_open()?;
        if !master.readable().contains(slot) {
            return Err(ReplaceError::NotInSync { slot });
        }
        if master.copied_below(slot).is_some() {
            return Err(ReplaceError::Already);
        }
        if !master.is_recorded() {
            return Err(ReplaceError::Unrecorded);
        }
        let none = if with.is_some() { ReplaceError::NotASpare } else { ReplaceError::NoSpare };
        master.spare_to_replace(with).ok_or(none)
    }

    /// Ends the requests of a member that was replaced, if it does not answer them: no command could, because it has no
    /// slot.
    async fn cut_off(self: Rc<Self>, member: usize, epoch: Epoch) {
        let shared = &self.steward.shared;
        let drained = self.steward.drain(epoch);
        if let Either::Right(()) = race(pin!(drained), shared.world.sleep(ANSWER_MAX)).await {
            mark::hit(Mark::ReplacedCutOff);
            shared.calls.call_all(|| Call::CutOff(member)).await.into_iter().for_each(Answer::done);
        }
    }
}

impl<W: World> Resync<W> {
    /// Gives the member that replaces another one its block: from that one, or if it cannot read it, from the others.
    async fn copy_block(&self, order: &PassOrder, piece: Window) -> Result<Option<PassCounts>, IoError> {
        let (at, length) = (MemberSector(piece.at), piece.length);
        let slot = order.recovering.iter().next().expect("one member at a time is replaced");
        let own = std::iter::once((slot, at));
        let copies = match &self.rows {
            Some(_) => SmallVec::new(),
            None => self.shared.with_view(|view| view.in_order(view.shape.layout().copies(piece.sector))),
        };
        let others = copies.iter().copied().filter(|(other, _)| *other != slot);
        for (from, place) in own.chain(others) {
            if !self.shared.with_view(|view| view.readable().contains(from)) {
                continue;
            }
            let found = {
                let _reads = self.reading.acquire(1).await;
                self.read_window(std::iter::once((from, place)), length).await?
            };
            let Some(bytes) = found.into_iter().find_map(|copy| copy.bytes) else { continue };
            if from != slot {
                mark::hit(Mark::ReplacedFromOthers);
            }
            let failure = self.shared.write_second(slot, order.second, at, bytes).await.err();
            let failed = self.settle_pass(failure.as_slice()).await?;
            return Ok(Some(PassCounts { failed, ..PassCounts::default() }));
        }
        match &self.rows {
            // The block is computed, whether or not it can be read by now, and written to both members.
            Some(rows) => self.resync_rows(order, rows, piece, order.recovering, None).await,
            None => Ok((length.0 == 1).then_some(PassCounts { unreadable: 1, ..PassCounts::default() })),
        }
    }
}
