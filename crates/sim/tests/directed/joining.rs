//! Members that join and leave while the array runs.
//! Owns: what a device that joins holds afterwards, a crash at each step of it, what must be durable before it takes a
//! slot, failures meanwhile. Not here: spares that are given at the start (`spares`), the devices of real machines
//! (`uraid`'s own tests).

mod replacing;

use super::spares::{CASES, content_of, fail, fill, rig_with_spare, wait};
use super::*;
use uraid_engine::{AddError, AssembleOptions, Candidate, Place, RemoveError, assemble};
use uraid_format::{FlagChange, Joining, added_superblock};
use uraid_sim::image::bits::bitmap_of;
use uraid_sim::image::ppl::ppl_of;
use uraid_sim::judge::bad_block_log_of;
use uraid_sim::machine::member::{SimMember, Watch};

/// An array whose last disk is blank, and no member yet.
pub(super) fn rig_with_blank(level: i32, layout: u32, slots: u16, shards: u16) -> Rig {
    let rig = rig_with_spare(level, layout, slots, shards);
    wipe(&rig, slots);
    rig
}

pub(super) fn wipe(rig: &Rig, disk: u16) {
    let length = rig.disk(disk).medium().current().len();
    rig.disk(disk).replace(vec![0; length]);
    // Its superblock cannot be read, until it has one.
    rig.judge.unreadable.borrow_mut().insert(disk);
}

fn start_without_blank(rig: &mut Rig) -> Live {
    let slots = rig.setup.shape.slots;
    start(rig, &[slots])
}

/// Lets a disk join. Returns its index, or the error with which that has ended; then it is let go.
pub(super) fn joining(rig: &Rig, live: &Live, disk: u16) -> impl Future<Output = Result<usize, AddError>> + 'static {
    let (arrays, device) = (live.arrays.clone(), rig.disk(disk).clone());
    async move {
        // It is opened anew.
        device.change_process();
        let vacancy = arrays[0].vacancy()?;
        let joining = Joining {
            size: device.geometry().size,
            uuid: [disk as u8; 16],
            number: vacancy.number,
            flags: FlagChange::default(),
            bitmap: Sectors::ZERO,
        };
        let superblock = added_superblock(&vacancy.template, &joining).expect("it is large enough");
        let index = arrays[0].reserve(superblock)?;
        arrays.iter().for_each(|array| array.install(index, SimMember(device.clone())));
        let outcome = arrays[0].add(index).await;
        if outcome.is_err() {
            arrays.iter().for_each(|array| array.let_go(index));
        }
        outcome.map(|()| index)
    }
}

fn join(rig: &Rig, live: &Live, disk: u16) -> Result<usize, AddError> {
    all(rig, live, vec![joining(rig, live, disk)]).remove(0)
}

pub(super) fn leaving(live: &Live, index: usize) -> impl Future<Output = Result<(), RemoveError>> + 'static {
    let arrays = live.arrays.clone();
    async move {
        let outcome = arrays[0].remove(index).await;
        if arrays[0].status().members[index] == MemberState::Removed {
            arrays.iter().for_each(|array| array.let_go(index));
        }
        outcome
    }
}

fn leave(rig: &Rig, live: &Live, index: usize) -> Result<(), RemoveError> {
    all(rig, live, vec![leaving(live, index)]).remove(0)
}

/// Fails another member, so that the bytes of the one in `slot` are needed.
fn need(rig: &Rig, live: &Live, slot: u16) {
    let status = live.arrays[0].status();
    for other in (0..status.slots).filter(|other| *other != slot) {
        if live.arrays[0].layout().can_serve(&status.usable.without(Slot(other))) {
            return fail(rig, live, other);
        }
    }
}

#[test]
fn a_blank_device_takes_the_slot_of_a_removed_member_and_holds_all_of_it() {
    for (level, layout, slots) in CASES {
        for shards in [1, 3] {
            let victim = slots - 1;
            let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}, {shards} shards");
            let mut rig = rig_with_blank(level, layout, slots, shards);
            let live = start_without_blank(&mut rig);
            let content = fill(&rig, &live);
            assert_eq!(leave(&rig, &live, victim.into()), Err(RemoveError::InUse), "{case}");
            fail(&rig, &live, victim);
            assert_eq!(leave(&rig, &live, victim.into()), Ok(()), "{case}");
            assert_eq!(leave(&rig, &live, victim.into()), Err(RemoveError::Gone), "{case}");
            let index = join(&rig, &live, slots).expect(&case);
            wait(&rig, &live);
            let status = live.arrays[0].status();
            assert_eq!(status.members[index], MemberState::Active(Slot(victim)), "{case}");
            assert_eq!(status.members[usize::from(victim)], MemberState::Removed, "{case}");
            need(&rig, &live, victim);
            assert!(content_of(&rig, &live) == content, "{case}");
            rig.power_off();
        }
    }
}

