//! The sectors that one member lacks: the list in memory.
//! Owns: [`BadBlockList`]. Not here: its bytes (`uraid_format::bad_blocks`), which sectors are listed and when
//! (`bad_block_log`), where the list is believed (`member_counts`).
//! Invariant: the ranges are sorted, and neither overlap nor touch, so that one list has one form.

use uraid_block::{Range, Sector, Sectors};
use uraid_format::Superblock;
use uraid_format::bad_blocks::{BAD_BLOCKS_BYTES, BadBlockLog, BadRange};

/// The most sectors of one entry that md writes.
const ENTRY_MAX: u64 = 512;

/// Sectors of a member that it lost, or could not be given: they are never read from it. Counted from the start of its
/// device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BadBlockList {
    ranges: Vec<Range>,
}

impl From<&BadBlockLog> for BadBlockList {
    fn from(log: &BadBlockLog) -> BadBlockList {
        log.ranges.iter().map(|bad| Range::new(bad.start, bad.length)).collect()
    }
}

impl FromIterator<Range> for BadBlockList {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> BadBlockList {
        let mut list = BadBlockList::default();
        ranges.into_iter().for_each(|range| list.add(range));
        list
    }
}

impl BadBlockList {
    /// Whether no sector is listed.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The listed ranges, ascending.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// How many sectors are listed.
    pub fn sectors(&self) -> Sectors {
        Sectors(self.ranges.iter().map(|range| range.length.0).sum())
    }

    /// Whether a sector of the range is listed.
    pub fn overlaps(&self, range: Range) -> bool {
        let first = self.ranges.partition_point(|listed| listed.end() <= range.start);
        !range.length.is_zero() && self.ranges.get(first).is_some_and(|listed| listed.start < range.end())
    }

    /// Whether every sector of the range is listed.
    pub fn contains(&self, range: Range) -> bool {
        let first = self.ranges.partition_point(|listed| listed.end() <= range.start);
        let is_inside = |listed: &Range| listed.start <= range.start && range.end() <= listed.end();
        range.length.is_zero() || self.ranges.get(first).is_some_and(is_inside)
    }

    /// Lists a range.
    pub fn add(&mut self, range: Range) {
        if range.length.is_zero() {
            return;
        }
        // Those that touch it become one with it.
        let first = self.ranges.partition_point(|listed| listed.end() < range.start);
        let behind = self.ranges.partition_point(|listed| listed.start <= range.end());
        let (mut start, mut end) = (range.start, range.end());
        if first < behind {
            start = start.min(self.ranges[first].start);
            end = end.max(self.ranges[behind - 1].end());
        }
        self.ranges.splice(first..behind, [Range::between(start, end)]);
    }

    /// Takes a range out of the list.
    pub fn remove(&mut self, range: Range) {
        if !self.overlaps(range) {
            return;
        }
        let kept = self.ranges.iter().flat_map(|listed| {
            let before = (listed.start, listed.end().min(range.start));
            let after = (listed.start.max(range.end()), listed.end());
            [before, after].into_iter().filter(|(start, end)| start < end)
        });
        self.ranges = kept.map(|(start, end)| Range::between(start, end)).collect();
    }

    /// How many entries of md's list it takes.
    pub(crate) fn entries(&self) -> usize {
        self.ranges.iter().map(|range| range.length.0.div_ceil(ENTRY_MAX) as usize).sum()
    }

    /// The list as md writes it: entries of at most 512 sectors.
    pub(crate) fn log(&self) -> BadBlockLog {
        let entries = self.ranges.iter().flat_map(|range| {
            let starts = (range.start.0..range.end().0).step_by(ENTRY_MAX as usize);
            starts.map(|start| BadRange { start: Sector(start), length: Sectors(ENTRY_MAX.min(range.end().0 - start)) })
        });
        BadBlockLog { shift: 0, ranges: entries.collect() }
    }
}

/// The place of a member's list on its device, if it has one that this engine can write: in sectors, as every mdadm
/// makes it, and in no more than 4 KiB.
pub(crate) fn room_to_write(superblock: &Superblock) -> Option<Range> {
    let room = superblock.bad_blocks_extent().filter(|room| room.length.len_bytes() <= BAD_BLOCKS_BYTES);
    room.filter(|_| superblock.bad_blocks.shift == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 7;

    fn range(start: u64, end: u64) -> Range {
        Range::between(Sector(start), Sector(end))
    }

    /// The list of the sectors whose bit is set.
    fn list(bits: u64) -> BadBlockList {
        (0..ALL).filter(|at| bits & 1 << at != 0).map(|at| range(at, at + 1)).collect()
    }

    #[test]
    fn a_list_is_a_set_of_sectors_whatever_is_added_and_removed() {
        for bits in 0..1 << ALL {
            let before = list(bits);
            assert!(before.ranges.windows(2).all(|pair| pair[0].end() < pair[1].start), "{before:?}");
            assert_eq!(before.sectors(), Sectors(u64::from(bits.count_ones())));
            for (start, end) in (0..=ALL).flat_map(|start| (start..=ALL).map(move |end| (start, end))) {
                let mask = (1 << end) - (1 << start);
                let (mut more, mut less) = (before.clone(), before.clone());
                more.add(range(start, end));
                less.remove(range(start, end));
                assert_eq!((more, less), (list(bits | mask), list(bits & !mask)), "{bits:b} {start}..{end}");
                assert_eq!(before.overlaps(range(start, end)), bits & mask != 0, "{bits:b} {start}..{end}");
                assert_eq!(before.contains(range(start, end)), bits & mask == mask, "{bits:b} {start}..{end}");
            }
        }
    }

    #[test]
    fn long_ranges_are_cut_into_entries_and_joined_again() {
        for length in [1, 511, 512, 513, 1024, 1025] {
            let one: BadBlockList = [range(3000, 3000 + length)].into_iter().collect();
            let log = one.log();
            assert_eq!(log.ranges.len(), one.entries());
            assert!(log.ranges.iter().all(|entry| entry.length.0 <= ENTRY_MAX));
            let bytes = log.encode().expect("md can express it");
            let read = BadBlockLog::parse(&bytes[..], 0).expect("it was written");
            assert_eq!(BadBlockList::from(&read), one);
        }
    }
}
