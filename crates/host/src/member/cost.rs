//! When requests of memory and null members complete: in the call, later, or after a simulated time, like that of a disk
//! or a controller.
//! Owns: [`Completion`], [`Cost`], their syntax. Not here: the requests (`trial`), waiting until the time has passed (`ring::trials`).
//! Invariant: a member serves one request after the other, whichever shards they come from.
//!
//! ```text
//!   request k ends at  max(now, end of request k-1) + request + bytes / bandwidth
//! ```
//! All shards share the end of the last request as one atomic, because it models the one device.

use super::target::parse_size;
use std::sync::atomic::{AtomicU64, Ordering};
use uraid_block::Tick;

/// The longest that one request may take: a minute.
const REQUEST_NANOS_MAX: u64 = 60_000_000_000;

/// When a read or write of a memory or null member completes.
#[derive(Default, Debug)]
pub(super) enum Completion {
    /// In the call that submits it.
    #[default]
    Inline,
    /// When its task runs next, after the other tasks that are ready. No clock is read.
    Deferred,
    /// After a simulated time.
    Timed(Cost),
}

impl Completion {
    /// Parses `completion=deferred`, or a cost, see [`Cost::parse`].
    pub(super) fn parse(text: &str) -> Option<Completion> {
        match text {
            "completion=deferred" => Some(Completion::Deferred),
            text => Cost::parse(text).map(Completion::Timed),
        }
    }

    /// The cost of a request, if it has one.
    #[inline]
    pub(super) fn cost(&self) -> Option<&Cost> {
        match self {
            Completion::Inline | Completion::Deferred => None,
            Completion::Timed(cost) => Some(cost),
        }
    }
}

/// The cost of a member's requests, and the time until which it is busy.
#[derive(Default, Debug)]
pub(super) struct Cost {
    request_nanos: u64,
    /// Bytes per second; 0: unlimited.
    bandwidth: u64,
    /// When the last request ends. Relaxed is enough: it guards no other data.
    busy_until: AtomicU64,
}

impl Cost {
    /// Parses `request=20us`, `bandwidth=500M`, or both with a comma between them; each at most once.
    pub(super) fn parse(text: &str) -> Option<Cost> {
        let mut cost = Cost::default();
        for word in text.split(',') {
            let (key, value) = word.split_once('=')?;
            let (place, value) = match key {
                "request" => (&mut cost.request_nanos, parse_nanos(value)?),
                "bandwidth" => (&mut cost.bandwidth, parse_size(value)?.bytes()),
                _ => return None,
            };
            if std::mem::replace(place, value) != 0 || value == 0 {
                return None;
            }
        }
        Some(cost)
    }

    /// Queues a request after the earlier ones, and returns when it ends.
    pub(super) fn due(&self, now: Tick, bytes: u64) -> Tick {
        let transfer = match self.bandwidth {
            0 => 0,
            bandwidth => u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth),
        };
        let nanos = self.request_nanos.saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX));
        let end = |busy_until: u64| Some(busy_until.max(now.0).saturating_add(nanos));
        let before = self.busy_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
        Tick(before.ok().and_then(end).expect("the update always gives a value"))
    }
}

/// `20us`: a whole number of ns, us, ms or s.
fn parse_nanos(text: &str) -> Option<u64> {
    let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, unit) = text.split_at(digits_end);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|nanos| *nanos <= REQUEST_NANOS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_queue_behind_each_other() {
        let cost = Cost::parse("request=20us").expect("a cost");
        assert_eq!(cost.due(Tick(100), 512), Tick(20_100));
        assert_eq!(cost.due(Tick(200), 1 << 20), Tick(40_100), "behind the first, however large");
        assert_eq!(cost.due(Tick(90_000), 0), Tick(110_000), "it was idle");
        let cost = Cost::parse("bandwidth=1M,request=1ms").expect("a cost");
        assert_eq!(cost.due(Tick(0), 1 << 20), Tick(1_001_000_000));
        assert_eq!(cost.due(Tick(0), u64::MAX), Tick(u64::MAX), "no overflow");
    }

    #[test]
    fn a_cost_is_a_number_with_a_unit_of_time() {
        for nonsense in [
            "",
            "request",
            "request=",
            "request=20",
            "request=us",
            "request=20us,",
            "request=0us",
            "request=1us,request=1us",
            "latency=20us",
            "request=-1us",
            "request=1.5us",
            "request=61s",
            "bandwidth=",
            "bandwidth=0",
            "bandwidth=1us",
            "request=20us request=1us",
            "request=99999999999999999999us",
            "request=é",
            "completion",
            "completion=",
            "completion=later",
            "completion=deferred,request=1us",
            "request=1us,completion=deferred",
        ] {
            assert!(Completion::parse(nonsense).is_none(), "{nonsense}");
        }
        assert!(matches!(Completion::parse("completion=deferred"), Some(Completion::Deferred)));
        for (text, nanos) in [("request=7ns", 7), ("request=60s", 60_000_000_000), ("request=3ms", 3_000_000)] {
            assert_eq!(Cost::parse(text).expect("a cost").request_nanos, nanos);
        }
    }
}
