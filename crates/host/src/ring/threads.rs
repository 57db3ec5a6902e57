//! The ring for systems without io_uring: helper threads for files, poll for sockets.
//! Owns: [`Threads`]. Not here: the helper threads themselves (`pool`).
//! Invariant: that of [`Ring`]. A socket operation is tried at once, and again whenever its socket is ready.

use super::pool::Pools;
use super::{Completion, Kind, Request, Ring, Wait};
use crate::mail::door::Door;
use crate::sys;
use std::sync::Arc;

/// The most helper threads for one member.
const WORKERS_MAX: usize = 4;

struct Waiting {
    token: u32,
    request: *mut Request,
}

pub(super) struct Threads {
    door: Arc<Door>,
    pools: Pools,
    waiting: Vec<Waiting>,
    ready: Vec<Completion>,
    poll: Vec<libc::pollfd>,
}

impl Threads {
    pub(super) fn new(door: Arc<Door>) -> Threads {
        let pools = Pools::new(WORKERS_MAX, door.clone());
        Threads { door, pools, waiting: Vec::new(), ready: Vec::new(), poll: Vec::new() }
    }
}

/// Tries a socket operation; `None`: it would block.
fn attempt(request: &mut Request, is_ready: bool) -> Option<i32> {
    let fd = request.fd;
    let result = match request.kind {
        // SAFETY: the header describes the operation's own live buffers, which nothing else uses until the completion.
        Kind::Receive { .. } => unsafe { libc::recvmsg(fd, request.message(), libc::MSG_DONTWAIT) },
        // SAFETY: as above.
        Kind::Send => unsafe { libc::sendmsg(fd, request.message(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) },
        Kind::Poll { .. } => return is_ready.then_some(0),
        Kind::Read { .. } | Kind::Write { .. } | Kind::Sync | Kind::Allocate { .. } | Kind::Call(_) => {
            panic!("files are for helper threads")
        }
    };
    let result = sys::as_result(result);
    (result != -libc::EAGAIN).then_some(result)
}

impl Ring for Threads {
    unsafe fn start(&mut self, token: u32, request: *mut Request) {
        // SAFETY: the caller's promise: the operation belongs to the ring until the completion.
        let it = unsafe { &mut *request };
        match it.kind {
            Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } => match attempt(it, false) {
                Some(result) => self.ready.push(Completion { token, result }),
                None => self.waiting.push(Waiting { token, request }),
            },
            Kind::Read { .. } | Kind::Write { .. } | Kind::Sync | Kind::Allocate { .. } | Kind::Call(_) => {
                // SAFETY: the caller's promise.
                unsafe { self.pools.start(token, it) }
            }
        }
    }

    fn cancel(&mut self, token: u32) {
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.token == token) {
            self.waiting.swap_remove(place);
            self.ready.push(Completion { token, result: -libc::ECANCELED });
        }
    }

    fn wait(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        completions.append(&mut self.ready);
        self.pools.take(completions);
        let wait = if completions.is_empty() { wait } else { Wait::No };
        if wait == Wait::No && self.waiting.is_empty() {
            return;
        }
        let timeout = match wait {
            Wait::No => Some(std::time::Duration::ZERO),
            Wait::For(time) => Some(time),
            Wait::Forever => None,
        };
        self.poll.clear();
        self.poll.push(libc::pollfd { fd: self.door.bell().descriptor(), events: libc::POLLIN, revents: 0 });
        for waiting in &self.waiting {
            // SAFETY: in flight, so the operation exists and belongs to this ring.
            let request = unsafe { &*waiting.request };
            let events = if matches!(request.kind, Kind::Send) { libc::POLLOUT } else { libc::POLLIN };
            self.poll.push(libc::pollfd { fd: request.fd, events, revents: 0 });
        }
        if sys::poll(&mut self.poll, timeout) > 0 {
            if self.poll[0].revents != 0 {
                self.door.bell().silence();
            }
            let mut place = 0;
            let poll = &self.poll[1..];
            self.waiting.retain(|waiting| {
                let is_ready = poll[place].revents != 0;
                place += 1;
                if !is_ready {
                    return true;
                }
                // SAFETY: in flight, so the operation exists and belongs to this ring.
                match attempt(unsafe { &mut *waiting.request }, true) {
                    Some(result) => {
                        completions.push(Completion { token: waiting.token, result });
                        false
                    }
                    None => true,
                }
            });
        }
        self.pools.take(completions);
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}
