//! Where a run shows its tables and its progress.
//! Owns: the trait that a run prints through. Not here: terminals, stdout and stderr, replacing unprintable characters
//! in names: the caller does that.
//! Invariant: figures do not depend on the screen.

use std::time::Duration;

/// Where a run shows what it does.
pub trait Screen: Sync {
    /// Prints a table, or a part of one as soon as it is measured; `text` may have several lines.
    fn print(&self, text: &str);
    /// A line that shows the progress of `what`, until the result is dropped. It shows nothing before its first call.
    fn progress(&self, what: &str) -> Box<dyn Progress>;
    /// A line for the resync of an existing array. The caller calls the result at each step of the resync.
    fn resync(&self) -> Box<dyn FnMut(uraid_engine::Progress)>;
}

/// A line that shows progress.
pub trait Progress {
    /// `done` of `total` are done. Updates the line now and then.
    fn show(&mut self, done: u64, total: u64);
    /// Shows work with this expected time from its start, because its steps are too long to wait for the first one.
    fn show_from_start(&mut self, done: u64, total: u64, expected: Duration);
}
