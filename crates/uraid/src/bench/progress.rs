//! The progress of a bench.
//! Owns: [`Progress`]. Not here: the work, where and when a text is shown (`crate::progress`).
//! Invariant: nothing is shown for work of less than two seconds. A terminal's line is removed when the work is done.

use crate::progress::Moving;
use std::time::Duration;

const FIRST_AFTER: Duration = Duration::from_secs(2);

/// A line on stderr that moves.
pub struct Progress {
    what: String,
    moving: Moving,
}

impl Progress {
    /// Nothing is shown yet.
    pub fn new(what: &str) -> Progress {
        Progress { what: what.to_owned(), moving: Moving::new(FIRST_AFTER) }
    }

    /// `done` of `total` are done: shows it when it is time to.
    pub fn show(&mut self, done: u64, total: u64) {
        if let Some(elapsed) = self.moving.due() {
            self.moving.show(&line(&self.what, done, total, elapsed));
        }
    }

    /// Shows work with this expected time from its start, on a terminal: its steps are too long to wait for the first
    /// one.
    pub fn show_from_start(&mut self, done: u64, total: u64, expected: Duration) {
        if self.moving.is_terminal() && expected >= FIRST_AFTER {
            let left = expected.mul_f64(1.0 - done as f64 / total.max(1) as f64);
            self.moving.show(&format!("{}: {done} of {total}, {:.0} s left", self.what, left.as_secs_f64()));
        }
    }

    /// Takes the line away.
    pub fn finish(self) {
        self.moving.clear();
    }
}

fn line(what: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let share = done as f64 / total.max(1) as f64;
    let left = if share > 0.0 { elapsed.as_secs_f64() * (1.0 - share) / share } else { 0.0 };
    format!("{what}: {:.0} %, {left:.0} s left", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_how_long() {
        assert_eq!(line("filling", 1, 4, Duration::from_secs(5)), "filling: 25 %, 15 s left");
        assert_eq!(line("filling", 0, 0, Duration::from_secs(5)), "filling: 0 %, 0 s left");
    }
}
