//! Servers in the background: of `serve --background`, and of `mount`.
//! Owns: starting one, passing on what it says until it is ready, its log file; and, in that process, letting go of the
//! command that started it. Not here: what it serves (`serve`), the folder of a mount (`mount::place`).
//! Invariant: when the command says that the server is ready, the server holds no terminal and no pipe of the command's
//! caller. A server whose command ends before stops.
//!
//! ```text
//!   command   log file -> `uraid serve --detached` -> passes on what the log says ... until stdout is closed -> ends
//!   server    a session of its own -> start ... ready -> the log file gets its name -> URIs -> closes stdout
//! ```

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setsid};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use uraid_control::log::{self, warn};
use uraid_control::names;
use uraid_control::runtime::{self, RuntimeError};
use uraid_host::close_descriptors_on_exec;

/// How often the command looks for new lines in the log.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The room that a log has from its beginning.
const START_LOG_BYTES: u64 = 64 << 10;
/// The name of a log in memory.
const MEMORY_LOG: &str = "uraid-log";

/// Why there is no server in the background.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// There is no place for its log.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The log file, or this program's own file.
    #[error("no server in the background: {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackgroundError {
    let path = path.to_owned();
    |source| BackgroundError::Io { path, source }
}

/// The log file; where its file system has no room for what a start says, memory in its place, so that at least the
/// caller is told.
fn with_room(log: File, path: &Path) -> Result<File, BackgroundError> {
    // Other errors tell nothing of the room: not every file system can reserve it, and a limit on file sizes is told of
    // when it is met.
    let Err(error @ (Errno::NOSPC | Errno::DQUOT)) =
        rustix::fs::fallocate(&log, FallocateFlags::KEEP_SIZE, 0, START_LOG_BYTES)
    else {
        return Ok(log);
    };
    let _ = fs::remove_file(path);
    warn(&format!(
        "the log cannot be kept: no room for it in {}: {}; what the server says until it is ready is said here, and what it \
         says later is lost: make room, and start it again",
        path.parent().unwrap_or(path).display(),
        uraid_host::io_text(&error.into())
    ));
    rustix::fs::memfd_create(MEMORY_LOG, MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| failed(path)(error.into()))
}

/// A server that this process has started.
pub struct Background {
    /// Its process.
    pub child: Child,
    stdout: ChildStdout,
    log: File,
    path: PathBuf,
    /// How much of the log was passed on.
    passed_on: u64,
}

impl Background {
    /// `uraid serve WORDS`, whose log is this new file.
    pub fn start(words: impl IntoIterator<Item = OsString>, path: PathBuf) -> Result<Background, BackgroundError> {
        let log = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path);
        let log = with_room(log.map_err(failed(&path))?, &path)?;
        let unused = path.clone();
        Background::start_with(words, path, log).inspect_err(|_| {
            // Nothing has begun to write to it.
            let _ = fs::remove_file(&unused);
        })
    }

    fn start_with(
        words: impl IntoIterator<Item = OsString>,
        path: PathBuf,
        log: File,
    ) -> Result<Background, BackgroundError> {
        let program = Path::new("/proc/self/exe");
        // What the caller has left open, such as the lock file of a script, is not the server's.
        close_descriptors_on_exec().map_err(failed(Path::new("/proc/self/fd")))?;
        let mut command = Command::new(std::env::current_exe().map_err(failed(program))?);
        // The binary may be called mdadm, and would read these words as mdadm's.
        command.arg0("uraid");
        command.args(["serve", "--detached"]).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(log.try_clone().map_err(failed(&path))?).spawn();
        let mut child = child.map_err(failed(program))?;
        let stdout = child.stdout.take().expect("piped");
        Ok(Background { child, stdout, log, path, passed_on: 0 })
    }

    /// Waits until it is ready, or has ended. Gives what it says meanwhile to `said`. Returns its lines on stdout, none if
    /// it has ended.
    pub fn wait(&mut self, mut said: impl FnMut(&[u8])) -> Result<Vec<u8>, BackgroundError> {
        let mut lines = Vec::new();
        let mut is_open = true;
        while is_open {
            let ready = poll(&mut [PollFd::new(&self.stdout, PollFlags::IN)], Some(&LOOK_EVERY));
            if ready.is_ok_and(|count| count > 0) {
                let mut block = [0; 4096];
                let count = self.stdout.read(&mut block).map_err(failed(&self.path))?;
                lines.extend_from_slice(&block[..count]);
                is_open = count > 0;
            }
            self.pass_on(&mut said)?;
        }
        Ok(lines)
    }

    fn pass_on(&mut self, said: &mut impl FnMut(&[u8])) -> Result<(), BackgroundError> {
        let mut block = [0; 4096];
        loop {
            let count = self.log.read_at(&mut block, self.passed_on).map_err(failed(&self.path))?;
            if count == 0 {
                return Ok(());
            }
            self.passed_on += count as u64;
            said(&block[..count]);
        }
    }
}

