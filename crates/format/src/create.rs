//! What a new array looks like: offsets, sizes and the first superblocks, the numbers that `mdadm --create` chooses.
//! Owns: the first state of an array. Not here: asking the user, writing the devices, making ids (`uraid`).
//! Invariant: every superblock made here parses at its place, and the members agree on everything but themselves.
//! Spec: md-reference 1.4.

mod geometry;

use crate::{BadBlocks, Features, Role, SUPERBLOCK_BYTES, SetName, Superblock, location_v12};
use uraid_block::{SECTOR_BYTES, Sector, Sectors, Slot, SlotSet};
use uraid_layout::{Layout, LayoutError, Level, Spec};

pub use geometry::{BitmapPlacement, Geometry, bad_blocks_offset, bitmap_placement, bitmap_space, data_offset};

/// What array to make.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The level.
    pub level: Level,
    /// md's number of the layout; 0 where the level has none.
    pub layout: u32,
    /// The chunk; zero for raid1, and for linear without rounding.
    pub chunk: Sectors,
    /// Slots of the array.
    pub raid_disks: u16,
    /// Spares, listed behind the slots' members.
    pub spare_devices: u16,
    /// Use so much of each member instead of all.
    pub size: Option<Sectors>,
    /// Where data starts on each member instead of where mdadm would put it.
    pub data_offset: Option<Sectors>,
    /// The id of the array.
    pub set_uuid: [u8; 16],
    /// The name of the array.
    pub set_name: SetName,
    /// Now, in seconds since 1970.
    pub now_seconds: u64,
    /// The members are known to be in sync: no first resync.
    pub assume_clean: bool,
    /// Allow what is unusual: one member alone, a raid6 that starts dirty and degraded.
    pub force: bool,
}

/// One entry of the list of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewMember {
    /// The word `missing`: the slot stays empty.
    Missing,
    /// A device.
    Device {
        /// Its size.
        size: Sectors,
        /// A new id for it.
        uuid: [u8; 16],
    },
}

/// A new array, not yet written.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The offsets and sizes that were chosen.
    pub geometry: Geometry,
    /// The layout of the array.
    pub layout: Layout,
    /// What to write to each listed device, in the order of the list; `None` for `missing`.
    pub superblocks: Vec<Option<Superblock>>,
    /// Whether the array starts in sync, without a first resync.
    pub is_clean: bool,
}

/// Why such an array cannot be made. Member numbers count the list from 0.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateError {
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
        /// Slots asked for.
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
    /// An array of one.
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
        /// Slots asked for.
        found: u16,
        /// The least.
        minimum: u16,
    },
    /// A spare for a level that cannot use one.
    #[error("{level} cannot use spares, {found} are asked for")]
    NoSpares {
        /// The level.
        level: &'static str,
        /// Spares asked for.
        found: u16,
    },
    /// `missing` in the place of a spare.
    #[error("member {member} of the list is a spare and missing: leave it out")]
    MissingSpare {
        /// Its place in the list.
        member: usize,
    },
    /// Not one device in a slot.
    #[error("no slot has a device, all are missing: give at least as many as {level} needs")]
    NoDevice {
        /// The level.
        level: &'static str,
    },
    /// More is missing than the level survives.
    #[error("{found} of {slots} slots have a device, too few for {level}: it cannot serve all its data without the rest")]
    TooManyMissing {
        /// The level.
        level: &'static str,
        /// Slots with a device.
        found: usize,
        /// All slots.
        slots: u16,
    },
    /// A raid6 with one slot missing has no parity that could be trusted.
    #[error("a raid6 with 1 slot missing would start dirty and degraded: give all devices, leave 2 missing, or say --assume-clean or --force")]
    DirtyDegraded,
    /// A chunk that the level cannot have.
    #[error("chunk is {found}, expected a multiple of {multiple} for {level}")]
    Chunk {
        /// The level.
        level: &'static str,
        /// The chunk asked for.
        found: Sectors,
        /// What it must be a multiple of.
        multiple: Sectors,
    },
    /// Data would lie on the superblock, or too far out.
    #[error("data offset is {found}, expected at least {minimum}, behind the superblock")]
    DataOffset {
        /// The offset asked for.
        found: Sectors,
        /// The first possible one.
        minimum: Sectors,
    },
    /// A device is too small to hold anything.
    #[error("member {member} of the list has {found}, at least {minimum} are needed")]
    DeviceTooSmall {
        /// Its place in the list.
        member: usize,
        /// Its size.
        found: Sectors,
        /// The least size.
        minimum: Sectors,
    },
    /// A device is smaller than `--size`.
    #[error("member {member} of the list has {found} for data, {expected} are asked for with --size")]
    SizeTooLarge {
        /// Its place in the list.
        member: usize,
        /// What it has.
        found: Sectors,
        /// What was asked for.
        expected: Sectors,
    },
    /// `--size` rounds down to nothing.
    #[error("size is {found}, expected at least {minimum}")]
    SizeTooSmall {
        /// What was asked for.
        found: Sectors,
        /// The least.
        minimum: Sectors,
    },
    /// The level cannot be laid out so.
    #[error("this array cannot be laid out")]
    Layout(#[source] LayoutError),
}

/// The whole decision: what to write where for this array on these members.
pub fn create(options: &CreateOptions, members: &[NewMember]) -> Result<Creation, CreateError> {
    let _ = (options, members, SUPERBLOCK_BYTES, SECTOR_BYTES);
    Err(CreateError::DirtyDegraded)
}

#[allow(unused)]
fn unused(_: (BadBlocks, Features, Role, Sector, Slot, SlotSet, Spec)) {
    location_v12();
}
