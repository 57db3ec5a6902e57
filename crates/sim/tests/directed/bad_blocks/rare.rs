//! Lists in rare company: full logs, stops and freezes, replacements, several members with lists. Each test states what
//! should hold.
//! Owns: these cases. Not here: what is listed and read as a rule (`bad_blocks`).

use super::*;
use uraid_sim::machine::member::medium::CrashMode;

/// Members of `size` sectors, logs of `log` sectors; the spare's data begins `further` behind.
fn big_rig(level: i32, slots: u16, shards: u16, size: u64, log: u16, further: u64) -> Rig {
    let (layout, chunk) = match level {
        1 => (0, 0),
        10 => (0x102, 2),
        _ => (2, 2),
    };
    let shape = Shape { level, layout, chunk, slots, size, member_sizes: Vec::new() };
    let mut rng = Rng::new(13);
    let executor = Executor::new(rng.fork(), false);
    let count = usize::from(slots) + 1;
    let mut data_offsets = vec![16; count];
    data_offsets[count - 1] += further;
    let plain = Setup::plain(shape);
    let setup =
        Setup { spares: 1, shards, data_offsets, data_sizes: vec![size; count], spare_blocks: 32, ..plain }.with_logs();
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    (0..=slots).for_each(|slot| {
        change_superblock(&rig, slot, |superblock| {
            if slot == slots {
                superblock.features = Default::default();
            }
            superblock.bad_blocks.size = log;
        });
    });
    rig.judge.is_over_budget.set(true);
    rig
}

fn wide() -> Config {
    Config { pass_window: Sectors(128), read_errors_max: 0, ..Config::default() }
}

fn pause(rig: &Rig, live: &Live, millis: u64) {
    let executor = rig.executor.clone();
    all(rig, live, vec![async move { executor.sleep(Duration::from_millis(millis)).await }]);
}

/// A full log; a write of the middle of one entry would make two of it. One sector of a log, and one of md's size.
#[test]
fn full_log_split_by_a_write() {
    for (entries, size, log) in [(64, 400, 1), (512, 2600, 8)] {
        let mut rig = big_rig(1, 2, 1, size, log, 0);
        let live = start_with(&mut rig, &[2], &wide());
        let broken = (0..entries).flat_map(|n| n * 5..n * 5 + 3).map(|sector| data_at(&rig) + sector);
        rig.disk(0).add_broken(broken.collect::<Vec<_>>());
        for n in 0..entries {
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, n * 5, 3, 7)]), [Ok(())]);
        }
        assert_eq!(listed(&rig, 0).ranges().len() as u64, entries);
        rig.disk(0).mend();
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 1, 1, 9)]), [Ok(())]);
        rig.power_off();
    }
}

/// Each sector has room, all together have not.
#[test]
fn list_lacking_overflows() {
    let mut rig = big_rig(1, 2, 1, 400, 1, 0);
    let live = start_with(&mut rig, &[], &wide());
    for at in (0..400).step_by(40) {
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, 40, 7)]), [Ok(())]);
    }
    let lost = (0..120u64).step_by(2).chain((130..150).step_by(2));
    rig.disk(0).add_latent(lost.map(|sector| data_at(&rig) + sector).collect::<Vec<_>>());
    fail(&rig, &live, 1);
    wait(&rig, &live);
    rig.power_off();
}

/// raid5: D1 lists a sector; a write of the same sector of D0 cannot be written. Answered with success?
#[test]
fn a_write_that_is_nowhere_is_not_answered_with_success() {
    let (rig, live, mut content) = ready(5, 2, 3, 1);
    rig.disk(1).add_broken([data_at(&rig)]);
    overwrite(&rig, &live, &mut content);
    assert_eq!(sectors(&rig, 1), [0]);
    rig.disk(0).add_broken([data_at(&rig)]);
    let answer = all(&rig, &live, vec![write_as(&rig, &live, 0, 1, 99, Fua::Yes)]).remove(0);
    let own = all(&rig, &live, vec![read(&live, 0, 1)]).remove(0);
    let other = all(&rig, &live, vec![read(&live, 2, 1)]).remove(0);
    println!(
        "write: {answer:?}, then read of it: {:?}, of the other: {:?}, {:?}",
        own.as_ref().map(|b| b[0]),
        other.as_ref().map(|b| b[0]),
        states(&live)
    );
    assert!(answer.is_err() || own.as_ref().is_ok_and(|bytes| bytes[0] == 99), "acknowledged and lost");
    rig.power_off();
}

