//! Requests that continue where an earlier one ended.
//! Owns: [`Trail`], what one shard remembers of the ends of its last requests. Not here: how that is used.
//! Invariant: plain cells, a fixed size, no allocation. It may forget an entry, but never returns one that was not
//! stored.

use std::cell::Cell;
use uraid_block::ArraySector;

/// How many ends are remembered: a power of two. Two ends that share a place overwrite one another.
const PLACES: usize = 128;
const _: () = assert!(PLACES.is_power_of_two());

#[derive(Clone, Copy)]
struct End<T> {
    at: u64,
    left: T,
}

/// For the end sector of each recent request, the value stored for its stream.
pub(crate) struct Trail<T>([Cell<End<T>>; PLACES]);

impl<T: Copy + Default> Trail<T> {
    pub(crate) fn new() -> Trail<T> {
        Trail(std::array::from_fn(|_| Cell::new(End { at: 0, left: T::default() })))
    }

    /// The value stored for a request that ended at `at`. No request ends at sector 0.
    #[inline]
    pub(crate) fn find(&self, at: ArraySector) -> Option<T> {
        let end = self.0[spread(at.0, PLACES)].get();
        (end.at == at.0 && end.at != 0).then_some(end.left)
    }

    /// Stores a value for a request that ends at `at`.
    #[inline]
    pub(crate) fn leave(&self, at: ArraySector, left: T) {
        assert!(at.0 > 0, "no request ends at sector 0");
        self.0[spread(at.0, PLACES)].set(End { at: at.0, left });
    }
}

/// Hashes numbers to `places`, a power of two; the high bits of the product depend on all bits of the number.
#[inline]
pub(crate) fn spread(number: u64, places: usize) -> usize {
    assert!(places.is_power_of_two());
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
