//! `uraid maintenance`: no spare starts for a while, because members go away on purpose.
//! Owns: its options and help texts, the call, its line. Not here: what the array does (`serve`), the mark of events
//! (`history`).

use crate::history::duration;
use clap::Args;
use serde_json::Value;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use uraid_control::log::print;
use uraid_control::protocol::Method;
use uraid_control::{client, dates, names};

/// Of `uraid maintenance`.
pub const MAINTENANCE: &str = "\
Announce that members of a running array go away for a while, for instance because a shelf is moved:
until it ends, no spare takes the slot of a member that fails or goes away, and events in `uraid history`
are marked. It ends by itself after the given time, at the latest after 7 days, and with a stop.

A recovery that runs already goes on. Members that come back are taken back with `uraid re-add`.";

/// Of `uraid maintenance`.
pub const MAINTENANCE_AFTER: &str = "\
EXAMPLES
  uraid maintenance home --for 1h
  uraid maintenance home --end           spares start again at once";

/// Options of `uraid maintenance`.
#[derive(Args, Debug)]
pub struct MaintenanceArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// The array's name, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Option<String>,
    /// For how long from now on: 90s, 30m, 1h, 2d
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, required_unless_present = "end")]
    pub time: Option<u64>,
    /// End it
    #[arg(long, conflicts_with = "time")]
    pub end: bool,
}

fn parse_time(text: &str) -> Result<u64, String> {
    duration(text)
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("{text:?} is no time, expected 90s, 30m, 1h or 2d"))
}

/// Begins or ends it.
pub fn run(args: &MaintenanceArgs) -> Result<ExitCode, Box<dyn Error>> {
    let method = Method::Maintenance { seconds: args.time.unwrap_or(0) };
    let answer = client::find(args.array.as_deref(), args.control.as_deref())?.call(&method)?;
    let name = names::printable(answer.get("array").and_then(Value::as_str).unwrap_or("?"));
    let text = match answer.get("until").and_then(Value::as_u64) {
        Some(until) => format!("no spare starts until {}", dates::stamp(until)),
        None if answer.get("changed").and_then(Value::as_bool) == Some(false) => {
            "no maintenance was announced".to_owned()
        }
        None => "maintenance has ended: spares start again".to_owned(),
    };
    print(&format!("{name}: {text}\n"));
    Ok(ExitCode::SUCCESS)
}