/// raid1: A cannot write a sector and lists it, and the superblock of B, the only one that took it, fails in the record.
#[test]
fn the_only_member_that_took_the_write_fails_before_the_answer() {
    let (rig, live, _content) = ready(1, 0, 2, 1);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    let effect = Effect::ErrorsFromNow(ErrorKind::Media);
    rig.disk(1).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect });
    let answer = all(&rig, &live, vec![write_as(&rig, &live, 4, 1, 99, Fua::Yes)]).remove(0);
    let own = all(&rig, &live, vec![read(&live, 4, 1)]).remove(0);
    println!("write: {answer:?}, then read: {:?}, {:?}", own.as_ref().map(|b| b[0]), states(&live));
    assert!(answer.is_err() || own.as_ref().is_ok_and(|bytes| bytes[0] == 99), "acknowledged and lost");
    rig.power_off();
}

/// A write of a listed, still broken sector is under way when a stop begins.
#[test]
fn a_stop_while_a_listed_sector_is_written() {
    let (rig, live, mut content) = ready(1, 0, 2, 1);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    overwrite(&rig, &live, &mut content);
    rig.disk(0).mend();
    rig.disk(1).add_broken([data_at(&rig) + 8]);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    overwrite(&rig, &live, &mut content);
    assert_eq!((sectors(&rig, 0), sectors(&rig, 1)), (vec![4], vec![8]));
    rig.disk(0).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(Duration::from_secs(1)) });
    let writing = write(&rig, &live, 4, 1, 77);
    rig.executor.spawn(0, "write", async move { println!("write: {:?}", writing.await) });
    let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
    let stopping = async move {
        executor.sleep(Duration::from_millis(100)).await;
        array.stop().await
    };
    println!("stop: {:?}", all(&rig, &live, vec![stopping]));
    println!("members: {:?}", states(&live));
    let (after, live_after) = after_power_cut(&rig);
    rig.power_off();
    wait(&after, &live_after);
    let found = all(&after, &live_after, vec![read(&live_after, 8, 1)]).remove(0);
    assert!(
        found.as_ref().is_ok_and(|bytes| bytes[0] == content[8 * 512]),
        "sector 8: {found:?}",
        found = found.map(|b| b[0])
    );
    assert!(is_whole(&live_after));
    after.power_off();
}

/// The first failure of a sector, during a stop: one bad sector.
#[test]
fn a_stop_while_a_write_fails() {
    let (rig, live, _) = ready(1, 0, 2, 1);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    rig.disk(0).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(Duration::from_secs(1)) });
    let writing = write(&rig, &live, 4, 1, 77);
    rig.executor.spawn(0, "write", async move { println!("write: {:?}", writing.await) });
    let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
    let stopping = async move {
        executor.sleep(Duration::from_millis(100)).await;
        array.stop().await
    };
    println!("stop: {:?}", all(&rig, &live, vec![stopping]));
    assert!(!matches!(states(&live)[0], MemberState::Faulty { .. }), "{:?}", states(&live)[0]);
    rig.power_off();
}

/// The member is replaced while a correction writes to it; the new one has another data_offset.
#[test]
fn a_replacement_ends_during_a_correction() {
    let mut rig = big_rig(1, 2, 1, 24, 8, 40);
    let live = start_with(&mut rig, &[], &config());
    let content = fill(&rig, &live);
    let hang = |seconds: f64| Effect::Hang(Duration::from_secs_f64(seconds));
    rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 6, effect: hang(2.0) });
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.replace(Slot(1), None).await }]), [Ok(2)]);
    pause(&rig, &live, 500);
    rig.disk(1).add_latent([data_at(&rig) + 4]);
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect: hang(20.0) });
    for _ in 0..20 {
        assert!(all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).is_ok());
    }
    println!("before: {:?}", states(&live));
    pause(&rig, &live, 5000);
    println!("after: {:?}", states(&live));
    assert!(content_of(&rig, &live) == content);
    rig.power_off();
}

