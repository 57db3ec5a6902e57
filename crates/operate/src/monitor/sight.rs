//! What the monitor sees of an array at one look: its report, in so far as events follow from it; and what its history says
//! has happened since the look before.
//! Owns: [`Sight`], [`Happening`], reading a report. Not here: reading the history (`past`), what follows (`changes`).

use super::event::Place;
use crate::status::overdue_since;
use std::collections::{BTreeMap, BTreeSet};
use uraid_control::dates;
use uraid_control::protocol::CheckResult;
use uraid_control::report::{Report, UNANSWERED_MIN};

/// What an array answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Its report.
    Running(Box<Sight>),
    /// Its process did not answer.
    Silent,
    /// No process serves it.
    Absent,
}

/// An array's report.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sight {
    /// Without the host.
    pub name: String,
    /// `/dev/md/home`
    pub device: String,
    /// What else it is called: `box:home`, `md127`, `/dev/md127`.
    pub aliases: BTreeSet<String>,
    /// Four groups of eight hex digits.
    pub uuid: String,
    /// `raid6`
    pub level: String,
    /// Whether the level outlives the loss of a member.
    pub has_redundancy: bool,
    /// How many slots it has.
    pub slots: u16,
    /// Members in sync, and their slots.
    pub in_sync: BTreeMap<String, u16>,
    /// Spares, those to which data is being rebuilt among them.
    pub spares: BTreeSet<String>,
    /// Failed members.
    pub faulty: BTreeSet<String>,
    /// The pass that runs, and its percentage.
    pub pass: Option<(String, u8)>,
    /// Why it takes no more writes.
    pub frozen: Option<String>,
    /// How the last check ended.
    pub last_check: Option<CheckResult>,
    /// What is known of each member's requests.
    pub health: BTreeMap<String, Health>,
    /// The process that serves it: a new one counts from zero.
    pub server: Option<u32>,
    /// Days since the last complete check, if these are too many.
    pub unchecked_days: Option<u64>,
    /// Maintenance was announced.
    pub is_in_maintenance: bool,
    /// Spares that its line in the configuration asks for.
    pub spares_wanted: Option<u32>,
}

/// What is known of a member's requests.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Health {
    /// Reads that failed.
    pub read_errors: u64,
    /// Sectors that others supplied for it.
    pub elsewhere: u64,
    /// Sectors that it lacks, by its bad-block list.
    pub lacking: u64,
    /// How long its oldest request has been in flight, in milliseconds.
    pub unanswered_ms: u64,
    /// How long its slowest request took, in microseconds, with its kind.
    pub slowest: Option<(u64, String)>,
}

/// A record of an array's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Happening {
    /// When, in seconds since 1970.
    pub time: u64,
    /// Maintenance was announced for that time.
    pub is_in_maintenance: bool,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A process serves the array.
    Started,
    /// It does no more.
    Stopped,
    /// A member failed.
    Failed {
        /// Its path.
        path: String,
        /// It was not in sync.
        was_spare: bool,
        /// The error.
        reason: Option<String>,
    },
    /// A member is in sync.
    Active {
        /// Its path.
        path: String,
        /// Where.
        slot: Option<u16>,
    },
    /// A device became a spare, or a former member came back.
    Added {
        /// Its path.
        path: String,
    },
    /// A spare or failed member left.
    Removed {
        /// Its path.
        path: String,
    },
    /// A member gave its slot to the one that replaces it.
    Replaced {
        /// Its path.
        path: String,
    },
    /// A resync, recovery, check or repair began.
    PassStarted {
        /// Which.
        word: String,
    },
    /// It ended.
    PassEnded {
        /// Which.
        word: String,
        /// Whether it did all that it had to do.
        is_complete: bool,
        /// Why it ended, if not so.
        why: Option<String>,
        /// Sectors of a member that disagree.
        mismatched: u64,
        /// Where.
        places: Vec<Place>,
    },
    /// The array takes no more writes.
    Frozen {
        /// Why.
        reason: String,
    },
    /// A crash may have left blocks that nothing can compute.
    WriteHole {
        /// Where, or how many.
        text: String,
    },
}

impl Sight {
    /// Of a report of a running array.
    pub(crate) fn of(report: &Report, spares_wanted: Option<u32>) -> Sight {
        let mut sight = Sight {
            name: report.name.clone(),
            device: report.dev_path(),
            aliases: report.device.iter().flat_map(|md| [md.clone(), format!("/dev/{md}")]).collect(),
            uuid: report.uuid.clone(),
            level: report.level.clone(),
            has_redundancy: !matches!(report.level.as_str(), "linear" | "raid0"),
            slots: report.raid_devices,
            pass: report.pass().map(|pass| (pass.word.to_owned(), (pass.progress.permille() / 10) as u8)),
            frozen: None,
            last_check: report.last_check.clone(),
            server: report.server.as_ref().map(|server| server.pid),
            unchecked_days: overdue_since(report, dates::now()).map(|age| age / 86_400),
            is_in_maintenance: report.maintenance_until.is_some(),
            spares_wanted,
            ..Sight::default()
        };
        sight.aliases.insert(report.set_name.clone());
        if report.state.iter().any(|word| word == "frozen") {
            sight.frozen = Some(report.frozen.clone().unwrap_or_else(|| "it takes no more writes".to_owned()));
        }
        for member in &report.members {
            let Some(path) = member.path.clone() else { continue };
            match (member.state.as_str(), member.slot) {
                ("active sync", Some(slot)) => drop(sight.in_sync.insert(path.clone(), slot)),
                ("faulty", _) => drop(sight.faulty.insert(path.clone())),
                (state, _) if state.starts_with("spare") => drop(sight.spares.insert(path.clone())),
                _ => {}
            }
            let Some(io) = &member.io else { continue };
            let health = Health {
                read_errors: io.reads.errors,
                elsewhere: io.read_elsewhere_sectors,
                lacking: io.bad_blocks.iter().map(|(_, length)| length).sum(),
                unanswered_ms: io.unanswered_ms,
                slowest: io.slowest.as_ref().map(|slowest| (slowest.us, slowest.kind.clone())),
            };
            sight.health.insert(path, health);
        }
        sight
    }

    /// Whether a slot has no member in sync.
    pub(crate) fn is_degraded(&self) -> bool {
        self.has_redundancy && self.in_sync.len() < usize::from(self.slots)
    }

    /// `mismatches found: 8 (on raid level 5)`, in mdadm's words.
    pub(crate) fn mismatches(level: &str, mismatched: u64) -> Option<String> {
        let level = level.trim_start_matches("raid");
        (mismatched > 0).then(|| format!("mismatches found: {mismatched} (on raid level {level})"))
    }
}

impl Health {
    /// Whether a request has waited for a while.
    pub(crate) fn is_silent(&self) -> bool {
        u128::from(self.unanswered_ms) >= UNANSWERED_MIN.as_millis()
    }

    /// Whether a request waits so long that the member may be hung.
    pub(crate) fn is_hung(&self) -> bool {
        u128::from(self.unanswered_ms) >= HUNG_TIMES * UNANSWERED_MIN.as_millis()
    }

    /// Whether a request took long.
    pub(crate) fn is_slow(&self) -> bool {
        self.slowest.as_ref().is_some_and(|(us, _)| u128::from(*us) >= UNANSWERED_MIN.as_micros())
    }
}

/// A member is told to hang after ten seconds: five times as long as reports call it silent, because a disk that wakes up
/// takes that time.
const HUNG_TIMES: u128 = 5;
