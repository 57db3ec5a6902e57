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

use crate::assemble::StartPlan;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use uraid_block::ArrayRange;
use uraid_format::bitmap::BitmapImage;
use uraid_layout::Layout;

/// A stretch of a resync begins and ends at a multiple of this many sectors: the largest logical block. A chunk of the
/// bitmap may be smaller.
const STRETCH_ALIGNMENT: u64 = 8;

/// How many times the shards have forgotten their bits. A bit that was learned in an earlier round is no longer known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BitsRound(pub u64);

/// One shard's knowledge of the bits.
pub(crate) struct Intent(Option<Map>);

struct Map {
    /// A chunk of the bitmap is `1 << shift` sectors.
    shift: u32,
    chunks: u64,
    /// For parity levels, whose bits stand for sectors of the members: the data sectors of a row, and the sectors of a
    /// row on one member.
    rows: Option<(u64, u64)>,
    known: Vec<Cell<u64>>,
    round: Cell<BitsRound>,
    /// The chunks that the resync of this start must not skip; `None`: all.
    to_resync: Option<BitmapImage>,
    /// The chunks that the next recovery by bits must not skip.
    to_recover: RefCell<Option<Arc<BitmapImage>>>,
}

impl Intent {
    /// For an array that has no bitmap or is read-only.
    pub(crate) fn none() -> Intent {
        Intent(None)
    }

    pub(crate) fn new(plan: &StartPlan) -> Intent {
        let Some(bitmap) = &plan.bitmap else { return Intent::none() };
        let header = bitmap.image.header();
        let rows = match &plan.layout {
            Layout::Parity(layout) => Some((layout.stripe().0, layout.chunk().0)),
            Layout::Copies(_) => None,
        };
        let to_resync = plan.is_dirty.then(|| bitmap.image.clone());
        Intent(Some(Map {
            shift: header.chunk().0.trailing_zeros(),
            chunks: header.chunks(),
            rows,
            known: vec![Cell::new(0); (header.chunks() as usize).div_ceil(64)],
            round: Cell::default(),
            to_resync,
            to_recover: RefCell::default(),
        }))
    }

    /// Whether all bits that a write to this range needs are known to be set.
    #[inline]
    pub(crate) fn covers(&self, range: ArrayRange) -> bool {
        let Some(map) = &self.0 else { return true };
        let chunks = map.chunks_of(range);
        // Nearly every write is within one chunk.
        if chunks.end - chunks.start == 1 {
            map.knows(chunks.start)
        } else {
            chunks.into_iter().all(|one| map.knows(one))
        }
    }

    /// The chunks whose bits a write to this range needs, and the current round: the answer may be learned only in that
    /// round.
    pub(crate) fn needed(&self, range: ArrayRange) -> (Range<u64>, BitsRound) {
        let map = self.0.as_ref().expect("a write without a bitmap needs no bits");
        (map.chunks_of(range), map.round.get())
    }

    /// Notes that these bits are set, unless this shard has forgotten bits since it asked.
    pub(crate) fn learn(&self, chunks: Range<u64>, round: BitsRound) {
        let map = self.0.as_ref().expect("a shard learns bits of a bitmap");
        if map.round.get() == round {
            for chunk in chunks {
                let word = &map.known[(chunk / 64) as usize];
                word.set(word.get() | 1 << (chunk % 64));
            }
        }
    }

    /// Forgets all bits, if the view is of another round.
    pub(crate) fn switch(&self, round: BitsRound) {
        if let Some(map) = &self.0
            && map.round.get() != round
        {
            assert!(map.round.get() < round, "rounds follow one another");
            map.round.set(round);
            map.known.iter().for_each(|word| word.set(0));
        }
    }

    /// The first stretch of `at..end` that a resync must not skip, in the sectors by which the resync counts. It is
    /// rounded to whole blocks, and so may reach into chunks that are clean.
    pub(crate) fn stretch_to_resync(&self, at: u64, end: u64) -> Option<Range<u64>> {
        assert!(at < end, "a stretch is not empty");
        match self.0.as_ref().and_then(|map| Some((map, map.to_resync.as_ref()?))) {
            Some((map, bits)) => map.stretch(bits, at, end),
            None => Some(at..end),
        }
    }

    /// Notes what the next recovery by bits must not skip.
    pub(crate) fn set_to_recover(&self, bits: Arc<BitmapImage>) {
        let map = self.0.as_ref().expect("a recovery by bits is of an array with a bitmap");
        map.to_recover.replace(Some(bits));
    }

    /// The same as [`Intent::stretch_to_resync`], for a recovery by bits.
    pub(crate) fn stretch_to_recover(&self, at: u64, end: u64) -> Option<Range<u64>> {
        assert!(at < end, "a stretch is not empty");
        let map = self.0.as_ref().expect("a recovery by bits is of an array with a bitmap");
        let bits = map.to_recover.borrow();
        map.stretch(bits.as_ref().expect("the bits come before the pass"), at, end)
    }
}

impl Map {
    /// On parity levels a row counts as a whole: a write to a part of it may change any sector of its parity.
    #[inline]
    fn chunks_of(&self, range: ArrayRange) -> Range<u64> {
        assert!(!range.length.is_zero(), "a write has a last sector");
        let (first, last) = (range.start.0, range.end().0 - 1);
        let (first, last) = match self.rows {
            None => (first, last),
            Some((stripe, chunk)) => (first / stripe * chunk, (last / stripe + 1) * chunk - 1),
        };
        let chunks = first >> self.shift..(last >> self.shift) + 1;
        assert!(chunks.end <= self.chunks, "each sector has its chunk");
        chunks
    }

    /// The part inside `at..end` of the first stretch of set bits that reaches into it.
    fn stretch(&self, bits: &BitmapImage, at: u64, end: u64) -> Option<Range<u64>> {
        let chunk = bits.next_set(at >> self.shift)?;
        let start = at.max((chunk << self.shift) / STRETCH_ALIGNMENT * STRETCH_ALIGNMENT);
        let until = |chunk: u64| end.min((chunk << self.shift).next_multiple_of(STRETCH_ALIGNMENT));
        let until = bits.next_clear(chunk).map_or(end, until);
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
    use uraid_block::Sectors;
    use uraid_format::bitmap::{BitmapHeader, BitmapVersion};

    #[test]
    fn a_stretch_of_small_chunks_is_whole_blocks() {
        let header = BitmapHeader {
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
        };
        let mut bits = BitmapImage::filled(header, Sectors(8)).expect("it fits").cleared();
        [13, 14, 99].into_iter().for_each(|chunk| bits.set(chunk));
        let (known, to_recover) = (vec![Cell::new(0); 2], RefCell::default());
        let map =
            Map { shift: 0, chunks: 100, rows: None, known, round: Cell::default(), to_resync: Some(bits), to_recover };
        let intent = Intent(Some(map));
        assert_eq!(intent.stretch_to_resync(0, 100), Some(8..16));
        assert_eq!(intent.stretch_to_resync(8, 100), Some(8..16), "from its start it is the same");
        assert_eq!(intent.stretch_to_resync(10, 100), Some(10..16), "never before what was asked for");
        assert_eq!(intent.stretch_to_resync(16, 100), Some(96..100), "never behind the end");
        assert_eq!(intent.stretch_to_resync(15, 96), None);
    }
}
