//! What is true of every state of an array, and of every change.
//! Owns: the asserts across the fields of [`Master`], what a change may be made on. Not here: what a change does
//! (`master`).
//! Invariant: nothing here changes the state, and no byte from a member, a client or the user can fail a check.

use super::{BadBlocks, Change, FreezeCause, Master, MemberState, Membership};
use crate::state::view::Gate;
use uraid_block::{Slot, SlotSet};

impl Master {
    /// What is true of every state.
    pub(super) fn check(&self) {
        assert_eq!(self.members.len(), self.superblocks.len());
        assert_eq!(self.members.len(), self.logs.len());
        assert!(self.recorded <= self.version, "no superblock shows a change that was not made");
        self.check_gate();
        self.check_marks();
        self.check_failed();
        for member in &self.lagging {
            assert!(self.superblocks[*member].events < self.events, "a lagging member is behind");
        }
        assert!(self.missed_round.is_within(SlotSet::first(self.slots())));
        assert!(self.events_recorded <= self.events, "no superblock has events that were not counted");
        assert!(self.events_min <= self.events + 3, "three rounds leave any member behind");
    }

    fn check_gate(&self) {
        let is_frozen = self.frozen.is_some();
        match self.gate {
            Gate::Open => {
                assert!(!is_frozen && self.has_opened, "a frozen array takes no writes");
            }
            Gate::Frozen(_) => assert!(is_frozen),
            Gate::NoNewWrites => assert!(!is_frozen && self.has_opened && !self.writes_nothing),
            Gate::ReadOnly => {
                assert!(!self.takes_writes, "a read-only array takes no writes");
                assert_eq!(self.has_opened, self.writes_nothing, "it was opened so, or became so by command");
            }
            Gate::Closed | Gate::Stopped => {}
        }
    }

    fn check_marks(&self) {
        if self.takes_writes && self.is_redundant() {
            assert!(self.is_dirty, "the dirty mark comes before the first write");
        }
        if self.is_suspect {
            assert!(self.is_dirty && self.resync_from.is_some(), "a sector that was unreadable may disagree later");
        }
        if !self.is_redundant() {
            assert!(!self.is_dirty && self.resync_from.is_none(), "what has no redundancy has nothing that disagrees");
        }
        if self.has_opened {
            assert!(self.lagging.is_empty() || !self.is_redundant(), "all members have the freshest superblock");
        }
    }

    fn check_failed(&self) {
        for member in &self.unnamed {
            let has_slot = matches!(self.members[*member], MemberState::Faulty { slot: Some(_), .. });
            assert!(has_slot, "a member that works is named by its slot, and a spare has none");
        }
        if !self.unnamed.is_empty() {
            assert!(!self.is_recorded && self.recorded < self.version, "a round is due that names them");
        }
        if !self.is_recorded {
            assert!(!self.members.iter().all(MemberState::is_trusted), "only failures wait for their record");
        }
    }

