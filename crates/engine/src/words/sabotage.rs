//! Deliberate mistakes, to prove that the simulator finds them. Compiled in with the feature `sabotage` only.
//! Owns: [`Sabotage`], `set`, what a mistake does in the path of a request; there it is one line, which names what is right.
//! Not here: the checkers that must report them (`sim`).
//! Invariant: without the feature every question is a constant `false`, and each of those lines does nothing.

use std::borrow::Cow;
#[cfg(feature = "sabotage")]
use uraid_block::ReadPieces;
use uraid_block::{Arena, Fua, Range, Sector, Sectors, Slot, SlotSet};
use uraid_layout::{CopyLayout, Layout, Level, Run};

/// A mistake the engine makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Answers a write that one member missed without recording the failure (R4).
    SkipRecord,
    /// Records a failure with one round of superblocks, so that `mdadm --assemble --force` takes the member back.
    RecordOnce,
    /// Fails each member by itself at once, even if several fail together.
    FailOneByOne,
    /// Names a failed member in the first round of superblocks after it, before the others have shown that they work.
    NameAtOnce,
    /// Writes all superblocks of a round at the same time, so that power can tear every one of them.
    RecordTogether,
    /// Submits writes to members before the dirty mark is durable.
    SkipDirtyMark,
    /// Waits for a failed member to answer requests from before it failed.
    WaitForDead,
    /// Answers a flush that no member saw (A4).
    SkipFlush,
    /// Goes clean without flushing the members.
    SkipCleanFlush,
    /// Keeps reading a member that was condemned (I5).
    StaleRead,
    /// Leaves the parity of a partial row as it was.
    SkipParity,
    /// Answers a write before the members have answered it.
    AnswerEarly,
    /// Reads any copy of an array that is not yet in sync (B4).
    NonCanonicalRead,
    /// Serves a dirty array without the resync.
    SkipResync,
    /// Ignores FUA.
    SkipFua,
    /// Answers a FUA write on a row that lacks a data member without flushing all others.
    SkipRowFlush,
    /// Decides about that flush by the member set from before the write.
    RowFlushByOldView,
    /// Lets events step back.
    EventsStepBack,
    /// Writes a sector more than it was asked to (I8).
    Overreach,
    /// Returns zeroes if a read failed (R6).
    ZeroesForError,
    /// Forgets to give back a buffer (L3).
    Leak,
    /// Never answers a write (L1).
    NeverAnswer,
    /// Lets overlapping writes of a mirror, and zeroes of whole rows, be submitted in any order (I6).
    SkipHold,
    /// Flushes for two clients at the same time, so that one is answered over the other's failure (A8).
    FlushTogether,
    /// Computes raid0's zones after the first by the other of its two layouts (R2).
    Raid0OtherZones,
    /// Does the same for discards only (R2's twin).
    Raid0DiscardOtherZones,
    /// Records a failure by one round, and takes a member one event behind although the freshest superblock records its
    /// failure (R3).
    EventsSlack,
    /// Writes the second copy from memory that the client has changed meanwhile (R17).
    BufferChanges,
    /// Puts all copies of raid10 on one member (R18).
    CopiesTogether,
    /// Writes a superblock to one member only when a resync is stopped (R23, unassemblable).
    StopSplits,
    /// Says that the array is a chunk larger than its members (R23, capacity).
    SizePastEnd,
    /// Starts a dirty and degraded parity array without `--force` (R27).
    StartDirtyDegraded,
    /// Lets writes into a window that a resync works on.
    PassUnlocked,
    /// Modifies parity that the resync has not seen yet.
    TrustOldParity,
    /// Computes lost blocks from rows that a bitmap says may not be in sync.
    ComputeUnsynced,
    /// Records that a resync has come further than it has.
    CheckpointAhead,
    /// Calls an array consistent before what the resync wrote is durable.
    SkipPassFlush,
    /// A spare is written before a superblock lists it in its slot.
    SpareUnrecorded,
    /// A member that joins may take a slot before any superblock lists it.
    JoinUnrecorded,
    /// A former member returns although bits of what it has missed were cleared.
    ReAddTooOld,
    /// A recovery that was begun for another member of a slot goes on for the one that returns to it.
    KeepRecovery,
    /// A recovered member is read before it was flushed.
    TrustUnflushed,
    /// A member takes the slot of the one that was copied to it before it was flushed.
    ReplaceUnflushed,
    /// Records that a member is recovered further than it is.
    RecoveredAhead,
    /// Sends data to members before its bit is durable.
    BitAfterData,
    /// Clears bits before what was written is durable on all members.
    ClearUnflushed,
    /// Clears bits without waiting for the writes that rely on them.
    ClearUndrained,
    /// Lists a new bitmap while writes that have no bit are under way.
    ListUndrained,
    /// Lists a new bitmap before what was written without a bit is durable.
    ListUnflushed,
    /// Lets writes go without bits while superblocks still list the bitmap.
    DropListed,
    /// Answers a write that one member missed before that member's log lists the sectors.
    BadBlockUnrecorded,
    /// Trusts a listed sector again before what was written to it is durable.
    BadBlockClearedEarly,
    /// Writes a row that the partial parity log does not name.
    LogUnwritten,
    /// Writes over a log although what it names may be in caches only.
    LogUnflushed,
    /// Calls a log complete while a resync is due.
    LogCompleteEarly,
    /// Calls an array read-only before the writes under way have ended.
    ReadOnlyUndrained,
    /// Makes parity fit a data block that is known to be wrong.
    RepairByData,
    /// Lets writes into a window that a check compares.
    CheckUnlocked,
    /// Reads a write-mostly member that may not have an answered write yet.
    ReadNotBehind,
    /// Answers a flush before the write-mostly members have what was answered.
    FlushNotBehind,
    /// Gives the lock and the epoch of a write back when it is answered, though a member does not have it yet.
    BehindUnheld,
    /// Discards the other near copies of a raid10 from the start of the first chunk on (R1).
    DiscardFromChunk,
    /// Writes pages of a bitmap in whole optimal I/Os, past the bitmap's end (R11).
    BitmapPastEnd,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 63] = [
        Sabotage::SkipRecord,
        Sabotage::RecordOnce,
        Sabotage::FailOneByOne,
        Sabotage::NameAtOnce,
        Sabotage::RecordTogether,
        Sabotage::SkipDirtyMark,
        Sabotage::WaitForDead,
        Sabotage::SkipFlush,
        Sabotage::SkipCleanFlush,
        Sabotage::StaleRead,
        Sabotage::SkipParity,
        Sabotage::AnswerEarly,
        Sabotage::NonCanonicalRead,
        Sabotage::SkipResync,
        Sabotage::SkipFua,
        Sabotage::SkipRowFlush,
        Sabotage::RowFlushByOldView,
        Sabotage::EventsStepBack,
        Sabotage::Overreach,
        Sabotage::ZeroesForError,
        Sabotage::Leak,
        Sabotage::NeverAnswer,
        Sabotage::SkipHold,
        Sabotage::FlushTogether,
        Sabotage::Raid0OtherZones,
        Sabotage::Raid0DiscardOtherZones,
        Sabotage::EventsSlack,
        Sabotage::BufferChanges,
        Sabotage::CopiesTogether,
        Sabotage::StopSplits,
        Sabotage::SizePastEnd,
        Sabotage::StartDirtyDegraded,
        Sabotage::PassUnlocked,
        Sabotage::TrustOldParity,
        Sabotage::ComputeUnsynced,
        Sabotage::CheckpointAhead,
        Sabotage::SkipPassFlush,
        Sabotage::SpareUnrecorded,
        Sabotage::JoinUnrecorded,
        Sabotage::ReAddTooOld,
        Sabotage::KeepRecovery,
        Sabotage::TrustUnflushed,
        Sabotage::ReplaceUnflushed,
        Sabotage::RecoveredAhead,
        Sabotage::BitAfterData,
        Sabotage::ClearUnflushed,
        Sabotage::ClearUndrained,
        Sabotage::ListUndrained,
        Sabotage::ListUnflushed,
        Sabotage::DropListed,
        Sabotage::BadBlockUnrecorded,
        Sabotage::BadBlockClearedEarly,
        Sabotage::LogUnwritten,
        Sabotage::LogUnflushed,
        Sabotage::LogCompleteEarly,
        Sabotage::ReadOnlyUndrained,
        Sabotage::RepairByData,
        Sabotage::CheckUnlocked,
        Sabotage::ReadNotBehind,
        Sabotage::FlushNotBehind,
        Sabotage::BehindUnheld,
        Sabotage::DiscardFromChunk,
        Sabotage::BitmapPastEnd,
    ];
}

