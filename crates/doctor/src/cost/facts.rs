//! What is known of an array and of what lies on it, before anything is concluded.
//! Owns: [`Facts`], [`MemberFacts`], [`Volume`]. Not here: how they are found (the caller), the conclusions (`findings`).

use uraid_block::{Sector, Sectors, SlotSet};
use uraid_format::file_system::FileSystem;
use uraid_layout::Layout;

/// An array, as far as it matters for the I/O of its clients.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Which chunk lies where.
    pub layout: Layout,
    /// The slots whose members are in sync.
    pub in_sync: SlotSet,
    /// The smallest unit that its clients may read and write.
    pub logical_block: Sectors,
    /// How copies and parity agree after a crash, in mdadm's words: `resync`, `bitmap`, `ppl`, ...
    pub policy: String,
    /// The longest write that arrives whole from a file of `serve --fuse`, and so from a loop device.
    pub file_write_max: Sectors,
    /// The chunk of its write-intent bitmap.
    pub bitmap_chunk: Option<Sectors>,
    /// The members in sync.
    pub members: Vec<MemberFacts>,
}

/// A member in sync.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberFacts {
    /// Its path.
    pub name: String,
    /// Where its data begins, from the start of the drive: data offset and partition together. `None`: not known.
    pub data_start: Option<Sector>,
    /// The unit that its drive writes at once; `None`: not known, as of a file.
    pub physical_block: Option<Sectors>,
    /// A drive whose queue says that it cannot discard, or cannot zero without being sent zeroes.
    pub lacks_holes: bool,
}

/// A partition of the array, or all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// `partition 1`, or `the array`.
    pub name: String,
    /// From the start of the array.
    pub start: Sector,
    /// Its length.
    pub length: Sectors,
    /// What it holds.
    pub content: Content,
}

/// What a volume holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A file system that is looked into.
    FileSystem(FileSystem),
    /// Something else that is known, to follow "carries"; it is not looked into.
    Other(&'static str),
    /// Nothing that is known.
    Unknown,
    /// It cannot be read, or its first bytes are damaged.
    Unreadable(String),
    /// The partition table is damaged, or names what is not there: why.
    BadTable(String),
}
