//! Checks and repairs of arrays whose members were spoiled behind their back.
//! Owns: what is found, at which address, who is named, what a repair makes of it, when a check is refused or gives way.
//! Not here: checks beside writes, failures and crashes (the swarm), what is wrong in one sector (`uraid_engine`).

use super::spares::{fail, fill, rig_with_spare, wait};
use super::{DATA_AT, all, change_superblock, rig, rig_of, run, start};
use std::collections::BTreeSet;
use std::time::Duration;
use uraid_block::{ErrorKind, SECTOR_BYTES, Sectors, Slot, SlotSet};
use uraid_engine::{CheckEnd, CheckError, Checked, PassKind, SpeedLimits};
use uraid_sim::machine::member::{Effect, Fault, Target};
use uraid_sim::reference::model::Place;
use uraid_sim::rig::{Live, Rig};

/// Levels of which each has redundancy to compare, with the slots they have here.
const LEVELS: [(i32, u16); 6] = [(1, 2), (1, 3), (10, 4), (4, 3), (5, 3), (6, 5)];

/// Changes bytes of a sector of a member's data, as a bad cable would.
fn spoil(rig: &Rig, slot: u16, sector: u64) {
    let disk = rig.disk(slot);
    let mut image = disk.medium().current().to_vec();
    let at = (DATA_AT + sector) as usize * SECTOR_BYTES;
    image[at + 3] ^= 0x55;
    image[at + 77] ^= 0x11;
    disk.replace(image);
}

fn images(rig: &Rig) -> Vec<Vec<u8>> {
    (0..rig.setup.shape.slots).map(|slot| rig.disk(slot).medium().current().to_vec()).collect()
}

/// Runs a check or repair to its end.
fn checked(rig: &Rig, live: &Live, kind: PassKind) -> Checked {
    rig.guard.set_pass_running(kind == PassKind::Repair);
    let array = live.arrays[0].clone();
    let begun = if kind == PassKind::Check { array.begin_check() } else { array.begin_repair() };
    begun.expect("it begins");
    let looked = array.clone();
    run(rig, live, || looked.checked().is_some());
    rig.guard.set_pass_running(false);
    array.checked().expect("it has ended")
}

/// An open array whose sectors each hold other bytes.
fn filled(level: i32, slots: u16, shards: u16) -> (Rig, Live) {
    let mut rig = rig_of(7, shards, level, slots, false);
    let live = start(&mut rig, &[]);
    let size = rig.judge.model.array_size();
    for at in 0..size {
        assert_eq!(all(&rig, &live, vec![super::write(&rig, &live, at, 1, at as u8 + 1)]), [Ok(())]);
    }
    (rig, live)
}

#[test]
fn a_consistent_array_has_no_mismatch_and_is_not_written() {
    for shards in [1, 3] {
        for (level, slots) in LEVELS {
            let (rig, live) = filled(level, slots, shards);
            let before = images(&rig);
            for kind in [PassKind::Check, PassKind::Repair] {
                let result = checked(&rig, &live, kind);
                assert_eq!((result.end, result.kind), (CheckEnd::Complete, kind), "raid{level}");
                assert_eq!(result.progress.mismatched, Sectors::ZERO, "raid{level} of {slots}: {result:?}");
                assert!(result.mismatches.is_empty() && result.progress.done == result.progress.total);
            }
            assert!(before == images(&rig), "raid{level} of {slots}: nothing was written");
        }
    }
}

#[test]
fn every_spoiled_sector_is_found_where_it_is_and_raid6_names_and_mends_it() {
    let (rig, live) = filled(6, 5, 1);
    let good = images(&rig);
    for slot in 0..5 {
        for sector in 0..6 {
            spoil(&rig, slot, sector);
            let place = Place { slot, sector };
            for kind in [PassKind::Check, PassKind::Repair] {
                let result = checked(&rig, &live, kind);
                let [found] = result.mismatches[..] else { panic!("{place:?}: {result:?}") };
                assert_eq!(result.progress.mismatched, Sectors(1), "{place:?}");
                assert_eq!((found.slots, found.is_known), (SlotSet::EMPTY.with(Slot(slot)), true), "{place:?}");
                assert_eq!(
                    (found.at.0, found.count, found.is_corrected),
                    (sector, Sectors(1), kind == PassKind::Repair)
                );
                let of_model: BTreeSet<u64> = (0..rig.judge.model.array_size())
                    .filter(|x| rig.judge.model.copies[*x as usize][0] == place)
                    .collect();
                match of_model.first() {
                    Some(x) => assert_eq!((found.sector.0, found.length), (*x, Sectors(1)), "{place:?}"),
                    None => assert_eq!(found.length, Sectors(6), "{place:?}: parity of a row"),
                }
            }
            assert!(good == images(&rig), "{place:?}: all bytes are back");
        }
    }
}

