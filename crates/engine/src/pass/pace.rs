//! What a pass is told while it runs: to pause, to end, how fast it may be; and its share while clients are active.
//! Owns: [`PassPace`], when the next window of this shard may begin. Not here: windows
//! (`shard_pass`), who tells (`schedule::asked`).
//! Invariant: a task that waits here is in no epoch and holds no lock. It returns soon after the gate has closed.
//!
//! While clients are active, a pass has a [`Share`] of the members, 15 % where nothing else is set:
//! - of the time: a shard has one window at a time, and after it a rest of 85/15 of its time, with two shards of 185/15;
//! - of the bytes: windows come as fast as 15/85 of what clients move. So a window that waits in the queues of members
//!   behind many requests of clients does not make the pass slower than its share.
//!
//! A window begins when the first of the two allows it. While clients are quiet there is no rest, and there are many
//! windows at a time.
//!
//! ```text
//!   clients quiet      |w0 |w3 |w6 ...             several tasks, each with its next window
//!                      |w1 |w4 |w7
//!   a share of time    |w0 |. . . . . .|w1 |. . . . . .|w2       one window, its rest, the next
//!   a share of bytes   |w0---------|   |w2---------|             windows in deep queues: the next is due before
//!                              |w1---------|                     the rest is over, or the window
//! ```
//!
//! Each limit has a point in time. A window moves it on by as long as the window would take at that speed. The next
//! window never begins before the point of the maximum. It rests only before that of the speed to be kept, which is the
//! minimum, or the share of the bytes:
//!
//! ```text
//!   max 200   |w0   |w1   |w2          w1 begins at the earliest here, whatever else happens
//!   min 100   |w0         |w1          while clients are active, w1 waits until here at the latest
//! ```
//!
//! A pass that was faster than its minimum while clients were quiet need not be slower than it when they come back. A
//! window that begins a little late, because a timer was late, does not move the later ones.

use crate::shard::shared::Shared;
use crate::shard::world::World;
use crate::state::view::Gate;
use crate::words::progress::{SpeedLimits, Steering};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Notify, Permit, Semaphore, race};
use uraid_block::{SECTOR_BYTES, Sectors, Tick};

/// Clients count as quiet when none has had a request in flight for this long.
const QUIET: Duration = Duration::from_millis(10);
/// How often a window that rests checks whether clients are quiet.
const LOOK: Duration = Duration::from_millis(5);
/// The longest that a waiting window sleeps before it checks again what the pass is told.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// The pace of one shard's windows.
pub(crate) struct PassPace {
    steering: Cell<Steering>,
    next: Cell<NextWindow>,
    /// Of the tasks that wait for their windows, one looks at the clock: the first.
    door: Rc<Semaphore>,
    /// Windows that have begun and not ended.
    under_way: Cell<u64>,
    /// The bytes that the windows which have begun move on all members, if nothing has to be corrected.
    bytes: Cell<u64>,
    ended: Notify,
    /// When the rest after the last window ends.
    rest_until: Cell<Tick>,
    /// The number of requests that this shard had served when a window last checked.
    served: Cell<u64>,
    /// From when on clients count as quiet, if that number does not change again.
    quiet_from: Cell<Tick>,
}

impl PassPace {
    pub(crate) fn new() -> PassPace {
        PassPace {
            steering: Cell::default(),
            next: Cell::default(),
            door: Semaphore::new(1),
            under_way: Cell::new(0),
            bytes: Cell::new(0),
            ended: Notify::new(),
            rest_until: Cell::new(Tick::default()),
            served: Cell::new(0),
            quiet_from: Cell::new(Tick::default()),
        }
    }

    /// A pass begins, or goes on: no window is under way. Requests that were served since the last window say nothing
    /// about now.
    pub(crate) fn restart<W: World>(&self, shared: &Shared<W>) {
        self.under_way.set(0);
        self.served.set(served(shared));
    }

