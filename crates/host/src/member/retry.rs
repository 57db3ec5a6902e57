//! Transient errors: the request is retried, and the member is not failed for them.
//! Owns: [`Retries`]: which errors are transient, how often and after which pauses to retry. Not here: the request
//! (`file`).
//! Invariant: retries end. A device that keeps giving such an error is reported like any other.

use crate::ring::Driver;
use std::time::Duration;

/// The most retries of one request.
const TRIES_MAX: u32 = 12;
/// The pause before the first retry. Each pause is twice as long as the one before, up to [`PAUSE_MAX`]. All pauses
/// together take 0.6 s: enough for writeback to free memory (about 10 ms), and less than a disk needs to recover a bad
/// sector.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How often one request was retried.
#[derive(Default)]
pub(super) struct Retries {
    count: u32,
}

impl Retries {
    /// Waits if a retry makes sense, and returns true. Returns false at once if the error is not transient or the
    /// retries are used up.
    pub(super) async fn wait_to_retry(&mut self, driver: &Driver, os: i32) -> bool {
        if !is_transient(os) || self.count == TRIES_MAX {
            return false;
        }
        let pause = PAUSE_MAX.min(PAUSE_MIN * 2u32.pow(self.count));
        self.count += 1;
        // Boxed to keep the request future small: almost no request waits here.
        Box::pin(driver.sleep(pause)).await;
        true
    }

    #[cfg(test)]
    pub(super) const TRIES_MAX: u32 = TRIES_MAX;
}

/// Whether the errno is about the system's current state, not about the device.
fn is_transient(os: i32) -> bool {
    matches!(os, libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS)
}
