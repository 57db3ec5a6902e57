//! Simulates md's recovery while the array is stopped: failed members come back with their rebuilt content.
//! Owns: the rebuilt bytes, from the model, and the superblocks that record them. Not here: the engine, which has no
//! recovery yet; the faults before and after (`faults`).
//! Invariant: only after a clean stop. The result is an array that md could have left: one more event, all in sync.

use crate::judge::{AssembleMode, Assembled, Judge};
use crate::model::Place;
use crate::rig::Rig;
use crate::trace::Event;
use crate::watch::SUPER_AT;
use std::collections::BTreeSet;
use uraid_block::{SECTOR_BYTES, Slot};
use uraid_engine::StartPlan;
use uraid_format::{Role, Superblock};

impl Rig {
    /// Puts a new member with the right content into every slot that has none.
    pub fn rebuild(&mut self) -> Result<(), String> {
        if !self.setup.is_redundant() || self.judge.is_over_budget.get() {
            return Ok(());
        }
        let images = self.images_without(&BTreeSet::new());
        let Assembled::Plan(plan) = self.judge.assemble(&images, AssembleMode::Plain)? else { return Ok(()) };
        let here = Judge::in_slots(&plan);
        let missing: Vec<u16> = (0..self.setup.shape.slots).filter(|slot| !here.contains(slot)).collect();
        let is_possible = self.judge.model.can_serve_without(&missing.iter().copied().collect());
        if plan.is_dirty || missing.is_empty() || !is_possible {
            return Ok(());
        }
        for &slot in &missing {
            let image = self.rebuilt(&images, &here, slot)?;
            self.executor.record(Event::Note { what: "rebuilt meanwhile: disk", value: u64::from(slot) });
            self.disk(slot).restore_size();
            self.disk(slot).replace(image);
        }
        self.tally.borrow_mut().rebuilds += missing.len() as u64;
        self.write_superblocks(&plan);
        for set in [&self.judge.unreadable, &self.judge.must_stay_out, &self.judge.lost] {
            set.borrow_mut().clear();
        }
        self.judge.forget_faults_of_members();
        self.judge.oracle.borrow_mut().resynced();
        self.old_image = None;
        self.reset_events()
    }

    fn rebuilt(&self, images: &[Option<Vec<u8>>], here: &BTreeSet<u16>, slot: u16) -> Result<Vec<u8>, String> {
        let get = |place: Place| self.judge.sector_of(images, here, place);
        let mut image = self.disk(slot).medium().current().to_vec();
        let start = self.setup.data_offsets[usize::from(slot)];
        for sector in 0..self.guard.used(slot) {
            let content = self.judge.model.content(Place { slot, sector }, &get);
            let content = content.ok_or_else(|| format!("sector {sector} of disk {slot} cannot be rebuilt"))?;
            let at = (start + sector) as usize * SECTOR_BYTES;
            image[at..at + SECTOR_BYTES].copy_from_slice(&content);
        }
        Ok(image)
    }

    fn write_superblocks(&self, plan: &StartPlan) {
        let slots = self.setup.shape.slots;
        let mut roles = plan.template.roles.clone();
        for (number, role) in (0u16..).zip(roles.iter_mut()) {
            *role = if number < slots { Role::Slot(Slot(number)) } else { Role::Spare };
        }
        for (slot, disk) in (0u16..).zip(&self.judge.disks) {
            let mut superblock = self.setup.superblock(slot);
            superblock.events = plan.events + 1;
            superblock.updated = plan.template.updated;
            superblock.resync_offset = Superblock::CLEAN;
            superblock.roles.clone_from(&roles);
            let mut image = disk.medium().current().to_vec();
            let start = SUPER_AT as usize * SECTOR_BYTES;
            image[start..start + 4096].copy_from_slice(&superblock.encode()[..]);
            disk.restore_size();
            disk.replace(image);
        }
    }
}
