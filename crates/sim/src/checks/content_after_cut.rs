//! I1, I2, M2: after a power cut at this moment, all flushed data is there, and no sector holds anything that no client
//! wrote.
//! Owns: that check. Not here: stripes that are corrupted or lie on a member that lies about flushes; on parity levels,
//! blocks of missing members in rows that a crash left half written (the write hole, which md has too); whether an
//! engine can start on the images, which the next round shows.

use crate::judge::{AssembleMode, Assembled, Judge};
use crate::model::Place;

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
        let may_guess = is_forced || plan.is_dirty;
        let unsettled = self.not_durable_on_liars();
        let chosen = self.chosen(images, &plan);
        let get = |place: Place| self.sector_of(images, &chosen, place);
        for x in 0..self.model.array_size() {
            let is_there = self.model.copies[x as usize].iter().any(|place| chosen.contains(&place.slot));
            let is_guessed = !is_there && may_guess && rows.contains(&self.model.row_of[x as usize]);
            if is_guessed || unsettled.contains(&x) {
                continue;
            }
            let found = self.model.read(x, &get);
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
        if plan.is_dirty {
            self.check_redundancy_below(images, &plan)?;
        } else {
            self.check_redundancy(images, &plan)?;
        }
        Ok(())
    }
}
