//! Walking several lists of byte slices in step.
//! Owns: [`Slices`], [`walk`]. Not here: what is computed over them (`row::io`).
//! Invariant: every step hands out slices of one length, and the steps cover all bytes once, in order.
//!
//! ```text
//!   source 0   |-----------|---------|        a client's buffers end anywhere;
//!   source 1   |----|----------------|        the steps are cut at every edge of any source
//!   steps      |----|------|---------|
//! ```

use smallvec::SmallVec;
use uraid_block::WritePieces;

/// Bytes in several slices, read front to back.
pub(crate) struct Slices<'a> {
    rest: SmallVec<[&'a [u8]; 2]>,
    next: usize,
}

impl<'a> Slices<'a> {
    pub(crate) fn of_pieces(pieces: &'a WritePieces) -> Slices<'a> {
        Slices { rest: pieces.iter().map(|piece| &piece[..]).collect(), next: 0 }
    }

    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Slices<'a> {
        Slices { rest: SmallVec::from_slice(&[bytes]), next: 0 }
    }

    fn front(&self) -> &'a [u8] {
        self.rest[self.next]
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (now, later) = self.rest[self.next].split_at(bytes);
        self.rest[self.next] = later;
        if later.is_empty() {
            self.next += 1;
        }
        now
    }
}

/// Takes the next `bytes` bytes of every source, in steps: `step(offset, slices)` with one slice of equal length from
/// each source. Panics when a source has fewer.
pub(crate) fn walk<'a>(sources: &mut [Slices<'a>], bytes: usize, mut step: impl FnMut(usize, &[&'a [u8]])) {
    let mut at = 0;
    let mut slices: SmallVec<[&'a [u8]; 16]> = SmallVec::new();
    while at < bytes {
        let length = sources.iter().map(|source| source.front().len()).min().expect("a row has data");
        let length = length.min(bytes - at);
        assert!(length > 0, "a step goes on");
        slices.clear();
        slices.extend(sources.iter_mut().map(|source| source.take(length)));
        assert!(slices.iter().all(|slice| slice.len() == length), "a step has slices of one length");
        step(at, &slices);
        at += length;
    }
}
