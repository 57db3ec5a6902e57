//! Spares that take the slot of a member that failed, or that is missing.
//! Owns: what they hold afterwards, what must be durable before they are written, failures of the slot's last member that
//! come late. Not here: members whose recovery goes on at a start, which the swarm has.

use super::*;
use uraid_engine::PassKind;
use uraid_format::{Features, Role};
use uraid_sim::machine::member::{Access, Op, Watch};

/// An array with one spare, which no array uses yet. Its number is that of its disk: the slots.
pub(super) fn rig_with_spare(level: i32, layout: u32, slots: u16, shards: u16) -> Rig {
    rig_with_spare_that(level, layout, slots, shards, (0, false))
}

/// `discard`: what members do with discards and holes, as in [`Setup::discard`].
pub(super) fn rig_with_spare_that(level: i32, layout: u32, slots: u16, shards: u16, discard: (u64, bool)) -> Rig {
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let plain = Setup::plain(shape);
    let (data_offsets, data_sizes) = (vec![16; usize::from(slots) + 1], vec![24; usize::from(slots) + 1]);
    let setup = Setup { spares: 1, shards, discard, data_offsets, data_sizes, pass_window: Sectors(3), ..plain };
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    // The guard knows what lies where on members that keep their slot.
    rig.disk(slots).set_watch(None);
    change_superblock(&rig, slots, |superblock| superblock.features = Default::default());
    rig.judge.is_over_budget.set(true);
    rig
}

pub(super) const CASES: [(i32, u32, u16); 9] = [
    (1, 0, 2),
    (1, 0, 3),
    (10, 0x102, 4),
    (10, 0x102, 3),
    (10, 0x201, 4),
    (10, 0x10201, 4),
    (4, 0, 4),
    (5, 2, 4),
    (6, 2, 5),
];

pub(super) fn fill(rig: &Rig, live: &Live) -> Vec<u8> {
    let size = rig.judge.model.array_size();
    for at in 0..size {
        assert_eq!(all(rig, live, vec![write(rig, live, at, 1, at as u8 + 1)]), [Ok(())]);
    }
    (0..size).flat_map(|at| [at as u8 + 1; 512]).collect()
}

/// All that the array holds.
pub(super) fn content_of(rig: &Rig, live: &Live) -> Vec<u8> {
    let sectors = (0..rig.judge.model.array_size()).map(|at| all(rig, live, vec![read(live, at, 1)]));
    sectors.flat_map(|answers| answers.into_iter().next().expect("an answer").expect("it can be read")).collect()
}

pub(super) fn fail(rig: &Rig, live: &Live, slot: u16) {
    let array = live.arrays[0].clone();
    let failing = async move { array.fail(SlotSet::EMPTY.with(Slot(slot))).await };
    assert_eq!(all(rig, live, vec![failing]), [Ok(())]);
}

/// Waits until no pass is left. Returns what it has done.
pub(super) fn wait(rig: &Rig, live: &Live) -> Vec<PassKind> {
    let array = live.arrays[0].clone();
    let waiting = async move { array.wait(|_| {}).await.expect("it ends") };
    all(rig, live, vec![waiting]).into_iter().map(|progress| progress.kind).collect()
}

#[test]
fn a_spare_takes_the_slot_of_a_member_that_fails_and_holds_all_of_it() {
    for (level, layout, slots) in CASES {
        for victim in 0..slots {
            for shards in [1, 3] {
                let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}, {shards} shards");
                let mut rig = rig_with_spare(level, layout, slots, shards);
                let live = start(&mut rig, &[]);
                let content = fill(&rig, &live);
                fail(&rig, &live, victim);
                assert_eq!(wait(&rig, &live), [PassKind::Recovery], "{case}");
                let status = live.arrays[0].status();
                assert_eq!(status.members[usize::from(slots)], MemberState::Active(Slot(victim)), "{case}");
                assert_eq!(status.usable, SlotSet::first(slots), "{case}");
                // Every other one that the array can do without: the spare's bytes are needed.
                for other in (0..slots).filter(|other| *other != victim) {
                    let left = status.usable.without(Slot(other));
                    if live.arrays[0].layout().can_serve(&left) {
                        fail(&rig, &live, other);
                        break;
                    }
                }
                assert!(content_of(&rig, &live) == content, "{case}");
                rig.power_off();
            }
        }
    }
}

#[test]
fn a_degraded_array_takes_its_spare_at_the_start() {
    for (level, layout, slots) in CASES {
        let mut rig = rig_with_spare(level, layout, slots, 1);
        let live = start(&mut rig, &[1]);
        let content = fill(&rig, &live);
        assert_eq!(wait(&rig, &live), [PassKind::Recovery], "raid{level} {layout:#x}");
        assert_eq!(live.arrays[0].status().usable, SlotSet::first(slots), "raid{level} {layout:#x}");
        assert!(content_of(&rig, &live) == content, "raid{level} {layout:#x}");
        rig.power_off();
    }
}

