//! The progress of a pass, on stderr.
//! Owns: [`Moving`], [`ProgressLine`], [`PassLines`]. Not here: the pass (`engine`), its speed and time left (`pace`).
//! Invariant: a terminal shows one line that is updated. A file or a pipe gets a plain line now and then, and the last
//! one.

use crate::lines::pace::Pace;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use uraid_block::Sectors;
use uraid_block::sizes;
use uraid_control::log::{self, warn};
use uraid_control::report::{PassProgress, duration};
use uraid_engine::Progress;

const TERMINAL_PERIOD: Duration = Duration::from_millis(100);
const PLAIN_PERIOD: Duration = Duration::from_secs(5);
/// A shorter pass shows no line.
const FIRST_AFTER: Duration = Duration::from_millis(300);

/// A text on stderr that changes during a pass: in place on a terminal, else as a line now and then.
pub struct Moving {
    began: Instant,
    first_after: Duration,
    /// When the text was last shown, counted from the start.
    shown: Option<Duration>,
    is_terminal: bool,
}

impl Moving {
    /// Shows nothing for work that ends before `first_after`.
    pub fn new(first_after: Duration) -> Moving {
        let is_terminal = std::io::stderr().is_terminal();
        Moving { began: Instant::now(), first_after, shown: None, is_terminal }
    }

    /// The elapsed time, if it is time to show something.
    pub fn due(&mut self) -> Option<Duration> {
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
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows the text now.
    pub fn show(&mut self, text: &str) {
        self.shown.get_or_insert(Duration::ZERO);
        if self.is_terminal {
            log::raw(format!("\r\x1b[K{text}"));
        } else {
            warn(text);
        }
    }

    /// Removes the line from a terminal.
    pub fn clear(&self) {
        if self.is_terminal && self.shown.is_some() {
            log::raw("\r\x1b[K".to_owned());
        }
    }
}

/// The progress line of one long piece of work.
pub struct ProgressLine {
    name: String,
    pace: Pace,
    /// Of what takes time.
    work_pace: Pace,
    moving: Moving,
}

impl ProgressLine {
    /// A line for `name` (`copy`); nothing is shown yet.
    pub fn new(name: &str) -> ProgressLine {
        let moving = Moving::new(FIRST_AFTER);
        ProgressLine { name: name.to_owned(), pace: Pace::new(), work_pace: Pace::new(), moving }
    }

    /// `done` of `total` sectors are done. Updates the line now and then.
    pub(crate) fn show(&mut self, done: Sectors, total: Sectors) {
        self.pace.note(done);
        if self.moving.due().is_some() {
            self.moving.show(&line(&self.name, &self.pace.progress(done, total)));
        }
    }

    /// The same where only a part of it takes time, as holes are passed over: `worked` of about `work` sectors of that
    /// part are done. The time left is the part's.
    pub(crate) fn show_work(&mut self, (done, total): (Sectors, Sectors), worked: Sectors, work: Sectors) {
        self.pace.note(done);
        self.work_pace.note(worked);
        if self.moving.due().is_some() {
            let mut progress = self.pace.progress(done, total);
            // The estimate may be too low: then all that is left may be work.
            let left = if worked < work { (work - worked).min(total - done) } else { total - done };
            progress.seconds_left = self.work_pace.progress(worked, worked + left).seconds_left;
            self.moving.show(&line(&self.name, &progress));
        }
    }

    /// The work has ended or was given up: removes the line.
    pub fn clear(self) {
        self.moving.clear();
    }
}

/// The progress lines of the passes over one array, one after the other.
pub struct PassLines {
    /// Stands before each line: `home: `.
    prefix: String,
    current: Option<(Progress, ProgressLine)>,
}

impl PassLines {
    /// Nothing is shown yet.
    pub fn new(prefix: &str) -> PassLines {
        PassLines { prefix: prefix.to_owned(), current: None }
    }

    /// A pass is this far. If it is of another kind than the last one, that has ended.
    pub fn show(&mut self, progress: &Progress) {
        let line = match self.current.take() {
            Some((last, line)) if last.kind == progress.kind => line,
            Some((last, line)) => {
                self.say_end(&last, line);
                ProgressLine::new(&self.name(progress))
            }
            None => ProgressLine::new(&self.name(progress)),
        };
        let (_, line) = self.current.insert((*progress, line));
        line.show(progress.done, progress.total);
    }

    /// The last pass has ended: removes its line and reports the result.
    pub(crate) fn finish(mut self, last: &Progress) {
        let line = self.current.take().map_or_else(|| ProgressLine::new(&self.name(last)), |(_, line)| line);
        self.say_end(last, line);
    }

    /// The pass was given up: removes its line.
    pub fn interrupted(self) {
        if let Some((_, line)) = self.current {
            line.clear();
        }
    }

    fn name(&self, progress: &Progress) -> String {
        format!("{}{}", self.prefix, progress.kind.names().word)
    }

    fn say_end(&self, last: &Progress, line: ProgressLine) {
        let (name, total) = (self.name(last), sizes::binary(last.total));
        let mut text = format!("{name} done: {total} in {}", precise(line.moving.began.elapsed()));
        line.clear();
        if last.kind.names().always_tells_corrected || !last.corrected.is_zero() {
            text = format!("{text}, {} corrected", sizes::binary(last.corrected));
        }
        if !last.skipped.is_zero() {
            text = format!("{text}, {} without redundancy left to check", sizes::binary(last.skipped));
        }
        if !last.listed.is_zero() {
            let lacking = sizes::binary(last.listed);
            text = format!("{text}, {lacking} that no member could give: the new member's bad-block list names them");
        }
        if !last.unreadable.is_zero() {
            let what = last.kind.names().if_unreadable;
            text = format!("{text}, {} unreadable: {what}", sizes::binary(last.unreadable));
        }
        if !last.unknown.is_zero() {
            let unknown = sizes::binary(last.unknown);
            text = format!(
                "{text}; {unknown} of it lie in stripes that were being written at the crash, as the bitmap says, and \
                 cannot be told without the lost member: restart with --force to accept what parity gives"
            );
        }
        warn(&text);
    }
}

/// `resync [==>..................] 12.5% (1024/8192 KiB) finish=90s speed=200340K/sec`: as in /proc/mdstat, for people.
pub fn line(name: &str, progress: &PassProgress) -> String {
    let (bar, percent, speed) = (progress.bar(), progress.percent(), progress.speed());
    let finish = progress.time_left().unwrap_or_else(|| "?".to_owned());
    let (done, total) = (progress.done / 2, progress.total / 2);
    format!("{name} {bar} {percent} ({done}/{total} KiB) finish={finish} speed={speed}")
}

fn precise(took: Duration) -> String {
    if took < Duration::from_secs(10) { format!("{:.1} s", took.as_secs_f64()) } else { duration(took.as_secs()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_how_fast_and_how_long() {
        let of = |sectors_per_second, seconds_left| {
            line("resync", &PassProgress { done: 1024, total: 8192, sectors_per_second, seconds_left })
        };
        let text = of(Some(1024), Some(7));
        assert_eq!(text, "resync [==>..................] 12.5% (512/4096 KiB) finish=7s speed=512K/sec");
        assert!(of(None, None).ends_with(" finish=? speed=0K/sec"));
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
}
