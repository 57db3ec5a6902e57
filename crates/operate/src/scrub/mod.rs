//! `uraid scrub`: checks each array once a month, at night.
//! Owns: its options and help texts, the daemon, what `--status` shows. Not here: the schedule (`schedule`), running checks
//! (`runner`), what is remembered (`kept`).
//! Invariant: at most one process runs checks by schedule.

mod kept;
mod runner;
mod schedule;

use crate::history::{NoArray, histories};
use clap::{ArgGroup, Args};
use runner::{Plan, ScrubError};
use schedule::{Window, Zone};
use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;
use uraid_block::sizes::parse_size;
use uraid_control::history;
use uraid_control::log::{print, warn, with_causes};
use uraid_control::protocol::{CheckRecord, Mismatch};
use uraid_control::{dates, names};

/// Of `uraid scrub`.
pub const SCRUB: &str = "\
Check arrays by schedule, as Debian does for md: from the first Sunday of each month on, at night, one
array after the other. A check that is not through when the window ends goes on in the next night where
it was, also after `uraid stop`, a reboot or a crash. Arrays that are degraded, busy, read-only or
frozen are skipped, with a line.

When the last check was, how long it took, what was found and where is kept in the state directory;
`--status`, `uraid detail` and `uraid status` show it.

The exit code is 0 if nothing was found, 3 if something disagrees or could not be read, and 1 if an
array could not be checked.";

/// Of `uraid scrub`.
pub const SCRUB_AFTER: &str = "\
EXAMPLES
  uraid scrub --now home                          at once, and wait for the end
  uraid scrub --now --max 50M                     all arrays, at most 50 MiB a second of each member
  uraid scrub --if-due                            from a timer, every hour: what is due, within 01:00-06:00
  uraid scrub --daemon --window 22:00-05:30       by itself
  uraid scrub --status

The window is in local time. If this command is killed, a check that it has begun goes on in the server
(`uraid idle ARRAY` ends it); its speed limit is taken back by the next `uraid scrub`.";

/// How often the daemon looks at the clock.
const DAEMON_PERIOD: Duration = Duration::from_secs(60);

/// Options of `uraid scrub`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("when").required(true).args(["now", "if_due", "status", "daemon"]))]
pub struct ScrubArgs {
    /// Only these arrays: a name, a UUID, or a device; all that run, if none is given
    #[arg(value_name = "ARRAY")]
    pub arrays: Vec<String>,
    /// Check at once, or go on with a check that was not through
    #[arg(long)]
    pub now: bool,
    /// Check what the schedule says is due, if it is night
    #[arg(long)]
    pub if_due: bool,
    /// Show when each array was checked last, what was found and where
    #[arg(long)]
    pub status: bool,
    /// Do not end: check what is due each night
    #[arg(long)]
    pub daemon: bool,
    /// When checks may run, in local time; by default 01:00-06:00, with --now always
    #[arg(long, value_name = "HH:MM-HH:MM", value_parser = schedule::parse_window, conflicts_with = "status")]
    pub window: Option<Window>,
    /// Never be faster: KiB a second of each member, or with K, M, G
    #[arg(long, value_name = "SPEED", value_parser = parse_speed, conflicts_with = "status")]
    pub max: Option<u64>,
    /// Say what would be checked, and check nothing
    #[arg(long, conflicts_with_all = ["status", "daemon"])]
    pub dry_run: bool,
    /// With --status: as JSON
    #[arg(long, requires = "status")]
    pub json: bool,
}

fn parse_speed(text: &str) -> Result<u64, String> {
    parse_size(text).map(|sectors| sectors.0.div_ceil(2)).map_err(|error| error.to_string())
}

