//! The progress of a pass, on stderr.
//! Owns: [`Moving`], the progress line of a pass with speed and time left. Not here: the pass (`engine`).
//! Invariant: a terminal shows one line that is updated. A file or a pipe gets a plain line now and then, and the last
//! one.

use crate::{log, warn};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use uraid_block::Sectors;
use uraid_block::sizes;
use uraid_engine::Progress;

const TERMINAL_PERIOD: Duration = Duration::from_millis(100);
const PLAIN_PERIOD: Duration = Duration::from_secs(5);
/// A shorter pass shows no line.
const FIRST_AFTER: Duration = Duration::from_millis(300);
const BAR_CELLS: u64 = 20;

/// A text on stderr that changes during a pass: in place on a terminal, else as a line now and then.
pub(crate) struct Moving {
    began: Instant,
    first_after: Duration,
    /// When it was last shown, since the start.
    shown: Option<Duration>,
    is_terminal: bool,
}

impl Moving {
    /// Shows nothing for work that ends before `first_after`.
    pub(crate) fn new(first_after: Duration) -> Moving {
        let is_terminal = std::io::stderr().is_terminal();
        Moving { began: Instant::now(), first_after, shown: None, is_terminal }
    }

    /// The elapsed time, if it is time to show something.
    pub(crate) fn due(&mut self) -> Option<Duration> {
        let elapsed = self.began.elapsed();
        self.is_due(elapsed).then_some(elapsed)
    }

    fn is_due(&mut self, elapsed: Duration) -> bool {
        let period = if self.is_terminal { TERMINAL_PERIOD } else { PLAIN_PERIOD };
        let is_due = elapsed >= self.shown.map_or(self.first_after, |last| last + period);
        if is_due {
            self.shown = Some(elapsed);
        }
        is_due
    }

    /// Whether stderr is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows it now.
    pub(crate) fn show(&mut self, text: &str) {
        self.shown.get_or_insert(Duration::ZERO);
        if self.is_terminal {
            log::raw(format!("\r\x1b[K{text}"));
        } else {
            warn(text);
        }
    }

    /// Removes the line from a terminal.
    pub(crate) fn clear(&self) {
        if self.is_terminal && self.shown.is_some() {
            log::raw("\r\x1b[K".to_owned());
        }
    }
}

/// The progress line of one pass.
pub(crate) struct ProgressLine {
    name: String,
    began_at: Option<Sectors>,
    moving: Moving,
}

impl ProgressLine {
    /// A line for the pass `name` (`resync`); nothing is shown yet.
    pub(crate) fn new(name: &str) -> ProgressLine {
        ProgressLine { name: name.to_owned(), began_at: None, moving: Moving::new(FIRST_AFTER) }
    }

    /// `done` of `total` sectors of each member are done: shows it when it is time to.
    pub(crate) fn show(&mut self, done: Sectors, total: Sectors) {
        let began_at = *self.began_at.get_or_insert(done);
        if let Some(elapsed) = self.moving.due() {
            self.moving.show(&line(&self.name, done, total, done.0.saturating_sub(began_at.0), elapsed));
        }
    }

    /// The pass has ended: removes the line and reports the result.
    pub(crate) fn finish(self, last: &Progress) {
        self.moving.clear();
        let (name, total, took) = (&self.name, sizes::binary(last.total), duration(self.moving.began.elapsed()));
        let mut text = format!("{name} done: {total} in {took}, {} corrected", sizes::binary(last.corrected));
        if !last.skipped.is_zero() {
            text = format!("{text}, {} without redundancy left to check", sizes::binary(last.skipped));
        }
        if !last.unreadable.is_zero() {
            text = format!("{text}, {} unreadable: the array stays marked dirty", sizes::binary(last.unreadable));
        }
        warn(&text);
    }

    /// The pass was given up: removes the line.
    pub(crate) fn interrupted(self) {
        self.moving.clear();
    }
}

/// `resync [==>.......] 12.0% (1024/8192 KiB) finish=1.2min speed=200340K/sec`, in the words of /proc/mdstat.
/// `fresh` sectors were done in `elapsed`.
fn line(name: &str, done: Sectors, total: Sectors, fresh: u64, elapsed: Duration) -> String {
    let total = total.0.max(1);
    let done = done.0.min(total);
    let permille = (u128::from(done) * 1000 / u128::from(total)) as u64;
    let cells = (permille * BAR_CELLS / 1000) as usize;
    let bar = format!("{:.<20}", format!("{}>", "=".repeat(cells.min(19))));
    let per_second = (u128::from(fresh) * 1_000_000 / elapsed.as_micros().max(1)) as u64;
    let finish = (total - done).checked_div(per_second).map_or("?".to_owned(), duration_of);
    let (whole, tenth) = (permille / 10, permille % 10);
    let speed = per_second / 2;
    format!("{name} [{bar}] {whole}.{tenth}% ({}/{} KiB) finish={finish} speed={speed}K/sec", done / 2, total / 2)
}

fn duration(took: Duration) -> String {
    if took < Duration::from_secs(10) { format!("{:.1} s", took.as_secs_f64()) } else { duration_of(took.as_secs()) }
}

fn duration_of(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}min", seconds / 60),
        _ => format!("{}h{:02}min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_how_fast_and_how_long() {
        let text = line("resync", Sectors(1024), Sectors(8192), 1024, Duration::from_secs(1));
        assert_eq!(text, "resync [==>.................] 12.5% (512/4096 KiB) finish=7s speed=512K/sec");
    }

    #[test]
    fn a_terminal_sees_it_move_and_a_file_sees_a_line_now_and_then() {
        let first_after = Duration::from_secs(2);
        let shown = |is_terminal| {
            let mut moving = Moving { began: Instant::now(), first_after, shown: None, is_terminal };
            (0..80).filter(|n| moving.is_due(Duration::from_millis(n * 100))).collect::<Vec<_>>()
        };
        assert_eq!(shown(true), (20..80).collect::<Vec<_>>());
        assert_eq!(shown(false), [20, 70]);
    }

    #[test]
    fn a_pass_over_nothing_and_one_that_stands_still_give_a_line() {
        let text = line("resync", Sectors(0), Sectors(0), 0, Duration::ZERO);
        assert!(text.contains("finish=?"), "{text}");
        assert!(line("resync", Sectors(9), Sectors(9), 9, Duration::ZERO).contains("100.0%"));
    }
}
