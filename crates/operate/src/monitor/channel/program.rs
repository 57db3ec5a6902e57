//! The program of `--program`, as mdadm runs it.
//! Owns: its arguments, what its exit code means. Not here: a folder of programs (`reactions`).

use super::{Channel, Job, NotTold, RunError, Told, ended, environment, run};
use crate::monitor::trusted::{self, Kind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long it may take.
pub(super) const TIME_MAX: Duration = Duration::from_secs(300);

/// EX_TEMPFAIL of sysexits.h: it wants to be told again later.
pub(super) const LATER: i32 = 75;

/// A program that gets every event.
pub(crate) struct Program {
    /// Its path.
    pub path: PathBuf,
}

impl Channel for Program {
    fn name(&self) -> &'static str {
        "program"
    }

    fn tell(&mut self, job: &Job) -> Result<Told, NotTold> {
        run_for(&self.path, job, TIME_MAX)
    }
}

/// Runs `PATH EVENT MD-DEVICE [COMPONENT]`, with the event in the environment, too.
pub(super) fn run_for(path: &Path, job: &Job, time_max: Duration) -> Result<Told, NotTold> {
    let event = &job.event;
    let name = event.kind.name();
    let program = trusted::trusted(path, Kind::Program);
    let program = program.map_err(|error| NotTold::new(format!("{name} is not told: {error}")))?;
    let mut command = Command::new(program);
    command.arg(&name).arg(&event.device).args(&event.component).envs(environment(job));
    let shown = path.display();
    match run(command, None, time_max) {
        Ok(status) if status.success() => Ok(Told::Done),
        Ok(status) if status.code() == Some(LATER) => {
            Err(NotTold::new(format!("{name}: {shown} {}: it is told again", ended(status))))
        }
        // It has seen the event. As for mdadm, what it makes of it is its own matter.
        Ok(status) => Ok(Told::DoneSaying(format!("{name}: {shown} {}", ended(status)))),
        // It has been told: what it does takes too long, and would do so again.
        Err(error @ RunError::Hangs(_)) => Ok(Told::DoneSaying(format!("{name}: {shown} {error}"))),
        Err(error @ (RunError::Start(_) | RunError::Wait(_))) => Err(NotTold::new(format!("{name}: {shown} {error}"))),
    }
}
