//! Restarts from an image: real assembly, real engine, every sector read, checked by the slow model.
//! Owns: [`restart`], [`drive`], [`Restarted`]. Not here: which contents are legal (`expect`), which image (`explore`).
//! Invariant: the same image always gives the same outcome. A state that is wrong for every history of writes is an
//! error here.
//! Not covered: starts without `--run`, read-only starts, several shards.

use super::content::Content;
use super::lab::{Image, Lab};
use super::machine::{CrashMachine, CrashWorld};
use super::script::Schedule;
use crate::judge::checks::mdadm_force::MDADM_MARGIN;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Device, SECTOR_BYTES, Sector, Sectors};
use uraid_engine::{Array, AssembleError, AssembleOptions, Candidate, Config, Place, StartPlan, World, assemble};
use uraid_format::Superblock;

/// Polls and answers after which a piece of work counts as an endless loop.
const STEPS_MAX: u64 = 100_000;

/// How an array starts from an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// It was refused as dirty and degraded, and started by force.
    pub is_forced: bool,
    /// Slots without a member, lost or left out.
    pub missing: u32,
    /// Array sectors that partial parity logs name as being written.
    pub logged: Box<[usize]>,
}

/// The result of restarting from an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// How it started.
    pub start: Start,
    /// It was resynced.
    pub is_resynced: bool,
    /// What a client reads from each sector.
    pub found: Box<[Content]>,
    /// Data of members that the assembly left out and `mdadm --assemble --force` would take: array sector, content.
    pub mdadm_force: Box<[(usize, Content)]>,
}

/// A check after every step.
pub type StepCheck<'a> = &'a mut dyn FnMut(&CrashMachine) -> Result<(), String>;

/// Runs the machine until `is_done`. Calls `check` after every poll and every answer of a member.
pub fn drive(
    machine: &CrashMachine,
    schedule: Schedule,
    is_done: &dyn Fn() -> bool,
    check: StepCheck<'_>,
) -> Result<(), String> {
    let mut turn = 0;
    for _ in 0..STEPS_MAX {
        if let Some(violation) = machine.violation() {
            return Err(violation);
        }
        if is_done() {
            return Ok(());
        }
        if !machine.step() {
            let in_flight = machine.in_flight();
            if !in_flight.is_empty() {
                machine.complete(schedule.next(&in_flight, turn));
                turn += 1;
            } else if !machine.fire() {
                return Err("L1: nothing left to happen".to_string());
            }
        }
        check(machine)?;
    }
    Err(format!("L1: no end after {STEPS_MAX} steps"))
}

/// The array of a plan on the machine's members; `owners` are the slots of the candidates.
pub fn boot(machine: &CrashMachine, plan: &StartPlan, owners: &[usize]) -> Rc<Array<CrashWorld>> {
    let members = plan.members.iter().map(|member| machine.member(owners[member.candidate])).collect();
    // An idle array clears its bits before it goes clean.
    let clear_bits_after = Some(Duration::from_millis(300));
    let config = Config { clean_after: Duration::from_secs(1), clear_bits_after, ..Config::default() };
    let array = Array::new(machine.world().clone(), plan, members, config);
    machine.set_array(array.clone());
    array
}

/// A plan, the slots of its candidates, and whether it was forced.
pub struct AssembledImage {
    /// How it starts.
    pub plan: StartPlan,
    /// The slot of each candidate.
    pub owners: Vec<usize>,
    /// Refused without force.
    pub is_forced: bool,
}

/// Runs the real assembly, always with `--run`, and with `--force` if it is refused as dirty and degraded.
pub fn assemble_image(lab: &Lab, image: &Image, lost: u32) -> Result<AssembledImage, String> {
    let gone = lost | lab.tiny.missing;
    let owners: Vec<usize> = (0..lab.slots()).filter(|slot| gone & 1 << slot == 0).collect();
    let mut candidates = Vec::with_capacity(owners.len());
    for slot in &owners {
        let superblock = Superblock::clone(&*lab.superblock(image[slot * lab.cells])?);
        let ppl = lab.ppl(image, *slot);
        candidates.push(Candidate { ppl, ..Candidate::new(superblock, lab.device_size()) });
    }
    let mut options = AssembleOptions { run: true, ..AssembleOptions::default() };
    let with_bits = |mut plan: StartPlan| {
        plan.take_bitmaps(|candidate| lab.bitmap(image, owners[candidate]));
        match plan.read_only {
            None => Ok(plan),
            Some(reason) => Err(format!("it may only be read: {reason}")),
        }
    };
    match assemble(&candidates, &options) {
        Ok(plan) => Ok(AssembledImage { plan: with_bits(plan)?, owners, is_forced: false }),
        Err(AssembleError::DirtyDegraded { .. }) => {
            options.force = true;
            let plan = assemble(&candidates, &options).map_err(|error| format!("force does not help: {error}"))?;
            Ok(AssembledImage { plan: with_bits(plan)?, owners, is_forced: true })
        }
        Err(error) => Err(format!("cannot be assembled: {error}")),
    }
}

