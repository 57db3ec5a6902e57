//! Reaching the process that serves an array.
//! Owns: connecting to its control socket, calling it, what goes wrong then. Not here: which socket is meant (`finding`),
//! the protocol's lines (`rpc`), what is printed (`detail`, `list`).
//! Invariant: no call waits for an answer without a time limit, but one that waits for the array's own work.

mod finding;

pub use finding::{AllAsked, Running, Unasked, ask_all, check_words, find, find_within, running};

use crate::asking::{self, NoAnswer};
use crate::member_name;
use crate::protocol::{
    self, ANSWER_BYTES_MAX, AnswerError, CheckResult, FAIL_TIME_MAX, LINE_BYTES_MAX, Method, NewDevice, NewDevices,
    RpcError, STATUS_TIME_MAX,
};
use crate::report::Report;
use crate::runtime::RuntimeError;
use crate::words::member_words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uraid_format::FlagChange;

/// The time limit for a status, of one array and of all. A server waits at most two seconds for slow members and
/// threads, and otherwise answers at once.
const STATUS_OF_ALL_TIME_MAX: Duration = Duration::from_secs(3);

/// The longest that a process that has stopped its arrays may take to end.
const RELEASE_TIME_MAX: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// The advice of `fail` while it resolves a path that the server does not know as given.
const WORKS_AT_ONCE: &str = "; its slot number works at once, and so does its path as `uraid detail` shows it";

/// Why a running array could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A word names something else than the others.
    #[error("{word} is neither the array {array} nor a member of it: give one array at a time")]
    NotOfArray {
        /// The word.
        word: String,
        /// The array that the first word names.
        array: String,
    },
    /// Nothing is running under this name or with this member.
    #[error("no running array is called {array}, and none has it as a member")]
    NotRunning {
        /// What was asked for.
        array: String,
    },
    /// Several running arrays are called that.
    #[error("{word}: {meanings}")]
    Ambiguous {
        /// What was asked for.
        word: String,
        /// Which arrays it may mean, and the words that mean only one.
        meanings: String,
    },
    /// The words come in another order, or stand for nothing here.
    #[error("{text}")]
    Words {
        /// What was found, and what was expected.
        text: String,
    },
    /// The control socket given could not be reached.
    #[error("cannot reach the control socket {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server went away, or did not answer in time.
    #[error("no answer from {}{}", path.display(), of_process(*pid))]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// The process that listens there.
        pid: Option<u32>,
        /// Why.
        source: io::Error,
    },
    /// The socket belongs to another user: the system does not let this user connect, or the server closed the
    /// connection.
    #[error(
        "{}: permission denied: it belongs to user {owner}: only that user and root may use it, this is user {own}",
        path.display()
    )]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// The user whose process listens there.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// The runtime directory may not be read.
    #[error("user {own} may not look for running arrays in {}: ask as its owner, or set URAID_RUNTIME_DIR", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The user of this process.
        own: u32,
        /// Why.
        source: io::Error,
    },
    /// Nobody can know what runs.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The server has not answered `fail` in time.
    #[error(
        "no answer to fail from {}{} within {after:?}: the superblocks of the other members are not written yet, because \
         one of those may not answer either; the server goes on with it, and `uraid detail` shows what becomes of it",
        path.display(), of_process(*pid)
    )]
    FailUnanswered {
        /// The socket.
        path: PathBuf,
        /// The process that listens there.
        pid: Option<u32>,
        /// How long this process waited.
        after: Duration,
    },
    /// The server was about to end when it was told to stop.
    #[error("{} closed before it answered: the array was being stopped already", path.display())]
    Ending {
        /// The socket.
        path: PathBuf,
    },
    /// The answer is not valid.
    #[error("{} is not a control socket of uraid", path.display())]
    Alien {
        /// The socket.
        path: PathBuf,
    },
    /// The server is of another version of uraid.
    #[error("{}: use the uraid that serves the array", path.display())]
    Version {
        /// The socket.
        path: PathBuf,
        /// Which one.
        source: AnswerError,
    },
    /// The path of a member does not answer, and no server knows the path as it is written.
    #[error(transparent)]
    Silent(#[from] NoAnswer),
    /// The server refused the call.
    #[error(transparent)]
    Refused(#[from] RpcError),
}

impl ClientError {
    /// The socket of an array that could not be asked.
    fn socket(&self) -> Option<&Path> {
        match self {
            Self::Connect { path, .. }
            | Self::NoAnswer { path, .. }
            | Self::Foreign { path, .. }
            | Self::FailUnanswered { path, .. }
            | Self::Ending { path }
            | Self::Alien { path }
            | Self::Version { path, .. } => Some(path),
            Self::Ambiguous { .. }
            | Self::NotOfArray { .. }
            | Self::NotRunning { .. }
            | Self::Words { .. }
            | Self::Directory { .. }
            | Self::Runtime(_)
            | Self::Silent(_)
            | Self::Refused(_) => None,
        }
    }

    /// Whether a server is there that did not answer in time.
    pub fn is_no_answer(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::Silent(_))
    }

    /// Whether nothing is known of a running array, so that the members themselves may be asked.
    pub fn leaves_members(&self) -> bool {
        matches!(self, Self::NotRunning { .. } | Self::Directory { .. } | Self::Runtime(_))
    }
}