/// A crash leaves a member of a mirror that recovers as a spare. Another slot, which is lower, has no member either.
#[test]
fn a_first_member_that_a_crash_left_as_a_spare_gets_its_own_slot_again() {
    for (level, layout, slots) in [(1, 0, 4), (10, 0x102, 4), (10, 0x103, 5), (5, 2, 4), (6, 2, 5)] {
        let case = format!("raid{level} {layout:#x} of {slots}");
        let away: &[u16] = if level == 5 { &[] } else { &[0] };
        let mut rig = rig_with_spare(level, layout, slots, 1);
        let spare = if level == 10 { 3 } else { 2 };
        for disk in 0..slots {
            change_superblock(&rig, disk, |superblock| {
                superblock.roles[usize::from(spare)] = Role::Spare;
                away.iter().for_each(|number| superblock.roles[usize::from(*number)] = Role::Spare);
            });
        }
        // The guard knows what lies where on members that are in sync.
        rig.disk(spare).set_watch(None);
        let away_now: Vec<u16> = away.iter().copied().chain([slots]).collect();
        let live = start(&mut rig, &away_now);
        let content = fill(&rig, &live);
        assert_eq!(wait(&rig, &live), [PassKind::Recovery], "{case}");
        assert!(live.arrays[0].status().usable.contains(Slot(spare)), "{case}: {:?}", live.arrays[0].status().members);
        assert!(content_of(&rig, &live) == content, "{case}");
        let superblock = super::re_adding::superblock_of(&rig, 1);
        assert_eq!(superblock.role_of(spare.into()), Role::Slot(Slot(spare)), "{case}");
        // As md writes it: who is listed as a spare is there.
        away.iter().for_each(|number| assert_eq!(superblock.role_of((*number).into()), Role::Faulty, "{case}"));
        rig.power_off();
    }
}

/// A write that the last member never answered ends when the slot has another member, which must not pay for it.
#[test]
fn a_late_failure_of_the_last_member_does_not_fail_the_spare() {
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 4), (10, 0x102, 4)] {
        let mut rig = rig_with_spare(level, layout, slots, 1);
        let live = start(&mut rig, &[]);
        let content = fill(&rig, &live);
        for victim in [Target::Writes, Target::Reads] {
            rig.disk(0).add_fault(Fault { victim, after: 0, effect: Effect::Hang(Duration::from_secs(20)) });
        }
        rig.disk(0).add_fault(Fault {
            victim: Target::Flushes,
            after: 0,
            effect: Effect::Hang(Duration::from_secs(20)),
        });
        let (array, flushed) = (live.arrays[0].clone(), live.arrays[0].clone());
        let writing = write(&rig, &live, 0, 1, 1);
        rig.executor.spawn(0, "late write", async move {
            let _ = writing.await;
        });
        rig.executor.spawn(0, "late flush", async move {
            let _ = flushed.flush().await;
        });
        let pause = rig.executor.clone();
        let failing = async move {
            pause.sleep(Duration::from_millis(5)).await;
            array.fail(SlotSet::EMPTY.with(Slot(0))).await
        };
        assert_eq!(all(&rig, &live, vec![failing]), [Ok(())]);
        assert_eq!(wait(&rig, &live), [PassKind::Recovery]);
        let pause = rig.executor.clone();
        all(&rig, &live, vec![async move { pause.sleep(Duration::from_secs(30)).await }]);
        let status = live.arrays[0].status();
        assert_eq!(status.members[usize::from(slots)], MemberState::Active(Slot(0)), "raid{level}");
        assert!(content_of(&rig, &live) == content, "raid{level}");
        rig.power_off();
    }
}

/// Watches a spare: a superblock must list it in a slot, durably, before any of its data is written.
#[derive(Default)]
struct SpareWatch {
    is_listed: Cell<bool>,
    sectors_written: Cell<u64>,
}

impl Watch for SpareWatch {
    fn submitted(&self, access: Access) -> Result<(), String> {
        let is_data = access.at >= DATA_AT && matches!(access.op, Op::Write { .. } | Op::Zeroes | Op::Discard);
        self.sectors_written.set(self.sectors_written.get() + if is_data { access.length } else { 0 });
        if is_data && !self.is_listed.get() { Err(format!("unrecorded: {access:?}")) } else { Ok(()) }
    }

