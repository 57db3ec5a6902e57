//! Waiting a little for the rest of a row, so that a stream of writes becomes full stripes.
//! Owns: [`Streams`], which writes go on, how long a row is held for the next of them. Not here: what is done with the
//! writes of a row (`row`).
//! Invariant: a row is held for a write that is due, never for one that nobody may send: a client that waits for its
//! answers, a write that wants stable storage and a reader of the row end it.
//!
//! ```text
//!   a write of the turn that fills its row, or begins one alone         taken as soon as all that is ready has come in
//!   writes of a stream, 300 us apart, row not yet full                  held 600 us for each next one, until it is full
//! ```
//!
//! A write that comes after an answer to its stream may have waited for it. When it came says nothing of the next one: it
//! would be as late as the row is held, and the row held for as long as that, and so on up to the longest.

use crate::World;
use crate::array::Array;
use crate::row::Visit;
use crate::trail::Trail;
use std::cell::Cell;
use std::time::Duration;
use uraid_block::local::{Either, race, yield_now};
use uraid_block::{ArrayRange, Tick};

/// No row is held longer, whatever comes.
const HOLD_MAX: Duration = Duration::from_millis(1);

/// How many streams have a pace: a new one takes the place of the oldest.
const STREAMS: u8 = 128;

/// How fast a stream of writes goes on.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// When its last write came.
    came: Tick,
    /// Whether one of its writes has been answered since.
    is_answered: bool,
    /// The time between two of them with no answer in between, smoothed.
    gap: Option<Duration>,
}

impl Pace {
    /// The pace after one more write.
    fn step(self, now: Tick) -> Pace {
        let last = now.since(self.came);
        let gap = match self.gap {
            before if self.is_answered => before,
            Some(gap) => Some((gap * 3 + last) / 4),
            None => Some(last),
        };
        Pace { came: now, is_answered: false, gap }
    }
}

/// What one shard knows of the streams of writes that it takes.
pub(crate) struct Streams {
    /// Which stream a write was of; none for one that goes on after no other, which does not look at the clock.
    trail: Trail<Option<u8>>,
    paces: [Cell<Pace>; STREAMS as usize],
    next: Cell<u8>,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams { trail: Trail::new(), paces: std::array::from_fn(|_| Cell::default()), next: Cell::new(0) }
    }

    /// Takes a write in; gives the time to the next one of its stream where that is known: not for the first two.
    fn come(&self, range: ArrayRange, now: impl FnOnce() -> Tick) -> Option<Duration> {
        let Some(stream) = self.trail.find(range.start) else {
            self.trail.leave(range.end(), None);
            return None;
        };
        let (stream, pace) = match stream {
            Some(stream) => (stream, self.paces[usize::from(stream)].get().step(now())),
            None => {
                let stream = self.next.replace((self.next.get() + 1) % STREAMS);
                // The first write is of this stream too: its answer counts.
                self.trail.leave(range.start, Some(stream));
                (stream, Pace { came: now(), ..Pace::default() })
            }
        };
        self.paces[usize::from(stream)].set(pace);
        self.trail.leave(range.end(), Some(stream));
        pace.gap
    }

    /// A write is answered.
    pub(crate) fn note_answered(&self, range: ArrayRange) {
        if let Some(Some(stream)) = self.trail.find(range.end()) {
            let pace = &self.paces[usize::from(stream)];
            pace.set(Pace { is_answered: true, ..pace.get() });
        }
    }
}

impl<W: World> Array<W> {
    /// How long to wait for the write that goes on after this one: `None` for the first two of a stream, and where its
    /// client may wait for the answer first. Once for each write of a client.
    pub(crate) fn patience_after(&self, range: ArrayRange) -> Option<Duration> {
        let gap = self.streams.come(range, || self.world.now()).filter(|_| self.requests_in_flight() > 1)?;
        Some(gap * 2)
    }

    /// Whoever holds a row lets those writes come in that are ready now, and those of a stream that are due.
    pub(crate) async fn gather(&self, visit: &Visit<'_>) {
        let stripe = self.shape.layout.stripe();
        if visit.is_done_gathering(stripe) {
            return;
        }
        yield_now().await;
        let end = visit.patience().map(|_| self.world.now() + HOLD_MAX);
        while let (Some(end), Some(patience)) = (end, visit.patience())
            && !visit.is_done_gathering(stripe)
        {
            let left = end.since(self.world.now());
            if let Either::Right(()) = race(visit.somebody_else(), self.world.sleep(patience.min(left))).await {
                return;
            }
        }
    }
}
