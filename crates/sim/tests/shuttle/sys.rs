//! The system under the host's files, in place of the host's `src/sys.rs`: a clock, and waiting for a bell.
//! Owns: virtual time. Not here: files; members do their I/O on helper threads (`disk`).
//! Invariant: all shards share one time. It never goes back, and advances while shards wait, by steps that the schedule
//! draws.

use crate::bell;
use shuttle::rand::{Rng, thread_rng};
use std::cell::Cell;
use std::os::fd::RawFd;
use std::time::Duration;

/// The most times that a waiting thread yields before its timer is due.
const TURNS_MAX: u32 = 96;

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Call it at the start of an execution.
pub(crate) fn reset_clock() {
    NOW.set(1_000_000_000);
}

pub(crate) fn monotonic_nanos() -> u64 {
    // Every call advances the clock, so that spinning ends.
    NOW.set(NOW.get() + 1);
    NOW.get()
}

/// Waits for the bell, the only file in the list, or until the timeout has passed; returns how many are ready.
pub(crate) fn poll(files: &mut [libc::pollfd], timeout: Option<Duration>) -> usize {
    let [file] = files else { panic!("there are no sockets here") };
    match timeout {
        None => bell::wait(file.fd),
        Some(time) => {
            let deadline = NOW.get() + u64::try_from(time.as_nanos()).expect("a short time");
            let turns_max = if time.is_zero() { 0 } else { thread_rng().gen_range(0..TURNS_MAX) };
            let mut turns = 0;
            while !bell::is_rung(file.fd) {
                if turns == turns_max {
                    NOW.set(NOW.get().max(deadline));
                    return 0;
                }
                turns += 1;
                shuttle::thread::yield_now();
            }
        }
    }
    file.revents = libc::POLLIN;
    1
}

pub(crate) fn sleep_precisely() {}

pub(crate) fn as_result(_: isize) -> i32 {
    panic!("there are no files here")
}

pub(crate) fn allocate(_: RawFd, _: i32, _: u64, _: u64) -> i32 {
    panic!("there are no files here")
}