/// Checks, or shows.
pub fn run(args: &ScrubArgs) -> Result<ExitCode, Box<dyn Error>> {
    if args.status {
        return show(args);
    }
    let window = args.window.or((!args.now).then_some(Window::NIGHT));
    let plan = Plan { arrays: args.arrays.clone(), if_due: !args.now, window, max: args.max, dry_run: args.dry_run };
    if args.daemon {
        return daemon(&plan);
    }
    let zone = zone();
    if let Some(window) = plan.window.filter(|window| !window.has(dates::now(), zone)) {
        print(&format!("nothing is checked now: it is outside of the window {window}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = runner::round(&plan, zone, |line| print(&format!("{line}\n")))?;
    Ok(match outcome {
        it if it.has_failed => ExitCode::FAILURE,
        it if it.has_findings => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    })
}

/// Checks what is due each night, until it is killed.
fn daemon(plan: &Plan) -> Result<ExitCode, Box<dyn Error>> {
    // Each line once a night.
    let mut said = BTreeSet::new();
    loop {
        let zone = zone();
        if plan.window.is_some_and(|window| window.has(dates::now(), zone)) {
            let round = runner::round(plan, zone, |line| {
                if said.insert(line.clone()) {
                    warn(&line);
                }
            });
            match round {
                Ok(_) => {}
                // A state directory that cannot be used does not become better by itself.
                Err(error @ ScrubError::Kept(_)) if said.is_empty() => return Err(Box::new(error)),
                Err(error) => {
                    let line = with_causes(&error);
                    if said.insert(line.clone()) {
                        warn(&line);
                    }
                }
            }
        } else {
            said.clear();
        }
        std::thread::sleep(DAEMON_PERIOD);
    }
}

/// The zone of local time, asked anew for each round: it changes twice a year. `date` knows it; without `date` it is UTC.
fn zone() -> Zone {
    let asked = Command::new("date").arg("+%z").output();
    asked.ok().and_then(|output| Zone::parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// Prints what is kept of checks, also of arrays that do not run.
fn show(args: &ScrubArgs) -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<Option<&str>> = match args.arrays.as_slice() {
        [] => vec![None],
        words => words.iter().map(|word| Some(word.as_str())).collect(),
    };
    let (mut out, mut all) = (String::new(), Vec::new());
    for word in words {
        let found = histories(word)?;
        if let (true, Some(array)) = (found.is_empty(), word) {
            return Err(Box::new(NoArray { array: array.to_owned() }));
        }
        for entries in found {
            let Some(last) = entries.last() else { continue };
            let record = history::read_checks(&last.uuid)?;
            out.push_str(&text(&last.array, &record));
            all.push(json!({ "array": last.array, "uuid": last.uuid, "checks": record }));
        }
    }
    if args.json {
        print(&format!("{}\n", json!({ "version": 1, "arrays": all })));
    } else if out.is_empty() {
        print("no array is known\n");
    } else {
        print(&names::printable_lines(&out));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(array: &str, record: &CheckRecord) -> String {
    let mut out = String::new();
    match &record.complete {
        Some(fact) => {
            out.push_str(&format!("{array}: {}, {}\n", dates::stamp(fact.ended), runner::fact_text(fact)));
            fact.result.mismatches.iter().for_each(|place| out.push_str(&place_text(place)));
        }
        None => out.push_str(&format!("{array}: no check is known\n")),
    }
    if let Some(fact) = &record.partial {
        let end = &fact.result.end;
        let (place, when) = (runner::percent(fact), dates::stamp(fact.ended));
        out.push_str(&format!("{array}: the next check is {end} at {place}, {when}\n"));
        fact.result.mismatches.iter().for_each(|place| out.push_str(&place_text(place)));
    }
    out
}

fn place_text(place: &Mismatch) -> String {
    let members = place.members.join(", ");
    let sure = if place.known { "wrong on" } else { "differs on" };
    let (sector, sectors) = (place.sector, place.sectors);
    let (at, count) = (place.member_sector, place.member_sectors);
    format!("  array sector {sector}+{sectors}: {sure} {members}, at member sector {at}+{count}\n")
}
