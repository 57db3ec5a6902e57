//! Where `uraid bench` shows its tables and its progress: stdout and stderr.
//! Owns: [`Terminal`], the text of a line of progress. Not here: the work (`uraid_bench`), when a text is shown
//! (`uraid_serve::progress`).
//! Invariant: no line is shown for work of less than two seconds. A terminal's line is removed when the work is done.

use std::time::Duration;
use uraid_bench::{Progress, Screen};
use uraid_control::log::print;
use uraid_control::names;
use uraid_serve::progress::{Moving, PassLines};

const FIRST_AFTER: Duration = Duration::from_secs(2);

/// Stdout and stderr.
pub(super) struct Terminal {
    /// Whether tables are wanted.
    pub has_tables: bool,
}

impl Screen for Terminal {
    fn print(&self, text: &str) {
        if self.has_tables {
            print(&names::printable_lines(text));
        }
    }

    fn progress(&self, what: &str) -> Box<dyn Progress> {
        Box::new(Line { what: what.to_owned(), moving: Moving::new(FIRST_AFTER) })
    }

    fn resync(&self) -> Box<dyn FnMut(uraid_engine::Progress)> {
        let mut line = ResyncLine(Some(PassLines::new("")));
        Box::new(move |progress| line.show(progress))
    }
}

/// A line on stderr that shows progress until it is dropped.
struct Line {
    what: String,
    moving: Moving,
}

impl Progress for Line {
    fn show(&mut self, done: u64, total: u64) {
        if let Some(elapsed) = self.moving.due() {
            self.moving.show(&line(&self.what, done, total, elapsed));
        }
    }

    /// Only on a terminal.
    fn show_from_start(&mut self, done: u64, total: u64, expected: Duration) {
        if self.moving.is_terminal() && expected >= FIRST_AFTER {
            let left = expected.mul_f64(1.0 - done as f64 / total.max(1) as f64);
            self.moving.show(&format!("{}: {done} of {total}, {:.0} s left", self.what, left.as_secs_f64()));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.moving.clear();
    }
}

struct ResyncLine(Option<PassLines>);

impl ResyncLine {
    fn show(&mut self, progress: uraid_engine::Progress) {
        if let Some(line) = &mut self.0 {
            line.show(&progress);
        }
    }
}

impl Drop for ResyncLine {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line.interrupted();
        }
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
