//! Why an array cannot be made.
//! Owns: [`CreateError`] and its texts. Not here: the checks (the parent).

use crate::NoCopies;
use uraid_block::Sectors;
use uraid_layout::LayoutError;

/// Why such an array cannot be made. Member numbers are indexes into the list, from 0. The text of an error about one
/// member continues a line that begins with that member's name: see [`CreateError::member`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateError {
    /// Version 0.90.
    #[error("0.90 superblocks are read, not written: give 1.0, 1.1 or 1.2")]
    OldVersion,
    /// A data offset for a version that has its data at the start.
    #[error("data offset is {}, but with version 1.0 data starts at the start of the member", found.size())]
    DataOffsetNotZero {
        /// The requested offset.
        found: Sectors,
    },
    /// The list does not have the promised length.
    #[error("{found} members are listed, expected {expected}: one for each slot and each spare, or the word missing")]
    MemberCount {
        /// Entries listed.
        found: usize,
        /// Slots and spares.
        expected: usize,
    },
    /// More slots than uraid handles.
    #[error("{found} slots are asked for, at most {maximum} are possible")]
    TooManySlots {
        /// The requested number of slots.
        found: u16,
        /// What is possible.
        maximum: u16,
    },
    /// More devices than a superblock can name.
    #[error("{found} slots and spares are asked for, a superblock can name {maximum}")]
    TooManyDevices {
        /// Slots and spares.
        found: usize,
        /// What a role table holds.
        maximum: usize,
    },
    /// An array with one slot.
    #[error("one slot is an unusual number for {level}: give --force if it is meant")]
    SingleSlot {
        /// The level.
        level: &'static str,
    },
    /// Fewer slots than the level needs.
    #[error("{level} is asked for with {found} slots, it needs at least {minimum}")]
    TooFewSlots {
        /// The level.
        level: &'static str,
        /// The requested number of slots.
        found: u16,
        /// The least.
        minimum: u16,
    },
    /// A spare for a level that cannot use one.
    #[error("{level} cannot use spares, {found} are asked for")]
    NoSpares {
        /// The level.
        level: &'static str,
        /// The requested number of spares.
        found: u16,
    },
    /// `missing` in the place of a spare.
    #[error("stands in the place of a spare, and no spare can be missing: leave it out")]
    MissingSpare {
        /// Its place in the list.
        member: usize,
    },
    /// No slot has a device.
    #[error("no slot has a device, all are missing: give at least as many as {level} needs")]
    NoDevice {
        /// The level.
        level: &'static str,
    },
    /// More is missing than the level survives.
    #[error(
        "{found} of {slots} slots have a device, too few for {level}: it cannot serve all its data without the rest"
    )]
    TooManyMissing {
        /// The level.
        level: &'static str,
        /// Slots with a device.
        found: usize,
        /// All slots.
        slots: u16,
    },
    /// A raid6 with one slot missing would start without a parity that can be trusted.
    #[error(
        "a raid6 with 1 slot missing would start dirty and degraded: give all devices, leave 2 missing, or say --assume-clean or --force"
    )]
    DirtyDegraded,
    /// A chunk that the level cannot have.
    #[error("chunk is {}, expected a multiple of {} from 4 KiB to 1 TiB for {level}", found.size(), multiple.size())]
    Chunk {
        /// The level.
        level: &'static str,
        /// The requested chunk.
        found: Sectors,
        /// What it must be a multiple of.
        multiple: Sectors,
    },
    /// Data would overlap the superblock, or start too far out.
    #[error("data offset is {}, expected at least {}, behind the superblock", found.size(), minimum.size())]
    DataOffset {
        /// The requested offset.
        found: Sectors,
        /// The first possible one.
        minimum: Sectors,
    },
    /// A device is too small to hold anything.
    #[error("has {}, at least {} are needed", found.size(), minimum.size())]
    DeviceTooSmall {
        /// Its place in the list.
        member: usize,
        /// Its size.
        found: Sectors,
        /// The least size.
        minimum: Sectors,
    },
    /// A device is smaller than `--size`.
    #[error("has {} for data, --size asks for {}", found.size(), expected.size())]
    SizeTooLarge {
        /// Its place in the list.
        member: usize,
        /// What it has.
        found: Sectors,
        /// The requested value.
        expected: Sectors,
    },
    /// `--size` rounds down to nothing.
    #[error("size is {}, expected at least {}", found.size(), minimum.size())]
    SizeTooSmall {
        /// The requested value.
        found: Sectors,
        /// The least.
        minimum: Sectors,
    },
    /// A bitmap for a level that has no redundancy.
    #[error("{level} has no redundancy that a bitmap could help to make consistent: leave --bitmap out")]
    NoBitmap {
        /// The level.
        level: &'static str,
    },
    /// Members that are too small.
    #[error("members of which {} are used have no room for a bitmap: leave --bitmap out", found.size())]
    NoBitmapRoom {
        /// What is used of each.
        found: Sectors,
    },
    /// An impossible chunk of a bitmap.
    #[error(
        "bitmap chunk is {}, expected a power of two from {} to 1 GiB: there must be room for all bits",
        found.size(),
        minimum.size()
    )]
    BitmapChunk {
        /// The requested value.
        found: Sectors,
        /// The least.
        minimum: Sectors,
    },
    /// A partial parity log for another level than raid5.
    #[error("{level} can have no partial parity log, expected raid5: give --consistency-policy=bitmap")]
    NoPpl {
        /// The level.
        level: &'static str,
    },
    /// A partial parity log for more members than md allows.
    #[error("{found} slots are asked for, with a partial parity log at most {maximum} are possible")]
    PplSlots {
        /// Slots asked for.
        found: u16,
        /// What md allows.
        maximum: u16,
    },
    /// Flags of members for a level without copies.
    #[error(transparent)]
    NoCopies(#[from] NoCopies),
    /// The layout is impossible for the level.
    #[error("this array cannot be laid out")]
    Layout(#[source] LayoutError),
}

impl CreateError {
    /// The place in the list of the member that it is about, if it is about one.
    pub fn member(&self) -> Option<usize> {
        match self {
            CreateError::MissingSpare { member }
            | CreateError::DeviceTooSmall { member, .. }
            | CreateError::SizeTooLarge { member, .. } => Some(*member),
            CreateError::Layout(error) => error.slot().map(|slot| slot.0.into()),
            CreateError::OldVersion
            | CreateError::DataOffsetNotZero { .. }
            | CreateError::MemberCount { .. }
            | CreateError::TooManySlots { .. }
            | CreateError::TooManyDevices { .. }
            | CreateError::SingleSlot { .. }
            | CreateError::TooFewSlots { .. }
            | CreateError::NoSpares { .. }
            | CreateError::NoDevice { .. }
            | CreateError::TooManyMissing { .. }
            | CreateError::DirtyDegraded
            | CreateError::Chunk { .. }
            | CreateError::DataOffset { .. }
            | CreateError::NoBitmap { .. }
            | CreateError::NoBitmapRoom { .. }
            | CreateError::BitmapChunk { .. }
            | CreateError::NoPpl { .. }
            | CreateError::PplSlots { .. }
            | CreateError::NoCopies(_)
            | CreateError::SizeTooSmall { .. } => None,
        }
    }
}
