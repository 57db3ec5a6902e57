//! What the history of an array says has happened since the monitor looked last.
//! Owns: reading it from a record on, which records are events. Not here: writing it, which the array's server does.
//! Invariant: a record that is not understood is passed over: a newer server may write kinds that this monitor does not know.

use super::event::Place;
use super::sight::{Happening, What};
use serde_json::Value;
use uraid_control::history::{self, Entry, Event};
use uraid_control::protocol::CheckResult;

/// The records behind `after`, and the number of the last one; `None`: there is no history.
pub(crate) fn since(uuid: &str, after: u64) -> Option<(Vec<Happening>, u64)> {
    // Its server says in the log what is wrong with it, and reports are compared instead.
    let entries = history::read(uuid).ok()?;
    let last = entries.last()?.number;
    // One that was removed, and begins anew.
    let is_other = last < after;
    let fresh = entries.iter().filter(|entry| entry.number > after && !is_other);
    let happening = |entry: &Entry| {
        let what = what(entry)?;
        Some(Happening { time: entry.time, is_in_maintenance: entry.maintenance, what })
    };
    Some((fresh.filter_map(happening).collect(), last))
}

fn what(entry: &Entry) -> Option<What> {
    let event = Event::ALL.iter().find(|event| event.name() == entry.event)?;
    let (first, rest) = entry.text.split_once(' ').unwrap_or((&entry.text, ""));
    let word = first.to_owned();
    Some(match event {
        Event::Started => What::Started,
        Event::Stopped => What::Stopped,
        Event::Frozen => What::Frozen { reason: entry.text.clone() },
        Event::WriteHole => What::WriteHole { text: entry.text.clone() },
        Event::PassStarted => What::PassStarted { word },
        // The result of a check says more, and comes behind.
        Event::PassFinished | Event::PassAborted if matches!(first, "check" | "repair") => return None,
        Event::PassFinished | Event::PassAborted => {
            let is_complete = *event == Event::PassFinished;
            let why = (!is_complete).then(|| rest.to_owned());
            What::PassEnded { word, is_complete, why, mismatched: 0, places: Vec::new() }
        }
        Event::CheckResult => check(entry.facts.get("result")?)?,
        Event::MemberFailed
        | Event::MemberRemoved
        | Event::SpareAdded
        | Event::MemberAdded
        | Event::SpareTaken
        | Event::MemberRecovered
        | Event::ReplaceStarted
        | Event::MemberReplaced => member(*event, entry)?,
        Event::Command
        | Event::SpareMoved
        | Event::MemberErrors
        | Event::BadBlocks
        | Event::BadBlocksMended
        | Event::SectorsLost
        | Event::Corrected
        | Event::MemberSilent
        | Event::MemberAnswers
        | Event::ReadOnly
        | Event::Writable
        | Event::MaintenanceBegan
        | Event::MaintenanceEnded
        | Event::Lost => return None,
    })
}

fn check(result: &Value) -> Option<What> {
    let CheckResult { kind, end, mismatched, mismatches, .. } = serde_json::from_value(result.clone()).ok()?;
    let place = |found: uraid_control::protocol::Mismatch| Place {
        sector: found.sector,
        sectors: found.sectors,
        members: found.members,
    };
    let is_complete = end == "complete";
    let places = mismatches.into_iter().map(place).collect();
    Some(What::PassEnded { word: kind, is_complete, why: Some(end), mismatched, places })
}

fn member(event: Event, entry: &Entry) -> Option<What> {
    let path = entry.facts.get("member")?.as_str()?.to_owned();
    let slot = entry.facts.get("slot").and_then(Value::as_u64).and_then(|slot| u16::try_from(slot).ok());
    let is_in_sync = entry.facts.get("in_sync") == Some(&Value::Bool(true));
    if event == Event::MemberFailed {
        let was_spare = entry.text.contains(" (spare) is faulty: ");
        let reason = entry.text.split_once(" is faulty: ").map(|(_, rest)| rest);
        let reason = reason.map(|rest| rest.split_once("; ").map_or(rest, |(reason, _)| reason).to_owned());
        return Some(What::Failed { path, was_spare, reason });
    }
    Some(if event == Event::MemberRemoved {
        What::Removed { path }
    } else if is_in_sync {
        What::Active { path, slot }
    } else if event == Event::MemberReplaced {
        What::Replaced { path }
    } else {
        What::Added { path }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_control::history::Actor;

    fn entry(event: Event, text: &str) -> Entry {
        Entry::new("home", "u", event, Actor::Engine, text)
    }

    #[test]
    fn records_of_members_and_passes_become_what_happened() {
        let of = |entry: Entry, slot: Option<u16>, is_in_sync: bool| {
            what(&entry.with("member", "/m0").with("slot", slot).with("in_sync", is_in_sync))
        };
        let path = || "/m0".to_owned();
        let failed =
            entry(Event::MemberFailed, "member m0 (slot 0) is faulty: a write failed (errno 5); the array goes on");
        let reason = Some("a write failed (errno 5)".to_owned());
        assert_eq!(of(failed, None, false), Some(What::Failed { path: path(), was_spare: false, reason }));
        let spare = entry(Event::MemberFailed, "member m0 (spare) is faulty: by command; the array goes on");
        let reason = Some("by command".to_owned());
        assert_eq!(of(spare, None, false), Some(What::Failed { path: path(), was_spare: true, reason }));
        let active = Some(What::Active { path: path(), slot: Some(1) });
        assert_eq!(of(entry(Event::MemberRecovered, "x"), Some(1), true), active);
        assert_eq!(of(entry(Event::MemberAdded, "x"), Some(1), true), active);
        assert_eq!(of(entry(Event::MemberReplaced, "x"), Some(1), true), active);
        assert_eq!(of(entry(Event::MemberReplaced, "x"), None, false), Some(What::Replaced { path: path() }));
        assert_eq!(of(entry(Event::SpareTaken, "x"), Some(1), false), Some(What::Added { path: path() }));
        assert_eq!(of(entry(Event::MemberRemoved, "x"), None, false), Some(What::Removed { path: path() }));
        assert_eq!(what(&entry(Event::MemberRemoved, "by a server that names no member")), None);
        let began = Some(What::PassStarted { word: "recovery".to_owned() });
        assert_eq!(what(&entry(Event::PassStarted, "recovery began")), began);
        let ended = what(&entry(Event::PassAborted, "recovery ended at 7 of 9")).expect("an event");
        assert!(
            matches!(ended, What::PassEnded { is_complete: false, why: Some(why), .. } if why == "ended at 7 of 9")
        );
        assert_eq!(what(&entry(Event::PassFinished, "check complete")), None);
        let unknown = Entry { event: "something-newer".to_owned(), ..entry(Event::Started, "x") };
        assert_eq!(what(&unknown), None);
    }
}
