//! The trace of one shard's requests to one member: their number, sizes and order.
//! Owns: [`Trace`], [`TraceCounts`]. Not here: when a request is counted (`lane`, the member).
//! Invariant: counts are of what reached the member: a merged request counts as one, and its parts as merged.

use std::cell::{Ref, RefCell};
use uraid_block::{Range, Sector, Sectors};

/// How many requests are logged one by one; later ones are only counted.
const LOG_MAX: usize = 1 << 16;
/// Sizes are counted in classes: class n has requests of at least `1 << n` sectors, and below twice that.
pub const SIZE_CLASSES: usize = 32;

/// The kind of a traced request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TracedKind {
    /// Read sectors.
    Read,
    /// Write sectors, durably or not.
    Write,
    /// Make stable what was written.
    Flush,
    /// Forget sectors.
    Discard,
    /// Make sectors read as zeroes.
    Zero,
}

impl TracedKind {
    /// All kinds, in the order of [`TraceCounts::requests`].
    pub const ALL: [TracedKind; 5] =
        [TracedKind::Read, TracedKind::Write, TracedKind::Flush, TracedKind::Discard, TracedKind::Zero];

    /// Whether it is a read or a write: only these can be merged, and have a position on the disk.
    fn moves_bytes(self) -> bool {
        match self {
            TracedKind::Read | TracedKind::Write => true,
            TracedKind::Flush | TracedKind::Discard | TracedKind::Zero => false,
        }
    }
}

/// One submitted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traced {
    /// Its kind.
    pub kind: TracedKind,
    /// Its sectors on the member; empty for a flush.
    pub range: Range,
    /// How many requests were merged into it; 1 if none.
    pub parts: u32,
}

impl Traced {
    /// Whether it begins before the end of the request before it, so that a disk has to seek backwards.
    pub fn is_behind(&self, before: &Traced) -> bool {
        self.range.start < before.range.end()
    }
}

/// Sums over all requests of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TraceCounts {
    /// Requests of each kind, in the order of [`TracedKind::ALL`].
    pub requests: [u64; TracedKind::ALL.len()],
    /// Reads and writes of each size class: `sizes[3]` counts those of 8 to 15 sectors.
    pub sizes: [u64; SIZE_CLASSES],
    /// Sectors of all reads and writes.
    pub sectors: u64,
    /// Reads and writes that were merged into another one. They are not in `requests`.
    pub merged: u64,
    /// Parts that were submitted again by themselves, because the merged request failed or came back short. `requests`
    /// counts both these parts and the merged request.
    pub parted: u64,
    /// How many reads or writes began before the end of the one before them.
    pub descending: u64,
}

impl TraceCounts {
    /// Requests of this kind; a merged request counts as one.
    pub fn of(&self, kind: TracedKind) -> u64 {
        self.requests[kind as usize]
    }

    /// The mean size of reads and writes; zero if there were none.
    pub fn mean(&self) -> Sectors {
        let count = self.of(TracedKind::Read) + self.of(TracedKind::Write);
        Sectors(self.sectors.checked_div(count).unwrap_or(0))
    }

    /// Adds another shard's or member's counts.
    pub fn add(&mut self, other: &TraceCounts) {
        let TraceCounts { requests, sizes, sectors, merged, parted, descending } = other;
        self.requests.iter_mut().zip(requests).for_each(|(sum, more)| *sum += more);
        self.sizes.iter_mut().zip(sizes).for_each(|(sum, more)| *sum += more);
        self.sectors += sectors;
        self.merged += merged;
        self.parted += parted;
        self.descending += descending;
    }
}

#[derive(Default)]
struct Book {
    counts: TraceCounts,
    log: Vec<Traced>,
    last: Option<Traced>,
}

/// The trace of one member on one shard. Kept only if [`crate::Options::trace`] is set.
#[derive(Default)]
pub struct Trace(RefCell<Book>);

impl Trace {
    /// The sums so far.
    pub fn counts(&self) -> TraceCounts {
        self.0.borrow().counts
    }

    /// The first 65,536 requests, in order of submission. Hold it briefly: nothing can be submitted meanwhile.
    pub fn log(&self) -> Ref<'_, [Traced]> {
        Ref::map(self.0.borrow(), |book| &book.log[..])
    }

    /// Forgets everything, as before a measurement.
    pub fn clear(&self) {
        self.0.take();
    }

    /// Records a submitted request.
    pub(crate) fn note(&self, kind: TracedKind, start: Sector, length: Sectors, parts: u32) {
        let book = &mut *self.0.borrow_mut();
        let traced = Traced { kind, range: Range::new(start, length), parts };
        book.counts.requests[kind as usize] += 1;
        if kind.moves_bytes() {
            book.counts.sizes[size_class(length)] += 1;
            book.counts.sectors += length.0;
            book.counts.merged += u64::from(parts) - 1;
            book.counts.descending += u64::from(book.last.is_some_and(|last| traced.is_behind(&last)));
            book.last = Some(traced);
        }
        if book.log.len() < LOG_MAX {
            book.log.push(traced);
        }
    }

    /// Records that the last noted request is a part of a merged request, submitted again by itself.
    pub(crate) fn note_parted(&self) {
        self.0.borrow_mut().counts.parted += 1;
    }
}

fn size_class(length: Sectors) -> usize {
    length.0.checked_ilog2().map_or(0, |class| (class as usize).min(SIZE_CLASSES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_counts_sizes_and_backward_seeks() {
        let trace = Trace::default();
        let all = [(0, 8, 1), (8, 15, 2), (16, 1, 1), (17, 1 << 20, 3)];
        for (start, length, parts) in all {
            trace.note(TracedKind::Read, Sector(start), Sectors(length), parts);
        }
        trace.note(TracedKind::Flush, Sector(0), Sectors(0), 1);
        trace.note(TracedKind::Write, Sector(17 + (1 << 20)), Sectors(8), 1);
        let counts = trace.counts();
        assert_eq!(
            (counts.of(TracedKind::Read), counts.of(TracedKind::Write), counts.of(TracedKind::Flush)),
            (4, 1, 1)
        );
        assert_eq!((counts.sizes[0], counts.sizes[3], counts.sizes[20]), (1, 3, 1));
        assert_eq!((counts.merged, counts.descending), (3, 1), "16 lies inside 8+15; a flush has no place");
        assert_eq!(counts.mean(), Sectors((8 + 15 + 1 + (1 << 20) + 8) / 5));
        assert_eq!(trace.log().len(), 6);
        let mut sum = counts;
        sum.add(&counts);
        assert_eq!((sum.merged, sum.sectors), (6, 2 * counts.sectors));
        trace.clear();
        assert_eq!(trace.counts(), TraceCounts::default());
    }
}
