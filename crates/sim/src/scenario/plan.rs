//! Faults of members, and how many may occur at a time.
//! Owns: [`Plan`], the faults of a round, the fault budget of every stripe. Not here: what can go wrong
//! (`machine::fault_kind`), which of it a seed uses (`setup::kinds`), performing it (`machine::member`), what a power cut
//! leaves (`machine::member::medium`).
//! Invariant: no stripe loses more blocks than its level survives, unless the round is meant to exceed that. A fault
//! counts if it changed a result or a byte. A delay does not count, nor does a second error of a member that keeps
//! failing.
//! Spec: docs/reliability.md#failure-model.
//!
//! ```text
//!   a member    errors, vanishing, becoming smaller, an old      uses a slot of the budget
//!               image, lost metadata, flushes that lie
//!   a sector    unreadable                                       uses a block of its stripe's budget, if faulty
//!                                                                 members leave one
//!   bytes       rot, writes that are lost or misdirected         md has no checksums: no guarantee for the stripe any
//!                                                                 more; all guarantees stay for everything else
//! ```

use crate::machine::fault_kind::FaultKind;
use crate::machine::member::{Effect, Fault, READ_ERRORS_MAX, Target};
use crate::reference::model::Place;
use crate::rig::Rig;
use crate::setup::OverBudget;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uraid_block::ErrorKind;
use uraid_engine::verdict::OnFull;

/// The planned faults of a round.
#[derive(Default)]
pub struct Plan {
    /// Members that will get a fault.
    pub victims: BTreeSet<u16>,
    /// Sectors that cannot be read, counted from the start of each member's data.
    pub unreadable: BTreeMap<u16, BTreeSet<u64>>,
    faults: Vec<(u16, Fault)>,
    liar: Option<u16>,
    /// Members that fail together because of a shared bus.
    pub(crate) bus: BTreeSet<u16>,
    /// In nanoseconds: within this time, each of them at a moment of its own.
    pub(crate) bus_spread: u64,
}

impl Plan {
    /// Members whose data may be missing when it is needed: the first ones of a bus, too, unless all fail at once.
    pub fn unsure(&self) -> BTreeSet<u16> {
        let of_bus = self.bus.iter().filter(|_| self.bus_spread > 0);
        self.victims.iter().chain(self.unreadable.keys()).chain(of_bus).copied().collect()
    }
}

impl Rig {
    fn has(&self, kind: FaultKind) -> bool {
        self.setup.has_faults && self.setup.kinds.has(kind)
    }

    /// Draws members that fail together with a bus: one more than the array can lose. Draws none if other members have
    /// faults or are out, because it would be unclear which members may be left out.
    pub(crate) fn draw_bus(&mut self, plan: &Plan) -> BTreeSet<u16> {
        let mut away = BTreeSet::new();
        let missing = self.judge.missing(&BTreeSet::new());
        let are_all_in = missing.iter().all(|slot| *slot >= self.setup.shape.slots);
        let is_calm = plan.faults.is_empty() && plan.liar.is_none() && !self.judge.is_over_budget.get();
        if !is_calm || !are_all_in || !self.has(FaultKind::Bus) || !self.setup.is_redundant() || self.rng.chance(1, 2) {
            return away;
        }
        while self.is_within(&away) {
            // The next one that is not yet in it: a tape may draw the same slot for ever.
            let (slot, slots) = (self.any_slot(), self.setup.shape.slots);
            let next = (0..slots).map(|further| (slot + further) % slots).find(|slot| !away.contains(slot));
            away.insert(next.expect("no array can do without all of its members"));
        }
        away
    }

    fn any_slot(&mut self) -> u16 {
        self.rng.below(u64::from(self.setup.shape.slots)) as u16
    }

    /// Whether the array can serve without these members in addition.
    fn is_within(&self, more: &BTreeSet<u16>) -> bool {
        !self.setup.is_redundant() || self.judge.model.can_serve_without(&self.judge.missing(more))
    }

