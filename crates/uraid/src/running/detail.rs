//! `uraid detail`: asks a running array, or reads its members.
//! Owns: which process is asked, in which form the answer is shown. Not here: reading members (`members`), what is
//! drawn (`geometry`) and how (`drawing`), the report's words (`report`).
//! Invariant: nothing is changed on the members of an array that does not run.

pub(crate) mod args;
mod drawing;
mod geometry;
mod members;
mod query;

use crate::running::check;
use crate::shared::probe::ProbeError;
use args::DetailArgs;
use drawing::Drawing;
pub(crate) use geometry::layout_of;
use members::Told;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use uraid_control::asking;
use uraid_control::client::{self, ClientError, Running};
use uraid_control::log::{complain, print};
use uraid_control::member_name;
use uraid_control::report::{Report, Verdict};
use uraid_control::runtime;
use uraid_layout::LayoutError;
use uraid_serve::opening::ServeError;

/// Why there is nothing to show, or no array.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DetailError {
    /// No server knows the array, and no members were given.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// None of the members has a superblock.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The members make up no array.
    #[error("the array does not run and could not be started: {reason}")]
    Assemble {
        /// With the members' names.
        reason: String,
    },
    /// The arrays of `--array` could not be read or assembled.
    #[error(transparent)]
    Arrays(#[from] ServeError),
    /// `--test` of an array that does not run.
    #[error("{array} does not run: --test tells the state of running arrays; `uraid serve` starts it")]
    NotRunning { array: String },
    /// `--scan` met arrays that it may not ask, or that have not answered; each was named on stderr.
    #[error("not all running arrays are shown")]
    Incomplete,
    /// There is no geometry to draw.
    #[error(
        "{array}: its layout is not known: {level} is laid out by the sizes of its members, and not all of them are known"
    )]
    NoGeometry { array: String, level: String },
    /// The members are of several arrays, and the command is about one.
    #[error("the members are of {count} arrays: give those of one")]
    Several { count: usize },
    /// The geometry is impossible.
    #[error("there is no such array to draw")]
    Layout(#[from] LayoutError),
}

