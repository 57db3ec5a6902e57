//! An operator who gives members of a mirror the flags write-mostly and failfast, and takes them away, while clients,
//! faults and passes change the array.
//! Owns: when that is, of which members, which refusals are right. Not here: what a flag changes (`judge::guard`,
//! `judge::legal_errors`, `plan`).
//! Invariant: only members that the budget of faults counts as failfast get that flag.

use crate::machine::event::Event;
use crate::rig::{Live, Rig};
use crate::scenario::checking::start_over;
use std::time::Duration;
use uraid_block::Slot;
use uraid_engine::FlagError;
use uraid_format::MemberFlag;

impl Rig {
    /// Perhaps starts the operator, for an array that was made with flags.
    pub(crate) fn change_flags_by_hand(&mut self, live: &Live) {
        let (write_mostly, failfast) = (self.setup.write_mostly, self.setup.failfast);
        if write_mostly.is_empty() && failfast.is_empty() || !self.rng.chance(1, 2) {
            return;
        }
        let (array, executor, started) = (live.arrays[0].clone(), self.executor.clone(), live.started.clone());
        let (slots, mut rng) = (self.setup.shape.slots, self.rng.fork());
        self.executor.spawn(0, "flag changer", async move {
            start_over(&executor, &started).await;
            for _ in 0..rng.between(1, 4) {
                let longest = *rng.pick(&[50, 2_000, 300_000]);
                executor.sleep(Duration::from_micros(rng.below(longest))).await;
                let slot = Slot(rng.below(u64::from(slots)) as u16);
                let flag = *rng.pick(&[MemberFlag::WriteMostly, MemberFlag::FailFast]);
                let is_set = rng.chance(1, 2);
                let is_allowed = match flag {
                    MemberFlag::WriteMostly => !write_mostly.is_empty(),
                    MemberFlag::FailFast => failfast.contains(slot),
                };
                let states = array.status().members;
                let Some(member) = states.iter().position(|state| state.slot() == Some(slot)).filter(|_| is_allowed)
                else {
                    continue;
                };
                let outcome = array.set_flag(&[member], flag, is_set).await;
                executor.record(Event::Note { what: "flag changed", value: u64::from(outcome.is_ok()) });
                if let Err(error @ FlagError::NoCopies { .. }) = outcome {
                    executor.violate(format!("C2: {} of slot {}: {error}", flag.name(), slot.0));
                }
            }
        });
    }
}
