//! What the monitor tells: kinds of events with their names, and one event.
//! Owns: mdadm's names and weights of events and the names of those that mdadm lacks, the line of an event for a log.
//! Not here: when an event arises (`changes`), the forms in which a mail, a program or a web server gets it (`channel`).
//! Invariant: a name that mdadm has means what it means there.
//! Spec: mdadm(8), MONITOR MODE.

use serde::{Deserialize, Serialize};
use std::fmt;
use uraid_control::names::printable;

/// How much an event matters: the level of its line in the system's log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// It is as it should be.
    Info,
    /// It is to be known.
    Warning,
    /// Data may be lost if nobody does anything.
    Critical,
}

impl Severity {
    /// The word in the environment of programs, and in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum EventKind {
    /// Asked for by `--test`.
    TestMessage,
    /// The array was stopped, or its process ended.
    DeviceDisappeared,
    /// An array runs that did not run before.
    NewArray,
    /// A slot has no member in sync.
    DegradedArray,
    /// The array has fewer spares than its line in the configuration says.
    SparesMissing,
    /// A resync, recovery, check or repair has begun.
    RebuildStarted,
    /// It has come so far, in percent.
    Rebuild(u8),
    /// It has done all that it had to do.
    RebuildFinished,
    /// It has ended before.
    RebuildAborted,
    /// A check was ended by a command, and keeps its place: the next one goes on there.
    RebuildPaused,
    /// A member in sync has failed.
    Fail,
    /// A spare has failed, or one to which data was being rebuilt.
    FailSpare,
    /// A member is in sync that was not.
    SpareActive,
    /// A spare was given to another array.
    MoveSpare,
    /// The array takes no more writes.
    ArrayFrozen,
    /// The process of the array does not answer.
    NotAnswering,
    /// A member could not read something.
    ReadErrors,
    /// Sectors that a member could not read were written again from the others.
    SectorsCorrected,
    /// A member lacks sectors, by its bad-block list.
    BadBlocks,
    /// A request to a member took long.
    SlowMember,
    /// A member does not answer a request.
    HungMember,
    /// A crash may have left blocks that nothing can compute.
    WriteHole,
    /// A check has found what disagrees.
    MismatchesFound,
    /// No check has ended for longer than the schedule allows.
    CheckOverdue,
}

/// All kinds without a number, with what is fixed about each: the name, the weight, whether it is mailed, whether mdadm has
/// it.
const KINDS: [(EventKind, &str, Severity, bool, bool); 23] = [
    (EventKind::TestMessage, "TestMessage", Severity::Info, true, true),
    (EventKind::DeviceDisappeared, "DeviceDisappeared", Severity::Critical, false, true),
    (EventKind::NewArray, "NewArray", Severity::Info, false, true),
    (EventKind::DegradedArray, "DegradedArray", Severity::Critical, true, true),
    (EventKind::SparesMissing, "SparesMissing", Severity::Warning, true, true),
    (EventKind::RebuildStarted, "RebuildStarted", Severity::Warning, false, true),
    (EventKind::RebuildFinished, "RebuildFinished", Severity::Warning, false, true),
    (EventKind::RebuildAborted, "RebuildAborted", Severity::Warning, false, false),
    (EventKind::RebuildPaused, "RebuildPaused", Severity::Info, false, false),
    (EventKind::Fail, "Fail", Severity::Critical, true, true),
    (EventKind::FailSpare, "FailSpare", Severity::Critical, true, true),
    (EventKind::SpareActive, "SpareActive", Severity::Info, false, true),
    (EventKind::MoveSpare, "MoveSpare", Severity::Info, false, true),
    (EventKind::ArrayFrozen, "ArrayFrozen", Severity::Critical, true, false),
    (EventKind::NotAnswering, "NotAnswering", Severity::Critical, true, false),
    (EventKind::ReadErrors, "ReadErrors", Severity::Warning, true, false),
    (EventKind::SectorsCorrected, "SectorsCorrected", Severity::Info, false, false),
    (EventKind::BadBlocks, "BadBlocks", Severity::Warning, true, false),
    (EventKind::SlowMember, "SlowMember", Severity::Warning, false, false),
    (EventKind::HungMember, "HungMember", Severity::Critical, true, false),
    (EventKind::WriteHole, "WriteHole", Severity::Critical, true, false),
    (EventKind::MismatchesFound, "MismatchesFound", Severity::Warning, true, false),
    (EventKind::CheckOverdue, "CheckOverdue", Severity::Warning, true, false),
];

impl EventKind {
    fn row(self) -> &'static (EventKind, &'static str, Severity, bool, bool) {
        let kind = if let EventKind::Rebuild(_) = self { EventKind::RebuildStarted } else { self };
        KINDS.iter().find(|(own, ..)| *own == kind).expect("every kind has its row")
    }

    /// `Rebuild40`
    pub(crate) fn name(self) -> String {
        if let EventKind::Rebuild(percent) = self { format!("Rebuild{percent:02}") } else { self.row().1.to_owned() }
    }

    /// The name of the executable for it in a folder of reactions: one serves every percentage.
    pub(crate) fn file(self) -> &'static str {
        if let EventKind::Rebuild(_) = self { "RebuildNN" } else { self.row().1 }
    }

    /// How much it matters.
    pub(crate) fn severity(self) -> Severity {
        self.row().2
    }

    /// Whether a mail is sent about it.
    pub(crate) fn is_mailed(self) -> bool {
        self.row().3
    }

    /// Whether mdadm has an event of this name.
    pub(crate) fn is_of_mdadm(self) -> bool {
        self.row().4
    }
}

