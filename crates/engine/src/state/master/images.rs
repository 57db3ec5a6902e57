//! What each member's superblock says.
//! Owns: the superblocks of a round, those of a member that catches up, the role table. Not here: writing them
//! (`recorder`), their bytes (`uraid_format`).

use super::{Master, MemberState};
use crate::StartPlan;
use uraid_block::{Extent, Sector, SlotSet};
use uraid_format::{Features, Role, Superblock};

/// The superblock of one member, by its index in the start plan.
pub(crate) type Image = (usize, Superblock);

/// A superblock as this engine writes it. Its partial parity log has a first header without entries, which kernels before
/// 4.14 would take for all of it. They know the bit for one log only, and refuse an array with the other one.
pub(super) fn written(plan: &StartPlan, superblock: &Superblock) -> Superblock {
    let mut superblock = superblock.clone();
    if plan.ppl.is_some() && superblock.features.contains(Features::PPL) {
        superblock.features = superblock.features.without(Features::PPL).with(Features::MULTIPLE_PPLS);
    }
    superblock
}

impl Master {
    /// The next superblock of each trusted member.
    pub(crate) fn images(&self) -> Vec<Image> {
        let (roles, with_unlisted) = (self.roles(|member| !self.is_unlisted(member)), self.roles(|_| true));
        let trusted = self.members.iter().enumerate().filter(|(_, member)| member.is_trusted());
        let image = |(index, _): (usize, &MemberState)| {
            let mut superblock = self.superblocks[index].clone();
            superblock.events = self.events_of(index);
            superblock.updated = self.updated;
            // A failed member that this round still lists was flushed: the flush before the array goes clean waits until
            // the failures of those that it left out are recorded.
            superblock.resync_offset = match self.resync_from {
                _ if self.is_dirty => 0,
                Some(from) if from < self.resync_end() => from.0,
                Some(_) | None => Superblock::CLEAN,
            };
            self.show_recovery(index, self.hides(index), &mut superblock);
            self.show_bitmap(&mut superblock);
            superblock.roles.clone_from(if self.is_unlisted(index) { &with_unlisted } else { &roles });
            (index, superblock)
        };
        let images: Vec<Image> = trusted.map(image).collect();
        assert!(!images.is_empty(), "an array that records has a member");
        let is_listed = |(_, superblock): &Image| !matches!(superblock.own_role(), Role::Faulty);
        assert!(images.iter().all(is_listed), "no member is told that it has failed");
        images
    }

    /// How many events a member's superblock stays behind: zero for all but those that were taken by force.
    fn stays_behind(&self, member: usize) -> u64 {
        self.unlisted.iter().find(|(of, _)| *of == member).map_or(0, |(_, events)| *events)
    }

    /// Whether a superblock of this member stays behind those of the others, which do not list it.
    pub(crate) fn is_unlisted(&self, member: usize) -> bool {
        self.stays_behind(member) > 0
    }

    /// The event count of a member's superblock in this round.
    pub(crate) fn events_of(&self, member: usize) -> u64 {
        self.events.saturating_sub(self.stays_behind(member))
    }

    /// Whether the superblocks show a member that does not hold everything yet as a spare: while they say dirty, md would
    /// lose data if it started the array. Linux 6.12 makes a dirty raid10 consistent before it recovers a member, and
    /// copies from what that one does not hold yet; of a dirty raid1 it reads such a member meanwhile; and it never copies
    /// the rest of a member that replaces another one. A member of a raid4, 5 or 6 that recovers keeps its slot: md refuses
    /// such an array while it is dirty. When the array is clean, they show how far the member has come.
    pub(crate) fn hides(&self, member: usize) -> bool {
        let is_dirty = self.is_dirty || self.resync_from.is_some_and(|from| from < self.resync_end());
        let loses = match self.members[member] {
            MemberState::Replacing { .. } => true,
            MemberState::Recovering { slot, .. } => self.is_mirror() && !self.shown_recovered.contains(slot),
            MemberState::Active(_) | MemberState::Spare | MemberState::Removed | MemberState::Faulty { .. } => false,
        };
        is_dirty && loses
    }

