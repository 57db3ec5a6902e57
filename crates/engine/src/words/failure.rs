//! Errors of members, as they travel from the request that met them to the steward.
//! Owns: [`Failure`], [`ReadError`], [`ErrorReport`], [`RequestKind`]. Not here: what an error means (`verdict`), what
//! follows from it (`judge`, `health`).

use crate::words::verdict::Operation;
use uraid_block::{IoError, Range, ShardIndex, Slot};

/// A member that failed an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) slot: Slot,
    /// The member's index. The slot may have two members, and another one than when the request began.
    pub(crate) member: usize,
    pub(crate) operation: Operation,
    /// Where on the member, if the operation was of a stretch of its data.
    pub(crate) range: Option<Range>,
    pub(crate) error: IoError,
}

impl Failure {
    pub(crate) fn new((slot, member): (Slot, usize), operation: Operation, error: IoError) -> Failure {
        Failure { slot, member, operation, range: None, error }
    }
}

/// A read of one member that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadError {
    pub(crate) slot: Slot,
    /// The member's index.
    pub(crate) member: usize,
    /// On the member.
    pub(crate) range: Range,
    pub(crate) error: IoError,
    /// The member was not asked: its bad-block list names a sector of the range.
    pub(crate) is_listed: bool,
}

impl ReadError {
    pub(crate) fn listed(self) -> ReadError {
        ReadError { is_listed: true, ..self }
    }

    pub(crate) fn failure(&self) -> Failure {
        Failure::new((self.slot, self.member), Operation::Read, self.error)
    }
}

/// The kinds of requests that are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write: data, parity, superblocks.
    Write,
    /// A cache flush.
    Flush,
    /// A discard.
    Discard,
    /// Zeroes without data, as a hole or written.
    Zeroes,
}

const _: () = {
    let mut at = 0;
    while at < RequestKind::COUNT {
        assert!(RequestKind::ALL[at] as usize == at, "counts are indexed by kind");
        at += 1;
    }
};

impl RequestKind {
    /// How many kinds there are.
    pub const COUNT: usize = 5;
    /// All kinds, in the order of their numbers.
    pub const ALL: [RequestKind; RequestKind::COUNT] =
        [RequestKind::Read, RequestKind::Write, RequestKind::Flush, RequestKind::Discard, RequestKind::Zeroes];

    /// `read`, `write`, `flush`, `discard`, `write-zeroes`.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Flush => "flush",
            RequestKind::Discard => "discard",
            RequestKind::Zeroes => "write-zeroes",
        }
    }
}

/// A shard's errors of one kind on one member so far, for the steward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorReport {
    pub(crate) shard: ShardIndex,
    /// Its index in the start plan.
    pub(crate) member: usize,
    pub(crate) kind: RequestKind,
    /// Errors of this shard.
    pub(crate) count: u64,
    /// The place of the last error.
    pub(crate) range: Range,
    pub(crate) error: IoError,
}