/// Prints the state of an array, or its first stripes. With `--test`, the exit code says how the array is.
pub(crate) fn run(args: &DetailArgs) -> Result<ExitCode, DetailError> {
    if let Some(level) = args.geometry.level {
        show(args, &[geometry::of_options(level, &args.geometry, args.stripes)?], Drawing::text, Drawing::json);
        return Ok(ExitCode::SUCCESS);
    }
    if args.query {
        return Ok(query::run(&args.named, args.member_timeout.limit()));
    }
    if args.mismatches {
        let time_max = args.member_timeout.limit();
        let first = args.named.first().map(String::as_str);
        let result = client::find_within(first, args.control.as_deref(), time_max)?.mismatches()?;
        print(&if args.json { format!("{}\n", json!(result)) } else { check::text(&result) });
        return Ok(ExitCode::SUCCESS);
    }
    let found = if args.scan { find_all() } else { find_reports(args) };
    if args.test {
        return Ok(ExitCode::from(test(args, found) as u8));
    }
    let Told { reports, outcome } = found?;
    show_reports(args, &reports)?;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Shows the arrays, and tells the state of the worst.
fn test(args: &DetailArgs, found: Result<Told, DetailError>) -> Verdict {
    let all = || -> Result<Verdict, DetailError> {
        let Told { reports, outcome } = found?;
        show_reports(args, &reports)?;
        outcome?;
        if let Some(report) = reports.iter().find(|report| report.server.is_none()) {
            return Err(DetailError::NotRunning { array: report.name.clone() });
        }
        Ok(reports.iter().map(Report::verdict).max().unwrap_or(Verdict::Normal))
    };
    all().unwrap_or_else(|error| {
        complain(&error);
        Verdict::Unknown
    })
}

fn show_reports(args: &DetailArgs, reports: &[Report]) -> Result<(), DetailError> {
    if let Some(of) = args.mkfs_args {
        print(&reports.iter().map(|report| format!("{}\n", report.mkfs_args(of.into()))).collect::<String>());
    } else if args.draw {
        let drawings: Result<Vec<Drawing>, DetailError> =
            reports.iter().map(|report| geometry::of_report(report, args.stripes)).collect();
        show(args, &drawings?, Drawing::text, Drawing::json);
    } else if args.export {
        let lines = |report: &Report| match args.no_devices {
            true => report.without_members().export(),
            false => report.export(),
        };
        print(&reports.iter().map(lines).collect::<Vec<String>>().join("\n"));
    } else if args.brief || args.scan {
        print(&reports.iter().map(|report| report.brief(args.verbose)).collect::<String>());
    } else {
        let text = if args.verbose { Report::verbose_text } else { Report::text };
        show(args, reports, text, Report::json);
    }
    Ok(())
}

/// One object for one array, an array of objects for several.
fn show<T>(args: &DetailArgs, arrays: &[T], text: fn(&T) -> String, json: fn(&T) -> Value) {
    print(&match arrays {
        [array] if args.json => format!("{}\n", json(array)),
        _ if args.json => format!("{}\n", Value::Array(arrays.iter().map(json).collect())),
        _ => arrays.iter().map(text).collect::<Vec<String>>().join("\n"),
    });
}

/// Every array that runs now.
fn find_all() -> Result<Told, DetailError> {
    let Running { reports, is_incomplete } = client::running()?;
    runtime::say_not_shown(&reports);
    Ok(Told { reports, outcome: if is_incomplete { Err(DetailError::Incomplete) } else { Ok(()) } })
}

fn find_reports(args: &DetailArgs) -> Result<Told, DetailError> {
    let time_max = args.member_timeout.limit();
    if !args.arrays.0.is_empty() {
        return members::tell_stacked(&args.arrays.0, time_max);
    }
    let first = args.named.first().map(String::as_str);
    let are_several = args.named.len() > 1;
    // Access the path last: a member of a running array may hang.
    let exists = |name: &str| {
        let own = name.to_owned();
        asking::ask(name, time_max, move || member_name::exists(&own))
    };
    match client::find_within(first, args.control.as_deref(), time_max) {
        Ok(mut client) => Ok(with_others(vec![client.status()?], &args.named, time_max)),
        Err(error) if are_several && (error.leaves_members() || matches!(error, ClientError::Silent(_))) => {
            tell_members(args, &error)
        }
        Err(error) if error.leaves_members() => match first.map(exists).transpose() {
            Ok(Some(true)) => tell_members(args, &error),
            Ok(Some(false) | None) => Err(error.into()),
            Err(silent) => Err(ClientError::from(silent).into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Whether these words are files or devices.
pub(crate) fn are_members(words: &[String]) -> bool {
    let exists = |name: &String| {
        let own = name.clone();
        asking::ask(name, Some(asking::TIME_MAX), move || member_name::exists(&own)).unwrap_or(false)
    };
    words.iter().any(exists)
}

/// The report of the one array that these members make up.
pub(crate) fn report_of_members(members: &[String]) -> Result<Report, DetailError> {
    let Told { mut reports, outcome } = members::tell(members, Some(asking::TIME_MAX))?;
    outcome?;
    match reports.len() {
        1 => Ok(reports.remove(0)),
        count => Err(DetailError::Several { count }),
    }
}

/// Adds the running arrays that the other words name, each once.
fn with_others(mut reports: Vec<Report>, words: &[String], time_max: Option<Duration>) -> Told {
    let mut outcome = Ok(());
    for word in words.iter().skip(1) {
        if reports.iter().any(|report| report.is_named_by(word)) {
            continue;
        }
        let found = client::find_within(Some(word), None, time_max).and_then(|mut client| client.status());
        match found {
            Ok(report) if reports.iter().all(|known| known.uuid != report.uuid) => reports.push(report),
            Ok(_) => {}
            Err(error) => outcome = Err(error.into()),
        }
    }
    Told { reports, outcome }
}

/// The members' superblocks. `error`: why no running array was found.
fn tell_members(args: &DetailArgs, error: &ClientError) -> Result<Told, DetailError> {
    if !matches!(error, ClientError::NotRunning { .. } | ClientError::Silent(_)) {
        complain(error);
    }
    members::tell(&args.named, args.member_timeout.limit())
}
