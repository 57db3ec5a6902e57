//! What a pass is told while it runs: to pause, to end, how fast it may be.
//! Owns: [`Steering`], [`SpeedLimits`], [`PassPace`], when the next window of this shard may begin. Not here: windows
//! (`pass`), who tells (`passes::asked`).
//! Invariant: a task that waits here is in no epoch and holds no lock, and goes on at once when the gate closes.
//!
//! Each limit has a time that a window moves on by the time it may take at that speed. A window waits for the time of the
//! maximum. It does not wait for requests of clients once the time of the minimum has come:
//!
//! ```text
//!   max 200   |w0   |w1   |w2          w1 begins at the earliest here, whatever else happens
//!   min 100   |w0         |w1          while clients are served, w1 waits until here at the latest
//! ```
//!
//! What a pass did above its minimum while clients were quiet is not held against it when they come back.

use crate::shared::Shared;
use crate::view::Gate;
use crate::world::World;
use std::cell::Cell;
use std::time::Duration;
use uraid_block::{SECTOR_BYTES, Sectors, Tick};

/// Clients have been quiet for so long: a pass goes on above its minimum.
const QUIET: Duration = Duration::from_millis(10);
/// The time between two looks at clients.
const LOOK: Duration = Duration::from_millis(5);
/// The longest time between two looks at what the pass is told.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// How fast a pass is at least and at most, in KiB a second of each member (md: sync_speed_min, sync_speed_max).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpeedLimits {
    /// While clients are served, a pass that is faster than this waits for them. `None`: it never does.
    pub min: Option<u64>,
    /// Never faster. `None`: as fast as the members are.
    pub max: Option<u64>,
}

/// What every shard is told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Steering {
    /// Orders up to this number end where they are.
    pub(crate) ended: u64,
    pub(crate) is_paused: bool,
    pub(crate) limits: SpeedLimits,
}

/// The pace of one shard's windows.
pub(crate) struct PassPace {
    steering: Cell<Steering>,
    next: Cell<NextWindow>,
    /// The requests that this shard had served at the last look, and when that had last changed.
    served: Cell<u64>,
    quiet_from: Cell<Tick>,
}

impl PassPace {
    pub(crate) fn new() -> PassPace {
        PassPace {
            steering: Cell::default(),
            next: Cell::default(),
            served: Cell::new(0),
            quiet_from: Cell::new(Tick::default()),
        }
    }

    pub(crate) fn steer<W: World>(&self, shared: &Shared<W>, steering: Steering) {
        assert!(steering.ended >= self.steering.get().ended, "an order ends once");
        let before = self.steering.replace(steering);
        if before.limits != steering.limits {
            // The times were those of the limits before: a higher maximum counts at once.
            let now = shared.world.now();
            self.next.set(NextWindow { earliest: now, latest: now });
        }
        shared.view_changed.notify_all();
    }

    pub(crate) fn is_ended(&self, number: u64) -> bool {
        number <= self.steering.get().ended
    }

    /// Waits until a window of this order may begin, or the order has ended, or the gate is not open.
    pub(crate) async fn turn<W: World>(&self, shared: &Shared<W>, number: u64) {
        loop {
            let is_over = || self.is_ended(number) || shared.with_view(|view| view.gate != Gate::Open);
            shared.view_changed.wait_for(|| (is_over() || !self.steering.get().is_paused).then_some(())).await;
            let limits = self.steering.get().limits;
            if is_over() || limits == SpeedLimits::default() {
                return;
            }
            let Some(wait) = self.wait(shared, limits) else { return };
            shared.world.sleep(wait.min(SLEEP_MAX)).await;
        }
    }

    /// How long the next window waits; `None`: it begins now.
    fn wait<W: World>(&self, shared: &Shared<W>, limits: SpeedLimits) -> Option<Duration> {
        let now = shared.world.now();
        let next = self.next.get();
        if limits.max.is_some() && now < next.earliest {
            return Some(next.earliest.since(now));
        }
        if limits.min.is_none() || now >= next.latest {
            return None;
        }
        let counters = shared.counters();
        let served = counters.reads + counters.writes;
        if self.served.replace(served) != served {
            self.quiet_from.set(now + QUIET);
        }
        (now < self.quiet_from.get()).then_some(LOOK)
    }

    /// A window of so much of each member begins.
    pub(crate) fn note<W: World>(&self, shared: &Shared<W>, of_member: Sectors) {
        let limits = self.steering.get().limits;
        let (now, shards) = (shared.world.now(), u64::from(shared.world.shards()));
        // The speed is that of all shards together, each of which has its part of every member.
        let bytes = of_member.0 * SECTOR_BYTES as u64 * shards;
        self.next.set(self.next.get().after_window(now, bytes, limits));
    }
}

/// When the next window may begin.
#[derive(Clone, Copy, Default)]
struct NextWindow {
    /// At the earliest.
    earliest: Tick,
    /// At the latest, whatever clients do.
    latest: Tick,
}

impl NextWindow {
    /// A window of so many bytes of each member begins now.
    fn after_window(self, now: Tick, bytes: u64, limits: SpeedLimits) -> NextWindow {
        NextWindow {
            earliest: limits.max.map_or(self.earliest, |kib| self.earliest.max(now) + time_of(bytes, kib)),
            latest: limits.min.map_or(self.latest, |kib| now + time_of(bytes, kib)),
        }
    }
}

/// How long so many bytes take at this speed.
fn time_of(bytes: u64, kib: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / (u128::from(kib.max(1)) * 1024);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_speed_has_a_time() {
        assert_eq!(time_of(1 << 20, 1024), Duration::from_secs(1));
        assert_eq!(time_of(1 << 20, 0), Duration::from_secs(1024));
        assert_eq!(time_of(1 << 20, u64::MAX), Duration::ZERO);
    }

    #[test]
    fn a_fast_phase_does_not_take_the_minimum_of_a_later_one() {
        let limits = SpeedLimits { min: Some(1024), max: None };
        let (mut next, mut now) = (NextWindow::default(), Tick::default());
        for _ in 0..10_000 {
            next = next.after_window(now, 1 << 20, limits);
            now = now + Duration::from_millis(1);
        }
        // Each window takes a second at the minimum.
        assert!(next.latest <= now + Duration::from_secs(1), "the next window begins within its time");
    }

    #[test]
    fn windows_that_begin_at_once_keep_the_maximum() {
        let limits = SpeedLimits { min: None, max: Some(1024) };
        let mut next = NextWindow::default();
        for _ in 0..3 {
            next = next.after_window(Tick::default(), 1 << 20, limits);
        }
        assert_eq!(next.earliest, Tick::default() + Duration::from_secs(3));
    }
}
