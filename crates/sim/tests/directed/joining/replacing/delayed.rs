//! Replacements in which one thing takes its time while another happens.
//! Owns: what a review of replacements found: each fails without its mend. Not here: failures and power cuts at each step
//! (`replacing`).

use super::*;
use uraid_engine::{FailError, SpeedLimits};

fn sleep(rig: &Rig, live: &Live, time: Duration) {
    let pause = rig.executor.clone();
    all(rig, live, vec![async move { pause.sleep(time).await }]);
}

fn do_now<T: 'static>(ready: &Ready, work: impl Future<Output = T> + 'static) -> T {
    all(&ready.rig, &ready.live, vec![work]).remove(0)
}

fn hangs_for(ready: &Ready, disk: u16, victim: Target, time: Duration) {
    ready.rig.disk(disk).add_fault(Fault { victim, after: 0, effect: Effect::Hang(time) });
}

/// Waits until the copy has written its last sector.
fn wait_for_last_sector(ready: &Ready) {
    let spare = ready.rig.judge.disks.len() as u16 - 1;
    run(&ready.rig, &ready.live, || ready.rig.disk(spare).medium().current()[39 * 512] != 0);
}

/// The copy to one spare is paused, the spare fails, and another one takes its place: it holds nothing yet.
#[test]
fn another_spare_is_copied_to_from_the_beginning() {
    for (level, layout, slots) in [(5, 2, 3), (1, 0, 2), (10, 0x102, 4)] {
        let mut ready = ready(level, layout, slots, 1);
        let array = ready.live.arrays[0].clone();
        let slow = array.clone();
        do_now(&ready, async move { slow.set_speed(SpeedLimits { min: None, max: Some(2), share: None }).await });
        ready.replace(1).expect("there is a spare");
        sleep(&ready.rig, &ready.live, Duration::from_secs(2));
        let (pausing, failing) = (array.clone(), array.clone());
        do_now(&ready, async move { pausing.pause_passes(true).await });
        assert_eq!(do_now(&ready, async move { failing.fail_replacement(Slot(1)).await }), Ok(()));
        assert_eq!(leave(&ready.rig, &ready.live, ready.spare), Ok(()));
        wipe(&ready.rig, slots);
        ready.spare = join(&ready.rig, &ready.live, slots).expect("it joins");
        assert_eq!(ready.replace(1), Ok(ready.spare));
        do_now(&ready, async move {
            array.set_speed(SpeedLimits::default()).await;
            array.pause_passes(false).await;
        });
        wait(&ready.rig, &ready.live);
        assert_eq!(ready.state(ready.spare), MemberState::Active(Slot(1)), "raid{level}");
        need(&ready.rig, &ready.live, 1);
        assert!(content_of(&ready.rig, &ready.live) == ready.content, "raid{level}");
        ready.rig.power_off();
    }
}

#[test]
fn a_read_that_fails_once_leaves_no_hole_in_the_new_member() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 3), (4, 0, 4), (5, 2, 3), (6, 2, 4)] {
        for after in 0..12 {
            for times in 1..=2 {
                let ready = ready(level, layout, slots, 1);
                for _ in 0..times {
                    let effect = Effect::Error(ErrorKind::Media);
                    ready.rig.disk(1).add_fault(Fault { victim: Target::Reads, after, effect });
                }
                ready.replace(1).expect("there is a spare");
                wait(&ready.rig, &ready.live);
                need(&ready.rig, &ready.live, 1);
                assert!(
                    content_of(&ready.rig, &ready.live) == ready.content,
                    "raid{level}, read {after}, {times} times"
                );
                ready.rig.power_off();
            }
        }
    }
}

/// A member that does not answer delays a stop, until it is failed by command.
#[test]
fn a_second_member_that_delays_a_stop_can_be_failed() {
    let ready = ready(5, 2, 3, 1);
    ready.wait_until_clean();
    let array = ready.live.arrays[0].clone();
    ready.replace(1).expect("there is a spare");
    ready.rig.disk(3).hang_without_deadline();
    for at in 0..4 {
        let writing = write(&ready.rig, &ready.live, 3 * at, 1, 99);
        ready.rig.executor.spawn(0, "write", async move { assert_eq!(writing.await, Ok(())) });
    }
    sleep(&ready.rig, &ready.live, Duration::from_millis(100));
    let (stopping, pause) = (array.clone(), ready.rig.executor.clone());
    let stop = ready.rig.executor.spawn(0, "stop", async move { assert_eq!(stopping.stop().await, Ok(())) });
    let failed: Result<(), FailError> = do_now(&ready, async move {
        pause.sleep(Duration::from_secs(1)).await;
        array.fail_replacement(Slot(1)).await
    });
    assert_eq!(failed, Ok(()));
    sleep(&ready.rig, &ready.live, Duration::from_secs(5));
    assert!(!ready.rig.executor.is_running(stop));
    ready.rig.power_off();
}

