//! What a power cut now would leave, and whether that is legal.
//! Owns: [`Judge`]: images of all members, the real assembly on them. Not here: the checks on the chosen members
//! (`checks`), starting an engine on them (`scenario`).
//! Invariant: reads only images; changes nothing.

use crate::checks::unreadable_stays_dirty::Resynced;
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
    /// Slots that may be left out of the array: they had a fault, or were absent.
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
    /// Members whose superblock is damaged; they are among the lost.
    pub unreadable: RefCell<BTreeSet<u16>>,
    /// Members whose superblock the last imagined power failure has torn.
    pub torn: RefCell<BTreeSet<u16>>,
    /// Sectors that the resync of the running array could not make consistent.
    pub resynced: Cell<Resynced>,
    /// Members that are older than all others by more than one change.
    pub must_stay_out: RefCell<BTreeSet<u16>>,
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

/// The superblock of a member's image, by the real parser.
pub(crate) fn superblock_of(image: &[u8]) -> Result<Superblock, String> {
    let start = SUPER_AT as usize * SECTOR_BYTES;
    let bytes: &[u8; 4096] = image[start..start + 4096].try_into().expect("4096 bytes");
    let size = Sectors((image.len() / SECTOR_BYTES) as u64);
    Superblock::parse(bytes, Sector(SUPER_AT), size).map_err(|error| error.to_string())
}

impl Judge {
    /// Slots without which the array has to do: the lost ones, those that are hurt now, and `away`.
    pub fn missing(&self, away: &BTreeSet<u16>) -> BTreeSet<u16> {
        let hurt = (0..self.disks.len()).filter(|&slot| self.disks[slot].is_hurt()).map(|slot| slot as u16);
        self.lost.borrow().union(away).copied().chain(hurt).collect()
    }

    /// A round starts without these members.
    pub fn starts_without(&self, away: &BTreeSet<u16>) {
        let differs = |before: &BTreeSet<u16>| !before.is_subset(away) && !away.is_subset(before);
        // A round that power cut short may be on members that are away, and nowhere else: from now on there are two.
        let events = |slot: u16| Some(superblock_of(self.disks[usize::from(slot)].medium().current()).ok()?.events);
        let slots = 0..self.setup.shape.slots;
        let newest = slots.filter(|slot| !away.contains(slot)).filter_map(events).max();
        let is_ahead = away.iter().filter_map(|slot| events(*slot)).max() > newest;
        if is_ahead || self.missing_before.borrow().iter().any(differs) {
            self.may_be_split.set(true);
        }
    }

    /// Whether a start without these members could make two histories.
    pub fn would_split(&self, away: &BTreeSet<u16>) -> bool {
        self.missing_before.borrow().iter().any(|before| !before.is_subset(away) && !away.is_subset(before))
    }

    /// Data of a member is corrupted silently.
    pub fn spoil(&self, slot: u16, at: u64, length: u64) {
        for sector in at..at + length {
            for x in self.model.sectors_at(Place { slot, sector }) {
                self.oracle.borrow_mut().spoil(x);
            }
        }
    }

    /// Array sectors whose stripes a member has not got for certain, although it says so.
    pub fn unsettled_by_liars(&self) -> BTreeSet<u64> {
        let mut unsettled = BTreeSet::new();
        for (slot, disk) in self.disks.iter().enumerate().filter(|(_, disk)| disk.is_liar()) {
            let start = self.setup.data_offsets[slot];
            for sector in disk.medium().loose_data() {
                unsettled.extend(self.model.sectors_at(Place { slot: slot as u16, sector: sector - start }));
            }
        }
        unsettled
    }

    /// All members are in sync, and all is as it should be: what happened before is over.
    pub fn all_is_well(&self) {
        let slots = self.setup.shape.slots;
        self.lost.borrow_mut().retain(|slot| *slot >= slots);
        self.unreadable.borrow_mut().retain(|slot| *slot >= slots);
        self.must_stay_out.borrow_mut().clear();
        self.missing_before.borrow_mut().clear();
        self.may_be_split.set(false);
    }

