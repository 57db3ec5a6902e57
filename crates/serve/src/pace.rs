//! How far a pass is, how fast, and when it ends.
//! Owns: [`Pace`]: its progress over the last half minute; [`PassProgress`]: the figures, and their parts of a line.
//! Not here: the pass (`engine`), which pass it is (`report`), when a line is shown (`progress`).
//! Invariant: speed and time left are computed here only, so that all reports and lines agree.
//! Spec: docs/md/behaviour.md#procmdstat.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use uraid_block::Sectors;

/// As in md, the speed is the average over the last 30 s; this period moves on in steps of 3 s.
const STEP: Duration = Duration::from_secs(3);
const STEPS_MAX: usize = 10;
/// Less time says nothing about the speed: a running pass reports five times a second.
const TIME_MIN: Duration = Duration::from_millis(300);
const BAR_CELLS: u64 = 20;

/// How far a pass is. Lengths in sectors: of each member on parity levels, of the array on mirrors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PassProgress {
    /// What is passed.
    pub done: u64,
    /// All that there is to pass.
    pub total: u64,
    /// Over the last half minute; `None` if the pass has just begun, or waits.
    #[serde(default)]
    pub sectors_per_second: Option<u64>,
    /// At that speed; `None` if the pass does not move.
    #[serde(default)]
    pub seconds_left: Option<u64>,
}

impl PassProgress {
    fn new(done: Sectors, total: Sectors, sectors_per_second: Option<u64>) -> PassProgress {
        let left = total.0.saturating_sub(done.0);
        let seconds_left = sectors_per_second.filter(|&speed| speed > 0).map(|speed| left.div_ceil(speed));
        PassProgress { done: done.0, total: total.0, sectors_per_second, seconds_left }
    }

    /// Of 1000, rounded down: a pass that is not over is never shown as complete.
    pub(crate) fn permille(&self) -> u64 {
        let (done, total) = (u128::from(self.done), u128::from(self.total));
        if done >= total { 1000 } else { (done * 1000 / total) as u64 }
    }

    /// `[==>..................]`, as in /proc/mdstat: 20 cells and the arrow.
    pub fn bar(&self) -> String {
        let cells = (self.permille() * BAR_CELLS / 1000) as usize;
        format!("[{}>{}]", "=".repeat(cells), ".".repeat(BAR_CELLS as usize - cells))
    }

    /// `12.5%`
    pub fn percent(&self) -> String {
        let permille = self.permille();
        format!("{}.{}%", permille / 10, permille % 10)
    }

    /// `200340K/sec`
    pub fn speed(&self) -> String {
        format!("{}K/sec", self.sectors_per_second.unwrap_or(0) / 2)
    }

    /// `127.5min`, as in /proc/mdstat: always a number. Where the pass does not move, it is that of the kernel: as if 16 KiB
    /// were done each second.
    pub fn minutes_left(&self) -> String {
        let seconds = self.seconds_left.unwrap_or(self.total.saturating_sub(self.done) / 32);
        format!("{}.{}min", seconds / 60, seconds % 60 / 6)
    }

    /// `90s`, `127min`, `3h04min`; `None` if it does not move.
    pub(crate) fn time_left(&self) -> Option<String> {
        self.seconds_left.map(duration)
    }
}

/// A number of seconds in the largest units that are still exact enough: `90s`, `127min`, `3h04min`.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}min", seconds / 60),
        _ => format!("{}h{:02}min", seconds / 3600, seconds / 60 % 60),
    }
}

/// The last half minute of a pass.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    /// Pairs of the time since `began` and how far the pass was then; at least [`STEP`] apart.
    marks: VecDeque<(Duration, Sectors)>,
}

impl Pace {
    /// Nothing is known yet.
    pub(crate) fn new() -> Pace {
        Pace { began: Instant::now(), marks: VecDeque::new() }
    }

    /// The pass is this far now.
    pub(crate) fn note(&mut self, done: Sectors) {
        self.note_at(self.began.elapsed(), done);
    }

    /// No pass runs, or it waits.
    pub(crate) fn forget(&mut self) {
        self.marks.clear();
    }

    /// The figures of a pass that is this far now.
    pub(crate) fn progress(&self, done: Sectors, total: Sectors) -> PassProgress {
        PassProgress::new(done, total, self.speed_at(self.began.elapsed(), done))
    }

