//! Which partial parity logs a start relies upon: each state of each member's log, with all members and without one, after a
//! stop, a crash, and a start by force.
//! Owns: this table. Not here: what an entry of a log names (`assemble::ppl`), what the logs make good (the simulator).

use crate::candidates::{DEVICE, FORCE, RUN, array};
use uraid_block::{ArraySector, SECTOR_BYTES, Sectors};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, PplPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
use uraid_format::ppl::{LoggedStretch, PplEntry, PplLog, PplState};
use uraid_layout::Level;

const STATES: [PplState; 4] = [PplState::Complete, PplState::Entries, PplState::Empty, PplState::Damaged];

/// An array with logs that say this, each with the entry of one sector.
fn logged(states: [PplState; 3], is_dirty: bool) -> Vec<Candidate> {
    let options = CreateOptions {
        chunk: Sectors(128),
        assume_clean: true,
        policy: NewPolicy::Ppl,
        ..CreateOptions::new(Level::Raid5, 3, [7; 16])
    };
    let device = |n: u8| NewMember::Device { size: DEVICE, uuid: [n + 1; 16] };
    let made = create(&options, &[0, 1, 2].map(device)).expect("an array with logs");
    let superblocks = made.superblocks.into_iter().flatten();
    let member = |(slot, mut superblock): (usize, uraid_format::Superblock)| {
        superblock.events = 10;
        if is_dirty {
            superblock.resync_offset = 0;
        }
        // Row n of left-symmetric has its parity on slot 2 - n.
        let entry = PplEntry {
            data_sector: ArraySector((2 - slot as u64) * 256),
            data_bytes: 512,
            parity_bytes: 512,
            parity_slot: slot as u32,
            checksum: 0,
        };
        let has_entry = matches!(states[slot], PplState::Complete | PplState::Entries);
        let stretches = has_entry.then(|| LoggedStretch { entry, parity: vec![7; SECTOR_BYTES] });
        let ppl = Some(PplLog { state: states[slot], stretches: stretches.into_iter().collect() });
        Candidate { ppl, ..Candidate::new(superblock, DEVICE) }
    };
    superblocks.enumerate().map(member).collect()
}

/// Every state of three logs, in any order.
fn each() -> impl Iterator<Item = [PplState; 3]> {
    STATES.into_iter().flat_map(|a| STATES.into_iter().flat_map(move |b| STATES.into_iter().map(move |c| [a, b, c])))
}

fn plan(members: &[Candidate], options: &AssembleOptions) -> Result<PplPlan, AssembleError> {
    assemble(members, options).map(|plan| plan.ppl.expect("the array has logs"))
}

#[test]
fn with_all_members_a_resync_follows_a_crash_unless_every_log_is_complete() {
    for states in each() {
        let stopped = plan(&logged(states, false), &AssembleOptions::default()).expect("it was stopped");
        assert!(stopped.is_complete && stopped.replays.is_empty(), "{states:?}: nothing was under way");
        let crashed = plan(&logged(states, true), &AssembleOptions::default()).expect("a resync may follow");
        assert_eq!(crashed.is_complete, states == [PplState::Complete; 3], "{states:?}");
        let entries = states.iter().filter(|state| matches!(state, PplState::Complete | PplState::Entries)).count();
        assert_eq!(crashed.replays.len(), entries, "{states:?}: what is logged is made good first");
    }
}

/// An array that lacks a member starts after a crash if no log is lost, and one at least says that it is in use: md's empty
/// ones do not tell whether a resync was under way.
#[test]
fn without_a_member_an_array_starts_after_a_crash_only_by_its_logs() {
    for states in each() {
        for away in 0..3 {
            let present: Vec<PplState> = (0..3).filter(|slot| *slot != away).map(|slot| states[slot]).collect();
            let mut members = logged(states, true);
            members.remove(away);
            let is_lost = present.contains(&PplState::Damaged);
            let starts = !is_lost && present[..] != [PplState::Empty; 2];
            match plan(&members, &RUN) {
                Ok(plan) => assert!(starts && plan.is_complete, "{states:?} without {away}: {plan:?}"),
                Err(AssembleError::DirtyDegraded { .. }) => assert!(!starts, "{states:?} without {away}"),
                Err(error) => panic!("{states:?} without {away}: {error}"),
            }
        }
    }
}

/// A member that has missed superblocks knows nothing of the writes since: neither its log nor its content tells which rows
/// are consistent.
#[test]
fn no_log_is_believed_once_a_stale_member_is_taken_by_force() {
    for states in each() {
        for (stale, away) in [(0, 1), (1, 2), (2, 0)] {
            let mut members = logged(states, true);
            members[stale].superblock.events = 5;
            members.remove(away);
            let forced = plan(&members, &FORCE).expect("two of three");
            assert!(!forced.is_complete && forced.replays.is_empty(), "{states:?}, {stale} is stale: {forced:?}");
        }
    }
}

#[test]
fn an_array_without_logs_has_no_plan_for_any() {
    assert_eq!(assemble(&array(Level::Raid5, 3, 0), &AssembleOptions::default()).expect("it starts").ppl, None);
}
