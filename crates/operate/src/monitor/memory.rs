//! What the monitor remembers of each array between two looks, and across its own restarts.
//! Owns: [`ArrayMemory`], its form in the state file. Not here: how it changes (`changes`), the file (`keep`).
//! Invariant: it says what was told: an event arises where this and an array differ, so what is kept here is told once.

use super::moment::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One array.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ArrayMemory {
    /// Without the host.
    pub name: String,
    /// `/dev/md/home`
    pub device: String,
    /// What else it is called.
    pub aliases: BTreeSet<String>,
    /// Empty: it was never seen.
    pub uuid: String,
    /// `raid6`
    pub level: String,
    /// Whether the level outlives the loss of a member.
    pub has_redundancy: bool,
    /// Whether a process serves it.
    pub is_present: bool,
    /// Since when none does.
    pub gone_since: Option<Moment>,
    /// The last record of its history that was read.
    pub order: u64,
    /// Members in sync, and their slots; a slot that is not known is the highest number.
    pub in_sync: BTreeMap<String, u16>,
    /// Spares.
    pub spares: BTreeSet<String>,
    /// Failed members that were told of.
    pub faulty: BTreeSet<String>,
    /// The pass that was told of.
    pub pass: Option<PassMemory>,
    /// A pass was seen to have ended, and its record will come.
    pub end_was_seen: bool,
    /// It is degraded, and that was told.
    pub degraded: Option<Reminder>,
    /// It lacks spares, and that was told.
    pub lacks_spares: bool,
    /// Its check is overdue, and that was told.
    pub is_unchecked: bool,
    /// It takes no more writes, and that was told.
    pub is_frozen: bool,
    /// Its process does not answer, and that was told.
    pub is_silent: bool,
    /// The process that counted what is in `counted`.
    pub server: Option<u32>,
    /// What was told of members' requests.
    pub counted: BTreeMap<String, Counted>,
    /// Since when something is seen that the history does not say: it may only be late.
    #[serde(skip)]
    pub doubt: Option<Moment>,
    /// A member has had a request for a while: it may be hung soon.
    #[serde(skip)]
    pub has_silent: bool,
}

/// A pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PassMemory {
    /// `recovery`
    pub word: String,
    /// The last percentage that was told.
    pub told: u8,
}

/// Something that is told again every day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Reminder {
    /// When it was told last.
    pub told: Moment,
    /// Somebody knows: it is told no more.
    #[serde(default)]
    pub is_acknowledged: bool,
}

/// What was told of a member's requests.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counted {
    /// Reads that failed.
    pub read_errors: u64,
    /// Sectors that others supplied.
    pub elsewhere: u64,
    /// Sectors that it lacks.
    pub lacking: u64,
    /// Of its slowest request, in microseconds.
    pub slowest_us: u64,
    /// It hangs.
    pub is_hung: bool,
    /// When its errors were told last.
    pub told: Option<Moment>,
}

impl ArrayMemory {
    /// Whether it has never answered.
    pub(crate) fn is_new(&self) -> bool {
        self.level.is_empty()
    }

    /// Its name as a word of the command line may have it.
    pub(crate) fn is_called(&self, word: &str) -> bool {
        let plain = |text: &str| text.replace(':', "").to_ascii_lowercase();
        let is_name = word == self.name || word == self.device || self.aliases.contains(word);
        is_name || (!self.uuid.is_empty() && plain(word) == plain(&self.uuid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_that_does_not_run_is_still_called_as_when_it_ran() {
        let aliases = ["box:home", "md127", "/dev/md127"].map(str::to_owned).into();
        let uuid = "10111213:14151617:18191a1b:1c1d1e1f".to_owned();
        let (name, device) = ("home".to_owned(), "/dev/md/home".to_owned());
        let memory = ArrayMemory { name, device, aliases, uuid, ..ArrayMemory::default() };
        for word in ["home", "/dev/md/home", "box:home", "md127", "/dev/md127", "1011121314151617:18191A1B1C1D1E1F"] {
            assert!(memory.is_called(word), "{word}");
        }
        assert!(!memory.is_called("md126") && !memory.is_called("") && !ArrayMemory::default().is_called("home"));
    }
}
