//! What a shard knows of the write-intent bitmap: the bits that are set and cannot be cleared now.
//! Owns: [`Intent`], which bits a write needs, what a resync or a recovery may skip. Not here: setting and clearing
//! bits (`bitmap`).
//! Invariant: a known bit is set durably on every member with a slot, and stays so until the shard has a view that
//! forgets it and every request from before that view has left.
//!
//! ```text
//!   a write into an area whose bit is known:   one load from memory, and the write goes on
//!   a write into any other area:               shard 0 is asked, and writes the bit first
//! ```

use crate::assemble::{BitmapPlan, StartPlan};
use crate::state::bits::{BitsRound, BitsShape};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use uraid_block::ArrayRange;
use uraid_format::bitmap::BitmapImage;
use uraid_layout::Layout;

/// A stretch of a resync begins and ends at a multiple of this many sectors: the largest logical block. A chunk of the
/// bitmap may be smaller.
const STRETCH_ALIGNMENT: u64 = 8;

/// One shard's knowledge of the bits.
pub(crate) struct Intent {
    round: Cell<BitsRound>,
    /// Of an array that has a bitmap.
    map: RefCell<Option<Map>>,
}

struct Map {
    shape: BitsShape,
    known: Vec<Cell<u64>>,
    /// The chunks that the resync of this start must not skip; `None`: all.
    to_resync: Option<BitmapImage>,
    /// The chunks that the next recovery by bits must not skip.
    to_recover: Option<Arc<BitmapImage>>,
}

impl Intent {
    /// For an array that has this bitmap at its start.
    pub(crate) fn new(plan: &StartPlan, bitmap: Option<&BitmapPlan>) -> Intent {
        let map = bitmap.map(|bitmap| {
            let mut map = Map::new(BitsShape::of(bitmap.image.header()));
            map.to_resync = plan.is_dirty.then(|| bitmap.image.clone());
            map
        });
        Intent { round: Cell::default(), map: RefCell::new(map) }
    }

    /// Whether all bits that a write to this range needs are known to be set.
    #[inline]
    pub(crate) fn covers(&self, layout: &Layout, range: ArrayRange) -> bool {
        let map = self.map.borrow();
        let Some(map) = &*map else { return true };
        let chunks = map.chunks_of(layout, range);
        // Nearly every write is within one chunk.
        if chunks.end - chunks.start == 1 {
            map.knows(chunks.start)
        } else {
            chunks.into_iter().all(|one| map.knows(one))
        }
    }

    /// The chunks whose bits a write to this range needs, and the current round: the answer may be learned only in that
    /// round.
    pub(crate) fn needed(&self, layout: &Layout, range: ArrayRange) -> (Range<u64>, BitsRound) {
        let map = self.map.borrow();
        let map = map.as_ref().expect("a write without a bitmap needs no bits");
        (map.chunks_of(layout, range), self.round.get())
    }

    /// Notes that these bits are set, unless this shard has forgotten bits since it asked. Their bitmap may be gone.
    pub(crate) fn learn(&self, chunks: Range<u64>, round: BitsRound) {
        if self.round.get() != round {
            return;
        }
        let map = self.map.borrow();
        let map = map.as_ref().expect("a bitmap that goes ends the round");
        for chunk in chunks {
            let word = &map.known[(chunk / 64) as usize];
            word.set(word.get() | 1 << (chunk % 64));
        }
    }

    /// Takes over what the view says: in a new round, no bit is known. The array may have another bitmap, or none.
    pub(crate) fn switch(&self, round: BitsRound, shape: Option<BitsShape>) {
        if self.round.get() == round {
            return;
        }
        assert!(self.round.get() < round, "rounds follow one another");
        self.round.set(round);
        let mut map = self.map.borrow_mut();
        match (&*map, shape) {
            (Some(map), Some(shape)) if map.shape == shape => map.known.iter().for_each(|word| word.set(0)),
            (_, shape) => *map = shape.map(Map::new),
        }
    }

    /// The first stretch of `at..end` that a resync must not skip, in the sectors by which the resync counts. It is
    /// rounded to whole blocks, and so may reach into chunks that are clean. No more than `longest` sectors are looked at.
    pub(crate) fn stretch_to_resync(&self, at: u64, end: u64, longest: u64) -> Option<Range<u64>> {
        assert!(at < end, "a stretch is not empty");
        let map = self.map.borrow();
        match map.as_ref().and_then(|map| Some((map, map.to_resync.as_ref()?))) {
            Some((map, bits)) => map.stretch(bits, at, end, longest),
            None => Some(at..end),
        }
    }

    /// Notes what the next recovery by bits must not skip.
    pub(crate) fn set_to_recover(&self, bits: Arc<BitmapImage>) {
        let mut map = self.map.borrow_mut();
        let map = map.as_mut().expect("a recovery by bits is of an array with a bitmap");
        map.to_recover = Some(bits);
    }