/// A connection to a running array.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    /// The report that the search by member got from it.
    report: Option<Report>,
}

impl Client {
    /// Connects to a control socket.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        Client::connect_within(path, STATUS_TIME_MAX)
    }

    fn connect_within(path: &Path, time_max: Duration) -> Result<Client, ClientError> {
        let stream = connect(path, time_max).map_err(|errno| match errno {
            // The queue of the socket stayed full.
            Errno::AGAIN => ClientError::NoAnswer { path: path.to_owned(), pid: None, source: late() },
            errno => {
                let is_denied = matches!(errno, Errno::ACCESS | Errno::PERM);
                let owner = is_denied.then(|| std::fs::metadata(path).ok()).flatten().map(|status| status.uid());
                let other = || ClientError::Connect { path: path.to_owned(), source: errno.into() };
                foreign(path, owner).unwrap_or_else(other)
            }
        })?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream), report: None })
    }

    /// The control socket.
    pub fn socket(&self) -> &Path {
        &self.path
    }

    /// The array's state: the report from the search by member, if there was one; otherwise asks the server.
    pub fn status(&mut self) -> Result<Report, ClientError> {
        self.report.take().map_or_else(|| self.status_within(STATUS_OF_ALL_TIME_MAX), Ok)
    }

    fn status_within(&mut self, time_max: Duration) -> Result<Report, ClientError> {
        let value = self.call_within(&Method::Status {}, Some(time_max))?;
        serde_json::from_value(value).map_err(|_| ClientError::Alien { path: self.path.clone() })
    }

    /// Declares members, each a path or a slot, failed; returns the server's answer. A path is sent as it is written,
    /// because looking at it would wait for a member that hangs; links are resolved only if the server does not know it.
    pub fn fail(&mut self, members: &[String]) -> Result<Value, ClientError> {
        let form = |path: &dyn Fn(&str) -> Result<String, NoAnswer>| -> Result<Vec<String>, NoAnswer> {
            members.iter().map(|member| if is_path(member) { path(member) } else { Ok(member.clone()) }).collect()
        };
        let written = form(&|member| Ok(member_name::as_written(member)))?;
        match self.fail_within(&written, FAIL_TIME_MAX) {
            Err(ClientError::Refused(error)) if error.code == RpcError::NO_MEMBER => {
                let resolved = form(&|member| resolved_path(member, Some(asking::TIME_MAX), WORKS_AT_ONCE))?;
                if resolved == written { Err(error.into()) } else { self.fail_within(&resolved, FAIL_TIME_MAX) }
            }
            outcome => outcome,
        }
    }

    /// Makes a call; returns the server's answer. Paths must be as a server finds them: see [`path_or_slot`].
    pub fn call(&mut self, method: &Method) -> Result<Value, ClientError> {
        self.call_within(method, method.answer_time_max())
    }

    /// What the last check or repair has found.
    pub fn mismatches(&mut self) -> Result<CheckResult, ClientError> {
        let value = self.call(&Method::Mismatches {})?;
        serde_json::from_value(value).map_err(|_| ClientError::Alien { path: self.path.clone() })
    }

    fn fail_within(&mut self, members: &[String], after: Duration) -> Result<Value, ClientError> {
        match self.call_within(&Method::Fail { members: members.to_vec() }, Some(after)) {
            Err(ClientError::NoAnswer { path, pid, source }) if source.kind() == io::ErrorKind::TimedOut => {
                Err(ClientError::FailUnanswered { path, pid, after })
            }
            outcome => outcome,
        }
    }

    /// Adds devices as spares; returns the server's answer. The server opens the paths.
    /// `flags`: what each of them gets.
    pub fn add(&mut self, members: &[String], flags: &[FlagChange], force: bool) -> Result<Value, ClientError> {
        assert_eq!(members.len(), flags.len(), "one for each");
        let device =
            |(path, flags): (&String, &FlagChange)| NewDevice { path: member_name::as_written(path), flags: *flags };
        let devices = members.iter().zip(flags).map(device).collect();
        self.call_naming(&Method::Add(NewDevices { members: devices, force }), members)
    }

    /// Takes back devices that were members.
    pub fn re_add(&mut self, members: &[String]) -> Result<Value, ClientError> {
        let written = members.iter().map(|member| path_or_slot(member)).collect();
        self.call_naming(&Method::ReAdd { members: written }, members)
    }

    /// Removes members, each a path, the slot that it had, or one of mdadm's words.
    pub fn remove(&mut self, members: &[String]) -> Result<Value, ClientError> {
        let members: Vec<String> = members.iter().map(|member| path_or_slot(member)).collect();
        match self.call(&Method::Remove { members: members.clone() }) {
            Err(ClientError::Refused(error)) if error.code == RpcError::NO_MEMBER => {
                let resolve = |member: &String| if is_path(member) { member_path(member) } else { member.clone() };
                let resolved: Vec<String> = members.iter().map(resolve).collect();
                if resolved == members {
                    return Err(error.into());
                }
                self.call(&Method::Remove { members: resolved })
            }
            outcome => outcome,
        }
    }

    /// Stops the array, or all arrays of its process, and waits until the process has released everything.
    pub fn stop(mut self, all: bool, force: bool) -> Result<(), ClientError> {
        let peer = sockopt::socket_peercred(self.stream.get_ref()).ok();
        let process = peer.and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()).ok());
        match self.call(&Method::Stop { all, force }) {
            Err(ClientError::NoAnswer { path, source, .. }) if is_ended(source.kind()) => {
                return Err(ClientError::Ending { path });
            }
            outcome => outcome?,
        };
        // The socket closes when the process ends; a late error means the same.
        let _ = io::copy(&mut self.stream.take(LINE_BYTES_MAX as u64), &mut io::sink());
        if let Some(process) = process {
            // The kernel closes the socket before the last files: until then what they lie on cannot be unmounted.
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&RELEASE_TIME_MAX));
        }
        Ok(())
    }

    /// `time_max`: how long each part of the answer may take.
    fn call_within(&mut self, method: &Method, time_max: Option<Duration>) -> Result<Value, ClientError> {
        self.send(method)?;
        self.answer(time_max)
    }

    /// A call that has the server open devices: if it takes long, stderr says what it waits for.
    fn call_naming(&mut self, method: &Method, devices: &[String]) -> Result<Value, ClientError> {
        self.send(method)?;
        let limit = self.stream.get_ref().set_read_timeout(Some(asking::NAMED_AFTER));
        limit.map_err(|source| self.no_answer(source))?;
        // Another error comes again below.
        if self.stream.fill_buf().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            crate::log::warn(&format!("the server waits for {}", devices.join(", ")));
        }
        self.answer(Some(FAIL_TIME_MAX))
    }

    fn send(&mut self, method: &Method) -> Result<(), ClientError> {
        let sent = self.stream.get_mut().write_all(protocol::call_line(method).as_bytes());
        sent.map_err(|source| self.no_answer(source))
    }

    fn answer(&mut self, time_max: Option<Duration>) -> Result<Value, ClientError> {
        let limit = self.stream.get_ref().set_read_timeout(time_max);
        limit.map_err(|source| self.no_answer(source))?;
        let mut line = Vec::new();
        let read = (&mut self.stream).take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line);
        read.map_err(|source| self.no_answer(source))?;
        if line.is_empty() {
            return Err(self.no_answer(io::ErrorKind::UnexpectedEof.into()));
        }
        let answer = protocol::parse_answer(&line).map_err(|error| match error {
            AnswerError::Alien => ClientError::Alien { path: self.path.clone() },
            AnswerError::Version { .. } => ClientError::Version { path: self.path.clone(), source: error },
        })?;
        Ok(answer?)
    }

    fn no_answer(&self, source: io::Error) -> ClientError {
        // Report a timeout in words: the system's text is "try again".
        let is_late = matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let source = if is_late { late() } else { source };
        let (path, peer) = (self.path.clone(), sockopt::socket_peercred(self.stream.get_ref()).ok());
        let owner = peer.as_ref().map(|peer| peer.uid.as_raw());
        if let Some(error) = foreign(&path, owner.filter(|_| is_ended(source.kind()))) {
            return error;
        }
        let pid = peer.map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
        ClientError::NoAnswer { path, pid, source }
    }
}

