//! `uraid assemble --foreground`: what a unit of systemd runs for one array.
//! Owns: waiting until the array's first member is there, becoming its server. Not here: which array (the parent), waiting for
//! the other members (`search`).
//! Invariant: the server is this process: whoever started it has its exit code, its signals and what it tells a service
//! manager.

use super::args::AssembleArgs;
use super::start::Start;
use super::{AssembleVerbError, one};
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use uraid_config::Config;

/// How often it looks for the first member.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Becomes the server of the array that the command line means.
pub(super) fn run(args: &AssembleArgs, config: &Config) -> Result<Infallible, AssembleVerbError> {
    let began = Instant::now();
    let wait = args.run_after.unwrap_or_default();
    let start = loop {
        match one(args, config) {
            Ok(start) => break start,
            Err(AssembleVerbError::None { .. }) if began.elapsed() < wait => std::thread::sleep(LOOK_EVERY),
            Err(error) => return Err(error),
        }
    };
    let left = args.run_after.map(|time| time.saturating_sub(began.elapsed()));
    become_server(&start, left.filter(|_| start.uuid.is_some()))
}

fn become_server(start: &Start, run_after: Option<Duration>) -> Result<Infallible, AssembleVerbError> {
    let failed = |source| AssembleVerbError::Become { source };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("serve").args(run_after.map(|time| format!("--run-after={}ms", time.as_millis())));
    Err(failed(command.args(start.with_folder()?.foreground_words()).exec()))
}