    pub(crate) fn steer<W: World>(&self, shared: &Shared<W>, steering: Steering) {
        assert!(steering.ended >= self.steering.get().ended, "an order ends once");
        let before = self.steering.replace(steering);
        if before.limits != steering.limits {
            // The two times came from the old limits. Without this, a higher maximum would count only after them.
            let now = shared.world.now();
            self.next.set(NextWindow { earliest: now, latest: now });
        }
        shared.view_changed.notify_all();
    }

    pub(crate) fn is_ended(&self, number: u64) -> bool {
        number <= self.steering.get().ended
    }

    /// Waits until a window of this order may begin, or the order has ended, or the gate is not open. No other window
    /// begins before the permit is dropped.
    pub(crate) async fn turn<W: World>(&self, shared: &Shared<W>, number: u64) -> Permit {
        let door = self.door.acquire(1).await;
        loop {
            let is_over = || self.is_ended(number) || shared.with_view(|view| view.gate != Gate::Open);
            shared.view_changed.wait_for(|| (is_over() || !self.steering.get().is_paused).then_some(())).await;
            if is_over() {
                return door;
            }
            let Some(wait) = self.wait(shared, self.steering.get().limits) else { return door };
            let under_way = self.under_way.get();
            let has_ended = self.ended.wait_for(|| (self.under_way.get() != under_way).then_some(()));
            race(has_ended, shared.world.sleep(wait.min(SLEEP_MAX))).await;
        }
    }

    /// How long the next window waits; `None`: it begins now.
    fn wait<W: World>(&self, shared: &Shared<W>, limits: SpeedLimits) -> Option<Duration> {
        let now = shared.world.now();
        let next = self.next.get();
        let has_clients = self.has_own_clients(shared) || self.steering.get().has_clients;
        if limits.max.is_some() && now < next.earliest {
            return Some(next.earliest.since(now));
        }
        if !has_clients {
            return None;
        }
        let rested = match self.under_way.get() {
            0 => self.rest_until.get(),
            1.. => Tick(u64::MAX),
        };
        let due = rested.min(next.latest);
        (now < due).then(|| due.since(now).min(LOOK))
    }

    /// Whether clients are active on this shard, now or a moment ago.
    pub(crate) fn has_own_clients<W: World>(&self, shared: &Shared<W>) -> bool {
        let (now, served) = (shared.world.now(), served(shared));
        // A window that has begun is inside an epoch, as a request is.
        let is_busy = shared.epochs.in_flight() > self.under_way.get();
        if self.served.replace(served) != served || is_busy {
            self.quiet_from.set(now + QUIET);
        }
        now < self.quiet_from.get()
    }

    /// Notes that a window has ended which had its lock from `since` on, and from when on the next one may begin.
    pub(crate) fn end<W: World>(&self, shared: &Shared<W>, since: Tick) {
        let now = shared.world.now();
        let rest = self.steering.get().share.rest_after(now.since(since), shared.world.shards());
        self.rest_until.set(self.rest_until.get().max(now + rest));
        self.under_way.set(self.under_way.get().checked_sub(1).expect("a window ends once"));
        self.ended.notify_all();
    }

    /// Notes that a window begins: how long it is on each member, on average, and on all of them together.
    pub(crate) fn begin<W: World>(&self, shared: &Shared<W>, of_member: Sectors, of_all: Sectors) {
        let (now, shards) = (shared.world.now(), u64::from(shared.world.shards()));
        // The limits are for all shards together, and each shard works on its part of every member.
        let bytes = of_member.0 * SECTOR_BYTES as u64 * shards;
        self.next.set(self.next.get().after_window(now, bytes, &self.steering.get()));
        self.bytes.set(self.bytes.get() + of_all.bytes());
        self.under_way.set(self.under_way.get() + 1);
    }

    /// The bytes that clients of this shard have moved on all members. What a pass corrects counts as theirs.
    pub(crate) fn client_bytes<W: World>(&self, shared: &Shared<W>) -> u64 {
        shared.members.bytes().saturating_sub(self.bytes.get())
    }
}

