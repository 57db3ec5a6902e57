//! What is said of an array because of what is kept in the state directory.
//! Owns: checks that are overdue or have found something, arrays that do not run, a history that is not written. Not here:
//! the state of an array that runs (`findings`), the files (`uraid_control::history`).
//! Invariant: without a state directory nothing is said.

use super::findings::{Finding, shell_word};
use super::kind::Kind;
use uraid_block::sizes::counted;
use uraid_control::dates;
use uraid_control::history::{self, Entry, Event};
use uraid_control::report::Report;

/// Checks are due each month; a few days later, one is missing.
const CHECK_AGE_MAX: u64 = 40 * 86_400;

/// The seconds since the last complete check of a running array, if that is too long ago.
pub(crate) fn overdue_since(report: &Report, now: u64) -> Option<u64> {
    let checks = report.checks.as_ref()?;
    // A new array has had no time for one.
    let last = checks.complete.as_ref().map_or(report.created, |fact| fact.ended);
    let age = now.saturating_sub(last);
    (report.is_redundant() && age > CHECK_AGE_MAX && report.check.is_none()).then_some(age)
}

/// What is said of a running array.
pub(super) fn of_report(report: &Report, now: u64) -> Vec<Finding> {
    let of_checks = [overdue(report, now), found(report)];
    of_checks.into_iter().flatten().chain(history_broken(report)).chain(maintenance(report)).collect()
}

fn overdue(report: &Report, now: u64) -> Option<Finding> {
    let age = overdue_since(report, now)?;
    let days = counted(age / 86_400, "day", "days");
    let state = match report.checks.as_ref().and_then(|checks| checks.complete.as_ref()) {
        Some(_) => format!("the last complete check was {days} ago"),
        None => format!("no check is known in the {days} since the array was made"),
    };
    let meaning = "sectors that nobody reads may have become unreadable, which is found only when another member fails";
    let action = format!("`uraid scrub --now {}`; `uraid scrub --daemon` does it each month", shell_word(&report.name));
    Some(Finding::new(Kind::CheckOverdue, state, meaning, action))
}

/// What the last check found before this server was started: the server itself knows only its own.
fn found(report: &Report) -> Option<Finding> {
    let fact = report.checks.as_ref()?.complete.as_ref().filter(|fact| fact.has_findings())?;
    if report.last_check.is_some() || fact.result.kind == "repair" {
        return None;
    }
    let name = shell_word(&report.name);
    let sectors = counted(fact.result.mismatched, "sector disagrees", "sectors disagree");
    let lost = fact.result.lacking + fact.result.unreadable;
    let state = format!(
        "the last check, of {}, found that {sectors}, and {} could not be read",
        dates::stamp(fact.ended),
        counted(lost, "sector", "sectors")
    );
    let meaning = "at these places copies, or parity and data, differ: what is read may depend on the member, and a recovery \
                   may compute wrong data there";
    let action = format!("`uraid scrub --status {name}` lists the places; `uraid repair {name}` makes them agree");
    Some(Finding::new(Kind::Mismatches, state, meaning, action))
}

fn history_broken(report: &Report) -> Option<Finding> {
    let error = report.history_error.as_ref()?;
    let meaning = "the array goes on; what happens is not recorded until it can be written again";
    let action = "make room, or set URAID_STATE_DIR for the server";
    Some(Finding::new(Kind::HistoryBroken, format!("the history is not written: {error}"), meaning, action))
}

fn maintenance(report: &Report) -> Option<Finding> {
    let until = report.maintenance_until?;
    let action = format!("`uraid maintenance {} --end` ends it earlier", shell_word(&report.name));
    let state = format!("maintenance until {}", dates::stamp(until));
    Some(Finding::new(Kind::Maintenance, state, "no spare takes a slot that becomes empty meanwhile", action))
}

/// What is said of arrays that ran and do not run now. `is_known`: whether a UUID is that of an array that runs.
pub(super) fn not_running(is_known: impl Fn(&str) -> bool) -> Vec<Finding> {
    let uuids = history::arrays().unwrap_or_default();
    let stopped = uuids.into_iter().filter(|uuid| !is_known(uuid));
    stopped.filter_map(|uuid| left_over(&history::read(&uuid).ok()?)).collect()
}

/// An array that was started last, and not stopped.
fn left_over(entries: &[Entry]) -> Option<Finding> {
    let of = |entry: &&Entry| [Event::Started.name(), Event::Stopped.name()].contains(&entry.event.as_str());
    let last = entries.iter().rfind(of).filter(|entry| entry.event == Event::Started.name())?;
    let state = format!(
        "{} does not run; it was started at {} and was not stopped by a command",
        last.array,
        dates::stamp(last.time)
    );
    let meaning = "its server was killed, or the machine was; its clients are not served";
    let action = format!(
        "serve its members again: `uraid serve MEMBER...`; `uraid history {}` shows the last events",
        shell_word(&last.array)
    );
    Some(Finding::new(Kind::NotRunning, state, meaning, action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_control::history::Actor;

    #[test]
    fn only_an_array_that_was_not_stopped_is_missed() {
        let entry = |event| Entry::new("home", "u", event, Actor::Engine, "");
        let (started, failed, stopped) = (entry(Event::Started), entry(Event::MemberFailed), entry(Event::Stopped));
        let is_missed = |entries: &[Entry]| left_over(entries).is_some();
        assert!(is_missed(&[started.clone(), failed.clone()]));
        assert!(!is_missed(&[started.clone(), stopped.clone()]));
        assert!(is_missed(&[stopped, started, failed.clone()]));
        assert!(!is_missed(&[failed]), "nothing is known of a start");
    }
}