    fn note_at(&mut self, at: Duration, done: Sectors) {
        // Another pass has begun.
        if self.marks.back().is_some_and(|(_, before)| done < *before) {
            self.marks.clear();
        }
        if self.marks.back().is_none_or(|(before, _)| at >= *before + STEP) {
            self.marks.push_back((at, done));
        }
        if self.marks.len() > STEPS_MAX {
            self.marks.pop_front();
        }
    }

    /// In sectors per second.
    fn speed_at(&self, at: Duration, done: Sectors) -> Option<u64> {
        let (from, before) = self.marks.front()?;
        let took = at.checked_sub(*from).filter(|took| *took >= TIME_MIN)?;
        let fresh = u128::from(done.0.checked_sub(before.0)?);
        u64::try_from(fresh * 1_000_000 / took.as_micros()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_speed_is_that_of_the_last_half_minute() {
        let mut pace = Pace::new();
        pace.note_at(seconds(0), Sectors(5000));
        assert_eq!(pace.speed_at(Duration::from_millis(299), Sectors(5100)), None, "it has just begun");
        assert_eq!(pace.speed_at(seconds(1), Sectors(5100)), Some(100), "what was done before does not count");
        // 100 a second for five minutes, then 1000.
        for at in 1..=300 {
            pace.note_at(seconds(at), Sectors(5000 + 100 * at));
        }
        assert_eq!(pace.speed_at(seconds(300), Sectors(35_000)), Some(100));
        for at in 301..=340 {
            pace.note_at(seconds(at), Sectors(35_000 + 1000 * (at - 300)));
        }
        assert_eq!(pace.speed_at(seconds(340), Sectors(75_000)), Some(1000));
        // It stands still, and nothing is noted meanwhile.
        let slow = pace.speed_at(seconds(400), Sectors(75_000)).expect("it is known");
        assert!(slow < 400, "{slow}");
        assert!(pace.marks.len() <= STEPS_MAX);
    }

    #[test]
    fn another_pass_begins_anew() {
        let mut pace = Pace::new();
        pace.note_at(seconds(0), Sectors(0));
        pace.note_at(seconds(10), Sectors(9000));
        pace.note_at(seconds(20), Sectors(100));
        assert_eq!(pace.speed_at(seconds(22), Sectors(300)), Some(100));
        assert_eq!(pace.speed_at(seconds(22), Sectors(50)), None, "a third one, which is not noted yet");
        pace.forget();
        assert_eq!(pace.speed_at(seconds(30), Sectors(400)), None);
    }

    /// The figures of docs/md/behaviour.md.
    #[test]
    fn figures_are_those_of_mdstat() {
        let of = |done: u64, speed| PassProgress::new(Sectors(2 * done), Sectors(2 * 292_945_152), speed);
        let progress = of(37_043_392, Some(2 * 33_440));
        assert_eq!((progress.percent().as_str(), progress.speed().as_str()), ("12.6%", "33440K/sec"));
        assert_eq!(progress.bar(), "[==>..................]");
        assert_eq!(progress.minutes_left(), "127.5min");
        assert_eq!(progress.time_left().as_deref(), Some("2h07min"));
        let (begun, over) = (of(0, None), of(292_945_152, Some(1)));
        assert_eq!((begun.percent(), begun.bar()), ("0.0%".to_owned(), format!("[>{}]", ".".repeat(20))));
        assert_eq!(
            (begun.speed(), begun.minutes_left(), begun.time_left()),
            ("0K/sec".into(), "305151.2min".into(), None)
        );
        assert_eq!((over.percent(), over.bar()), ("100.0%".to_owned(), format!("[{}>]", "=".repeat(20))));
        assert_eq!((over.minutes_left(), over.time_left().as_deref()), ("0.0min".to_owned(), Some("0s")));
        // One sector is left: it is not complete.
        assert_eq!(PassProgress::new(Sectors(u64::MAX - 1), Sectors(u64::MAX), Some(0)).percent(), "99.9%");
        assert_eq!(PassProgress::new(Sectors(0), Sectors(0), None).percent(), "100.0%", "a pass over nothing");
    }
}
