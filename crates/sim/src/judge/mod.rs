//! Decides whether what a power cut now would leave is legal.
//! Owns: [`Judge`]: images of all members, the real assembly on them, the checks on the chosen members (`checks`); beside it
//! what is legal while the array runs: each I/O (`guard`), superblock (`claims`) and error (`legal_errors`). Not here:
//! starting an engine on the images (`rig`). Called by `rig`, `scenario`, `proof` and `crash`.
//! Invariant: only reads images; changes nothing.

pub mod bits_check;
pub(crate) mod checks;
mod claims;
pub mod guard;
pub mod legal_errors;
pub mod resynced;

use crate::image::areas::SUPER_AT;
use crate::image::bits::bitmap_of;
use crate::image::logs;
use crate::image::ppl::ppl_of;
use crate::judge::resynced::Resynced;
use crate::machine::member::Disk;
use crate::machine::member::medium::CrashMode;
use crate::random::rng::{Rng, mix};
use crate::reference::model::{Model, Place};
use crate::reference::oracle::Oracle;
use crate::setup::Setup;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_engine::{
    AssembleError, AssembleOptions, BadBlockList, Candidate, Place as Role, ReadOnlyReason, StartPlan, assemble,
};
use uraid_format::Superblock;
use uraid_format::bad_blocks::{BadBlockLog, counting_extent};

/// Judges images of all members.
pub struct Judge {
    /// The array.
    pub setup: Rc<Setup>,
    /// The slow model of where each sector lies.
    pub model: Rc<Model>,
    /// The legal contents of every sector.
    pub oracle: Rc<RefCell<Oracle>>,
    /// The members. Number n is in slot n; those after the last slot are spares.
    pub disks: Vec<Rc<Disk>>,
    /// Slots whose member may be left out: it had a fault, or was absent.
    pub lost: RefCell<BTreeSet<u16>>,
    /// Slots whose member does not hold everything yet, as far as the rig has noticed.
    pub recovering: RefCell<BTreeSet<u16>>,
    /// Row sectors whose parity may be wrong until a resync has completed.
    pub suspect: RefCell<BTreeSet<usize>>,
    /// Sectors of the array that a crash found uncertain, since the last resync.
    pub in_flight: RefCell<BTreeSet<u64>>,
    /// The members that were missing in each earlier round.
    pub missing_before: RefCell<Vec<BTreeSet<u16>>>,
    /// Whether the members may have diverged: one round ran without a member, a later one with it and without another.
    /// Refusing them as split brain is then right.
    pub may_be_split: Cell<bool>,
    /// Whether more has failed than the level survives: then only wrong bytes count.
    pub is_over_budget: Cell<bool>,
    /// Members whose superblock is damaged; a subset of the lost ones.
    pub unreadable: RefCell<BTreeSet<u16>>,
    /// Members whose superblock is torn in the last judged crash image.
    pub torn: RefCell<BTreeSet<u16>>,
    /// The result of the running array's resync.
    pub resynced: Cell<Resynced>,
    /// This start knows which rows a crash left not in sync: what is lost in them is not computed.
    pub knows_unsynced: Cell<bool>,
    /// Members that are older than all others by more than one change.
    pub must_stay_out: RefCell<BTreeSet<u16>>,
}

/// The options for assembly. `--run` is always given, because missing members are intended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssembleMode {
    /// Without `--force`.
    Plain,
    /// With `--force`.
    Forced,
    /// Read-only.
    ReadOnly,
}

/// How an attempt to assemble ended.
pub enum Assembled {
    /// It can start.
    Plan(Box<StartPlan>),
    /// Rightly refused as dirty and degraded.
    DirtyDegraded,
    /// It cannot start, which is legal.
    Impossible,
}

/// The superblock of a member's image, by the real parser.
pub(crate) fn superblock_of(image: &[u8]) -> Result<Superblock, String> {
    let start = SUPER_AT as usize * SECTOR_BYTES;
    let bytes: &[u8; 4096] = image[start..start + 4096].try_into().expect("4096 bytes");
    let size = Sectors((image.len() / SECTOR_BYTES) as u64);
    Superblock::parse(bytes, Sector(SUPER_AT), size).map_err(|error| error.to_string())
}

/// The bad-block list of a member's image, by the real parser; `None` if the member has no log.
pub fn bad_blocks_of(image: &[u8], superblock: &Superblock) -> Result<Option<BadBlockList>, String> {
    Ok(bad_block_log_of(image, superblock)?.as_ref().map(BadBlockList::from))
}

/// As it is on the disk.
pub fn bad_block_log_of(image: &[u8], superblock: &Superblock) -> Result<Option<BadBlockLog>, String> {
    if superblock.bad_blocks.size == 0 {
        return Ok(None);
    }
    let Some(place) = counting_extent(superblock).map_err(|error| error.to_string())? else {
        return Ok(Some(BadBlockLog::default()));
    };
    let bytes = &image[place.start.0 as usize * SECTOR_BYTES..place.end().0 as usize * SECTOR_BYTES];
    BadBlockLog::parse(bytes, superblock.bad_blocks.shift).map(Some).map_err(|error| error.to_string())
}

