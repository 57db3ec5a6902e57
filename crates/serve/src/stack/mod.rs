//! The arrays of one process: each on devices of the host, or on arrays before it in the list.
//! Owns: the two phases of them ([`AssembledStack`], then [`RunningStack`]), the engine's settings, the memory for their
//! clients, errors of running them. Not here: which members make up an array (`assembly`), building, starting and stopping
//! (`uraid_arrays`, `session`, `one_shot`).
//! Invariant: a member array comes before the array that is made of it, and is a member of one array only.

mod assembled;
pub mod assembly;
pub(crate) mod roster;
mod running;

pub use assembled::{Assembled, AssembledStack};
pub use running::RunningStack;
pub(crate) use running::{MadeOf, Running};

use crate::lines::frozen;
use std::time::Duration;
use uraid_engine::verdict::OnFull;
use uraid_engine::{Config, StartError, Status, StopError};
use uraid_host::ArenaBlocks;

/// The buffers for the requests of each array's clients. A client may send 32 MiB at once; one request gets at most
/// half of the buffers.
pub(crate) const CLIENT_BLOCKS: ArenaBlocks = ArenaBlocks { small: 4096, large: 1280 };

/// What the arrays of a process are told in common.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether `--force` was given.
    pub force: bool,
    /// More read errors than this fail a member; 0: never.
    pub read_errors_max: u32,
    /// What happens to full members.
    pub on_full: OnFull,
}

impl Settings {
    /// With the engine's limit of read errors.
    fn new(force: bool) -> Settings {
        Settings { force, read_errors_max: read_errors_max_default(), on_full: OnFull::default() }
    }

    /// The engine's, of one array.
    fn config(&self, read_only: bool) -> Config {
        let Settings { force, read_errors_max, on_full } = *self;
        Config { read_only, force, read_errors_max, on_full, ..Config::default() }
    }
}

/// The default limit of read errors.
pub fn read_errors_max_default() -> u32 {
    Config::default().read_errors_max
}

/// Why arrays could not be run from start to stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StackError {
    /// An array did not start.
    #[error("{array}: the array could not be started{why}")]
    Start {
        /// Its name.
        array: String,
        /// The members with errors, and what to do: see `frozen`.
        why: String,
        /// Why.
        source: StartError,
    },
    /// A signal arrived during the array's resync.
    #[error(
        "{array} was stopped before it was consistent: it stays marked dirty, and its next start continues its resync"
    )]
    Interrupted {
        /// Its name.
        array: String,
    },
    /// An array could not be stopped, because a member does not answer.
    #[error(
        "{array}: members have not answered after {after:?}{}{}; {}",
        if members.is_empty() { String::new() } else { format!(": {}", members.join(", ")) },
        match requests {
            0 => String::new(),
            1 => " (at least 1 request waits for them)".to_owned(),
            _ => format!(" (at least {requests} requests wait for them)"),
        },
        if *is_redundant {
            "the array stays marked dirty, and its next start makes it consistent"
        } else {
            "what was written since the last flush may be lost"
        }
    )]
    NotAnswering {
        /// Its name.
        array: String,
        /// The members with unanswered requests of shard 0.
        members: Vec<String>,
        /// How many requests wait on shard 0.
        requests: u64,
        /// How long the stop waited.
        after: Duration,
        /// Whether its level has redundancy, and so a dirty mark.
        is_redundant: bool,
    },
    /// An array is stopped, but not cleanly.
    #[error("{array}: the array was stopped: {how}")]
    Stop {
        /// Its name.
        array: String,
        /// What is wrong: see `frozen`.
        how: String,
    },
}

impl StackError {
    /// Why the array of this name could not be started; `member` returns the name of a member.
    fn start<'a>(array: &str, status: &Status, source: StartError, member: impl Fn(usize) -> &'a str) -> StackError {
        StackError::Start { array: array.to_owned(), why: frozen::start_text(status, &source, member), source }
    }

    /// Why its stop was not clean. `before`, `after`: its status before and after the stop.
    fn stop<'a>(
        array: &str,
        before: &Status,
        after: &Status,
        error: StopError,
        member: impl Fn(usize) -> &'a str,
    ) -> StackError {
        let reason = frozen::stop_reason(before, after, &error, member);
        let is_degraded = before.level.is_parity() && before.usable.count() < usize::from(before.slots);
        StackError::Stop { array: array.to_owned(), how: frozen::stop_text(&error, reason, is_degraded) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_level_with_redundancy_is_said_to_be_marked_dirty() {
        let text = |is_redundant| {
            let (array, after) = ("home".to_owned(), Duration::from_secs(45));
            let members = vec!["m1".to_owned()];
            StackError::NotAnswering { array, members, requests: 2, after, is_redundant }.to_string()
        };
        assert!(text(true).starts_with("home: members have not answered after 45s: m1 (at least 2 requests "));
        assert!(text(true).ends_with("the array stays marked dirty, and its next start makes it consistent"));
        assert!(text(false).ends_with("what was written since the last flush may be lost"));
    }
}
