//! The layout of one array: the common interface to all levels.
//! Owns: [`Spec`], [`Layout`]. Not here: the formulas (the level files), the merger (`plan`).

use crate::linear::Linear;
use crate::plan::{self, Places};
use crate::raid0::Raid0;
use crate::raid1::Raid1;
use crate::raid10::Raid10;
use crate::raid456::Raid456;
use crate::rows;
use crate::{CopyChoice, LayoutError, Level, Plan, Row, RowMap, RowPart};
use smallvec::SmallVec;
use uraid_block::{ArrayRange, ArraySector, MemberSector, Sectors, Slot, SlotSet};

/// Every place of one sector, in copy order.
pub type Copies = SmallVec<[(Slot, MemberSector); 4]>;

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

/// The place of every sector of an array. Immutable, cheap to query.
#[derive(Clone, Debug)]
pub struct Layout {
    spec: Spec,
    map: Map,
    size: u64,
}

#[derive(Clone, Debug)]
enum Map {
    Linear(Linear),
    Raid0(Raid0),
    Raid1(Raid1),
    Raid10(Raid10),
    Raid456(Raid456),
}

/// The least members that a level makes sense with; mdadm's minimums.
const fn members_min(level: Level) -> u16 {
    match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => 1,
        Level::Raid10 | Level::Raid4 | Level::Raid5 => 2,
        Level::Raid6 => 4,
    }
}

impl Layout {
    /// Checks a geometry and makes its map. Accepts any chunk that the arithmetic allows; md's least chunk (4 KiB for
    /// raid10 and the parity levels) is enforced where arrays are made.
    pub fn new(spec: &Spec) -> Result<Layout, LayoutError> {
        let (level, found) = (spec.level, spec.raid_disks);
        let expected = members_min(level);
        if found < expected {
            return Err(LayoutError::TooFewMembers { level, found, expected });
        }
        if found > SlotSet::SLOTS_MAX {
            return Err(LayoutError::TooManyMembers { level, found, expected: SlotSet::SLOTS_MAX });
        }
        let needs_sizes = matches!(level, Level::Linear | Level::Raid0);
        if needs_sizes && spec.member_sizes.len() != found as usize {
            return Err(LayoutError::MemberSizes { found: spec.member_sizes.len(), expected: found });
        }
        let map = match level {
            Level::Linear => Map::Linear(Linear::new(spec)?),
            Level::Raid0 => Map::Raid0(Raid0::new(spec)?),
            Level::Raid1 => Map::Raid1(Raid1::new(spec)?),
            Level::Raid10 => Map::Raid10(Raid10::new(spec)?),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Map::Raid456(Raid456::new(spec)?),
        };
        let size = match &map {
            Map::Linear(map) => map.array_size(),
            Map::Raid0(map) => map.array_size(),
            Map::Raid1(map) => map.array_size(),
            Map::Raid10(map) => map.array_size(),
            Map::Raid456(map) => map.array_size(),
        };
        Ok(Layout { spec: spec.clone(), map, size })
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.spec.level
    }

    /// The spec it was made from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How many slots.
    pub fn slots(&self) -> u16 {
        self.spec.raid_disks
    }

    /// The chunk; zero for linear and raid1, which have none.
    pub fn chunk(&self) -> Sectors {
        match &self.map {
            Map::Linear(_) | Map::Raid1(_) => Sectors::ZERO,
            Map::Raid0(_) | Map::Raid10(_) | Map::Raid456(_) => self.spec.chunk,
        }
    }

    /// Data sectors of one stripe: after this many, writing returns to the first member. Zero for linear and raid1.
    pub fn stripe(&self) -> Sectors {
        match &self.map {
            Map::Linear(_) | Map::Raid1(_) => Sectors::ZERO,
            Map::Raid0(_) => Sectors(self.spec.chunk.0 * u64::from(self.spec.raid_disks)),
            Map::Raid10(map) => Sectors(map.stripe()),
            Map::Raid456(map) => Sectors(map.stripe()),
        }
    }