#[test]
fn two_spoiled_blocks_of_a_raid6_row_are_found_and_not_blamed_on_one() {
    let (rig, live) = filled(6, 5, 1);
    let map: Vec<u16> = (0..3).map(|x| rig.judge.model.copies[x * 2][0].slot).collect();
    let disk = rig.disk(map[0]);
    spoil(&rig, map[0], 0);
    let mut image = rig.disk(map[1]).medium().current().to_vec();
    image[DATA_AT as usize * SECTOR_BYTES + 200] ^= 1;
    rig.disk(map[1]).replace(image);
    let before = disk.medium().current().to_vec();
    let result = checked(&rig, &live, PassKind::Repair);
    let [found] = result.mismatches[..] else { panic!("{result:?}") };
    assert!(!found.is_known && found.slots.count() == 2, "P and Q differ: {found:?}");
    assert!(disk.medium().current() == before, "data stays");
    assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors::ZERO);
}

#[test]
fn mirrors_vote_and_two_copies_follow_the_first() {
    for (slots, spoiled, is_known) in [(3, 0, true), (3, 2, true), (2, 0, false), (2, 1, false)] {
        let (rig, live) = filled(1, slots, 1);
        let good = images(&rig);
        spoil(&rig, spoiled, 4);
        let first = rig.disk(0).medium().current().to_vec();
        for kind in [PassKind::Check, PassKind::Repair] {
            let result = checked(&rig, &live, kind);
            let [found] = result.mismatches[..] else { panic!("{result:?}") };
            let blamed = if is_known { spoiled } else { 1 };
            assert_eq!(
                (found.slots, found.is_known),
                (SlotSet::EMPTY.with(Slot(blamed)), is_known),
                "{slots} {spoiled}"
            );
            assert_eq!((found.sector.0, found.length, found.at.0), (4, Sectors(1), 4));
        }
        if is_known {
            assert!(good == images(&rig), "{slots} copies, {spoiled} was wrong");
        }
        let data = |image: &[u8]| image[DATA_AT as usize * SECTOR_BYTES..][..6 * SECTOR_BYTES].to_vec();
        assert!(is_known || data(rig.disk(1).medium().current()) == data(&first), "the first counts");
        assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors::ZERO);
    }
}

#[test]
fn raid5_keeps_the_data_and_says_that_it_cannot_know() {
    let (rig, live) = filled(5, 3, 2);
    let place = rig.judge.model.copies[3][0];
    spoil(&rig, place.slot, place.sector);
    let before = images(&rig);
    let result = checked(&rig, &live, PassKind::Repair);
    let [found] = result.mismatches[..] else { panic!("{result:?}") };
    assert!(!found.is_known && found.is_corrected && found.slots != SlotSet::EMPTY.with(Slot(place.slot)));
    assert!(before[usize::from(place.slot)] == images(&rig)[usize::from(place.slot)], "data stays");
    assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors::ZERO);
}

#[test]
fn a_degraded_raid6_is_compared_by_the_parity_that_is_left() {
    let mut rig = rig_of(7, 1, 6, 5, false);
    let live = start(&mut rig, &[1]);
    assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors::ZERO);
    spoil(&rig, 0, 2);
    let result = checked(&rig, &live, PassKind::Check);
    assert!(result.progress.mismatched == Sectors(1) && !result.mismatches[0].is_known, "{result:?}");
    let array = live.arrays[0].clone();
    let failing = array.clone();
    all(&rig, &live, vec![async move { failing.fail(SlotSet::EMPTY.with(Slot(4))).await.expect("it is not needed") }]);
    assert_eq!(array.begin_check(), Err(CheckError::NothingLeft));
}

