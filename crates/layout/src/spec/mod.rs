//! The geometry of one array, as its superblock gives it.
//! Owns: [`Spec`], the bounds of requests. Not here: levels (`level`), layouts' names (`names`), whether a level allows
//! it, where a sector lies (`levels`).

pub(crate) mod error;
pub(crate) mod level;
pub(crate) mod names;

use crate::Level;
use uraid_block::{ArrayRange, ArraySector, Sectors, Slot, SlotSet};

/// The geometry in a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// The chunk. linear: the unit to which member sizes are rounded down, zero for none. raid1: ignored.
    pub chunk: Sectors,
    /// How many slots.
    pub raid_disks: u16,
    /// Sectors used per member, the superblock's `size`; zero for linear and raid0.
    pub size: Sectors,
    /// The superblock's `data_size` of each slot; linear and raid0 only, else it may be empty.
    pub member_sizes: Vec<Sectors>,
}

/// A spec that was checked, and the array's size.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) spec: Spec,
    size: u64,
}

impl Geometry {
    pub(crate) fn new(spec: &Spec, size: u64) -> Geometry {
        Geometry { spec: spec.clone(), size }
    }

    pub(crate) fn size(&self) -> Sectors {
        Sectors(self.size)
    }

    /// The first sector and the one after the last. Panics for a range that leaves the array.
    #[inline]
    pub(crate) fn bounds(&self, range: ArrayRange) -> (u64, u64) {
        let (from, to) = (range.start.0, range.end().0);
        assert!(to <= self.size, "a range behind the array's end");
        (from, to)
    }

    #[inline]
    pub(crate) fn inside(&self, at: ArraySector) -> u64 {
        assert!(at.0 < self.size, "a sector behind the array's end");
        at.0
    }

    /// How many of the array's slots are not in this set.
    pub(crate) fn missing(&self, usable: &SlotSet) -> u16 {
        (0..self.spec.raid_disks).map(|slot| u16::from(!usable.contains(Slot(slot)))).sum()
    }
}
