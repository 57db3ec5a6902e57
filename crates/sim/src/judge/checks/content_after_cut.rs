//! I1, I2, M2: after a power cut at this moment, all flushed data is there, and no sector holds anything that no client
//! wrote.
//! Owns: that check. Not here: stripes that are corrupted or lie on a member that lies about flushes; on parity levels,
//! blocks of missing members in rows that a crash left half written (the write hole, which md has too), or, with a partial
//! parity log, in sectors that were being written; whether an
//! engine can start on the images, which the next round shows.

use crate::image::logs;
use crate::judge::{AssembleMode, Assembled, Judge};
use crate::reference::model::Place;
use crate::setup::OverBudget;
use std::collections::BTreeSet;
use uraid_block::{SECTOR_BYTES, Slot};
use uraid_engine::StartPlan;

impl Judge {
    /// Whether every sector that can be read from these images has a content that is legal after a power cut.
    pub fn check_power_cut(&self, images: &[Option<Vec<u8>>]) -> Result<(), String> {
        let mut is_forced = false;
        let plan = match self.assemble(images, AssembleMode::Plain)? {
            Assembled::Plan(plan) => plan,
            Assembled::Impossible => return Ok(()),
            Assembled::DirtyDegraded => match self.assemble(images, AssembleMode::Forced)? {
                Assembled::Plan(plan) => {
                    is_forced = true;
                    plan
                }
                Assembled::Impossible => return Ok(()),
                Assembled::DirtyDegraded => return Err("dirty and degraded, and force does not help".to_string()),
            },
        };
        let mut rows = self.suspect.borrow().clone();
        if self.model.is_parity() {
            rows.extend(self.oracle.borrow().uncertain().into_iter().map(|x| self.model.row_of[x as usize]));
        }
        // With a complete partial parity log, only what was being written is uncertain.
        let is_logged = plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete) && !is_forced;
        let uncertain: BTreeSet<u64> = match is_logged {
            true => self.oracle.borrow().uncertain().into_iter().chain(self.in_flight.borrow().clone()).collect(),
            false => BTreeSet::new(),
        };
        let made_good = is_logged.then(|| self.made_good(images, &plan));
        let images = made_good.as_deref().unwrap_or(images);
        let may_guess = is_forced || plan.is_dirty;
        let unsettled = self.not_durable_on_liars();
        let chosen = self.chosen(images, &plan);
        let get = |place: Place| self.sector_of(images, &chosen, place);
        for x in 0..self.model.array_size() {
            let is_there = || self.model.copies[x as usize].iter().any(|place| get(*place).is_some());
            let is_suspect = match is_logged {
                true => uncertain.contains(&x),
                false => self.model.is_parity() && rows.contains(&self.model.row_of[x as usize]),
            };
            let is_guessed = may_guess && is_suspect && !is_there();
            if is_guessed || unsettled.contains(&x) {
                continue;
            }
            let found = self.model.read(x, &get);
            if found.is_empty() && self.may_be_lost_by_lists(x, images, &chosen) {
                continue;
            }
            if found.is_empty() {
                return Err(format!("sector {x} cannot be read from the members that were chosen, {chosen:?}"));
            }
            for bytes in found {
                let verdict = self.oracle.borrow_mut().may_hold_after_crash(x, &bytes);
                verdict.map_err(|found| format!("after a power cut, from members {chosen:?}: {found}"))?;
            }
        }
        self.check_stays_dirty(&plan)?;
        self.check_mdadm_force(images, &chosen, &|x| unsettled.contains(&x))?;
        if plan.is_dirty && !is_logged {
            self.check_redundancy_below(images, &plan)?;
        } else {
            self.check_redundancy(images, &plan)?;
        }
        Ok(())
    }

    /// The images with the parity that the start would make of what the partial parity logs name.
    fn made_good(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Vec<Option<Vec<u8>>> {
        let mut images = images.to_vec();
        let chosen = self.chosen(&images, plan);
        let recovering = Judge::recovering(plan);
        for replay in plan.ppl.iter().flat_map(|ppl| &ppl.replays) {
            for offset in 0..replay.length.0 {
                let sector = replay.at.0 + offset;
                let holds = |slot: &u16| recovering.get(slot).is_some_and(|below| sector < *below);
                let here: BTreeSet<u16> = (0..self.setup.shape.slots).filter(holds).chain(chosen.clone()).collect();
                let get = |slot: &Slot| self.sector_of(&images, &here, Place { slot: slot.0, sector });
                let written: Option<Vec<_>> = replay.written.iter().map(get).collect();
                let Some(written) = written else { continue };
                let parity = replay.parity.chunks_exact(SECTOR_BYTES).nth(offset as usize);
                let mut sum = parity.map_or(vec![0; SECTOR_BYTES], <[u8]>::to_vec);
                written.iter().flatten().zip(0..).for_each(|(byte, at)| sum[at % SECTOR_BYTES] ^= byte);
                let slot = replay.parity_slot.index();
                let start = (self.setup.data_offsets[slot] + sector) as usize * SECTOR_BYTES;
                if let Some(image) = &mut images[slot] {
                    image[start..start + SECTOR_BYTES].copy_from_slice(&sum);
                }
            }
        }
        images
    }

    /// Whether more members may fail than the level survives, and what is left lists a sector of this row or copy: the
    /// array serves all but that sector.
    fn may_be_lost_by_lists(&self, x: u64, images: &[Option<Vec<u8>>], chosen: &BTreeSet<u16>) -> bool {
        if !self.setup.has_logs || self.setup.over_budget == OverBudget::Never {
            return false;
        }
        let of_row: Vec<Place> = match self.model.row_of.get(x as usize).map(|index| &self.model.rows[*index]) {
            Some(row) => row.data.iter().map(|(_, place, _)| *place).chain(row.q).chain([row.p]).collect(),
            None => Vec::new(),
        };
        let places = self.model.copies[x as usize].iter().copied().chain(of_row);
        let is_listed = |place: Place| {
            let image = images[usize::from(place.slot)].as_ref();
            let at = self.setup.data_offsets[usize::from(place.slot)] + place.sector;
            chosen.contains(&place.slot) && image.is_some_and(|image| logs::is_listed(image, at))
        };
        places.into_iter().any(is_listed)
    }
}
