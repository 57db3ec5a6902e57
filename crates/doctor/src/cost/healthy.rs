//! The cost of a write while all members are there.
//! Owns: [`healthy_cost`]. Not here: the plans behind it (`engine::write_cost`).

use uraid_block::{ArrayRange, ArraySector, Sector, Sectors, SlotSet};
use uraid_engine::{WriteCost, write_cost};
use uraid_layout::Layout;

/// The cost of writing `length` sectors from `start` of the whole array; `None` past its end.
pub fn healthy_cost(layout: &Layout, start: Sector, length: Sectors) -> Option<WriteCost> {
    let is_inside = start.0.checked_add(length.0).is_some_and(|end| end <= layout.array_size().0);
    let range = ArrayRange::new(ArraySector(start.0), length);
    if is_inside { write_cost(layout, SlotSet::first(layout.slots()), range) } else { None }
}
