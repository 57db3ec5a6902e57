//! Deliberate mistakes, to prove that the simulator finds them. Compiled in with the feature `sabotage` only.
//! Owns: [`Sabotage`], `set`. Not here: the checkers that must report them (`sim`).
//! Invariant: without the feature every question is a constant `false`.

use uraid_layout::{Layout, Level};

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
    /// Lets overlapping writes of a mirror be submitted in any order (I6).
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
    /// Records that a resync has come further than it has.
    CheckpointAhead,
    /// Calls an array consistent before what the resync wrote is durable.
    SkipPassFlush,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 36] = [
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
        Sabotage::CheckpointAhead,
        Sabotage::SkipPassFlush,
    ];
}

const _: () = {
    let mut at = 0;
    while at < Sabotage::ALL.len() {
        assert!(Sabotage::ALL[at] as usize == at, "each mistake is listed once, in order");
        at += 1;
    }
};

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

/// Whether the chosen mistake is made where a write goes to its copies by a plan: such a write must not take the short
/// way.
#[inline(always)]
pub(crate) fn is_of_mirror_writes() -> bool {
    use Sabotage::{AnswerEarly, BufferChanges, CopiesTogether, NeverAnswer, Overreach};
    [AnswerEarly, BufferChanges, CopiesTogether, NeverAnswer, Overreach].into_iter().any(is)
}

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