impl From<EventKind> for String {
    fn from(kind: EventKind) -> String {
        kind.name()
    }
}

/// The text is the name of no event.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is no kind of event")]
pub(crate) struct NoKind {
    name: String,
}

impl TryFrom<String> for EventKind {
    type Error = NoKind;

    fn try_from(name: String) -> Result<EventKind, NoKind> {
        let of_name = KINDS.iter().find(|(_, own, ..)| *own == name).map(|(kind, ..)| *kind);
        let percent = || name.strip_prefix("Rebuild")?.parse().ok().filter(|percent| *percent <= 100);
        of_name.or_else(|| percent().map(EventKind::Rebuild)).ok_or(NoKind { name })
    }
}

/// Sectors of an array at which something is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The first one, of the array.
    pub sector: u64,
    /// How many.
    pub sectors: u64,
    /// The members that disagree.
    #[serde(default)]
    pub members: Vec<String>,
}

/// An event before it has its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct News {
    /// What.
    pub kind: EventKind,
    /// The member, or the array that gave a spare.
    pub component: Option<String>,
    /// What is to be said beside.
    pub description: Option<String>,
    /// Where.
    pub places: Vec<Place>,
    /// When the server recorded it; `None`: it is noticed now.
    pub time: Option<u64>,
    /// It was told before, and still is so.
    pub is_repeat: bool,
    /// Maintenance was announced for that time.
    pub is_in_maintenance: bool,
}

impl News {
    /// One about an array as a whole.
    pub(crate) fn of(kind: EventKind) -> News {
        News {
            kind,
            component: None,
            description: None,
            places: Vec::new(),
            time: None,
            is_repeat: false,
            is_in_maintenance: false,
        }
    }

    /// One about a member.
    pub(crate) fn about(kind: EventKind, component: &str) -> News {
        News { component: Some(component.to_owned()), ..News::of(kind) }
    }

    /// The same with a description.
    pub(crate) fn saying(self, description: impl Into<String>) -> News {
        News { description: Some(description.into()), ..self }
    }
}

/// One event, to be told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// No other event of this state directory has it. Who gets an event twice, after a crash, knows it by this.
    pub id: String,
    /// What.
    pub kind: EventKind,
    /// `/dev/md/home`
    pub device: String,
    /// The array's name.
    pub array: String,
    /// Its UUID; empty for an array that was never seen.
    pub uuid: String,
    /// The member, or the array that gave a spare.
    pub component: Option<String>,
    /// What is to be said beside.
    pub description: Option<String>,
    /// Where.
    #[serde(default)]
    pub places: Vec<Place>,
    /// When it happened or was noticed, in seconds since 1970.
    pub time: u64,
    /// It was told before, and still is so.
    #[serde(default)]
    pub is_repeat: bool,
    /// Maintenance was announced for that time.
    #[serde(default)]
    pub is_in_maintenance: bool,
}

impl fmt::Display for Event {
    /// mdadm's line: `Fail event detected on md device /dev/md/home, component device /dev/sdb`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} event detected on md device {}", self.kind.name(), printable(&self.device))?;
        if let Some(component) = &self.component {
            write!(f, ", component device {}", printable(component))?;
        }
        if let Some(description) = &self.description {
            write!(f, ": {}", printable(description))?;
        }
        if self.is_in_maintenance {
            f.write_str(" (in maintenance)")?;
        }
        if self.is_repeat { f.write_str(" (repeated)") } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One event about an array that is called home.
    pub(crate) fn event(kind: EventKind, component: Option<&str>) -> Event {
        Event {
            id: "e-1".to_owned(),
            kind,
            device: "/dev/md/home".to_owned(),
            array: "home".to_owned(),
            uuid: "10111213:14151617:18191a1b:1c1d1e1f".to_owned(),
            component: component.map(str::to_owned),
            description: None,
            places: Vec::new(),
            time: 1_700_000_000,
            is_repeat: false,
            is_in_maintenance: false,
        }
    }

    #[test]
    fn every_name_is_read_back_and_every_kind_has_one() {
        for (kind, name, ..) in KINDS {
            assert_eq!((kind.name().as_str(), kind.file()), (name, name));
            assert_eq!(EventKind::try_from(name.to_owned()).expect("a name"), kind);
        }
        for percent in [0, 7, 20, 99, 100] {
            let kind = EventKind::Rebuild(percent);
            assert_eq!(EventKind::try_from(kind.name()).expect("a name"), kind);
            assert_eq!((kind.file(), kind.severity()), ("RebuildNN", Severity::Warning));
        }
        for name in ["", "Rebuild", "Rebuild101", "Rebuild-1", "fail", "Fail\n"] {
            assert!(EventKind::try_from(name.to_owned()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_line_is_mdadm_s() {
        let line = |event: Event| event.to_string();
        let fail = event(EventKind::Fail, Some("/dev/sdb"));
        assert_eq!(line(fail.clone()), "Fail event detected on md device /dev/md/home, component device /dev/sdb");
        let said = Event { description: Some("mismatches found: 8 (on raid level 5)".to_owned()), ..fail.clone() };
        let said = Event { component: None, kind: EventKind::RebuildFinished, is_repeat: true, ..said };
        let expected = "RebuildFinished event detected on md device /dev/md/home: mismatches found: 8 (on raid level 5) (repeated)";
        assert_eq!(line(said), expected);
        let hostile = Event { device: "/dev/md/a\nb\x1b[2J".to_owned(), ..fail };
        assert_eq!(line(hostile), "Fail event detected on md device /dev/md/a_b_[2J, component device /dev/sdb");
    }
}