const _: () = {
    let mut at = 0;
    while at < Sabotage::ALL.len() {
        assert!(Sabotage::ALL[at] as usize == at, "each mistake is listed once, in order");
        at += 1;
    }
};

#[cfg(feature = "sabotage")]
mod active {
    use super::Sabotage;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Sabotage>> = const { Cell::new(None) };
    }

    /// Makes the engine of this thread commit one mistake, or none.
    pub fn set(mistake: Option<Sabotage>) {
        CHOSEN.set(mistake);
    }

    pub(crate) fn is(mistake: Sabotage) -> bool {
        CHOSEN.get() == Some(mistake)
    }
}

#[cfg(feature = "sabotage")]
pub(crate) use active::is;
#[cfg(feature = "sabotage")]
pub use active::set;

#[cfg(not(feature = "sabotage"))]
#[inline(always)]
pub(crate) const fn is(_: Sabotage) -> bool {
    false
}

/// Answers the caller's request with this, from where it stands, if the engine makes the mistake.
#[cfg(feature = "sabotage")]
macro_rules! answer_instead {
    ($mistake:ident, $answer:expr) => {
        if $crate::sabotage::is($crate::sabotage::Sabotage::$mistake) {
            return $answer;
        }
    };
}

#[cfg(not(feature = "sabotage"))]
macro_rules! answer_instead {
    ($mistake:ident, $answer:expr) => {};
}