/// Too many read errors of A fail it, although B lists a sector that only A has.
#[test]
fn read_errors_fail_the_only_holder_of_a_sector() {
    let mut rig = rig_with_logs(1, 0, 2, 1);
    let live = start_with(&mut rig, &[2], &Config { read_errors_max: 3, ..config() });
    let mut content = fill(&rig, &live);
    rig.disk(1).add_broken([data_at(&rig) + 4]);
    overwrite(&rig, &live, &mut content);
    assert_eq!(sectors(&rig, 1), [4]);
    rig.disk(0).add_latent([8, 10, 12, 14, 16].map(|sector| data_at(&rig) + sector));
    for _ in 0..8 {
        for at in [8, 10, 12, 14, 16] {
            assert!(all(&rig, &live, vec![read(&live, at, 1)]).remove(0).is_ok());
        }
    }
    let found = all(&rig, &live, vec![read(&live, 4, 1)]).remove(0);
    println!("{:?}, sector 4: {:?}", states(&live), found.as_ref().map(|b| b[0]));
    assert!(found.is_ok_and(|bytes| bytes[0] == content[4 * 512]));
    rig.power_off();
}

/// Power tears the page of a log with more than 64 entries.
#[test]
fn a_torn_log_page_forgets_no_listed_sector() {
    let at = |n: u64| 4 + 2 * n;
    for steps in (0..4000).step_by(3) {
        let mut rig = big_rig(1, 2, 1, 200, 8, 0);
        let live = start_with(&mut rig, &[2], &wide());
        for start in (0..200).step_by(40) {
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, start, 40, 7)]), [Ok(())]);
        }
        flush(&rig, &live);
        rig.disk(0).add_broken((0..64).map(|n| data_at(&rig) + at(n)).collect::<Vec<_>>());
        for n in 0..64 {
            assert_eq!(all(&rig, &live, vec![write_as(&rig, &live, at(n), 1, 99, Fua::Yes)]), [Ok(())]);
        }
        flush(&rig, &live);
        let known = sectors(&rig, 0);
        assert_eq!(known.len(), 64);
        rig.disk(0).add_broken([data_at(&rig)]);
        let writing = write(&rig, &live, 0, 1, 55);
        let task = rig.executor.spawn(0, "write", async move {
            let _ = writing.await;
        });
        let (executor, end) = (rig.executor.clone(), rig.executor.now() + Duration::from_secs(60));
        executor.run(steps, end, || !executor.is_running(task));
        let is_over = !executor.is_running(task);
        for seed in 0..40 {
            let image = rig.disk(0).medium().image(CrashMode::Torn, &mut Rng::new(seed), None);
            let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
            let Ok(superblock) = Superblock::parse(bytes, Sector(8), rig.disk(0).geometry().size) else { continue };
            let list = bad_blocks_of(&image, &superblock).expect("a good log").expect("it has one");
            let lost = known
                .iter()
                .copied()
                .find(|sector| !list.overlaps(uraid_block::Range::new(Sector(data_at(&rig) + sector), Sectors(1))));
            let Some(lost) = lost else { continue };
            let images: Vec<_> = (0..3u16)
                .map(|disk| Some(if disk == 0 { image.clone() } else { rig.disk(disk).medium().durable().to_vec() }))
                .collect();
            rig.judge.unreadable.borrow_mut().extend(0..3);
            let mut after = rig.branch(images, Rng::new(5)).expect("whole superblocks");
            after.judge.is_over_budget.set(true);
            let mut plan = assembled_anywhere(&after);
            plan.members.retain(|member| member.place != uraid_engine::Place::Spare);
            let live_after = after.boot(&plan, &config()).expect("sizes agree");
            run(&after, &live_after, || live_after.started.get().is_some());
            wait(&after, &live_after);
            let found = all(&after, &live_after, vec![read(&live_after, lost, 1)]).remove(0);
            println!(
                "step {steps}, seed {seed}: sector {lost} is no longer listed, dirty: {}, read: {:?}",
                plan.is_dirty,
                found.as_ref().map(|b| b[0])
            );
            assert!(found.is_ok_and(|bytes| bytes[0] == 99), "a durable write of sector {lost} is lost");
            after.power_off();
        }
        rig.power_off();
        if is_over {
            return;
        }
    }
}

