//! The write-intent bitmap of a running array, in a report.
//! Owns: its figures. Not here: mdadm's and md's lines of it (`report`, `mdstat`).

use serde::{Deserialize, Serialize};

/// A write-intent bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bitmap {
    /// What a bit stands for.
    pub chunk_sectors: u64,
    /// Bits.
    pub chunks: u64,
    /// How many writes may be behind on write-mostly members; 0: none.
    #[serde(default)]
    pub write_behind: u32,
    /// Bits that are set.
    pub dirty: u64,
    /// Groups of 2048 bits of which some are set.
    pub pages_dirty: u64,
}
