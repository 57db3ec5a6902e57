//! How one row is written: pure, numbers in, a plan out.
//! Owns: laying the new bytes of several writes over each other, cutting them where coverage changes, the choice of
//! how parity is made. Not here: any I/O (`row_io`).
//! Invariant: within one interval every data chunk is covered wholly or not at all.
//!
//! ```text
//!   chunk of data 0   ....####      # new bytes      intervals:  [0,2) covers 1,2
//!   chunk of data 1   ########                                   [2,4) covers 1
//!   chunk of data 2   ##......                                   [4,8) covers 0,1
//! ```

use smallvec::SmallVec;
use uraid_block::{Sectors, WritePieces};

/// New bytes for a stretch of one data chunk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Which data chunk of the row.
    pub(crate) data: usize,
    /// From the start of the chunk.
    pub(crate) start: Sectors,
    pub(crate) from: WritePieces,
}

impl Segment {
    pub(crate) fn end(&self) -> Sectors {
        self.start + self.from.length()
    }

    /// The bytes of `length` sectors from `start` of the chunk. Panics outside.
    pub(crate) fn slice(&self, start: Sectors, length: Sectors) -> WritePieces {
        self.from.slice((start - self.start).len_bytes(), length.len_bytes())
    }
}

/// The new bytes of a row: later writes lie over earlier ones.
#[derive(Default, Debug)]
pub(crate) struct Overlay {
    segments: Vec<Segment>,
    /// Where the last of the row's bytes that were written ends.
    end: Sectors,
}

impl Overlay {
    /// Lays a write over what is there: `from` covers the row's data from `start` on.
    pub(crate) fn add(&mut self, chunk: Sectors, start: Sectors, from: &WritePieces) {
        let mut at = start;
        let end = start + from.length();
        while at < end {
            let in_chunk = Sectors(at.0 % chunk.0);
            let length = Sectors((chunk - in_chunk).0.min((end - at).0));
            let from = from.slice((at - start).len_bytes(), length.len_bytes());
            let new = Segment { data: (at.0 / chunk.0) as usize, start: in_chunk, from };
            // A stream's writes come one behind the other: 768 of 4 KiB make up six chunks, and six segments.
            if at >= self.end {
                self.lay_behind(new)
            } else {
                self.lay(new)
            }
            at += length;
            self.end = self.end.max(at);
        }
    }

    fn lay_behind(&mut self, new: Segment) {
        match self.segments.last_mut() {
            Some(last) if last.data == new.data && last.end() == new.start => last.from.append(new.from),
            Some(_) | None => self.segments.push(new),
        }
    }

    fn lay(&mut self, new: Segment) {
        let mut kept = Vec::with_capacity(self.segments.len() + 2);
        for old in self.segments.drain(..) {
            if old.data != new.data || old.end() <= new.start || new.end() <= old.start {
                kept.push(old);
                continue;
            }
            if old.start < new.start {
                let from = old.slice(old.start, new.start - old.start);
                kept.push(Segment { data: old.data, start: old.start, from });
            }
            if new.end() < old.end() {
                let from = old.slice(new.end(), old.end() - new.end());
                kept.push(Segment { data: old.data, start: new.end(), from });
            }
        }
        kept.push(new);
        self.segments = kept;
    }

    /// The stretches of the chunk in which the same data chunks are covered, ascending, and no longer than the bounds.
    pub(crate) fn intervals(&self, data_chunks: usize, partial_max: Sectors, full_max: Sectors) -> Vec<Interval> {
        let mut edges: Vec<Sectors> = self.segments.iter().flat_map(|segment| [segment.start, segment.end()]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut intervals = Vec::new();
        for pair in edges.windows(2) {
            let covered = self.covering(pair[0]).map(|segment| segment.data).collect::<SmallVec<[usize; 16]>>();
            if covered.is_empty() {
                continue;
            }
            let longest = if covered.len() == data_chunks { full_max } else { partial_max };
            let mut at = pair[0];
            while at < pair[1] {
                let length = Sectors(longest.0.min((pair[1] - at).0));
                let mut new: SmallVec<[Option<WritePieces>; 16]> = smallvec::smallvec![None; data_chunks];
                for segment in self.covering(at) {
                    new[segment.data] = Some(segment.slice(at, length));
                }
                intervals.push(Interval { start: at, length, new });
                at += length;
            }
        }
        intervals
    }

    fn covering(&self, at: Sectors) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.start <= at && at < segment.end())
    }
}