/// Connects within `time_max`: once the queue of a process that hangs is full, it takes no more connections.
fn connect(path: &Path, time_max: Duration) -> Result<UnixStream, Errno> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time_max))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// The error of a user who is neither the owner nor root.
fn foreign(path: &Path, owner: Option<u32>) -> Option<ClientError> {
    let own = own_user();
    let owner = owner.filter(|&owner| own != 0 && own != owner)?;
    Some(ClientError::Foreign { path: path.to_owned(), owner, own })
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether the error means that this user may not ask.
fn is_denied(error: &ClientError) -> bool {
    match error {
        ClientError::Foreign { .. } | ClientError::Directory { .. } => true,
        ClientError::Connect { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        ClientError::NotRunning { .. }
        | ClientError::Ambiguous { .. }
        | ClientError::Words { .. }
        | ClientError::NotOfArray { .. }
        | ClientError::Runtime(_)
        | ClientError::NoAnswer { .. }
        | ClientError::FailUnanswered { .. }
        | ClientError::Ending { .. }
        | ClientError::Alien { .. }
        | ClientError::Version { .. }
        | ClientError::Silent(_)
        | ClientError::Refused(_) => false,
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" of process {pid}"))
}

/// Whether the error means that the server ended during the call.
pub fn is_ended(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

/// A member's path in the form that servers report: absolute, with links resolved if it exists. A path that does not
/// answer stays as given.
pub fn member_path(member: &str) -> String {
    resolved_path(member, Some(asking::TIME_MAX), "").unwrap_or_else(|_| member_name::as_written(member))
}

fn resolved_path(member: &str, time_max: Option<Duration>, advice: &str) -> Result<String, NoAnswer> {
    let own = member.to_owned();
    asking::ask_advising(member, time_max, advice, move || member_name::absolute(&own))
}

/// Whether a member is named by a path: not by its slot, nor by one of mdadm's words.
fn is_path(member: &str) -> bool {
    member.parse::<u16>().is_err()
        && ![member_words::FAILED, member_words::DETACHED, member_words::MISSING].contains(&member)
}

/// A member as a server finds it: its path made absolute, or its slot.
pub fn path_or_slot(member: &str) -> String {
    if is_path(member) { member_name::as_written(member) } else { member.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn fail_does_not_wait_for_ever() {
        let path = std::env::temp_dir().join(format!("uraid-client-fail-{}.ctl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket in the folder for temporary files");
        let mut client = Client::connect(&path).expect("it listens");
        let outcome = client.fail_within(&["1".to_owned()], Duration::from_millis(50));
        drop(listener);
        let _ = std::fs::remove_file(&path);
        let text = outcome.expect_err("it does not answer").to_string();
        for part in ["within 50ms", &format!("of process {}", std::process::id()), "`uraid detail` shows"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_server_that_ends_while_it_is_told_to_stop_was_being_stopped() {
        let path = std::env::temp_dir().join(format!("uraid-client-{}.ctl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket in the folder for temporary files");
        let client = Client::connect(&path).expect("the socket is listened on");
        // The server accepts, reads nothing and closes: the call fails at once or gets no answer.
        let server = std::thread::spawn(move || drop(listener.accept()));
        let outcome = client.stop(false, false);
        server.join().expect("it does not panic");
        let _ = std::fs::remove_file(&path);
        assert!(matches!(outcome, Err(ClientError::Ending { .. })), "{outcome:?}");
    }
}
