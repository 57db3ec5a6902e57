//! Simulates what md does with failed members while the array is stopped: it adds new ones in their place, and recovers
//! each, or leaves that to the next start after a part of it.
//! Owns: the rebuilt bytes, from the model, and the superblocks that record them. Not here: the engine's recovery; the
//! faults before and after (`plan`).
//! Invariant: only after a clean stop. The result is an array that md could have left: one more event, each member in
//! sync or recovering.

use crate::image::areas::{BITMAP_AT, SUPER_AT};
use crate::image::logs;
use crate::judge::{AssembleMode, Assembled, Judge};
use crate::machine::event::Event;
use crate::random::rng::mix;
use crate::reference::model::Place;
use crate::rig::Rig;
use std::collections::{BTreeMap, BTreeSet};
use uraid_block::{SECTOR_BYTES, Slot};
use uraid_engine::StartPlan;
use uraid_format::{Features, Role, Superblock};

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
        let mut recovering = BTreeMap::new();
        let mut rebuilt = Vec::new();
        for &slot in &missing {
            let used = self.guard.used(slot);
            let below = match self.rng.below(4) {
                0 | 1 => used,
                2 => 0,
                _ => self.rng.between(0, used) & !7,
            };
            if below < used {
                recovering.insert(slot, below);
            }
            let Some(image) = self.rebuilt(&images, &here, slot, below)? else { return Ok(()) };
            rebuilt.push((slot, image));
        }
        for (slot, image) in rebuilt {
            self.executor.record(Event::Note { what: "rebuilt meanwhile: disk", value: u64::from(slot) });
            self.disk(slot).restore_size();
            self.disk(slot).replace(image);
        }
        self.tally.borrow_mut().rebuilds += (missing.len() - recovering.len()) as u64;
        self.write_superblocks(&plan, &recovering);
        for set in [&self.judge.unreadable, &self.judge.must_stay_out, &self.judge.lost] {
            set.borrow_mut().clear();
        }
        self.judge.forget_faults_of_members();
        self.judge.recovering.borrow_mut().extend(recovering.keys());
        self.judge.oracle.borrow_mut().resynced();
        self.old_image = None;
        self.reset_events()
    }

    /// A member that holds what is below this sector, and rubbish from there on.
    fn rebuilt(
        &mut self,
        images: &[Option<Vec<u8>>],
        here: &BTreeSet<u16>,
        slot: u16,
        below: u64,
    ) -> Result<Option<Vec<u8>>, String> {
        let rubbish = self.rng.next();
        let get = |place: Place| self.judge.sector_of(images, here, place);
        let mut image = self.disk(slot).medium().current().to_vec();
        let start = self.setup.data_offsets[usize::from(slot)];
        for sector in 0..self.guard.used(slot) {
            let content = self.judge.model.content(Place { slot, sector }, &get);
            let Some(mut content) = content else {
                if self.setup.has_logs {
                    // Others list what would be needed for it.
                    return Ok(None);
                }
                return Err(format!("sector {sector} of disk {slot} cannot be rebuilt"));
            };
            if sector >= below {
                content[..8].copy_from_slice(&mix(rubbish ^ sector).to_le_bytes());
            }
            let at = (start + sector) as usize * SECTOR_BYTES;
            image[at..at + SECTOR_BYTES].copy_from_slice(&content);
        }
        if self.setup.has_logs {
            logs::clear(&mut image);
        }
        Ok(Some(image))
    }

    /// `recovering`: slots whose member holds what is below this sector of its data.
    fn write_superblocks(&self, plan: &StartPlan, recovering: &BTreeMap<u16, u64>) {
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
            if let Some(below) = recovering.get(&slot) {
                superblock.features = superblock.features.with(Features::RECOVERY_OFFSET);
                superblock.recovery_offset = *below;
            }
            let mut image = disk.medium().current().to_vec();
            if self.setup.has_logs && logs::is_in_force(&image) && !logs::is_empty(&image) {
                superblock.features = superblock.features.with(Features::BAD_BLOCKS);
            }
            let start = SUPER_AT as usize * SECTOR_BYTES;
            image[start..start + 4096].copy_from_slice(&superblock.encode()[..]);
            self.write_bitmap(plan, superblock.events, &mut image);
            disk.restore_size();
            disk.replace(image);
        }
    }

    /// md keeps the bitmaps up to date. Now and then something that does not has run the array.
    fn write_bitmap(&self, plan: &StartPlan, events: u64, image: &mut [u8]) {
        let is_known = !mix(self.setup.array ^ events).is_multiple_of(4);
        let Some(bitmap) = plan.bitmap.as_ref().filter(|_| is_known) else { return };
        let mut bitmap = bitmap.image.clone();
        bitmap.change_header(|header| header.events = events);
        let start = BITMAP_AT as usize * SECTOR_BYTES;
        image[start..start + bitmap.page_bytes(0).len()].copy_from_slice(bitmap.page_bytes(0));
    }
}
