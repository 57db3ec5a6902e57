//! Times as people type them.
//! Owns: how they are read, and their bounds. Not here: what they are for. Spec: fio's spelling.

use std::time::Duration;

/// `uraid_arrays::SPIN`, as an option's default.
pub const SPIN_TEXT: &str = "50us";

/// How long a member may take, as an option's default: what Linux gives its disks.
pub const MEMBER_TIMEOUT_TEXT: &str = "30s";

/// A running time: `3`, `3s`, `500ms`, `2m`; a bare number is in seconds.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let time = duration(text, "3s, 500ms or 2m")?;
    if time < Duration::from_millis(1) || time > Duration::from_secs(24 * 3600) {
        return Err(format!("{text:?}: expected a time from 1ms to 24 hours"));
    }
    Ok(time)
}

/// How long to busy-poll: `50us`, or `0us`.
pub fn parse_spin(text: &str) -> Result<Duration, String> {
    let time = duration(text, "50us, or 0us for never")?;
    if time > Duration::from_millis(10) {
        return Err(format!("{text:?}: expected at most 10ms"));
    }
    Ok(time)
}

/// How long a member may take: `30s`, or `0` for ever; a bare number is in seconds.
pub fn parse_member_timeout(text: &str) -> Result<Duration, String> {
    let time = duration(text, "30s, 500ms, or 0 for ever")?;
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));
    if !time.is_zero() && !(least..=most).contains(&time) {
        return Err(format!("{text:?}: expected a time from 100ms to 24 hours, or 0 for ever"));
    }
    Ok(time)
}

/// How long to wait for members: `30s`; a bare number is in seconds.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    let time = duration(text, "30s or 5m")?;
    if time > Duration::from_secs(24 * 3600) {
        return Err(format!("{text:?}: expected a time of at most 24 hours"));
    }
    Ok(time)
}

fn duration(text: &str, expected: &str) -> Result<Duration, String> {
    let is_none = || format!("{text:?} is no time, expected {expected}");
    let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let number: u64 = digits.parse().map_err(|_| is_none())?;
    Ok(match unit {
        "" | "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "us" => Duration::from_micros(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(is_none()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_arrays::SPIN;

    #[test]
    fn times_are_read_as_fio_reads_them() {
        assert_eq!(parse_time("3"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_time("50ms"), Ok(Duration::from_millis(50)));
        for text in ["", "s", "3h", "0", "0s", "999us", "99999999999m"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_member_has_its_time_or_all_the_time() {
        let default = Ok(Duration::from_secs(30));
        assert_eq!(
            (parse_member_timeout("0"), parse_member_timeout(MEMBER_TIMEOUT_TEXT)),
            (Ok(Duration::ZERO), default)
        );
        for text in ["99ms", "25000m", "-1", "soon", ""] {
            assert!(parse_member_timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn busy_polling_has_a_bound_and_may_be_off() {
        assert_eq!((parse_spin("0"), parse_spin("0us")), (Ok(Duration::ZERO), Ok(Duration::ZERO)));
        assert_eq!((parse_spin(SPIN_TEXT), parse_spin("10ms")), (Ok(SPIN), Ok(Duration::from_millis(10))));
        for text in ["11ms", "1", "1m", "ever", ""] {
            assert!(parse_spin(text).is_err(), "{text}");
        }
    }
}
