//! What happens to a running array, said on stderr.
//! Owns: what is new between two looks, the words for it. Not: when it is said (`overseer`).
//! Looks every 100 ms, after `fail`, and before and after the stop, so that nothing of it is lost.
//! Not here: what to do about it (`engine`, which has done it by then).
//! Invariant: the watch only looks; the array does not wait for it.

use crate::overseer::Overseer;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::IoError;
use uraid_engine::verdict::Operation;
use uraid_engine::view::Gate;
use uraid_engine::{MemberState, Status};
use uraid_host::Local;

/// What the host gives for a member that did not answer.
const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();
/// How often it looks.
const PERIOD: Duration = Duration::from_millis(100);

/// Looks until dropped.
pub async fn members(array: Rc<Overseer>, local: Local) {
    loop {
        array.say_changes();
        local.sleep(PERIOD).await;
    }
}

/// What is new in `now`.
pub fn changes<'a>(before: &Status, now: &Status, name: impl Fn(usize) -> &'a str) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, (old, new)) in before.members.iter().zip(&now.members).enumerate() {
        if let (MemberState::Active(_) | MemberState::Spare, MemberState::Faulty { operation, error, slot, .. }) =
            (old, new)
        {
            let place = slot.map_or("spare".to_owned(), |slot| slot.to_string());
            let (member, what, picture) = (name(index), failure_text(*operation, *error), now.picture());
            lines.push(format!("member {member} ({place}) is faulty: {what}; the array goes on {picture}"));
        }
    }
    if let (Gate::Open | Gate::Closed, Gate::Frozen(kind)) = (before.gate, now.gate) {
        lines.push(format!("takes no more writes: {kind}; reads are served as far as possible"));
    }
    lines
}

/// `a write failed: no space left under the member (errno 28)`
pub fn failure_text(operation: Operation, error: IoError) -> String {
    if error.os == ETIMEDOUT {
        let what = match operation {
            Operation::Read => "a read",
            Operation::Write => "a write",
            Operation::Flush => "a flush",
            Operation::Superblock => "the write of its superblock",
            Operation::Command => "the system",
        };
        return format!("it did not answer {what} in time (--member-timeout)");
    }
    match operation {
        Operation::Read => format!("a read failed: {error}"),
        Operation::Write => format!("a write failed: {error}"),
        Operation::Flush => format!("a flush failed: {error}"),
        Operation::Superblock => format!("its superblock could not be written: {error}"),
        Operation::Command => "by command".to_owned(),
    }
}
