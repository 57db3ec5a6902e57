//! linear: one member after the other.
//! Owns: the map. Not here: anything shared (`plan`, `grid`). Spec: docs/md/address-mapping.md#linear.

use crate::levels::grid::bounded;
use crate::plan::{Images, Place, Places, Stretch};
use crate::{LayoutError, Spec};
use uraid_block::{Sectors, Slot};

/// Where each member's share of the array ends, in slot order.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    ends: Vec<u64>,
}

impl Linear {
    pub(crate) fn new(spec: &Spec) -> Result<Linear, LayoutError> {
        let rounding = spec.chunk.0.max(1);
        let mut ends = Vec::with_capacity(spec.member_sizes.len());
        let mut end = 0;
        for (index, &size) in spec.member_sizes.iter().enumerate() {
            let used = bounded(size.0)? / rounding * rounding;
            if used == 0 {
                let slot = Slot(index as u16);
                return Err(LayoutError::MemberTooSmall { slot, found: size, expected: Sectors(rounding) });
            }
            end = bounded(end + used)?;
            ends.push(end);
        }
        Ok(Linear { ends })
    }

    pub(crate) fn array_size(&self) -> u64 {
        self.ends.last().copied().expect("a checked array has members")
    }

    pub(crate) fn member_used(&self, slot: Slot) -> u64 {
        self.ends[slot.index()] - self.start(slot.index())
    }

    fn start(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }
}

impl Places for Linear {
    fn copies_count(&self) -> u16 {
        1
    }

    fn stretch(&self, at: u64) -> Stretch {
        let index = self.ends.partition_point(|&end| end <= at);
        let first = Place { slot: index as u16, at: at - self.start(index) };
        Stretch { first, length: self.ends[index] - at }
    }

    fn copy(&self, first: Place, _n: u16) -> Place {
        first
    }
}

impl Images for Linear {
    fn images(&self, slot: Slot, from: u64, to: u64, image: &mut impl FnMut(u64, u64)) {
        let start = self.start(slot.index());
        let (from, to) = (from.max(start), to.min(self.ends[slot.index()]));
        if from < to {
            image(from - start, to - start);
        }
    }
}