/// Writes one run of a mirror's write in a wrong way, and ends the caller with that, if the engine makes such a mistake:
/// `write_run_instead!(shared, slot of the first run, run, its place on a member, its bytes, fua)`.
#[cfg(feature = "sabotage")]
macro_rules! write_run_instead {
    ($shared:expr, $first:expr, $run:ident, $of_member:ident, $from:expr, $fua:expr) => {
        if $crate::sabotage::is_of_runs() {
            let outcome = $crate::shard::sabotaged::write($shared, $first, $run, $of_member, $from, $fua).await;
            return outcome.map_err(|error| $of_member.failure(Operation::Write, error));
        }
    };
}

#[cfg(not(feature = "sabotage"))]
macro_rules! write_run_instead {
    ($shared:expr, $first:expr, $run:ident, $of_member:ident, $from:expr, $fua:expr) => {};
}

pub(crate) use {answer_instead, write_run_instead};

/// raid0's zones by the other layout. Other levels are unchanged.
pub(crate) fn other_zones(layout: &Layout) -> Layout {
    let mut spec = layout.spec().clone();
    if spec.level == Level::Raid0 {
        spec.layout = 3 - spec.layout;
    }
    let other = Layout::new(&spec).expect("raid0 has both layouts");
    assert_eq!(other.slots(), layout.slots());
    other
}

/// The layout by which a discard is planned.
#[inline(always)]
pub(crate) fn zones_to_discard(layout: &CopyLayout) -> Cow<'_, CopyLayout> {
    if is(Sabotage::Raid0DiscardOtherZones)
        && let Layout::Copies(other) = other_zones(&Layout::Copies(layout.clone()))
    {
        return Cow::Owned(other);
    }
    Cow::Borrowed(layout)
}

/// The sectors of a member that the discard of a run, which has this range there, is sent to. `first`: the slot of the first run.
#[inline(always)]
pub(crate) fn range_to_discard(layout: &Layout, first: Slot, run: &Run, range: Range) -> Range {
    if is(Sabotage::DiscardFromChunk) && layout.level() == Level::Raid10 && run.slot != first {
        let before = run.at.0 % layout.chunk().0;
        return Range::new(Sector(range.start.0 - before), range.length + Sectors(before));
    }
    range
}