/// The array knows of a failure before its superblocks do.
#[test]
fn a_member_whose_failure_is_being_recorded_is_removed_when_it_is() {
    for (level, layout, slots) in CASES {
        let victim = slots - 1;
        let case = format!("raid{level} {layout:#x} of {slots}");
        let mut rig = rig_with_blank(level, layout, slots, 1);
        let live = start_without_blank(&mut rig);
        let array = live.arrays[0].clone();
        let failing = async move { assert_eq!(array.fail(SlotSet::EMPTY.with(Slot(victim))).await, Ok(())) };
        let (array, executor, leaving) = (live.arrays[0].clone(), rig.executor.clone(), leaving(&live, victim.into()));
        let removing = async move {
            while array.status().usable.contains(Slot(victim)) {
                executor.sleep(Duration::from_micros(1)).await;
            }
            assert_eq!(leaving.await, Ok(()), "{case}");
        };
        all(&rig, &live, vec![Box::pin(failing) as Pin<Box<dyn Future<Output = _>>>, Box::pin(removing)]);
        rig.power_off();
    }
}

/// The array ended nothing of the first life of the device: it has another index.
#[test]
fn a_device_that_failed_was_removed_and_joins_again_works_as_if_it_were_new() {
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 4), (6, 2, 5), (10, 0x102, 4)] {
        let mut rig = rig_with_blank(level, layout, slots, 3);
        rig.disk(1).set_watch(None);
        let live = start_without_blank(&mut rig);
        let content = fill(&rig, &live);
        let mut index = 1;
        for _ in 0..3 {
            fail(&rig, &live, 1);
            assert_eq!(leave(&rig, &live, index), Ok(()), "raid{level}");
            index = join(&rig, &live, 1).expect("it joins again");
            wait(&rig, &live);
            assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)), "raid{level}");
        }
        need(&rig, &live, 1);
        assert!(content_of(&rig, &live) == content, "raid{level}");
        rig.power_off();
    }
}

#[test]
fn a_spare_that_joins_a_healthy_array_waits_and_can_leave_again() {
    let mut rig = rig_with_blank(5, 2, 4, 2);
    let live = start_without_blank(&mut rig);
    let content = fill(&rig, &live);
    let index = join(&rig, &live, 4).expect("it joins");
    assert_eq!(live.arrays[0].status().members[index], MemberState::Spare);
    assert_eq!(leave(&rig, &live, index), Ok(()));
    let again = join(&rig, &live, 4).expect("it joins again");
    assert!(again > index, "an index is never used again");
    fail(&rig, &live, 0);
    wait(&rig, &live);
    assert_eq!(live.arrays[0].status().members[again], MemberState::Active(Slot(0)));
    need(&rig, &live, 0);
    assert!(content_of(&rig, &live) == content);
    rig.power_off();
}

/// The plan for all disks that have a superblock, whichever slots they are in.
pub(super) fn assembled_anywhere(rig: &Rig) -> StartPlan {
    assembled_with(rig, &AssembleOptions::default())
}

/// The same with these options. Bitmaps, bad-block lists and partial parity logs are read, where there are any.
pub(super) fn assembled_with(rig: &Rig, options: &AssembleOptions) -> StartPlan {
    let (mut disks, mut candidates, mut bitmaps) = (Vec::new(), Vec::new(), Vec::new());
    for (at, disk) in rig.judge.disks.iter().enumerate() {
        disk.set_watch(None);
        let image = disk.medium().current().to_vec();
        let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
        let device_size = disk.geometry().size;
        if let Ok(superblock) = Superblock::parse(bytes, Sector(8), device_size) {
            let bad_blocks = bad_block_log_of(&image, &superblock).expect("a good log");
            let ppl = ppl_of(&image, &superblock);
            bitmaps.push(bitmap_of(&image, &superblock));
            disks.push(at);
            candidates.push(Candidate { bad_blocks, ppl, ..Candidate::new(superblock, device_size) });
        }
    }
    let mut plan = assemble(&candidates, options).expect("it starts");
    plan.take_bitmaps(|candidate| bitmaps[candidate].clone());
    plan.members.iter_mut().for_each(|member| member.candidate = disks[member.candidate]);
    plan
}