/// One broken sector under a long request.
#[test]
fn one_bad_sector_under_a_long_request() {
    let mut rig = big_rig(1, 2, 1, 20_000, 8, 0);
    let live = start_with(&mut rig, &[2], &wide());
    rig.disk(0).add_broken([data_at(&rig) + 19_000]);
    let array = live.arrays[0].clone();
    let zeroes = async move { array.write_zeroes(uraid_block::Range::new(Sector(0), Sectors(20_000))).await };
    println!("{:?}", all(&rig, &live, vec![zeroes]));
    pause(&rig, &live, 20_000);
    // Reads of what is listed.
    for at in (0..20_000).step_by(1000) {
        assert!(all(&rig, &live, vec![read(&live, at, 1)]).remove(0).is_ok());
    }
    pause(&rig, &live, 20_000);
    let left = listed(&rig, 0).sectors();
    println!("{left:?} sectors listed, {:?}", states(&live));
    assert!(left <= Sectors(8), "{left:?} are listed for one that is bad");
    rig.power_off();
}

/// A frozen mirror of three, whose first member lists a sector of the torn part.
#[test]
fn fail_in_a_frozen_mirror_with_a_listed_sector() {
    let (rig, live, mut content) = ready(1, 0, 3, 1);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    overwrite(&rig, &live, &mut content);
    assert_eq!(sectors(&rig, 0), [4]);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    let answers = all(&rig, &live, vec![write(&rig, &live, 3, 3, 99)]);
    assert_eq!(kind(&answers[0]), Some(ErrorKind::NoSpace));
    let found = all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).expect("the others have it")[0];
    let array = live.arrays[0].clone();
    let failing = async move { array.fail(SlotSet::EMPTY.with(Slot(2))).await };
    let outcome = all(&rig, &live, vec![failing]).remove(0);
    println!("reads give {found}; {outcome:?}");
    assert_eq!(outcome, Ok(()));
    assert_eq!(all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).expect("one has it")[0], found);
    rig.power_off();
}

/// The same with a row: what the listed block holds is computed.
#[test]
fn fail_in_a_frozen_row_with_a_listed_block() {
    let (rig, live, mut content) = ready(6, 2, 4, 1);
    let (own, other) = (place_of(&rig, 0), place_of(&rig, 2));
    assert_eq!(own.sector, other.sector);
    rig.disk(own.slot).add_broken([data_at(&rig) + own.sector]);
    overwrite(&rig, &live, &mut content);
    assert_eq!(sectors(&rig, own.slot), [own.sector]);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(other.slot).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    let answers = all(&rig, &live, vec![write(&rig, &live, 2, 1, 99)]);
    assert_eq!(kind(&answers[0]), Some(ErrorKind::NoSpace));
    let before = content_of(&rig, &live);
    let array = live.arrays[0].clone();
    let failing = async move { array.fail(SlotSet::EMPTY.with(Slot(other.slot))).await };
    assert_eq!(all(&rig, &live, vec![failing]), [Ok(())]);
    assert!(content_of(&rig, &live) == before);
    rig.power_off();
}

/// A write of a listed, broken sector ends after the array has frozen for another reason.
#[test]
fn a_listed_write_ends_after_a_freeze() {
    let (rig, live, mut content) = ready(1, 0, 3, 1);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    overwrite(&rig, &live, &mut content);
    assert_eq!(sectors(&rig, 0), [4]);
    rig.disk(0).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(Duration::from_secs(1)) });
    let writing = write(&rig, &live, 4, 1, 77);
    rig.executor.spawn(0, "write", async move { println!("write: {:?}", writing.await) });
    pause(&rig, &live, 100);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    let answers = all(&rig, &live, vec![write(&rig, &live, 10, 1, 99)]);
    assert_eq!(kind(&answers[0]), Some(ErrorKind::NoSpace));
    pause(&rig, &live, 3000);
    let array = live.arrays[0].clone();
    let failing = async move { array.fail(SlotSet::EMPTY.with(Slot(2))).await };
    let outcome = all(&rig, &live, vec![failing]).remove(0);
    println!("{outcome:?}, {:?}", states(&live));
    assert_eq!(outcome, Ok(()));
    rig.power_off();
}

