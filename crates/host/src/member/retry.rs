//! Errors that pass by themselves: the request is made again, and the member is not blamed.
//! Owns: [`Retries`]: which errors these are, how often and after which pauses. Not here: what is done again (`file`).
//! Invariant: it ends; a device that gives such an error for ever is told of as for any other.

use crate::ring::Driver;
use std::time::Duration;

/// How often a request is made again.
const TRIES_MAX: u32 = 12;
/// Before the first time. Each pause is twice as long as the one before, up to [`PAUSE_MAX`]: 0.6 s in all. Memory that
/// writeback frees comes back within some ten milliseconds; no client waits as long for a disk that reads a bad sector.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How often one request was made again already.
#[derive(Default)]
pub(super) struct Retries {
    count: u32,
}

impl Retries {
    /// Waits, and says whether to try again. False at once: this error does not pass, or it has had its time.
    pub(super) async fn outlast(&mut self, driver: &Driver, os: i32) -> bool {
        if !passes(os) || self.count == TRIES_MAX {
            return false;
        }
        let pause = PAUSE_MAX.min(PAUSE_MIN * 2u32.pow(self.count));
        self.count += 1;
        // In a box: nearly no request has to wait here.
        Box::pin(driver.sleep(pause)).await;
        true
    }

    #[cfg(test)]
    pub(super) const TRIES_MAX: u32 = TRIES_MAX;
}

/// Whether the errno says something about the system at this moment, and nothing about the device.
fn passes(os: i32) -> bool {
    matches!(os, libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS)
}
