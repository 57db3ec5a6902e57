//! What a process has printed so far.
//! Owns: [`Printed`]. Not here: the process, waiting for a text.
//! Invariant: [`Printed::text`] has all that the process wrote before the call. A text that only a thread collected would
//! lack, on a busy machine, lines on stderr that were written before a line on stdout that the test has seen.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::retry_on_intr;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A pipe, and what came out of it. A thread empties it, so that the process never waits for the test.
#[derive(Clone)]
pub struct Printed(Arc<Inner>);

struct Inner {
    pipe: std::fs::File,
    bytes: Mutex<Vec<u8>>,
}

impl Printed {
    /// The thread ends with the pipe.
    pub fn collect(pipe: impl Into<OwnedFd>) -> (Printed, JoinHandle<()>) {
        let pipe = pipe.into();
        fcntl_getfl(&pipe).and_then(|flags| fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)).expect("a pipe");
        let printed = Printed(Arc::new(Inner { pipe: pipe.into(), bytes: Mutex::default() }));
        let of_thread = printed.clone();
        let collector = std::thread::spawn(move || {
            let pipe = of_thread.0.pipe.as_fd();
            let wait = || poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::IN)], None);
            while retry_on_intr(wait).is_ok() && of_thread.read() {}
        });
        (printed, collector)
    }

    /// Takes what is in the pipe. Whether more may come.
    fn read(&self) -> bool {
        let mut bytes = self.0.bytes.lock().expect("no thread panics while it holds the lock");
        let mut part = [0; 4096];
        loop {
            match (&self.0.pipe).read(&mut part) {
                Ok(0) => return false,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// All whole lines.
    pub fn text(&self) -> String {
        self.read();
        let bytes = self.0.bytes.lock().expect("no thread panics while it holds the lock");
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}