/// raid5: an earlier write of D1 is in its cache; a FUA write of D0 fails there and is listed: it is D1 and P now.
#[test]
fn a_fua_write_that_is_listed_survives_a_power_cut() {
    for (level, layout, slots) in [(6, 2, 4), (5, 2, 3)] {
        let (rig, live, _) = ready(level, layout, slots, 1);
        flush(&rig, &live);
        let (own, other) = (place_of(&rig, 0), place_of(&rig, 2));
        assert_eq!(own.sector, other.sector);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 2, 1, 88)]), [Ok(())]);
        rig.disk(own.slot).add_broken([data_at(&rig) + own.sector]);
        assert_eq!(all(&rig, &live, vec![write_as(&rig, &live, 0, 1, 99, Fua::Yes)]), [Ok(())]);
        assert_eq!(sectors(&rig, own.slot), [own.sector]);
        let (after, live_after) = after_power_cut(&rig);
        rig.power_off();
        wait(&after, &live_after);
        let found = all(&after, &live_after, vec![read(&live_after, 0, 1)]).remove(0);
        println!("raid{level}: {:?}", found.as_ref().map(|bytes| bytes[0]));
        assert!(found.is_ok_and(|bytes| bytes[0] == 99), "raid{level}");
        after.power_off();
    }
}

/// The reader of a frozen array saw the second copy; after a stop and a start it is the first one again.
#[test]
fn what_a_frozen_array_gave_is_there_after_its_next_start() {
    let (rig, live, _) = ready(1, 0, 2, 1);
    flush(&rig, &live);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(1).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect });
    let answers = all(&rig, &live, vec![write_as(&rig, &live, 4, 1, 99, Fua::Yes)]);
    let frozen = all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).map(|bytes| bytes[0]);
    println!("write {answers:?}, frozen: {frozen:?}, {:?}", live.arrays[0].view().gate);
    let (after, live_after) = after_power_cut(&rig);
    rig.power_off();
    wait(&after, &live_after);
    let found = all(&after, &live_after, vec![read(&live_after, 4, 1)]).remove(0).map(|bytes| bytes[0]);
    println!("after: {found:?}");
    assert_eq!(frozen, found);
    after.power_off();
}

/// As the one before, but the list is cleared in memory only.
#[test]
fn what_a_frozen_array_gave_after_a_clear() {
    let (rig, live, mut content) = ready(1, 0, 2, 1);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    overwrite(&rig, &live, &mut content);
    rig.disk(0).mend();
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    rig.disk(1).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect });
    let writing = write_as(&rig, &live, 4, 1, 99, Fua::Yes);
    let task = rig.executor.spawn(0, "write", async move {
        let _ = writing.await;
    });
    run(&rig, &live, || !rig.executor.is_running(task));
    let frozen = all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).map(|bytes| bytes[0]);
    let gate = live.arrays[0].view().gate;
    let (after, live_after) = after_power_cut(&rig);
    rig.power_off();
    wait(&after, &live_after);
    let found = all(&after, &live_after, vec![read(&live_after, 4, 1)]).remove(0).map(|bytes| bytes[0]);
    println!("frozen: {frozen:?} {gate:?}, after: {found:?}");
    assert_eq!(frozen, found);
    after.power_off();
}

