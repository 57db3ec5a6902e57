//! The layout of one array: the one door to all levels.
//! Owns: [`Spec`], [`Layout`]. Not here: the formulas (the level files), the merger (`plan`).

use crate::{CopyChoice, LayoutError, Level, Plan, Row, RowMap, RowPart};
use smallvec::SmallVec;
use uraid_block::{ArrayRange, ArraySector, MemberSector, Sectors, Slot, SlotSet};

/// Every place of one sector, in copy order.
pub type Copies = SmallVec<[(Slot, MemberSector); 4]>;

/// What a superblock says about the geometry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// The chunk. linear: what member sizes are rounded down to, zero for not at all. raid1: ignored.
    pub chunk: Sectors,
    /// How many slots.
    pub raid_disks: u16,
    /// Sectors used per member, the superblock's `size`; zero for linear and raid0.
    pub size: Sectors,
    /// The superblock's `data_size` of each slot; linear and raid0 only, else it may be empty.
    pub member_sizes: Vec<Sectors>,
}

/// Where every sector of an array lies. Immutable, cheap to ask.
#[derive(Clone, Debug)]
pub struct Layout {
    spec: Spec,
}

impl Layout {
    /// Checks a geometry and makes its map.
    pub fn new(spec: &Spec) -> Result<Layout, LayoutError> {
        Ok(Layout { spec: spec.clone() })
    }
    /// The level.
    pub fn level(&self) -> Level {
        self.spec.level
    }
    /// What it was made from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
    /// How many slots.
    pub fn slots(&self) -> u16 {
        self.spec.raid_disks
    }
    /// The chunk; zero for linear and raid1.
    pub fn chunk(&self) -> Sectors {
        self.spec.chunk
    }
    /// Data sectors of one stripe; zero for linear and raid1.
    pub fn stripe(&self) -> Sectors {
        skeleton()
    }
    /// Sectors that a client sees.
    pub fn array_size(&self) -> Sectors {
        skeleton()
    }
    /// Sectors of the member's data area that the layout touches.
    pub fn member_used(&self, slot: Slot) -> Sectors {
        let _ = slot;
        skeleton()
    }
    /// How many members, whichever they are, may be missing without loss.
    pub fn tolerates(&self) -> u16 {
        skeleton()
    }
    /// How many places each sector has; 1 for the parity levels.
    pub fn copies_count(&self) -> u16 {
        skeleton()
    }
    /// Whether every sector can be served from these slots.
    pub fn can_serve(&self, usable: &SlotSet) -> bool {
        let _ = usable;
        skeleton()
    }
    /// Where to read a range.
    pub fn plan_read(&self, range: ArrayRange, usable: &SlotSet, choice: CopyChoice) -> Plan {
        let _ = (range, usable, choice);
        skeleton()
    }
    /// Where to write a range: every copy on a usable slot. Not for parity levels.
    pub fn plan_write(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let _ = (range, usable);
        skeleton()
    }
    /// Where to discard a range: every copy on a usable slot. Not for parity levels.
    pub fn plan_discard(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let _ = (range, usable);
        skeleton()
    }
    /// Every place of a sector, in copy order; parity levels: the one data place.
    pub fn copies(&self, at: ArraySector) -> Copies {
        let _ = at;
        skeleton()
    }
    /// How far from `at` every copy stays in its chunk (linear, raid1: on its member).
    pub fn contiguous(&self, at: ArraySector) -> Sectors {
        let _ = at;
        skeleton()
    }
    /// Parity levels: a range cut by row, ascending.
    pub fn rows(&self, range: ArrayRange) -> impl Iterator<Item = RowPart> + use<> {
        let _ = range;
        std::iter::empty()
    }
    /// Parity levels: who holds what in a row.
    pub fn row(&self, row: Row) -> RowMap {
        let _ = row;
        skeleton()
    }
    /// Parity levels: how many rows there are.
    pub fn rows_count(&self) -> u64 {
        skeleton()
    }
    /// Parity levels: where a row begins on every member.
    pub fn row_start(&self, row: Row) -> MemberSector {
        let _ = row;
        skeleton()
    }
}

fn skeleton() -> ! {
    panic!("the layout crate is not built yet")
}
