//! `uraid watch`: a live screen of the running arrays.
//! Owns: its options and help texts, whether there is a screen or plain text. Not here: the screen (`screen`), the text
//! (`lines`).
//! Invariant: without a terminal it prints lines that a program can read, and no code of a terminal.

mod collect;
mod draw;
mod keys;
mod lines;
mod mode;
mod model;
mod screen;

use clap::Args;
use model::View;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use uraid_control::client::ClientError;
use uraid_control::log::{print, print_failed};

pub(crate) const WATCH: &str = "\
Show the running arrays on a live screen: state, redundancy, passes with the time that is left, members
with their speed, slowest request and errors, rows by kind, and what happened last. Keys fail a member,
add a device, begin or end a check, pause passes; each asks before it does anything.

Without a terminal, or with --plain, it prints tables instead: once, or at each --interval.";

pub(crate) const WATCH_AFTER: &str = "\
EXAMPLES
  uraid watch
  uraid watch --interval 0.5
  uraid watch --plain
  uraid watch --interval 10 | tee -a arrays.log

KEYS
  q, Esc       end
  Up, Down     choose an array (or k, j)
  Tab          choose a member
  f            fail the chosen member
  a            add a device: type its path
  c            check the array; while a check runs: end it
  p            pause resync, recovery, check and repair; while they are paused: continue them
A command is asked about in the last line: y does it, n or Esc does not.

COLUMNS
  SPARE        how many more members may fail, whichever they are
  SLOWEST      the slowest request to the member since the start
  WAITS        how long its oldest request is unanswered, from 2 s on
  ERR          its requests that failed
READ/s and WRITE/s of an array are those of NBD clients of its process. Nothing is faster than
--interval: a second between two looks.";

/// Options of `uraid watch`.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Look every so many seconds [default: 2]
    #[arg(long, short = 'n', value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Tables, also on a terminal
    #[arg(long)]
    plain: bool,
}

const INTERVAL: Duration = Duration::from_secs(2);

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, from 0.1 to 86400".to_owned())
}

/// Why there is nothing to watch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The arrays cannot be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The terminal fails.
    #[error("cannot use the terminal: use --plain")]
    Terminal {
        /// Why.
        source: io::Error,
    },
}

/// Shows the screen, or prints.
pub(crate) fn run(args: &WatchArgs) -> Result<ExitCode, WatchError> {
    if !args.plain && io::stdout().is_terminal() {
        let ended_by_key =
            screen::run(args.interval.unwrap_or(INTERVAL)).map_err(|source| WatchError::Terminal { source })?;
        return Ok(if ended_by_key { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (begun, mut view) = (Instant::now(), View::default());
    loop {
        view.update(collect::sample(begun)?);
        print(&lines::plain(&view));
        match args.interval {
            Some(interval) if !print_failed() => thread::sleep(interval),
            Some(_) | None => return Ok(ExitCode::SUCCESS),
        }
        print("\n");
    }
}