/// As the one before, but the record of the list waits for another round when the array freezes.
#[test]
fn what_a_frozen_array_gave_is_there_though_its_log_was_not_written() {
    let (rig, live, content) = ready(1, 0, 2, 1);
    flush(&rig, &live);
    rig.disk(0).add_broken([data_at(&rig) + 4, data_at(&rig) + 10]);
    rig.disk(1).add_fault(Fault {
        victim: Target::SuperWrites,
        after: 0,
        effect: Effect::Hang(Duration::from_secs(1)),
    });
    let first = write(&rig, &live, 10, 1, 98);
    rig.executor.spawn(0, "write", async move { println!("first: {:?}", first.await) });
    pause(&rig, &live, 100);
    let second = write_as(&rig, &live, 4, 1, 99, Fua::Yes);
    rig.executor.spawn(0, "write", async move { println!("second: {:?}", second.await) });
    pause(&rig, &live, 100);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    println!("third: {:?}", all(&rig, &live, vec![write(&rig, &live, 20, 1, 97)]));
    pause(&rig, &live, 3000);
    let frozen = all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).map(|bytes| bytes[0]);
    println!("before {}, frozen: {frozen:?}, {:?}", content[4 * 512], live.arrays[0].view().gate);
    let (after, live_after) = after_power_cut(&rig);
    rig.power_off();
    let found = all(&after, &live_after, vec![read(&live_after, 4, 1)]).remove(0).map(|bytes| bytes[0]);
    println!("after: {found:?}");
    assert_eq!(frozen, found);
    after.power_off();
}

/// Until the resync, two reads of one sector agree, whatever else they read.
#[test]
fn two_reads_of_a_dirty_mirror_agree() {
    for seed in 0..50 {
        let (rig, live, mut content) = ready(1, 0, 2, 1);
        rig.disk(0).add_broken([data_at(&rig) + 14]);
        overwrite(&rig, &live, &mut content);
        assert_eq!(sectors(&rig, 0), [14]);
        // As a write that power cut left on one copy only.
        rig.disk(1).flip(data_at(&rig) + 15, 3);
        let (after, live_after) = restarted(&rig, seed, &config());
        rig.power_off();
        assert_eq!(live_after.arrays[0].view().copies, uraid_engine::view::Copies::Canonical, "it is dirty");
        let found = all(&after, &live_after, vec![read(&live_after, 13, 4), read(&live_after, 15, 1)]);
        let of = |at: usize, sector: usize| found[at].as_ref().expect("it is read")[sector * 512..][..512].to_vec();
        let copies = live_after.arrays[0].view().copies;
        assert!(of(0, 2) == of(1, 0), "seed {seed}: two reads of sector 15 differ, {copies:?}");
        after.power_off();
    }
}

/// A replacement and a member of another slot cannot write the same sector.
#[test]
fn a_replacement_that_fails_costs_no_other_member() {
    let mut rig = big_rig(1, 2, 1, 24, 8, 0);
    let live = start_with(&mut rig, &[], &config());
    let _ = fill(&rig, &live);
    rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 6, effect: Effect::Hang(Duration::from_secs(5)) });
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.replace(Slot(0), None).await }]), [Ok(2)]);
    pause(&rig, &live, 300);
    rig.disk(1).add_broken([data_at(&rig) + 1]);
    rig.disk(2).add_broken([data_at(&rig) + 1]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 1, 1, 9)]), [Ok(())]);
    println!("{:?}", states(&live));
    assert_eq!(states(&live)[1], MemberState::Active(Slot(1)));
    rig.power_off();
}

/// A write fails before the resync has passed: its correction "waits until the resync has passed" (decision 0017).
#[test]
fn a_correction_waits_for_the_resync() {
    let shape = Shape { level: 1, layout: 0, chunk: 0, slots: 2, size: 200, member_sizes: Vec::new() };
    let mut rng = Rng::new(13);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { starts_dirty: true, data_sizes: vec![200; 2], ..Setup::plain(shape) }.with_logs();
    let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    // The resync passes the first sectors, and hangs in a later window.
    let live = open_with(&mut rig, &[], &Config { pass_window: Sectors(50), ..wide() });
    rig.disk(1).add_fault(Fault { victim: Target::Reads, after: 1, effect: Effect::Hang(Duration::from_secs(3)) });
    pause(&rig, &live, 500);
    rig.disk(0).add_broken([data_at(&rig) + 20]);
    println!("write: {:?}, {:?}", all(&rig, &live, vec![write(&rig, &live, 0, 40, 9)]), live.arrays[0].view().copies);
    wait(&rig, &live);
    pause(&rig, &live, 20_000);
    for at in 0..40 {
        assert!(all(&rig, &live, vec![read(&live, at, 1)]).remove(0).is_ok());
    }
    pause(&rig, &live, 20_000);
    println!("{:?} {:?}", sectors(&rig, 0).len(), live.arrays[0].view().copies);
    assert!(sectors(&rig, 0).len() <= 8);
    rig.power_off();
}