/// Power fails after each step of a run in which a failed member leaves and a blank device joins.
#[test]
fn whenever_power_fails_the_array_starts_with_all_its_data() {
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 3), (10, 0x102, 3)] {
        let (mut seen_none, mut seen_spare, mut seen_recovering, mut seen_whole) = (0, 0, 0, 0);
        for step in (0..).step_by(3) {
            let mut rig = rig_with_blank(level, layout, slots, 1);
            let live = start_without_blank(&mut rig);
            let content = fill(&rig, &live);
            // An idle array is flushed, and clean.
            let array = live.arrays[0].clone();
            run(&rig, &live, || !array.status().is_dirty);
            fail(&rig, &live, 1);
            let (leaving, joining) = (leaving(&live, 1), joining(&rig, &live, slots));
            let array = live.arrays[0].clone();
            let task = rig.executor.spawn(0, "change", async move {
                leaving.await.expect("it failed before");
                joining.await.expect("there is room");
                array.wait(|_| {}).await.expect("it ends");
            });
            let executor = rig.executor.clone();
            let end = executor.now() + Duration::from_secs(60);
            executor.run(step, end, || !executor.is_running(task));
            let is_over = !executor.is_running(task);
            let images: Vec<Vec<u8>> = rig.judge.disks.iter().map(|disk| disk.medium().durable().to_vec()).collect();
            let has_superblock = |image: &Vec<u8>| image[8 * 512..8 * 512 + 4] != [0; 4];
            let is_blank = !has_superblock(&images[usize::from(slots)]);
            if !is_blank {
                rig.judge.unreadable.borrow_mut().remove(&slots);
            }
            let mut after = rig.branch(images.into_iter().map(Some).collect(), Rng::new(8)).expect("whole superblocks");
            after.judge.is_over_budget.set(true);
            let plan = assembled_anywhere(&after);
            let place = plan.members.iter().find(|member| member.candidate == usize::from(slots));
            match place.map(|member| member.place) {
                None => seen_none += 1,
                Some(Place::Spare) => seen_spare += 1,
                Some(Place::Recovering { .. }) => seen_recovering += 1,
                Some(Place::Slot(_)) => seen_whole += 1,
                Some(Place::Replacing { .. }) => panic!("no member is replaced"),
            }
            let live_after = after.boot(&plan, &Config::default()).expect("sizes agree");
            run(&after, &live_after, || live_after.started.get().is_some());
            assert_eq!(live_after.started.get(), Some(true), "raid{level}, step {step}");
            assert!(content_of(&after, &live_after) == content, "raid{level}, step {step}");
            wait(&after, &live_after);
            if !is_blank {
                need(&after, &live_after, 1);
                assert!(content_of(&after, &live_after) == content, "raid{level}, step {step}");
            }
            after.power_off();
            rig.power_off();
            if is_over {
                break;
            }
        }
        assert!(seen_none > 0 && seen_spare + seen_recovering > 0 && seen_whole > 0, "raid{level}");
    }
}

#[test]
fn a_failed_member_leaves_while_requests_to_it_have_no_answer() {
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 4), (10, 0x102, 4)] {
        let mut rig = rig_with_blank(level, layout, slots, 3);
        let live = start_without_blank(&mut rig);
        let mut content = fill(&rig, &live);
        for victim in [Target::Writes, Target::Reads] {
            rig.disk(1).add_fault(Fault { victim, after: 0, effect: Effect::Hang(Duration::from_secs(20)) });
        }
        let writes: Vec<_> = (0..8).map(|at| write(&rig, &live, at, 1, 77)).collect();
        let (array, pause) = (live.arrays[0].clone(), rig.executor.clone());
        let leaving = leaving(&live, 1);
        let changing = rig.executor.spawn(0, "change", async move {
            pause.sleep(Duration::from_millis(5)).await;
            array.fail(SlotSet::EMPTY.with(Slot(1))).await.expect("the others are enough");
            leaving.await.expect("it has failed");
        });
        assert!(all(&rig, &live, writes).iter().all(Result::is_ok), "raid{level}");
        content[..8 * 512].fill(77);
        run(&rig, &live, || !rig.executor.is_running(changing));
        let index = join(&rig, &live, slots).expect("it joins");
        wait(&rig, &live);
        assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)), "raid{level}");
        let pause = rig.executor.clone();
        all(&rig, &live, vec![async move { pause.sleep(Duration::from_secs(30)).await }]);
        assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)), "raid{level}");
        need(&rig, &live, 1);
        assert!(content_of(&rig, &live) == content, "raid{level}");
        rig.power_off();
    }
}

