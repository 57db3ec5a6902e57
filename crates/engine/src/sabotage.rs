//! Deliberate mistakes, to prove that the simulator would find them. Compiled in with the feature `sabotage` only.
//! Owns: [`Sabotage`], `set`. Not here: the checkers that must shout (`sim`).
//! Invariant: without the feature every question is a constant `false`.

/// A mistake the engine makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Answers a write that one member missed without recording the failure (R4).
    SkipRecord,
    /// Lets writes down before the dirty mark is durable.
    SkipDirtyMark,
    /// Answers a flush that no member saw (A4).
    SkipFlush,
    /// Goes clean without flushing the members.
    SkipCleanFlush,
    /// Keeps reading a member that was condemned (I5).
    StaleRead,
    /// Leaves the parity of a partial row as it was.
    SkipParity,
    /// Answers a write before the members have.
    AnswerEarly,
    /// Reads any copy of an array that is not yet in sync (B4).
    NonCanonicalRead,
    /// Serves a dirty array without the resync.
    SkipResync,
    /// Ignores FUA.
    SkipFua,
    /// Lets events step back.
    EventsStepBack,
    /// Writes a sector more than it was asked to (I8).
    Overreach,
    /// Gives zeroes where a read failed (R6).
    ZeroesForError,
    /// Forgets to give back a buffer (L3).
    Leak,
    /// Never answers a write (L1).
    NeverAnswer,
    /// Lets overlapping writes of a mirror go down in any order (I6).
    SkipHold,
    /// Flushes for two clients at the same time, so that one is answered over the other's failure (A8).
    FlushTogether,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 17] = [
        Sabotage::SkipRecord,
        Sabotage::SkipDirtyMark,
        Sabotage::SkipFlush,
        Sabotage::SkipCleanFlush,
        Sabotage::StaleRead,
        Sabotage::SkipParity,
        Sabotage::AnswerEarly,
        Sabotage::NonCanonicalRead,
        Sabotage::SkipResync,
        Sabotage::SkipFua,
        Sabotage::EventsStepBack,
        Sabotage::Overreach,
        Sabotage::ZeroesForError,
        Sabotage::Leak,
        Sabotage::NeverAnswer,
        Sabotage::SkipHold,
        Sabotage::FlushTogether,
    ];
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
