//! Calls between the shards of one array.
//! Owns: [`Mail`], calls and their answers. Not here: how mail travels (`World::post`), what a call does (`array`).
//! Invariant: every call is answered once, to the shard that made it.

use crate::shard::range_lock::LockId;
use crate::shard::torn::{TornParts, TornState};
use crate::state::recorded::{FailureOutcome, Recorded};
use crate::state::view::{Epoch, View};
use crate::words::failure::{ErrorReport, Failure, ReadError};
use crate::words::findings::Mismatch;
use crate::words::progress::Steering;
use crate::words::progress::{PassOrder, PassReport};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::{ArrayRange, ArraySector, Fua, IoError, ReadPieces, Sectors, ShardIndex, Slot, SlotSet, WritePieces};
use uraid_format::bitmap::BitmapImage;
use uraid_format::ppl::PplEntry;
use uraid_layout::Row;

/// The shard that the steward runs on.
pub(crate) const STEWARD: ShardIndex = ShardIndex(0);

/// A message between shards of one array. Opaque to the host that carries it.
#[derive(Debug)]
pub struct Mail(pub(crate) Message);

/// Which call of the calling shard an answer belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallId {
    pub(crate) place: u32,
    /// How many calls had the place before.
    pub(crate) turn: u32,
}

#[derive(Debug)]
pub(crate) enum Message {
    Call {
        id: CallId,
        from: ShardIndex,
        call: Call,
    },
    Answer {
        id: CallId,
        answer: Answer,
    },
    /// Shard to steward: errors for the log.
    Errors(ErrorReport),
    /// Shard to the owner of these sectors: write them again from other members. Not a call: no request waits for it.
    Correct(Correction),
    /// To itself: corrections may be made again.
    Resume,
    /// Shard to steward: a row that was logged in this slot's log has been written. Not a call: no request waits for it.
    Written(Slot),
    /// Shard to the owner of a lock: unlock it. Not a call: the lock has served its request, and mail is not lost.
    Unlock(LockId),
    /// Shard to the owner of some of these rows, which are locked: they are zeroes on every member.
    ZeroedRows(ZeroedRows),
}

#[derive(Debug)]
pub(crate) enum Call {
    /// Steward to shard: switch to this view.
    Switch(Box<View>),
    /// Steward to shard: answer when no request of an older epoch is in flight.
    Drain(Epoch),
    /// Steward to shard: answer when every write that is behind now has ended, with how many a member lacks unrecorded.
    BehindOver,
    /// Shard to all shards: no member has this answered write any more.
    BehindLost(ArrayRange),
    /// Steward to shard: how many writes have you admitted so far?
    CountWrites,
    /// Steward to shard: which writes has the freeze left half done?
    Torn,
    /// Steward to shard: the torn part of your row that begins here is in this state.
    SetTorn { row: Row, start: Sectors, state: TornState },
    /// Steward to shard: the next recovery by bits is of these chunks.
    BitsToRecover(Arc<BitmapImage>),
    /// Steward to shard: go through all that you own. Answer when that is done, or the array stops or freezes.
    Pass(PassOrder),
    /// Steward to shard: how far have you come?
    PassReport,
    /// Steward to shard: what have you found in this check? You need not keep it.
    TakeFindings,
    /// Steward to shard: pause passes, end them, keep to these limits.
    Steer(Steering),
    /// Steward to shard: end the requests in flight to this member, which was replaced.
    CutOff(usize),
    /// Steward to shard: every row is consistent. No request has come yet.
    MadeGood,
    /// Shard to steward: make the dirty mark durable.
    NeedDirty,
    /// Shard to steward: make the bits of these chunks durable.
    NeedBits(Range<u64>),
    /// Shard to steward: these members failed; answer when the superblocks say so.
    Fail(Vec<Failure>),
    /// Shard to steward: no member can give these sectors to these members, which are recovered or copied to. List them.
    ListLacking(Vec<(usize, uraid_block::Range)>),
    /// Shard to steward: a member still cannot read this, though it was written again. List it, if the member has a log.
    ListUnreadable(ReadError),
    /// Shard to steward: a member has these sectors again, durably, which its list names.
    ClearListed { member: usize, range: uraid_block::Range },
    /// Shard to steward: a request met these read errors. Answer when they are counted, and members over the limit
    /// failed.
    ReadErrors { errors: Vec<ReadError>, was_read_elsewhere: bool },
    /// Shard to steward: log this before its row is written.
    LogParity(LogRequest),
    /// Shard to steward: make all writes answered so far stable.
    Flush,
    /// Shard to the owner of these sectors, or of some of these rows: answer when no earlier lock overlaps.
    Lock(Range<u64>),
    /// Shard to the owner of some of these rows, which are locked: their zeroing has left them torn.
    ZeroedRows(ZeroedRows),
    /// Shard to a row's owner: write a part of a row.
    WriteRow(RowWrite),
    /// Shard to a row's owner: reconstruct bytes of a row.
    ReadRow(RowRead),
}

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Count(u64),
    Torn(TornParts),
    Passed(PassReport),
    Findings(Vec<Mismatch>),
    Dirty(Result<(), IoError>),
    Bits(Result<(), IoError>),
    Failed(FailureOutcome),
    /// Whether the sectors are listed.
    Listed(Result<bool, IoError>),
    Locked(LockId),
    Logged(Result<LogOutcome, IoError>),
    /// The answer to a row write and to a flush.
    Settled(Result<Recorded, IoError>),
    Read(Result<ReadPieces, IoError>),
}

