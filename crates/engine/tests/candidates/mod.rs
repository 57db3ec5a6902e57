//! Superblocks for the tests of assembly: a clean array, and what rounds of superblocks make of it.
//! Owns: making candidates, reading plans. Not here: any test.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use uraid_block::{Sectors, Slot, SlotSet};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Place, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_format::{Role, SetName, Superblock};
use uraid_layout::Level;

pub const DEVICE: Sectors = Sectors(40960);
pub const FORCE: AssembleOptions = AssembleOptions { force: true, run: false, read_only: false };
pub const RUN: AssembleOptions = AssembleOptions { force: false, run: true, read_only: false };

/// A clean array with ten events; `spares` behind the slots.
pub fn array(level: Level, slots: u16, spares: u16) -> Vec<Candidate> {
    let chunk = if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) };
    let (spare_devices, set_name) = (spares, SetName::new("", "r").unwrap());
    let options = CreateOptions {
        chunk,
        spare_devices,
        set_name,
        now_seconds: 1_700_000_000,
        assume_clean: true,
        ..CreateOptions::new(level, slots, [7; 16])
    };
    let device = |n: u16| NewMember::Device { size: DEVICE, uuid: [n as u8 + 1; 16] };
    let made = create(&options, &(0..slots + spares).map(device).collect::<Vec<_>>()).unwrap();
    let members = made.superblocks.into_iter().flatten();
    members.map(|superblock| Candidate::new(Superblock { events: 10, ..superblock }, DEVICE)).collect()
}

/// Every member in `on` records that `out` has failed, as one round of superblocks does.
pub fn record_failure(members: &mut [Candidate], on: &[usize], out: &[usize]) {
    for at in on {
        let superblock = &mut members[*at].superblock;
        superblock.events += 1;
        for out in out {
            superblock.roles[*out] = Role::Faulty;
        }
    }
}

pub fn start(members: &[Candidate]) -> Result<StartPlan, AssembleError> {
    assemble(members, &AssembleOptions::default())
}

pub fn slots(plan: &StartPlan) -> Vec<(u16, usize)> {
    let slot = |place| match place {
        Place::Slot(slot) => Some(slot.0),
        Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
    };
    plan.members.iter().filter_map(|member| Some((slot(member.place)?, member.candidate))).collect()
}

pub fn set(slots: &[u16]) -> SlotSet {
    slots.iter().map(|slot| Slot(*slot)).collect()
}
