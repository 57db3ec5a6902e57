//! `uraid wait`: returns when no pass runs over the arrays any more.
//! Owns: its options and help texts, which arrays are waited for, the line on a terminal, the exit code. Not here: passes (`engine`), the figures
//! (`pace`), how an array is asked (`client`).
//! Invariant: an array is asked again and again with a connection each, so those that wait take no place of the control
//! socket, however many they are.
//! Spec: docs/md/behaviour.md#mdadms-reports: mdadm --wait.

use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use uraid_control::client::{self, Client, ClientError};
use uraid_control::log::{complain, warn};
use uraid_control::report::Report;
use uraid_serve::progress::{self, Moving};

pub(crate) const WAIT: &str = "\
Wait until no resync, recovery, check or repair of these arrays runs. One that `uraid freeze` has paused
is waited for, too, until it continues and ends. On a terminal a line shows how far it is, how fast, and
how long it takes; elsewhere nothing is printed. Any number of commands may wait for one array. If an
array is stopped or takes no more writes meanwhile, the wait for it ends with an error.";

pub(crate) const WAIT_AFTER: &str = "\
EXAMPLES
  uraid wait home
  uraid wait home work; echo $?
  uraid wait home disk7 && echo both were waited for
  uraid wait --control /tmp/home.ctl

EXIT CODES
  Of several arrays the highest. 0 and 1 are those of `mdadm --wait`, 4 is uraid's own:
  0  every array had a resync, recovery, check or repair, which has ended
  1  an array had none: there was nothing to wait for, and the others were waited for
  4  an array could not be asked, was stopped, or takes no more writes";

/// Options of `uraid wait`.
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "arrays")]
    pub control: Option<PathBuf>,
    /// The name of each array, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub arrays: Vec<String>,
}

/// How often each array is asked.
const PERIOD: Duration = Duration::from_millis(250);
/// A server with many callers may drop one unanswered. If it drops this many in a row, the cause is another one.
const DROPPED_MAX: u32 = 20;

/// Not every array had a pass. mdadm's code, too.
const NOTHING: u8 = 1;
/// An array could not be asked, or its pass did not end. mdadm's code of `--detail --test`.
const FAILED: u8 = 4;

