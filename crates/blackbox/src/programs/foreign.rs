//! Third-party programs: whether they are installed, and what to do if not.
//! Owns: the rule for skipping. Not here: what they are used for (the tests).
//! Invariant: a test that could not run says so loudly, and fails where clients are required.

use std::ffi::OsStr;
use std::path::PathBuf;

/// `URAID_REQUIRE_CLIENTS` set, or `URAID_CLIENTS=required`: a missing program fails the test.
pub fn are_required() -> bool {
    std::env::var_os("URAID_REQUIRE_CLIENTS").is_some_and(|value| value != "0" && !value.is_empty())
        || std::env::var_os("URAID_CLIENTS").is_some_and(|value| value == "required")
}

/// The path of a program; finds system programs too when `PATH` leaves them out.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether all are installed. If not, prints which one is missing, or panics if clients are required.
#[track_caller]
pub fn has(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().copied().filter(|program| find(program).is_none()).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(!are_required(), "not installed: {}", missing.join(", "));
    skipped(&format!("not installed: {}", missing.join(", ")));
    false
}

/// Says, past the test's captured output, that something was not tested.
#[track_caller]
pub fn skipped(why: &str) {
    use std::io::Write;
    let place = std::panic::Location::caller();
    // Straight to the descriptor: a passing test's output is hidden, and a skipped test must not look like a passed
    // one.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}:{}: {why}", place.file(), place.line());
}

/// A command with the program found by `find`.
pub fn command<S: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = S>) -> std::process::Command {
    let mut command = std::process::Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)));
    command.args(words);
    command
}
