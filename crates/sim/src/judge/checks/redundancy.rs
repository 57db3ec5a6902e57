//! I6: copies are equal and parity is right wherever the superblocks say clean.
//! What a member in recovery holds counts, too. Owns: that check. Not here: corrupted stripes; discarded sectors of
//! mirrors, whose copies may differ; members that are not in the plan.

use crate::judge::Judge;
use crate::reference::model::Place;
use std::collections::BTreeSet;
use uraid_engine::StartPlan;

impl Judge {
    /// Whether parity and copies are right among the members of a plan.
    pub fn check_redundancy(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Result<(), String> {
        self.check_redundancy_except(images, plan, &|_| false)
    }

    /// The same, below the sector from which on the superblocks say that a resync is left to do, and where no bit of the
    /// bitmap says so.
    pub fn check_redundancy_below(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Result<(), String> {
        let from = plan.template.resync_offset;
        let at = |x: u64| if self.model.is_parity() { self.model.copies[x as usize][0].sector } else { x };
        let is_named = |x: u64| match &plan.bitmap {
            Some(bitmap) => bitmap.image.is_set(at(x) / bitmap.image.header().chunk().0),
            None => true,
        };
        self.check_redundancy_except(images, plan, &|x| at(x) >= from && is_named(x))
    }

    fn check_redundancy_except(
        &self,
        images: &[Option<Vec<u8>>],
        plan: &StartPlan,
        is_exempt: &dyn Fn(u64) -> bool,
    ) -> Result<(), String> {
        let chosen = self.chosen(images, plan);
        let recovering = Judge::recovering(plan);
        let also: BTreeSet<u16> = recovering.keys().copied().collect();
        let get = |place: Place| match recovering.get(&place.slot) {
            Some(below) if place.sector >= *below => None,
            Some(_) => self.sector_of(images, &also, place),
            None => self.sector_of(images, &chosen, place),
        };
        let oracle = self.oracle.borrow();
        let unsettled = self.not_durable_on_liars();
        let is_exempt = |x: u64| oracle.is_corrupted(x) || unsettled.contains(&x) || is_exempt(x);
        match self.model.find_mismatch_except(&get, &|x| oracle.is_any(x), &is_exempt) {
            None => Ok(()),
            Some(lie) => Err(format!("I6: marked clean, members {chosen:?}, but {lie}")),
        }
    }
}