impl Judge {
    /// Slots that the array must do without: the lost ones, those with a fault now, and `away`.
    pub fn missing(&self, away: &BTreeSet<u16>) -> BTreeSet<u16> {
        // What a member lists is missing for as long as it is listed.
        let has_list = |slot: usize| self.setup.has_logs && logs::is_in_force(self.disks[slot].medium().current());
        let is_hurt = |slot: &usize| self.disks[*slot].may_be_failed() || has_list(*slot);
        let hurt = (0..self.disks.len()).filter(is_hurt).map(|slot| slot as u16);
        let recovering = self.recovering.borrow();
        self.lost.borrow().union(away).chain(recovering.iter()).copied().chain(hurt).collect()
    }

    /// Call it when a round starts without these members.
    pub fn starts_without(&self, away: &BTreeSet<u16>) {
        let differs = |before: &BTreeSet<u16>| !before.is_subset(away) && !away.is_subset(before);
        // A round that power cut short may be recorded only on members that are away now: then two histories exist.
        let events = |slot: u16| Some(superblock_of(self.disks[usize::from(slot)].medium().current()).ok()?.events);
        let slots = 0..self.setup.shape.slots;
        let newest = slots.filter(|slot| !away.contains(slot)).filter_map(events).max();
        let is_ahead = away.iter().filter_map(|slot| events(*slot)).max() > newest;
        if is_ahead || self.missing_before.borrow().iter().any(differs) {
            self.may_be_split.set(true);
        }
    }

    /// Whether a start without these members could make the members diverge.
    pub fn would_split(&self, away: &BTreeSet<u16>) -> bool {
        self.missing_before.borrow().iter().any(|before| !before.is_subset(away) && !away.is_subset(before))
    }

    /// Marks data of a member as silently corrupted.
    pub fn mark_corrupted(&self, slot: u16, at: u64, length: u64) {
        for sector in at..at + length {
            for x in self.model.sectors_at(Place { slot, sector }) {
                self.oracle.borrow_mut().mark_corrupted(x);
            }
        }
    }

    /// Array sectors whose stripes a member may not have stored, although it said so.
    pub fn not_durable_on_liars(&self) -> BTreeSet<u64> {
        let mut unsettled = BTreeSet::new();
        for (slot, disk) in self.disks.iter().enumerate().filter(|(_, disk)| disk.is_liar()) {
            let start = self.setup.data_offsets[slot];
            // Without its log, what it lists is read from it.
            let listed = match self.setup.has_logs {
                true => logs::listed(disk.medium().current()),
                false => Vec::new(),
            };
            for sector in disk.medium().uncertain_data().into_iter().chain(listed) {
                unsettled.extend(self.model.sectors_at(Place { slot: slot as u16, sector: sector - start }));
            }
            if self.setup.has_ppl {
                // Its partial parity log may be an old one: it does not name what was being written, and has other rows
                // made good with what they held then.
                let rows = self.model.rows.iter().filter(|row| usize::from(row.p.slot) == slot);
                unsettled.extend(rows.flat_map(|row| row.data.iter().map(|(x, _, _)| *x)));
            }
        }
        unsettled
    }

    /// All members are in sync and correct: forgets all earlier faults.
    pub fn forget_faults_of_members(&self) {
        let slots = self.setup.shape.slots;
        self.lost.borrow_mut().retain(|slot| *slot >= slots);
        self.unreadable.borrow_mut().retain(|slot| *slot >= slots);
        self.must_stay_out.borrow_mut().clear();
        self.recovering.borrow_mut().clear();
        self.missing_before.borrow_mut().clear();
        self.may_be_split.set(false);
    }

