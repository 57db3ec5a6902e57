//! `uraid check` and `repair`, and the list of `detail --mismatches`.
//! Owns: their options and help texts, waiting for a check, its result as text, exit codes. Not here: comparing (`engine`), the form of the result
//! (`control::protocol`), pausing it (`passes`), how an array is asked (`client`).
//! Invariant: text and JSON say the same.

use crate::running::passes::name_in;
use crate::running::wait::{Answer, ask_again, stopped_text};
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use uraid_block::sizes::counted;
use uraid_control::client::{self, Client, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::{CheckResult, Method, Mismatch, not_compared};
use uraid_control::report::{Pass, Report};
use uraid_serve::progress::{self, Moving};

pub(crate) const CHECK: &str = "\
Compare all copies, or parity with data, while clients are served, and count what disagrees. A check
writes only sectors that a member cannot read: it writes them again from the other members, as md
does. `uraid detail --mismatches` lists what it has found, with addresses.

One check or repair runs at a time; a resync or recovery that becomes due ends it. A stop ends it,
too: the next start does not continue it.

On raid1 and raid10, copies may differ without harm where a sector was discarded, or was changed in
memory while the kernel's md wrote it. md counts these, too.";

pub(crate) const CHECK_AFTER: &str = "\
EXAMPLES
  uraid check home
  uraid check --wait home && echo all agrees
  uraid check --wait --json home
  uraid detail --mismatches home

EXIT CODES
  0  begun; with --wait: complete, and all agrees
  1  refused, or with --wait: it ended before it was complete
  2  the command line is wrong
  3  with --wait: complete, and sectors disagree that were not corrected, or could not be read or compared";

pub(crate) const REPAIR: &str = "\
Compare as `uraid check` does, and make what disagrees agree:

  mirrors of three or more  what most copies say counts, sector by sector; the others are named as wrong
  mirrors of two            it cannot be known which copy is wrong: that of the first member counts
  raid6                     P and Q find a single wrong member of a row: it is named and corrected
  raid4, raid5              it cannot be known what is wrong: parity is computed from the data

Where no majority and no single wrong member is found, uraid does what md does: the first copy counts,
or parity is computed from the data. A repair does not mark the array dirty: a crash leaves a sector as
it was, or right.";

pub(crate) const REPAIR_AFTER: &str = "\
EXAMPLES
  uraid repair home
  uraid repair --wait home
  uraid repair --wait --json home

EXIT CODES
  as those of `uraid check`; what was corrected counts as agreeing";

/// Options of `uraid check` and `uraid repair`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// Wait until it has ended, with its progress on a terminal, and print what it has found
    #[arg(short = 'W', long)]
    pub wait: bool,
    /// With --wait: print the result as JSON
    #[arg(long, requires = "wait")]
    pub json: bool,
    /// The array's name, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Option<String>,
}

/// How often the array is asked.
const PERIOD: Duration = Duration::from_millis(100);

/// Something disagrees and was not corrected, or could not be compared.
const DISAGREES: u8 = 3;