    /// What is true before a change.
    pub(super) fn check_change(&self, change: &Change<'_>) {
        match change {
            Change::OpenReadOnly => assert_eq!(self.gate, Gate::Closed, "an array opens once"),
            Change::Open => assert!(!self.has_opened, "an array starts once"),
            Change::OpenFrozen => assert_ne!(self.gate, Gate::Open, "an array with writes inside is not frozen"),
            Change::ReadOnly(change) => self.check_read_only(*change),
            Change::Shape(change) => self.check_shape(change),
            Change::Stop => assert_ne!(self.gate, Gate::Open, "the gate closes before the last change"),
            Change::LeaveOutsiders | Change::CatchUp => assert!(!self.has_opened, "a part of the start"),
            Change::MarkDirty => {
                assert!(!self.takes_writes, "the dirty mark comes before the first write");
                assert!(self.frozen.is_none(), "a frozen array writes no superblock");
            }
            Change::AdmitWrites => {
                assert!(self.has_opened, "writes come after the start");
                assert_ne!(self.gate, Gate::Stopped, "and before the stop");
            }
            Change::HoldWrites => {
                assert!(self.takes_writes, "writes are held once");
                assert!(self.is_redundant(), "a level without a dirty mark has no reason to hold writes");
            }
            Change::MarkClean => {
                assert!(!self.takes_writes, "an array that takes writes is dirty");
                assert!(!self.is_suspect, "some of its redundancy is unknown");
            }
            Change::Checkpoint(below) => {
                assert!(self.resync_from.is_some_and(|from| from <= *below), "a resync only goes on");
                assert!(!self.takes_writes, "a write under way may leave anything inconsistent");
            }
            Change::EndResync | Change::MarkSuspect => {
                assert!(self.resync_from.is_some() && self.frozen.is_none(), "a resync has ended");
                assert_eq!(self.gate, Gate::Open, "it runs while the gate is open");
            }
            Change::TakeSpare { member, slot } => self.check_take_spare(*member, *slot),
            Change::CheckpointRecovery(slots, _) | Change::ShowRecovered(slots) | Change::EndRecovery(slots) => {
                assert!(!slots.is_empty() && self.frozen.is_none(), "a recovery goes on");
            }
            Change::Replace(change) => self.check_replace(change),
            Change::SetFlag(members, ..) => {
                assert!(members.iter().all(|member| self.members[*member].is_trusted()), "members of the array");
            }
            Change::Bitmap(change) => self.check_bitmap_change(change),
            Change::BadBlocks(BadBlocks::List(_) | BadBlocks::Clear(..)) => {
                assert!(self.gate.lets_writes_end(), "a list changes by a write or a pass");
            }
            Change::BadBlocks(BadBlocks::AsWritten) => assert!(self.frozen.is_some(), "else a list is written"),
            Change::BadBlocks(BadBlocks::Written(..) | BadBlocks::Counts(..)) => {}
            Change::Membership(change) => self.check_membership(change),
            Change::FailMembers(failures, _) => assert!(!failures.is_empty()),
            Change::ForgetBits => assert!(self.bitmap.is_some() && self.gate == Gate::Open, "writes rely on bits"),
            Change::MissRound(slot) => assert!(slot.0 < self.slots()),
            Change::Unfreeze(..) => {
                assert!(self.frozen.is_some_and(|frozen| frozen.cause == FreezeCause::Full), "no other freeze ends");
                assert!(self.has_opened, "a start that froze is not continued");
                assert_eq!(self.gate, Gate::Closed, "readers see no member change");
            }
            Change::Refreeze(_) => assert_ne!(self.gate, Gate::Open, "it opens when the failure is recorded"),
            Change::Nothing
            | Change::HoldBehind(_)
            | Change::Close
            | Change::OpenForWrites
            | Change::FailSpare { .. }
            | Change::Freeze(..)
            | Change::BeginRound(_)
            | Change::EndRound(_) => {}
        }
    }

    fn check_membership(&self, change: &Membership) {
        match change {
            Membership::Reserve(_) => assert!(self.is_redundant(), "others cannot use spares"),
            Membership::AddSpare(member) => {
                assert_eq!(self.members[*member], MemberState::Removed, "its place was reserved");
                assert!(self.joining.is_none(), "one member joins at a time");
                assert_eq!(self.gate, Gate::Open, "an array takes members while it serves");
            }
            Membership::Return { member, slot } => {
                assert_eq!(self.members[*member], MemberState::Removed, "its place was reserved");
                assert!(
                    !self.writable().contains(*slot) && self.is_recorded,
                    "a slot without a member, as is recorded"
                );
                assert!(self.bitmap.is_some() && self.gate == Gate::Open, "bits say what it has missed");
            }
            Membership::Joined(member) => assert_eq!(self.joining, Some(*member), "it was added"),
            Membership::Remove(member) => {
                let may_leave = matches!(self.members[*member], MemberState::Spare | MemberState::Faulty { .. });
                assert!(may_leave && !self.unnamed.contains(member), "a member in use stays");
            }
        }
    }

    /// What a change does to the counts: `before` are the version, the recorded version and the events.
    pub(super) fn check_growth(&self, (version, recorded, events): (u64, u64, u64)) {
        assert!(self.version >= version && self.recorded >= recorded, "counts of changes only grow");
        assert!(self.events >= events, "events never step back");
    }

    fn check_take_spare(&self, member: usize, slot: Slot) {
        assert_eq!(self.members[member], MemberState::Spare, "a spare takes a slot");
        assert!(!self.writable().contains(slot) && self.is_recorded, "a slot without a member, as is recorded");
        assert_eq!(self.gate, Gate::Open, "an array takes a spare while it serves");
    }
}
