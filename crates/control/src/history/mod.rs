//! The history of each array: every command and event, durable and bounded.
//! Owns: [`Entry`], [`Event`], [`Actor`]; noting an entry, the record of checks. Not here: the thread that writes (`writer`),
//! the files (`file`), what happens to arrays (`serve`).
//! Invariant: who notes an entry never waits for a disk. Of one array, numbers ascend in the order in which things happened,
//! whatever the clock does.
//!
//! ```text
//!   UUID.history       one JSON object a line, at most 1 MiB; a torn last line is passed over
//!   UUID.history.old   the lines before those
//!   UUID.checks        the last complete check, and how far the next one is
//! ```

mod file;
mod writer;

pub use file::{HistoryError, append, arrays, read, read_checks};
pub use writer::{CheckPlace, begin, checks_of, error, finish, note, save_checks};

use crate::words::dates;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A text of an entry is cut there.
const TEXT_BYTES_MAX: usize = 2048;

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Ascends within one array; given when it is written.
    #[serde(default)]
    pub number: u64,
    /// By the wall clock, in seconds since 1970.
    pub time: u64,
    /// The array's name at that time.
    pub array: String,
    /// The array.
    pub uuid: String,
    /// Which kind of event: [`Event::name`]; one that this version does not know is shown as it is.
    pub event: String,
    /// Who caused it.
    pub actor: Actor,
    /// In words.
    pub text: String,
    /// For programs: the call of a command, the counts of a check, ...
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
    /// Maintenance was announced for that time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub maintenance: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Who caused an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Actor {
    /// The array itself.
    Engine,
    /// A process that called the control socket, or did it itself.
    Process {
        /// Its name, as `ps` shows it; empty if it had ended.
        program: String,
        /// Its number.
        pid: u32,
        /// Its user.
        uid: u32,
        /// That user's name, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
}

impl Actor {
    /// A process; its name is looked up in /proc.
    pub fn of_process(pid: u32, uid: u32) -> Actor {
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Actor::Process { program: program.trim_end().to_owned(), pid, uid, user: None }
    }

    /// This process.
    pub fn own() -> Actor {
        Actor::of_process(std::process::id(), rustix::process::geteuid().as_raw())
    }

    /// `engine`, `root by uraid[123]`
    pub fn text(&self) -> String {
        match self {
            Actor::Engine => "engine".to_owned(),
            Actor::Process { program, pid, uid, user } => {
                let user = user.clone().unwrap_or_else(|| format!("user {uid}"));
                let program = if program.is_empty() { "?" } else { program };
                format!("{user} by {program}[{pid}]")
            }
        }
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $event:ident = $name:literal,)*) => {
        /// The kinds of events.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Event {
            $($(#[$doc])* $event,)*
        }

        impl Event {
            /// All of them.
            pub const ALL: &[Event] = &[$(Event::$event),*];

            /// As in an entry.
            pub fn name(self) -> &'static str {
                match self {
                    $(Event::$event => $name,)*
                }
            }
        }
    };
}

events! {
    /// The array serves its clients.
    Started = "started",
    /// It was stopped.
    Stopped = "stopped",
    /// Somebody told it to do something.
    Command = "command",
    /// A member has failed.
    MemberFailed = "member-failed",
    /// A spare or a failed member was removed.
    MemberRemoved = "member-removed",
    /// A device became a spare.
    SpareAdded = "spare-added",
    /// A device was added and has a slot.
    MemberAdded = "member-added",
    /// A spare has taken a slot, and is being recovered.
    SpareTaken = "spare-taken",
    /// A member holds everything.
    MemberRecovered = "member-recovered",
    /// A member is to be replaced by a spare.
    ReplaceStarted = "replace-started",
    /// A member was replaced.
    MemberReplaced = "member-replaced",
    /// A spare moved to or from another array.
    SpareMoved = "spare-moved",
    /// A resync, recovery, check or repair began.
    PassStarted = "pass-started",
    /// It came to its end.
    PassFinished = "pass-finished",
    /// It ended before its end.
    PassAborted = "pass-aborted",
    /// What a check or repair has found.
    CheckResult = "check-result",
    /// Requests to a member failed.
    MemberErrors = "member-errors",
    /// The bad-block list of a member names more sectors.
    BadBlocks = "bad-blocks",
    /// It names fewer.
    BadBlocksMended = "bad-blocks-mended",
    /// Sectors that no member can give.
    SectorsLost = "sectors-lost",
    /// Sectors that a pass wrote again.
    Corrected = "corrected",
    /// A member does not answer.
    MemberSilent = "member-silent",
    /// It answers again.
    MemberAnswers = "member-answers",
    /// The array was served after a crash in which a row may have been torn.
    WriteHole = "write-hole",
    /// It takes no more writes, because of errors.
    Frozen = "frozen",
    /// It takes no more writes, by command.
    ReadOnly = "read-only",
    /// It takes writes again.
    Writable = "writable",
    /// Maintenance began.
    MaintenanceBegan = "maintenance-began",
    /// It ended.
    MaintenanceEnded = "maintenance-ended",
    /// Entries that could not be written.
    Lost = "entries-lost",
}

impl Entry {
    /// Something that happens now.
    pub fn new(array: &str, uuid: &str, event: Event, actor: Actor, text: impl Into<String>) -> Entry {
        let mut text = text.into();
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push_str("...");
        }
        Entry {
            number: 0,
            time: dates::now(),
            array: array.to_owned(),
            uuid: uuid.to_owned(),
            event: event.name().to_owned(),
            actor,
            text,
            facts: Map::new(),
            maintenance: false,
        }
    }

    /// With this fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Entry {
        self.facts.insert(name.to_owned(), value.into());
        self
    }
}
