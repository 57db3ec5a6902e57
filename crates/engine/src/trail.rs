//! Requests that go on where an earlier one ended.
//! Owns: [`Trail`], what one shard remembers of the ends of its last requests. Not here: what is made of it.
//! Invariant: plain cells, a fixed size, no allocation. It may forget, and never remembers what was not.

use std::cell::Cell;
use uraid_block::ArrayRange;

/// How many ends are remembered: a power of two. Two that meet in one place forget one another.
const PLACES: usize = 128;

#[derive(Clone, Copy)]
struct End<T> {
    at: u64,
    left: T,
}

/// What streams of requests leave where they have got to.
pub(crate) struct Trail<T>([Cell<End<T>>; PLACES]);

impl<T: Copy + Default> Trail<T> {
    pub(crate) fn new() -> Trail<T> {
        Trail(std::array::from_fn(|_| Cell::new(End { at: 0, left: T::default() })))
    }

    /// What a request left that ended where this one begins. No request ends at sector 0.
    #[inline]
    pub(crate) fn find(&self, range: ArrayRange) -> Option<T> {
        let end = self.0[spread(range.start.0, PLACES)].get();
        (end.at == range.start.0 && end.at != 0).then_some(end.left)
    }

    /// Leaves something where this request ends.
    #[inline]
    pub(crate) fn leave(&self, range: ArrayRange, left: T) {
        let at = range.end().0;
        self.0[spread(at, PLACES)].set(End { at, left });
    }
}

/// Spreads numbers over so many places, a power of two; the high bits of the product depend on all bits of the number.
#[inline]
pub(crate) fn spread(number: u64, places: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - places.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{ArraySector, Sectors};

    fn range(at: u64, length: u64) -> ArrayRange {
        ArrayRange::new(ArraySector(at), Sectors(length))
    }

    #[test]
    fn only_what_begins_at_an_end_finds_what_was_left() {
        let trail = Trail::new();
        trail.leave(range(100, 8), 5);
        assert_eq!(trail.find(range(108, 1)), Some(5));
        assert_eq!(trail.find(range(107, 8)), None);
        assert_eq!(trail.find(range(0, 8)), None, "nothing ends at 0");
    }
}
