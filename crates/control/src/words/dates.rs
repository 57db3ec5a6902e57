//! Dates and times as text.
//! Owns: seconds since 1970 as `Tue Nov 14 22:13:20 2023 UTC`, and the time of day for log lines. Not here: time zones:
//! all times are UTC, so that two machines show one superblock alike.
//! Invariant: any number gives a text.
//! Spec: days from civil, H. Hinnant, "chrono-compatible low-level date algorithms". No crate for dates: `jiff` and
//! `time` end with the year 9999, and a superblock's 40 bits of seconds with 36812. `chrono` would save the ten lines
//! of `civil`, but needs four crates and a second case for times that it cannot show.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The moment in the order that mdadm and ctime(3) print it.
pub fn utc(seconds: u64) -> String {
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let weekday = DAYS[(days % 7) as usize];
    let month = MONTHS[month as usize - 1];
    format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year} UTC")
}

/// `2023-11-14T22:13:20Z`, for lines on stderr.
pub fn stamp(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Now, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Year, month from 1, day of the month from 1 of a day counted from 1970-01-01. The year is taken to start in March, so the leap
/// day is its last day, and month lengths follow `(153 m + 2) / 5`.
pub fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(utc(0), "Thu Jan  1 00:00:00 1970 UTC");
        assert_eq!(utc(1_700_000_000), "Tue Nov 14 22:13:20 2023 UTC");
        assert_eq!(utc(951_827_696), "Tue Feb 29 12:34:56 2000 UTC");
        assert_eq!(stamp(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(stamp(4_107_542_400), "2100-03-01T00:00:00Z", "2100 has no leap day");
    }

    #[test]
    fn the_largest_superblock_time_gives_a_text() {
        assert!(utc((1 << 40) - 1).ends_with("UTC"));
        assert!(utc(u64::MAX).ends_with("UTC"));
    }
}