#[test]
fn a_check_is_refused_where_it_cannot_be_and_nothing_changes() {
    let mut plain = rig(0, 2, false);
    let live = start(&mut plain, &[]);
    assert_eq!(live.arrays[0].begin_check(), Err(CheckError::NotRedundant));
    let (rig, live) = filled(5, 3, 1);
    let array = live.arrays[0].clone();
    let paused = array.clone();
    all(&rig, &live, vec![async move { paused.pause_passes(true).await }]);
    assert_eq!(array.begin_check(), Err(CheckError::Paused));
    let going = array.clone();
    all(&rig, &live, vec![async move { going.pause_passes(false).await }]);
    array.begin_check().expect("it begins");
    assert_eq!(array.begin_repair(), Err(CheckError::Busy(PassKind::Check)));
    let looked = array.clone();
    run(&rig, &live, || looked.checked().is_some());
    assert_eq!(array.checked().expect("it has ended").kind, PassKind::Check);
}

#[test]
fn a_check_that_is_ended_before_it_begins_has_a_result_and_the_next_one_may_begin() {
    let (rig, live) = filled(5, 3, 1);
    let array = live.arrays[0].clone();
    let ending = array.clone();
    all(
        &rig,
        &live,
        vec![async move {
            ending.begin_check().expect("it begins");
            assert!(ending.end_check().await, "there was one");
            assert_eq!(ending.checked().expect("it has ended").end, CheckEnd::Ended);
            ending.begin_check().expect("the next one begins");
        }],
    );
    let looked = array.clone();
    run(&rig, &live, || looked.checked().is_some());
    assert_eq!(array.checked().expect("it has ended").end, CheckEnd::Complete);
}

#[test]
fn a_paused_check_waits_and_an_ended_one_stops_where_it_is() {
    let (rig, live) = filled(6, 5, 2);
    let array = live.arrays[0].clone();
    array.begin_check().expect("it begins");
    let paused = array.clone();
    all(&rig, &live, vec![async move { paused.pause_passes(true).await }]);
    let (executor, end) = (rig.executor.clone(), rig.executor.now() + std::time::Duration::from_secs(3));
    run(&rig, &live, || executor.now() >= end || array.checked().is_some());
    let is_held = array.checked().is_none();
    let ending = array.clone();
    all(&rig, &live, vec![async move { ending.end_check().await }]);
    run(&rig, &live, || array.checked().is_some());
    let result = array.checked().expect("it has ended");
    assert!(!is_held || result.end == CheckEnd::Ended, "{result:?}");
    assert!(is_held, "nothing moves while passes are paused: {result:?}");
}

/// Copies that differ in the last byte of the array only, which is the last one of a window.
#[test]
fn the_last_byte_of_a_window_is_compared_by_a_check_and_by_a_resync() {
    for (level, slots) in LEVELS {
        let flip_last = |rig: &Rig| {
            let disk = rig.disk(1);
            let mut image = disk.medium().current().to_vec();
            let end = (DATA_AT + rig.setup.shape.size) as usize * SECTOR_BYTES;
            image[end - 1] ^= 1;
            disk.replace(image);
        };
        let (rig, live) = filled(level, slots, 1);
        flip_last(&rig);
        assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors(1), "raid{level} of {slots}");
        rig.power_off();
        let mut rig = rig_of(7, 1, level, slots, false);
        rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
        (0..slots).for_each(|slot| change_superblock(&rig, slot, |own| own.resync_offset = 0));
        flip_last(&rig);
        let live = start(&mut rig, &[]);
        assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors::ZERO, "raid{level} of {slots}");
        rig.power_off();
    }
}

/// A window of it waits for a member that answers nothing: the command returns, and the check ends when the member answers.
#[test]
fn the_end_of_a_check_by_command_does_not_wait_for_a_member_that_hangs() {
    let (rig, live) = filled(1, 2, 1);
    rig.disk(1).hang_without_deadline();
    let array = live.arrays[0].clone();
    array.begin_check().expect("it begins");
    let (ending, executor) = (array.clone(), rig.executor.clone());
    let began = executor.now();
    let wait = async move {
        executor.sleep(Duration::from_millis(100)).await;
        ending.end_check().await;
        executor.now().since(began)
    };
    let took = all(&rig, &live, vec![wait])[0];
    assert!(took < Duration::from_secs(3), "{took:?}");
    rig.disk(1).end_hang();
    run(&rig, &live, || array.checked().is_some());
    rig.power_off();
}

