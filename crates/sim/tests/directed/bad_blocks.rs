//! Members that cannot write, or be given, some sectors: their logs list these, and the members stay.
//! Owns: what is listed, read and forgotten, power cuts at each step, what must be durable before a write is answered, when
//! a member is failed all the same. Not here: the list (`uraid_engine::bad_blocks`), the logs of real members
//! (`uraid`'s own tests).

mod rare;

use super::joining::assembled_anywhere;
use super::spares::{CASES, content_of, fail, fill, wait};
use super::*;
use uraid_engine::BadBlockList;
use uraid_format::Features;
use uraid_sim::judge::bad_blocks_of;
use uraid_sim::reference::model::Place;

/// An array of members with logs, and a spare that can take a slot.
fn rig_with_logs(level: i32, layout: u32, slots: u16, shards: u16) -> Rig {
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(13);
    let executor = Executor::new(rng.fork(), false);
    let (data_offsets, data_sizes) = (vec![16; usize::from(slots) + 1], vec![24; usize::from(slots) + 1]);
    let plain = Setup::plain(shape);
    let setup = Setup { spares: 1, shards, data_offsets, data_sizes, ..plain }.with_logs();
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    change_superblock(&rig, slots, |superblock| superblock.features = Default::default());
    rig.judge.is_over_budget.set(true);
    rig
}

fn config() -> Config {
    Config { pass_window: Sectors(3), ..Config::default() }
}

/// A filled array without its spare.
fn ready(level: i32, layout: u32, slots: u16, shards: u16) -> (Rig, Live, Vec<u8>) {
    let mut rig = rig_with_logs(level, layout, slots, shards);
    let live = start_with(&mut rig, &[slots], &config());
    let content = fill(&rig, &live);
    (rig, live, content)
}

/// The same of four slots on one shard, with other settings.
fn ready_with(level: i32, layout: u32, config: &Config) -> (Rig, Live, Vec<u8>) {
    let mut rig = rig_with_logs(level, layout, 4, 1);
    let live = start_with(&mut rig, &[4], config);
    let content = fill(&rig, &live);
    (rig, live, content)
}

fn data_at(rig: &Rig) -> u64 {
    rig.setup.data_offsets[0]
}

/// What the log of a member would list if power failed now.
fn listed(rig: &Rig, slot: u16) -> BadBlockList {
    let medium = rig.disk(slot).medium();
    let image = medium.durable();
    let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
    let size = rig.disk(slot).geometry().size;
    let superblock = Superblock::parse(bytes, Sector(8), size).expect("a whole superblock");
    assert_eq!(superblock.features.contains(Features::BAD_BLOCKS), {
        let list = bad_blocks_of(image, &superblock).expect("a good log").expect("it has one");
        !list.is_empty()
    });
    bad_blocks_of(image, &superblock).expect("a good log").expect("it has one")
}

fn sectors(rig: &Rig, slot: u16) -> Vec<u64> {
    let ranges = listed(rig, slot);
    let of_range = |range: &uraid_block::Range| range.start.0..range.end().0;
    ranges.ranges().iter().flat_map(of_range).map(|sector| sector - data_at(rig)).collect()
}

fn states(live: &Live) -> Vec<MemberState> {
    live.arrays[0].status().members
}

fn is_whole(live: &Live) -> bool {
    let status = live.arrays[0].status();
    status.usable == SlotSet::first(status.slots)
}

fn flush(rig: &Rig, live: &Live) {
    let array = live.arrays[0].clone();
    assert_eq!(all(rig, live, vec![async move { array.flush().await }]), [Ok(())]);
}

/// Writes every sector of the array, each with another byte than before, durably.
fn overwrite(rig: &Rig, live: &Live, content: &mut [u8]) {
    for at in 0..content.len() / 512 {
        let byte = content[at * 512].wrapping_add(100) | 1;
        assert_eq!(all(rig, live, vec![write(rig, live, at as u64, 1, byte)]), [Ok(())], "sector {at}");
        content[at * 512..][..512].fill(byte);
    }
    flush(rig, live);
}

/// Lets power fail, and starts the array again.
fn after_power_cut(rig: &Rig) -> (Rig, Live) {
    restarted(rig, 5, &config())
}