/// How an assembled array starts.
pub fn start_of(lab: &Lab, assembled: &AssembledImage) -> Result<Start, String> {
    let replays = assembled.plan.ppl.iter().flat_map(|ppl| &ppl.replays);
    let mut logged = Vec::new();
    for replay in replays {
        let is_named = |place: &crate::reference::model::Place| {
            let is_of_row = (replay.at.0..replay.at.0 + replay.length.0).contains(&place.sector);
            is_of_row && replay.written.iter().any(|slot| slot.0 == place.slot)
        };
        logged.extend((0..lab.model.copies.len()).filter(|x| lab.model.copies[*x].iter().any(is_named)));
    }
    Ok(Start { is_forced: assembled.is_forced, missing: missing_of(lab, assembled)?, logged: logged.into() })
}

/// The slots that have no member in the plan.
fn missing_of(lab: &Lab, assembled: &AssembledImage) -> Result<u32, String> {
    let mut missing = (1 << lab.slots()) - 1;
    for member in &assembled.plan.members {
        let owner = assembled.owners[member.candidate];
        match member.place {
            Place::Slot(slot) if slot.index() == owner => missing &= !(1 << owner),
            Place::Slot(_) | Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => {
                return Err(format!("member {owner} was put into {:?}", member.place));
            }
        }
    }
    Ok(missing)
}

/// Loads an image and starts the array until it is clean, calling `check` after every step; then reads everything. The
/// machine is empty afterwards unless there is an error.
pub fn restart(
    lab: &Lab,
    machine: &CrashMachine,
    image: &Image,
    assembled: &AssembledImage,
    schedule: Schedule,
    check: StepCheck<'_>,
) -> Result<Restarted, String> {
    let start = start_of(lab, assembled)?;
    let missing = start.missing;
    let mdadm_force = mdadm_force(lab, image, assembled, missing)?.into();
    let is_dirty = assembled.plan.is_dirty;
    let is_logged = assembled.plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete);
    if is_dirty && lab.tiny.has_ppl && !is_logged {
        return Err("dirty, and its partial parity logs are not complete".to_string());
    }
    if !is_dirty && let Some(lie) = lab.find_mismatch(image, missing) {
        return Err(format!("I6: the superblocks say clean, but {lie}"));
    }
    for (slot, medium) in machine.media_mut().iter_mut().enumerate() {
        medium.load(&image[slot * lab.cells..(slot + 1) * lab.cells]);
    }
    let array = boot(machine, &assembled.plan, &assembled.owners);
    let started = Rc::new(RefCell::new(None));
    let at_start = Rc::new(RefCell::new(None));
    let (inside, result) = (array.clone(), started.clone());
    let (own_machine, image_at_start) = (machine.clone(), at_start.clone());
    machine.world().spawn(async move {
        let started = inside.start().await.map_err(|error| format!("start failed in vain: {error}"));
        *image_at_start.borrow_mut() = Some(current_image(&own_machine));
        let consistent = inside.wait(|_| {}).await.map_err(|error| format!("the resync ended in vain: {error}"));
        *result.borrow_mut() = Some(started.and(consistent.map(|_| ())));
    });
    // Idle, it is marked clean, which the superblocks of all members show in the end.
    let says_clean = |slot: usize| {
        let cell = machine.media()[slot].current[0];
        lab.superblock(cell).is_ok_and(|superblock| !superblock.is_dirty())
    };
    let here = || (0..lab.slots()).filter(|slot| missing & 1 << slot == 0);
    let is_alone = lab.tiny.shape.level == 1 && here().count() == 1;
    let is_clean = || started.borrow().is_some() && (is_alone || here().all(says_clean));
    drive(machine, schedule, &is_clean, check)?;
    started.take().expect("it is started")?;
    // A resync after this moment would hide what the logs do not name.
    let at_start = at_start.take().expect("it is started");
    if lab.tiny.has_ppl
        && let Some(lie) = lab.find_mismatch(&at_start, missing)
    {
        return Err(format!("I6: what the logs name was made good, but {lie}"));
    }
    let is_instant = machine.is_instant();
    machine.set_instant(true);
    let found = read_all(lab, machine, array)?;
    let end = current_image(machine);
    check_end(lab, &end, missing, &found)?;
    machine.reset();
    machine.set_instant(is_instant);
    Ok(Restarted { start, is_resynced: is_dirty && !is_logged, found: found.into(), mdadm_force })
}

