//! I6: if the resync met a sector that could neither be read nor computed, the array stays marked dirty. This holds
//! even if more has failed than the level survives: the sector may become readable later, and then disagree.
//! Owns: that check, and whether a stop may leave the array dirty. Not here: arrays that froze (`legal_errors`).

use crate::image::logs;
use crate::judge::Judge;
use crate::judge::resynced::Resynced;
use crate::machine::member::{Access, Op};
use crate::reference::model::Place;
use std::collections::BTreeSet;
use uraid_block::{ErrorKind, SlotSet};
use uraid_engine::{MemberPlan, StartPlan};

impl Judge {
    /// The unreadable places on the members that the array uses.
    pub(crate) fn unreadable_places(&self, usable: SlotSet) -> BTreeSet<Place> {
        let is_out = |place: &Place| !usable.contains(uraid_block::Slot(place.slot));
        let all = self.model.copies.iter().flatten().copied();
        let all = all.chain(self.model.rows.iter().flat_map(|row| row.q.into_iter().chain([row.p])));
        all.filter(|place| is_out(place) || self.is_latent(*place) || self.is_listed(*place)).collect()
    }

    fn on_disk(&self, place: Place) -> u64 {
        self.setup.data_offsets[usize::from(place.slot)] + place.sector
    }

    fn is_listed(&self, place: Place) -> bool {
        let image = self.disks[usize::from(place.slot)].medium();
        self.setup.has_logs && logs::is_listed(image.current(), self.on_disk(place))
    }

    fn is_latent(&self, place: Place) -> bool {
        self.disks[usize::from(place.slot)].has_latent(self.on_disk(place))
    }

    /// Call it at the end of a resync. `before`: what could not be read at its start; `usable`: the members that the
    /// array still uses; `failures`: the failed accesses since the start.
    pub(crate) fn note_resync(&self, before: &BTreeSet<Place>, usable: SlotSet, failures: &[(Access, ErrorKind)]) {
        let is_out = |place: Place| !usable.contains(uraid_block::Slot(place.slot));
        let on_disk = |place: Place| self.on_disk(place);
        let is_latent = |place: Place| self.is_latent(place);
        let is_listed = |place: Place| self.is_listed(place);
        let has_failed = |place: Place| {
            let is_of_place = |access: &Access| access.op == Op::Read && access.covers(place.slot, on_disk(place));
            failures.iter().any(|(access, _)| is_of_place(access))
        };
        let loses = |is_bad: &dyn Fn(Place) -> bool| {
            let places: BTreeSet<Place> = self.model.copies.iter().flatten().copied().collect();
            places.into_iter().any(|place| !self.model.survives_at(place, is_bad))
        };
        let is_bad_throughout = |place: Place| before.contains(&place) && (is_out(place) || is_latent(place));
        let is_bad = |place| is_out(place) || is_latent(place) || has_failed(place) || is_listed(place);
        // What is lost in a row that is known to be not in sync is not computed.
        let is_uncertain = || {
            let places = self.model.copies.iter().flatten();
            self.knows_unsynced.get() && (!before.is_empty() || !failures.is_empty() || places.copied().any(is_bad))
        };
        self.resynced.set(if loses(&is_bad_throughout) {
            Resynced::NotWhole
        } else if is_uncertain() || loses(&is_bad) {
            Resynced::PerhapsNot
        } else {
            Resynced::Whole
        });
    }

    /// Whether superblocks call an array clean that must stay dirty. A member that lies about flushes is not checked:
    /// it may have lost the superblock that says dirty.
    pub(crate) fn check_stays_dirty(&self, plan: &StartPlan) -> Result<(), String> {
        let says_clean =
            |member: &&MemberPlan| member.superblock.events == plan.events && !member.superblock.is_dirty();
        let honest = plan.members.iter().filter(|member| !self.disks[member.candidate].is_liar());
        let clean = honest.filter(says_clean).map(|member| member.candidate).next();
        match clean.filter(|_| self.resynced.get() == Resynced::NotWhole) {
            Some(disk) => Err(format!("I6: disk {disk} says clean, but the resync met a sector that cannot be had")),
            None => Ok(()),
        }
    }
}
