//! Where a run shows its tables and its progress.
//! Owns: the trait that a run prints through. Not here: terminals, stdout and stderr, replacing unprintable characters
//! in names: the caller does that.
//! Invariant: figures do not depend on it.

use std::time::Duration;

/// Where a run shows what it does.
pub trait Screen: Sync {
    /// Prints a table or a part of one, of several lines, as they are measured.
    fn print(&self, text: &str);
    /// A line that shows how far `what` is, until it is dropped. Nothing is shown yet.
    fn progress(&self, what: &str) -> Box<dyn Progress>;
    /// The same for the resync of an array that exists, to be called with each of its steps.
    fn resync(&self) -> Box<dyn FnMut(uraid_engine::Progress)>;
}

/// A line that moves.
pub trait Progress {
    /// `done` of `total` are done: shows it when it is time to.
    fn show(&mut self, done: u64, total: u64);
    /// Shows work with this expected time from its start: its steps are too long to wait for the first one.
    fn show_from_start(&mut self, done: u64, total: u64, expected: Duration);
}
