//! A member that is copied to another one, in the state of an array.
//! Owns: the changes from the first write that goes to both, to the end. Not here: when, and the copy
//! (`kinds::replace`).
//! Invariant: the second member of a slot never has less than the first below `below`, and is read by no request.

use super::{Master, MemberState};
use crate::state::view::Gate;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::verdict::Operation;
use crate::{MemberPlan, Place, StartPlan};
use uraid_block::{ErrorKind, Sectors, Slot, SlotSet, Tick};

/// A step of a replacement.
pub(crate) enum Replace {
    /// A spare becomes the second member of this slot: the next superblocks say so.
    Begin { member: usize, slot: Slot },
    /// The second member of this slot, which held everything at the start, is to have it alone.
    Resume(Slot),
    /// The second member of this slot holds what is below this, and was flushed.
    Checkpoint(Slot, Sectors),
    /// It holds everything, and was flushed: it has the slot alone, and the first member has none any more.
    End(Slot, Tick),
}

/// Slots whose second member holds everything and whose first one is there. md leaves both of them, and which one is to
/// stay is their owner's choice.
pub(super) fn whole_at_start(plan: &StartPlan) -> SlotSet {
    let whole = plan.members.iter().filter(|member| member.is_whole_replacement());
    whole.filter_map(|member| member.superblock.own_role().slot()).collect()
}

/// The second members of slots at a start.
pub(super) fn seconds(plan: &StartPlan) -> Vec<usize> {
    let is_second = |member: &&MemberPlan| matches!(member.place, Place::Replacing { .. });
    (0..).zip(&plan.members).filter(|(_, member)| is_second(member)).map(|(index, _)| index).collect()
}

impl Master {
    /// The second member of this slot, and how far it holds what the first one does.
    pub(crate) fn replacing(&self, slot: Slot) -> Option<(usize, Sectors)> {
        self.members.iter().enumerate().find_map(|(member, state)| match state {
            MemberState::Replacing { slot: of, below } if *of == slot => Some((member, *below)),
            MemberState::Replacing { .. }
            | MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Spare
            | MemberState::Removed
            | MemberState::Faulty { .. } => None,
        })
    }

    /// The slots with a second member that is to get what the first one holds, and then the slot.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = Slot> {
        (0..self.slots()).map(Slot).filter(|slot| self.replacing(*slot).is_some() && !self.at_rest.contains(*slot))
    }

    /// The slots of such members.
    pub(crate) fn at_rest(&self) -> SlotSet {
        self.at_rest.iter().filter(|slot| self.replacing(*slot).is_some()).collect()
    }

    /// The second member of a slot that held everything at the start, and stays beside the first.
    pub(crate) fn second_at_rest(&self, slot: Slot) -> Option<usize> {
        self.replacing(slot).filter(|_| self.at_rest.contains(slot)).map(|(member, _)| member)
    }

    /// How far the second member of this slot holds what the first one does, as the superblocks say.
    pub(crate) fn copied_below(&self, slot: Slot) -> Option<Sectors> {
        self.replacing(slot).map(|(_, below)| below)
    }

    /// The spare to which a member would be copied: `with`, or the first that could take a slot.
    pub(crate) fn spare_to_replace(&self, with: Option<usize>) -> Option<usize> {
        self.spares().find(|spare| with.is_none_or(|with| with == *spare))
    }

    /// The slot in which the role table lists a member: one that has just failed, too.
    pub(super) fn listed_slot(&self, member: usize) -> Option<Slot> {
        match self.members[member] {
            MemberState::Faulty { slot, .. } => slot.filter(|_| self.unnamed.contains(&member)),
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare
            | MemberState::Removed => self.members[member].written_slot(),
        }
    }

    /// Whether the role table lists it in a slot beside an earlier member. Then its own superblock says that it is a
    /// replacement, also when it has the slot alone: until the others name the first one as failed, a crash would else
    /// leave two first members.
    pub(super) fn is_second_of_slot(&self, member: usize) -> bool {
        let rank = |member: usize| self.seconds.iter().position(|second| *second == member).map_or(0, |at| at + 1);
        let Some(slot) = self.listed_slot(member) else { return false };
        let others = (0..self.members.len()).filter(|other| self.listed_slot(*other) == Some(slot));
        others.map(rank).any(|other| other < rank(member))
    }

    /// The first member of a slot has failed: the second one is recovered. Every write went to it already.
    pub(super) fn promote_replacement(&mut self, slot: Slot) {
        let is_first = |member: &MemberState| member.slot() == Some(slot);
        if let Some((member, below)) = self.replacing(slot)
            && !self.members.iter().any(is_first)
        {
            mark::hit(Mark::ReplacementPromoted);
            self.members[member] = MemberState::Recovering { slot, below };
            self.by_bits = self.by_bits.without(slot);
        }
    }

    pub(super) fn change_replace(&mut self, change: Replace) {
        match change {
            Replace::Begin { member, slot } => {
                self.members[member] = MemberState::Replacing { slot, below: Sectors::ZERO };
                self.seconds.push(member);
                self.at_rest.remove(slot);
                self.version += 1;
            }
            Replace::Resume(slot) => self.at_rest.remove(slot),
            Replace::Checkpoint(slot, copied) => {
                let (member, below) = self.replacing(slot).expect("it was checked");
                self.members[member] = MemberState::Replacing { slot, below: below.max(copied) };
                self.version += 1;
            }
            Replace::End(slot, at) => {
                let (second, _) = self.replacing(slot).expect("it was checked");
                let first = self.members.iter().position(|member| *member == MemberState::Active(slot));
                let first = first.expect("a member that is copied is in sync");
                self.members[second] = MemberState::Active(slot);
                self.fail_member(&Failure::new((slot, first), Operation::Replaced, ErrorKind::Gone.into()), at);
            }
        }
    }

    pub(super) fn check_replace(&self, change: &Replace) {
        match change {
            Replace::Begin { member, slot } => {
                assert_eq!(self.members[*member], MemberState::Spare, "a spare replaces");
                assert!(self.readable().contains(*slot), "a member in sync is copied");
                assert!(self.replacing(*slot).is_none(), "a slot has two members at most");
                assert!(self.gate == Gate::Open && self.is_recorded, "an array takes a spare while it serves");
            }
            Replace::Resume(slot) => assert!(self.replacing(*slot).is_some(), "it has two members"),
            Replace::Checkpoint(slot, _) => {
                assert!(self.replacing(*slot).is_some() && self.frozen.is_none(), "a copy goes on");
            }
            Replace::End(slot, _) => {
                assert!(self.replacing(*slot).is_some() && self.is_recorded, "it has two members");
                assert_eq!(self.gate, Gate::Open, "it ends while the array serves");
            }
        }
    }
}