    /// Draws members that are missing at this start, within the budget.
    pub fn draw_away(&mut self) -> BTreeSet<u16> {
        let mut away = BTreeSet::new();
        if !self.has(FaultKind::Away) || !self.setup.is_redundant() || !self.rng.chance(1, 2) {
            return away;
        }
        for _ in 0..self.rng.between(1, 2) {
            let slot = self.any_slot();
            away.insert(slot);
            let splits = self.setup.is_long && self.judge.would_split(&away);
            if splits || !self.is_within(&away) {
                away.remove(&slot);
            }
        }
        self.tally.borrow_mut().count_fault(FaultKind::Away, away.len() as u64);
        away
    }

    /// Draws members that get a fault, within the budget; any number if the budget is off.
    fn draw_victims(&mut self) -> BTreeSet<u16> {
        let mut victims = BTreeSet::new();
        let is_over = self.judge.is_over_budget.get();
        if !self.setup.has_faults && !is_over {
            return victims;
        }
        for _ in 0..self.rng.between(0, 3) {
            let slot = self.any_slot();
            victims.insert(slot);
            if !is_over && !self.is_within(&victims) {
                victims.remove(&slot);
            }
        }
        victims
    }

    /// Draws all faults of a round.
    pub fn draw_plan(&mut self) -> Plan {
        let mut plan = Plan { victims: self.draw_victims(), ..Plan::default() };
        for slot in plan.victims.clone() {
            for _ in 0..self.rng.between(1, 4) {
                plan.faults.extend(self.draw_fault().map(|fault| (slot, fault)));
            }
        }
        let spares = self.setup.shape.slots..self.setup.shape.slots + self.setup.spares;
        for slot in spares {
            if self.rng.chance(1, 3) {
                plan.faults.extend(self.draw_fault().map(|fault| (slot, fault)));
            }
        }
        if self.has(FaultKind::Unreadable) {
            self.draw_unreadable(&mut plan);
        }
        if self.has(FaultKind::NoSpace) && self.rng.chance(1, 5) {
            let victim = *self.rng.pick(&[Target::Writes, Target::SuperWrites]);
            let effect = *self.rng.pick(&[Effect::Error, Effect::ErrorsFromNow]);
            let fault = Fault { victim, after: self.rng.below(30), effect: effect(ErrorKind::NoSpace) };
            let slot = self.any_slot();
            let is_failed = self.setup.is_redundant() && self.setup.kinds.on_full() == OnFull::Fail;
            let with = plan.victims.iter().copied().chain([slot]).collect();
            if !is_failed || self.judge.is_over_budget.get() {
                plan.faults.push((slot, fault));
            } else if self.is_within(&with) {
                plan.victims = with;
                plan.faults.push((slot, fault));
            }
        }
        for (kind, effect) in [(FaultKind::LostWrite, Effect::LoseWrite), (FaultKind::Misdirected, Effect::Misdirect)] {
            if self.has(kind) && self.may_corrupt() && self.rng.chance(1, 8) {
                plan.faults
                    .push((self.any_slot(), Fault { victim: Target::Writes, after: self.rng.below(20), effect }));
            }
        }
        if self.has(FaultKind::LyingFlush) && self.setup.is_redundant() && self.may_corrupt() && self.rng.chance(1, 3) {
            // What this member loses is lost for good, even if errors are temporary.
            plan.liar = plan.victims.first().copied().filter(|slot| self.is_within(&BTreeSet::from([*slot])));
        }
        plan
    }

    /// Draws unreadable sectors on any members, as long as each stripe can lose them. For one of its sectors, a failfast member
    /// can fail as a whole.
    fn draw_unreadable(&mut self, plan: &mut Plan) {
        for _ in 0..self.rng.between(0, u64::from(READ_ERRORS_MAX)) {
            let slot = self.any_slot();
            let sector = self.rng.below(self.setup.data_sizes[usize::from(slot)]);
            let (mut list, mut victims) = (plan.unreadable.clone(), plan.victims.clone());
            list.entry(slot).or_default().insert(sector);
            if self.disk(slot).is_failfast() {
                victims.insert(slot);
            }
            let is_free = !self.setup.is_redundant() || self.judge.is_over_budget.get();
            if is_free || self.is_within(&victims) && self.survives_unreadable(&list, &victims) {
                (plan.unreadable, plan.victims) = (list, victims);
            }
        }
    }

