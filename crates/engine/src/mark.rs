//! Rare branches, counted, so that the simulator can say which of them its runs have been through.
//! Compiled in with the feature `marks` only. Owns: [`Mark`], `hit`, `take`. Not here: what a branch does, who must
//! reach it (`sim`).
//! Invariant: without the feature a mark is nothing at all.

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A branch that matters and is seldom taken.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Mark {
            $($(#[$doc])* $name,)*
        }

        impl Mark {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Mark] = &[$(Mark::$name,)*];
        }
    };
}

marks! {
    /// Assembly: a member that missed changes is left out.
    StaleRefused,
    /// Assembly: a member one event behind is left out, because the freshest superblock records its failure.
    FaultyRefused,
    /// Assembly: a member one event behind is taken.
    LaggingTaken,
    /// Assembly: a member whose device became smaller is left out.
    ShrunkRefused,
    /// Assembly: a table that a round cut short left behind is superseded by another with as many events.
    HistorySuperseded,
    /// Assembly: dirty and degraded.
    DirtyDegradedRefused,
    /// Assembly: dirty and degraded, by force.
    DirtyDegradedForced,
    /// Members one round behind are brought up before anything else.
    CaughtUp,
    /// One of them could not be.
    CatchUpFailed,
    /// Start: superblocks first, because they do not say who is missing, or say clean wrongly.
    StartRecorded,
    /// Start: a stop came first.
    StartStopped,
    /// Resync: a sector could neither be read nor computed, so the array stays dirty.
    ResyncUnreadable,
    /// Resync: a window with an unreadable sector is taken apart.
    ResyncTakenApart,
    /// Resync: no redundancy is left to check.
    ResyncSkipped,
    /// Resync: an unreadable data block is written again.
    ResyncHealed,
    /// Resync: a copy or parity was wrong.
    ResyncCorrected,
    /// Resync: a member vanished.
    ResyncMemberGone,
    /// Resync: a member failed a write.
    ResyncWriteFailed,
    /// Resync: stopped half way.
    ResyncStopped,
    /// One report holds failures of several members.
    FailedTogether,
    /// A report of a member that is out already.
    FailedBefore,
    /// A failure while another one waits for its record.
    FailedWhileRecording,
    /// More members failed than the array can lose.
    FrozenTooMany,
    /// Members are full.
    FrozenNoSpace,
    /// A flush failed on more members than the array can lose.
    FrozenFlushLost,
    /// A failed member of a level without redundancy: only the request fails.
    RequestFailed,
    /// A member taken out by hand.
    FailedByHand,
    /// One that cannot be spared.
    NeededByHand,
    /// A member taken out for too many read errors.
    FailedByReadErrors,
    /// One with too many read errors that cannot be spared.
    NeededDespiteReadErrors,
    /// Read errors that no other member made up for.
    ReadErrorsOfAll,
    /// A member taken out by hand of an array that is frozen over full members.
    FailedFrozen,
    /// The same where the array would stay frozen without it.
    StaysFrozen,
    /// It takes writes again.
    Thawed,
    /// Superblocks: the one that is written alone failed.
    RecordFirstFailed,
    /// Superblocks: a round met a failure, and another one follows.
    RecordRepeated,
    /// Superblocks: another's round has written what was asked for.
    RecordShared,
    /// Superblocks: frozen, so nothing is recorded any more.
    RecordFrozen,
    /// Superblocks: a spare failed.
    SpareFailed,
    /// The dirty mark was asked for twice at a time.
    DirtyMarkShared,
    /// The dirty mark was asked for by an array that is frozen.
    DirtyMarkRefused,
    /// Going clean was given up, because a flush failed.
    CleanGivenUp,
    /// Idle: a write came before the superblocks said clean.
    CleanRevoked,
    /// A flush shared the round of another one.
    FlushShared,
    /// A flush met a member's failure.
    FlushFailed,
    /// A flush after one that may have lost writes.
    FlushRefused,
    /// A write of a mirror waited for one that it overlaps.
    HoldWaited,
    /// A member vanished under a discard.
    DiscardMemberGone,
    /// Writes of one row were taken together.
    RowShared,
    /// A row was planned again, because old bytes could not be read.
    RowPlannedAgain,
    /// A row with several unknown blocks was computed before it was written.
    RowRecovered,
    /// More of a row is lost than parity can give.
    RowImpossible,
    /// A row was left half written.
    RowTorn,
    /// A read of a row that was left half written.
    TornRowRefused,
    /// FUA on a row with a lost data member: all members are flushed.
    FuaFlushed,
    /// A read was sent to another copy, or computed.
    ReadAround,
    /// A member has answered no read for a while, so other copies answer what it was asked for.
    ReadLate,
    /// A lost block was computed, and another one could not be read meanwhile.
    RecoveredAround,
    /// No copy gave the whole of a read, so that each half is read by itself.
    ReadHalved,
    /// The same of a row that is written.
    RowHalved,
    /// The same of a block that is computed.
    RecoveredInHalves,
    /// No copy was left to read.
    ReadExhausted,
    /// Stopped while frozen.
    StoppedFrozen,
}

#[cfg(feature = "marks")]
mod active {
    use super::Mark;
    use std::cell::RefCell;

    thread_local! {
        static HITS: RefCell<Vec<u64>> = RefCell::new(vec![0; Mark::ALL.len()]);
    }

    pub(crate) fn hit(mark: Mark) {
        HITS.with_borrow_mut(|hits| hits[mark as usize] += 1);
    }

    /// How often this thread has been through each branch since the last call, in the order of [`Mark::ALL`].
    pub fn take() -> Vec<u64> {
        HITS.replace(vec![0; Mark::ALL.len()])
    }
}

#[cfg(feature = "marks")]
pub(crate) use active::hit;
#[cfg(feature = "marks")]
pub use active::take;

#[cfg(not(feature = "marks"))]
#[inline(always)]
pub(crate) const fn hit(_: Mark) {}
