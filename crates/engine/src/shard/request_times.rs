//! How long requests to the array took, counted by each shard for itself.
//! Owns: [`RequestTimes`], [`Times`] and its buckets. Not here: which requests are counted (`array`), summing over shards
//! (the caller), the times of members (`member_counts`).
//! Invariant: a request costs plain cells of its shard: no allocation, no lock, no atomic, and no extra reading of the
//! clock (`World::turn_time`), so a time is right to within one turn of its thread.

use std::cell::Cell;
use std::time::Duration;
use uraid_block::Tick;

/// The first bucket ends at 2 to this power nanoseconds, 8.192 us: shorter times are within one turn of a thread.
const FIRST_BITS: u32 = 13;

/// How long requests of one kind took since the array was started: on one shard, or on all together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Times {
    /// Requests by bucket: those that took no longer than its bound, and longer than the bound before it.
    pub counts: [u64; Times::BUCKETS],
    /// All times together, in nanoseconds.
    pub sum: u64,
}

impl Times {
    /// How many buckets there are. The last one has no bound.
    pub const BUCKETS: usize = 23;

    /// The longest time of this bucket, twice that of the one before it: up to 17 s. `None`: there is none.
    pub fn bound(bucket: usize) -> Option<Duration> {
        assert!(bucket < Times::BUCKETS, "a bucket that is not there");
        (bucket + 1 < Times::BUCKETS).then(|| Duration::from_nanos(1 << (FIRST_BITS as usize + bucket)))
    }

    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: &Times) -> Times {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sum = self.sum.saturating_add(other.sum);
        self
    }
}

/// How long requests took, by their kind, from their arrival to their answer, also of those that failed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequestTimes {
    /// Reads.
    pub reads: Times,
    /// Writes of data.
    pub writes: Times,
    /// Flushes.
    pub flushes: Times,
}

impl RequestTimes {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: &RequestTimes) -> RequestTimes {
        RequestTimes {
            reads: self.reads.and(&other.reads),
            writes: self.writes.and(&other.writes),
            flushes: self.flushes.and(&other.flushes),
        }
    }
}

/// The bucket of a time.
#[inline]
fn bucket(nanos: u64) -> usize {
    // A bound is in its bucket.
    let doublings = u64::BITS - (nanos.saturating_sub(1) >> FIRST_BITS).leading_zeros();
    (doublings as usize).min(Times::BUCKETS - 1)
}

/// [`Times`], as a shard counts them.
#[derive(Default)]
pub(crate) struct TimesCells {
    counts: [Cell<u64>; Times::BUCKETS],
    sum: Cell<u64>,
}

impl TimesCells {
    /// Counts a request.
    #[inline]
    pub(crate) fn note(&self, begun: Tick, now: Tick) {
        let nanos = now.0 - begun.0;
        let count = &self.counts[bucket(nanos)];
        count.set(count.get() + 1);
        // With many requests in flight it is full within years, and then says so.
        self.sum.set(self.sum.get().saturating_add(nanos));
    }

    pub(crate) fn times(&self) -> Times {
        Times { counts: self.counts.each_ref().map(Cell::get), sum: self.sum.get() }
    }
}

/// [`RequestTimes`], as a shard counts them.
#[derive(Default)]
pub(crate) struct RequestCells {
    pub(crate) reads: TimesCells,
    pub(crate) writes: TimesCells,
    pub(crate) flushes: TimesCells,
}

impl RequestCells {
    pub(crate) fn times(&self) -> RequestTimes {
        let RequestCells { reads, writes, flushes } = self;
        RequestTimes { reads: reads.times(), writes: writes.times(), flushes: flushes.times() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_first_bucket_whose_bound_it_does_not_pass() {
        let nanos = |bound: Duration| u64::try_from(bound.as_nanos()).expect("seconds");
        assert_eq!((bucket(0), bucket(1)), (0, 0));
        for of in 0..Times::BUCKETS {
            let Some(bound) = Times::bound(of).map(nanos) else {
                assert_eq!((of, bucket(u64::MAX)), (Times::BUCKETS - 1, of));
                continue;
            };
            assert_eq!((bucket(bound), bucket(bound + 1)), (of, of + 1), "{bound} ns");
        }
        assert_eq!(Times::bound(0), Some(Duration::from_nanos(8192)));
        assert!(Times::bound(Times::BUCKETS - 2).is_some_and(|last| last > Duration::from_secs(17)));
    }

    #[test]
    fn times_add_up_over_requests_and_shards() {
        let cells = TimesCells::default();
        for (begun, now) in [(5, 5), (10, 8202), (10, 8203), (0, u64::MAX), (0, u64::MAX)] {
            cells.note(Tick(begun), Tick(now));
        }
        let mut expected = Times { sum: u64::MAX, ..Times::default() };
        (expected.counts[0], expected.counts[1], expected.counts[Times::BUCKETS - 1]) = (2, 1, 2);
        assert_eq!(cells.times(), expected);
        let reads = RequestTimes { reads: Times { sum: 7, ..expected }, ..RequestTimes::default() };
        let sum = reads.and(&reads).and(&RequestTimes::default());
        assert_eq!((sum.reads.sum, sum.reads.counts[0], sum.writes), (14, 4, Times::default()));
    }
}
