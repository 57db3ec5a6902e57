//! `--daemonise`: the monitor as a process of its own, and the file with its number.
//! Owns: starting it, waiting until it watches, letting go of the caller. Not here: what it does (`life`).
//! Invariant: when the command returns, the monitor has its lock and its channels, or the command has failed with its words.

use super::args::MonitorArgs;
use rustix::process::setsid;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use uraid_control::log;

/// Why there is no monitor in the background.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackgroundError {
    /// This program could not be started again.
    #[error("no monitor in the background")]
    Start(#[source] io::Error),
    /// The file for its number.
    #[error("--pid-file {}", path.display())]
    PidFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Starts it, and returns when it watches.
pub(super) fn start(args: &MonitorArgs) -> Result<ExitCode, BackgroundError> {
    let program = std::env::current_exe().map_err(BackgroundError::Start)?;
    let mut command = Command::new(program);
    command.arg("monitor").args(args.detached_words()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(BackgroundError::Start)?;
    let mut said = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    stdout.read_to_string(&mut said).map_err(BackgroundError::Start)?;
    if said.ends_with('\n') {
        log::print_or_warn(said.trim_start_matches('\n'));
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(BackgroundError::Start)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// In the new process: no signal of the caller's terminal arrives.
pub(super) fn begin() {
    // It fails only for the leader of a group, which has a terminal of its own.
    let _ = setsid();
}

/// It watches: the caller gets its number, unless a file has it, and is let go.
pub(super) fn ready(has_file: bool) {
    log::print(&if has_file { "\n".to_owned() } else { format!("{}\n", std::process::id()) });
    log::leave_stdout();
    let null = File::options().write(true).open("/dev/null");
    // Without it stderr stays where it is.
    let _ = null.map(rustix::stdio::dup2_stderr);
}

/// The file with the number of the process, removed with it.
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it.
    pub(super) fn write(path: &Path) -> Result<PidFile, BackgroundError> {
        let written = File::create(path).and_then(|mut file| writeln!(file, "{}", std::process::id()));
        written.map_err(|source| BackgroundError::PidFile { path: path.to_owned(), source })?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