    /// Whether every stripe can lose these sectors, and these members in addition.
    fn survives_unreadable(&self, list: &BTreeMap<u16, BTreeSet<u64>>, victims: &BTreeSet<u16>) -> bool {
        let missing = self.judge.missing(victims);
        let is_bad = |place: Place| {
            missing.contains(&place.slot) || list.get(&place.slot).is_some_and(|bad| bad.contains(&place.sector))
        };
        list.iter()
            .flat_map(|(slot, sectors)| sectors.iter().map(|sector| Place { slot: *slot, sector: *sector }))
            .all(|place| self.judge.model.survives_at(place, &is_bad))
    }

    /// Whether more stripes may be corrupted silently: at most a third of the array.
    fn may_corrupt(&self) -> bool {
        self.judge.oracle.borrow().corrupted_sectors() * 3 < self.judge.model.array_size()
    }

    fn draw_fault(&mut self) -> Option<Fault> {
        let is_over = self.judge.is_over_budget.get();
        let is_passing = is_over && self.setup.over_budget == OverBudget::Passing;
        let kinds = [
            (FaultKind::ReadError, Target::Reads),
            (FaultKind::WriteError, Target::Writes),
            (FaultKind::SuperError, Target::SuperWrites),
            (FaultKind::FlushError, Target::Flushes),
            (FaultKind::Vanish, Target::Any),
            (FaultKind::Shrink, Target::Any),
            (FaultKind::Hang, Target::Any),
            (FaultKind::NeverAnswers, Target::Any),
        ];
        let loses = [FaultKind::FlushError, FaultKind::Vanish, FaultKind::Shrink, FaultKind::NeverAnswers];
        let is_redundant = self.setup.is_redundant();
        // A level without redundancy cannot start after a permanent loss, and a late write may be performed after a read of
        // the same sector.
        let is_final = |kind: FaultKind| {
            (kind == FaultKind::Shrink && !is_redundant && !is_over)
                || (kind == FaultKind::NeverAnswers && (!is_redundant || is_over))
        };
        let exists = |kind: FaultKind| (is_over || self.has(kind)) && !is_final(kind);
        let exists = |kind: FaultKind| exists(kind) && !(is_passing && loses.contains(&kind));
        let kinds: Vec<(FaultKind, Target)> = kinds.into_iter().filter(|(kind, _)| exists(*kind)).collect();
        if kinds.is_empty() {
            return None;
        }
        let (kind, victim) = *self.rng.pick(&kinds);
        let errors = [ErrorKind::Media, ErrorKind::Media, ErrorKind::Gone, ErrorKind::ReadOnly, ErrorKind::NoSpace];
        let error = *self.rng.pick(if is_over { &errors } else { &errors[..4] });
        let how = [Effect::Error, Effect::ErrorAfter, Effect::ErrorsFromNow];
        let mut effect = self.rng.pick(&how)(error);
        if kind == FaultKind::Vanish {
            effect = Effect::Vanish;
        } else if kind == FaultKind::Shrink {
            effect = Effect::Shrink(self.rng.between(1, 12));
        } else if kind == FaultKind::Hang {
            effect = Effect::Hang(Duration::from_millis(self.rng.between(1, 5000)));
        } else if kind == FaultKind::NeverAnswers {
            effect = Effect::NeverAnswer;
        }
        Some(Fault { victim, after: self.rng.below(if self.setup.is_long { 16 } else { 30 }), effect })
    }

    /// Activates the planned faults.
    pub fn carry_out(&mut self, plan: &Plan) {
        for (slot, fault) in &plan.faults {
            self.disk(*slot).add_fault(*fault);
        }
        for (slot, sectors) in &plan.unreadable {
            let start = self.setup.data_offsets[usize::from(*slot)];
            self.disk(*slot).add_latent(sectors.iter().map(|sector| start + sector));
        }
        if let Some(slot) = plan.liar {
            self.disk(slot).lie_about_flushes();
        }
    }

