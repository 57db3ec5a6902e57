//! `uraid status`: what state arrays are in, what that means for the data, what to type next.
//! Owns: its options and help texts, which arrays are looked at, the text and the JSON. Not here: the kinds and their
//! numbers (`kind`), which of them an array is (`findings`). Called by `history` and by all rooms above it.

mod findings;
mod kept;
mod kind;

pub use findings::Finding;
pub(crate) use kept::overdue_since;
pub use kind::{Kind, Severity};

use clap::Args;
use serde_json::{Value, json};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use uraid_control::client::{self, AllAsked, Unasked};
use uraid_control::log::print;
use uraid_control::report::Report;
use uraid_control::{dates, names};

/// Of `uraid status`.
pub const STATUS: &str = "\
Say in sentences what state arrays are in: what is wrong, what that means for the data, and what to type
next. Each kind of state has a number that stays the same, URAID-01 and so on; docs/operating/status.md
has a section for each.

The exit code is 0 if all is well, and 1 if something needs attention.";

/// Of `uraid status`.
pub const STATUS_AFTER: &str = "\
EXAMPLES
  uraid status                 all arrays that run
  uraid status home
  uraid status -x              only what needs attention
  uraid status --json";

/// How long servers are waited for. They answer at once, or after two seconds if members or threads are slow.
const TIME_MAX: Duration = Duration::from_secs(4);

/// What is said of a running array, the worst first, as far as its report tells.
pub(crate) fn findings_of(report: &Report) -> Vec<Finding> {
    findings::of_report(report, Vec::new())
}

/// Options of `uraid status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Only of these arrays: a name, a UUID, or a device; all that run, if none is given
    #[arg(value_name = "ARRAY")]
    pub arrays: Vec<String>,
    /// Only what needs attention
    #[arg(short = 'x', long)]
    pub unhealthy: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What is said of one array.
struct Section {
    report: Report,
    findings: Vec<Finding>,
}

/// Prints the state of the arrays.
pub fn run(args: &StatusArgs) -> Result<ExitCode, Box<dyn Error>> {
    let asked = reports(&args.arrays)?;
    let now = dates::now();
    let section =
        |report: Report| Section { findings: findings::of_report(&report, kept::of_report(&report, now)), report };
    let sections: Vec<Section> = asked.reports.into_iter().map(section).collect();
    let mut silent: Vec<Finding> = asked.silent.iter().map(Finding::of_silent).collect();
    if args.arrays.is_empty() && asked.silent.is_empty() {
        silent.extend(kept::not_running(|uuid| sections.iter().any(|section| section.report.uuid == uuid)));
    }
    let needs_attention =
        sections.iter().flat_map(|section| &section.findings).chain(&silent).any(Finding::needs_attention);
    if args.json {
        print(&format!("{}\n", as_json(&sections, &silent)));
    } else {
        print(&text(&sections, &silent, args.unhealthy));
    }
    Ok(if needs_attention { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The arrays that these words name, or all that run.
fn reports(arrays: &[String]) -> Result<AllAsked, Box<dyn Error>> {
    if arrays.is_empty() {
        return Ok(client::ask_all(TIME_MAX)?);
    }
    let mut asked = AllAsked::default();
    for array in arrays {
        match client::find(Some(array), None).and_then(|mut client| client.status()) {
            Ok(report) => asked.reports.push(report),
            Err(error) if error.is_no_answer() => asked.silent.push(Unasked { name: array.clone(), error }),
            Err(error) => return Err(Box::new(error)),
        }
    }
    Ok(asked)
}

fn text(sections: &[Section], silent: &[Finding], only_unhealthy: bool) -> String {
    let mut out = String::new();
    let is_shown = |finding: &&Finding| !only_unhealthy || finding.needs_attention();
    for Section { report, findings } in sections {
        let findings: Vec<&Finding> = findings.iter().filter(is_shown).collect();
        if findings.is_empty() {
            continue;
        }
        let device = report.device.as_ref().map_or(String::new(), |device| format!("/dev/{device}, "));
        let head =
            format!("array: {} ({device}{} {})\n", names::one_line(&report.name), report.level, report.picture());
        out.push_str(&head);
        findings.iter().for_each(|finding| out.push_str(&finding.text()));
        out.push('\n');
    }
    for finding in silent {
        out.push_str(&format!("{}\n", finding.text()));
    }
    if out.is_empty() {
        let none = if sections.is_empty() { "no array runs\n" } else { "all arrays are healthy\n" };
        return none.to_owned();
    }
    names::printable_lines(out.trim_end_matches('\n')) + "\n"
}

fn as_json(sections: &[Section], silent: &[Finding]) -> Value {
    let of_array = |Section { report, findings }: &Section| json!({ "name": report.name, "uuid": report.uuid, "device": report.device, "findings": findings });
    json!({
        "version": 1,
        "arrays": sections.iter().map(of_array).collect::<Vec<Value>>(),
        "others": silent,
    })
}