/// Why a pass was not waited for to its end.
#[derive(Debug, thiserror::Error)]
enum WaitError {
    /// The array could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It takes no more writes.
    #[error(
        "{array}: its {pass} waits at {percent}: the array is frozen ({reason}); `uraid detail {array}` shows its members"
    )]
    Frozen { array: String, pass: &'static str, percent: String, reason: String },
    /// This process was told to end. Only the waiting has ended.
    #[error("interrupted: the {pass} of {array} goes on, at {percent}; `uraid wait {array}` waits for its end")]
    Interrupted { array: String, pass: &'static str, percent: String },
    /// It was stopped, or its process ended.
    #[error("{}", stopped_text(array, pass, percent))]
    Stopped { array: String, pass: &'static str, percent: String },
}

/// What is said of an array that ends before its pass.
pub(crate) fn stopped_text(array: &str, pass: &str, percent: &str) -> String {
    let then = if matches!(pass, "check" | "repair") { "does not continue" } else { "continues" };
    format!("{array}: it was stopped, or its server has ended, at {percent} of its {pass}; the next start {then} it")
}

/// What is known of the pass that is waited for.
struct Waited {
    array: String,
    pid: Option<u32>,
    socket: PathBuf,
    pass: &'static str,
    percent: String,
}

/// Waits for all arrays that have a pass now.
pub(crate) fn run(args: &WaitArgs) -> ExitCode {
    let names: Vec<Option<&str>> = match &args.control {
        Some(_) => vec![None],
        None => args.arrays.iter().map(|name| Some(name.as_str())).collect(),
    };
    // Look at all before waiting for one: the pass of another may end meanwhile, and has been waited for.
    let find = |name| client::find(name, args.control.as_deref());
    let looked: Vec<Result<Option<Waited>, WaitError>> = names.into_iter().map(|name| look(find(name)?)).collect();
    uraid_host::note_interruptions();
    let mut code = 0;
    for waited in looked {
        let outcome = waited.and_then(|waited| waited.map(wait).transpose());
        if let Err(error @ WaitError::Interrupted { .. }) = &outcome {
            complain(error);
            return ExitCode::from(FAILED);
        }
        code = code.max(match outcome {
            Ok(Some(())) => 0,
            Ok(None) => NOTHING,
            Err(error) => {
                complain(&error);
                FAILED
            }
        });
    }
    ExitCode::from(code)
}

/// The array's pass, if it has one.
fn look(mut client: Client) -> Result<Option<Waited>, WaitError> {
    let report = client.status()?;
    let Some(pass) = report.pass() else {
        warn(&format!("{}: nothing to wait for: no resync, recovery, check or repair runs", report.name));
        return Ok(None);
    };
    let waited = Waited {
        array: report.name.clone(),
        pid: report.server.as_ref().map(|server| server.pid),
        socket: client.socket().to_owned(),
        pass: pass.word,
        percent: pass.progress.percent(),
    };
    Ok(Some(waited))
}

/// Returns when the pass has ended.
fn wait(mut waited: Waited) -> Result<(), WaitError> {
    let mut line = Moving::new(Duration::ZERO);
    let mut dropped = 0;
    let outcome = loop {
        match ask_again(&waited.socket, &mut dropped) {
            Ok(Answer::Report(report)) => match waited.meet(&report, &mut line) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            },
            Ok(Answer::Gone) => break Err(waited.stopped()),
            Ok(Answer::Dropped) => {}
            Err(error) => break Err(error.into()),
        }
        if uraid_host::interruption().is_some() {
            let Waited { array, pass, percent, .. } = waited;
            break Err(WaitError::Interrupted { array, pass, percent });
        }
        std::thread::sleep(PERIOD);
    };
    line.clear();
    outcome
}

/// What became of a question to a server that has answered before.
pub(crate) enum Answer {
    /// The state of its array.
    Report(Box<Report>),
    /// The server has closed the connection, as one with many callers may.
    Dropped,
    /// Nothing listens at the socket any more: the array was stopped, or its process has ended.
    Gone,
}

/// Asks with a connection of its own. `dropped` counts the questions in a row that were not answered.
pub(crate) fn ask_again(socket: &Path, dropped: &mut u32) -> Result<Answer, ClientError> {
    match Client::connect(socket).and_then(|mut client| client.status()) {
        Ok(report) => {
            *dropped = 0;
            Ok(Answer::Report(Box::new(report)))
        }
        Err(ClientError::Connect { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
        {
            Ok(Answer::Gone)
        }
        Err(ClientError::NoAnswer { source, .. }) if client::is_ended(source.kind()) && *dropped < DROPPED_MAX => {
            *dropped += 1;
            Ok(Answer::Dropped)
        }
        Err(error) => Err(error),
    }
}

impl Waited {
    /// Whether the pass goes on.
    fn meet(&mut self, report: &Report, line: &mut Moving) -> Result<bool, WaitError> {
        if report.server.as_ref().map(|server| server.pid) != self.pid || report.name != self.array {
            return Err(self.stopped());
        }
        let Some(pass) = report.pass() else { return Ok(false) };
        (self.pass, self.percent) = (pass.word, pass.progress.percent());
        match report.state.last().map(String::as_str) {
            Some("frozen") => {
                let (array, pass, percent) = (self.array.clone(), self.pass, self.percent.clone());
                let reason = report.frozen.clone().unwrap_or_else(|| "it takes no more writes".to_owned());
                return Err(WaitError::Frozen { array, pass, percent, reason });
            }
            Some("stopping" | "stopped") => return Err(self.stopped()),
            Some(_) | None => {}
        }
        if line.is_terminal() && line.due().is_some() {
            line.show(&progress::line(&format!("{}: {}", self.array, self.pass), pass.progress));
        }
        Ok(true)
    }

    fn stopped(&self) -> WaitError {
        WaitError::Stopped { array: self.array.clone(), pass: self.pass, percent: self.percent.clone() }
    }
}
