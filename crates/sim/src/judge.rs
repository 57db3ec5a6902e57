//! What power failure would leave now, and whether it would do.
//! Owns: [`Judge`]: images of all members, the real assembly on them, every sector of the chosen members against the
//! oracle and the model (I1, I2, I4, I6, M2). Not here: starting an engine on them (`scenario`).
//! Invariant: reads nothing but images; changes nothing.

use crate::disk::CrashMode;
use crate::member::Disk;
use crate::model::{Model, Place};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::watch::SUPER_AT;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Place as Role, StartPlan, assemble};
use uraid_format::Superblock;

/// Judges images of all members.
pub struct Judge {
    /// The array.
    pub setup: Rc<Setup>,
    /// Where everything is.
    pub model: Rc<Model>,
    /// What everything may hold.
    pub oracle: Rc<RefCell<Oracle>>,
    /// The members; number n stands in slot n, and those behind the last slot are spares.
    pub disks: Vec<Rc<Disk>>,
    /// Slots that may be out of the array: they had a fault, or were away.
    pub lost: RefCell<BTreeSet<u16>>,
    /// Row sectors whose parity may be wrong until a resync is through.
    pub suspect: RefCell<BTreeSet<usize>>,
    /// Who was missing in earlier rounds, one set a round.
    pub missing_before: RefCell<Vec<BTreeSet<u16>>>,
    /// One round ran without a member, a later one with it and without another: they may tell different histories, and
    /// to refuse them is right.
    pub may_be_split: Cell<bool>,
    /// More has failed than the level survives: only wrong bytes count.
    pub is_over_budget: Cell<bool>,
}

/// How to assemble. Always with `--run`: that members are missing is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Plainly.
    Plain,
    /// With `--force`.
    Forced,
    /// To look at, not to touch.
    ReadOnly,
}

/// How an attempt to assemble ended.
pub enum Assembled {
    /// It starts.
    Plan(Box<StartPlan>),
    /// Dirty and degraded, and rightly refused.
    DirtyDegraded,
    /// It cannot start, and that is within the law.
    Impossible,
}

fn superblock_of(image: &[u8]) -> Result<Superblock, String> {
    let start = SUPER_AT as usize * SECTOR_BYTES;
    let bytes: &[u8; 4096] = image[start..start + 4096].try_into().expect("4096 bytes");
    let size = Sectors((image.len() / SECTOR_BYTES) as u64);
    Superblock::parse(bytes, Sector(SUPER_AT), size).map_err(|error| error.to_string())
}

impl Judge {
    /// Slots without which the array has to do: the lost ones, those that are hurt now, and `away`.
    pub fn missing(&self, away: &BTreeSet<u16>) -> BTreeSet<u16> {
        let hurt = (0..self.disks.len()).filter(|&slot| self.disks[slot].faults_fired() > 0).map(|slot| slot as u16);
        self.lost.borrow().union(away).copied().chain(hurt).collect()
    }

    /// A round starts without these members.
    pub fn starts_without(&self, away: &BTreeSet<u16>) {
        let differs = |before: &BTreeSet<u16>| !before.is_subset(away) && !away.is_subset(before);
        if self.missing_before.borrow().iter().any(differs) {
            self.may_be_split.set(true);
        }
    }

    /// Assembles these images; `images[n]` is member n, `None` when it is away.
    pub fn assemble(&self, images: &[Option<Vec<u8>>], how: How) -> Result<Assembled, String> {
        let mut candidates = Vec::new();
        let mut owners = Vec::new();
        for (slot, image) in images.iter().enumerate() {
            let Some(image) = image else { continue };
            let superblock = superblock_of(image).map_err(|found| format!("M1: superblock of disk {slot}: {found}"))?;
            candidates.push(Candidate { superblock, device_size: Sectors((image.len() / SECTOR_BYTES) as u64) });
            owners.push(slot);
        }
        let slots = self.setup.shape.slots;
        let options = AssembleOptions { force: how == How::Forced, run: true, read_only: how == How::ReadOnly };
        let away: BTreeSet<u16> =
            (0..images.len() as u16).filter(|&slot| images[usize::from(slot)].is_none()).collect();
        match assemble(&candidates, &options) {
            Ok(mut plan) => {
                for member in &mut plan.members {
                    let disk = owners[member.candidate];
                    member.candidate = disk;
                    if let Role::Slot(slot) = member.place
                        && slot.index() != disk
                    {
                        return Err(format!("disk {disk} was put into {slot}"));
                    }
                }
                let left_out = self.left_out(&plan, &away);
                if !left_out.is_empty() && !self.is_over_budget.get() {
                    return Err(format!("{left_out:?} had no fault and are left out: {:?}", plan.refused));
                }
                Ok(Assembled::Plan(Box::new(plan)))
            }
            Err(AssembleError::DirtyDegraded { .. })
                if self.model.is_parity() && self.missing(&away).first().is_some_and(|slot| *slot < slots) =>
            {
                Ok(Assembled::DirtyDegraded)
            }
            Err(AssembleError::SplitBrain { .. }) if self.may_be_split.get() => Ok(Assembled::Impossible),
            Err(_) if self.is_over_budget.get() => Ok(Assembled::Impossible),
            Err(error) => {
                let events: Vec<String> = (candidates.iter().zip(&owners))
                    .map(|(one, slot)| format!("disk {slot}: events {}", one.superblock.events))
                    .collect();
                let missing = self.missing(&away);
                Err(format!("cannot be assembled: {error}; {}; lost or away {missing:?}", events.join(", ")))
            }
        }
    }

