//! The shape in the state of an array.
//! Owns: [`ShapeChange`], what follows from the layout for the state. Not here: addresses (`uraid_layout`), the order of
//! the steps of a change (`reshaper`).
//! Invariant: the shape changes behind a closed gate, which stays closed until the end, also if the array freezes.

use super::Master;
use crate::state::shape::{NewShape, Shape};
use crate::state::view::Gate;
use crate::words::progress;
use uraid_block::Sectors;
use uraid_layout::Level;

/// A step towards another shape.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShapeChange<'a> {
    /// The gate closes: bytes are about to move.
    Close,
    /// The bytes have moved.
    Set(&'a NewShape),
    /// The gate opens again. That of an array that froze meanwhile opens for reads.
    Open,
}

impl Master {
    pub(super) fn slots(&self) -> u16 {
        self.shape.layout().slots()
    }

    pub(super) fn is_redundant(&self) -> bool {
        self.shape.layout().level().is_redundant()
    }

    pub(super) fn is_mirror(&self) -> bool {
        matches!(self.shape.layout().level(), Level::Raid1 | Level::Raid10)
    }

    /// What a resync goes through.
    pub(super) fn resync_end(&self) -> Sectors {
        progress::total(self.shape.layout())
    }

    /// Whether the superblock of a member in a slot has fewer events than the freshest one.
    pub(crate) fn has_lagging(&self) -> bool {
        !self.lagging.is_empty()
    }

    pub(super) fn change_shape(&mut self, change: ShapeChange<'_>) {
        match change {
            ShapeChange::Close => (self.gate, self.is_moving) = (Gate::Closed, true),
            ShapeChange::Set(next) => self.set_shape(next),
            ShapeChange::Open => {
                self.is_moving = false;
                self.gate = self.frozen.map_or(Gate::Open, |frozen| Gate::Frozen(frozen.kind));
            }
        }
    }

    fn set_shape(&mut self, next: &NewShape) {
        self.shape = Shape::new(next.layout.clone());
        let spec = next.layout.spec();
        self.template.chunk = spec.chunk;
        for (member, superblock) in self.members.iter().zip(&mut self.superblocks) {
            let Some(slot) = member.slot() else { continue };
            superblock.chunk = spec.chunk;
            superblock.data_offset = next.data_offsets[slot.index()];
            superblock.data_size = spec.member_sizes[slot.index()];
        }
        self.version += 1;
    }

    pub(super) fn check_shape(&self, change: &ShapeChange<'_>) {
        match change {
            ShapeChange::Close => assert_eq!(self.gate, Gate::Open, "an open array gets another shape"),
            ShapeChange::Set(next) => {
                let (before, after) = (self.shape.layout().spec(), next.layout.spec());
                assert!(self.gate == Gate::Closed && self.is_moving, "no request has the old shape");
                assert!(!self.is_redundant(), "nothing else follows from the shape");
                assert_eq!((before.level, before.layout), (after.level, after.layout), "the level stays");
                assert_eq!(before.raid_disks, after.raid_disks, "the slots stay");
                assert_eq!(next.data_offsets.len(), usize::from(after.raid_disks), "each slot has a data offset");
            }
            ShapeChange::Open => assert!(self.gate == Gate::Closed && self.is_moving, "it was closed"),
        }
    }
}
