//! Levels without parity: every sector has one place (linear, raid0) or several copies (raid1, raid10).
//! Owns: [`CopyLayout`]: plans of writes and discards, and which map answers. Not here: the formulas (the level files),
//! the merger (`plan`).

use crate::levels::linear::Linear;
use crate::levels::raid0::Raid0;
use crate::levels::raid1::Raid1;
use crate::levels::raid10::Raid10;
use crate::plan::{self, Place, Places};
use crate::spec::Geometry;
use crate::{Copies, CopyChoice, LayoutError, Plan, Spec};
use uraid_block::{ArrayRange, ArraySector, MemberSector, Sectors, Slot, SlotSet};

/// The places of an array without parity.
#[derive(Clone, Debug)]
pub struct CopyLayout {
    pub(crate) geometry: Geometry,
    map: Map,
}

#[derive(Clone, Debug)]
enum Map {
    Linear(Linear),
    Raid0(Raid0),
    Raid1(Raid1),
    Raid10(Raid10),
}

/// Evaluates the expression with the map of the level.
macro_rules! with_map {
    ($layout:expr, $map:ident => $value:expr) => {
        match &$layout.map {
            Map::Linear($map) => $value,
            Map::Raid0($map) => $value,
            Map::Raid1($map) => $value,
            Map::Raid10($map) => $value,
        }
    };
}

impl CopyLayout {
    pub(crate) fn linear(spec: &Spec) -> Result<CopyLayout, LayoutError> {
        let map = Linear::new(spec)?;
        Ok(CopyLayout { geometry: Geometry::new(spec, map.array_size()), map: Map::Linear(map) })
    }

    pub(crate) fn raid0(spec: &Spec) -> Result<CopyLayout, LayoutError> {
        let map = Raid0::new(spec)?;
        Ok(CopyLayout { geometry: Geometry::new(spec, map.array_size()), map: Map::Raid0(map) })
    }

    pub(crate) fn raid1(spec: &Spec) -> Result<CopyLayout, LayoutError> {
        let map = Raid1::new(spec)?;
        Ok(CopyLayout { geometry: Geometry::new(spec, map.array_size()), map: Map::Raid1(map) })
    }

    pub(crate) fn raid10(spec: &Spec) -> Result<CopyLayout, LayoutError> {
        let map = Raid10::new(spec)?;
        Ok(CopyLayout { geometry: Geometry::new(spec, map.array_size()), map: Map::Raid10(map) })
    }

    /// Where to write a range inside the array: every copy on a usable slot.
    pub fn plan_write(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let (from, to) = self.geometry.bounds(range);
        with_map!(self, map => plan::write(map, from, to, usable))
    }

    /// The fast path of a write. If [`CopyLayout::plan_write`] would return runs of one part each and nothing lost,
    /// calls `place_found` with each place of the range, in copy order, and returns true. It may also return false for
    /// such a plan, if the range is longer than the contiguous part at its start.
    #[inline]
    pub fn places_to_write(
        &self,
        range: ArrayRange,
        usable: &SlotSet,
        place_found: impl FnMut(Slot, MemberSector),
    ) -> bool {
        let (from, to) = self.geometry.bounds(range);
        if from == to {
            return false;
        }
        with_map!(self, map => plan::places_to_write(map, (from, to), usable, place_found))
    }

    /// Where to discard a range inside the array: the runs that [`CopyLayout::plan_write`] would return, without parts
    /// and without `lost`. Takes time in proportion to members and zones only.
    pub fn plan_discard(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let (from, to) = self.geometry.bounds(range);
        with_map!(self, map => plan::discard(map, from, to, self.geometry.spec.raid_disks, usable))
    }

    pub(crate) fn plan_read(&self, range: ArrayRange, usable: &SlotSet, choice: CopyChoice) -> Plan {
        let (from, to) = self.geometry.bounds(range);
        with_map!(self, map => plan::read(map, from, to, usable, choice))
    }