    /// Members that are here, were never hurt, and have no place in the plan.
    fn left_out(&self, plan: &StartPlan, away: &BTreeSet<u16>) -> Vec<u16> {
        let missing = self.missing(away);
        let is_in = |slot: u16| plan.members.iter().any(|member| member.candidate == usize::from(slot));
        (0..self.disks.len() as u16).filter(|&slot| !missing.contains(&slot) && !is_in(slot)).collect()
    }

    /// The images that power failure would leave now. Members draw the same mode, or each its own.
    pub fn images(&self, rng: &mut Rng) -> Vec<Option<Vec<u8>>> {
        let one = *rng.pick(&CrashMode::ALL);
        let is_mixed = rng.chance(1, 3);
        let image = |disk: &Rc<Disk>| {
            let mode = if is_mixed { *rng.pick(&CrashMode::ALL) } else { one };
            Some(disk.medium().image(mode, rng, None))
        };
        self.disks.iter().map(image).collect()
    }

    /// The images of one mode for data, with those superblock writes that `keeps` says: of this disk, this write.
    pub fn images_keeping(
        &self,
        mode: CrashMode,
        rng: &mut Rng,
        keeps: &dyn Fn(u16, u64) -> bool,
    ) -> Vec<Option<Vec<u8>>> {
        let image = |(slot, disk): (usize, &Rc<Disk>)| {
            Some(disk.medium().image(mode, rng, Some(&|write| keeps(slot as u16, write))))
        };
        self.disks.iter().enumerate().map(image).collect()
    }

    /// Whether every sector that these images tell is one that may be, should power have failed.
    pub fn check_power_cut(&self, images: &[Option<Vec<u8>>]) -> Result<(), String> {
        let mut is_forced = false;
        let plan = match self.assemble(images, How::Plain)? {
            Assembled::Plan(plan) => plan,
            Assembled::Impossible => return Ok(()),
            Assembled::DirtyDegraded => match self.assemble(images, How::Forced)? {
                Assembled::Plan(plan) => {
                    is_forced = true;
                    plan
                }
                Assembled::Impossible => return Ok(()),
                Assembled::DirtyDegraded => return Err("dirty and degraded, and force does not help".to_string()),
            },
        };
        if self.is_over_budget.get() {
            return Ok(());
        }
        let mut rows = self.suspect.borrow().clone();
        if self.model.is_parity() {
            rows.extend(self.oracle.borrow().uncertain().into_iter().map(|x| self.model.row_of[x as usize]));
        }
        let may_guess = is_forced || plan.is_dirty;
        let told = self.tell(images, &plan);
        let get = |place: Place| self.sector_of(images, &told, place);
        for x in 0..self.model.array_size() {
            let is_there = self.model.copies[x as usize].iter().any(|place| told.contains(&place.slot));
            if !is_there && may_guess && rows.contains(&self.model.row_of[x as usize]) {
                continue;
            }
            let found = self.model.read(x, &get);
            if found.is_empty() {
                return Err(format!("sector {x} cannot be read from the members that were chosen, {told:?}"));
            }
            for bytes in found {
                let verdict = self.oracle.borrow_mut().may_hold_after_crash(x, &bytes);
                verdict.map_err(|found| format!("after a power cut, from members {told:?}: {found}"))?;
            }
        }
        if !plan.is_dirty {
            self.check_redundancy(images, &plan)?;
        }
        Ok(())
    }

    /// Whether parity and copies are right among the members of a plan.
    pub fn check_redundancy(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> Result<(), String> {
        let told = self.tell(images, plan);
        let get = |place: Place| self.sector_of(images, &told, place);
        let oracle = self.oracle.borrow();
        match self.model.find_lie(&get, &|x| oracle.is_any(x)) {
            None => Ok(()),
            Some(lie) => Err(format!("I6: marked clean, members {told:?}, but {lie}")),
        }
    }

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

    /// Slots that have a member in the plan.
    pub fn in_slots(plan: &StartPlan) -> BTreeSet<u16> {
        let slots = plan.members.iter().filter_map(|member| match member.place {
            Role::Slot(slot) => Some(slot.0),
            Role::Spare => None,
        });
        slots.collect()
    }

    fn tell(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> BTreeSet<u16> {
        Self::in_slots(plan).into_iter().filter(|&slot| images[usize::from(slot)].is_some()).collect()
    }

    fn sector_of(&self, images: &[Option<Vec<u8>>], told: &BTreeSet<u16>, place: Place) -> Option<[u8; SECTOR_BYTES]> {
        let slot = usize::from(place.slot);
        if !told.contains(&place.slot) {
            return None;
        }
        let image = images[slot].as_ref()?;
        let start = (self.setup.data_offsets[slot] + place.sector) as usize * SECTOR_BYTES;
        image[start..start + SECTOR_BYTES].try_into().ok()
    }
}
