//! After a clean stop, each copy and each computation from the members of the plan gives what was last written.
//! Owns: that check. Not here: corrupted stripes; members that are out; whether the stop was right to call itself clean
//! (`redundancy`, which this calls last).

use crate::judge::Judge;
use crate::reference::model::Place;
use uraid_engine::StartPlan;

impl Judge {
    /// Whether the array's content is right on every member of the plan.
    pub fn check_rest(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Result<(), String> {
        let chosen = self.chosen(images, plan);
        let get = |place: Place| self.sector_of(images, &chosen, place);
        for x in 0..self.model.array_size() {
            for bytes in self.model.read(x, &get) {
                let verdict = self.oracle.borrow_mut().may_hold_at_rest(x, &bytes);
                verdict.map_err(|found| format!("after a clean stop, on members {chosen:?}: {found}"))?;
            }
        }
        self.check_redundancy(images, plan)
    }
}