/// A stretch of a row's chunks with its new bytes.
#[derive(Debug)]
pub(crate) struct Interval {
    /// From the start of the chunk.
    pub(crate) start: Sectors,
    pub(crate) length: Sectors,
    /// The new bytes of each data chunk that is covered.
    pub(crate) new: SmallVec<[Option<WritePieces>; 16]>,
}

/// What can be done with one block of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    /// Read and written.
    Whole,
    /// Written, but its old bytes cannot be had.
    Unreadable,
    /// Its member is lost.
    Lost,
}

impl Block {
    fn is_readable(self) -> bool {
        self == Block::Whole
    }

    fn is_usable(self) -> bool {
        self != Block::Lost
    }
}

/// The blocks of one interval.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) data: SmallVec<[Block; 16]>,
    /// Parity, and syndrome (Q) where the level has one.
    pub(crate) parities: SmallVec<[Block; 2]>,
}

impl Blocks {
    /// How many data blocks have to be computed before all are known.
    pub(crate) fn unknown(&self) -> usize {
        self.data.iter().filter(|block| !block.is_readable()).count()
    }

    pub(crate) fn readable_parities(&self) -> usize {
        self.parities.iter().filter(|block| block.is_readable()).count()
    }
}

/// How an interval is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowPlan {
    /// Every data chunk is new: parity from the new bytes, nothing is read.
    FullStripe,
    /// No parity is left to keep right: only data is written.
    DataOnly,
    /// Parity changes by what the data changes: read what is overwritten, and parity.
    ReadModifyWrite,
    /// Parity from the new bytes and the rest of the row: read the rest.
    Reconstruct,
    /// Some of the rest is lost: read everything, compute it, then as above.
    Recover,
    /// More is lost than parity can give.
    Impossible,
}