    #[inline]
    pub(crate) fn place_to_read(&self, range: ArrayRange, usable: &SlotSet, choice: CopyChoice) -> Option<Place> {
        let (from, to) = self.geometry.bounds(range);
        with_map!(self, map => plan::place_to_read(map, from, to, usable, choice))
    }

    pub(crate) fn copies(&self, at: u64) -> Copies {
        with_map!(self, map => plan::copies(map, at))
    }

    #[inline]
    pub(crate) fn slot_of_copy(&self, at: u64, n: u16) -> Slot {
        with_map!(self, map => plan::slot_of_copy(map, at, n))
    }

    /// The array sector whose copy lies here on a member. `None`: the member holds nothing there, or the level has no
    /// copies.
    pub fn sector_of_copy(&self, slot: Slot, at: MemberSector) -> Option<ArraySector> {
        assert!(slot.0 < self.geometry.spec.raid_disks, "a slot of the array");
        let found = match &self.map {
            Map::Linear(_) | Map::Raid0(_) => None,
            Map::Raid1(map) => (at.0 < map.array_size()).then_some(at.0),
            Map::Raid10(map) => map.sector_of_copy(slot.0, at.0),
        };
        found.map(ArraySector)
    }

    /// Sectors of the array that include all those whose copies lie in this stretch of any member; there may be more.
    /// `None`: it goes over the end of a section of a far layout, or lies behind what members hold, or the level has no
    /// copies.
    pub fn sectors_around(&self, at: MemberSector, length: Sectors) -> Option<ArrayRange> {
        assert!(!length.is_zero(), "a stretch has a sector");
        let (from, to) = match &self.map {
            Map::Linear(_) | Map::Raid0(_) => None,
            Map::Raid1(map) => Some((at.0, (at.0 + length.0).min(map.array_size()))).filter(|(from, to)| from < to),
            Map::Raid10(map) => map.sectors_around(at.0, length.0),
        }?;
        Some(ArrayRange::between(ArraySector(from), ArraySector(to)))
    }

    pub(crate) fn contiguous(&self, at: u64) -> u64 {
        with_map!(self, map => map.stretch(at).length)
    }

    #[inline]
    pub(crate) fn copies_count(&self) -> u16 {
        with_map!(self, map => map.copies_count())
    }

    pub(crate) fn chunk(&self) -> Sectors {
        match &self.map {
            Map::Linear(_) | Map::Raid1(_) => Sectors::ZERO,
            Map::Raid0(_) | Map::Raid10(_) => self.geometry.spec.chunk,
        }
    }

    pub(crate) fn stripe(&self) -> Sectors {
        match &self.map {
            Map::Linear(_) | Map::Raid1(_) => Sectors::ZERO,
            Map::Raid0(_) => Sectors(self.geometry.spec.chunk.0 * u64::from(self.geometry.spec.raid_disks)),
            Map::Raid10(map) => Sectors(map.stripe()),
        }
    }

    pub(crate) fn member_used(&self, slot: Slot) -> Sectors {
        Sectors(match &self.map {
            Map::Linear(map) => map.member_used(slot),
            Map::Raid0(map) => map.member_used(slot),
            Map::Raid1(map) => map.array_size(),
            Map::Raid10(map) => map.member_used(),
        })
    }

    /// Sets of slots: each chunk of the array has its copies on the slots of one of them, and each set has a chunk.
    pub fn copy_groups(&self) -> Vec<SlotSet> {
        let slots = self.geometry.spec.raid_disks;
        match &self.map {
            Map::Linear(_) | Map::Raid0(_) => (0..slots).map(|slot| SlotSet::EMPTY.with(Slot(slot))).collect(),
            Map::Raid1(_) => vec![SlotSet::first(slots)],
            Map::Raid10(map) => map.copy_groups().to_vec(),
        }
    }

    pub(crate) fn can_serve(&self, usable: &SlotSet) -> bool {
        match &self.map {
            Map::Linear(_) | Map::Raid0(_) | Map::Raid1(_) => self.geometry.missing(usable) < self.copies_count(),
            Map::Raid10(map) => map.can_serve(usable),
        }
    }
}
