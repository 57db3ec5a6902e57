//! A reshape in progress: its old and new geometry, and its position.
//! Owns: the fields on disk, their combined meaning. Not here: running a reshape (not implemented).
//! Invariant: a [`ReshapePlan`] has slots in both geometries, and both start at an addressable sector.
//! Spec: docs/format/reshape.md; docs/md/formats.md#reshape-fields.

use super::{ROLES_MAX, SECTORS_END, Superblock};
use crate::{Features, Version};
use uraid_block::{ArraySector, Sector, Sectors};

/// The fields of a reshape, as recorded; they are valid only with [`Features::RESHAPE_ACTIVE`], and
/// [`Superblock::reshape_plan`] interprets them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Reshape {
    /// The level reshaped to.
    pub new_level: u32,
    /// The array sector reached.
    pub position: u64,
    /// The new number of slots minus the old one.
    pub delta_disks: i32,
    /// The layout reshaped to.
    pub new_layout: u32,
    /// The chunk reshaped to, in sectors.
    pub new_chunk: u32,
    /// Added to data_offset for the new layout, in sectors; valid only with [`Features::NEW_OFFSET`].
    pub new_offset: i32,
}

/// The geometry of an array, before or after a reshape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReshapeShape {
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout within the level.
    pub layout: u32,
    /// The chunk.
    pub chunk: Sectors,
    /// Slots.
    pub raid_disks: u32,
    /// The first data sector of this member.
    pub data_offset: Sector,
}

/// A reshape that has begun and not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReshapePlan {
    /// The old geometry.
    pub from: ReshapeShape,
    /// The new geometry.
    pub to: ReshapeShape,
    /// Backwards: it runs from the end of the array, and everything at or above `position` has the new geometry.
    /// Forwards: everything below it does.
    pub is_backwards: bool,
    /// How far it is.
    pub position: ArraySector,
}

/// Why the fields of a reshape are impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReshapeError {
    /// One of the geometries would have no slots, or too many.
    #[error("reshape goes from {from} slots to {to}, expected 1 to {maximum} in both")]
    Slots {
        /// Slots before.
        from: i64,
        /// Slots after.
        to: i64,
        /// What a table can name.
        maximum: u32,
    },
    /// There is no new geometry: the superblock is damaged.
    #[error(
        "reshape fields are all zero, expected the new geometry: the superblock of a member is damaged; leave that member \
         out (`uraid examine` shows it as being reshaped)"
    )]
    Empty,
    /// The new data would start outside the device.
    #[error("reshape moves the data from sector {from} by {by} sectors, expected to stay between 0 and 2^54")]
    DataOffset {
        /// The first sector of data before.
        from: u64,
        /// What is added to it.
        by: i32,
    },
}

impl Superblock {
    /// The meaning of the reshape fields together with the others; `None` if there is no reshape.
    ///
    /// The superblock's level, layout, chunk and data offset are those before the reshape, but its count of slots is
    /// the one after it.
    pub fn reshape_plan(&self) -> Result<Option<ReshapePlan>, ReshapeError> {
        if !self.features.contains(Features::RESHAPE_ACTIVE) {
            return Ok(None);
        }
        let reshape = self.reshape.ok_or(ReshapeError::Empty)?;
        let to_slots = i64::from(self.raid_disks);
        let from_slots = to_slots - i64::from(reshape.delta_disks);
        let maximum = ROLES_MAX as u32;
        if ![from_slots, to_slots].iter().all(|slots| (1..=i64::from(maximum)).contains(slots)) {
            return Err(ReshapeError::Slots { from: from_slots, to: to_slots, maximum });
        }
        let by = if self.features.contains(Features::NEW_OFFSET) { reshape.new_offset } else { 0 };
        let moved = self.data_offset.0.checked_add_signed(by.into()).filter(|at| *at < SECTORS_END);
        let Some(moved) = moved else {
            return Err(ReshapeError::DataOffset { from: self.data_offset.0, by });
        };
        let is_marked = self.features.contains(Features::RESHAPE_BACKWARDS) && self.version != Version::V0_90;
        let from = ReshapeShape {
            level: self.level,
            layout: self.layout,
            chunk: self.chunk,
            raid_disks: from_slots as u32,
            data_offset: self.data_offset,
        };
        let to = ReshapeShape {
            level: reshape.new_level.cast_signed(),
            layout: reshape.new_layout,
            chunk: Sectors(reshape.new_chunk.into()),
            raid_disks: self.raid_disks,
            data_offset: Sector(moved),
        };
        Ok(Some(ReshapePlan {
            from,
            to,
            is_backwards: reshape.delta_disks < 0 || reshape.delta_disks == 0 && is_marked,
            position: ArraySector(reshape.position),
        }))
    }
}
