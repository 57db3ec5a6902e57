//! The sectors that one member lacks: the list in memory.
//! Owns: [`BadBlockList`]. Not here: its bytes (`uraid_format::bad_blocks`), which sectors are listed and when
//! (`bad_block_log`), where the list is believed (`member_counts`).

use crate::words::range_set::RangeSet;
use uraid_block::{Range, Sector, Sectors};
use uraid_format::Superblock;
use uraid_format::bad_blocks::{BAD_BLOCKS_BYTES, BadBlockLog, BadRange};

/// The most sectors of one entry that md writes.
const ENTRY_MAX: u64 = 512;

/// Sectors of a member that it lost, or could not be given: they are never read from it. Counted from the start of its
/// device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BadBlockList(RangeSet);

impl From<&BadBlockLog> for BadBlockList {
    fn from(log: &BadBlockLog) -> BadBlockList {
        log.ranges.iter().map(|bad| Range::new(bad.start, bad.length)).collect()
    }
}

impl FromIterator<Range> for BadBlockList {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> BadBlockList {
        BadBlockList(ranges.into_iter().collect())
    }
}

impl BadBlockList {
    /// Whether no sector is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The listed ranges, ascending.
    pub fn ranges(&self) -> &[Range] {
        self.0.ranges()
    }

    /// How many sectors are listed.
    pub fn sectors(&self) -> Sectors {
        self.0.sectors()
    }

    /// Whether a sector of the range is listed.
    pub fn overlaps(&self, range: Range) -> bool {
        self.0.overlaps(range)
    }

    /// Whether every sector of the range is listed.
    pub fn contains(&self, range: Range) -> bool {
        self.0.contains(range)
    }

    /// The longest stretch from the start of a range that is listed as a whole, or not at all.
    pub(crate) fn alike(&self, range: Range) -> Sectors {
        self.0.alike(range)
    }

    /// Lists a range.
    pub fn add(&mut self, range: Range) {
        self.0.add(range);
    }

    /// Takes a range out of the list.
    pub fn remove(&mut self, range: Range) {
        self.0.remove(range);
    }

    /// How many entries of md's list it takes.
    pub(crate) fn entries(&self) -> usize {
        self.ranges().iter().map(|range| range.length.0.div_ceil(ENTRY_MAX) as usize).sum()
    }

    /// The list as md writes it: entries of at most 512 sectors.
    pub(crate) fn log(&self) -> BadBlockLog {
        let entries = self.ranges().iter().flat_map(|range| {
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

    #[test]
    fn long_ranges_are_cut_into_entries_and_joined_again() {
        for length in [1, 511, 512, 513, 1024, 1025] {
            let one: BadBlockList = [Range::new(Sector(3000), Sectors(length))].into_iter().collect();
            let log = one.log();
            assert_eq!(log.ranges.len(), one.entries());
            assert!(log.ranges.iter().all(|entry| entry.length.0 <= ENTRY_MAX));
            let bytes = log.encode().expect("md can express it");
            let read = BadBlockLog::parse(&bytes[..], 0).expect("it was written");
            assert_eq!(BadBlockList::from(&read), one);
        }
    }
}
