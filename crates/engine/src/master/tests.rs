//! Tests of the state of an array.
//! Owns: changes that come late. Not here: what a whole array does with them (`uraid-sim`).

use super::*;
use crate::assemble::{AssembleOptions, Candidate, assemble};
use uraid_block::Sectors;
use uraid_format::SetName;
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_layout::{Level, default_layout};

/// The state of a raid1 of three members that is open and dirty.
fn open_mirror() -> Master {
    let size = Sectors(40960);
    let options = CreateOptions {
        version: uraid_format::Version::V1_2,
        level: Level::Raid1,
        layout: default_layout(Level::Raid1),
        chunk: Sectors::ZERO,
        raid_disks: 3,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("", "r").expect("a short name"),
        now_seconds: 1_700_000_000,
        assume_clean: true,
        force: false,
    };
    let devices: Vec<NewMember> = (1..4).map(|n| NewMember::Device { size, uuid: [n; 16] }).collect();
    let made = create(&options, &devices).expect("the options fit");
    let candidate = |superblock| Candidate { superblock, device_size: size };
    let candidates: Vec<Candidate> = made.superblocks.into_iter().flatten().map(candidate).collect();
    let mut master = Master::new(&assemble(&candidates, &AssembleOptions::default()).expect("all are there"));
    for change in [Change::Open, Change::MarkDirty, Change::AdmitWrites] {
        master.apply(change);
    }
    master
}

#[test]
fn a_late_failure_does_not_keep_the_gate_of_an_unfrozen_array_from_being_closed() {
    let mut master = open_mirror();
    master.apply(Change::Freeze(ErrorKind::NoSpace, FreezeCause::Full));
    master.apply(Change::Close);
    // A flush that was begun before the array froze fails now: readers are let in again.
    master.apply(Change::Freeze(ErrorKind::NoSpace, FreezeCause::Full));
    assert_eq!(master.gate(), Gate::Frozen(ErrorKind::NoSpace));
    let full = Failure::new(Slot(2), Operation::Command, ErrorKind::Gone.into());
    master.apply(Change::Unfreeze(&[full], Tick::default()));
    assert_eq!(master.gate(), Gate::Closed, "it opens when the failure is recorded");
}
