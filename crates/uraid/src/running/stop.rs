//! `uraid stop`: ends a running array, or all of them.
//! Owns: its options and help texts, the call, the lines about it, which arrays `--scan` means. Not here: what the server does (`session::stopping`).

use clap::Args;
use std::path::PathBuf;
use uraid_control::client::{self, ClientError, Running};
use uraid_control::log::{print, warn, with_causes};

pub(crate) const STOP: &str = "Stop a running array: answer what is in flight, flush, mark it clean.";

pub(crate) const STOP_AFTER: &str = "\
EXAMPLES
  uraid stop home
  uraid stop --control /tmp/home.ctl
  uraid stop --all home         # and the other arrays of its process
  uraid stop --scan

Refused while clients with write access are connected: one of them may have a file system of the
array mounted. Disconnect them first (umount, nbd-client -d), or use --force. SIGTERM, as from
systemd, stops the server in any case; so do SIGINT and SIGHUP.

Returns when the array is stopped and its members can be used by others. If a member does not
answer, the process may remain, but the array is stopped, and its name, sockets and other members
are free. Arrays of one `uraid serve` end together, and are stopped only with --all. An array whose
members are arrays is stopped together with them.";

/// Options of `uraid stop`.
#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// Stop the other arrays of the same process, too
    #[arg(long)]
    pub all: bool,
    /// Stop all arrays that run
    #[arg(short, long, conflicts_with_all = ["array", "control", "all"])]
    pub scan: bool,
    /// Stop even if clients with write access are connected: a file system that is mounted from the array loses its
    /// disk
    #[arg(long)]
    pub force: bool,
    /// The array's name, or its members: one is enough
    #[arg(required_unless_present_any = ["control", "scan"], value_name = "ARRAY")]
    pub array: Vec<String>,
}

/// Stops a running array, or all of them.
pub(crate) fn run(args: &StopArgs) -> Result<(), ClientError> {
    if !args.scan {
        return stop_one(args);
    }
    let Running { reports, is_incomplete } = client::running()?;
    if reports.is_empty() && !is_incomplete {
        warn("no array runs, so none is stopped");
    }
    let not_all = || Err(ClientError::Words { text: "not all arrays are stopped, see above".to_owned() });
    let mut outcome = if is_incomplete { not_all() } else { Ok(()) };
    for report in reports {
        let name = &report.name;
        // The others of its process are to be stopped, too.
        let of_one = StopArgs { array: vec![report.own_word()], scan: false, control: None, all: true, ..*args };
        match stop_one(&of_one) {
            Ok(()) => {}
            // It ran a moment ago: arrays of one process stop together, and those in an array with it.
            Err(ClientError::NotRunning { .. }) => print(&format!("{name}: stopped\n")),
            Err(error) => {
                warn(&format!("{name}: is not stopped: {}", with_causes(&error)));
                outcome = not_all();
            }
        }
    }
    outcome
}

fn stop_one(args: &StopArgs) -> Result<(), ClientError> {
    let mut client = client::find(args.array.first().map(String::as_str), args.control.as_deref())?;
    let report = client.status()?;
    client::check_words(&report, &args.array)?;
    client.stop(args.all, args.force)?;
    print(&format!("{}: stopped\n", report.name));
    let deleted =
        report.members.iter().filter(|member| member.is_deleted()).filter_map(|member| member.path.as_deref());
    let deleted: Vec<&str> = deleted.collect();
    if !deleted.is_empty() {
        warn(&format!("{}: was clean on files that vanished with it: {}", report.name, deleted.join(", ")));
    }
    Ok(())
}
