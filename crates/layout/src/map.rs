//! The layout of one array: what all levels have in common.
//! Owns: [`Layout`]. Not here: the geometry (`spec`), what only one kind of level has (`copies`, `raid456`), the formulas
//! (the level files), the merger (`plan`).

use crate::spec::Geometry;
use crate::{Copies, CopyChoice, CopyLayout, LayoutError, Level, ParityLayout, Plan, Spec};
use uraid_block::{ArrayRange, ArraySector, MemberSector, Sectors, Slot, SlotSet};

/// The place of every sector of an array. Immutable, cheap to query. Match on it for what only one kind of level
/// supports.
#[derive(Clone, Debug)]
pub enum Layout {
    /// linear, raid0, raid1, raid10: a write goes to every copy.
    Copies(CopyLayout),
    /// raid4, raid5, raid6: a write goes to rows.
    Parity(ParityLayout),
}

/// The minimum number of members of a level, as in mdadm.
const fn members_min(level: Level) -> u16 {
    match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => 1,
        Level::Raid10 | Level::Raid4 | Level::Raid5 => 2,
        Level::Raid6 => 4,
    }
}

impl Layout {
    /// Checks a geometry and makes its map. Accepts any chunk that the arithmetic allows; md's minimum (4 KiB for
    /// raid10 and the parity levels) is checked where arrays are created.
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
        match level {
            Level::Linear => CopyLayout::linear(spec).map(Layout::Copies),
            Level::Raid0 => CopyLayout::raid0(spec).map(Layout::Copies),
            Level::Raid1 => CopyLayout::raid1(spec).map(Layout::Copies),
            Level::Raid10 => CopyLayout::raid10(spec).map(Layout::Copies),
            Level::Raid4 => ParityLayout::raid4(spec).map(Layout::Parity),
            Level::Raid5 => ParityLayout::raid5(spec).map(Layout::Parity),
            Level::Raid6 => ParityLayout::raid6(spec).map(Layout::Parity),
        }
    }

    #[inline]
    fn geometry(&self) -> &Geometry {
        match self {
            Layout::Copies(layout) => &layout.geometry,
            Layout::Parity(layout) => &layout.geometry,
        }
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.spec().level
    }

    /// The spec it was made from.
    pub fn spec(&self) -> &Spec {
        &self.geometry().spec
    }

    /// How many slots.
    pub fn slots(&self) -> u16 {
        self.spec().raid_disks
    }

    /// The chunk; zero for linear and raid1, which have none.
    pub fn chunk(&self) -> Sectors {
        match self {
            Layout::Copies(layout) => layout.chunk(),
            Layout::Parity(layout) => layout.chunk(),
        }
    }

    /// Data sectors of one stripe: after this many, writing returns to the first member. Zero for linear and raid1.
    pub fn stripe(&self) -> Sectors {
        match self {
            Layout::Copies(layout) => layout.stripe(),
            Layout::Parity(layout) => layout.stripe(),
        }
    }

    /// Sectors that a client sees.
    pub fn array_size(&self) -> Sectors {
        self.geometry().size()
    }

    /// Sectors of the member's data area that the layout can use, from its start. Panics for a slot that does not
    /// exist.
    pub fn member_used(&self, slot: Slot) -> Sectors {
        assert!(slot.0 < self.slots());
        match self {
            Layout::Copies(layout) => layout.member_used(slot),
            Layout::Parity(layout) => layout.member_used(),
        }
    }

    /// How many members, any of them, may be missing without loss. (raid10 may survive more, see `can_serve`.)
    pub fn tolerates(&self) -> u16 {
        match self {
            Layout::Copies(layout) => layout.copies_count() - 1,
            Layout::Parity(layout) => layout.tolerates(),
        }
    }

    /// How many places each sector has; 1 for the parity levels.
    #[inline]
    pub fn copies_count(&self) -> u16 {
        match self {
            Layout::Copies(layout) => layout.copies_count(),
            Layout::Parity(_) => 1,
        }
    }

    /// Whether every sector can be served from these slots: docs/md/behaviour.md#when-an-array-starts.
    pub fn can_serve(&self, usable: &SlotSet) -> bool {
        match self {
            Layout::Copies(layout) => layout.can_serve(usable),
            Layout::Parity(layout) => layout.geometry.missing(usable) <= layout.tolerates(),
        }
    }

    /// Where to read a range inside the array. Parity levels: from the data places; the caller must reconstruct lost
    /// ones by row.
    pub fn plan_read(&self, range: ArrayRange, usable: &SlotSet, choice: CopyChoice) -> Plan {
        match self {
            Layout::Copies(layout) => layout.plan_read(range, usable, choice),
            Layout::Parity(layout) => layout.plan_read(range, usable),
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
        if range.length.is_zero() {
            return None;
        }
        let place = match self {
            Layout::Copies(layout) => layout.place_to_read(range, usable, choice),
            Layout::Parity(layout) => layout.place_to_read(range, usable),
        };
        place.map(|place| (Slot(place.slot), MemberSector(place.at)))
    }

    /// Every place of a sector of the array, in copy order; for parity levels the one data place.
    pub fn copies(&self, at: ArraySector) -> Copies {
        let sector = self.geometry().inside(at);
        match self {
            Layout::Copies(layout) => layout.copies(sector),
            Layout::Parity(layout) => layout.copies(sector),
        }
    }

    /// The slot of copy `n`, below [`Layout::copies_count`], of a sector of the array.
    #[inline]
    pub fn slot_of_copy(&self, at: ArraySector, n: u16) -> Slot {
        let sector = self.geometry().inside(at);
        match self {
            Layout::Copies(layout) => layout.slot_of_copy(sector, n),
            Layout::Parity(layout) => layout.slot_of_copy(sector),
        }
    }

    /// How many sectors from a sector of the array on are contiguous on each of its copies' members.
    pub fn contiguous(&self, at: ArraySector) -> Sectors {
        let sector = self.geometry().inside(at);
        Sectors(match self {
            Layout::Copies(layout) => layout.contiguous(sector),
            Layout::Parity(layout) => layout.contiguous(sector),
        })
    }
}
