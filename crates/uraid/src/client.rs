//! Reaching the process that serves an array.
//! Owns: finding its control socket by name or member, calling it, the list of running arrays.
//! Not here: the protocol's lines (`rpc`), what is printed (`detail`, `list`).
//! Invariant: a socket without a listener is treated as if it did not exist.

use crate::names;
use crate::report::Report;
use crate::rpc::{self, ANSWER_BYTES_MAX, LINE_BYTES_MAX, Method, RpcError};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long a status may take: a server that is full drops idle callers one after the other.
const STATUS_TIME_MAX: Duration = Duration::from_secs(10);
/// The same if all arrays are asked. A server waits at most two seconds for slow members and threads, and otherwise
/// answers at once.
const STATUS_OF_ALL_TIME_MAX: Duration = Duration::from_secs(3);

/// Why a running array could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing is running under this name or with this member.
    #[error("no running array is called {array}, and none has it as a member")]
    NotRunning {
        /// What was asked for.
        array: String,
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
        /// Who listens there.
        pid: Option<u32>,
        /// Why.
        source: io::Error,
    },
    /// The server was about to end when it was told to stop.
    #[error("{} is gone before it answered: it was being stopped already", path.display())]
    Ending {
        /// The socket.
        path: PathBuf,
    },
    /// The answer is not valid.
    #[error("{} is no control socket of uraid", path.display())]
    Alien {
        /// The socket.
        path: PathBuf,
    },
    /// The array said no.
    #[error(transparent)]
    Refused(#[from] RpcError),
}

/// A connection to a running array.
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
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
            errno => ClientError::Connect { path: path.to_owned(), source: errno.into() },
        })?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks for the array's state.
    pub fn status(&mut self) -> Result<Report, ClientError> {
        self.status_within(STATUS_TIME_MAX)
    }

    fn status_within(&mut self, time_max: Duration) -> Result<Report, ClientError> {
        let value = self.call(&Method::Status, Some(time_max))?;
        serde_json::from_value(value).map_err(|_| ClientError::Alien { path: self.path.clone() })
    }

    /// Declares a member failed; returns the server's answer.
    pub fn fail(&mut self, member: &str) -> Result<Value, ClientError> {
        self.call(&Method::Fail { member: member.to_owned() }, None)
    }

    /// Stops the array, or all arrays of its process, and waits until the process has released everything.
    pub fn stop(mut self, all: bool) -> Result<(), ClientError> {
        match self.call(&Method::Stop { all }, None) {
            Err(ClientError::NoAnswer { path, source, .. }) if is_ended(source.kind()) => {
                return Err(ClientError::Ending { path });
            }
            outcome => outcome?,
        };
        // The socket closes when the process ends; a late error means the same.
        let _ = io::copy(&mut self.stream.take(LINE_BYTES_MAX as u64), &mut io::sink());
        Ok(())
    }

    /// `time_max`: how long each part of the answer may take.
    fn call(&mut self, method: &Method, time_max: Option<Duration>) -> Result<Value, ClientError> {
        let limit = self.stream.get_ref().set_read_timeout(time_max);
        limit.map_err(|source| self.no_answer(source))?;
        let sent = self.stream.get_mut().write_all(rpc::call_line(method).as_bytes());
        sent.map_err(|source| self.no_answer(source))?;
        let mut line = Vec::new();
        let read = (&mut self.stream).take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line);
        read.map_err(|source| self.no_answer(source))?;
        if line.is_empty() {
            return Err(self.no_answer(io::ErrorKind::UnexpectedEof.into()));
        }
        let answer = rpc::parse_answer(&line).map_err(|_| ClientError::Alien { path: self.path.clone() })?;
        Ok(answer?)
    }

    fn no_answer(&self, source: io::Error) -> ClientError {
        // Report a timeout in words: the system's text is "try again".
        let is_late = matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let source = if is_late { late() } else { source };
        let pid = sockopt::socket_peercred(self.stream.get_ref()).ok();
        let pid = pid.map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
        ClientError::NoAnswer { path: self.path.clone(), pid, source }
    }
}

