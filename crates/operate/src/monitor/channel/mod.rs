//! The ways in which events are told: a mail, a program, the system's log, a web server, a folder of reactions, stdout.
//! Owns: [`Channel`], what each gets of an event, running a program within a time limit. Not here: what is due (`outbox`),
//! which events arise (`changes`).
//! Invariant: no name reaches a shell: programs are run directly, and get names as arguments and in their environment. A
//! program that does not end is killed, and delays only its own channel.

mod log;
mod mail;
mod print;
mod program;
mod reactions;
mod webhook;

pub(crate) use log::SystemLog;
pub(crate) use mail::{Mail, sendmail_of};
pub(crate) use print::Print;
pub(crate) use program::Program;
pub(crate) use reactions::Reactions;
pub use webhook::Webhook;

use super::event::Event;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a program is looked at whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// One event on its way through one channel.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The event.
    pub event: Event,
    /// It was begun before and its end is not known, as after a crash: it may have arrived already.
    pub is_again: bool,
    /// The arrays as /proc/mdstat would show them.
    pub mdstat: String,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Told {
    /// It has arrived.
    Done,
    /// It has arrived, or never will, and this is to be said.
    DoneSaying(String),
}

/// It has not arrived, and is tried again.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct NotTold {
    /// Why.
    pub text: String,
    /// Whether that is not quite sure.
    pub may_have_arrived: bool,
}

impl NotTold {
    fn new(text: impl Into<String>) -> NotTold {
        NotTold { text: text.into(), may_have_arrived: false }
    }

    fn perhaps(text: impl Into<String>) -> NotTold {
        NotTold { may_have_arrived: true, ..NotTold::new(text) }
    }
}

/// Which events a channel is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    /// All.
    All,
    /// Those that are mailed.
    Mailed,
    /// Those with a file in this folder.
    Folder(PathBuf),
}

impl Filter {
    /// Whether it is told this event.
    pub(crate) fn admits(&self, event: &Event) -> bool {
        match self {
            Filter::All => true,
            Filter::Mailed => event.kind.is_mailed(),
            Filter::Folder(folder) => folder.join(event.kind.file()).symlink_metadata().is_ok(),
        }
    }
}

/// A way in which events are told.
pub(crate) trait Channel: Send {
    /// Its name in the state file: `mail`.
    fn name(&self) -> &'static str;

    /// Which events it is told.
    fn filter(&self) -> Filter {
        Filter::All
    }

    /// Tells one.
    fn tell(&mut self, job: &Job) -> Result<Told, NotTold>;
}

/// The event as the environment of a program: mdadm's arguments by name, and what mdadm has no place for.
fn environment(job: &Job) -> Vec<(&'static str, String)> {
    let Job { event, is_again, .. } = job;
    let places = |place: &super::event::Place| format!("{}+{}", place.sector, place.sectors);
    let word = |is_so: bool| if is_so { "1".to_owned() } else { "0".to_owned() };
    vec![
        ("URAID_EVENT", event.kind.name()),
        ("URAID_EVENT_ID", event.id.clone()),
        ("URAID_SEVERITY", event.kind.severity().word().to_owned()),
        ("URAID_DEVICE", event.device.clone()),
        ("URAID_ARRAY", event.array.clone()),
        ("URAID_UUID", event.uuid.clone()),
        ("URAID_COMPONENT", event.component.clone().unwrap_or_default()),
        ("URAID_DESCRIPTION", event.description.clone().unwrap_or_default()),
        ("URAID_PLACES", event.places.iter().map(places).collect::<Vec<String>>().join(" ")),
        ("URAID_TIME", event.time.to_string()),
        ("URAID_MESSAGE", event.to_string()),
        ("URAID_REPEAT", word(event.is_repeat)),
        ("URAID_AGAIN", word(*is_again)),
        ("URAID_MAINTENANCE", word(event.is_in_maintenance)),
    ]
}

/// Why a program has not done its work.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("cannot be run: {}", uraid_host::io_text(.0))]
    Start(#[source] std::io::Error),
    #[error("did not end within {} s, and was killed", .0.as_secs())]
    Hangs(Duration),
    #[error("cannot be waited for: {}", uraid_host::io_text(.0))]
    Wait(#[source] std::io::Error),
}

/// Runs a program with this text as its input, for at most `time_max`; then it and its children are killed.
fn run(mut command: Command, input: Option<&str>, time_max: Duration) -> Result<ExitStatus, RunError> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    // A group of its own, which can be killed as a whole. What it prints is nobody's: the monitor's stdout has events.
    command.stdin(stdin).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(RunError::Start)?;
    let feeder = input.zip(child.stdin.take()).map(|(text, mut pipe)| {
        let text = text.to_owned();
        // Who does not read all of it says by the exit code whether that matters.
        thread::spawn(move || drop(pipe.write_all(text.as_bytes())))
    });
    let outcome = wait_within(&mut child, time_max);
    if let Some(feeder) = feeder.filter(|_| outcome.is_ok()) {
        // A child that goes on may still hold the pipe: the thread ends with it.
        let _ = feeder.is_finished().then(|| feeder.join());
    }
    outcome
}

fn wait_within(child: &mut Child, time_max: Duration) -> Result<ExitStatus, RunError> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(RunError::Wait)? {
            return Ok(status);
        }
        if began.elapsed() >= time_max {
            let group = rustix::process::Pid::from_child(child);
            // It may have ended just now.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            return Err(RunError::Hangs(time_max));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// `ended with exit code 3`, `was ended by signal 9`.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests;
