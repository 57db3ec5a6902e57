//! The `uraid` binary: where it is, and running one command of it.
//! Owns: finding or building it. Not here: a running server (`server`).
//! Invariant: never a binary older than the sources, unless `URAID_BIN` names it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The binary under test: `URAID_BIN`, else the `uraid` of this test's build, which is built if it is missing or
/// outdated.
pub fn path() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var_os("URAID_BIN") {
        Some(path) => PathBuf::from(path),
        None => built(),
    })
}

fn built() -> PathBuf {
    let executable = std::env::current_exe().expect("a test knows its own path");
    // target/PROFILE/deps/TEST or target/PROFILE/TOOL
    let folder = executable.parent().expect("a program lies in a folder");
    let profile = if folder.ends_with("deps") { folder.parent().expect("deps lies in target/PROFILE") } else { folder };
    let binary = profile.join("uraid");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in crates/");
    let is_current = modified(&binary).is_some_and(|built| built >= newest_source(crates));
    if !is_current {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "uraid", "--bin", "uraid"]).current_dir(crates);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo starts").success(), "uraid does not build");
    }
    assert!(binary.exists(), "{} is missing after the build; set URAID_BIN", binary.display());
    binary
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// When a source of the binary was last changed; tools and tests are not part of it.
fn newest_source(crates: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    let mut folders: Vec<_> = std::fs::read_dir(crates)
        .expect("crates/ is there")
        .flatten()
        .filter(|entry| !["blackbox", "sim", "xtask"].iter().any(|tool| entry.file_name() == *tool))
        .map(|entry| entry.path().join("src"))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(time) = modified(&path) {
                newest = newest.max(time);
            }
        }
    }
    newest
}

/// One finished command.
#[derive(Debug)]
pub struct Finished {
    /// The command as a person would type it.
    pub line: String,
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub out: String,
    /// What it wrote to stderr.
    pub err: String,
}

impl Finished {
    fn new(line: String, output: Output) -> Finished {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Finished { line, code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Panics with the whole output, unless the command ended with exit code 0.
    #[track_caller]
    pub fn expect_done(self) -> Finished {
        assert_eq!(self.code, Some(0), "{}\nstdout: {}\nstderr: {}", self.line, self.out, self.err);
        self
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Finished {
    let line = line_of(command);
    match command.output() {
        Ok(output) => Finished::new(line, output),
        Err(error) => panic!("{line}: {error}"),
    }
}

/// Runs `uraid` with these words.
pub fn uraid<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Finished {
    run(Command::new(path()).args(words))
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