    /// Sectors that a client sees.
    pub fn array_size(&self) -> Sectors {
        Sectors(self.size)
    }

    /// Sectors of the member's data area that the layout can use, from its start. Panics for a slot that does not
    /// exist.
    pub fn member_used(&self, slot: Slot) -> Sectors {
        assert!(slot.0 < self.slots());
        match &self.map {
            Map::Linear(map) => Sectors(map.member_used(slot)),
            Map::Raid0(map) => Sectors(map.member_used(slot)),
            Map::Raid1(map) => Sectors(map.array_size()),
            Map::Raid10(map) => Sectors(map.member_used()),
            Map::Raid456(map) => Sectors(map.member_used()),
        }
    }

    /// How many members, any of them, may be missing without loss. (raid10 may survive more, see `can_serve`.)
    pub fn tolerates(&self) -> u16 {
        match self.spec.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid1 | Level::Raid10 => self.copies_count() - 1,
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }

    /// How many places each sector has; 1 for the parity levels.
    pub fn copies_count(&self) -> u16 {
        match &self.map {
            Map::Linear(map) => map.copies_count(),
            Map::Raid0(map) => map.copies_count(),
            Map::Raid1(map) => map.copies_count(),
            Map::Raid10(map) => map.copies_count(),
            Map::Raid456(map) => map.copies_count(),
        }
    }

    /// Whether every sector can be served from these slots: docs/md/behaviour.md#when-an-array-starts.
    pub fn can_serve(&self, usable: &SlotSet) -> bool {
        let missing = (0..self.slots()).filter(|&slot| !usable.contains(Slot(slot))).count();
        match &self.map {
            Map::Linear(_) | Map::Raid0(_) | Map::Raid1(_) | Map::Raid456(_) => missing <= self.tolerates().into(),
            Map::Raid10(map) => map.can_serve(usable),
        }
    }

    /// Where to read a range inside the array. Parity levels: from the data places; the caller must reconstruct lost
    /// ones by row.
    pub fn plan_read(&self, range: ArrayRange, usable: &SlotSet, choice: CopyChoice) -> Plan {
        let (from, to) = self.bounds(range);
        match &self.map {
            Map::Linear(map) => plan::read(map, from, to, usable, choice),
            Map::Raid0(map) => plan::read(map, from, to, usable, choice),
            Map::Raid1(map) => plan::read(map, from, to, usable, choice),
            Map::Raid10(map) => plan::read(map, from, to, usable, choice),
            Map::Raid456(map) => plan::read(map, from, to, usable, choice),
        }
    }

    /// The place of a range inside the array, if [`Layout::plan_read`] would return a single run of one part.
    #[inline]
    pub fn place_to_read(
        &self,
        range: ArrayRange,
        usable: &SlotSet,
        choice: CopyChoice,
    ) -> Option<(Slot, MemberSector)> {
        let (from, to) = self.bounds(range);
        if from == to {
            return None;
        }
        let place = match &self.map {
            Map::Linear(map) => plan::place_to_read(map, from, to, usable, choice),
            Map::Raid0(map) => plan::place_to_read(map, from, to, usable, choice),
            Map::Raid1(map) => plan::place_to_read(map, from, to, usable, choice),
            Map::Raid10(map) => plan::place_to_read(map, from, to, usable, choice),
            Map::Raid456(map) => plan::place_to_read(map, from, to, usable, choice),
        };
        place.map(|place| (Slot(place.slot), MemberSector(place.at)))
    }

    /// Where to write a range inside the array: every copy on a usable slot. Panics for parity levels, whose writes are
    /// planned by row.
    pub fn plan_write(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let (from, to) = self.bounds(range);
        match &self.map {
            Map::Linear(map) => plan::write(map, from, to, usable),
            Map::Raid0(map) => plan::write(map, from, to, usable),
            Map::Raid1(map) => plan::write(map, from, to, usable),
            Map::Raid10(map) => plan::write(map, from, to, usable),
            Map::Raid456(_) => panic!("a parity level is written by row"),
        }
    }