    /// What a member's own superblock says of its recovery. `is_hidden`: nothing.
    fn show_recovery(&self, member: usize, is_hidden: bool, superblock: &mut Superblock) {
        let shown = Features::RECOVERY_OFFSET.with(Features::RECOVERY_BITMAP).with(Features::REPLACEMENT);
        let mut before = superblock.features.without(shown);
        if is_hidden {
            (superblock.features, superblock.recovery_offset) = (before, 0);
            return;
        }
        if self.is_second_of_slot(member) {
            before = before.with(Features::REPLACEMENT);
        }
        (superblock.features, superblock.recovery_offset) = match self.members[member] {
            MemberState::Replacing { slot, .. } if self.at_rest.contains(slot) => (before, 0),
            MemberState::Replacing { below, .. } => (before.with(Features::RECOVERY_OFFSET), below.0),
            MemberState::Recovering { slot, below } if !self.shown_recovered.contains(slot) => {
                let by_bits = if self.by_bits.contains(slot) { Features::RECOVERY_BITMAP } else { Features::default() };
                (before.with(Features::RECOVERY_OFFSET).with(by_bits), below.0)
            }
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Spare
            | MemberState::Removed
            | MemberState::Faulty { .. } => (before, 0),
        };
    }

    /// The freshest superblock, for the members that missed it before the start. One that has failed since, as its partial
    /// parity log could not be written, gets none.
    pub(crate) fn lagging_images(&self) -> Vec<Image> {
        assert!(!self.has_opened || self.lagging.is_empty(), "the start brings them up");
        let lagging = self.lagging.iter().filter(|member| self.members[**member].written_slot().is_some());
        let images: Vec<Image> = lagging.map(|member| self.freshest_image(*member)).collect();
        let is_listed = |(_, superblock): &Image| superblock.own_role().slot().is_some();
        assert!(images.iter().all(is_listed), "the freshest superblock lists a member that is brought up to it");
        images
    }

    /// The freshest superblock, for all members in a slot that it lists. A member that `--force` took is not among them:
    /// the freshest superblock calls it faulty, and if a crash left it with that role, `--force` could not take it again.
    pub(crate) fn freshest_images(&self) -> Vec<Image> {
        let has_slot = |member: &usize| self.members[*member].written_slot().is_some();
        let images = (0..self.members.len()).filter(has_slot).map(|member| self.freshest_image(member));
        images.filter(|(_, superblock)| superblock.own_role().slot().is_some()).collect()
    }

    fn freshest_image(&self, member: usize) -> Image {
        assert!(self.members[member].written_slot().is_some(), "a member in use");
        let mut superblock = self.superblocks[member].clone();
        superblock.events = self.template.events;
        superblock.updated = self.template.updated;
        superblock.resync_offset = self.template.resync_offset;
        superblock.roles.clone_from(&self.template.roles);
        self.show_recovery(member, false, &mut superblock);
        self.show_bitmap(&mut superblock);
        (member, superblock)
    }

    /// The id of the array.
    pub(crate) fn set_uuid(&self) -> [u8; 16] {
        self.template.set_uuid
    }

    /// The area of a member's partial parity log on its device.
    pub(crate) fn log_area(&self, member: usize) -> Option<Extent<Sector>> {
        self.superblocks[member].ppl_room()
    }

    /// Failed members that the next round does not name.
    pub(crate) fn unnamed(&self) -> &[usize] {
        &self.unnamed
    }

    /// The role table: the slot of each permanent device number. A slot's member that is missing or failed is listed as
    /// faulty, so that it is stale when it returns, whatever its own superblock says. A member that has just failed
    /// keeps its slot for one round, see `Master::fail_member`. One of the array's first members that is away is faulty,
    /// too, as in md: where a table lists it as a spare, it was there.
    fn roles(&self, is_listed: impl Fn(usize) -> bool) -> Vec<Role> {
        let mut roles = self.template.roles.clone();
        for (number, role) in roles.iter_mut().enumerate() {
            *role = match *role {
                Role::Slot(_) | Role::BeyondSlots(_) | Role::Faulty => Role::Faulty,
                Role::Spare if number < usize::from(self.slots()) => Role::Faulty,
                Role::Spare => Role::Spare,
                Role::Journal => Role::Journal,
                Role::Reserved(raw) => Role::Reserved(raw),
            };
        }
        for (member, (state, superblock)) in self.members.iter().zip(&self.superblocks).enumerate() {
            let number = superblock.dev_number as usize;
            assert!(number < roles.len(), "assembly checks device numbers");
            roles[number] = match self.listed_slot(member).filter(|_| is_listed(member)) {
                Some(_) if self.hides(member) => Role::Spare,
                Some(slot) => Role::Slot(slot),
                None if *state == MemberState::Spare => Role::Spare,
                None => Role::Faulty,
            };
        }
        let of_slots = || roles.iter().filter_map(|role| role.slot());
        let is_listed_second = |member: &usize| self.is_second_of_slot(*member) && !self.hides(*member);
        let seconds = (0..self.members.len()).filter(is_listed_second).count();
        let slots = of_slots().collect::<SlotSet>().count();
        assert_eq!(slots + seconds, of_slots().count(), "a slot is listed once for each of its members");
        roles
    }
}