    /// Damages members while the array is stopped.
    pub fn damage_while_stopped(&mut self) {
        if self.has(FaultKind::BitRot) && self.may_corrupt() && self.rng.chance(1, 4) {
            let slot = self.any_slot();
            let used = self.guard.used(slot);
            if used > 0 {
                let (sector, bit) = (self.rng.below(used), self.rng.below(4096) as usize);
                self.disk(slot).flip(self.setup.data_offsets[usize::from(slot)] + sector, bit);
                self.judge.mark_corrupted(slot, sector, 1);
                self.tally.borrow_mut().count_fault(FaultKind::BitRot, 1);
            }
        }
        if !self.setup.is_redundant() {
            return;
        }
        let slot = self.any_slot();
        let is_whole = !self.judge.missing(&BTreeSet::new()).contains(&slot);
        if is_whole && self.has(FaultKind::SuperRot) && self.rng.chance(1, 8) && self.is_within(&BTreeSet::from([slot]))
        {
            let bit = self.rng.below(2048) as usize;
            self.disk(slot).flip(crate::image::areas::SUPER_AT, bit);
            self.judge.lost.borrow_mut().insert(slot);
            self.judge.unreadable.borrow_mut().insert(slot);
            self.tally.borrow_mut().count_fault(FaultKind::SuperRot, 1);
        }
        if self.has(FaultKind::OldImage) {
            self.put_back_old_image();
        }
    }

    /// Replaces a member by its image of several rounds ago, if all intact members have recorded two changes since.
    /// After fewer changes, no superblock would show that the image is old.
    fn put_back_old_image(&mut self) {
        let missing = self.judge.missing(&BTreeSet::new());
        let whole: Vec<u16> = (0..self.setup.shape.slots).filter(|slot| !missing.contains(slot)).collect();
        let events = self.guard.events();
        if let Some((slot, image, then)) = self.old_image.take() {
            let others = whole.iter().filter(|other| **other != slot).map(|other| events[usize::from(*other)]);
            let is_old = others.min().is_some_and(|least| least >= then + 2);
            if is_old && self.is_within(&BTreeSet::from([slot])) && self.rng.chance(1, 2) {
                self.disk(slot).replace(image);
                self.guard.reset_events(slot, then);
                self.judge.lost.borrow_mut().insert(slot);
                self.judge.unreadable.borrow_mut().remove(&slot);
                self.judge.must_stay_out.borrow_mut().insert(slot);
                self.tally.borrow_mut().count_fault(FaultKind::OldImage, 1);
                return;
            }
            self.old_image = Some((slot, image, then));
        }
        if self.old_image.is_none() && !whole.is_empty() && self.rng.chance(1, 3) {
            let slot = *self.rng.pick(&whole);
            let image = self.disk(slot).medium().current().to_vec();
            self.old_image = Some((slot, image, events[usize::from(slot)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::executor::Executor;
    use crate::random::rng::Rng;
    use crate::random::tape::Tape;
    use crate::reference::model::Shape;
    use crate::setup::Setup;
    use crate::setup::kinds::Kinds;
    use std::rc::Rc;

    #[test]
    fn a_bus_takes_one_member_too_many_from_a_tape_that_has_ended() {
        let shape = Shape { level: 6, layout: 2, chunk: 2, slots: 5, size: 8, member_sizes: Vec::new() };
        let kinds = Kinds(1 << FaultKind::Bus as u32);
        let setup = Rc::new(Setup { has_faults: true, kinds, ..Setup::plain(shape) });
        let (mut rng, _) = Rng::replayed(Tape::default());
        let executor = Executor::new(rng.fork(), false);
        let mut rig = Rig::new(executor, rng, setup, Rc::default());
        assert_eq!(rig.draw_bus(&Plan::default()), BTreeSet::from([0, 1, 2]));
    }
}