/// The bytes of a bitmap to write, from the first on.
#[inline(always)]
pub(crate) fn bitmap_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    const OPTIMAL_IO_BYTES: usize = 32 << 10;
    if is(Sabotage::BitmapPastEnd) {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(OPTIMAL_IO_BYTES), 0);
        return Cow::Owned(padded);
    }
    Cow::Borrowed(bytes)
}

/// Whether the chosen mistake is made where a write goes to its copies by a plan: such a write must not take the short
/// way.
#[inline(always)]
pub(crate) fn is_of_mirror_writes() -> bool {
    use Sabotage::{AnswerEarly, BufferChanges, CopiesTogether, NeverAnswer, Overreach};
    [AnswerEarly, BufferChanges, CopiesTogether, NeverAnswer, Overreach].into_iter().any(is)
}

/// Whether it is made in each run of that plan.
#[inline(always)]
#[cfg(feature = "sabotage")]
pub(crate) fn is_of_runs() -> bool {
    use Sabotage::{BufferChanges, CopiesTogether, Overreach};
    [BufferChanges, CopiesTogether, Overreach].into_iter().any(is)
}

/// Whether a write is durable when it is answered.
#[inline(always)]
pub(crate) fn fua(asked: Fua) -> Fua {
    if is(Sabotage::SkipFua) { Fua::No } else { asked }
}

/// What the array claims to have behind its end.
#[inline(always)]
pub(crate) fn past_end(layout: &Layout) -> Sectors {
    if is(Sabotage::SizePastEnd) { layout.chunk() } else { Sectors::ZERO }
}

/// Loses a buffer.
#[inline(always)]
pub(crate) fn leak(arena: &Arena) {
    if is(Sabotage::Leak) {
        std::mem::forget(arena.take(1));
    }
}

/// The slots to read from, of an array of `slots`.
#[inline(always)]
pub(crate) fn readable(right: SlotSet, slots: u16, has_member: impl Fn(Slot) -> bool) -> SlotSet {
    if is(Sabotage::StaleRead) { (0..slots).map(Slot).filter(|slot| has_member(*slot)).collect() } else { right }
}

/// Whether only the canonical copy is read.
#[inline(always)]
pub(crate) fn keeps_to_canonical(right: bool) -> bool {
    right && !is(Sabotage::NonCanonicalRead)
}

/// The bytes of a read that failed.
#[cfg(feature = "sabotage")]
pub(crate) fn zeroes(mut into: ReadPieces) -> ReadPieces {
    into.fill(0);
    into
}

/// Whether overlapping writes of a mirror take turns, and zeroes of whole rows with other requests to these rows.
#[inline(always)]
pub(crate) fn takes_turns() -> bool {
    !is(Sabotage::SkipHold)
}

/// What is looked at before a write to a row although it counts only after it.
#[inline(always)]
pub(crate) fn of_old_view<T>(look: impl FnOnce() -> T) -> Option<T> {
    is(Sabotage::RowFlushByOldView).then(look)
}

/// Whether a window of a pass locks its range.
#[inline(always)]
pub(crate) fn locks_window(is_by_command: bool) -> bool {
    !(is(Sabotage::PassUnlocked) || is_by_command && is(Sabotage::CheckUnlocked))
}

/// The writes of a row's parity.
#[inline(always)]
pub(crate) fn parity<T>(right: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    right.filter(|_| !is(Sabotage::SkipParity))
}

/// The failed members whose requests in flight end now. Some mistakes do harm only if a failed member goes on.
#[inline(always)]
pub(crate) fn to_cut_off(failed: Vec<usize>) -> Vec<usize> {
    use Sabotage::{FlushTogether, StaleRead, WaitForDead};
    if [WaitForDead, FlushTogether, StaleRead].into_iter().any(is) { Vec::new() } else { failed }
}