#[test]
fn a_member_that_joined_and_fails_in_its_recovery_leaves_and_joins_again() {
    for (level, layout, slots) in [(1, 0, 3), (5, 2, 4), (6, 2, 5)] {
        let mut rig = rig_with_blank(level, layout, slots, 1);
        let live = start_without_blank(&mut rig);
        let content = fill(&rig, &live);
        fail(&rig, &live, 1);
        rig.disk(slots).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Error(ErrorKind::Media) });
        let index = join(&rig, &live, slots).expect("it joins");
        wait(&rig, &live);
        let state = live.arrays[0].status().members[index];
        assert!(matches!(state, MemberState::Faulty { .. }), "raid{level}: {state:?}");
        assert_eq!(leave(&rig, &live, index), Ok(()), "raid{level}");
        rig.disk(slots).forget_faults();
        let index = join(&rig, &live, slots).expect("it joins again");
        if level == 6 {
            fail(&rig, &live, 3);
        }
        wait(&rig, &live);
        assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)), "raid{level}");
        need(&rig, &live, 1);
        assert!(content_of(&rig, &live) == content, "raid{level}");
        rig.power_off();
    }
}

/// Watches a device that joins: a superblock must list it as a spare, durably, before one gives it a slot.
#[derive(Default)]
struct JoinWatch {
    is_spare: Cell<bool>,
    has_slot: Cell<bool>,
}

impl Watch for JoinWatch {
    fn superblock(&self, _: u16, bytes: &[u8]) -> Result<(), String> {
        let bytes: &[u8; 4096] = bytes.try_into().expect("a superblock");
        let superblock = Superblock::parse(bytes, Sector(8), Sectors(1000)).expect("a good one");
        let has_slot = superblock.own_role().slot().is_some();
        self.has_slot.set(has_slot);
        self.is_spare.set(self.is_spare.get() || !has_slot);
        if has_slot && !self.is_spare.get() {
            Err("unlisted: it has a slot and was no spare".to_owned())
        } else {
            Ok(())
        }
    }
}

fn joined_under_watch() -> (Result<(), String>, bool) {
    let mut rig = rig_with_blank(5, 2, 4, 1);
    let watch = Rc::new(JoinWatch::default());
    rig.disk(4).set_watch(Some(watch.clone()));
    let live = start_without_blank(&mut rig);
    fill(&rig, &live);
    fail(&rig, &live, 2);
    let (joining, array) = (joining(&rig, &live, 4), live.arrays[0].clone());
    let task = rig.executor.spawn(0, "join", async move {
        joining.await.expect("there is room");
        array.wait(|_| {}).await.expect("it ends");
    });
    let (executor, end) = (rig.executor.clone(), rig.executor.now() + Duration::from_secs(60));
    let ended = executor.run(1_000_000, end, || !executor.is_running(task));
    let outcome = rig.judge_end(ended, &live, false);
    rig.power_off();
    (outcome, watch.has_slot.get())
}

#[test]
fn a_device_that_joins_is_listed_as_a_spare_before_it_takes_a_slot() {
    assert_eq!(joined_under_watch(), (Ok(()), true));
}

/// The canary of that order.
#[cfg(feature = "canaries")]
#[test]
fn a_device_that_takes_a_slot_before_it_is_listed_as_a_spare_is_found() {
    use uraid_engine::canary::set;
    set(Some("JoinUnrecorded"));
    let (outcome, _) = joined_under_watch();
    set(None);
    assert!(outcome.is_err_and(|found| found.contains("unlisted")));
}