    /// Where to discard a range inside the array: the runs that [`Layout::plan_write`] would return, without parts and
    /// without `lost`, in time that depends on members and zones only. Panics for parity levels.
    pub fn plan_discard(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let (from, to) = self.bounds(range);
        match &self.map {
            Map::Linear(map) => plan::discard(map, from, to, self.slots(), usable),
            Map::Raid0(map) => plan::discard(map, from, to, self.slots(), usable),
            Map::Raid1(map) => plan::discard(map, from, to, self.slots(), usable),
            Map::Raid10(map) => plan::discard(map, from, to, self.slots(), usable),
            Map::Raid456(_) => panic!("a parity level is discarded by row"),
        }
    }

    /// Every place of a sector of the array, in copy order; for parity levels the one data place.
    pub fn copies(&self, at: ArraySector) -> Copies {
        fn all(map: &impl Places, at: u64) -> Copies {
            let first = map.stretch(at).first;
            let places = (0..map.copies_count()).map(|n| map.copy(first, n));
            places.map(|place| (Slot(place.slot), MemberSector(place.at))).collect()
        }
        assert!(at.0 < self.size, "a sector behind the array's end");
        match &self.map {
            Map::Linear(map) => all(map, at.0),
            Map::Raid0(map) => all(map, at.0),
            Map::Raid1(map) => all(map, at.0),
            Map::Raid10(map) => all(map, at.0),
            Map::Raid456(map) => all(map, at.0),
        }
    }

    /// The slot of copy `n`, below [`Layout::copies_count`], of a sector of the array.
    #[inline]
    pub fn slot_of_copy(&self, at: ArraySector, n: u16) -> Slot {
        fn of(map: &impl Places, at: u64, n: u16) -> Slot {
            Slot(map.copy(map.stretch(at).first, n).slot)
        }
        assert!(at.0 < self.size, "a sector behind the array's end");
        match &self.map {
            Map::Linear(map) => of(map, at.0, n),
            Map::Raid0(map) => of(map, at.0, n),
            Map::Raid1(map) => of(map, at.0, n),
            Map::Raid10(map) => of(map, at.0, n),
            Map::Raid456(map) => of(map, at.0, n),
        }
    }

    /// How many sectors from a sector of the array on are contiguous on each of its copies' members.
    pub fn contiguous(&self, at: ArraySector) -> Sectors {
        assert!(at.0 < self.size, "a sector behind the array's end");
        let stretch = match &self.map {
            Map::Linear(map) => map.stretch(at.0),
            Map::Raid0(map) => map.stretch(at.0),
            Map::Raid1(map) => map.stretch(at.0),
            Map::Raid10(map) => map.stretch(at.0),
            Map::Raid456(map) => map.stretch(at.0),
        };
        Sectors(stretch.length)
    }

    /// A range of a parity level cut by row, ascending. Panics for the other levels.
    pub fn rows(&self, range: ArrayRange) -> impl Iterator<Item = RowPart> + use<> {
        self.bounds(range);
        rows::cut(range, self.parity().stripe())
    }

    /// The slots of a row of a parity level. Panics for the other levels, and after the last row.
    pub fn row(&self, row: Row) -> RowMap {
        self.parity().row(row)
    }

    /// How many rows a parity level has. Panics for the other levels.
    pub fn rows_count(&self) -> u64 {
        self.parity().rows_count()
    }

    /// The start of a row of a parity level on every member. Panics for the other levels, and after the last row.
    pub fn row_start(&self, row: Row) -> MemberSector {
        self.parity().row_start(row)
    }

    fn parity(&self) -> &Raid456 {
        match &self.map {
            Map::Raid456(map) => map,
            Map::Linear(_) | Map::Raid0(_) | Map::Raid1(_) | Map::Raid10(_) => panic!("only parity levels have rows"),
        }
    }

    fn bounds(&self, range: ArrayRange) -> (u64, u64) {
        let (from, to) = (range.start.0, range.end().0);
        assert!(to <= self.size, "a range behind the array's end");
        (from, to)
    }
}