    /// The same as [`Intent::stretch_to_resync`], for a recovery by bits.
    pub(crate) fn stretch_to_recover(&self, at: u64, end: u64, longest: u64) -> Option<Range<u64>> {
        assert!(at < end, "a stretch is not empty");
        let map = self.map.borrow();
        let map = map.as_ref().expect("a bitmap stays until the recovery by its bits has ended");
        map.stretch(map.to_recover.as_ref().expect("the bits come before the pass"), at, end, longest)
    }
}

impl Map {
    fn new(shape: BitsShape) -> Map {
        let known = vec![Cell::new(0); (shape.chunks as usize).div_ceil(64)];
        Map { shape, known, to_resync: None, to_recover: None }
    }

    /// On parity levels the bits stand for sectors of the members, and a row counts as a whole: a write to a part of it may
    /// change any sector of its parity.
    #[inline]
    fn chunks_of(&self, layout: &Layout, range: ArrayRange) -> Range<u64> {
        assert!(!range.length.is_zero(), "a write has a last sector");
        let (first, last) = (range.start.0, range.end().0 - 1);
        let (first, last) = match layout {
            Layout::Copies(_) => (first, last),
            Layout::Parity(layout) => {
                let (stripe, chunk) = (layout.stripe().0, layout.chunk().0);
                (first / stripe * chunk, (last / stripe + 1) * chunk - 1)
            }
        };
        let chunks = first >> self.shape.shift..(last >> self.shape.shift) + 1;
        assert!(chunks.end <= self.shape.chunks, "each sector has its chunk");
        chunks
    }

    /// The part inside `at..end` of the first stretch of set bits that reaches into it, at most as long as a window. Bits
    /// behind that are not looked at: a new bitmap has half a million of them, all set.
    fn stretch(&self, bits: &BitmapImage, at: u64, end: u64, longest: u64) -> Option<Range<u64>> {
        let shift = self.shape.shift;
        let chunks_to = |end: u64| (((end - 1) >> shift) + 1).min(self.shape.chunks);
        let chunk = bits.first_set_in(at >> shift..chunks_to(end))?;
        let start = at.max((chunk << shift) / STRETCH_ALIGNMENT * STRETCH_ALIGNMENT);
        let end = end.min(start.saturating_add(longest));
        let until = |chunk: u64| end.min((chunk << shift).next_multiple_of(STRETCH_ALIGNMENT));
        let until = bits.first_clear_in(chunk..chunks_to(end)).map_or(end, until);
        (start < end).then_some(start..until)
    }

    #[inline]
    fn knows(&self, chunk: u64) -> bool {
        self.known[(chunk / 64) as usize].get() & 1 << (chunk % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::progress::WINDOW;
    use uraid_block::Sectors;
    use uraid_format::bitmap::BitmapHeader;
    use uraid_format::bitmap::BitmapVersion;

    fn header() -> BitmapHeader {
        BitmapHeader {
            version: BitmapVersion::LittleEndian,
            set_uuid: [7; 16],
            events: 1,
            events_cleared: 1,
            sync_size: Sectors(100),
            state: 0,
            chunk_bytes: 512,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: Sectors::ZERO,
            nodes: 0,
            cluster_name: [0; 64],
        }
    }

    #[test]
    fn a_stretch_of_small_chunks_is_whole_blocks() {
        let mut bits = BitmapImage::filled(header(), Sectors(8)).expect("it fits").cleared();
        [13, 14, 99].into_iter().for_each(|chunk| bits.set(chunk));
        let mut map = Map::new(BitsShape { shift: 0, chunks: 100 });
        map.to_resync = Some(bits);
        let intent = Intent { round: Cell::default(), map: RefCell::new(Some(map)) };
        assert_eq!(intent.stretch_to_resync(0, 100, WINDOW), Some(8..16));
        assert_eq!(intent.stretch_to_resync(8, 100, WINDOW), Some(8..16), "from its start it is the same");
        assert_eq!(intent.stretch_to_resync(10, 100, WINDOW), Some(10..16), "never before what was asked for");
        assert_eq!(intent.stretch_to_resync(16, 100, WINDOW), Some(96..100), "never behind the end");
        assert_eq!(intent.stretch_to_resync(15, 96, WINDOW), None);
    }

    /// Each window would else look at all bits behind it.
    #[test]
    fn a_stretch_is_not_longer_than_a_window() {
        let chunks = 4 * WINDOW;
        let header = BitmapHeader { sync_size: Sectors(chunks), ..header() };
        let mut map = Map::new(BitsShape { shift: 0, chunks });
        map.to_resync = Some(BitmapImage::filled(header, Sectors(64)).expect("it fits"));
        let intent = Intent { round: Cell::default(), map: RefCell::new(Some(map)) };
        assert_eq!(intent.stretch_to_resync(8, chunks, WINDOW), Some(8..8 + WINDOW));
        assert_eq!(intent.stretch_to_resync(chunks - 8, chunks, WINDOW), Some(chunks - 8..chunks));
    }
}
