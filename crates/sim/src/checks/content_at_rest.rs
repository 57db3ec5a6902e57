//! After a clean stop every member of the plan tells what was last written, by whichever copy or computation. Owns:
//! that check. Not here: spoilt stripes; members that are out; that the stop was right to call itself clean
//! (`redundancy`, which this ends with).

use crate::judge::Judge;
use crate::model::Place;
use uraid_engine::StartPlan;

impl Judge {
    /// Whether everything at rest is what it should be, on every member of the plan.
    pub fn check_rest(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Result<(), String> {
        let told = self.tell(images, plan);
        let get = |place: Place| self.sector_of(images, &told, place);
        for x in 0..self.model.array_size() {
            for bytes in self.model.read(x, &get) {
                let verdict = self.oracle.borrow_mut().may_hold_at_rest(x, &bytes);
                verdict.map_err(|found| format!("after a clean stop, on members {told:?}: {found}"))?;
            }
        }
        self.check_redundancy(images, plan)
    }
}
