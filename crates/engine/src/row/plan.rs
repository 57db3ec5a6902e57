//! The plan for writing one row: pure, numbers in, a plan out.
//! Owns: overlaying the new bytes of several writes, cutting them where coverage changes, the choice of how parity is
//! computed, what is read for it. Not here: any I/O (`row::io`).
//! Invariant: within one interval every data chunk is covered wholly or not at all.
//!
//! ```text
//!   chunk of data 0   ....####      # new bytes      intervals:  [0,2) covers 1,2
//!   chunk of data 1   ########                                   [2,4) covers 1
//!   chunk of data 2   ##......                                   [4,8) covers 0,1
//! ```

use smallvec::{SmallVec, smallvec};
use uraid_block::{Sectors, Slot, SlotSet, WritePieces};
use uraid_layout::RowMap;

/// New bytes for a stretch of one data chunk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) data: usize,
    /// From the start of the chunk.
    pub(crate) start: Sectors,
    pub(crate) from: WritePieces,
}

impl Segment {
    pub(crate) fn end(&self) -> Sectors {
        self.start + self.from.length()
    }

    /// The part of `length` sectors from `start` of the chunk. Panics outside.
    fn cut(&self, start: Sectors, length: Sectors) -> Segment {
        assert!(self.start <= start && start + length <= self.end());
        Segment { data: self.data, start, from: self.slice(start, length) }
    }

    /// The new bytes of `length` sectors from `start` of the chunk.
    fn slice(&self, start: Sectors, length: Sectors) -> WritePieces {
        self.from.slice((start - self.start).len_bytes(), length.len_bytes())
    }
}

/// The new bytes of a row. Later writes replace earlier ones.
#[derive(Default, Debug)]
pub(crate) struct Overlay {
    segments: SmallVec<[Segment; 1]>,
    /// The end of the row's last written byte.
    end: Sectors,
}

impl Overlay {
    /// Adds a write over the earlier ones: `from` covers the row's data from `start` on.
    pub(crate) fn add(&mut self, chunk: Sectors, start: Sectors, from: WritePieces) {
        assert!(!chunk.is_zero());
        let end = start + from.length();
        let in_chunk = Sectors(start.0 % chunk.0);
        if in_chunk + from.length() <= chunk {
            self.put(start, Segment { data: (start.0 / chunk.0) as usize, start: in_chunk, from });
        } else {
            self.segments.reserve(((end.0 - 1) / chunk.0 - start.0 / chunk.0) as usize + 1);
            let mut from = from.cutter();
            let mut at = start;
            while at < end {
                let in_chunk = Sectors(at.0 % chunk.0);
                let length = Sectors((chunk - in_chunk).0.min((end - at).0));
                let mut of_chunk = WritePieces::new();
                from.cut(length.len_bytes(), &mut of_chunk);
                self.put(at, Segment { data: (at.0 / chunk.0) as usize, start: in_chunk, from: of_chunk });
                at += length;
            }
            assert!(from.is_empty(), "all of its bytes are laid");
        }
    }

    /// Lays a segment that begins at sector `at` of the row.
    fn put(&mut self, at: Sectors, new: Segment) {
        let end = at + new.from.length();
        // A stream's writes follow each other: 768 writes of 4 KiB make up six chunks, and six segments.
        if at >= self.end {
            self.lay_behind(new)
        } else {
            self.lay(new)
        }
        self.end = self.end.max(end);
    }

    fn lay_behind(&mut self, new: Segment) {
        if let Some(last) = self.segments.last() {
            assert!((last.data, last.end()) <= (new.data, new.start), "it lies behind all the others");
        }
        match self.segments.last_mut() {
            Some(last) if last.data == new.data && last.end() == new.start => last.from.append(new.from),
            Some(_) | None => self.segments.push(new),
        }
    }

    fn lay(&mut self, new: Segment) {
        let mut kept = SmallVec::with_capacity(self.segments.len() + 2);
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
        let overlaps = |old: &Segment| old.data == new.data && old.start < new.end() && new.start < old.end();
        assert!(!kept.iter().any(overlaps), "each sector has one new version");
        kept.push(new);
        self.segments = kept;
    }

