//! Members that do not hold everything yet, and spares that may take a slot, in the state of an array.
//! Owns: which these are, how their state changes together. Not here: when, and what they are given (`kinds::recovery`).

use super::{Master, MemberState};
use crate::{MemberPlan, Place, StartPlan};
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::Features;

/// The slots whose recovery goes on by the bitmap: it was begun by that, and has lost no bit since.
pub(super) fn by_bits(plan: &StartPlan) -> SlotSet {
    let is_believed = plan.bitmap.as_ref().is_some_and(|bitmap| !bitmap.is_out_of_date);
    let slot_by_bits = |member: &MemberPlan| match member.place {
        Place::Recovering { slot, .. } => {
            member.superblock.features.contains(Features::RECOVERY_BITMAP).then_some(slot)
        }
        Place::Slot(_) | Place::Replacing { .. } | Place::Spare => None,
    };
    plan.members.iter().filter(|_| is_believed).filter_map(slot_by_bits).collect()
}

impl Master {
    /// A write that the freeze refused may be on readable members and not on one that is recovering, where the recovery
    /// has been. So it begins anew.
    pub(super) fn recover_anew(&mut self) {
        for member in &mut self.members {
            if let MemberState::Recovering { below, .. } | MemberState::Replacing { below, .. } = member {
                *below = Sectors::ZERO;
            }
        }
    }

    /// `by_bits`: it lacks only what the bitmap names.
    pub(super) fn take_slot(&mut self, member: usize, slot: Slot, by_bits: bool) {
        self.members[member] = MemberState::Recovering { slot, below: Sectors::ZERO };
        self.by_bits = if by_bits { self.by_bits.with(slot) } else { self.by_bits.without(slot) };
        self.version += 1;
    }

    /// Whether the members that are recovering in these slots lack only what the bitmap names.
    pub(crate) fn lack_only_bits(&self, slots: SlotSet) -> bool {
        slots.is_within(self.by_bits)
    }

    pub(super) fn note_recovered(&mut self, slots: SlotSet, recovered: Sectors) {
        self.change_recovering(slots, |slot, below| MemberState::Recovering { slot, below: below.max(recovered) });
    }

    pub(super) fn mark_suspect(&mut self) {
        self.is_suspect = true;
        self.is_dirty = true;
        self.version += 1;
    }

    pub(super) fn end_recovery(&mut self, slots: SlotSet) {
        self.shown_recovered = SlotSet::EMPTY;
        self.change_recovering(slots, |slot, _| MemberState::Active(slot));
    }

    fn change_recovering(&mut self, slots: SlotSet, state: impl Fn(Slot, Sectors) -> MemberState) {
        for member in &mut self.members {
            if let MemberState::Recovering { slot, below } = *member
                && slots.contains(slot)
            {
                *member = state(slot, below);
            }
        }
        self.version += 1;
    }

    /// Each slot whose member is recovering, with how far.
    fn recoveries(&self) -> impl Iterator<Item = (Slot, Sectors)> {
        self.members.iter().filter_map(|member| match member {
            MemberState::Recovering { slot, below } => Some((*slot, *below)),
            MemberState::Active(_)
            | MemberState::Replacing { .. }
            | MemberState::Spare
            | MemberState::Removed
            | MemberState::Faulty { .. } => None,
        })
    }

    /// Whether the member in a slot holds its data up to here.
    pub(crate) fn holds(&self, slot: Slot, end: Sectors) -> bool {
        self.readable().contains(slot) || self.recoveries().any(|(of, below)| of == slot && below >= end)
    }

    /// Whether a member that is written does not hold everything.
    pub(crate) fn has_incomplete(&self) -> bool {
        !self.recovering().is_empty() || self.replaced().next().is_some()
    }

    /// The slots whose member is recovering.
    pub(crate) fn recovering(&self) -> SlotSet {
        self.recoveries().map(|(slot, _)| slot).collect()
    }

    /// The most that a member in recovery holds.
    pub(crate) fn most_recovered(&self) -> Sectors {
        self.recoveries().map(|(_, below)| below).max().unwrap_or(Sectors::ZERO)
    }

    /// What the members that are recovering in these slots all hold. Without any, there is no limit to it.
    pub(crate) fn recovered_below(&self, slots: SlotSet) -> Sectors {
        let of_slots = self.recoveries().filter(|(slot, _)| slots.contains(*slot));
        of_slots.map(|(_, below)| below).min().unwrap_or(Sectors(u64::MAX))
    }

    /// A spare, and the slot that it can take. First one whose number is that of a slot without a member: a member that
    /// was being recovered, and is a spare in what a crash left (`hides`), gets its own slot again. Else the lowest slot
    /// without one. Nothing while a failure waits for its record.
    pub(crate) fn wanted_spare(&self) -> Option<(usize, Slot)> {
        if !self.is_redundant() || !self.is_recorded || self.frozen.is_some() {
            return None;
        }
        let is_free = |slot: &Slot| !self.writable().contains(*slot);
        let lowest = (0..self.slots()).map(Slot).find(is_free)?;
        let own = |member: usize| {
            let number = self.superblocks[member].dev_number;
            let slot = u16::try_from(number).ok().filter(|number| *number < self.slots()).map(Slot)?;
            Some((member, slot)).filter(|(_, slot)| is_free(slot))
        };
        self.spares().find_map(own).or_else(|| Some((self.spares().next()?, lowest)))
    }

    /// The spares that may take a slot.
    pub(crate) fn spares(&self) -> impl Iterator<Item = usize> {
        // The engine does not know a member's bad blocks: a block that is bad could not be recovered.
        let is_whole = |member: &usize| !self.superblocks[*member].features.contains(Features::BAD_BLOCKS);
        let has_room = |member: &usize| self.has_bitmap_room(*member);
        let is_spare = |member: &usize| self.members[*member] == MemberState::Spare && self.joining != Some(*member);
        (0..self.members.len()).filter(is_spare).filter(is_whole).filter(has_room)
    }
}
