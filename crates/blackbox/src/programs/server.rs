//! One running `uraid serve`.
//! Owns: starting it, waiting until it is ready, ending it gently or with kill -9.
//! Not here: the protocol (`nbd`). Invariant: the process is gone when the guard is.

use crate::nbd::Address;
use crate::programs::binary::{self, Finished};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// On a slow machine, the first resync of a small array may precede readiness.
const READY_SECONDS_MAX: u64 = 120;
const STOP_SECONDS_MAX: u64 = 60;

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    uri: String,
    address: Address,
    control: PathBuf,
    log: PathBuf,
    /// Bytes that earlier servers had written there.
    said_before: u64,
}

/// A server that ended, or hung, before it was ready.
#[derive(Debug)]
pub struct NotReady {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its output.
    pub said: String,
}

impl fmt::Display for NotReady {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "exit code {:?}: {}", self.code, self.said)
    }
}

impl Server {
    /// Starts `uraid serve` on these members with sockets in `folder`, and waits until it takes requests.
    #[track_caller]
    pub fn start(folder: &Path, members: &[PathBuf], extra: &[&str]) -> Server {
        match Server::try_start(folder, members, extra) {
            Ok(server) => server,
            Err(said) => panic!("uraid serve did not become ready: {said}"),
        }
    }

    /// As `start`; the error contains the server's whole output.
    pub fn try_start(folder: &Path, members: &[PathBuf], extra: &[&str]) -> Result<Server, NotReady> {
        let (socket, control, log) = (folder.join("s.nbd"), folder.join("s.ctl"), folder.join("serve.log"));
        let stderr = File::options().create(true).append(true).open(&log).expect("the folder is ours");
        let said_before = stderr.metadata().map_or(0, |file| file.len());
        let mut command = Command::new(binary::path());
        command.arg("serve").arg("--nbd").arg(format!("unix:{}", socket.display()));
        command.arg("--control").arg(&control).args(extra).args(members);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", binary::path().display()));
        let stdout = child.stdout.take().expect("it is piped");
        let (to_us, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver may be gone once the line with the URI has arrived; the pipe is still read.
                let _ = to_us.send(line);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let Some(uri) = line.split_whitespace().find(|word| word.starts_with("nbd+unix://")) else {
                        continue;
                    };
                    let address = Address::parse(uri).unwrap_or_else(|| panic!("no NBD URI: {uri}"));
                    return Ok(Server { child, uri: uri.to_string(), address, control, log, said_before });
                }
                Err(why) => {
                    // A process that closed its output is about to end by itself, with its own exit code.
                    if why == RecvTimeoutError::Timeout {
                        let _ = child.kill();
                    }
                    let code = child.wait().ok().and_then(|status| status.code());
                    return Err(NotReady { code, said: said_since(&log, said_before) });
                }
            }
        }
    }

    /// Waits until the resync that it began with, if any, has ended. Panics if that takes longer than a start may.
    pub fn wait_until_consistent(&self) {
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while self.log().contains(": it is made consistent") && !self.log().contains("resync done: ") {
            assert!(Instant::now() < deadline, "the resync does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it printed, for foreign clients.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The same for the own client.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Everything it wrote to stderr so far.
    pub fn log(&self) -> String {
        said_since(&self.log, self.said_before)
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it is running");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number of kB")
    }

    /// Runs a subcommand that finds the array by its control socket: `uraid VERB --control SOCK WORDS`.
    pub fn command(&self, verb: &str, words: &[&str]) -> Finished {
        let control = self.control.display().to_string();
        binary::uraid([verb, "--control", &control].into_iter().chain(words.iter().copied()))
    }

    /// Declares a member failed.
    #[track_caller]
    pub fn fail(&self, member: &Path) {
        self.command("fail", &[&member.display().to_string()]).expect_done();
    }

    /// kill -9, and waits until the process is gone. Panics if it had ended before, which would be no kill of ours.
    #[track_caller]
    pub fn kill(mut self) {
        let ended = self.child.try_wait().expect("it is our child");
        assert!(ended.is_none(), "it ended by itself, {ended:?}; it said: {}", self.log());
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// kill -9, while others still use this server.
    #[track_caller]
    pub fn end_at_once(&self) {
        kill_process(self.pid(), Signal::KILL).expect("it is our child");
    }

    /// SIGTERM, and waits for exit code 0.
    #[track_caller]
    pub fn stop(mut self) {
        kill_process(self.pid(), Signal::TERM).expect("it is our child");
        let deadline = Instant::now() + Duration::from_secs(STOP_SECONDS_MAX);
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                assert_eq!(status.code(), Some(0), "after SIGTERM; it said: {}", self.log());
                return;
            }
            assert!(
                Instant::now() < deadline,
                "still there {STOP_SECONDS_MAX} s after SIGTERM; it said: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The text of a log after this many bytes.
fn said_since(log: &Path, before: u64) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(bytes.get(before as usize..).unwrap_or_default()).into_owned()
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("uraid serve said:\n{}", self.log());
        }
        // Already gone after `kill` and `stop`; then both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
