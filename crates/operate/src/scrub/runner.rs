//! Runs the checks that are due, one array after the other.
//! Owns: which arrays cannot be checked now, the speed limit of a check and taking it back, waiting, the end of the window.
//! Not here: when a check is due (`schedule`), the check itself and its place (`serve`).
//! Invariant: a check that is ended at the end of the window keeps its place. What this process has set is taken back by it
//! or by the next one.

use super::kept::{Kept, KeptError, KeptLimit};
use super::schedule::{self, Due, Window, Zone};
use std::thread;
use std::time::Duration;
use uraid_control::client::{self, AllAsked, Client, ClientError};
use uraid_control::dates;
use uraid_control::log::{print, warn, with_causes};
use uraid_control::names::printable;
use uraid_control::protocol::{CheckFact, Method};
use uraid_control::report::{Report, duration};

/// How long servers are waited for.
const TIME_MAX: Duration = Duration::from_secs(4);
/// How often a check is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// What is to be done.
pub(super) struct Plan {
    /// Only these arrays; all, if it is empty.
    pub(super) arrays: Vec<String>,
    /// Whether the schedule counts.
    pub(super) if_due: bool,
    /// When checks may run; `None`: always.
    pub(super) window: Option<Window>,
    /// In KiB a second of each member.
    pub(super) max: Option<u64>,
    /// Only say what would be done.
    pub(super) dry_run: bool,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Outcome {
    /// A check could not begin, or its end is not known.
    pub(super) has_failed: bool,
    /// Something was found.
    pub(super) has_findings: bool,
}

/// Why a check did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrubError {
    /// An array could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nothing can be remembered.
    #[error(transparent)]
    Kept(#[from] KeptError),
}

/// Why an array is not checked now; `None`: it can be.
pub(super) fn skipped(report: &Report) -> Option<String> {
    let is = |word: &str| report.state.iter().any(|found| found == word);
    match () {
        () if !report.is_redundant() => Some(format!("a {} has nothing to compare", report.level)),
        () if is("starting") || is("stopping") || is("stopped") => Some("it is being started or stopped".to_owned()),
        () if is("frozen") => Some("it is frozen and takes no writes".to_owned()),
        () if is("read-only") => Some("it is read-only".to_owned()),
        () if report.pass().is_some() => report.pass().map(|pass| format!("busy: a {} runs or is due", pass.word)),
        () if report.slots().contains('_') => Some(format!("degraded {}", report.picture())),
        () if report.passes_frozen => Some("passes are paused by `uraid freeze`".to_owned()),
        () if report.maintenance_until.is_some() => Some("maintenance was announced".to_owned()),
        () => None,
    }
}

/// Goes once over the arrays. `say` gets a line for each array that is skipped.
pub(super) fn round(plan: &Plan, zone: Zone, mut say: impl FnMut(String)) -> Result<Outcome, ScrubError> {
    let mut kept = Kept::take()?;
    let AllAsked { reports, silent } = client::ask_all(TIME_MAX)?;
    let mut outcome = Outcome { has_failed: !silent.is_empty(), has_findings: false };
    for unasked in silent {
        say(format!("{}: not checked: {}", unasked.name, with_causes(&unasked.error)));
    }
    if !plan.dry_run {
        reports.iter().for_each(|report| take_back(&mut kept, report));
    }
    for word in &plan.arrays {
        if !reports.iter().any(|report| report.is_named_by(word)) {
            return Err(ClientError::NotRunning { array: word.clone() }.into());
        }
    }
    let is_meant = |report: &Report| plan.arrays.is_empty() || plan.arrays.iter().any(|word| report.is_named_by(word));
    for report in reports.iter().filter(|report| is_meant(report)) {
        let now = dates::now();
        if !may_run(plan, zone, now) {
            break;
        }
        // The round may have taken hours.
        let report = client::find(Some(&report.uuid), None).and_then(|mut client| client.status());
        let done = match report {
            Ok(report) => one(plan, zone, &mut kept, &report, &mut say),
            Err(error) => Err(error.into()),
        };
        match done {
            Ok(of_one) => {
                outcome.has_findings |= of_one.has_findings;
                outcome.has_failed |= of_one.has_failed;
            }
            Err(error) => {
                warn(&with_causes(&error));
                outcome.has_failed = true;
            }
        }
    }
    Ok(outcome)
}

fn may_run(plan: &Plan, zone: Zone, now: u64) -> bool {
    plan.window.is_none_or(|window| window.has(now, zone))
}

/// Checks an array, if that is due and can be done.
fn one(
    plan: &Plan,
    zone: Zone,
    kept: &mut Kept,
    report: &Report,
    say: &mut impl FnMut(String),
) -> Result<Outcome, ScrubError> {
    let (name, now) = (printable(&report.name), dates::now());
    let slot = schedule::last_slot(now, zone, plan.window.unwrap_or(Window::NIGHT));
    let taken = kept.arrays.get(&report.uuid).and_then(|array| array.slot);
    let record = report.checks.clone().unwrap_or_default();
    if plan.if_due {
        if taken.is_some_and(|taken| taken > now) && !plan.dry_run {
            // The clock was ahead. This slot counts as taken, so that the next one begins a check again.
            kept.change(&report.uuid, |array| array.slot = Some(slot))?;
        }
        if schedule::due(&record, report.created, taken, slot, now) == Due::No {
            return Ok(Outcome::default());
        }
    }
    if let Some(reason) = skipped(report) {
        say(format!("{name}: not checked: {reason}"));
        return Ok(Outcome::default());
    }
    let place = record.partial.as_ref().map(percent);
    let from = place.map_or(String::new(), |place| format!(", from {place} on"));
    if plan.dry_run {
        print(&format!("{name}: would be checked{from}\n"));
        return Ok(Outcome::default());
    }
    kept.change(&report.uuid, |array| array.slot = Some(array.slot.unwrap_or(0).max(slot)))?;
    set_limit(plan, kept, report)?;
    let mut client = client::find(Some(&report.uuid), None)?;
    let begun = client.call(&Method::Check { resume: true });
    if let Err(error) = begun {
        take_back(kept, report);
        return Err(error.into());
    }
    print(&format!("{name}: check begun{from}\n"));
    let ended = wait(plan, zone, report);
    let last = client::find(Some(&report.uuid), None).and_then(|mut client| client.status());
    if let Ok(last) = &last {
        take_back(kept, last);
    }
    let last = last.and_then(|last| ended.map(|()| last))?;
    Ok(tell(&name, &last))
}

/// `42.0%`
pub(super) fn percent(fact: &CheckFact) -> String {
    let permille = u128::from(fact.result.done) * 1000 / u128::from(fact.result.total.max(1));
    format!("{}.{}%", permille / 10, permille % 10)
}

/// Waits until the check has ended, and ends it with the window.
fn wait(plan: &Plan, zone: Zone, report: &Report) -> Result<(), ClientError> {
    let mut is_ended = false;
    loop {
        let mut client: Client = client::find(Some(&report.uuid), None)?;
        let now = client.status()?;
        if now.check.is_none() {
            return Ok(());
        }
        if !is_ended && !may_run(plan, zone, dates::now()) {
            client::find(Some(&report.uuid), None)?.call(&Method::Idle {})?;
            is_ended = true;
            continue;
        }
        thread::sleep(PERIOD);
    }
}

/// Says how a check has ended.
fn tell(name: &str, report: &Report) -> Outcome {
    let Some(last) = &report.last_check else {
        print(&format!("{name}: the check has ended; nothing is known of its end\n"));
        return Outcome { has_failed: true, has_findings: false };
    };
    let record = report.checks.clone().unwrap_or_default();
    let fact = if last.end == "complete" { record.complete } else { record.partial };
    let Some(fact) = fact else {
        print(&format!("{name}: check {} before it had begun\n", last.end));
        return Outcome::default();
    };
    print(&format!("{name}: {}\n", fact_text(&fact)));
    Outcome { has_failed: false, has_findings: fact.has_findings() }
}

/// `check complete, took 3h04min: 0 sectors disagree`
pub(super) fn fact_text(fact: &CheckFact) -> String {
    let result = &fact.result;
    let how_far = if result.end == "complete" { String::new() } else { format!(" at {}", percent(fact)) };
    let lost = result.lacking + result.unreadable;
    let lost = if lost == 0 { String::new() } else { format!(", {lost} could not be read") };
    format!(
        "{} {}{how_far}, took {}: {} sectors disagree{lost}",
        result.kind,
        result.end,
        duration(fact.seconds),
        result.mismatched
    )
}

fn set_limit(plan: &Plan, kept: &mut Kept, report: &Report) -> Result<(), ScrubError> {
    let Some(max) = plan.max else { return Ok(()) };
    let before = report.pass_limits.and_then(|limits| limits.max_kib);
    let pid = report.server.as_ref().map_or(0, |server| server.pid);
    kept.change(&report.uuid, |array| array.limit = Some(KeptLimit { pid, max, before }))?;
    client::find(Some(&report.uuid), None)?.call(&Method::Speed { min: None, max: Some(max), share: None })?;
    Ok(())
}

/// Takes back the limit that this or an earlier process has set, if the same server still has it.
fn take_back(kept: &mut Kept, report: &Report) {
    let Some(limit) = kept.arrays.get(&report.uuid).and_then(|array| array.limit.clone()) else { return };
    let is_same = report.server.as_ref().is_some_and(|server| server.pid == limit.pid);
    let has_it = report.pass_limits.and_then(|limits| limits.max_kib) == Some(limit.max);
    let restored = if is_same && has_it {
        let method = Method::Speed { min: None, max: Some(limit.before.unwrap_or(0)), share: None };
        client::find(Some(&report.uuid), None).and_then(|mut client| client.call(&method)).map(drop)
    } else {
        Ok(())
    };
    match restored {
        Ok(()) => {
            if let Err(error) = kept.change(&report.uuid, |array| array.limit = None) {
                warn(&with_causes(&error));
            }
        }
        Err(error) => warn(&format!("{}: its speed limit stays: {}", printable(&report.name), with_causes(&error))),
    }
}
