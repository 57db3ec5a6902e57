//! How far the superblocks of members that are left out must be behind those of the others.
//! Owns: the events that the next rounds have to reach. Not here: the rounds (`recorder`), what superblocks say (`images`).
//! Invariant: no request that a member has missed is answered before the others are two events ahead of it.

use super::Master;
use crate::{Place, StartPlan};
use uraid_format::Role;

/// Whether a slot has no member, or the role table lists a device in a slot, or a failed one, that is not in use.
pub(super) fn has_outsiders(plan: &StartPlan) -> bool {
    let is_used = |number: u32| {
        let mut in_slots = plan.members.iter().filter(|member| member.place != Place::Spare);
        in_slots.any(|member| member.superblock.dev_number == number)
    };
    let had_slot = |role: &Role| match role {
        Role::Slot(_) | Role::BeyondSlots(_) | Role::Faulty => true,
        Role::Spare | Role::Journal | Role::Reserved(_) => false,
    };
    let mut roles = (0u32..).zip(&plan.template.roles);
    !plan.missing.is_empty() || roles.any(|(number, role)| had_slot(role) && !is_used(number))
}

impl Master {
    /// Called when a member is left out of the array, while its superblock may have as many events as the newest round.
    ///
    /// `mdadm --assemble --force` accepts a member that is at most one event behind, whatever the freshest superblock
    /// says of it. So the others must be two events ahead before any request that this member has missed is answered.
    /// That takes two rounds: in one step of two, a crash in mid-round would leave the others too far apart.
    ///
    /// ```text
    ///   events     left out: 7     the others: 7 -> 8 -> 9, then the answer
    /// ```
    pub(super) fn leave_behind(&mut self) {
        self.events_min = self.events_min.max(self.events + 2);
    }

    /// [`Master::leave_behind`] for devices that the array was started without; once, before the first write. A crash may
    /// have cut a round short that had reached such a device and no member here: then it is one event ahead of them.
    pub(super) fn leave_outsiders_behind(&mut self) {
        if self.has_outsiders {
            self.events_min = self.events_min.max(self.events + 3);
            self.has_outsiders = false;
        }
    }
}
