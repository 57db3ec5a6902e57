//! What one write costs the members, without performing it.
//! Owns: [`WriteCost`], [`write_cost`]. Not here: the choice of each row's plan (`row_plan`), which sectors lie where
//! (`layout`). Pure: numbers in, numbers out.
//! Invariant: the numbers are those that the engine counts for the same write, performed alone, in rows that are in sync
//! and without a partial parity log.
//!
//! ```text
//!   raid6 of 12, 64 KiB chunks: 10 chunks of data a stripe
//!   1280 KiB at the start of a stripe     2 rows full                                  no reads, 24 writes
//!   1280 KiB, 128 KiB into a stripe       1 row full, 1 reconstructed, 1 modified      6 reads, 26 writes
//! ```

use crate::row_io::{full_max, partial_max};
use crate::row_plan::{RowPlan, blocks_of, choose, reads_of};
use std::collections::BTreeSet;
use std::ops::AddAssign;
use uraid_block::{ArrayRange, Sectors, SlotSet};
use uraid_layout::{Layout, ParityLayout, RowPart};

/// The I/O on the members for one write or for several, and how the rows of a parity level are written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteCost {
    /// Member reads.
    pub reads: u64,
    /// Member writes.
    pub writes: u64,
    /// Rows written whole, without a read. A row of long chunks is written in parts, and each counts, as below.
    pub rows_full: u64,
    /// Row parts written by read-modify-write.
    pub rows_modified: u64,
    /// Row parts written after reading the rest of their row.
    pub rows_reconstructed: u64,
}

impl WriteCost {
    /// All I/O on members.
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// Rows and parts of rows, however they are written.
    pub fn rows(&self) -> u64 {
        self.rows_full + self.rows_modified + self.rows_reconstructed
    }
}

impl AddAssign for WriteCost {
    fn add_assign(&mut self, other: WriteCost) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.rows_full += other.rows_full;
        self.rows_modified += other.rows_modified;
        self.rows_reconstructed += other.rows_reconstructed;
    }
}

/// The cost of writing `range` while the members of `in_sync` are there. `None`: the array cannot serve the write.
/// Panics outside the array.
pub fn write_cost(layout: &Layout, in_sync: SlotSet, range: ArrayRange) -> Option<WriteCost> {
    assert!(range.end().0 <= layout.array_size().0, "a write is inside the array");
    match layout {
        Layout::Copies(copies) => {
            let plan = copies.plan_write(range, &in_sync);
            plan.lost.is_empty().then(|| WriteCost { writes: plan.runs.len() as u64, ..WriteCost::default() })
        }
        Layout::Parity(parity) => {
            let mut sum = WriteCost::default();
            for part in parity.rows(range) {
                sum += row_cost(parity, in_sync, part)?;
            }
            Some(sum)
        }
    }
}

/// The cost of one stretch of a row's data.
fn row_cost(layout: &ParityLayout, in_sync: SlotSet, part: RowPart) -> Option<WriteCost> {
    let map = layout.row(part.row);
    let blocks = blocks_of(&map, in_sync, in_sync);
    let spans = spans(part, layout.chunk());
    let edges: BTreeSet<u64> = spans.iter().flat_map(|&(_, start, end)| [start, end]).collect();
    let edges: Vec<u64> = edges.into_iter().collect();
    let mut sum = WriteCost::default();
    for pair in edges.windows(2) {
        let of_pair = spans.iter().filter(|(_, start, end)| *start <= pair[0] && pair[1] <= *end);
        let covered: SlotSet = of_pair.map(|(data, ..)| map.data[*data]).collect();
        if covered.is_empty() {
            continue;
        }
        let is_whole = covered.count() == map.data.len();
        let longest = if is_whole { full_max(layout) } else { partial_max(layout, None) };
        let intervals = (pair[1] - pair[0]).div_ceil(longest.0);
        let plan = choose(covered, &blocks);
        let reads = reads_of(plan, covered, &blocks)?.count() as u64;
        let writes = covered.or(blocks.parities()).and(in_sync).count() as u64;
        let mut cost = WriteCost { reads: reads * intervals, writes: writes * intervals, ..WriteCost::default() };
        match plan {
            RowPlan::FullStripe => cost.rows_full = intervals,
            RowPlan::ReadModifyWrite => cost.rows_modified = intervals,
            RowPlan::Reconstruct | RowPlan::Recover => cost.rows_reconstructed = intervals,
            RowPlan::DataOnly => {}
            RowPlan::Impossible => return None,
        }
        sum += cost;
    }
    Some(sum)
}

/// The stretch of each data chunk that a part of a row covers: which chunk, from and to which sector of it.
fn spans(part: RowPart, chunk: Sectors) -> Vec<(usize, u64, u64)> {
    let (from, to, chunk) = (part.start.0, (part.start + part.length).0, chunk.0);
    let span = |data: u64| {
        let start = data * chunk;
        (data as usize, from.max(start) - start, to.min(start + chunk) - start)
    };
    (from / chunk..to.div_ceil(chunk)).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{ArraySector, Slot};
    use uraid_layout::{Level, Spec, default_layout};

    fn layout(level: Level, raid_disks: u16, chunk: u64) -> Layout {
        let spec = Spec {
            level,
            layout: default_layout(level),
            chunk: Sectors(chunk),
            raid_disks,
            size: Sectors(1 << 20),
            member_sizes: Vec::new(),
        };
        Layout::new(&spec).expect("a layout")
    }

    fn cost(layout: &Layout, lost: &[u16], start: u64, sectors: u64) -> Option<WriteCost> {
        let lost: SlotSet = lost.iter().copied().map(Slot).collect();
        let in_sync = SlotSet::first(layout.slots()).minus(lost);
        write_cost(layout, in_sync, ArrayRange::new(ArraySector(start), Sectors(sectors)))
    }

    /// S2: raid6 of 10 + 2 with chunks of 64 KiB, writes of 1280 KiB.
    #[test]
    fn a_write_of_two_stripes_costs_half_as_much_again_when_it_is_not_aligned() {
        let layout = layout(Level::Raid6, 12, 128);
        let aligned = cost(&layout, &[], 0, 2560).expect("it can be written");
        assert_eq!((aligned.reads, aligned.writes, aligned.rows_full, aligned.rows()), (0, 24, 2, 2));
        // Two chunks into a stripe: eight of the first row, all of the second, two of the third.
        let askew = cost(&layout, &[], 256, 2560).expect("it can be written");
        assert_eq!((askew.reads, askew.writes), (2 + 4, 10 + 12 + 4));
        assert_eq!((askew.rows_full, askew.rows_modified, askew.rows_reconstructed), (1, 1, 1));
    }

    #[test]
    fn small_writes_of_each_kind() {
        let raid5 = layout(Level::Raid5, 5, 128);
        let small = cost(&raid5, &[], 8, 8).expect("it can be written");
        assert_eq!((small.reads, small.writes, small.rows_modified), (2, 2, 1));
        let across = cost(&raid5, &[], 124, 8).expect("it can be written");
        // Two stretches of the row that do not lie at the same place of their chunks: each has its own parity.
        assert_eq!((across.reads, across.writes, across.rows_modified), (4, 4, 2));
        let mirror = cost(&layout(Level::Raid1, 3, 0), &[1], 0, 8).expect("it can be written");
        assert_eq!((mirror.reads, mirror.writes, mirror.rows()), (0, 2, 0));
        assert_eq!(cost(&raid5, &[0, 1], 0, 8), None);
    }
}