    /// Assembles these images; `images[n]` is member n, `None` when it is away.
    pub fn assemble(&self, images: &[Option<Vec<u8>>], how: How) -> Result<Assembled, String> {
        let mut candidates = Vec::new();
        let mut owners = Vec::new();
        for (slot, image) in images.iter().enumerate() {
            let Some(image) = image else { continue };
            let superblock = match superblock_of(image) {
                Ok(superblock) => superblock,
                Err(_) if self.may_be_damaged(slot as u16) => continue,
                Err(found) => return Err(format!("M1: superblock of disk {slot}: {found}")),
            };
            candidates.push(Candidate { superblock, device_size: Sectors(self.disks[slot].size_now()) });
            owners.push(slot);
        }
        let slots = self.setup.shape.slots;
        let options = AssembleOptions { force: how == How::Forced, run: true, read_only: how == How::ReadOnly };
        let away: BTreeSet<u16> =
            (0..images.len() as u16).filter(|&slot| !owners.contains(&usize::from(slot))).collect();
        match assemble(&candidates, &options) {
            Ok(mut plan) => {
                for member in &mut plan.members {
                    member.candidate = owners[member.candidate];
                }
                self.check_members(&plan, &away, how == How::Forced)?;
                if how == How::Plain {
                    self.check_not_guessed(&plan)?;
                }
                Ok(Assembled::Plan(Box::new(plan)))
            }
            Err(AssembleError::DirtyDegraded { .. })
                if self.model.is_parity() && self.missing(&away).first().is_some_and(|slot| *slot < slots) =>
            {
                Ok(Assembled::DirtyDegraded)
            }
            Err(AssembleError::SplitBrain { .. }) if self.may_be_split.get() => Ok(Assembled::Impossible),
            Err(_) if !self.model.can_serve_without(&self.missing(&away)) => Ok(Assembled::Impossible),
            Err(error) => {
                let events: Vec<String> = (candidates.iter().zip(&owners))
                    .map(|(one, slot)| format!("disk {slot}: events {}", one.superblock.events))
                    .collect();
                let missing = self.missing(&away);
                Err(format!("cannot be assembled: {error}; {}; lost or away {missing:?}", events.join(", ")))
            }
        }
    }

    /// The images that power failure would leave now. Members draw the same mode, or each its own.
    pub fn images(&self, rng: &mut Rng) -> Vec<Option<Vec<u8>>> {
        let one = *rng.pick(&CrashMode::ALL);
        let is_mixed = rng.chance(1, 3);
        self.torn.borrow_mut().clear();
        let mut images = Vec::new();
        for (slot, disk) in self.disks.iter().enumerate() {
            let mode = if is_mixed { *rng.pick(&CrashMode::ALL) } else { one };
            // Superblocks of one sector cannot be torn; for larger ones, most writes in flight are torn.
            let tears = self.setup.roles > 128 && disk.medium().writes_super() && rng.chance(2, 3);
            let mode = if tears { CrashMode::Random } else { mode };
            let image = disk.medium().image(mode, rng, None);
            let image = match superblock_of(&image) {
                Err(_) if self.may_tear(slot as u16) => {
                    self.torn.borrow_mut().insert(slot as u16);
                    image
                }
                // More than can be spared: each superblock whole or not at all.
                Err(_) if self.is_writing_super(slot) => {
                    let luck = rng.next();
                    disk.medium().image(mode, rng, Some(&|write| crate::rng::mix(luck ^ write) & 1 == 0))
                }
                Ok(_) | Err(_) => image,
            };
            images.push(Some(image));
        }
        images
    }

    fn is_writing_super(&self, slot: usize) -> bool {
        self.disks[slot].medium().writes_super() || self.disks[slot].is_liar()
    }

    /// Whether power failure may tear this member's superblock: it is being written, and the others will do.
    fn may_tear(&self, slot: u16) -> bool {
        let mut torn = self.torn.borrow().clone();
        torn.insert(slot);
        self.is_writing_super(usize::from(slot))
            && self.setup.is_redundant()
            && (self.is_over_budget.get() || self.model.can_serve_without(&self.missing(&torn)))
    }

    fn may_be_damaged(&self, slot: u16) -> bool {
        self.torn.borrow().contains(&slot) || self.unreadable.borrow().contains(&slot)
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

    /// Slots that have a member in the plan.
    pub fn in_slots(plan: &StartPlan) -> BTreeSet<u16> {
        let slots = plan.members.iter().filter_map(|member| match member.place {
            Role::Slot(slot) => Some(slot.0),
            Role::Spare => None,
        });
        slots.collect()
    }

    pub(crate) fn tell(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> BTreeSet<u16> {
        Self::in_slots(plan).into_iter().filter(|&slot| images[usize::from(slot)].is_some()).collect()
    }

    pub(crate) fn sector_of(
        &self,
        images: &[Option<Vec<u8>>],
        told: &BTreeSet<u16>,
        place: Place,
    ) -> Option<[u8; SECTOR_BYTES]> {
        let slot = usize::from(place.slot);
        if !told.contains(&place.slot) {
            return None;
        }
        let image = images[slot].as_ref()?;
        let start = (self.setup.data_offsets[slot] + place.sector) as usize * SECTOR_BYTES;
        image[start..start + SECTOR_BYTES].try_into().ok()
    }
}
