//! Why a device cannot join a running array.
//! Owns: [`AddError`], [`ReAddError`]. Not here: when they apply (`membership`, `take_slot`).

use uraid_block::{IoError, Sectors, Slot};
use uraid_layout::Level;

/// Why a member cannot join an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// The level cannot use spares.
    #[error("{} has no redundancy: no member can be recovered, so none can be added", level.name())]
    NoRedundancy {
        /// The level.
        level: Level,
    },
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The array is frozen.
    #[error("the array is frozen and takes no members: see to what it froze over, stop it and start it again")]
    Frozen(#[source] IoError),
    /// The superblocks have no number left for another device.
    #[error("all {maximum} numbers of members are in use or were since the start; stop the array and start it again")]
    Full {
        /// How many there are.
        maximum: usize,
    },
    /// The superblock on the joining device could not be written.
    #[error("its superblock cannot be written")]
    Superblock(#[source] IoError),
}

/// Why a former member cannot take its slot back with the data that it holds. The error's text follows the member's
/// name and a colon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReAddError {
    /// No member can join now.
    #[error(transparent)]
    NotNow(AddError),
    /// It is not known what it has missed.
    #[error("has missed writes, and without a write-intent bitmap it is not known which")]
    NoBitmap,
    /// It had no slot.
    #[error("had no slot, so there is nothing to take back")]
    NoSlot,
    /// Another member has its slot.
    #[error("was in {slot}, which has another member")]
    Taken {
        /// Its slot.
        slot: Slot,
    },
    /// It has missed more than the bitmap names.
    #[error("counts {found} events, and the bitmap names what was written since {expected}: it has missed more")]
    TooOld {
        /// Its events.
        found: u64,
        /// The count since which the bitmap names every write.
        expected: u64,
    },
    /// It ran without the array.
    #[error("counts {found} events, the array {expected}: both have run without the other")]
    Ahead {
        /// Its events.
        found: u64,
        /// Those of the array.
        expected: u64,
    },
    /// It once ran without a member that is in sync now.
    #[error("ran without a member that is in sync, so its data differs")]
    Apart,
    /// Its own bitmap does not name what was written to it last.
    #[error("has a bitmap of its own that cannot be relied on, so it is not known what differs")]
    OwnBitmap,
    /// Another member has failed just now, and no superblock says so yet.
    #[error("cannot return while the failure of another member is being recorded; try again")]
    Unrecorded,
    /// It never held everything.
    #[error("was recovered up to {} of {} when it left", found.size(), expected.size())]
    Incomplete {
        /// How far it was recovered.
        found: Sectors,
        /// What it would hold then.
        expected: Sectors,
    },
    /// It lists bad blocks.
    #[error("lists bad blocks, which a recovery does not avoid yet")]
    BadBlocks,
    /// Its device is smaller than it was.
    #[error("has {}, at least {} are needed", found.size(), expected.size())]
    Shrank {
        /// Its size.
        found: Sectors,
        /// The least size.
        expected: Sectors,
    },
    /// Its superblock describes another shape, or leaves no room for the bitmap.
    #[error("has a superblock of another shape than the array has now")]
    Shape,
    /// It could not take the bitmap.
    #[error("the bitmap cannot be written to it")]
    Bitmap(#[source] IoError),
    /// Its own superblock could not be written.
    #[error("its superblock cannot be written")]
    Superblock(#[source] IoError),
}
