//! Holds a row for the next writes of a stream, so that they become full stripes.
//! Owns: [`Streams`], which writes continue a stream, how long a row is held for the next of them. Not here: what is
//! done with the writes of a row (`row`), rows whose pieces come to several shards (`pieces`).
//! Invariant: a row is held only for a write that is due. The hold ends if the client may be waiting for an answer, if
//! a waiting write has FUA, or if a reader wants the row.
//!
//! ```text
//!   a write of the turn that fills its row, or begins one alone        taken as soon as all that is ready has come in
//!   writes of a stream, 300 us apart, row not yet full                 held 600 us for each next one, until it is full
//!   the first piece of a write, if the last two came in two pieces     held for the second, also if nothing else runs
//! ```
//!
//! The last line is a client that writes 1280 KiB and waits, through a frontend that gets each write in pieces: FUSE gives
//! it 1 MiB and 256 KiB. The first piece is alone when it arrives, and looks like a client that waits for its answer. This
//! sees streams whose pieces one shard receives; `pieces` sees rows, whichever shards receive theirs.
//!
//! If a write arrives after an answer to its stream, its client may have waited for that answer. The arrival time then
//! does not predict the next write: the row would be held until that write arrives, the next hold would be as long
//! again, and the holds would grow up to the maximum.

use crate::World;
use crate::row::table::Visit;
use crate::shard::stream_ends::StreamEnds;
use std::cell::Cell;
use std::time::Duration;
use uraid_block::local::{Either, race, yield_now};
use uraid_block::{ArrayRange, Sectors, Tick};

/// The longest hold of a row.
const HOLD_MAX: Duration = Duration::from_millis(1);

/// How many streams have a pace. A new stream replaces the oldest.
const STREAMS: u8 = 128;

/// The pace of a stream of writes.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// When its last write came.
    came: Tick,
    /// Whether one of its writes has been answered since the last one arrived.
    is_answered: bool,
    /// The smoothed time between two writes with no answer in between.
    gap: Option<Duration>,
    /// Its writes since an answer: a burst.
    burst: u32,
    /// The last two bursts before it.
    bursts_before: [u32; 2],
}

/// What is known of a stream's next write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Next {
    /// The expected time until then.
    pub(crate) gap: Duration,
    /// Whether it is part of this burst, as the last two were at least as long.
    pub(crate) is_of_burst: bool,
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
        let (burst, bursts_before) = match self.is_answered {
            true => (1, [self.burst, self.bursts_before[0]]),
            false => (self.burst.saturating_add(1), self.bursts_before),
        };
        Pace { came: now, is_answered: false, gap, burst, bursts_before }
    }

    fn next(&self) -> Option<Next> {
        let [last, one_before] = self.bursts_before;
        Some(Next { gap: self.gap?, is_of_burst: self.burst < last.min(one_before) })
    }
}

/// The write streams of one shard.
pub(crate) struct Streams {
    /// The stream of each recent write. `None` for a write that continues no other one. Such a write does not read the
    /// clock.
    ends: StreamEnds<Option<u8>>,
    paces: [Cell<Pace>; STREAMS as usize],
    next: Cell<u8>,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams { ends: StreamEnds::new(), paces: std::array::from_fn(|_| Cell::default()), next: Cell::new(0) }
    }

    /// Records a write. Returns what is known of the next write of its stream: nothing for the first two writes.
    pub(crate) fn come(&self, range: ArrayRange, now: impl FnOnce() -> Tick) -> Option<Next> {
        assert!(!range.length.is_zero(), "an empty write is no part of a stream");
        let Some(stream) = self.ends.find(range.start) else {
            self.ends.store(range.end(), None);
            return None;
        };
        let (stream, pace) = match stream {
            Some(stream) => (stream, self.paces[usize::from(stream)].get().step(now())),
            None => {
                let stream = self.next.replace((self.next.get() + 1) % STREAMS);
                assert!(stream < STREAMS);
                // The first write belongs to this stream too: its answer counts.
                self.ends.store(range.start, Some(stream));
                (stream, Pace { came: now(), ..Pace::default() })
            }
        };
        self.paces[usize::from(stream)].set(pace);
        self.ends.store(range.end(), Some(stream));
        pace.next()
    }

    /// Records that a write was answered.
    pub(crate) fn note_answered(&self, range: ArrayRange) {
        if let Some(Some(stream)) = self.ends.find(range.end()) {
            let pace = &self.paces[usize::from(stream)];
            pace.set(Pace { is_answered: true, ..pace.get() });
        }
    }
}

/// Called by the row's holder: lets in the writes that are ready now, and waits for the writes of a stream that are
/// due.
pub(crate) async fn hold<W: World>(world: &W, visit: &Visit<'_>, stripe: Sectors) {
    if visit.is_done_gathering(stripe) {
        return;
    }
    yield_now().await;
    let end = visit.hold_time().map(|_| world.now() + HOLD_MAX);
    while let (Some(end), Some(hold_time)) = (end, visit.hold_time())
        && !visit.is_done_gathering(stripe)
    {
        let left = end.since(world.now());
        if let Either::Right(()) = race(visit.another_arrives(), world.sleep(hold_time.min(left))).await {
            return;
        }
    }
}
