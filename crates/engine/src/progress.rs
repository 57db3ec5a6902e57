//! How far a pass has come, and what it met: in a window, on a shard, in the array.
//! Owns: [`Progress`], [`PassReport`], [`PassCounts`], what there is to pass over, the longest window. Not here: the pass (`pass`, `passes`).

use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_layout::Layout;

/// The longest stretch that a pass reads of a member at once.
pub(crate) const WINDOW: u64 = (LARGE_BLOCK_BYTES / SECTOR_BYTES) as u64;

/// How far a pass has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Sectors passed: of each member on parity levels, of the array on mirrors.
    pub done: Sectors,
    /// Sectors to pass.
    pub total: Sectors,
    /// Sectors that disagreed and were written again.
    pub corrected: Sectors,
    /// Sectors without redundancy left to check, because members are lost.
    pub skipped: Sectors,
    /// Sectors that more members could not read than can be computed. If there are any, the array stays marked dirty.
    pub unreadable: Sectors,
}

/// Sectors that a pass met, by what it did with them; as in [`Progress`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PassCounts {
    pub(crate) corrected: u64,
    pub(crate) skipped: u64,
    pub(crate) unreadable: u64,
}

impl PassCounts {
    pub(crate) fn add(&mut self, other: PassCounts) {
        self.corrected += other.corrected;
        self.skipped += other.skipped;
        self.unreadable += other.unreadable;
    }
}

/// How far a shard has come in its part of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PassReport {
    /// What the shard owns below this is done.
    pub(crate) below: Sectors,
    /// The same, and all of it could be read or computed.
    pub(crate) readable_below: Sectors,
    /// The sum of its windows.
    pub(crate) counts: PassCounts,
}

/// What a pass passes over: sectors of each member on parity levels, of the array on mirrors.
pub(crate) fn total(layout: &Layout) -> Sectors {
    match layout {
        Layout::Parity(layout) => Sectors(layout.rows_count() * layout.chunk().0),
        Layout::Copies(_) => layout.array_size(),
    }
}
