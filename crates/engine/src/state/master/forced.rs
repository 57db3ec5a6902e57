//! Members that `--force` took although fresher ones hold some of their chunks.
//! Owns: how their copies count, and how far their superblocks stay behind, until a resync has ended. Not here: which
//! members are taken (`assemble`), the superblocks (`images`).
//! Invariant: whatever lands of a round, a later start takes the same copies for the fresher ones.

use crate::{MemberPlan, Place, StartPlan};
use uraid_block::SlotSet;
use uraid_format::MemberFlag;

/// The members that `--force` took although fresher ones hold some of their chunks. Those of later sets stay further
/// behind; two events are more than a start takes for one round that was cut short.
pub(super) fn unlisted(plan: &StartPlan) -> Vec<(usize, u64)> {
    let behind = |place: Place| match place {
        Place::Slot(slot) => plan.forced.older.iter().position(|set| set.contains(slot)).map(|nth| 2 + nth as u64),
        Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
    };
    (0..).zip(&plan.members).filter_map(|(index, member)| Some((index, behind(member.place)?))).collect()
}

/// The sets of slots that come last, in order. A member that may be written behind comes after those that may not.
pub(super) fn older(plan: &StartPlan) -> &'static [SlotSet] {
    if plan.forced.older.is_empty() {
        return &[];
    }
    let is_mostly_written = |member: &&MemberPlan| {
        member.superblock.flags().into_iter().any(|flag| matches!(flag, MemberFlag::WriteMostly))
    };
    let in_slot = |member: &MemberPlan| match member.place {
        Place::Slot(slot) => Some(slot),
        Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
    };
    let last: SlotSet = plan.members.iter().filter(is_mostly_written).filter_map(in_slot).collect();
    let raised = plan.forced.older.iter().fold(SlotSet::EMPTY, |all, set| all.or(*set));
    let of_raised = plan.forced.older.iter().flat_map(|set| [set.minus(last), set.and(last)]);
    let sets: Vec<SlotSet> = std::iter::once(last.minus(raised)).chain(of_raised).collect();
    // Some words, once for a start by force.
    Vec::leak(sets)
}
