//! I6: copies are equal and parity is right wherever the superblocks say clean.
//! Owns: that check. Not here: corrupted stripes; discarded sectors of mirrors, whose copies may differ; members that
//! are not in the plan.

use crate::judge::Judge;
use crate::model::Place;
use uraid_engine::StartPlan;

impl Judge {
    /// Whether parity and copies are right among the members of a plan.
    pub fn check_redundancy(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Result<(), String> {
        let chosen = self.chosen(images, plan);
        let get = |place: Place| self.sector_of(images, &chosen, place);
        let oracle = self.oracle.borrow();
        let unsettled = self.not_durable_on_liars();
        match self
            .model
            .find_mismatch_except(&get, &|x| oracle.is_any(x), &|x| oracle.is_corrupted(x) || unsettled.contains(&x))
        {
            None => Ok(()),
            Some(lie) => Err(format!("I6: marked clean, members {chosen:?}, but {lie}")),
        }
    }
}