/// Begins a check or repair, and with `--wait` waits for its end.
pub(crate) fn run(args: &CheckArgs, word: &str, method: &Method) -> Result<ExitCode, ClientError> {
    let mut client = client::find(args.array.as_deref(), args.control.as_deref())?;
    let answer = client.call(method)?;
    let name = name_in(&answer);
    if !args.wait {
        print(&format!("{name}: {word} begun; `uraid wait {name}` waits for it\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let result = wait(&mut client)?;
    print(&if args.json { format!("{}\n", json!(result)) } else { text(&result) });
    Ok(code(&result))
}

/// Returns when the check or repair has a result. One that waits for a recovery, or ends for it, has none yet.
fn wait(client: &mut Client) -> Result<CheckResult, ClientError> {
    let socket = client.socket().to_owned();
    let mut line = Moving::new(Duration::ZERO);
    uraid_host::note_interruptions();
    let mut last = client.status()?;
    let mut dropped = 0;
    let outcome = loop {
        match ask_again(&socket, &mut dropped) {
            Ok(Answer::Report(report)) if report.last_check.is_some() => {
                break Client::connect(&socket).and_then(|mut client| client.mismatches());
            }
            Ok(Answer::Report(report)) => last = *report,
            Ok(Answer::Dropped) => {}
            Ok(Answer::Gone) => break Err(stopped(&last)),
            Err(error) => break Err(error),
        }
        match check_in(&last) {
            Some(pass) if line.is_terminal() && line.due().is_some() => {
                line.show(&progress::line(&format!("{}: {}", last.name, pass.word), pass.progress));
            }
            Some(_) | None => {}
        }
        if uraid_host::interruption().is_some() {
            break Err(interrupted(&last));
        }
        std::thread::sleep(PERIOD);
    };
    line.clear();
    outcome
}

/// The check or repair that runs.
fn check_in(report: &Report) -> Option<Pass<'_>> {
    report.pass().filter(|pass| matches!(pass.word, "check" | "repair"))
}

/// Only the waiting has ended.
fn interrupted(report: &Report) -> ClientError {
    let array = &report.name;
    let (word, place) = check_in(report)
        .map_or(("check", String::new()), |pass| (pass.word, format!(", at {}", pass.progress.percent())));
    let text = format!(
        "interrupted: the {word} of {array} goes on{place}; `uraid wait {array}` waits for its end, `uraid idle {array}` \
         ends it"
    );
    ClientError::Words { text }
}

/// The array has ended before its check.
fn stopped(report: &Report) -> ClientError {
    let array = &report.name;
    let text = match check_in(report) {
        Some(pass) => stopped_text(array, pass.word, &pass.progress.percent()),
        None => format!("{array}: it was stopped, or its server has ended"),
    };
    ClientError::Words { text }
}

/// The exit code of a check or repair that has ended.
fn code(result: &CheckResult) -> ExitCode {
    let left =
        result.mismatches.iter().any(|found| !found.corrected) || result.mismatched > 0 && result.kind == "check";
    match result.end.as_str() {
        "complete" if left || result.unreadable > 0 || result.lacking > 0 || result.skipped > 0 => {
            ExitCode::from(DISAGREES)
        }
        "complete" => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// What a check has found.
pub(crate) fn text(result: &CheckResult) -> String {
    let CheckResult { array, kind, mismatched, corrected, healed, lacking, skipped, unreadable, .. } = result;
    let end = match result.end.as_str() {
        "complete" => "complete".to_owned(),
        "superseded" => format!("ended at {} for a resync or recovery", percent(result)),
        word => format!("{word} at {}", percent(result)),
    };
    let mut out = format!("{array}: {kind} {end}: {}", counted(*mismatched, "sector disagrees", "sectors disagree"));
    let parts = [(*corrected, "of members corrected"), (*healed, "that could not be read written again")];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(out, ", {} {what}", counted(count, "sector", "sectors"));
    }
    out.push_str(&not_compared(*lacking, *skipped, *unreadable));
    out.push('\n');
    for found in &result.mismatches {
        let _ = writeln!(out, "  {}", line(found));
    }
    let listed: u64 = result.mismatches.iter().map(|found| found.member_sectors).sum();
    if listed < *mismatched {
        let _ = writeln!(out, "  and {} more", counted(mismatched - listed, "sector", "sectors"));
    }
    out
}

fn percent(result: &CheckResult) -> String {
    format!("{}%", result.done.saturating_mul(100).checked_div(result.total).unwrap_or(0))
}

/// `array sector 2048+1: /dev/sdb (slot 1) is wrong, at member sector 1024+1; corrected`
fn line(found: &Mismatch) -> String {
    let Mismatch { sector, sectors, member_sector, member_sectors, .. } = found;
    let members = found.members.join(" and ");
    let found_what = match (found.known, found.parity, found.members.len()) {
        (true, _, 1) => format!("{members} is wrong"),
        (true, _, _) => format!("{members} are wrong"),
        (false, true, _) => format!("parity on {members} does not fit the data, any member of the row may be wrong"),
        (false, false, 1) => format!("{members} differs from the first copy, either may be wrong"),
        (false, false, _) => format!("{members} differ from the first copy, any of them may be wrong"),
    };
    let corrected = match (found.corrected, found.known, found.parity) {
        (false, _, _) => "",
        (true, true, _) => "; corrected",
        (true, false, true) => "; parity was made to fit",
        (true, false, false) => "; made equal to the first copy",
    };
    format!(
        "array sector {sector}+{sectors}: {found_what}, at member sector {member_sector}+{member_sectors}{corrected}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> CheckResult {
        let found = Mismatch {
            sector: 2048,
            sectors: 1,
            member_sector: 1024,
            member_sectors: 1,
            slots: vec![1],
            members: vec!["/disks/b (slot 1)".to_owned()],
            parity: true,
            known: true,
            corrected: false,
        };
        CheckResult {
            array: "home".to_owned(),
            kind: "check".to_owned(),
            end: "complete".to_owned(),
            done: 100,
            total: 100,
            mismatched: 3,
            corrected: 0,
            healed: 1,
            lacking: 0,
            skipped: 0,
            unreadable: 0,
            mismatches: vec![found],
        }
    }

    #[test]
    fn the_result_says_what_where_and_how_sure() {
        let expected = "home: check complete: 3 sectors disagree, 1 sector that could not be read written again\n  array \
                        sector 2048+1: /disks/b (slot 1) is wrong, at member sector 1024+1\n  and 2 sectors more\n";
        assert_eq!(text(&result()), expected);
        let mut repair = CheckResult { kind: "repair".to_owned(), mismatched: 1, corrected: 1, healed: 0, ..result() };
        repair.mismatches[0].corrected = true;
        repair.mismatches[0].known = false;
        let shown = text(&repair);
        assert!(
            shown.starts_with("home: repair complete: 1 sector disagrees, 1 sector of members corrected\n"),
            "{shown}"
        );
        assert!(
            shown.ends_with(
                "parity on /disks/b (slot 1) does not fit the data, any member of the row may be wrong, at member sector \
                 1024+1; parity was made to fit\n"
            ),
            "{shown}"
        );
        repair.mismatches[0].parity = false;
        let shown = text(&repair);
        assert!(shown.contains("/disks/b (slot 1) differs from the first copy, either may be wrong, at "), "{shown}");
        assert!(shown.ends_with("; made equal to the first copy\n"), "{shown}");
    }

    #[test]
    fn only_a_complete_check_without_a_finding_is_a_success() {
        let of = |change: fn(&mut CheckResult)| {
            let mut result = result();
            change(&mut result);
            format!("{:?}", code(&result))
        };
        let is = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(of(|_| ()), is(3));
        assert_eq!(of(|result| (result.mismatched, result.mismatches) = (0, Vec::new())), is(0));
        assert_eq!(of(|result| (result.mismatched, result.mismatches, result.skipped) = (0, Vec::new(), 8)), is(3));
        assert_eq!(of(|result| (result.mismatched, result.mismatches, result.lacking) = (0, Vec::new(), 8)), is(3));
        assert_eq!(of(|result| result.end = "ended".to_owned()), is(1));
    }
}