/// `uraid serve --background`, with the words behind `serve`: returns when every array is served, or with the exit code of
/// the server.
pub fn serve(words: impl IntoIterator<Item = OsString>) -> Result<ExitCode, BackgroundError> {
    // It gets its name when the array's is known.
    let log = runtime::make()?.join(format!(".uraid-{}.log", std::process::id()));
    // One of an earlier process with this number, which was killed.
    let _ = fs::remove_file(&log);
    let mut server = Background::start(words, log.clone())?;
    // If stderr is closed, the log has it all.
    let lines = server.wait(|said| drop(io::stderr().lock().write_all(said)))?;
    if !lines.is_empty() {
        // The server runs, and stays.
        log::print_or_warn(&String::from_utf8_lossy(&lines));
        return Ok(ExitCode::SUCCESS);
    }
    let status = server.child.wait().map_err(failed(&log))?;
    let _ = fs::remove_file(&log);
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    if code.is_none() || server.passed_on == 0 {
        let said = if server.passed_on == 0 { ", and has not said why" } else { "" };
        warn(&format!("the server in the background has ended: {status}{said}"));
    }
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| server.passed_on >= *limit) {
        warn(&format!(
            "its log could hold no more than {limit} bytes, because that is the limit on file sizes (ulimit -f, \
             LimitFSIZE=): raise it, or leave --background out to see why it ended"
        ));
    }
    // A server that is told to stop before it is ready ends with success, but nothing is served.
    Ok(code.filter(|code| *code != 0).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// How much a server has to do with the command that started it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detachment {
    /// It runs in the foreground.
    None,
    /// It leaves the command when it is ready.
    Detached,
    /// The same; its log file gets the array's name.
    NamesLog,
}

impl Detachment {
    /// In a process that has just begun: in the background, leaves the session of the caller, so that no signal of its
    /// terminal arrives.
    pub fn begin(self) {
        if self != Detachment::None {
            // It fails only for the leader of a group, which has a terminal of its own.
            let _ = setsid();
        }
    }

    /// Every array is served: gives the log file its name. Returns false if the command that waits for this is gone.
    pub(crate) fn ready(self, array: &str) -> bool {
        if self == Detachment::None {
            return true;
        }
        if let (Detachment::NamesLog, Some(path)) = (self, log::file()) {
            let named = path.with_file_name(format!("{}.log", names::file_name(array)));
            // What the server before it has said may tell why it ended.
            let _ = fs::rename(&named, named.with_extension("log.old"));
            let (log, pid) = (if fs::rename(&path, &named).is_ok() { named } else { path }, std::process::id());
            warn(&format!("{array}: is served in the background by process {pid}; its log is {}", log.display()));
        } else if self == Detachment::NamesLog {
            warn(&format!("{array}: is served in the background by process {}, without a log", std::process::id()));
        }
        self.is_awaited()
    }

    /// Whether the command that started this server still waits for it; always, of a server in the foreground. One that
    /// was told to end wants no array started any more, least of all a degraded one.
    pub fn is_awaited(self) -> bool {
        if self == Detachment::None {
            return true;
        }
        let stdout = io::stdout();
        let mut waiting = [PollFd::new(&stdout, PollFlags::empty())];
        let _ = poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        !waiting[0].revents().contains(PollFlags::ERR)
    }

    /// The command has everything that it waits for.
    pub(crate) fn leave(self) {
        if self != Detachment::None {
            log::leave_memory();
            log::leave_stdout();
        }
    }
}
