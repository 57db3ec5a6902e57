//! Waiting a little for the rest of a row, so that a stream of writes becomes full stripes.
//! Owns: [`Pace`], which writes go on, how long a row is held for the next of them. Not here: what is done with the
//! writes of a row (`row`).
//! Invariant: a row is held for a write that is due, never for one that nobody may send: a client that waits for its
//! answers, a write that wants stable storage and a reader of the row end it.
//!
//! ```text
//!   a write of the turn that fills its row, or begins one alone         taken as soon as all that is ready has come in
//!   writes of a stream, 300 us apart, row not yet full                  held until it is, 600 us at most
//! ```

use crate::World;
use crate::array::Array;
use crate::row::Visit;
use std::time::Duration;
use uraid_block::local::{race, yield_now};
use uraid_block::{ArrayRange, Tick};

/// No row is held longer.
const HOLD_MAX: Duration = Duration::from_millis(1);

/// How fast a stream of writes goes on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    /// When its last write came. A write that goes on after no other does not look at the clock.
    came: Option<Tick>,
    /// The time between two of them, smoothed; none before the third.
    gap: Option<Duration>,
}

impl Pace {
    /// The pace after one more write.
    fn step(self, now: Tick) -> Pace {
        let last = self.came.map(|came| now.since(came));
        let gap = match (self.gap, last) {
            (Some(gap), Some(last)) => Some((gap * 3 + last) / 4),
            (gap, last) => gap.or(last),
        };
        Pace { came: Some(now), gap }
    }
}

impl<W: World> Array<W> {
    /// How long to wait for the write that goes on after this one: `None` for the first two of a stream, and where its
    /// client may wait for the answer first. Once for each write of a client.
    pub(crate) fn patience_after(&self, range: ArrayRange) -> Option<Duration> {
        let before = self.write_trail.find(range);
        let pace = before.map(|before| before.step(self.world.now())).unwrap_or_default();
        self.write_trail.leave(range, pace);
        let gap = pace.gap.filter(|_| self.requests_in_flight() > 1)?;
        Some((gap * 2).min(HOLD_MAX))
    }

    /// Whoever holds a row lets those writes come in that are ready now, and those of a stream that are due.
    pub(crate) async fn gather(&self, visit: &Visit<'_>) {
        let stripe = self.shape.layout.stripe();
        if visit.is_done_gathering(stripe) {
            return;
        }
        yield_now().await;
        let Some(patience) = visit.patience().filter(|_| !visit.is_done_gathering(stripe)) else { return };
        race(visit.gathered(stripe), self.world.sleep(patience)).await;
    }
}