/// What the members hold now.
fn current_image(machine: &CrashMachine) -> Image {
    machine.media().iter().flat_map(|medium| medium.current.iter().copied()).collect()
}

/// The data of all members that are left out although they lag by no more than mdadm allows.
fn mdadm_force(
    lab: &Lab,
    image: &Image,
    assembled: &AssembledImage,
    missing: u32,
) -> Result<Vec<(usize, Content)>, String> {
    let mut all = Vec::new();
    for slot in assembled.owners.iter().filter(|slot| missing & 1 << **slot != 0) {
        if lab.superblock(image[slot * lab.cells])?.events + MDADM_MARGIN < assembled.plan.events {
            continue;
        }
        for (x, places) in lab.model.copies.iter().enumerate() {
            let of_slot = places.iter().filter(|place| usize::from(place.slot) == *slot);
            all.extend(of_slot.map(|place| (x, image[lab.at(*place)])));
        }
    }
    Ok(all)
}

fn read_all(lab: &Lab, machine: &CrashMachine, array: Rc<Array<CrashWorld>>) -> Result<Vec<Content>, String> {
    let size = lab.model.array_size() as usize;
    let own = array.geometry().size;
    if own != Sectors(size as u64) {
        return Err(format!("the array has {} sectors, the model {size}", own.0));
    }
    let into = machine.world().client_arena().take(size * SECTOR_BYTES).map_err(|error| error.to_string())?;
    let outcome = Rc::new(RefCell::new(None));
    let result = outcome.clone();
    machine.world().spawn(async move { *result.borrow_mut() = Some(array.read(Sector(0), into).await) });
    drive(machine, Schedule::Fifo, &|| outcome.borrow().is_some(), &mut |_| Ok(()))?;
    let outcome = outcome.borrow_mut().take().expect("the read has ended");
    let pieces = outcome.map_err(|error| format!("I7: a read failed in vain: {error:?}"))?;
    let mut contents = lab.contents.borrow_mut();
    let sectors = pieces.iter().flat_map(|piece| piece.chunks_exact(SECTOR_BYTES));
    Ok(sectors.map(|bytes| contents.number(bytes.try_into().expect("a sector"))).collect())
}

/// Checks the members of a started array for what must hold whatever was written before.
fn check_end(lab: &Lab, end: &Image, missing: u32, found: &[Content]) -> Result<(), String> {
    if let Some(lie) = lab.find_mismatch(end, missing) {
        return Err(format!("I6: after the start, {lie}"));
    }
    for (x, content) in found.iter().enumerate() {
        let expected = lab.read(end, missing, x as u64);
        if expected != Some(*content) {
            let expected = expected.map_or("nothing".to_string(), |expected| lab.describe(expected));
            return Err(format!("sector {x} reads as {}, the slow model says {expected}", lab.describe(*content)));
        }
    }
    let here = (0..lab.slots()).filter(|slot| missing & 1 << slot == 0);
    let superblocks: Result<Vec<Rc<Superblock>>, String> =
        here.map(|slot| lab.superblock(end[slot * lab.cells])).collect();
    let superblocks = superblocks?;
    // A raid1 with one member left has no other copy to differ from, so its superblock is not written again.
    let is_alone = lab.tiny.shape.level == 1 && superblocks.len() == 1;
    for (superblock, other) in superblocks.iter().zip(superblocks.iter().skip(1)) {
        if (superblock.events, &superblock.roles) != (other.events, &other.roles) {
            return Err(format!(
                "M6: superblocks disagree after the start: {} and {} events",
                superblock.events, other.events
            ));
        }
    }
    if !is_alone && superblocks.iter().any(|superblock| superblock.is_dirty()) {
        return Err("the array is still marked dirty after the start".to_string());
    }
    Ok(())
}
