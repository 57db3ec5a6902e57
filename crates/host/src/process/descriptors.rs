//! Open file descriptors: their limit, and those that this process was given.
//! Owns: raising the soft limit, and the refusal if that is not enough; the end for lack of an eventfd; which descriptors a
//! child inherits. Not here: opening anything else.
//! Invariant: a process that starts has room for its members, rings and mailboxes, and for clients.

use crate::process::panic_hook;
use crate::sys::{self, Errno};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;

/// Descriptors beside those of shards, members and clients: the three standard ones, and some for short-lived files.
const SLACK: u64 = 16;
/// Descriptors per shard beside its members: ring, door, signals, timers.
const PER_SHARD: u64 = 8;
/// The least number of clients that must be able to connect.
const CLIENTS_MIN: u64 = 16;

/// The limit on open files is too low.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the limit on open files is {found}, expected at least {expected}; raise it (ulimit -n)")]
pub struct TooFewDescriptors {
    /// The system's hard limit for this process.
    pub found: u64,
    /// The number that these members and shards need.
    pub expected: u64,
}

/// Makes room for `members` members on `shards` shards: raises the soft limit up to the hard one. Fails if the hard
/// limit is too low. Each member has one descriptor, and one more per shard for flushes.
pub fn ensure_descriptors(members: usize, shards: u16) -> Result<(), TooFewDescriptors> {
    let expected = needed(members as u64, u64::from(shards));
    let mut limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= expected);
    if is_enough(limit.current) {
        return Ok(());
    }
    let found = limit.maximum.or(limit.current).unwrap_or(u64::MAX);
    if !is_enough(limit.maximum) {
        return Err(TooFewDescriptors { found, expected });
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|_| TooFewDescriptors { found, expected })
}

/// An eventfd. Where the system has none, ends the process with an error: nothing can wake a thread without it. Arrays are
/// left as after a kill; a server has made sure before that there is room (`ensure_descriptors`).
pub(crate) fn eventfd_or_end() -> OwnedFd {
    sys::eventfd().unwrap_or_else(|Errno(os)| {
        let error = io::Error::from_raw_os_error(os);
        panic_hook::say(&format!(
            "uraid: cannot make an eventfd: {}; how many open files there may be say `ulimit -n` and LimitNOFILE=\n",
            crate::io_text(&error)
        ));
        std::process::exit(1)
    })
}

/// Lets programs that this process starts inherit no descriptor but those that they are given: also none that this process
/// has inherited.
pub fn close_descriptors_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let descriptor = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(descriptor) = descriptor.filter(|descriptor| *descriptor > 2) {
            // SAFETY: no pointers. The descriptor stays open here. If it is closed already, this fails.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

fn needed(members: u64, shards: u64) -> u64 {
    SLACK + CLIENTS_MIN + shards * PER_SHARD + members * (1 + shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_members_fit_and_too_many_are_refused_with_both_figures() {
        assert_eq!(ensure_descriptors(4, 2), Ok(()));
        let refused = ensure_descriptors(usize::MAX / 8, 2);
        assert!(matches!(refused, Err(TooFewDescriptors { found, expected }) if found < expected) || refused.is_ok());
        assert_eq!(needed(8, 2), 16 + 16 + 16 + 24);
    }
}