/// `seed`: of all that is drawn from then on.
fn restarted(rig: &Rig, seed: u64, config: &Config) -> (Rig, Live) {
    let disks = &rig.judge.disks;
    let images = disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
    rig.judge.unreadable.borrow_mut().extend(0..disks.len() as u16);
    let mut after = rig.branch(images, Rng::new(seed)).expect("whole superblocks");
    after.judge.is_over_budget.set(true);
    let mut plan = assembled_anywhere(&after);
    plan.members.retain(|member| member.place != uraid_engine::Place::Spare);
    assert_eq!(plan.read_only, None, "it takes writes");
    let live = after.boot(&plan, config).expect("sizes agree");
    run(&after, &live, || live.started.get().is_some());
    assert_eq!(live.started.get(), Some(true));
    (after, live)
}

#[test]
fn a_member_that_cannot_write_some_sectors_stays_and_they_are_read_elsewhere() {
    for (level, layout, slots) in CASES {
        for shards in [1, 3] {
            for victim in 0..slots {
                let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}, {shards} shards");
                let (rig, live, mut content) = ready(level, layout, slots, shards);
                let broken = [1, 2, 9];
                rig.disk(victim).add_broken(broken.map(|sector| data_at(&rig) + sector));
                overwrite(&rig, &live, &mut content);
                assert!(is_whole(&live), "{case}: {:?}", states(&live));
                assert_eq!(sectors(&rig, victim), broken, "{case}");
                // The member still returns what it had before.
                assert!(content_of(&rig, &live) == content, "{case}");
                let (after, live_after) = after_power_cut(&rig);
                rig.power_off();
                wait(&after, &live_after);
                assert!(content_of(&after, &live_after) == content, "{case}, after a power cut");
                // A member that takes them again is trusted again.
                overwrite(&after, &live_after, &mut content);
                assert_eq!(sectors(&after, victim), [], "{case}");
                for other in (0..slots).filter(|other| *other != victim) {
                    if live_after.arrays[0].layout().can_serve(&SlotSet::first(slots).without(Slot(other))) {
                        fail(&after, &live_after, other);
                        break;
                    }
                }
                assert!(content_of(&after, &live_after) == content, "{case}: the member holds all");
                after.power_off();
            }
        }
    }
}

const SOME: [(i32, u32, u16); 5] = [(1, 0, 2), (10, 0x102, 3), (10, 0x201, 4), (5, 2, 3), (6, 2, 4)];

/// The member and the sector of its data that hold this sector of the array.
fn place_of(rig: &Rig, at: u64) -> Place {
    rig.judge.model.copies[at as usize][0]
}

/// Writes 99 to a sector that its member cannot write, and lets power fail after so many steps. Returns what the array
/// holds there then, whether the write was answered, and whether the write and all that follows it was over.
fn cut_in_a_write(case: (i32, u32, u16), mended: bool, fua: Fua, steps: u64) -> (u8, bool, bool) {
    const AT: u64 = 3;
    let (level, layout, slots) = case;
    let (rig, live, mut content) = ready(level, layout, slots, 1);
    let place = place_of(&rig, AT);
    rig.disk(place.slot).add_broken([data_at(&rig) + place.sector]);
    flush(&rig, &live);
    if mended {
        overwrite(&rig, &live, &mut content);
        assert_eq!(sectors(&rig, place.slot), [place.sector]);
        rig.disk(place.slot).mend();
    }
    let answered = Rc::new(Cell::new(false));
    let (writing, inside) = (write_as(&rig, &live, AT, 1, 99, fua), answered.clone());
    let task = rig.executor.spawn(0, "write", async move {
        writing.await.expect("the others take it");
        inside.set(true);
    });
    let (executor, end) = (rig.executor.clone(), rig.executor.now() + Duration::from_secs(60));
    executor.run(steps, end, || !executor.is_running(task));
    let is_over = !executor.is_running(task);
    let (after, live_after) = after_power_cut(&rig);
    rig.power_off();
    let found = content_of(&after, &live_after);
    let of_sector = found[AT as usize * 512];
    assert!(found[AT as usize * 512..][..512].iter().all(|byte| *byte == of_sector), "a whole sector");
    wait(&after, &live_after);
    assert!(content_of(&after, &live_after) == found, "raid{level}, step {steps}: the resync changed a sector");
    after.power_off();
    (of_sector, answered.get(), is_over)
}

