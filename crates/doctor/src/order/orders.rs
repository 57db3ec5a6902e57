//! All assignments of members to slots.
//! Owns: the orders, and which of them are equivalent. Not here: the evidence for them (`search`).
//! Invariant: no order is listed twice. Of two orders that give the same array, byte for byte, only one is listed.

use std::collections::BTreeSet;
use uraid_block::{ArraySector, SlotSet};
use uraid_layout::{Layout, Level};

/// All assignments of `members` members to slots with which the array can be read. Missing members are interchangeable,
/// and so are slots that hold the same copies: there the member with the lower number comes first, a missing one last.
pub(crate) fn orders(members: usize, layout: &Layout) -> Vec<Vec<Option<usize>>> {
    let slots = usize::from(layout.slots());
    let twins = twins(layout);
    let mut all = Vec::new();
    let mut begun: Vec<Vec<Option<usize>>> = vec![Vec::new()];
    while let Some(order) = begun.pop() {
        if order.len() == slots {
            if can_serve(layout, &order) {
                all.push(order);
            }
            continue;
        }
        let missing = order.iter().filter(|entry| entry.is_none()).count();
        let twin = twins[order.len()].map(|slot| order[slot]);
        let is_next = |entry: &Option<usize>| match (twin, entry) {
            (None, _) | (Some(_), None) => true,
            (Some(before), Some(member)) => before.is_some_and(|before| before < *member),
        };
        let free = (0..members).rev().filter(|index| !order.contains(&Some(*index))).map(Some);
        let none = (missing < slots - members).then_some(None);
        for entry in none.into_iter().chain(free).filter(is_next).collect::<Vec<_>>() {
            let mut longer = order.clone();
            longer.push(entry);
            begun.push(longer);
        }
    }
    all
}

fn can_serve(layout: &Layout, order: &[Option<usize>]) -> bool {
    let present = layout_slots(layout).filter(|slot| order[slot.index()].is_some());
    layout.can_serve(&present.collect::<SlotSet>())
}

fn layout_slots(layout: &Layout) -> impl Iterator<Item = uraid_block::Slot> + use<> {
    (0..layout.slots()).map(uraid_block::Slot)
}

/// For each slot the earlier one that holds the same copies, if there is one: `A A B B` gives `- 0 - 2`.
fn twins(layout: &Layout) -> Vec<Option<usize>> {
    let slots = usize::from(layout.slots());
    match layout.level() {
        Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => vec![None; slots],
        Level::Raid1 => (0..slots).map(|slot| slot.checked_sub(1)).collect(),
        Level::Raid10 => {
            // The pattern repeats after at most as many chunks as there are slots.
            let mut held = vec![BTreeSet::new(); slots];
            let chunks = (layout.array_size().0 / layout.chunk().0).min(2 * slots as u64);
            for nth in 0..chunks {
                for (slot, at) in layout.copies(ArraySector(nth * layout.chunk().0)) {
                    held[slot.index()].insert((nth, at));
                }
            }
            (0..slots).map(|slot| (0..slot).rev().find(|before| held[*before] == held[slot])).collect()
        }
    }
}
