//! Counters of rare branches, so that the simulator can report which of them its runs took.
//! Compiled in with the feature `marks` only. Owns: [`Mark`], `hit`, `take`. Not here: what a branch does, which runs
//! must reach it (`sim`).
//! Invariant: without the feature a mark compiles to nothing.

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A branch that matters and is rarely taken.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Mark {
            $($(#[$doc])* $name,)*
        }

        impl Mark {
            /// All marks, in the order of their numbers.
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
    /// Assembly: a member is taken that does not hold everything yet.
    RecoveringTaken,
    /// Assembly: a member is taken to which that of its slot was being copied.
    ReplacingTaken,
    /// Assembly: such a member is recovered, because the first one is not there.
    ReplacingRecovers,
    /// A member has the slot of the one that was copied to it.
    Replaced,
    /// A member that was replaced did not answer its last requests.
    ReplacedCutOff,
    /// A copy met sectors that the member could not read, and took them from another copy.
    ReplacedFromOthers,
    /// A copy met sectors that no member could give.
    CopyGivenUp,
    /// The member that was being copied failed: the second one is recovered.
    ReplacementPromoted,
    /// A member failed to which another one was being copied.
    ReplacementFailed,
    /// Recovery: a member holds everything, and is read from then on.
    RecoveryEnded,
    /// Recovery: the superblocks learn how far it has come while it runs.
    RecoveryCheckpoint,
    /// Recovery: some sectors could not be read, and the member stays as it is.
    RecoveryGivenUp,
    /// Recovery: a freeze has ended meanwhile, or the slot has another member, and it begins anew.
    RecoveryAnew,
    /// Recovery: the members that it was for have failed.
    RecoveryNeedless,
    /// Recovery: a sector of a copy cannot be read from any member.
    RecoveryUnreadable,
    /// Assembly: a member whose device became smaller is left out.
    ShrunkRefused,
    /// Assembly: a table left by an interrupted round is superseded by another with as many events.
    HistorySuperseded,
    /// Assembly: dirty and degraded.
    DirtyDegradedRefused,
    /// Assembly: dirty and degraded, by force.
    DirtyDegradedForced,
    /// Start: members one round behind are brought up before anything else.
    CaughtUp,
    /// Start: one of these members could not be brought up.
    CatchUpFailed,
    /// Start: superblocks first, because they do not record a missing member, or wrongly say clean.
    StartRecorded,
    /// Assembly: no bitmap is as fresh as the superblocks, and all bits are set.
    BitmapOutOfDate,
    /// Start: a member gets the bitmap before its superblock.
    BitmapBroughtUp,
    /// Bitmap: a write waits for a page that another one has asked for.
    BitShared,
    /// Bitmap: a member could not take a page.
    BitmapWriteFailed,
    /// Bitmap: bits are cleared.
    BitsCleared,
    /// Bitmap: an array that serves has got one.
    BitmapAdded,
    /// Bitmap: one that was to be added is taken back.
    BitmapTakenBack,
    /// Bitmap: an array that serves has lost it.
    BitmapRemoved,
    /// Bitmap: a resync, or a recovery of a former member, skips what no bit names.
    ResyncSkippedClean,
    /// A pass skipped a stretch that is a hole on every member.
    PassSkippedHole,
    /// Start: a stop arrived first.
    StartStopped,
    /// Resync: a sector could neither be read nor computed, so the array stays dirty.
    ResyncUnreadable,
    /// Resync: a window with an unreadable sector is repeated in small pieces.
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
    /// Check or repair: a disagreement, and it cannot be known what is wrong.
    CheckFound,
    /// Check or repair: a disagreement whose wrong copy or block is known.
    CheckNamed,
    /// Check or repair: a sector that a member could not read is written again.
    CheckHealed,
    /// A check could not write again what a member could not read.
    CheckLacking,
    /// Check or repair: ended before it was complete.
    CheckEnded,
    /// One report holds failures of several members.
    FailedTogether,
    /// A report of a member that has already failed.
    FailedBefore,
    /// A member that failed a read fails more gravely in the same moment.
    FailedMoreGravely,
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
    /// A member failed by command.
    FailedByHand,
    /// The same, refused: the array needs the member.
    NeededByHand,
    /// A member failed for too many read errors.
    FailedByReadErrors,
    /// The same, refused: the array needs the member.
    NeededDespiteReadErrors,
    /// A failfast member failed for one read error.
    FailedFast,
    /// The same, refused: the array needs the member.
    NeededDespiteFailFast,
    /// Read errors whose data no other member could supply.
    ReadErrorsOfAll,
    /// A member failed by command in an array that froze over full members.
    FailedFrozen,
    /// The same; a late failure froze it again meanwhile.
    FailedFrozenAgain,
    /// A lost block was not computed: its row may not be in sync.
    UnsyncedRefused,
    /// A pass came to lost blocks of a row that may not be in sync.
    UnsyncedPassed,
    /// A write that waited for a torn row was refused.
    TornRowKept,
    /// A member of a mirror failed after the array froze.
    FailedSinceFrozen,
    /// Superblocks: the one that is written alone failed.
    RecordFirstFailed,
    /// Superblocks: a round met a failure, and another round follows.
    RecordRepeated,
    /// Superblocks: another caller's round has already written what this one needs.
    RecordShared,
    /// Superblocks: the array is frozen, so nothing is recorded.
    RecordFrozen,
    /// Superblocks: a spare failed.
    SpareFailed,
    /// Two writes asked for the dirty mark at the same time.
    DirtyMarkShared,
    /// A write asked for the dirty mark in a frozen array.
    DirtyMarkRefused,
    /// Going clean was given up, because a flush failed.
    CleanGivenUp,
    /// Idle: a write came before the superblocks said clean.
    CleanRevoked,
    /// A flush shared the round of another one.
    FlushShared,
    /// A flush met a member's failure.
    FlushFailed,
    /// A flush was refused, because an earlier one may have lost writes.
    FlushRefused,
    /// A write of a mirror waited for an overlapping one.
    LockWaited,
    /// A task waited for the holder of a row.
    RowWaited,
    /// A member vanished under a discard.
    DiscardMemberGone,
    /// Writes of one row were taken together.
    RowShared,
    /// A row was planned again, because old bytes could not be read.
    RowPlannedAgain,
    /// A row with several unknown blocks was computed before it was written.
    RowRecovered,
    /// More of a row is lost than parity can compute.
    RowImpossible,
    /// A row was left half written.
    RowTorn,
    /// Whole rows were zeroed at once.
    RowsZeroed,
    /// A freeze left zeroes of whole rows half done.
    RowsZeroedTorn,
    /// The rest of a row was zeroed, and so the whole row.
    RowZeroedInParts,
    /// Zeroes for a part of a row that read as zeroes already: only holes were made.
    RowBlank,
    /// Zeroes for a part of a row that is holes already.
    RowHole,
    /// A read of a row that was left half written, refused.
    TornRowRefused,
    /// FUA on a row with a lost data member: all members are flushed.
    FuaFlushed,
    /// A read was sent to another copy, or computed from parity.
    ReadAround,
    /// A member ended no read for a while, so other copies served its reads.
    ReadLate,
    /// A lost block was computed while another one could not be read.
    RecoveredAround,
    /// No copy gave the whole of a read, so each half is read by itself.
    ReadHalved,
    /// The same for a row that is written.
    RowHalved,
    /// The same for a block that is computed.
    RecoveredInHalves,
    /// No copy was left to read.
    ReadExhausted,
    /// Stopped while frozen.
    StoppedFrozen,
    /// What a member could not read or write is written again from the others.
    Corrected,
    /// A sector that was written again still cannot be read.
    StillUnreadable,
    /// A correction came before the others were known to be right.
    CorrectionTooEarly,
    /// A sector is corrected because it is still listed.
    CorrectionAskedAgain,
    /// Sectors that a member failed to write were listed, and it stays.
    BadBlockListed,
    /// The same, of sectors that no member could give to the one that is recovered.
    BadBlockLacking,
    /// A listed sector was written, and is trusted again.
    BadBlockCleared,
    /// A write was answered with an error: no member has all of it, because others list some of it.
    BadBlockUnwritten,
    /// A list that a freeze kept from its log is as it was before.
    BadBlockForgotten,
    /// A torn part was made whole but for what is listed and cannot be written.
    TornStaysListed,
    /// An array that was not stopped needs no resync: its partial parity log is complete.
    LogComplete,
    /// Parity was made good from a log.
    LogReplayed,
    /// A stretch that a log names was left, for lack of a member.
    LogSkipped,
    /// The same, because some of it could not be read.
    LogUnreadable,
    /// A member could not take its log.
    LogWriteFailed,
    /// The member of the parity failed before the row was logged.
    LogNoMember,
    /// Chunks of one row that do not follow one another were written one after the other.
    LogRunsApart,
    /// An open array became read-only by command.
    ReadOnlyByCommand,
    /// An array that was read-only by command takes writes again.
    WritableAgain,
    /// A failure is not recorded while the array is read-only by command.
    RecordPutOff,
    /// A write was answered before its write-mostly members had it.
    Behind,
    /// A write waited for its write-mostly members, because enough others were behind.
    BehindFull,
    /// A write that could have been behind waited, because a member failed it.
    BehindNeeded,
    /// A write failed on a write-mostly member after it was answered.
    BehindFailed,
    /// After that, no member of the array has it.
    BehindLost,
    /// A read of a write-mostly member waited its turn behind writes.
    BehindRead,
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

    /// How often this thread has taken each branch since the last call, in the order of [`Mark::ALL`].
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
