//! What one write costs the members, without performing it.
//! Owns: [`WriteCost`], [`write_cost`]. Not here: the choice of each row's plan (`row::plan`), which sectors lie where
//! (`layout`). Pure: numbers in, numbers out.
//! Invariant: the numbers are those that the engine counts for the same write, performed alone, in rows that are in sync
//! and without a partial parity log.
//!
//! ```text
//!   raid6 of 12, 64 KiB chunks: 10 chunks of data a stripe
//!   1280 KiB at the start of a stripe     2 rows full                                  no reads, 24 writes
//!   1280 KiB, 128 KiB into a stripe       1 row full, 1 reconstructed, 1 modified      6 reads, 26 writes
//! ```

use crate::row::io::{full_max, partial_max};
use crate::row::plan::{RowPlan, blocks_of, choose, reads_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use uraid_block::{ArrayRange, Sectors, Slot, SlotSet};
use uraid_layout::{Layout, ParityLayout, RowPart};

/// The I/O on the members for one write or for several, and how the rows of a parity level are written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteCost {
    /// Reads that the engine asks members for: of at most 64 KiB each on parity levels.
    pub reads: u64,
    /// Writes that it asks them for.
    pub writes: u64,
    /// Reads that the members' devices get, as those that are side by side become one.
    pub device_reads: u64,
    /// Writes that they get.
    pub device_writes: u64,
    /// Rows written whole, without a read. A row of long chunks is written in parts, and each counts, as below.
    pub rows_full: u64,
    /// Row parts written by read-modify-write.
    pub rows_modified: u64,
    /// Row parts written after reading the rest of their row.
    pub rows_reconstructed: u64,
}

impl WriteCost {
    /// All I/O on the members' devices.
    pub fn ios(&self) -> u64 {
        self.device_reads + self.device_writes
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
        self.device_reads += other.device_reads;
        self.device_writes += other.device_writes;
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
            let writes = plan.runs.len() as u64;
            plan.lost.is_empty().then(|| WriteCost { writes, device_writes: writes, ..WriteCost::default() })
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
    let (mut read, mut written) = (Runs::default(), Runs::default());
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
        let (reads, writes) = (reads_of(plan, covered, &blocks)?, covered.or(blocks.parities()).and(in_sync));
        let mut cost = WriteCost {
            reads: reads.count() as u64 * intervals,
            writes: writes.count() as u64 * intervals,
            device_reads: read.add(reads, (pair[0], pair[1])),
            device_writes: written.add(writes, (pair[0], pair[1])),
            ..WriteCost::default()
        };
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

/// For each slot, where its last stretch in the row ends.
#[derive(Default)]
struct Runs(BTreeMap<Slot, u64>);

impl Runs {
    /// Adds a stretch of these slots, behind the earlier ones. Returns how many requests more that makes.
    fn add(&mut self, slots: SlotSet, (start, end): (u64, u64)) -> u64 {
        slots.iter().filter(|slot| self.0.insert(*slot, end) != Some(start)).count() as u64
    }
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
    use uraid_block::ArraySector;
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

    /// raid5 of 4 with chunks of 512 KiB: the engine writes stretches, and each device gets its chunk as one write.
    #[test]
    fn stretches_side_by_side_are_one_request_of_the_device() {
        let layout = layout(Level::Raid5, 4, 1024);
        let full = cost(&layout, &[], 0, 3072).expect("it can be written");
        assert_eq!((full.device_reads, full.device_writes), (0, 4));
        assert!(full.writes > 4);
        // Half of a chunk: the other half of the row is not touched.
        let half = cost(&layout, &[], 0, 512).expect("it can be written");
        assert_eq!((half.device_reads, half.device_writes), (2, 2));
        // The end of one chunk and the beginning of the next: their parity is in two places.
        let across = cost(&layout, &[], 896, 256).expect("it can be written");
        assert_eq!((across.device_reads, across.device_writes), (4, 4));
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
