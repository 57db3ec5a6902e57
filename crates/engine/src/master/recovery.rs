//! Members that do not hold everything yet, and spares that may take a slot, in the state of an array.
//! Owns: which these are, how their state changes together. Not here: when (`passes`), what they are given (`resync`).

use super::{Master, MemberState};
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::Features;

impl Master {
    /// A write that the freeze refused may be on readable members and not on one that is recovering, where the recovery
    /// has been. So it begins anew.
    pub(super) fn recover_anew(&mut self) {
        for member in &mut self.members {
            if let MemberState::Recovering { below, .. } = member {
                *below = Sectors::ZERO;
            }
        }
    }

    pub(super) fn take_spare(&mut self, member: usize, slot: Slot) {
        self.members[member] = MemberState::Recovering { slot, below: Sectors::ZERO };
        self.version += 1;
    }

    pub(super) fn note_recovered(&mut self, slots: SlotSet, recovered: Sectors) {
        self.change_recovering(slots, |slot, below| MemberState::Recovering { slot, below: below.max(recovered) });
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
            MemberState::Active(_) | MemberState::Spare | MemberState::Removed | MemberState::Faulty { .. } => None,
        })
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

    /// A spare, and the slot that it can take: the lowest that has no member. Nothing while a failure waits for its
    /// record.
    pub(crate) fn wanted_spare(&self) -> Option<(usize, Slot)> {
        if !self.is_redundant || !self.is_recorded || self.frozen.is_some() {
            return None;
        }
        let slot = (0..self.slots).map(Slot).find(|slot| !self.writable().contains(*slot))?;
        // The engine does not know a member's bad blocks: a block that is bad could not be recovered.
        let is_whole = |member: &usize| !self.superblocks[*member].features.contains(Features::BAD_BLOCKS);
        let has_room = |member: &usize| self.has_bitmap_room(*member);
        let is_spare = |member: &usize| self.members[*member] == MemberState::Spare && self.joining != Some(*member);
        let spares = (0..self.members.len()).filter(is_spare);
        Some((spares.filter(is_whole).filter(has_room).min()?, slot))
    }
}
