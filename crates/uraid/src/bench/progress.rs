//! How far a bench is, on a terminal.
//! Owns: [`Progress`]. Not here: what is done meanwhile. Invariant: nothing is shown of what takes less than two
//! seconds, nor where stderr is no terminal; the line is gone when the work is done.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const FIRST_AFTER: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_millis(200);

/// A line on stderr that moves.
pub struct Progress {
    what: String,
    began: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// Nothing is shown yet.
    pub fn new(what: &str) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { what: what.to_owned(), began: Instant::now(), shown: None, is_terminal }
    }

    /// `done` of `total` are done: shows it when it is time to.
    pub fn show(&mut self, done: u64, total: u64) {
        let now = Instant::now();
        let is_due = self.shown.map_or(now - self.began >= FIRST_AFTER, |last| now - last >= PERIOD);
        if self.is_terminal && is_due {
            self.shown = Some(now);
            self.write(&line(&self.what, done, total, now - self.began));
        }
    }

    /// What takes so long in all is shown from the beginning: the work runs in steps too long to wait for.
    pub fn show_from_start(&mut self, done: u64, total: u64, expected: Duration) {
        if self.is_terminal && expected >= FIRST_AFTER {
            self.shown = Some(Instant::now());
            let left = expected.mul_f64(1.0 - done as f64 / total.max(1) as f64);
            self.write(&format!("{}: {} of {}, {:.0} s left", self.what, done, total, left.as_secs_f64()));
        }
    }

    /// Takes the line away.
    pub fn finish(self) {
        if self.shown.is_some() {
            self.write("");
        }
    }

    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        // A closed stderr is no reason to end a measurement.
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
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
