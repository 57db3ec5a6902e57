//! The process behind a unix socket, and its processor time.
//! Owns: [`Peer`]. Not here: the socket (`connection`), how the times are used (`nbd`).
//! Invariant: a time is the sum over all threads of one process; `None` if the system does not tell it.

use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    pid: i32,
}

impl Peer {
    /// The process that listens at the other end; `None` if it is not visible from here.
    pub(super) fn of(socket: &UnixStream) -> Option<Peer> {
        let peer = Peer { pid: socket_peercred(socket).ok()?.pid.as_raw_pid() };
        peer.time().map(|_| peer)
    }

    /// The processor time of its threads, user and system. Threads that have ended are not included; a server's threads
    /// last as long as the connection.
    pub(super) fn time(self) -> Option<Duration> {
        let mut nanos = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            // A thread may end between the two calls.
            let Ok(line) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
            nanos += line.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process_whose_time_goes_on() {
        let (one, _other) = UnixStream::pair().expect("a pair of sockets");
        let peer = Peer::of(&one).expect("the system tells");
        assert_eq!(peer.pid, std::process::id() as i32);
        let before = peer.time().expect("it runs");
        // The system adds a thread's time when the thread leaves the processor.
        while peer.time().expect("it runs") == before {
            std::thread::yield_now();
        }
    }
}
