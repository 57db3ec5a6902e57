//! Moments as people type them: a time back from now, or a date.
//! Owns: [`Since`], how it is read. Not here: dates as text (`uraid_control::dates`).
//! Invariant: what is no moment is refused, with what is expected.

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// So many seconds before now.
    Ago(u64),
    /// Seconds since 1970.
    At(u64),
}

impl Since {
    /// In seconds since 1970.
    pub fn seconds(self, now: u64) -> u64 {
        match self {
            Since::Ago(seconds) => now.saturating_sub(seconds),
            Since::At(seconds) => seconds,
        }
    }
}

/// `90s`, `30m`, `2h`, `7d`; `2026-11-30`, `2026-11-30T18:00:00Z`.
pub(super) fn parse(text: &str) -> Result<Since, String> {
    let unknown = || format!("{text:?} is no time, expected 90s, 30m, 2h, 7d, 2026-11-30 or 2026-11-30T18:00:00Z");
    ago(text).or_else(|| at(text)).ok_or_else(unknown)
}

fn ago(text: &str) -> Option<Since> {
    duration(text).map(Since::Ago)
}

/// `90s`, `30m`, `2h`, `7d`, in seconds.
pub(crate) fn duration(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds)
}

fn at(text: &str) -> Option<Since> {
    parse_date(text).map(Since::At)
}

/// `2026-11-30`, `2026-11-30T18:00:00Z`, in seconds since 1970.
pub(crate) fn parse_date(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let parts: Vec<&str> = text.split(by).collect();
        let is_number = |part: &&str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|it| it.is_ascii_digit());
        let numbers: Vec<u64> = parts.iter().filter(|part| is_number(part)).filter_map(|it| it.parse().ok()).collect();
        (numbers.len() == parts.len()).then_some(())?;
        numbers.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.strip_suffix('Z').unwrap_or(time), ':')?;
    let is_in = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    // The first of the next month is as many days behind this one's as this one has.
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    let is_in = is_in && (1..=days(next_year, next_month, 1) - days(year, month, 1)).contains(&day);
    if !is_in || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days since 1970-01-01, by the algorithm of `uraid_control::dates`, the other way.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_control::dates;

    #[test]
    fn dates_are_read_as_they_are_shown() {
        for seconds in [0, 951_827_696, 1_700_000_000, 4_107_542_399] {
            assert_eq!(parse(&dates::stamp(seconds)), Ok(Since::At(seconds)));
        }
        assert_eq!(parse("2023-11-14"), Ok(Since::At(1_699_920_000)));
        assert_eq!(parse("2h"), Ok(Since::Ago(7200)));
        assert_eq!(parse("2024-02-29"), Ok(Since::At(1_709_164_800)));
        assert!(parse("9999-12-31").is_ok());
        for wrong in [
            "",
            "h",
            "1",
            "2w",
            "2026-13-01",
            "2026-02-29",
            "2026-04-31",
            "2026-01-00",
            "0-0-0",
            "2026-1",
            "2026-11-30T25:00:00Z",
            "-1d",
            "99999999999999999999d",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
