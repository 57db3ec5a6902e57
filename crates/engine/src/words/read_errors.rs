//! The number of a member's recent read errors.
//! Owns: [`ReadErrors`]: the count, its decay, the sectors it counted. Not here: which errors are counted, what follows
//! from too many (`health`).
//! Invariant: bounded memory. A sector counts once as long as it is remembered. A clock that steps back counts as no
//! time.
//!
//! ```text
//!   hours since the last one     0    1    2    3 ...      as in md, the count is halved for every whole hour
//!   20 errors count as          20   10    5    2
//! ```

use uraid_block::{Range, Tick};

/// How many ranges are remembered. A further one replaces the oldest.
const RANGES_MAX: usize = 64;
const HOUR_NANOS: u64 = 3_600_000_000_000;

/// The read errors of one member.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReadErrors {
    count: u32,
    /// When the last one was counted.
    last: Tick,
    /// The ranges of the errors of the last hour.
    ranges: Vec<Range>,
    /// The index of the range that is replaced next.
    oldest: usize,
}

impl ReadErrors {
    /// Counts the failed read of a range of the member, and returns the current count.
    ///
    /// A range that overlaps a remembered one is not counted: a bad sector that could neither be written again nor
    /// listed, and is read again and again, must not reach the limit. Such a read does not update the time either:
    /// otherwise the count of older errors would not be halved.
    pub(crate) fn note(&mut self, now: Tick, range: Range) -> u32 {
        assert!(!range.length.is_zero(), "a read that failed was of some sector");
        assert!(self.ranges.len() <= RANGES_MAX && self.oldest < RANGES_MAX);
        let hours = now.0.saturating_sub(self.last.0) / HOUR_NANOS;
        if hours > 0 {
            self.count = u32::try_from(hours).ok().and_then(|hours| self.count.checked_shr(hours)).unwrap_or(0);
            self.ranges.clear();
            self.oldest = 0;
        }
        if self.ranges.iter().any(|known| known.overlaps(range)) {
            return self.count;
        }
        self.count = self.count.saturating_add(1);
        self.last = self.last.max(now);
        if self.ranges.len() < RANGES_MAX {
            self.ranges.push(range);
        } else {
            self.ranges[self.oldest] = range;
            self.oldest = (self.oldest + 1) % RANGES_MAX;
        }
        assert!(self.count > 0, "this error counts");
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{Sector, Sectors};

    fn sector(at: u64) -> Range {
        Range::new(Sector(at), Sectors(1))
    }

    fn hours(hours: u64) -> Tick {
        Tick(7 + hours * HOUR_NANOS)
    }

    /// A member with `count` errors, all of hour 0.
    fn with(count: u64) -> ReadErrors {
        let mut errors = ReadErrors::default();
        for n in 0..count {
            assert_eq!(u64::from(errors.note(hours(0), sector(n))), n + 1);
        }
        errors
    }

    #[test]
    fn every_count_is_halved_for_every_whole_hour() {
        for count in 0..=300_u64 {
            let errors = with(count);
            for passed in 0..=70_u64 {
                let left = if passed < 64 { count >> passed } else { 0 };
                let now = errors.clone().note(hours(passed), sector(1 << 20));
                assert_eq!(u64::from(now), left + 1, "{count} errors, {passed} hours later");
                if passed > 0 && count > 0 {
                    let almost = Tick(hours(passed).0 - 1);
                    let before = errors.clone().note(almost, sector(1 << 20));
                    assert_eq!(
                        u64::from(before),
                        (count >> (passed - 1).min(63)) + 1,
                        "{count}, almost {passed} hours"
                    );
                }
            }
        }
    }

    #[test]
    fn the_count_ends_at_the_largest_number_and_at_zero() {
        let mut errors = ReadErrors { count: u32::MAX, ..ReadErrors::default() };
        assert_eq!(errors.note(Tick(1), sector(0)), u32::MAX);
        assert_eq!(errors.note(Tick(u64::MAX), sector(0)), 1, "five centuries later");
    }

    #[test]
    fn a_sector_counts_once_an_hour_and_keeps_no_other_error_alive() {
        let mut errors = with(8);
        for minute in 0..60 {
            assert_eq!(errors.note(Tick(hours(0).0 + minute * HOUR_NANOS / 60), sector(3)), 8);
        }
        assert_eq!(errors.note(hours(1), sector(3)), 5, "half of eight, and itself");
        assert_eq!(errors.note(hours(1), sector(3)), 5);
        // One bad sector that is read all day counts once.
        for hour in 2..100 {
            assert!(errors.note(hours(hour), sector(3)) <= 3);
        }
    }

    #[test]
    fn every_way_to_overlap_is_seen_and_neighbours_are_not() {
        let range = |at: u64, length: u64| Range::new(Sector(at), Sectors(length));
        for at in 0..20 {
            for length in 1..8 {
                let mut errors = ReadErrors::default();
                assert_eq!(errors.note(hours(0), range(8, 4)), 1);
                let is_apart = at + length <= 8 || at >= 12;
                assert_eq!(errors.note(hours(0), range(at, length)), 1 + u32::from(is_apart), "{at}+{length}");
            }
        }
    }

    #[test]
    fn only_so_many_ranges_are_remembered_and_the_oldest_goes_first() {
        let max = RANGES_MAX as u64;
        let mut errors = with(max);
        assert_eq!(u64::from(errors.note(hours(0), sector(max))), max + 1, "in place of sector 0");
        assert_eq!(u64::from(errors.note(hours(0), sector(1))), max + 1, "still known");
        assert_eq!(u64::from(errors.note(hours(0), sector(0))), max + 2, "forgotten");
        assert_eq!(errors.ranges.len(), RANGES_MAX);
    }

    #[test]
    fn time_that_goes_back_counts_as_none() {
        let mut errors = with(6);
        errors.note(hours(5), sector(100));
        let count = errors.count;
        assert_eq!(errors.note(hours(1), sector(200)), count + 1);
        assert_eq!(errors.last, hours(5));
    }
}
