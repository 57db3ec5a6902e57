//! When a check of an array is due: the first Sunday of each month, within the hours of a window.
//! Owns: [`Window`], [`Zone`], the slots of the schedule, [`due`]. Not here: what is kept of checks (`uraid_control`), which
//! arrays cannot be checked now (`runner`).
//! Invariant: each slot of the schedule begins at most one check, whatever the clock does: a step back finds the slot taken,
//! and a step forward takes the next one.
//!
//! ```text
//!   slots       first Sunday of November, 01:00       first Sunday of December, 01:00
//!               |                                     |
//!   window      |01:00 ... 06:00|  |01:00 ... 06:00|  ...      a check that is not through goes on in the next night
//! ```

use std::fmt;
use uraid_control::dates;
use uraid_control::protocol::CheckRecord;

const DAY: i64 = 86_400;
/// An array that is younger is not due: it was written as a whole just now, or its resync was.
const AGE_MIN: u64 = 14 * 86_400;

/// Hours of a day: `01:00-06:00`, or over midnight `22:00-05:30`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Minutes from midnight.
    from: u32,
    to: u32,
}

impl fmt::Display for Window {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |minutes: u32| (minutes / 60, minutes % 60);
        let ((from_hour, from_minute), (to_hour, to_minute)) = (of(self.from), of(self.to));
        write!(to, "{from_hour:02}:{from_minute:02}-{to_hour:02}:{to_minute:02}")
    }
}

/// `01:00-06:00`
pub(super) fn parse_window(text: &str) -> Result<Window, String> {
    let wrong = || format!("{text:?} is no window, expected hours such as 01:00-06:00 that differ");
    let minutes = |part: &str| -> Option<u32> {
        let (hour, minute) = part.split_once(':')?;
        let number = |digits: &str, max: u32| {
            let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|number| is_number && *number <= max)
        };
        Some(number(hour, 23)? * 60 + number(minute, 59)?)
    };
    let (from, to) = text.split_once('-').ok_or_else(wrong)?;
    let (from, to) = (minutes(from).ok_or_else(wrong)?, minutes(to).ok_or_else(wrong)?);
    if from == to { Err(wrong()) } else { Ok(Window { from, to }) }
}

impl Window {
    /// Of the nights, as Debian's timers have it.
    pub(super) const NIGHT: Window = Window { from: 60, to: 360 };

    /// Whether the clock is within it.
    pub(super) fn has(self, now: u64, zone: Zone) -> bool {
        let minute = (zone.local(now).rem_euclid(DAY) / 60) as u32;
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

/// How far the local time is ahead of UTC.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Zone {
    /// Seconds.
    pub(super) ahead: i64,
}

impl Zone {
    fn local(self, now: u64) -> i64 {
        now.cast_signed().saturating_add(self.ahead)
    }

    /// From `+0130`, as `date +%z` prints it.
    pub(super) fn parse(text: &str) -> Option<Zone> {
        let (sign, digits) = text.trim().split_at_checked(1)?;
        let number: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
        let seconds = (number / 100 * 60 + number % 100) * 60;
        match sign {
            "+" => Some(Zone { ahead: seconds }),
            "-" => Some(Zone { ahead: -seconds }),
            _ => None,
        }
    }
}

/// The last slot that has begun: the first Sunday of this or the last month, when the window begins. In seconds since 1970.
pub(super) fn last_slot(now: u64, zone: Zone, window: Window) -> u64 {
    let local = zone.local(now).max(0);
    let first_sunday = |day_of_month: i64, today: i64| {
        let first = today - (day_of_month - 1);
        // 1970-01-01 was a Thursday.
        let weekday = (first + 4).rem_euclid(7);
        first + (7 - weekday) % 7
    };
    let begins = |day: i64| day * DAY + i64::from(window.from) * 60;
    let today = local / DAY;
    let (_, _, day_of_month) = dates::civil(today.cast_unsigned());
    let of_month = begins(first_sunday(day_of_month.cast_signed(), today));
    let slot = if of_month <= local {
        of_month
    } else {
        let last_of_before = today - day_of_month.cast_signed();
        let (_, _, days) = dates::civil(last_of_before.max(0).cast_unsigned());
        begins(first_sunday(days.cast_signed(), last_of_before.max(0)))
    };
    (slot - zone.ahead).max(0).cast_unsigned()
}

/// What the schedule says of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Nothing until the next slot.
    No,
    /// A check is to begin in this slot.
    Begin,
    /// The check that has begun is to go on.
    GoOn,
}

