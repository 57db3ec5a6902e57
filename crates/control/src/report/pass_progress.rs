//! How far a pass is, how fast it goes and when it ends, in a report.
//! Owns: [`PassProgress`]: the figures, and their parts of a line. Not here: which pass it is (`pass`), who measures the
//! speed (`serve`).
//! Invariant: speed and time left are put into words here only, so that all reports and lines agree.
//! Spec: docs/md/behaviour.md#procmdstat.

use serde::{Deserialize, Serialize};
use uraid_block::Sectors;

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
    /// The figures of a pass that has done so much of `total`, at this speed.
    pub fn new(done: Sectors, total: Sectors, sectors_per_second: Option<u64>) -> PassProgress {
        let left = total.0.saturating_sub(done.0);
        let seconds_left = sectors_per_second.filter(|&speed| speed > 0).map(|speed| left.div_ceil(speed));
        PassProgress { done: done.0, total: total.0, sectors_per_second, seconds_left }
    }

    /// Of 1000, rounded down: a pass that is not over is never shown as complete.
    pub fn permille(&self) -> u64 {
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
    pub fn time_left(&self) -> Option<String> {
        self.seconds_left.map(duration)
    }
}

/// A number of seconds in the largest units that are still exact enough: `90s`, `127min`, `3h04min`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}min", seconds / 60),
        _ => format!("{}h{:02}min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