    /// The stretches of the chunk in which the same data chunks are covered, ascending, and no longer than the bounds.
    /// `is_hole`: of all the writes.
    pub(crate) fn into_intervals(
        mut self,
        data_chunks: usize,
        partial_max: Sectors,
        full_max: Sectors,
        is_hole: bool,
    ) -> SmallVec<[Interval; 1]> {
        assert!(!partial_max.is_zero() && partial_max <= full_max);
        assert!(!self.segments.is_empty(), "a row is taken for a write");
        // A small write is usually one piece of one chunk, and a large one is whole chunks: there is nothing to cut.
        let (start, length) = (self.segments[0].start, self.segments[0].from.length());
        let longest = if self.segments.len() == data_chunks { full_max } else { partial_max };
        let is_even = |segment: &Segment| (segment.start, segment.from.length()) == (start, length);
        let is_ascending = self.segments.windows(2).all(|pair| pair[0].data < pair[1].data);
        if length <= longest && is_ascending && self.segments.iter().all(is_even) {
            return smallvec![Interval { start, length, new: self.segments, is_hole }];
        }
        let mut edges: Vec<Sectors> = self.segments.iter().flat_map(|segment| [segment.start, segment.end()]).collect();
        edges.sort_unstable();
        edges.dedup();
        // Order by data chunk within an interval.
        self.segments.sort_unstable_by_key(|segment| (segment.data, segment.start));
        let mut intervals = SmallVec::new();
        for pair in edges.windows(2) {
            let covered = self.covering(pair[0]).count();
            assert!(covered <= data_chunks, "a chunk is covered once");
            if covered == 0 {
                continue;
            }
            let longest = if covered == data_chunks { full_max } else { partial_max };
            let mut at = pair[0];
            while at < pair[1] {
                let length = Sectors(longest.0.min((pair[1] - at).0));
                let new: SmallVec<[Segment; 1]> = self.covering(at).map(|segment| segment.cut(at, length)).collect();
                assert_eq!(new.len(), covered, "within an interval a chunk is covered wholly or not at all");
                intervals.push(Interval { start: at, length, new, is_hole });
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
    /// The new bytes of each covered data chunk, ascending; each is as long as the interval.
    pub(crate) new: SmallVec<[Segment; 1]>,
    /// The new bytes are zeroes, which are to take no space on the members.
    pub(crate) is_hole: bool,
}

impl Interval {
    /// The slots of its new bytes.
    pub(crate) fn covered(&self, map: &RowMap) -> SlotSet {
        self.new.iter().map(|new| map.data[new.data]).collect()
    }

    /// The part of `length` sectors from `start` of the interval on.
    pub(crate) fn part(&self, start: Sectors, length: Sectors) -> Interval {
        assert!(!length.is_zero() && start + length <= self.length, "a part is inside");
        let start = self.start + start;
        let new = self.new.iter().map(|new| new.cut(start, length)).collect();
        Interval { start, length, new, is_hole: self.is_hole }
    }
}

/// The state of an interval's blocks, as slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// The data blocks.
    pub(crate) data: SlotSet,
    pub(crate) parity: Slot,
    /// The slot of Q, if the level has it.
    pub(crate) syndrome: Option<Slot>,
    /// Slots whose members can be written; all others are lost.
    pub(crate) usable: SlotSet,
    /// Slots whose old bytes can be read; a subset of `usable`.
    pub(crate) readable: SlotSet,
    /// Whether the old parity matches the old data. It may not match before the resync has passed this row.
    pub(crate) is_in_sync: bool,
}

/// The blocks of a row that a resync has passed.
pub(crate) fn blocks_of(map: &RowMap, usable: SlotSet, readable: SlotSet) -> Blocks {
    assert!(readable.is_within(usable), "a member that is read is written, too");
    let data = map.data.iter().copied().collect();
    Blocks { data, parity: map.parity, syndrome: map.syndrome, usable, readable, is_in_sync: true }
}

impl Blocks {
    /// How many data blocks have to be computed before all are known.
    pub(crate) fn unknown(&self) -> usize {
        self.data.minus(self.readable).count()
    }

    pub(crate) fn parities(&self) -> SlotSet {
        assert_ne!(self.syndrome, Some(self.parity), "P and Q are on different members");
        let p = SlotSet::EMPTY.with(self.parity);
        self.syndrome.map_or(p, |q| p.with(q))
    }

    pub(crate) fn readable_parities(&self) -> usize {
        self.parities().and(self.readable).count()
    }
}

/// How an interval is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowPlan {
    /// Every data chunk is new: parity from the new bytes, nothing is read.
    FullStripe,
    /// No parity is left to keep right: only data is written.
    DataOnly,
    /// Update parity by the difference of the data: read the overwritten data and the old parity.
    ReadModifyWrite,
    /// Compute parity from the new bytes and the rest of the row: read the rest.
    Reconstruct,
    /// Some of the rest is lost: read everything, compute the lost blocks, then write as above.
    Recover,
    /// More is lost than parity can compute.
    Impossible,
}

/// Counts member reads and chooses the cheaper plan. Of equal plans, it chooses the one that does not depend on the old
/// parity. `covered`: the slots of the new data.
///
/// If the old parity may be wrong, a read-modify-write leaves it wrong, and the new data is lost if its member fails.
/// So all parity is computed anew, as the resync does, unless all of it is needed to compute lost blocks: then no
/// parity is left over that could be wrong.
pub(crate) fn choose(covered: SlotSet, blocks: &Blocks) -> RowPlan {
    assert!(covered.is_within(blocks.data) && blocks.readable.is_within(blocks.usable));
    assert!(!covered.is_empty(), "something is to be written");
    assert!(!blocks.data.contains(blocks.parity), "P and the data are on different members");
    let rest = blocks.data.minus(covered);
    if rest.is_empty() {
        return RowPlan::FullStripe;
    }
    let parities = blocks.parities().and(blocks.usable);
    if parities.is_empty() {
        return if covered.is_within(blocks.usable) { RowPlan::DataOnly } else { RowPlan::Impossible };
    }
    if !blocks.is_in_sync && !rest.is_within(blocks.readable) && blocks.unknown() < blocks.readable_parities() {
        return RowPlan::Recover;
    }
    let old = covered.or(parities);
    match (old.is_within(blocks.readable), rest.is_within(blocks.readable)) {
        (true, true) if old.count() < rest.count() && blocks.is_in_sync => RowPlan::ReadModifyWrite,
        (_, true) => RowPlan::Reconstruct,
        (true, false) => RowPlan::ReadModifyWrite,
        (false, false) if blocks.unknown() <= blocks.readable_parities() => RowPlan::Recover,
        (false, false) => RowPlan::Impossible,
    }
}

/// The slots that a plan has to read; `None` when the row cannot be written.
pub(crate) fn reads_of(plan: RowPlan, covered: SlotSet, blocks: &Blocks) -> Option<SlotSet> {
    assert_eq!(plan == RowPlan::FullStripe, blocks.data.is_within(covered), "only a full stripe knows all new bytes");
    match plan {
        RowPlan::FullStripe | RowPlan::DataOnly => Some(SlotSet::EMPTY),
        RowPlan::ReadModifyWrite => Some(covered.or(blocks.parities().and(blocks.usable))),
        RowPlan::Reconstruct => Some(blocks.data.minus(covered)),
        RowPlan::Recover => reads_to_recover(blocks),
        RowPlan::Impossible => None,
    }
}

/// Every readable data block, and one parity for each unknown data block, P before Q.
pub(crate) fn reads_to_recover(blocks: &Blocks) -> Option<SlotSet> {
    let unknown = blocks.unknown();
    let readable = |slot: &Slot| blocks.readable.contains(*slot);
    let parities = [Some(blocks.parity), blocks.syndrome].into_iter().flatten().filter(readable);
    let wanted: SlotSet = parities.take(unknown).collect();
    (wanted.count() == unknown).then(|| blocks.data.and(blocks.readable).or(wanted))
}

/// Every other block of a row of which one data block is lost: P and Q show whether they belong to the data.
pub(crate) fn reads_to_verify(blocks: &Blocks) -> Option<SlotSet> {
    let wanted = blocks.data.and(blocks.readable).or(blocks.parities());
    (blocks.unknown() == 1 && blocks.syndrome.is_some() && wanted.is_within(blocks.readable)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Arena;

    /// Data first, then P and Q. w: whole; u: unreadable, but written; l: lost.
    fn blocks(data: &str, parities: &str) -> Blocks {
        let letters = || (0..).map(Slot).zip(data.chars().chain(parities.chars()));
        let of =
            |wanted: &str| letters().filter(|(_, letter)| wanted.contains(*letter)).map(|(slot, _)| slot).collect();
        let across = data.len() as u16;
        Blocks {
            data: SlotSet::first(across),
            parity: Slot(across),
            syndrome: (parities.len() == 2).then_some(Slot(across + 1)),
            usable: of("wu"),
            readable: of("w"),
            is_in_sync: true,
        }
    }

    fn chosen(covered: &str, data: &str, parities: &str) -> RowPlan {
        choose(slots(covered), &blocks(data, parities))
    }

    fn slots(covered: &str) -> SlotSet {
        (0..).map(Slot).zip(covered.chars()).filter(|(_, letter)| *letter == '#').map(|(slot, _)| slot).collect()
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
    fn before_the_resync_parity_is_computed_anew_if_all_other_data_is_there() {
        let chosen = |covered: &str, data: &str, parities: &str| {
            choose(slots(covered), &Blocks { is_in_sync: false, ..blocks(data, parities) })
        };
        assert_eq!(chosen("#...", "wwww", "w"), RowPlan::Reconstruct);
        assert_eq!(chosen("#.....", "wwwwww", "ww"), RowPlan::Reconstruct);
        assert_eq!(chosen("#...", "wlww", "w"), RowPlan::ReadModifyWrite, "P is all that says what the lost one holds");
        assert_eq!(chosen("#...", "wlww", "ww"), RowPlan::Recover, "P says what the lost one holds; Q follows from it");
        assert_eq!(chosen("#...", "wlww", "wl"), RowPlan::ReadModifyWrite);
        assert_eq!(chosen("#...", "lwww", "ww"), RowPlan::Reconstruct);
        assert_eq!(chosen("####", "wwww", "w"), RowPlan::FullStripe);
    }

    #[test]
    fn what_is_read_for_each_plan() {
        let reads = |covered: &str, data: &str, parities: &str| {
            let blocks = blocks(data, parities);
            let plan = choose(slots(covered), &blocks);
            reads_of(plan, slots(covered), &blocks).map(|wanted| wanted.iter().map(|slot| slot.0).collect::<Vec<_>>())
        };
        assert_eq!(reads("####", "wwww", "w"), Some(vec![]));
        assert_eq!(reads("#...", "wwww", "w"), Some(vec![0, 4]));
        assert_eq!(reads("#.....", "wwwwww", "wl"), Some(vec![0, 6]), "a lost parity is not kept right");
        assert_eq!(reads("##..", "wwww", "w"), Some(vec![2, 3]));
        assert_eq!(reads("#...", "wwww", "ll"), Some(vec![]));
        assert_eq!(reads("#...", "luww", "ww"), Some(vec![2, 3, 4, 5]));
        assert_eq!(reads("#...", "wlww", "uw"), Some(vec![0, 2, 3, 5]), "one is unknown: Q alone gives it");
        assert_eq!(reads("#...", "wlww", "u"), None);
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
        (0..12).for_each(|at| overlay.add(Sectors(4), Sectors(at), bytes(at as u8)));
        assert_eq!(overlay.segments.len(), 3);
        overlay.add(Sectors(4), Sectors(5), bytes(99));
        let intervals = overlay.into_intervals(3, Sectors(4), Sectors(4), false);
        let found: Vec<Vec<u8>> = (0..3)
            .map(|data| {
                let of_data = intervals.iter().map(|interval| interval.new[data].from.to_vec());
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
        overlay.add(Sectors(8), Sectors(4), bytes(14, 1)); // data 0 from 4, data 1 whole, data 2 up to 2
        overlay.add(Sectors(8), Sectors(10), bytes(2, 2)); // over data 1, 2..4
        let intervals = overlay.into_intervals(3, Sectors(3), Sectors(8), false);
        let shape: Vec<(u64, u64, String)> = intervals
            .iter()
            .map(|interval| {
                let of = |data| interval.new.iter().find(|new| new.data == data);
                let covered = (0..3).map(|data| of(data).map_or('.', |new| char::from(b'0' + new.from.to_vec()[0])));
                (interval.start.0, interval.length.0, covered.collect())
            })
            .collect();
        let expected = [(0, 2, ".11"), (2, 2, ".2."), (4, 3, "11."), (7, 1, "11.")];
        assert_eq!(shape, expected.map(|(start, length, covered)| (start, length, covered.to_string())));
    }
}
