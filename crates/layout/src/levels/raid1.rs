//! raid1: every member holds everything.
//! Owns: the map. Not here: anything shared (`plan`). Spec: docs/md/address-mapping.md#raid1.

use crate::levels::grid::bounded;
use crate::plan::{Images, Place, Places, Stretch};
use crate::{LayoutError, Spec};
use uraid_block::{Sectors, Slot};

#[derive(Clone, Debug)]
pub(crate) struct Raid1 {
    slots: u16,
    size: u64,
}

impl Raid1 {
    pub(crate) fn new(spec: &Spec) -> Result<Raid1, LayoutError> {
        if spec.size.is_zero() {
            return Err(LayoutError::SizeTooSmall { found: spec.size, expected: Sectors(1) });
        }
        Ok(Raid1 { slots: spec.raid_disks, size: bounded(spec.size.0)? })
    }

    pub(crate) fn array_size(&self) -> u64 {
        self.size
    }
}

impl Places for Raid1 {
    fn copies_count(&self) -> u16 {
        self.slots
    }

    #[inline]
    fn stretch(&self, at: u64) -> Stretch {
        Stretch { first: Place { slot: 0, at }, length: self.size - at }
    }

    #[inline]
    fn copy(&self, first: Place, n: u16) -> Place {
        Place { slot: n, at: first.at }
    }
}

impl Images for Raid1 {
    fn images(&self, _slot: Slot, from: u64, to: u64, image: &mut impl FnMut(u64, u64)) {
        image(from, to);
    }
}
