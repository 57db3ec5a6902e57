//! Requests that go on where an earlier one ended.
//! Owns: [`Trail`], what one shard remembers of the ends of its last requests. Not here: what is made of it.
//! Invariant: plain cells, a fixed size, no allocation. It may forget, and never remembers what was not.

use std::cell::Cell;
use uraid_block::ArraySector;

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

    /// What was left where a request ended. No request ends at sector 0.
    #[inline]
    pub(crate) fn find(&self, at: ArraySector) -> Option<T> {
        let end = self.0[spread(at.0, PLACES)].get();
        (end.at == at.0 && end.at != 0).then_some(end.left)
    }

    /// Leaves something where a request ends.
    #[inline]
    pub(crate) fn leave(&self, at: ArraySector, left: T) {
        self.0[spread(at.0, PLACES)].set(End { at: at.0, left });
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

    #[test]
    fn only_what_begins_at_an_end_finds_what_was_left() {
        let trail = Trail::new();
        trail.leave(ArraySector(108), 5);
        assert_eq!(trail.find(ArraySector(108)), Some(5));
        assert_eq!(trail.find(ArraySector(107)), None);
        assert_eq!(trail.find(ArraySector(0)), None, "nothing ends at 0");
    }
}
