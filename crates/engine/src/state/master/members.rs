//! Members that join and leave, in the state of an array.
//! Owns: their places, numbers of devices, which of them may take a slot. Not here: when (`membership`), their
//! superblocks (`images`).

use super::bad_blocks::MemberLog;
use super::{Master, MemberState};
use crate::words::verdict::Operation;
use uraid_block::{IoError, Slot, Tick};
use uraid_format::{MemberFlag, ROLES_MAX, Role, Superblock, roles_with};

/// A member joins or leaves.
pub(crate) enum Membership {
    /// Reserves the next index for a member with this superblock, which has no device yet.
    Reserve(Box<Superblock>),
    /// Such a member is a spare: the next superblocks say so.
    AddSpare(usize),
    /// The superblocks say so: it may take a slot.
    Joined(usize),
    /// A former member has its slot again: the next superblocks say so. It lacks only what the bitmap names.
    Return { member: usize, slot: Slot },
    /// A spare or a failed member leaves: the next superblocks say so.
    Remove(usize),
}

impl Master {
    /// Whether a slot has no member and the superblocks do not say so yet.
    pub(crate) fn leaves_a_slot_out(&self) -> bool {
        let present = self.writable().count();
        assert!(present <= usize::from(self.slots()));
        let named = self.template.roles.iter().filter(|role| role.slot().is_some()).count();
        usize::from(self.slots()) > present && named != present
    }

    /// The freshest superblock at assembly: what all members share is taken from it.
    pub(crate) fn template(&self) -> &Superblock {
        &self.template
    }

    /// The lowest number for another device, behind those of the slots, as mdadm chooses it. It is none of a member since
    /// the start, nor, if there are others, of a device that is missing: either may return, and its superblock has its
    /// number. `None`: there are no more.
    pub(crate) fn free_number(&self) -> Option<u32> {
        let is_used = |number: &u32| self.superblocks.iter().any(|superblock| superblock.dev_number == *number);
        let role = |number: u32| self.template.roles.get(number as usize).copied().unwrap_or(Role::Spare);
        let numbers = || (u32::from(self.slots())..ROLES_MAX as u32).filter(|number| !is_used(number));
        let is_free = |number: &u32| matches!(role(*number), Role::Spare);
        let is_missing = |number: &u32| matches!(role(*number), Role::Faulty | Role::Slot(_));
        numbers().find(is_free).or_else(|| numbers().find(is_missing))
    }

    /// The former member that the superblocks do not list in its slot yet. Its own comes first: it is far behind the others,
    /// and would be missing if power failed when only these list it.
    pub(crate) fn returning(&self) -> Option<usize> {
        self.returning
    }

    /// Whether this superblock says that a member which is in sync now had failed. One that came later, or returned, has
    /// another number.
    pub(crate) fn was_apart(&self, former: &Superblock) -> bool {
        let in_sync = self.members.iter().zip(&self.superblocks);
        let in_sync = in_sync.filter(|(state, _)| matches!(state, MemberState::Active(_)));
        let mut numbers = in_sync.map(|(_, superblock)| superblock.dev_number as usize);
        numbers.any(|number| former.roles.get(number) == Some(&Role::Faulty))
    }

    /// The flags of a member.
    pub(crate) fn flags(&self, member: usize) -> Vec<MemberFlag> {
        self.superblocks[member].flags().collect()
    }

    pub(super) fn set_flag(&mut self, members: &[usize], flag: MemberFlag, is_set: bool) {
        for member in members {
            let flags = &mut self.superblocks[*member].devflags;
            *flags = flag.put(*flags, is_set);
        }
        self.version += 1;
    }

    pub(super) fn fail_spare(&mut self, member: usize, error: IoError, at: Tick) {
        assert_eq!(self.members[member], MemberState::Spare, "a member in a slot is judged with the others");
        self.joining = self.joining.filter(|joining| *joining != member);
        self.members[member] = MemberState::Faulty { slot: None, operation: Operation::Superblock, error, at };
        self.version += 1;
    }

    pub(super) fn change_membership(&mut self, change: Membership) {
        match change {
            Membership::Reserve(superblock) => {
                self.template.roles = roles_with(&self.template.roles, superblock.dev_number);
                self.members.push(MemberState::Removed);
                self.superblocks.push(*superblock);
                self.logs.push(MemberLog::default());
            }
            Membership::AddSpare(member) => {
                self.members[member] = MemberState::Spare;
                self.joining = Some(member);
                self.version += 1;
            }
            Membership::Joined(_) => self.joining = None,
            Membership::Return { member, slot } => {
                self.take_slot(member, slot, true);
                self.returning = Some(member);
            }
            Membership::Remove(member) => {
                self.members[member] = MemberState::Removed;
                self.joining = self.joining.filter(|joining| *joining != member);
                self.version += 1;
            }
        }
    }
}