/// What is wrong at some step, if anything: a write that was answered is gone, or older bytes than those before it return.
fn found_in_a_write(case: (i32, u32, u16), mended: bool) -> Option<String> {
    let before = if mended { 104u8 | 1 } else { 4 };
    let fua = if mended { Fua::No } else { Fua::Yes };
    for steps in 0.. {
        let (found, was_answered, is_over) = cut_in_a_write(case, mended, fua, steps);
        let is_kept = fua == Fua::Yes && was_answered;
        if found != 99 && (is_kept || found != before) {
            return Some(format!("raid{}, step {steps}: {found}, answered: {was_answered}", case.0));
        }
        if is_over {
            return None;
        }
    }
    unreachable!("it ends")
}

#[test]
fn whenever_power_fails_a_listed_write_is_kept_once_it_was_answered() {
    for case in SOME {
        assert_eq!(found_in_a_write(case, false), None);
    }
}

#[test]
fn whenever_power_fails_a_sector_that_is_trusted_again_has_its_last_bytes() {
    for case in SOME {
        assert_eq!(found_in_a_write(case, true), None);
    }
}

/// The canaries of both orders.
#[cfg(feature = "canaries")]
#[test]
fn an_answer_before_the_log_and_a_log_before_the_data_are_found() {
    use uraid_engine::canary::set;
    for (mistake, mended) in [("BadBlockUnrecorded", false), ("BadBlockClearedEarly", true)] {
        set(Some(mistake));
        let found = SOME.map(|case| found_in_a_write(case, mended));
        set(None);
        assert!(found.iter().flatten().count() > 0, "{mistake}: {found:?}");
    }
}

#[test]
fn a_member_that_fails_more_and_more_writes_is_failed() {
    for (level, layout, slots) in SOME {
        let (rig, live, mut content) = ready(level, layout, slots, 1);
        let all: Vec<u64> = (0..24).filter(|sector| sector % 2 == 0).map(|sector| data_at(&rig) + sector).collect();
        rig.disk(0).add_broken(all);
        overwrite(&rig, &live, &mut content);
        assert!(is_whole(&live), "raid{level}: twelve spots are not too many: {:?}", states(&live));
        rig.power_off();
        let mut rig = rig_with_logs(level, layout, slots, 1);
        let few = Config { read_errors_max: 5, ..config() };
        let live = start_with(&mut rig, &[slots], &few);
        let mut content = fill(&rig, &live);
        rig.disk(0).add_broken((0..24).filter(|sector| sector % 2 == 0).map(|sector| data_at(&rig) + sector));
        overwrite(&rig, &live, &mut content);
        assert!(matches!(states(&live)[0], MemberState::Faulty { .. }), "raid{level}: {:?}", states(&live));
        assert!(content_of(&rig, &live) == content, "raid{level}");
        rig.power_off();
    }
}

/// Where no other member took the write, nothing is listed: a member is failed, or the array freezes.
#[test]
fn a_sector_that_no_other_member_has_is_never_listed() {
    for (level, layout, slots) in SOME {
        let (rig, live, _) = ready(level, layout, slots, 1);
        let place = place_of(&rig, 3);
        // The copies of this sector; of a parity level, the same sector of other members.
        let places: Vec<_> = match level {
            1 | 10 => rig.judge.model.copies[3].clone(),
            _ => (0..slots).map(|slot| Place { slot, ..place }).collect(),
        };
        places.iter().for_each(|place| rig.disk(place.slot).add_broken([data_at(&rig) + place.sector]));
        let answer = all(&rig, &live, vec![write(&rig, &live, 3, 1, 99)]).remove(0);
        assert!(answer.is_err(), "raid{level}: the write is nowhere, or has no redundancy");
        assert!(matches!(live.arrays[0].view().gate, Gate::Frozen(_)), "raid{level}");
        assert!((0..slots).all(|slot| sectors(&rig, slot).is_empty()), "raid{level}");
        rig.power_off();
    }
}

