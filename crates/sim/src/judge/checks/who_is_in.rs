//! M6, D1, D2: a member that never failed is never left out; one with an older state is never taken; every member has
//! its own slot.
//! Owns: that check. Not here: members that had a fault, which may be in or out; forced starts, which may take any member.

use crate::judge::Judge;
use std::collections::BTreeSet;
use uraid_engine::{Place as Role, StartPlan};

impl Judge {
    /// Whether the plan may have these members.
    pub(crate) fn check_members(&self, plan: &StartPlan, away: &BTreeSet<u16>, is_forced: bool) -> Result<(), String> {
        for member in &plan.members {
            if let Role::Slot(slot) | Role::Recovering { slot, .. } = member.place
                && slot.index() != member.candidate
            {
                return Err(format!("D4: disk {} was put into {slot}", member.candidate));
            }
        }
        let left_out = self.left_out(plan, away);
        if !left_out.is_empty() {
            return Err(format!("D1: {left_out:?} had no fault and are left out: {:?}", plan.refused));
        }
        let stale = self.must_stay_out.borrow();
        match Judge::in_slots(plan).into_iter().find(|slot| stale.contains(slot)) {
            Some(slot) if !is_forced => Err(format!("D3: disk {slot} was put back to an older state and is taken")),
            Some(_) | None => Ok(()),
        }
    }

    /// Present members that never had a fault and have no place in the plan. A spare that failed is recorded as faulty.
    pub(crate) fn left_out(&self, plan: &StartPlan, away: &BTreeSet<u16>) -> Vec<u16> {
        let missing = self.missing(away);
        let is_in = |slot: u16| plan.members.iter().any(|member| member.candidate == usize::from(slot));
        let has_failed = |slot: u16| {
            slot >= self.setup.shape.slots && plan.template.role_of(slot.into()) == uraid_format::Role::Faulty
        };
        let disks = 0..self.disks.len() as u16;
        disks.filter(|&slot| !missing.contains(&slot) && !is_in(slot) && !has_failed(slot)).collect()
    }
}