/// Bounded: a process that hangs accepts no connections once its queue is full.
fn connect(path: &Path, time_max: Duration) -> Result<UnixStream, Errno> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time_max))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" of process {pid}"))
}

/// Whether the error means that the server ended during the call.
fn is_ended(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

/// Finds a running array: by its control socket if one is given, else by its name, else by one of its members.
pub fn find(array: Option<&str>, control: Option<&Path>) -> Result<Client, ClientError> {
    if let Some(control) = control {
        return Client::connect(control);
    }
    let array = array.unwrap_or_default();
    let not_running = || ClientError::NotRunning { array: array.to_owned() };
    let directory = names::runtime_directory().map_err(|_| not_running())?;
    let name = array.split_once(':').map_or(array, |(_, name)| name);
    if let Ok(client) = Client::connect(&directory.join(format!("{}.ctl", names::file_name(name)))) {
        return Ok(client);
    }
    let member = member_path(array);
    let has_member = |report: &Report| report.members.iter().any(|m| m.path.as_deref() == Some(&member));
    answers().find(|(_, _, report)| has_member(report)).map(|(_, client, _)| client).ok_or_else(not_running)
}

/// The arrays that run now and are found in the runtime directory, by name.
pub fn running() -> Vec<Report> {
    let mut answers: Vec<(usize, Client, Report)> = answers().collect();
    answers.sort_by_key(|(place, ..)| *place);
    answers.into_iter().map(|(.., report)| report).collect()
}

/// Yields the answers of the running arrays as they arrive, each with its position by name. All are asked at the same
/// time, so that one that hangs delays no other; it is reported on stderr.
fn answers() -> impl Iterator<Item = (usize, Client, Report)> {
    let (sender, receiver) = mpsc::channel();
    let asked = control_sockets().into_iter().enumerate().map(|(place, path)| {
        let sender = sender.clone();
        // The caller may have all answers already, and has dropped the receiver.
        std::thread::spawn(move || drop(sender.send((place, ask(&path)))));
    });
    asked.for_each(drop);
    drop(sender);
    receiver.into_iter().filter_map(|(place, answer)| match answer {
        Ok((client, report)) => Some((place, client, report)),
        Err(error @ ClientError::NoAnswer { .. }) => {
            crate::complain(&error);
            None
        }
        // No process listens there any more, or it is not a socket of uraid.
        Err(_) => None,
    })
}

fn ask(path: &Path) -> Result<(Client, Report), ClientError> {
    let mut client = Client::connect_within(path, STATUS_OF_ALL_TIME_MAX)?;
    let report = client.status_within(STATUS_OF_ALL_TIME_MAX)?;
    Ok((client, report))
}

fn control_sockets() -> Vec<PathBuf> {
    let Ok(directory) = names::runtime_directory() else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ctl"));
    paths.sort();
    paths
}

/// A member's path in the form that servers report: absolute, with links resolved if it exists.
pub fn member_path(member: &str) -> String {
    crate::member_name::absolute(member)
}

/// A member as `fail` sends it: a slot stays a number, a path is converted to the server's form.
pub fn member_argument(member: &str) -> String {
    if member.parse::<u16>().is_ok() { member.to_owned() } else { member_path(member) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_ends_while_it_is_told_to_stop_was_being_stopped() {
        let path = std::env::temp_dir().join(format!("uraid-client-{}.ctl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket in the folder for temporary files");
        let client = Client::connect(&path).expect("somebody listens");
        // It accepts, reads nothing and closes: the call fails at once or finds no answer.
        let server = std::thread::spawn(move || drop(listener.accept()));
        let outcome = client.stop(false);
        server.join().expect("it does not panic");
        let _ = std::fs::remove_file(&path);
        assert!(matches!(outcome, Err(ClientError::Ending { .. })), "{outcome:?}");
    }
}