/// The answer type of each call; any other is our mistake.
impl Answer {
    pub(crate) fn done(self) {
        assert!(matches!(self, Answer::Done), "answered with {self:?}");
    }

    pub(crate) fn count(self) -> u64 {
        let Answer::Count(count) = self else { panic!("answered with {self:?}") };
        count
    }

    pub(crate) fn torn(self) -> TornParts {
        let Answer::Torn(parts) = self else { panic!("answered with {self:?}") };
        parts
    }

    pub(crate) fn passed(self) -> PassReport {
        let Answer::Passed(report) = self else { panic!("answered with {self:?}") };
        report
    }

    pub(crate) fn findings(self) -> Vec<Mismatch> {
        let Answer::Findings(list) = self else { panic!("answered with {self:?}") };
        list
    }

    pub(crate) fn dirty(self) -> Result<(), IoError> {
        let Answer::Dirty(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }

    pub(crate) fn bits(self) -> Result<(), IoError> {
        let Answer::Bits(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }

    pub(crate) fn failed(self) -> FailureOutcome {
        let Answer::Failed(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }

    pub(crate) fn listed(self) -> Result<bool, IoError> {
        let Answer::Listed(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }

    pub(crate) fn locked(self) -> LockId {
        let Answer::Locked(id) = self else { panic!("answered with {self:?}") };
        id
    }

    pub(crate) fn logged(self) -> Result<LogOutcome, IoError> {
        let Answer::Logged(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }

    pub(crate) fn settled(self) -> Result<Recorded, IoError> {
        let Answer::Settled(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }

    pub(crate) fn read(self) -> Result<ReadPieces, IoError> {
        let Answer::Read(outcome) = self else { panic!("answered with {self:?}") };
        outcome
    }
}

/// New bytes for one row: `from` covers the row's data from `start` on (0..stripe, in data order).
#[derive(Debug)]
pub(crate) struct RowWrite {
    pub(crate) row: Row,
    pub(crate) start: Sectors,
    pub(crate) from: WritePieces,
    pub(crate) fua: Fua,
    /// It is part of a stream: hold the row this long for the stream's next write.
    pub(crate) hold_time: Option<Duration>,
    /// The new bytes are zeroes, which are to take no space on the members.
    pub(crate) is_hole: bool,
}

/// A request to compute bytes of one row without the slots in `avoid`, from `start` of the row's data on.
#[derive(Debug)]
pub(crate) struct RowRead {
    pub(crate) row: Row,
    pub(crate) start: Sectors,
    pub(crate) into: ReadPieces,
    pub(crate) avoid: SlotSet,
}

/// A stretch that a pass locks and works on at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// In the sectors that the pass goes over.
    pub(crate) at: u64,
    /// Of copies: the array sector at its start.
    pub(crate) sector: ArraySector,
    pub(crate) length: Sectors,
}

impl Window {
    /// `length` sectors from `start` of the window.
    pub(crate) fn part(&self, start: u64, length: u64) -> Window {
        assert!(length > 0 && start + length <= self.length.0, "a part is inside");
        Window { at: self.at + start, sector: self.sector + Sectors(start), length: Sectors(length) }
    }
}

/// A stretch of one member that is written again from others, in one window of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Correction {
    pub(crate) slot: Slot,
    /// Its index.
    pub(crate) member: usize,
    /// On the member.
    pub(crate) range: uraid_block::Range,
    pub(crate) window: Window,
}

/// A stretch of a row that waits to be logged.
#[derive(Debug)]
pub(crate) struct LogRequest {
    pub(crate) slot: Slot,
    pub(crate) entry: PplEntry,
    /// What the entry says of the partial parity is true of these bytes.
    pub(crate) parity: WritePieces,
}

/// The answer to a [`LogRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogOutcome {
    /// It is durable. The log keeps it until it is told that the row was written.
    Logged,
    /// The parity has no member to go to, and the superblocks say so: there is nothing to log.
    NoMember,
}

/// What the zeroing of rows has left, for the owners of these rows.
#[derive(Clone, Debug)]
pub(crate) struct ZeroedRows {
    pub(crate) rows: Range<u64>,
    /// Every member has its zeroes, or is recorded as out. An error: some have them and others have not.
    pub(crate) outcome: Result<(), SlotSet>,
}
