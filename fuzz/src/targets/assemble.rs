//! Assembly of arrays whose superblocks have any fields, as long as each of them parses.
//! Owns: changes of single fields, of one member or of all. Not here: superblocks as bytes (`superblock`).
//! Input: level 1, members 1, options 1; then changes of: member 1, field 1, value 3.

use crate::input::Input;
use uraid_block::{Sectors, Slot};
use uraid_engine::{AssembleOptions, Candidate, Place, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
use uraid_format::{Features, Role, SetName, Superblock, Version};
use uraid_layout::{Level, default_layout};

const DEVICE: Sectors = Sectors(40_960);
const CHANGES_MAX: usize = 64;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let level = input.pick(&Level::ALL);
    let members = 4 + u16::from(input.byte() % 3);
    let flags = input.byte();
    let options = AssembleOptions { force: flags & 1 != 0, run: flags & 2 != 0, read_only: flags & 4 != 0 };
    let version = [Version::V1_0, Version::V1_1, Version::V1_2, Version::V1_2][usize::from(flags >> 6)];
    let mut candidates = array(level, members, version);
    let mut changes = 0;
    while !input.is_empty() && changes < CHANGES_MAX {
        changes += 1;
        let (whom, field, value) = (input.byte(), input.byte(), input.number());
        let is_meant = |at: usize| whom & 0x80 != 0 || usize::from(whom) % usize::from(members) == at;
        for (_, candidate) in candidates.iter_mut().enumerate().filter(|(at, _)| is_meant(*at)) {
            change(candidate, field, value);
        }
    }
    candidates.retain(|candidate| {
        let (superblock, at) = (&candidate.superblock, candidate.superblock.super_offset);
        superblock.version.location(DEVICE) == Some(at)
            && Superblock::parse(&superblock.encode(), at, DEVICE).as_ref() == Ok(superblock)
    });
    match assemble(&candidates, &options) {
        Ok(plan) => check(&plan, candidates.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn array(level: Level, raid_disks: u16, version: Version) -> Vec<Candidate> {
    let options = CreateOptions {
        version,
        level,
        layout: default_layout(level),
        chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
        raid_disks,
        spare_devices: u16::from(!matches!(level, Level::Linear | Level::Raid0)),
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::default(),
        now_seconds: 1_700_000_000,
        assume_clean: true,
        force: false,
        policy: NewPolicy::Resync,
    };
    let count = options.raid_disks + options.spare_devices;
    let members: Vec<_> = (0..count).map(|n| NewMember::Device { size: DEVICE, uuid: [n as u8; 16] }).collect();
    let made = create(&options, &members).expect("a usual array can be made").superblocks.into_iter().flatten();
    made.map(|superblock| Candidate::new(superblock, DEVICE)).collect()
}

fn change(candidate: &mut Candidate, field: u8, value: u64) {
    let superblock = &mut candidate.superblock;
    match field % 20 {
        0 => superblock.events = value,
        1 => superblock.level = value as i32,
        2 => superblock.layout = value as u32,
        // The field on disk has 32 bits.
        3 => superblock.chunk = Sectors(value & 0xffff_ffff),
        4 => superblock.raid_disks = value as u32,
        5 => superblock.size = Sectors(value),
        6 => superblock.data_size = Sectors(value),
        7 => superblock.features = Features(value as u32),
        8 => superblock.dev_number = value as u32,
        9 => superblock.resync_offset = value,
        10 => superblock.recovery_offset = value,
        11 => superblock.roles.truncate(value as usize),
        12 => superblock.device_uuid = [value as u8; 16],
        13 => superblock.set_uuid = [value as u8; 16],
        14 => superblock.bitmap_offset = value as i32,
        15 => superblock.created = value,
        16 => superblock.logical_block_size = value as u32,
        17 => candidate.device_size = Sectors(value),
        18 => superblock.devflags = value as u8,
        _ => {
            let at = usize::from(field / 20);
            if at < superblock.roles.len() {
                superblock.roles[at] = Role::from_raw(value as u16);
            }
        }
    }
}

/// Every candidate is in one list, every slot has one holder or is missing.
fn check(plan: &StartPlan, candidates: usize) {
    let all = plan.members.iter().map(|member| member.candidate);
    let mut all: Vec<usize> = all.chain(plan.refused.iter().map(|refused| refused.candidate)).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..candidates), "every candidate is in one list");
    for slot in (0..plan.layout.slots()).map(Slot) {
        let holders = plan.members.iter().filter(|member| member.place == Place::Slot(slot)).count();
        assert_eq!(holders, usize::from(!plan.missing.contains(slot)), "{slot}");
    }
    for refused in &plan.refused {
        assert!(!refused.reason.to_string().is_empty());
    }
    assert!(plan.lagging().all(|at| at < plan.members.len()));
}