/// Counts member reads and takes the cheaper way; of equals the one that does not trust the old parity.
pub(crate) fn choose(covered: &[bool], blocks: &Blocks) -> RowPlan {
    assert_eq!(covered.len(), blocks.data.len());
    let new = covered.iter().filter(|is_covered| **is_covered).count();
    if new == covered.len() {
        return RowPlan::FullStripe;
    }
    let parities = blocks.parities.iter().filter(|block| block.is_usable()).count();
    if parities == 0 {
        let all_usable = covered.iter().zip(&blocks.data).all(|(is_covered, block)| !is_covered || block.is_usable());
        return if all_usable { RowPlan::DataOnly } else { RowPlan::Impossible };
    }
    let old_readable = covered.iter().zip(&blocks.data).all(|(is_covered, block)| !is_covered || block.is_readable());
    let parity_readable = blocks.parities.iter().all(|block| !block.is_usable() || block.is_readable());
    let rest_readable = covered.iter().zip(&blocks.data).all(|(is_covered, block)| *is_covered || block.is_readable());
    match (old_readable && parity_readable, rest_readable) {
        (true, true) if new + parities < covered.len() - new => RowPlan::ReadModifyWrite,
        (_, true) => RowPlan::Reconstruct,
        (true, false) => RowPlan::ReadModifyWrite,
        (false, false) if blocks.unknown() <= blocks.readable_parities() => RowPlan::Recover,
        (false, false) => RowPlan::Impossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Arena;

    fn blocks(data: &str, parities: &str) -> Blocks {
        let block = |letter: char| match letter {
            'w' => Block::Whole,
            'u' => Block::Unreadable,
            _ => Block::Lost,
        };
        Blocks { data: data.chars().map(block).collect(), parities: parities.chars().map(block).collect() }
    }

    fn chosen(covered: &str, data: &str, parities: &str) -> RowPlan {
        let covered: Vec<bool> = covered.chars().map(|letter| letter == '#').collect();
        choose(&covered, &blocks(data, parities))
    }

    #[test]
    fn the_table_of_row_plans() {
        use RowPlan::*;
        // covered, data members (w whole, u unreadable, l lost), parity members: P or P and Q
        assert_eq!(chosen("####", "wwww", "w"), FullStripe);
        assert_eq!(chosen("####", "wwlw", "w"), FullStripe);
        assert_eq!(chosen("#...", "wwww", "w"), ReadModifyWrite, "2 reads against 3");
        assert_eq!(chosen("##..", "wwww", "w"), Reconstruct, "3 reads against 2");
        assert_eq!(chosen("#..", "www", "w"), Reconstruct, "2 against 2: the old parity is not trusted");
        assert_eq!(chosen("#...", "wwww", "ww"), Reconstruct, "raid6 6: 3 against 3");
        assert_eq!(chosen("#.....", "wwwwww", "ww"), ReadModifyWrite, "3 against 5");
        assert_eq!(chosen("#...", "wwww", "l"), DataOnly);
        assert_eq!(chosen("#...", "wwww", "ll"), DataOnly);
        assert_eq!(chosen("#...", "wlww", "w"), ReadModifyWrite, "a lost neighbour leaves only the change of parity");
        assert_eq!(chosen("#...", "lwww", "w"), Reconstruct, "a lost target covered whole: the rest gives parity");
        assert_eq!(chosen("#...", "llww", "ww"), Recover);
        assert_eq!(chosen("#...", "luww", "ww"), Recover);
        assert_eq!(chosen("#...", "uwww", "w"), Reconstruct);
        assert_eq!(chosen("#...", "wlww", "u"), Impossible);
        assert_eq!(chosen("#...", "llww", "lw"), Impossible);
        assert_eq!(chosen("#...", "wlww", "lw"), ReadModifyWrite);
    }

    #[test]
    fn the_writes_of_a_stream_become_one_segment_a_chunk() {
        let arena = Arena::new(16, 0);
        let bytes = |byte: u8| {
            let mut pieces = arena.take(512).expect("room");
            pieces.fill(byte);
            pieces.freeze()
        };
        let mut overlay = Overlay::default();
        (0..12).for_each(|at| overlay.add(Sectors(4), Sectors(at), &bytes(at as u8)));
        assert_eq!(overlay.segments.len(), 3);
        overlay.add(Sectors(4), Sectors(5), &bytes(99));
        let intervals = overlay.intervals(3, Sectors(4), Sectors(4));
        let found: Vec<Vec<u8>> = (0..3)
            .map(|data| {
                let of_data = intervals.iter().map(|interval| interval.new[data].as_ref().expect("covered").to_vec());
                of_data.flatten().step_by(512).collect()
            })
            .collect();
        assert_eq!(found, [[0, 1, 2, 3], [4, 99, 6, 7], [8, 9, 10, 11]]);
    }

    #[test]
    fn later_writes_lie_over_earlier_ones_and_intervals_are_covered_evenly() {
        let arena = Arena::new(16, 0);
        let bytes = |sectors: usize, byte: u8| {
            let mut pieces = arena.take(sectors * 512).expect("room");
            pieces.fill(byte);
            pieces.freeze()
        };
        let mut overlay = Overlay::default();
        overlay.add(Sectors(8), Sectors(4), &bytes(14, 1)); // data 0 from 4, data 1 whole, data 2 up to 2
        overlay.add(Sectors(8), Sectors(10), &bytes(2, 2)); // over data 1, 2..4
        let intervals = overlay.intervals(3, Sectors(3), Sectors(8));
        let shape: Vec<(u64, u64, String)> = intervals
            .iter()
            .map(|interval| {
                let covered = interval.new.iter().map(|new| match new {
                    Some(pieces) => char::from(b'0' + pieces.to_vec()[0]),
                    None => '.',
                });
                (interval.start.0, interval.length.0, covered.collect())
            })
            .collect();
        let expected = [(0, 2, ".11"), (2, 2, ".2."), (4, 3, "11."), (7, 1, "11.")];
        assert_eq!(shape, expected.map(|(start, length, covered)| (start, length, covered.to_string())));
    }
}
