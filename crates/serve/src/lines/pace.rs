//! How far a pass is, how fast, and when it ends.
//! Owns: [`Pace`]: its progress over the last half minute. Not here: the pass (`engine`), the figures in a report
//! (`PassProgress`), when a line is shown (`progress`).
//! Invariant: speed and time left are computed here only, so that all reports and lines agree.
//! Spec: docs/md/behaviour.md#procmdstat.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use uraid_block::Sectors;
use uraid_control::report::PassProgress;

/// As in md, the speed is the average over the last 30 s; this period moves on in steps of 3 s.
const STEP: Duration = Duration::from_secs(3);
const STEPS_MAX: usize = 10;
/// Less time says nothing about the speed: a running pass reports five times a second.
const TIME_MIN: Duration = Duration::from_millis(300);

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
}
