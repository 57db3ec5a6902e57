//! Tests of the state of an array.
//! Owns: changes that come late. Not here: what a whole array does with them (`uraid-sim`).

#[path = "../../../tests/candidates/mod.rs"]
mod candidates;

use super::*;
use crate::assemble;
use uraid_format::Role;
use uraid_layout::Level;

/// The state of a raid1 of three members that is open and dirty.
fn open_mirror() -> Master {
    let plan = candidates::start(&candidates::array(Level::Raid1, 3, 0)).expect("all are there");
    let mut master = Master::new(&plan);
    for change in [Change::Open, Change::MarkDirty, Change::AdmitWrites] {
        master.apply(change);
    }
    master
}

#[test]
fn an_array_that_freezes_again_behind_a_closed_gate_keeps_its_first_error() {
    let mut master = open_mirror();
    master.apply(Change::Freeze(ErrorKind::NoSpace, FreezeCause::Full));
    master.apply(Change::Close);
    master.apply(Change::Freeze(ErrorKind::Gone, FreezeCause::TooMany));
    assert_eq!(master.gate(), Gate::Frozen(ErrorKind::NoSpace));
    assert_eq!(master.frozen_error().map(|error| error.kind), Some(ErrorKind::NoSpace));
}

#[test]
fn a_member_taken_by_force_is_not_told_by_the_freshest_superblock_that_it_is_faulty() {
    let mut members = candidates::array(Level::Raid5, 3, 0);
    // Member 2 failed three rounds ago; member 1 is gone.
    for member in &mut members[..2] {
        member.superblock.events += 3;
        member.superblock.roles[2] = Role::Faulty;
    }
    members.remove(1);
    let plan = assemble(&members, &candidates::FORCE).expect("two of three are enough");
    assert_eq!(plan.forced.raised, [1]);
    let images = Master::new(&plan).freshest_images();
    assert_eq!(images.iter().map(|(member, _)| *member).collect::<Vec<_>>(), [0]);
}

/// The state of a raid1 of two members whose resync has come to sector 8, while no write is under way.
fn half_resynced_mirror() -> Master {
    let mut members = candidates::array(Level::Raid1, 2, 0);
    members.iter_mut().for_each(|member| member.superblock.resync_offset = 0);
    let mut master = Master::new(&candidates::start(&members).expect("all are there"));
    master.apply(Change::Open);
    assert!(master.takes_writes() && master.needs_resync());
    master.apply(Change::HoldWrites);
    master.apply(Change::Checkpoint(Sectors(8)));
    master.apply(Change::MarkClean);
    master
}

#[test]
fn a_resync_that_is_over_when_the_array_is_stopped_leaves_it_clean() {
    let mut master = half_resynced_mirror();
    let says = |master: &Master| master.images().into_iter().map(|(_, image)| image.resync_offset).collect::<Vec<_>>();
    assert_eq!(says(&master), [8, 8]);
    master.apply(Change::Checkpoint(master.resync_end()));
    assert_eq!(says(&master), [Superblock::CLEAN; 2]);
}

#[test]
fn an_idle_array_whose_resync_met_unreadable_sectors_admits_no_write_before_its_mark_is_durable() {
    let mut master = half_resynced_mirror();
    master.apply(Change::MarkSuspect);
    assert!(!master.takes_writes() && master.is_dirty());
}

/// What the disks would hold if these superblocks of a round had landed.
fn landed(disks: &[crate::Candidate], images: &[Image], which: u32) -> Vec<crate::Candidate> {
    let mut disks = disks.to_vec();
    for (member, image) in images.iter().filter(|(member, _)| which >> member & 1 == 1) {
        disks[*member].superblock = image.clone();
    }
    disks
}

/// A raid10 of five with two copies: slot 0 is current, 2 has missed changes, 3 more of them, 1 and 4 are lost. Whichever
/// superblocks of a round land, a later start by force takes the same copies for the fresher ones, and one without it
/// takes none.
#[test]
fn members_taken_by_force_stay_stale_until_the_resync_has_ended() {
    let mut disks = candidates::array(Level::Raid10, 5, 0);
    for (at, events) in [(0, 40), (2, 30), (3, 20)] {
        disks[at].superblock.events = events;
        (at + 1..5).for_each(|later| disks[at].superblock.roles[later] = Role::Faulty);
    }
    let mut disks = vec![disks[0].clone(), disks[2].clone(), disks[3].clone()];
    let plan = assemble(&disks, &candidates::FORCE).expect("each chunk is there");
    let older = [candidates::set(&[2]), candidates::set(&[3])];
    assert_eq!((&plan.forced.raised[..], &plan.forced.older[..]), (&[1, 2][..], &older[..]));
    let mut master = Master::new(&plan);
    assert_eq!(master.view().canonical(), uraid_layout::CopyChoice::FirstOf(master.older));
    master.apply(Change::Open);
    for round in 0..4 {
        master.apply(Change::BeginRound(1));
        let images = master.images();
        // The fresher one of those that were taken is written before the other.
        for which in [0b000, 0b001, 0b010, 0b011, 0b110, 0b111] {
            let disks = landed(&disks, &images, which);
            let normal = candidates::start(&disks).map(|plan| plan.members.len());
            assert!(normal.is_err(), "round {round}, {which:03b}: {normal:?}");
            let again = assemble(&disks, &candidates::FORCE).expect("each chunk is there");
            assert_eq!(again.forced.older, older, "round {round}, {which:03b}");
        }
        disks = landed(&disks, &images, 0b111);
    }
    master.apply(Change::EndResync);
    master.apply(Change::BeginRound(1));
    assert_eq!(master.view().canonical(), uraid_layout::CopyChoice::First);
    let disks = landed(&disks, &master.images(), 0b111);
    assert_eq!(candidates::start(&disks).expect("all are current").members.len(), 3);
}