/// Requests to the old member have no answer when the new one takes its slot. They are answered by the new one, and no
/// later request waits for the old one.
#[test]
fn requests_that_a_replaced_member_does_not_answer_are_served() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 4), (5, 2, 3)] {
        let mut ready = ready(level, layout, slots, 1);
        ready.replace(1).expect("there is a spare");
        hangs_for(&ready, 0, Target::Flushes, Duration::from_millis(300));
        wait_for_last_sector(&ready);
        sleep(&ready.rig, &ready.live, Duration::from_millis(50));
        ready.rig.disk(1).hang_without_deadline();
        let mut tasks = Vec::new();
        for at in 0..20 {
            let reading = read(&ready.live, at, 1);
            tasks.push(ready.rig.executor.spawn(0, "read", async move { assert!(reading.await.is_ok()) }));
        }
        for at in 0..4 {
            let writing = write(&ready.rig, &ready.live, 3 * at, 1, 99);
            tasks.push(ready.rig.executor.spawn(0, "write", async move { assert_eq!(writing.await, Ok(())) }));
            ready.content[3 * at as usize * 512..][..512].fill(99);
        }
        wait(&ready.rig, &ready.live);
        sleep(&ready.rig, &ready.live, Duration::from_secs(5));
        assert!(!tasks.iter().any(|task| ready.rig.executor.is_running(*task)), "raid{level}");
        let before = ready.rig.disk(slots).reads();
        for _ in 0..5 {
            assert!(content_of(&ready.rig, &ready.live) == ready.content, "raid{level}");
        }
        assert!(ready.rig.disk(slots).reads() > before, "raid{level}: the new member is read");
        let array = ready.live.arrays[0].clone();
        assert_eq!(do_now(&ready, async move { array.stop().await }), Ok(()), "raid{level}");
        ready.rig.power_off();
    }
}

/// A second member whose superblock cannot be brought up to date at a start.
#[test]
fn a_second_member_that_fails_in_the_start_is_recorded() {
    let ready = ready(5, 2, 3, 1);
    ready.wait_until_clean();
    let hang = Effect::Hang(Duration::from_secs(5));
    ready.rig.disk(3).add_fault(Fault { victim: Target::Writes, after: 5, effect: hang });
    ready.replace(1).expect("there is a spare");
    let (array, pause) = (ready.live.arrays[0].clone(), ready.rig.executor.clone());
    let stopped = do_now(&ready, async move {
        pause.sleep(Duration::from_secs(1)).await;
        array.stop().await
    });
    assert_eq!(stopped, Ok(()));
    let disks = &ready.rig.judge.disks;
    let images = disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
    ready.rig.judge.unreadable.borrow_mut().extend(0..disks.len() as u16);
    let mut after = ready.rig.branch(images, Rng::new(3)).expect("whole superblocks");
    after.judge.is_over_budget.set(true);
    after.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    change_superblock(&after, 3, |superblock| superblock.events -= 1);
    let plan = assembled_anywhere(&after);
    after.disk(3).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect: Effect::Error(ErrorKind::Media) });
    let live = after.boot(&plan, &config()).expect("sizes agree");
    run(&after, &live, || live.started.get().is_some());
    assert_eq!(live.started.get(), Some(true));
    wait(&after, &live);
    let index = plan.members.iter().position(|member| member.candidate == 3).expect("in the plan");
    assert_eq!(leave(&after, &live, index), Ok(()));
    after.power_off();
    ready.rig.power_off();
}

/// A row is planned while the slot has its old member, and written when it has the new one: by the end of the copy, or
/// because the old one fails. If the write is answered, it must be there after a power cut, or after a mere kill.
fn survives(level: i32, slots: u16, at: u64, fails_first: bool) -> Option<bool> {
    let ready = ready(level, 2, slots, 1);
    ready.replace(1).expect("there is a spare");
    if fails_first {
        // The copy does not end before the first member fails.
        hangs_for(&ready, 0, Target::Flushes, Duration::from_secs(2));
    }
    wait_for_last_sector(&ready);
    // The reads of the row are slow; so is the record that the slot has another member.
    for disk in (0..=slots).filter(|disk| *disk != 1) {
        hangs_for(&ready, disk, Target::Reads, Duration::from_millis(300));
    }
    hangs_for(&ready, 0, Target::SuperWrites, Duration::from_secs(5));
    let writing = write_as(&ready.rig, &ready.live, at, 1, 99, if fails_first { Fua::No } else { Fua::Yes });
    let answer: Rc<Cell<Option<bool>>> = Rc::default();
    let given = answer.clone();
    ready.rig.executor.spawn(0, "write", async move { given.set(Some(writing.await.is_ok())) });
    if fails_first {
        let (array, pause) = (ready.live.arrays[0].clone(), ready.rig.executor.clone());
        ready.rig.executor.spawn(0, "fail", async move {
            pause.sleep(Duration::from_millis(100)).await;
            let _ = array.fail(SlotSet::EMPTY.with(Slot(1))).await;
        });
    }
    let (executor, end) = (ready.rig.executor.clone(), ready.rig.executor.now() + Duration::from_secs(4));
    run(&ready.rig, &ready.live, || answer.get().is_some() || executor.now() >= end);
    let is_there = (answer.get() == Some(true)).then(|| {
        if fails_first {
            // Only the process is killed: all that was written is there.
            for disk in &ready.rig.judge.disks {
                let image = disk.medium().current().to_vec();
                disk.replace(image);
            }
        }
        let (after, live, _) = after_power_cut(&ready, at);
        let found = content_of(&after, &live);
        after.power_off();
        found[at as usize * 512] == 99
    });
    ready.rig.power_off();
    is_there
}

#[test]
fn a_row_that_was_planned_before_its_slot_had_another_member_is_not_answered_too_early() {
    for (level, slots) in [(5, 3), (6, 4), (5, 4)] {
        for fails_first in [false, true] {
            let size = 24 * u64::from(slots - if level == 6 { 2 } else { 1 });
            for at in 0..size {
                let is_there = survives(level, slots, at, fails_first);
                assert_ne!(is_there, Some(false), "raid{level} of {slots}, sector {at}, first fails: {fails_first}");
            }
        }
    }
}