#[test]
fn a_second_member_with_a_bad_spot_is_listed_when_the_first_has_its_sectors_again() {
    for (level, layout, slots) in SOME {
        let (rig, live, mut content) = ready(level, layout, slots, 1);
        let victims = [0, 1];
        for victim in victims {
            rig.disk(0).mend();
            rig.disk(1).mend();
            rig.disk(victim).add_broken([data_at(&rig) + 4]);
            overwrite(&rig, &live, &mut content);
            assert!(is_whole(&live), "raid{level}: {:?}", states(&live));
            assert_eq!((sectors(&rig, victim), sectors(&rig, 1 - victim)), (vec![4], vec![]), "raid{level}");
            assert!(content_of(&rig, &live) == content, "raid{level}");
        }
        rig.power_off();
    }
}

/// One sector that no other member can read costs that sector, and not the recovery.
#[test]
fn a_recovery_lists_what_no_member_can_give_and_ends() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 4), (10, 0x201, 4), (4, 0, 3), (5, 2, 3), (6, 2, 4)] {
        for shards in [1, 2] {
            let case = format!("raid{level} {layout:#x}, {shards} shards");
            let mut rig = rig_with_logs(level, layout, slots, shards);
            let live = start_with(&mut rig, &[], &config());
            let mut content = fill(&rig, &live);
            // All that could give sector 5 of the last member but for its parity: more than can be lost without it.
            let victim = slots - 1;
            let is_lost = |place: &Place| place.slot == victim && [5, 6].contains(&place.sector);
            let of_copies = rig.judge.model.copies.iter().filter(|copies| copies.iter().any(is_lost)).flatten();
            let of_rows =
                (0..if level == 6 { 2 } else { 1 }).flat_map(|slot| [5, 6].map(|sector| Place { slot, sector }));
            let lost: Vec<Place> = match level {
                1 | 10 => of_copies.filter(|place| place.slot != victim).copied().collect(),
                _ => of_rows.collect(),
            };
            lost.iter().for_each(|place| rig.disk(place.slot).add_latent([data_at(&rig) + place.sector]));
            fail(&rig, &live, victim);
            wait(&rig, &live);
            let spare = usize::from(slots);
            assert_eq!(states(&live)[spare], MemberState::Active(Slot(victim)), "{case}");
            assert!(!sectors(&rig, slots).is_empty(), "{case}");
            assert!(sectors(&rig, slots).iter().all(|sector| [5, 6].contains(sector)), "{case}");
            // Each sector is right, or cannot be read; and no more of them than are listed, and those that cannot be read.
            let size = content.len() as u64 / 512;
            let mut unreadable = 0;
            for at in 0..size {
                match all(&rig, &live, vec![read(&live, at, 1)]).remove(0) {
                    Ok(bytes) => assert!(bytes == content[at as usize * 512..][..512], "{case}, sector {at}"),
                    Err(_) => unreadable += 1,
                }
            }
            assert!(unreadable > 0 && unreadable <= 2 * slots, "{case}: {unreadable}");
            // Whole rows that are written anew bring them back.
            let stripe = if level < 4 { 1 } else { size / 12 };
            for at in (0..size).step_by(stripe as usize) {
                assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, stripe, 7)]), [Ok(())], "{case}, {at}");
            }
            content.fill(7);
            assert!(content_of(&rig, &live) == content, "{case}");
            assert_eq!(sectors(&rig, slots), [], "{case}");
            rig.power_off();
        }
    }
}

#[test]
fn a_copy_to_another_member_lists_what_neither_could_give() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 4), (5, 2, 3), (6, 2, 4)] {
        let case = format!("raid{level} {layout:#x}");
        let mut rig = rig_with_logs(level, layout, slots, 1);
        let live = start_with(&mut rig, &[], &config());
        let content = fill(&rig, &live);
        let lost: Vec<u16> = match level {
            1 | 10 => vec![0, 1],
            6 => vec![0, 1, 2],
            _ => vec![0, 1],
        };
        lost.iter().for_each(|slot| rig.disk(*slot).add_latent([data_at(&rig) + 5]));
        let array = live.arrays[0].clone();
        let replacing = async move { array.replace(Slot(1), None).await };
        assert_eq!(all(&rig, &live, vec![replacing]), [Ok(usize::from(slots))], "{case}");
        wait(&rig, &live);
        assert_eq!(states(&live)[usize::from(slots)], MemberState::Active(Slot(1)), "{case}");
        assert_eq!(sectors(&rig, slots), [5], "{case}");
        let mut unreadable = 0;
        for at in 0..content.len() as u64 / 512 {
            match all(&rig, &live, vec![read(&live, at, 1)]).remove(0) {
                Ok(bytes) => assert!(bytes == content[at as usize * 512..][..512], "{case}, sector {at}"),
                Err(_) => unreadable += 1,
            }
        }
        assert!(unreadable > 0 && unreadable <= 3, "{case}: {unreadable}");
        rig.power_off();
    }
}

