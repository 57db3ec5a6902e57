//! The words for a member's errors.
//! Owns: the words for each error, and for a missing answer. Not here: when they are printed (`watch`, `frozen`).

use uraid_block::IoError;
use uraid_engine::RequestKind;
use uraid_engine::verdict::Operation;

/// The host's error for a member that did not answer.
pub(crate) const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();
/// An error that a member gave, or that it gave no answer.
pub(crate) fn error_text(kind: RequestKind, error: IoError) -> String {
    match error.os {
        ETIMEDOUT => format!("it did not answer a {} in time (--member-timeout)", kind.name()),
        _ => error.to_string(),
    }
}

/// `a write failed: no space left under the member (errno 28)`
pub(crate) fn failure_text(operation: Operation, error: IoError) -> String {
    if error.os == ETIMEDOUT {
        let what = match operation {
            Operation::Read => "a read",
            Operation::Write => "a write",
            Operation::Flush => "a flush",
            Operation::Superblock => "the write of its superblock",
            Operation::Command | Operation::ReadErrors | Operation::FailFast | Operation::Replaced => "the system",
        };
        return format!("it did not answer {what} in time (--member-timeout)");
    }
    match operation {
        Operation::Read => format!("a read failed: {error}"),
        Operation::Write => format!("a write failed: {error}"),
        Operation::Flush => format!("a flush failed: {error}"),
        Operation::Superblock => format!("its superblock could not be written: {error}"),
        Operation::Command => "by command".to_owned(),
        Operation::Replaced => "it was replaced".to_owned(),
        Operation::FailFast => format!("it is failfast, and a read failed: {error}"),
        Operation::ReadErrors => format!("more read errors than --max-read-errors allows, the last one: {error}"),
    }
}