/// The number of requests that this shard has served.
fn served<W: World>(shared: &Shared<W>) -> u64 {
    let counters = shared.counters();
    counters.reads + counters.writes
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
    /// The times for the window after one of this many bytes of each member, which begins now.
    fn after_window(self, now: Tick, bytes: u64, steering: &Steering) -> NextWindow {
        let kept = time_of(bytes, steering.kept_speed());
        // It was due a little earlier. After a longer wait nothing is made up for.
        let is_late = now < self.latest + kept;
        let due = if is_late { self.latest.min(now) } else { now };
        let earliest = steering.limits.max.map_or(self.earliest, |kib| self.earliest.max(now) + time_of(bytes, kib));
        NextWindow { earliest, latest: due + kept }
    }
}

/// How long this many bytes take at this speed.
fn time_of(bytes: u64, kib: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / (u128::from(kib.max(1)) * 1024);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::progress::Share;

    #[test]
    fn every_speed_has_a_time() {
        assert_eq!(time_of(1 << 20, 1024), Duration::from_secs(1));
        assert_eq!(time_of(1 << 20, 0), Duration::from_secs(1024));
        assert_eq!(time_of(1 << 20, u64::MAX), Duration::ZERO);
    }

    fn steering(min: Option<u64>, max: Option<u64>) -> Steering {
        Steering { limits: SpeedLimits { min, max, share: None }, ..Steering::default() }
    }

    #[test]
    fn windows_that_begin_late_keep_their_speed_and_make_up_for_no_pause() {
        let steering = steering(Some(1024), None);
        let (second, late) = (Duration::from_secs(1), Duration::from_millis(3));
        let mut next = NextWindow { earliest: Tick::default(), latest: Tick::default() + second };
        for window in 1..=10 {
            let due = next.latest;
            assert_eq!(due, Tick::default() + second * window, "the delays before do not add up");
            next = next.after_window(due + late, 1 << 20, &steering);
        }
        let long_after = next.latest + second * 20;
        assert_eq!(next.after_window(long_after, 1 << 20, &steering).latest, long_after + second);
    }

    #[test]
    fn a_share_of_the_bytes_is_a_speed_to_keep() {
        let beside = |clients_kib, min| Steering { clients_kib, ..steering(min, None) }.kept_speed();
        assert_eq!(beside(425_000, None), 75_000);
        assert_eq!((beside(0, None), beside(100, None)), (SpeedLimits::MIN_KIB, SpeedLimits::MIN_KIB));
        assert_eq!(beside(425_000, Some(90_000)), 90_000);
        for percent in 0..=u8::MAX {
            let Some(share) = Share::of_percent(percent) else { continue };
            assert_eq!(share.percent(), percent);
            let took = Duration::from_millis(percent.into());
            assert_eq!(share.rest_after(took, 1) + took, Duration::from_millis(100));
            assert_eq!(share.rest_after(took, 2) + took, Duration::from_millis(200));
            assert!(share.speed_beside(u64::MAX) > 0 && share.speed_beside(100) >= percent.into());
        }
    }

    #[test]
    fn a_fast_phase_does_not_take_the_minimum_of_a_later_one() {
        let steering = steering(Some(1024), None);
        let (mut next, mut now) = (NextWindow::default(), Tick::default());
        for _ in 0..10_000 {
            next = next.after_window(now, 1 << 20, &steering);
            now = now + Duration::from_millis(1);
        }
        // Each window takes a second at the minimum.
        assert!(next.latest <= now + Duration::from_secs(1), "the next window begins within its time");
    }

    #[test]
    fn windows_that_begin_at_once_keep_the_maximum() {
        let steering = steering(None, Some(1024));
        let mut next = NextWindow::default();
        for _ in 0..3 {
            next = next.after_window(Tick::default(), 1 << 20, &steering);
        }
        assert_eq!(next.earliest, Tick::default() + Duration::from_secs(3));
    }
}