/// It was written again, and still cannot be read.
#[test]
fn a_sector_that_cannot_be_read_even_after_it_was_written_is_listed() {
    for (level, layout, slots) in CASES {
        for victim in 0..slots {
            let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}");
            let (rig, live, content) = ready(level, layout, slots, 2);
            rig.disk(victim).add_unreadable([data_at(&rig) + 4]);
            for _ in 0..3 {
                assert!(content_of(&rig, &live) == content, "{case}");
            }
            let found = sectors(&rig, victim);
            let was_read = live.arrays.iter().any(|array| array.counters().read_errors > 0);
            assert_eq!(found, if was_read { vec![4] } else { vec![] }, "{case}");
            assert!(is_whole(&live), "{case}");
            rig.power_off();
        }
    }
}

#[test]
fn a_failfast_member_that_fails_a_write_is_failed_and_lists_nothing() {
    for (level, layout, slots) in CASES.into_iter().filter(|case| matches!(case.0, 1 | 10)) {
        for is_failfast in [true, false] {
            let (rig, live, _content) = ready(level, layout, slots, 2);
            let (array, flag) = (live.arrays[0].clone(), uraid_format::MemberFlag::FailFast);
            assert_eq!(
                all(&rig, &live, vec![async move { array.set_flag(&[0], flag, is_failfast).await.is_ok() }]),
                [true]
            );
            rig.disk(0).add_broken([data_at(&rig) + 4]);
            let size = rig.judge.model.array_size();
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 9)]), [Ok(())]);
            let case = format!("raid{level} {layout:#x} of {slots}, failfast: {is_failfast}");
            assert_eq!(is_whole(&live), !is_failfast, "{case}");
            assert_eq!(sectors(&rig, 0).contains(&4), !is_failfast, "{case}");
            rig.power_off();
        }
    }
}

#[test]
fn a_sector_that_can_be_read_after_it_was_written_again_is_not_listed() {
    for (level, layout, slots) in CASES {
        for victim in 0..slots {
            let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}");
            let (rig, live, content) = ready(level, layout, slots, 2);
            rig.disk(victim).add_latent([data_at(&rig) + 4, data_at(&rig) + 5]);
            for _ in 0..3 {
                assert!(content_of(&rig, &live) == content, "{case}");
            }
            let was_read = live.arrays.iter().any(|array| array.counters().read_errors > 0);
            let is_left = [4, 5].map(|sector| rig.disk(victim).has_latent(data_at(&rig) + sector));
            assert!(!was_read || is_left != [true, true], "{case}");
            assert_eq!(sectors(&rig, victim), [], "{case}");
            rig.power_off();
        }
    }
}

/// What is written again is what a member lacks, and only where the others agree about it.
#[test]
fn a_correction_leaves_alone_what_another_member_has_beside_its_listed_sectors() {
    let (rig, live, mut content) = ready(1, 0, 3, 1);
    let at = |sector: u64| data_at(&rig) + sector;
    rig.disk(1).add_broken([at(4)]);
    overwrite(&rig, &live, &mut content);
    assert_eq!(sectors(&rig, 1), [4]);
    rig.disk(1).mend();
    rig.disk(1).flip(at(5), 3);
    let wrong = rig.disk(1).medium().current()[at(5) as usize * 512];
    rig.disk(0).add_latent([at(6)]);
    for _ in 0..6 {
        assert!(all(&rig, &live, vec![read(&live, 3, 4)]).remove(0).is_ok());
    }
    run(&rig, &live, || !rig.disk(0).has_latent(at(6)));
    assert!(sectors(&rig, 1).is_empty(), "it was written again, too");
    assert_eq!(
        rig.disk(1).medium().current()[at(5) as usize * 512],
        wrong,
        "the others do not agree about this sector"
    );
    rig.power_off();
}

