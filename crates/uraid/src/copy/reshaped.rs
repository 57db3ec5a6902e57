//! An array whose reshape stopped half-way, as something to copy.
//! Owns: arrays over the same members, one for each stretch of a geometry, and what is said of them. Not here: the decision
//! (`engine::assemble_half_reshaped`), reading (`copy_reader`).
//! Invariant: the arrays are only read, each in its own stretch.

use super::{Source, incomplete, peculiarities};
use std::collections::BTreeSet;
use uraid_arrays::{ArrayIndex, Members};
use uraid_block::sizes;
use uraid_block::{Range, Sector, Slot};
use uraid_control::log::warn;
use uraid_control::report::Shape;
use uraid_engine::{HalfReshaped, Place, ReshapedPart, StartPlan};
use uraid_format::uuid;
use uraid_serve::assembly;
use uraid_serve::opening::Opened;
use uraid_serve::stack::AssembledStack;

/// Each stretch of one geometry as an array of one stack. A member that holds something else there has no readable
/// sector in it.
pub(super) fn source(opened: &Opened, both: HalfReshaped, is_forced: bool) -> Source {
    let size = both.array_size();
    let first = both.shown();
    let (uuid, events) = (uuid::text(&first.template.set_uuid), first.events);
    let mut identity =
        format!("{uuid}, {} bytes, {events} events, reshaped to sector {}", size.bytes(), both.plan.position.0);
    announce(opened, &both);
    let mut arrays = Vec::new();
    let mut parts = Vec::new();
    for (nth, ReshapedPart { range, is_new, start, lacking }) in both.parts.into_iter().enumerate() {
        parts.push((Range::between(Sector(range.start.0), Sector(range.end.0)), ArrayIndex(nth)));
        let lacking: Vec<(usize, Slot)> =
            lacking.into_iter().filter_map(|at| Some((at, slot_of(&start, at)?))).collect();
        lacking.iter().for_each(|(_, slot)| identity.push_str(&format!(", {slot} not from {} on", range.start.0)));
        let mut array = opened.assembled(start);
        array.name = format!("{}, {}", array.name, if is_new { "new geometry" } else { "old geometry" });
        if let Members::Claimed(members) = &mut array.members {
            for (at, slot) in lacking {
                members[at] = incomplete::stand_in(slot, members[at].size());
            }
        }
        arrays.push(array);
    }
    let stack = AssembledStack::new(arrays, is_forced);
    stack.arrays.iter().flat_map(|array| peculiarities(&array.plan)).for_each(|one| identity.push_str(&one));
    Source { stack, identity, parts }
}

/// Says which members left the reshape earlier than the one that is furthest.
pub(super) fn announce_positions(opened: &Opened) {
    let positions = opened.candidates.iter().zip(&opened.members).filter_map(|(candidate, member)| {
        let plan = candidate.superblock.reshape_plan().ok()??;
        Some((plan, candidate.superblock.events, member.name()))
    });
    let positions: Vec<_> = positions.collect();
    let Some((freshest, events, _)) = positions.iter().max_by_key(|(_, events, _)| *events) else { return };
    for (own, of_member, name) in positions.iter().filter(|(own, ..)| own.position != freshest.position) {
        warn(&format!(
            "{name}: has {of_member} events, the freshest member {events}: its reshape stood at sector {} of the array, that \
             of the array at {}",
            own.position.0, freshest.position.0
        ));
    }
}

fn slot_of(start: &StartPlan, member: usize) -> Option<Slot> {
    match start.members[member].place {
        Place::Slot(slot) => Some(slot),
        Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
    }
}

/// Says which stretch is read how, and of whom it cannot be.
fn announce(opened: &Opened, both: &HalfReshaped) {
    let names = opened.names();
    let plans = || both.parts.iter().map(|part| &part.start);
    let used: BTreeSet<usize> = plans().flat_map(|plan| plan.members.iter().map(|member| member.candidate)).collect();
    // A member of one geometry need not be one of the other.
    let lines = plans().flat_map(|plan| {
        let refused: Vec<_> = plan.refused.iter().filter(|other| !used.contains(&other.candidate)).cloned().collect();
        [assembly::refused_lines(&refused, &names), assembly::started_lines(plan, &names)].concat()
    });
    lines.collect::<BTreeSet<String>>().iter().for_each(|line| warn(line));
    for ReshapedPart { range, is_new, start, lacking } in &both.parts {
        let (layout, side) = if *is_new { (&both.to, "new") } else { (&both.from, "old") };
        let (from, to) = (Sector(range.start.0), Sector(range.end.0));
        let stretch = format!("sectors {} to {} ({})", from.0, to.0, sizes::binary(to - from));
        warn(&format!("{stretch} are read in the {side} geometry, {}", Shape::of(layout).text()));
        for at in lacking {
            let member = &names[start.members[*at].candidate];
            warn(&format!(
                "{member}: took no part in the reshape of these sectors: they come from the others, or are zeroes in the copy"
            ));
        }
    }
    warn(
        "the reshape stopped half-way; if `mdadm --grow` was given a backup file and the machine crashed, the stripes that \
         were being moved are only in that file: `mdadm --assemble --backup-file` puts them back",
    );
}
