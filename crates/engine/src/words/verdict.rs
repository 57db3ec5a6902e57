//! What an error means: one exhaustive table.
//! Owns: [`decide`]. Not here: carrying it out (`steward`, the request paths).
//! Invariant: an error never fails a member that the array cannot serve without.

use uraid_block::ErrorKind;

/// The operation that a member failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Data or parity.
    Read,
    /// Data or parity; discards and zeroes count as writes.
    Write,
    /// A cache flush.
    Flush,
    /// A superblock.
    Superblock,
    /// None: the operator failed the member by command.
    Command,
    /// More read errors than the limit allows.
    ReadErrors,
    /// A read error of a failfast member.
    FailFast,
    /// None: another member has its slot, and everything that it held, as the operator wished.
    Replaced,
}

/// What follows from a member's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Serve the read from the others; the member stays.
    ReadElsewhere,
    /// List the sectors in the member's bad-block log, if it has one and others have the sectors; else
    /// [`Verdict::FailOrFreeze`].
    List,
    /// Fail the member if the array can serve without it; else freeze the array.
    FailOrFreeze,
    /// No member is at fault: the array takes no more writes until it is started again.
    Freeze,
    /// Fail only the request: the level has no redundancy that could disagree.
    FailRequest,
}

/// What happens to a member that has no room for a write, such as a sparse file on a full file system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnFull {
    /// It stays, and the array freezes. A full thin file system usually fills up for all members at once, and failing
    /// them one after the other would lose the array.
    #[default]
    Freeze,
    /// It is failed, as after any other error of a write.
    Fail,
}

/// The inputs of a verdict besides the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The level has copies of each byte, or parity to compute it.
    pub is_redundant: bool,
    /// What happens to full members.
    pub on_full: OnFull,
}

/// The table.
///
/// A failed flush may have lost any write since the last good one (the kernel drops the dirty pages, and the next flush
/// succeeds). So the member is failed, and is never flushed again.
pub fn decide(operation: Operation, kind: ErrorKind, policy: Policy) -> Verdict {
    if !policy.is_redundant {
        return match operation {
            Operation::Read | Operation::Write => Verdict::FailRequest,
            // It is unknown what the failed flush lost. A later flush that succeeds would hide it.
            Operation::Flush => Verdict::Freeze,
            Operation::Superblock
            | Operation::Command
            | Operation::ReadErrors
            | Operation::FailFast
            | Operation::Replaced => Verdict::FailOrFreeze,
        };
    }
    match (operation, kind) {
        (Operation::Read, ErrorKind::Gone) => Verdict::FailOrFreeze,
        (
            Operation::Read,
            ErrorKind::Media
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfRange
            | ErrorKind::Unsupported
            | ErrorKind::NoMemory
            | ErrorKind::TooManyLost
            | ErrorKind::Frozen
            | ErrorKind::Stopping
            | ErrorKind::Late,
        ) => Verdict::ReadElsewhere,
        (Operation::Write | Operation::Superblock, ErrorKind::NoSpace) => match policy.on_full {
            OnFull::Freeze => Verdict::Freeze,
            OnFull::Fail => Verdict::FailOrFreeze,
        },
        (Operation::Write, ErrorKind::Media) => Verdict::List,
        (
            Operation::Write | Operation::Superblock,
            ErrorKind::Media
            | ErrorKind::Gone
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfRange
            | ErrorKind::Unsupported
            | ErrorKind::NoMemory
            | ErrorKind::TooManyLost
            | ErrorKind::Frozen
            | ErrorKind::Stopping
            | ErrorKind::Late,
        ) => Verdict::FailOrFreeze,
        (
            Operation::Flush | Operation::Command | Operation::ReadErrors | Operation::FailFast | Operation::Replaced,
            ErrorKind::Media
            | ErrorKind::Gone
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfRange
            | ErrorKind::Unsupported
            | ErrorKind::NoMemory
            | ErrorKind::TooManyLost
            | ErrorKind::Frozen
            | ErrorKind::Stopping
            | ErrorKind::Late,
        ) => Verdict::FailOrFreeze,
    }
}