/// Until a resync is over, all reads of a sector come from one copy: the first that its member's list does not name. A
/// write makes the first one of all the right one again; a read that began before goes on with the second.
#[test]
fn a_read_during_which_a_write_clears_the_list_is_answered() {
    for seed in 0..200 {
        let (rig, live, mut content) = ready(10, 0x102, 4, 1);
        let place = place_of(&rig, 3);
        rig.disk(place.slot).add_broken([data_at(&rig) + place.sector]);
        overwrite(&rig, &live, &mut content);
        assert_eq!(sectors(&rig, place.slot), [place.sector]);
        let (after, live_after) = restarted(&rig, seed, &config());
        rig.power_off();
        let writing = after.executor.spawn(0, "write", {
            let write = write(&after, &live_after, 3, 1, 99);
            async move { write.await.expect("all take it") }
        });
        let answers = all(&after, &live_after, (0..8).map(|_| read(&live_after, 1, 4)).collect());
        let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        assert_eq!(errors, [], "seed {seed}");
        run(&after, &live_after, || !after.executor.is_running(writing));
        after.power_off();
    }
}

/// One sector that the first copy lacks says nothing about the others of the same read.
#[test]
fn beside_a_listed_sector_all_reads_after_a_crash_come_from_the_same_copy() {
    for (level, layout, slots) in [(1, 0, 2), (1, 0, 3), (10, 0x102, 4), (10, 0x201, 4), (5, 2, 3), (6, 2, 4)] {
        for at in 0..4 {
            let case = format!("raid{level} {layout:#x} of {slots}, sector {at} is listed");
            let (rig, live, mut content) = ready(level, layout, slots, 1);
            let place = place_of(&rig, at);
            rig.disk(place.slot).add_broken([data_at(&rig) + place.sector]);
            overwrite(&rig, &live, &mut content);
            assert_eq!(sectors(&rig, place.slot), [place.sector], "{case}");
            // What a crash could have left in the other copies, or in the parity, of the sectors beside it.
            for other in (0..4).filter(|other| *other != at) {
                let model = &rig.judge.model;
                let later_copies = model.copies[other as usize].iter().skip(1).copied();
                let row_of = |sector: u64| model.row_of.get(sector as usize).filter(|_| model.is_parity());
                // The listed sector itself is computed from its row.
                let row = row_of(other).filter(|row| Some(*row) != row_of(at));
                let of_row = row.map(|row| model.rows[*row].p);
                later_copies.chain(of_row).for_each(|place| rig.disk(place.slot).flip(data_at(&rig) + place.sector, 3));
            }
            let (after, live_after) = restarted(&rig, 5, &Config { read_only: true, ..config() });
            rig.power_off();
            let found = all(&after, &live_after, vec![read(&live_after, 0, 4)]).remove(0).expect("all can be had");
            assert!(found == content[..4 * 512], "{case}");
            after.power_off();
        }
    }
}

/// What was admitted goes on while an array stops, and so do the corrections that follow from it.
#[test]
fn a_stop_while_a_listed_stretch_is_written_again_fails_no_member() {
    for (level, layout, slots) in SOME {
        for steps in (0..400).step_by(4) {
            let (rig, live, _) = ready(level, layout, slots, 1);
            let place = place_of(&rig, 3);
            rig.disk(place.slot).add_broken([data_at(&rig) + place.sector]);
            let (first, second) = (write(&rig, &live, 0, 12, 99), write(&rig, &live, 3, 1, 98));
            let writing = rig.executor.spawn(0, "write", async move {
                let _ = first.await;
                let _ = second.await;
            });
            let (executor, end) = (rig.executor.clone(), rig.executor.now() + Duration::from_secs(60));
            executor.run(steps, end, || false);
            let array = live.arrays[0].clone();
            assert_eq!(
                all(&rig, &live, vec![async move { array.stop().await }]),
                [Ok(())],
                "raid{level}, {steps} steps"
            );
            run(&rig, &live, || !executor.is_running(writing));
            assert!(is_whole(&live), "raid{level}, {steps} steps: {:?}", states(&live));
            rig.power_off();
        }
    }
}