    /// Assembles these images; `images[n]` is member n, `None` if it is away.
    pub fn assemble(&self, images: &[Option<Vec<u8>>], how: AssembleMode) -> Result<Assembled, String> {
        let mut candidates = Vec::new();
        let mut owners = Vec::new();
        for (slot, image) in images.iter().enumerate() {
            let Some(image) = image else { continue };
            let superblock = match superblock_of(image) {
                Ok(superblock) => superblock,
                Err(_) if self.may_be_damaged(slot as u16) => continue,
                Err(found) => return Err(format!("M1: superblock of disk {slot}: {found}")),
            };
            let bad_blocks = bad_block_log_of(image, &superblock).map_err(|found| format!("disk {slot}: {found}"))?;
            let device_size = Sectors(self.disks[slot].size_now());
            let ppl = ppl_of(image, &superblock);
            candidates.push(Candidate { superblock, device_size, bad_blocks, ppl });
            owners.push(slot);
        }
        let slots = self.setup.shape.slots;
        let options =
            AssembleOptions { force: how == AssembleMode::Forced, run: true, read_only: how == AssembleMode::ReadOnly };
        let away: BTreeSet<u16> =
            (0..images.len() as u16).filter(|&slot| !owners.contains(&usize::from(slot))).collect();
        match assemble(&candidates, &options) {
            Ok(mut plan) => {
                for member in &mut plan.members {
                    member.candidate = owners[member.candidate];
                }
                self.take_bitmaps(&mut plan, images)?;
                self.check_members(&plan, &away, how == AssembleMode::Forced)?;
                if how == AssembleMode::Plain {
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

    /// Reads the bitmaps, if the array has them.
    fn take_bitmaps(&self, plan: &mut StartPlan, images: &[Option<Vec<u8>>]) -> Result<(), String> {
        let superblocks: BTreeMap<usize, Superblock> =
            plan.members.iter().map(|member| (member.candidate, member.superblock.clone())).collect();
        plan.take_bitmaps(|disk| {
            bitmap_of(images[disk].as_ref().expect("a candidate has an image"), &superblocks[&disk])
        });
        match plan.read_only {
            Some(ReadOnlyReason::BitmapUnusable(error)) => Err(format!("the bitmap is lost: {error}")),
            Some(_) | None => Ok(()),
        }
    }

    /// The images that a power cut now would leave. Members draw one common mode, or each its own.
    pub fn images(&self, rng: &mut Rng) -> Vec<Option<Vec<u8>>> {
        let one = *rng.pick(&CrashMode::ALL);
        let is_mixed = rng.chance(1, 3);
        self.torn.borrow_mut().clear();
        let mut images = Vec::new();
        for (slot, disk) in self.disks.iter().enumerate() {
            let mode = if is_mixed { *rng.pick(&CrashMode::ALL) } else { one };
            // Superblocks of one sector cannot be torn. Of larger ones, most writes in flight are torn.
            let tears = self.setup.roles > 128 && disk.medium().writes_super() && rng.chance(2, 3);
            let mode = if tears { CrashMode::Random } else { mode };
            let image = disk.medium().image(mode, rng, None);
            let image = match superblock_of(&image) {
                Err(_) if self.may_tear(slot as u16) => {
                    self.torn.borrow_mut().insert(slot as u16);
                    image
                }
                // More than the array can lose: keep each superblock whole.
                Err(_) if self.is_writing_super(slot) => {
                    let draw = rng.next();
                    disk.medium().image(mode, rng, Some(&|write| mix(draw ^ write) & 1 == 0))
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

    /// Whether a power cut may tear this member's superblock: it is being written, and the others suffice.
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

    /// The images of one mode for data, with those superblock writes for which `keeps` returns true: disk, write.
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

    /// Slots that have a member in sync in the plan.
    pub fn in_slots(plan: &StartPlan) -> BTreeSet<u16> {
        let slots = plan.members.iter().filter_map(|member| match member.place {
            Role::Slot(slot) => Some(slot.0),
            Role::Recovering { .. } | Role::Replacing { .. } | Role::Spare => None,
        });
        slots.collect()
    }

    /// The slots whose member is recovering in the plan, and how far each is.
    pub fn recovering(plan: &StartPlan) -> BTreeMap<u16, u64> {
        let slots = plan.members.iter().filter_map(|member| match member.place {
            Role::Recovering { slot, below } => Some((slot.0, below.0)),
            Role::Slot(_) | Role::Replacing { .. } | Role::Spare => None,
        });
        slots.collect()
    }

    /// The slots that a start with this plan recovers: of members that are recovering, and of those that a crash left as
    /// spares, which take their slots again.
    pub fn to_recover(&self, plan: &StartPlan) -> BTreeSet<u16> {
        let slots = self.setup.shape.slots;
        let spares = plan.members.iter().filter(|member| member.place == Role::Spare).map(|it| it.candidate as u16);
        let recovering = Judge::recovering(plan).into_keys();
        recovering.chain(spares.filter(|spare| *spare < slots)).collect()
    }

    pub(crate) fn chosen(&self, images: &[Option<Vec<u8>>], plan: &StartPlan) -> BTreeSet<u16> {
        Self::in_slots(plan).into_iter().filter(|&slot| images[usize::from(slot)].is_some()).collect()
    }

    pub(crate) fn sector_of(
        &self,
        images: &[Option<Vec<u8>>],
        chosen: &BTreeSet<u16>,
        place: Place,
    ) -> Option<[u8; SECTOR_BYTES]> {
        let slot = usize::from(place.slot);
        if !chosen.contains(&place.slot) {
            return None;
        }
        let image = images[slot].as_ref()?;
        let sector = self.setup.data_offsets[slot] + place.sector;
        if self.setup.has_logs && logs::is_listed(image, sector) {
            return None;
        }
        let start = sector as usize * SECTOR_BYTES;
        image[start..start + SECTOR_BYTES].try_into().ok()
    }
}
