//! I4, R27: an array with parity is not started dirty and degraded unless forced.
//! Owns: that check. Not here: forced starts; a missing member that holds only parity, because no data is computed for
//! it.

use crate::judge::Judge;
use std::collections::BTreeSet;
use uraid_engine::StartPlan;

impl Judge {
    /// Whether this plan, which was not forced, would compute data from parity that a crash may have left wrong.
    pub(crate) fn check_not_guessed(&self, plan: &StartPlan) -> Result<(), String> {
        let here = Judge::in_slots(plan);
        let missing: BTreeSet<u16> = (0..self.setup.shape.slots).filter(|slot| !here.contains(slot)).collect();
        // A partial parity log makes the parity good.
        let is_made_good = plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete);
        if plan.is_dirty && !is_made_good && self.model.is_parity() && self.model.hides_data(&missing) {
            return Err(format!("I4: dirty, without {missing:?}, and started without being forced"));
        }
        Ok(())
    }
}
