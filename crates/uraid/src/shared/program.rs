//! Programs of the system that uraid runs: losetup, mount, fstrim and so on.
//! Owns: [`run`], the words for one that is missing or refuses. Not here: which one is run, and when.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// A program is not installed, or refused.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {text}")]
pub(crate) struct ProgramError {
    /// Its name.
    pub program: String,
    /// What it said.
    pub text: String,
}

/// What the program printed.
pub(crate) fn run(command: &mut Command) -> Result<String, ProgramError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |text: String| ProgramError { program: program.clone(), text };
    let done = command.stdin(Stdio::null()).output().map_err(|error| {
        failed(if error.kind() == ErrorKind::NotFound {
            let package = if program == "nbd-client" { "nbd-client" } else { "util-linux, or mount" };
            format!("not found: it is in the package {package}")
        } else {
            error.to_string()
        })
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let prefix = format!("{program}: ");
        let lines: Vec<&str> = said
            .lines()
            .map(|line| line.trim().trim_end_matches('.'))
            .filter(|line| !line.is_empty())
            .map(|line| line.strip_prefix(&*prefix).unwrap_or(line))
            .collect();
        return Err(failed(if lines.is_empty() { done.status.to_string() } else { lines.join("; ") }));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
