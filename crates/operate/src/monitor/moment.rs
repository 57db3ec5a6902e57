//! How long ago something was, also across restarts of the monitor and of the machine, whatever is done to the clock.
//! Owns: [`Moment`]. Not here: dates for people (`uraid_control::dates`).
//! Invariant: within one boot only the time since the boot counts, which nobody can set.

use serde::{Deserialize, Serialize};
use std::fs;
use uraid_control::dates;

/// A moment that can be kept in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Which boot of the machine.
    boot: String,
    /// Seconds since then, those in suspend among them.
    up: u64,
    /// Seconds since 1970, by the clock of that moment.
    wall: u64,
}

impl Moment {
    /// Now.
    pub(crate) fn now() -> Moment {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let uptime = read("/proc/uptime");
        let up = uptime.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
        Moment { boot: read("/proc/sys/kernel/random/boot_id").trim().to_owned(), up, wall: dates::now() }
    }

    /// Whether at least so many seconds lie between this moment and that later one. Across a boot the clock is all there
    /// is; if it went back, it is not known, and the answer is yes.
    pub(crate) fn is_over(&self, seconds: u64, now: &Moment) -> bool {
        if self.boot == now.boot {
            return now.up.saturating_sub(self.up) >= seconds;
        }
        now.wall.checked_sub(self.wall).is_none_or(|passed| passed >= seconds)
    }

    /// Seconds since 1970.
    pub(crate) fn wall(&self) -> u64 {
        self.wall
    }

    /// A moment of a trial.
    #[cfg(test)]
    pub(crate) fn of(boot: &str, up: u64, wall: u64) -> Moment {
        Moment { boot: boot.to_owned(), up, wall }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_changes_nothing_within_a_boot() {
        let told = Moment::of("a", 100, 5_000_000);
        for wall in [0, 5_000_000, 9_000_000] {
            assert!(!told.is_over(60, &Moment::of("a", 159, wall)), "{wall}");
            assert!(told.is_over(60, &Moment::of("a", 160, wall)), "{wall}");
        }
    }

    #[test]
    fn across_boots_the_clock_decides_and_one_that_went_back_says_yes() {
        let told = Moment::of("a", 100, 5_000_000);
        assert!(!told.is_over(60, &Moment::of("b", 999, 5_000_059)));
        assert!(told.is_over(60, &Moment::of("b", 1, 5_000_060)));
        assert!(told.is_over(60, &Moment::of("b", 1, 4_999_999)));
    }

    #[test]
    fn now_is_over_at_once_and_not_in_a_minute() {
        let now = Moment::now();
        assert!(now.is_over(0, &now) && !now.is_over(60, &now) && now.wall() > 1_600_000_000);
    }
}
