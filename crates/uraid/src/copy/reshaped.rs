//! An array whose reshape stopped half-way, as something to copy.
//! Owns: two arrays over the same members, one for each geometry, and what is said of them. Not here: the decision
//! (`engine::assemble_half_reshaped`), reading (`copy_reader`).
//! Invariant: both arrays are only read, each on its own side of the position.

use super::{Source, peculiarities};
use uraid_arrays::ArrayIndex;
use uraid_block::sizes;
use uraid_block::{Range, Sector};
use uraid_engine::HalfReshaped;
use uraid_format::uuid;
use uraid_serve::log::warn;
use uraid_serve::opening::Opened;
use uraid_serve::report::Shape;
use uraid_serve::stack::{Assembled, Stack};

/// Both geometries as arrays of one stack.
pub(super) fn source(opened: &Opened, both: HalfReshaped, is_forced: bool) -> Source {
    let size = both.array_size();
    let position = Sector(both.plan.position.0.min(size.0));
    let (old, new) = ("old geometry", "new geometry");
    let (below, above) = if both.plan.is_backwards { (old, new) } else { (new, old) };
    let (shape_below, shape_above) = (Shape::of(&both.below.layout).text(), Shape::of(&both.above.layout).text());
    let as_array = |plan, side: &str| {
        let array = opened.assembled(plan);
        Assembled { name: format!("{}, {side}", array.name), ..array }
    };
    let (uuid, events) = (uuid::text(&both.below.template.set_uuid), both.below.events);
    let stack = Stack::new(vec![as_array(both.below, below), as_array(both.above, above)], is_forced);
    let (of_below, of_above) = (&stack.arrays[0].name, &stack.arrays[1].name);
    let up_to = sizes::binary(position - Sector(0));
    warn(&format!("{of_below}: {shape_below}: the first {up_to} are read in this geometry"));
    warn(&format!("{of_above}: {shape_above}: the rest of {} is read in this geometry", sizes::binary(size)));
    warn(
        "the reshape stopped half-way; if `mdadm --grow` was given a backup file and the machine crashed, the stripes that \
         were being moved are only in that file: `mdadm --assemble --backup-file` puts them back",
    );
    let mut identity = format!("{uuid}, {} bytes, {events} events, reshaped to sector {}", size.bytes(), position.0);
    stack.arrays.iter().flat_map(|array| peculiarities(&array.plan)).for_each(|one| identity.push_str(&one));
    let all = [Range::between(Sector(0), position), Range::between(position, Sector(size.0))];
    let parts = all.into_iter().zip([ArrayIndex(0), ArrayIndex(1)]).filter(|(range, _)| !range.length.is_zero());
    let parts = parts.collect();
    Source { stack, identity, parts }
}