/// Whether a check is due. `taken`: the last slot in which one has begun; `slot`: the last that has begun.
pub(super) fn due(record: &CheckRecord, created: u64, taken: Option<u64>, slot: u64, now: u64) -> Due {
    let done = record.complete.as_ref().filter(|fact| fact.ended <= now).is_some_and(|fact| fact.began >= slot);
    let can_go_on = record.partial.as_ref().is_some_and(|fact| fact.result.done > 0);
    match taken {
        _ if done => Due::No,
        Some(taken) if taken >= slot && can_go_on => Due::GoOn,
        // Also after the clock was set back: the slot that it took is over when the clock is there again.
        Some(taken) if taken >= slot => Due::No,
        Some(_) | None if can_go_on => Due::GoOn,
        Some(_) | None if created.saturating_add(AGE_MIN) > now => Due::No,
        Some(_) | None => Due::Begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_control::protocol::{CheckFact, CheckResult};

    const UTC: Zone = Zone { ahead: 0 };

    fn fact(began: u64, ended: u64, end: &str) -> CheckFact {
        let result = CheckResult {
            array: "home".to_owned(),
            kind: "check".to_owned(),
            end: end.to_owned(),
            done: 50,
            total: 100,
            mismatched: 0,
            corrected: 0,
            healed: 0,
            lacking: 0,
            skipped: 0,
            unreadable: 0,
            mismatches: Vec::new(),
        };
        CheckFact { began, ended, seconds: 1, result }
    }

    #[test]
    fn a_slot_is_the_first_sunday_of_the_month_when_the_window_begins() {
        let slot = |now: &str, zone| {
            let at = crate::history::parse_date(now).expect("a date");
            dates::stamp(last_slot(at, zone, Window::NIGHT))
        };
        assert_eq!(slot("2026-11-30T12:00:00Z", UTC), "2026-11-01T01:00:00Z", "the first is a Sunday");
        assert_eq!(slot("2026-12-06T00:59:59Z", UTC), "2026-11-01T01:00:00Z");
        assert_eq!(slot("2026-12-06T01:00:00Z", UTC), "2026-12-06T01:00:00Z");
        assert_eq!(slot("2027-01-01T00:00:00Z", UTC), "2026-12-06T01:00:00Z");
        let tokyo = Zone::parse("+0900\n").expect("a zone");
        assert_eq!(slot("2026-12-05T16:00:00Z", tokyo), "2026-12-05T16:00:00Z", "there it is Sunday, 01:00");
        assert_eq!(slot("2026-12-05T15:59:59Z", tokyo), "2026-10-31T16:00:00Z");
        assert_eq!((Zone::parse("-0330"), Zone::parse("UTC")), (Some(Zone { ahead: -12_600 }), None));
    }

    #[test]
    fn a_window_may_lie_over_midnight() {
        let night = parse_window("22:00-05:30").expect("a window");
        let at = |hour: u64, minute: u64| (hour * 60 + minute) * 60;
        let inside = [at(22, 0), at(23, 59), at(0, 0), at(5, 29)];
        assert!(inside.into_iter().all(|now| night.has(now, UTC)));
        assert!([at(21, 59), at(5, 30), at(12, 0)].into_iter().all(|now| !night.has(now, UTC)));
        assert!(Window::NIGHT.has(at(23, 30), Zone { ahead: 2 * 3600 }));
        assert_eq!(night.to_string(), "22:00-05:30");
        for wrong in ["", "1-6", "01:00", "01:00-01:00", "24:00-06:00", "01:60-06:00", "1:00-6:00", "+1:00-06:00"] {
            assert!(parse_window(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_slot_begins_one_check_and_a_clock_that_steps_begins_no_second_one() {
        let (november, december, day) = (1_793_494_800, 1_796_518_800, 86_400);
        let none = CheckRecord::default();
        assert_eq!(due(&none, 0, None, november, november + 60), Due::Begin);
        assert_eq!(due(&none, november - 13 * day, None, november, november + 60), Due::No, "a new array");
        // It has begun, and nothing is known of it: it may have been ended at once.
        assert_eq!(due(&none, 0, Some(november), november, november + day), Due::No);
        let partial = CheckRecord { partial: Some(fact(november + 60, november + 999, "ended")), complete: None };
        assert_eq!(due(&partial, 0, Some(november), november, november + day), Due::GoOn);
        let complete = CheckRecord { partial: None, complete: Some(fact(november + 60, november + day, "complete")) };
        assert_eq!(due(&complete, 0, Some(november), november, november + 2 * day), Due::No);
        assert_eq!(due(&complete, 0, None, november, november + 2 * day), Due::No, "somebody has checked by hand");
        // The clock steps into December, where a check begins, and back, and forth again.
        assert_eq!(due(&complete, 0, Some(november), december, december + 60), Due::Begin);
        let of_december =
            CheckRecord { partial: None, complete: Some(fact(december + 60, december + day, "complete")) };
        assert_eq!(due(&of_december, 0, Some(december), november, november + 3 * day), Due::No);
        assert_eq!(due(&of_december, 0, Some(december), december, december + 2 * day), Due::No);
    }
}