    fn superblock(&self, _: u16, bytes: &[u8]) -> Result<(), String> {
        let bytes: &[u8; 4096] = bytes.try_into().expect("a superblock");
        let superblock = Superblock::parse(bytes, Sector(8), Sectors(1000)).expect("a good one");
        self.is_listed.set(superblock.own_role().slot().is_some());
        Ok(())
    }
}

/// Lets a spare take a slot of a raid5 under its watch. Returns how the run has ended, and how many sectors of data were
/// written.
fn taken_under_watch() -> (Result<(), String>, u64) {
    let mut rig = rig_with_spare(5, 2, 4, 1);
    let watch = Rc::new(SpareWatch::default());
    rig.disk(4).set_watch(Some(watch.clone()));
    let live = start(&mut rig, &[]);
    fill(&rig, &live);
    let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
    let task = rig.executor.spawn(0, "fail", async move {
        array.fail(SlotSet::EMPTY.with(Slot(2))).await.expect("it can do without");
        array.wait(|_| {}).await.expect("it ends");
    });
    let end = rig.executor.now() + Duration::from_secs(60);
    let ended = rig.executor.run(1_000_000, end, || !executor.is_running(task));
    let outcome = rig.judge_end(ended, &live, false);
    rig.power_off();
    (outcome, watch.sectors_written.get())
}

#[test]
fn a_spare_is_listed_in_its_slot_before_it_is_written() {
    let (outcome, written) = taken_under_watch();
    assert_eq!(outcome, Ok(()));
    assert_eq!(written, 24, "all of it was written once");
}

/// The canary of that order.
#[cfg(feature = "canaries")]
#[test]
fn a_spare_that_is_written_before_it_is_listed_is_found() {
    use uraid_engine::canary::set;
    set(Some("SpareUnrecorded"));
    let (outcome, _) = taken_under_watch();
    set(None);
    assert!(outcome.is_err_and(|found| found.contains("unrecorded")));
}

/// ```text
///   raid5, R in recovery holds D1     write D0, no FUA     in the cache of its member, and in P
///   R is whole, the superblocks hang  write D1, FUA        P is durable
///   power fails: R is in recovery, so D1 = P xor the old D0
/// ```
/// So R must not be taken for whole before the superblocks say so: the FUA write then flushes the member of D0.
#[test]
fn a_recovered_member_is_counted_on_only_when_that_is_recorded() {
    let shape = Shape { level: 5, layout: 2, chunk: 2, slots: 4, size: 6, member_sizes: Vec::new() };
    let mut rng = Rng::new(5);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup::plain(shape);
    let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.is_over_budget.set(true);
    change_superblock(&rig, 1, |superblock| superblock.features = Features::RECOVERY_OFFSET);
    rig.judge.recovering.borrow_mut().insert(1);
    // The flush after the last window takes its time.
    let slow = Effect::Hang(Duration::from_millis(1));
    rig.disk(3).add_fault(Fault { victim: Target::Flushes, after: 0, effect: slow });
    let live = open_with(&mut rig, &[], &Config::default());
    let place_of = |at: u64| rig.judge.model.copies[at as usize][0];
    let all_sectors = 0..rig.judge.model.array_size();
    let lost = all_sectors.clone().find(|at| place_of(*at).slot == 1).expect("it holds data");
    let is_beside = |at: &u64| place_of(*at).sector == place_of(lost).sector && place_of(*at).slot != 1;
    let beside = all_sectors.clone().find(is_beside).expect("its row has more data");
    // The array takes writes, and all windows are done. Now the superblock of R is held back.
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, beside, 1, 3)]), [Ok(())]);
    let is_over = || live.arrays[0].status().pass.is_some_and(|pass| pass.done == pass.total);
    run(&rig, &live, is_over);
    let hang = Effect::Hang(Duration::from_secs(10));
    rig.disk(1).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect: hang });
    let before = rig.disk(0).medium().durable()[8 * 512..16 * 512].to_vec();
    run(&rig, &live, || rig.disk(0).medium().durable()[8 * 512..16 * 512] != before[..]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, beside, 1, 4)]), [Ok(())]);
    assert_eq!(all(&rig, &live, vec![write_as(&rig, &live, lost, 1, 5, Fua::Yes)]), [Ok(())]);
    let images = (0..4).map(|slot| Some(rig.disk(slot).medium().durable().to_vec())).collect();
    let mut after = rig.branch(images, Rng::new(6)).expect("whole superblocks");
    after.judge.is_over_budget.set(true);
    let live_after = open_with(&mut after, &[], &Config::default());
    assert!(all(&after, &live_after, vec![read(&live_after, lost, 1)]) == [Ok(vec![5; 512])], "the answered write");
    after.power_off();
    rig.power_off();
}