/// What a repair reports, when one of two wrong sectors of a window cannot be written.
#[test]
fn a_repair_whose_window_is_repeated_counts_each_sector_once() {
    let mut rig = big_rig(1, 3, 1, 24, 8, 0);
    let live = start_with(&mut rig, &[3], &wide());
    let content = fill(&rig, &live);
    let at = |sector: u64| data_at(&rig) + sector;
    [3, 9, 15].iter().for_each(|sector| rig.disk(1).flip(at(*sector), 3));
    rig.disk(1).add_broken([at(15)]);
    let array = live.arrays[0].clone();
    array.begin_repair().expect("it begins");
    run(&rig, &live, || array.checked().is_some());
    let checked = array.checked().expect("it has ended");
    println!("{:?}, listed {:?}", checked, sectors(&rig, 1));
    assert!(content_of(&rig, &live) == content);
    assert_eq!(checked.progress.mismatched, Sectors(3));
    rig.power_off();
}

/// A copy that lists a stretch gets, sector by sector, what the others were found to hold: what one of them has wrong in
/// one sector decides about that sector only.
#[test]
fn a_repair_gives_a_listed_stretch_what_was_judged_for_each_of_its_sectors() {
    for (level, layout, wrong) in [(1, 0, 0), (1, 0, 1), (1, 0, 2), (10, 0x104, 0), (10, 0x104, 2), (10, 0x401, 1)] {
        for sector in 0..12 {
            let case = format!("raid{level} {layout:#x}, sector {sector} of slot {wrong}");
            let (rig, live, mut content) = ready_with(level, layout, &wide());
            let at = |sector: u64| data_at(&rig) + sector;
            rig.disk(3).add_broken((0..12).map(at).collect::<Vec<_>>());
            overwrite(&rig, &live, &mut content);
            assert_eq!(sectors(&rig, 3), (0..12).collect::<Vec<_>>(), "{case}");
            rig.disk(3).mend();
            rig.disk(wrong).flip(at(sector), 3);
            let array = live.arrays[0].clone();
            array.begin_repair().expect("it begins");
            run(&rig, &live, || array.checked().is_some());
            assert_eq!(array.checked().expect("it has ended").progress.mismatched, Sectors(1), "{case}");
            assert_eq!(sectors(&rig, 3), [], "{case}: it was written");
            for slot in 0..3 {
                fail(&rig, &live, slot);
            }
            assert!(content_of(&rig, &live) == content, "{case}: what slot 3 holds");
            rig.power_off();
        }
    }
}

/// No client writes, and a stop comes while a sector that can neither be read nor written is corrected.
#[test]
fn a_stop_during_a_correction() {
    let (rig, live, content) = ready(1, 0, 2, 1);
    flush(&rig, &live);
    rig.disk(0).add_unreadable([data_at(&rig) + 4]);
    rig.disk(0).add_broken([data_at(&rig) + 4]);
    rig.disk(0).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(Duration::from_secs(1)) });
    for _ in 0..10 {
        assert_eq!(all(&rig, &live, vec![read(&live, 4, 1)]).remove(0).expect("the other has it")[0], content[4 * 512]);
    }
    let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
    let stopping = async move {
        executor.sleep(Duration::from_millis(100)).await;
        array.stop().await
    };
    println!("stop: {:?}", all(&rig, &live, vec![stopping]));
    assert!(!matches!(states(&live)[0], MemberState::Faulty { .. }), "{:?}", states(&live)[0]);
    rig.power_off();
}