/// The copy that is to be corrected cannot be written: the result does not say that it was.
#[test]
fn a_repair_does_not_count_as_corrected_what_it_could_not_write() {
    for fails in [false, true] {
        let (rig, live) = filled(1, 3, 1);
        rig.judge.is_over_budget.set(true);
        spoil(&rig, 2, 5);
        if fails {
            let effect = Effect::ErrorsFromNow(ErrorKind::Media);
            rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 0, effect });
        }
        let result = checked(&rig, &live, PassKind::Repair);
        let corrected: Vec<bool> = result.mismatches.iter().map(|mismatch| mismatch.is_corrected).collect();
        assert_eq!((corrected, result.progress.corrected), (vec![!fails], Sectors(u64::from(!fails))), "{fails}");
        rig.power_off();
    }
}

#[test]
fn a_pass_is_not_faster_than_its_maximum() {
    let (rig, live) = filled(1, 2, 1);
    let array = live.arrays[0].clone();
    // 3 KiB of each member.
    let slow = array.clone();
    all(&rig, &live, vec![async move { slow.set_speed(SpeedLimits { min: None, max: Some(1), share: None }).await }]);
    let began = rig.executor.now();
    checked(&rig, &live, PassKind::Check);
    checked(&rig, &live, PassKind::Check);
    let took = rig.executor.now().since(began);
    assert!(took >= std::time::Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_recovery_that_becomes_due_ends_a_check() {
    let mut rig = rig_with_spare(5, 2, 4, 2);
    let live = start(&mut rig, &[]);
    fill(&rig, &live);
    let array = live.arrays[0].clone();
    let slow = array.clone();
    all(&rig, &live, vec![async move { slow.set_speed(SpeedLimits { min: None, max: Some(1), share: None }).await }]);
    array.begin_check().expect("it begins");
    fail(&rig, &live, 1);
    let fast = array.clone();
    run(&rig, &live, || array.checked().is_some());
    all(&rig, &live, vec![async move { fast.set_speed(SpeedLimits::default()).await }]);
    assert_eq!(array.checked().expect("it has ended").end, CheckEnd::Superseded);
    wait(&rig, &live);
    assert_eq!(array.status().usable, SlotSet::first(4), "the spare has the slot");
    assert_eq!(checked(&rig, &live, PassKind::Check).progress.mismatched, Sectors::ZERO);
}

#[test]
fn a_sector_that_cannot_be_read_is_written_again_by_a_check() {
    for (level, slots) in LEVELS {
        for slot in 0..slots {
            let (rig, live) = filled(level, slots, 1);
            let good = images(&rig);
            rig.disk(slot).add_latent([DATA_AT + 1]);
            rig.guard.set_pass_running(true);
            let array = live.arrays[0].clone();
            array.begin_check().expect("it begins");
            run(&rig, &live, || array.checked().is_some());
            rig.guard.set_pass_running(false);
            let result = array.checked().expect("it has ended");
            let case = format!("raid{level} of {slots}, slot {slot}: {result:?}");
            assert_eq!((result.progress.healed, result.progress.unreadable), (Sectors(1), Sectors::ZERO), "{case}");
            assert_eq!(result.progress.mismatched, Sectors::ZERO, "{case}");
            assert_eq!(checked(&rig, &live, PassKind::Check).progress.healed, Sectors::ZERO, "{case}");
            assert!(good == images(&rig), "{case}");
        }
    }
}

/// The canary of a repair that follows wrong data although P and Q name it.
#[cfg(feature = "canaries")]
#[test]
fn a_repair_that_makes_parity_fit_wrong_data_is_found() {
    use uraid_engine::canary::set;
    let (rig, live) = filled(6, 5, 1);
    let good = images(&rig);
    let place = rig.judge.model.copies[0][0];
    spoil(&rig, place.slot, place.sector);
    set(Some("RepairByData"));
    checked(&rig, &live, PassKind::Repair);
    set(None);
    assert!(good != images(&rig), "the wrong bytes stay");
    assert_eq!(
        checked(&rig, &live, PassKind::Check).progress.mismatched,
        Sectors::ZERO,
        "and nothing tells it any more"
    );
}
