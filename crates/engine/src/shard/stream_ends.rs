//! Finds the stream of a request: the one whose last request ended where this one starts.
//! Owns: [`StreamEnds`]: where the recent requests of one shard ended, and a value for each. Not here: the use of the
//! value.
//! Invariant: plain cells, a fixed size, no allocation. It may forget an entry, but never returns one that was not
//! stored.

use std::cell::Cell;
use uraid_block::ArraySector;

/// The number of remembered ends: a power of two. A new end replaces an older one with the same hash.
const PLACES: usize = 128;
const _: () = assert!(PLACES.is_power_of_two());

#[derive(Clone, Copy)]
struct End<T> {
    at: u64,
    value: T,
}

/// For the end sector of each recent request, the value stored for its stream.
pub(crate) struct StreamEnds<T>([Cell<End<T>>; PLACES]);

impl<T: Copy + Default> StreamEnds<T> {
    pub(crate) fn new() -> StreamEnds<T> {
        StreamEnds(std::array::from_fn(|_| Cell::new(End { at: 0, value: T::default() })))
    }

    /// The value stored for a request that ended at `at`. No request ends at sector 0.
    #[inline]
    pub(crate) fn find(&self, at: ArraySector) -> Option<T> {
        let end = self.0[hash_index(at.0, PLACES)].get();
        (end.at == at.0 && end.at != 0).then_some(end.value)
    }

    /// Stores a value for a request that ends at `at`.
    #[inline]
    pub(crate) fn store(&self, at: ArraySector, value: T) {
        assert!(at.0 > 0, "no request ends at sector 0");
        self.0[hash_index(at.0, PLACES)].set(End { at: at.0, value });
    }
}

/// An index below `places`, a power of two. The high bits of the product depend on all bits of the number.
#[inline]
pub(crate) fn hash_index(number: u64, places: usize) -> usize {
    assert!(places.is_power_of_two());
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - places.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_starts_at_an_end_finds_the_value_stored_there() {
        let ends = StreamEnds::new();
        ends.store(ArraySector(108), 5);
        assert_eq!(ends.find(ArraySector(108)), Some(5));
        assert_eq!(ends.find(ArraySector(107)), None);
        assert_eq!(ends.find(ArraySector(0)), None, "nothing ends at 0");
    }
}
