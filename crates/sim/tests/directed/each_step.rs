//! One failure, swept over every step of a request: what an answer promises holds at that moment, and after a power cut.
//! Owns: this sweep, and bad sectors beside members that fail in the same moment. Not here: crashes alone
//! (`crash_images`), failures of one member in two ways (`second_failure`), what the members hold when nothing fails
//! meanwhile (`states`).

use super::joining::assembled_with;
use super::spares::CASES;
use super::*;
use uraid_engine::AssembleOptions;
use uraid_sim::image::bits::Bits;
use uraid_sim::reference::model::Place;

/// The request, of sectors 3..9.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Write,
    Durable,
    WriteAndFlush,
    Zeroes,
}

/// What happens to one member at a step of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Vanishes,
    FailsWrites,
    FailsFlushes,
    FailsSuperblocks,
    IsFailed,
    /// It answers nothing for a while, and is failed by command.
    HangsAndIsFailed,
}

const OPERATIONS: [Operation; 4] = [Operation::Write, Operation::Durable, Operation::WriteAndFlush, Operation::Zeroes];
const EVENTS: [Event; 6] = [
    Event::Vanishes,
    Event::FailsWrites,
    Event::FailsFlushes,
    Event::FailsSuperblocks,
    Event::IsFailed,
    Event::HangsAndIsFailed,
];
const AT: u64 = 3;
const LENGTH: u64 = 6;
const NEW: u8 = 201;
/// The simulated clients have room for so many requests.
const AT_ONCE: usize = 8;

/// `behind`: member 0 of a mirror is write-mostly, slow, and writes may be behind on it.
fn rig_of_case((level, layout, slots): (i32, u32, u16), behind: bool) -> Rig {
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(17);
    let executor = Executor::new(rng.fork(), false);
    let bits = Bits { chunk: 1, clear_after: Duration::from_secs(2), are_set: false, write_behind: 16 };
    let write_mostly = if behind { SlotSet::EMPTY.with(Slot(0)) } else { SlotSet::EMPTY };
    let slow_disk = behind.then_some(0);
    let setup = Setup { shards: 2, write_mostly, slow_disk, ..Setup::plain(shape) }.with_bits(behind.then_some(bits));
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    // The guard does not know that what a freeze left torn is made whole.
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    rig
}

fn old(at: u64) -> u8 {
    at as u8 + 1
}

fn filled(rig: &Rig, live: &Live) {
    let sectors: Vec<u64> = (0..rig.judge.model.array_size()).collect();
    for some in sectors.chunks(AT_ONCE) {
        let writes = some.iter().map(|at| write(rig, live, *at, 1, old(*at))).collect();
        assert!(all(rig, live, writes).iter().all(Result::is_ok));
    }
    let array = live.arrays[0].clone();
    assert_eq!(all(rig, live, vec![async move { array.flush().await }]), [Ok(())]);
}

fn request(rig: &Rig, live: &Live, operation: Operation) -> Request {
    let array = live.arrays[0].clone();
    match operation {
        Operation::Write => Box::pin(write(rig, live, AT, LENGTH, NEW)),
        Operation::Durable => Box::pin(write_as(rig, live, AT, LENGTH, NEW, Fua::Yes)),
        Operation::WriteAndFlush => {
            let writing = write(rig, live, AT, LENGTH, NEW);
            Box::pin(async move {
                writing.await?;
                array.flush().await
            })
        }
        Operation::Zeroes => super::zeroes::clear(rig, live, 1, super::zeroes::Verb::Zeroes, (AT, LENGTH)),
    }
}

fn strike(rig: &Rig, live: &Live, event: Event, member: u16) {
    let fault = |victim, effect| rig.disk(member).add_fault(Fault { victim, after: 0, effect });
    let failing = Effect::ErrorsFromNow(ErrorKind::Media);
    match event {
        Event::Vanishes => fault(Target::Any, Effect::Vanish),
        Event::FailsWrites => fault(Target::Writes, failing),
        Event::FailsFlushes => fault(Target::Flushes, failing),
        Event::FailsSuperblocks => fault(Target::SuperWrites, failing),
        Event::IsFailed | Event::HangsAndIsFailed => {
            if event == Event::HangsAndIsFailed {
                fault(Target::Any, Effect::Hang(Duration::from_secs(20)));
            }
            let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
            let pause = Duration::from_millis(if event == Event::IsFailed { 0 } else { 3 });
            rig.executor.spawn(0, "operator", async move {
                executor.sleep(pause).await;
                let _ = array.fail(SlotSet::EMPTY.with(Slot(member))).await;
            });
        }
    }
}

/// What each sector of the request may hold.
fn expect_content(rig: &Rig, live: &Live, operation: Operation, is_new: bool, case: &str) {
    let new = if operation == Operation::Zeroes { 0 } else { NEW };
    let sectors: Vec<u64> = (0..rig.judge.model.array_size()).collect();
    let answers =
        sectors.chunks(AT_ONCE).flat_map(|some| all(rig, live, some.iter().map(|at| read(live, *at, 1)).collect()));
    for (at, found) in (0..).zip(answers) {
        let found = found.unwrap_or_else(|error| panic!("{case}: sector {at} cannot be read: {error}"));
        let is_inside = (AT..AT + LENGTH).contains(&at);
        let is_right = |byte: u8| found.iter().all(|found| *found == byte);
        let may_be_old = !is_inside || !is_new;
        assert!(
            is_inside && is_right(new) || may_be_old && is_right(old(at)),
            "{case}: sector {at} holds {}, answered well: {is_new}",
            found[0]
        );
    }
}

/// A mirror does not answer while all that is written is on members which have left before. A member that leaves at the
/// moment of the answer may have come after it.
fn expect_held(rig: &Rig, operation: Operation, left_before: SlotSet, case: &str) {
    let new = if operation == Operation::Zeroes { 0 } else { NEW };
    let has_it = |place: &Place| {
        let at = (rig.setup.data_offsets[usize::from(place.slot)] + place.sector) as usize * 512;
        !left_before.contains(Slot(place.slot)) && rig.disk(place.slot).medium().current()[at] == new
    };
    for at in AT..AT + LENGTH {
        assert!(rig.judge.model.copies[at as usize].iter().any(has_it), "{case}: no member in use has sector {at}");
    }
}

/// The array after a power cut that leaves only what is durable. A parity array that lost a member with it is forced: no
/// row was being written.
fn after_power_cut(rig: &Rig, case: &str) -> (Rig, Live) {
    let disks = &rig.judge.disks;
    let images = disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
    rig.judge.unreadable.borrow_mut().extend(0..disks.len() as u16);
    let mut after = rig.branch(images, Rng::new(5)).unwrap_or_else(|error| panic!("{case}: {error}"));
    after.judge.is_over_budget.set(true);
    let plan = assembled_with(&after, &AssembleOptions { force: true, run: true, ..AssembleOptions::default() });
    let live = after.boot(&plan, &Config::default()).expect("sizes agree");
    run(&after, &live, || live.started.get().is_some());
    assert_eq!(live.started.get(), Some(true), "{case}");
    (after, live)
}

/// Runs to the end of a task. Returns which members had left before the moment of it.
fn until_over(rig: &Rig, live: &Live, task: u64) -> SlotSet {
    let executor = rig.executor.clone();
    let (mut now, mut left, mut left_before) = (executor.now(), SlotSet::EMPTY, SlotSet::EMPTY);
    let end = now + Duration::from_secs(60);
    while executor.is_running(task) && now < end {
        executor.run(1, end, || false);
        if executor.now() > now {
            (now, left_before) = (executor.now(), left);
        }
        left = SlotSet::first(rig.setup.shape.slots).minus(live.arrays[0].status().usable);
    }
    left_before
}

/// Returns whether the request was over before the event.
fn run_case(array: (i32, u32, u16), behind: bool, operation: Operation, event: Event, member: u16, steps: u64) -> bool {
    let case =
        format!("{array:?}, behind {behind}, {operation:?}, member {member} {event:?} after {steps} steps of it");
    let mut rig = rig_of_case(array, behind);
    let live = start_with(&mut rig, &[], &Config::default());
    filled(&rig, &live);
    let answer: Rc<Cell<Option<Result<(), IoError>>>> = Rc::default();
    let (making, inside) = (request(&rig, &live, operation), answer.clone());
    let task = rig.executor.spawn(0, "request", async move { inside.set(Some(making.await)) });
    let executor = rig.executor.clone();
    executor.run(steps, executor.now() + Duration::from_secs(60), || !executor.is_running(task));
    let was_over = !executor.is_running(task);
    strike(&rig, &live, event, member);
    let left_before = until_over(&rig, &live, task);
    let answer = answer.get().expect("it is over");
    if answer.is_ok() && array.0 == 1 {
        expect_held(&rig, operation, left_before, &case);
    }
    let is_durable = matches!(operation, Operation::Durable | Operation::WriteAndFlush);
    if answer.is_ok() && is_durable {
        let (after, live_after) = after_power_cut(&rig, &case);
        expect_content(&after, &live_after, operation, true, &format!("{case}, after a power cut at the answer"));
        after.power_off();
    }
    expect_content(&rig, &live, operation, answer.is_ok(), &case);
    // What is behind, and the failure itself, come to their end.
    let pause = executor.clone();
    all(&rig, &live, vec![async move { pause.sleep(Duration::from_secs(30)).await }]);
    expect_content(&rig, &live, operation, answer.is_ok(), &format!("{case}, 30 s later"));
    rig.power_off();
    was_over
}

fn sweep(array: (i32, u32, u16), behind: bool, apart: usize) -> u64 {
    let mut cases = 0;
    let every = stride(3) as u16;
    for (number, operation) in (0..).zip(OPERATIONS) {
        for (event, member) in (0..).zip(EVENTS).flat_map(|event| (0..array.2).map(move |member| (event, member))) {
            let (of_event, event) = event;
            if (number + of_event + member) % every == 0 {
                for steps in (u64::from(member) * 7 % apart as u64..).step_by(apart) {
                    cases += 1;
                    if run_case(array, behind, operation, event, member, steps) {
                        break;
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn an_answer_holds_whichever_member_fails_at_whichever_step_of_a_write() {
    for array in CASES.into_iter().step_by(stride(2)) {
        let cases = sweep(array, false, stride(41));
        assert!(cases >= 12 * u64::from(array.2), "{array:?}: {cases}");
    }
}

#[test]
fn an_answer_holds_whichever_member_of_a_mirror_with_writes_behind_fails() {
    for array in [(1, 0, 2), (1, 0, 3)] {
        // It is over in some ten steps.
        let cases = sweep(array, true, stride(2));
        assert!(cases >= 12 * u64::from(array.2), "{array:?}: {cases}");
    }
}

/// A mirror of three whose member 0 may be behind, and a spare that is this much slower than the others.
fn rig_with_slow_spare(slowness: u64) -> Rig {
    let shape = Shape { level: 1, layout: 0, chunk: 0, slots: 3, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(17);
    let executor = Executor::new(rng.fork(), false);
    let bits = Bits { chunk: 1, clear_after: Duration::from_secs(2), are_set: false, write_behind: 16 };
    let (data_offsets, data_sizes) = (vec![16; 4], vec![24; 4]);
    let write_mostly = SlotSet::EMPTY.with(Slot(0));
    let slowness = vec![1, 1, 1, slowness];
    let setup = Setup { spares: 1, shards: 2, write_mostly, slowness, data_offsets, data_sizes, ..Setup::plain(shape) };
    let rig = Rig::new(executor, rng, Rc::new(setup.with_bits(Some(bits))), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    change_superblock(&rig, 3, |superblock| superblock.features = Default::default());
    rig.judge.is_over_budget.set(true);
    rig
}

fn fail_by_command(rig: &Rig, live: &Live, slot: u16) {
    let array = live.arrays[0].clone();
    rig.executor.spawn(0, "operator", async move {
        let _ = array.fail(SlotSet::EMPTY.with(Slot(slot))).await;
    });
}

/// ```text
///   member 0, write-mostly         may be behind, and hangs   |.............................|
///   member 1, the other one        has it, and is failed      |--|    x
///   slot 2                         is being recovered         |----------------|
///                                                                              ^ no answer yet
/// ```
#[test]
fn a_write_waits_for_the_member_behind_if_the_only_other_one_that_took_it_has_left() {
    const HANG: Duration = Duration::from_secs(3);
    let mut waited = 0;
    for slowness in [30, 300, 1_000, 3_000, 10_000] {
        let mut rig = rig_with_slow_spare(slowness);
        let live = start_with(&mut rig, &[], &Config::default());
        // Sets its bits.
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, AT, LENGTH, old(AT))]), [Ok(())]);
        fail_by_command(&rig, &live, 2);
        run(&rig, &live, || matches!(live.arrays[0].status().members[3], MemberState::Recovering { .. }));
        rig.disk(0).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(HANG) });
        let answer: Rc<Cell<Option<Result<(), IoError>>>> = Rc::default();
        let (making, inside) = (request(&rig, &live, Operation::Write), answer.clone());
        let task = rig.executor.spawn(0, "request", async move { inside.set(Some(making.await)) });
        fail_by_command(&rig, &live, 1);
        let began = rig.executor.now();
        until_over(&rig, &live, task);
        let took = rig.executor.now().since(began);
        let has_left = !live.arrays[0].status().usable.contains(Slot(1));
        let case = format!("{slowness} times slower: answered after {took:?}");
        assert_eq!(answer.get().expect("it is over"), Ok(()), "{case}");
        assert!(!has_left || took >= HANG, "{case}, and member 1 has left");
        waited += u64::from(took >= HANG);
        rig.power_off();
    }
    assert!(waited > 0);
}

/// ```text
///   member a cannot write sector 3;  member b, the only other one with that sector, fails another write, or a flush
///   |<- b fails ...  200 ms  ... b is judged ->|
///        ^ at each step: a write of sector 3
/// ```
/// What was in sector 3 before, or the new bytes, can be read at the end: it is not listed on the one and lost with the
/// other.
#[test]
fn no_sector_is_listed_whose_other_holders_are_about_to_fail() {
    for array in [(1, 0, 2), (1, 0, 3), (10, 0x102, 4), (10, 0x102, 3), (4, 0, 3), (5, 2, 3), (6, 2, 4)] {
        for failing in [Target::Any, Target::Flushes] {
            for steps in (0..).step_by(stride(3)) {
                if list_beside_failures(array, failing, steps) {
                    break;
                }
            }
        }
    }
}

/// Returns whether the failures were judged before the write began.
fn list_beside_failures((level, layout, slots): (i32, u32, u16), failing: Target, steps: u64) -> bool {
    let case = format!("raid{level} {layout:#x} of {slots}, after {steps} steps of failing {failing:?}");
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(13);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { shards: 2, ..Setup::plain(shape) }.with_logs();
    let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &Config::default());
    filled(&rig, &live);
    let model = rig.judge.model.clone();
    let place = model.copies[AT as usize][0];
    let data_at = rig.setup.data_offsets[0];
    rig.disk(place.slot).add_broken([data_at + place.sector]);
    // As many others as the array can lose at most: without these and the sector, nothing is left of it.
    let others: Vec<u16> = if model.is_parity() {
        (0..slots).filter(|slot| *slot != place.slot).take(if level == 6 { 2 } else { 1 }).collect()
    } else {
        model.copies[AT as usize][1..].iter().map(|place| place.slot).collect()
    };
    for slot in &others {
        let effect = if failing == Target::Any { Effect::Vanish } else { Effect::ErrorsFromNow(ErrorKind::Media) };
        rig.disk(*slot).add_fault(Fault { victim: failing, after: 0, effect });
    }
    // Sectors of all members, beside the one.
    let first: Vec<Request> = (12..24)
        .map(|at| -> Request {
            let (writing, array) = (write(&rig, &live, at, 1, old(at)), live.arrays[0].clone());
            let flushes = failing == Target::Flushes;
            Box::pin(async move { if flushes { array.flush().await } else { writing.await } })
        })
        .collect();
    let tasks: Vec<u64> = first
        .into_iter()
        .map(|request| {
            rig.executor.spawn(0, "first", async move {
                let _ = request.await;
            })
        })
        .collect();
    let executor = rig.executor.clone();
    let is_over = || tasks.iter().all(|task| !executor.is_running(*task));
    executor.run(steps, executor.now() + Duration::from_secs(60), is_over);
    let was_over = is_over();
    let answer = all(&rig, &live, vec![write(&rig, &live, AT, 1, NEW)])[0];
    run(&rig, &live, is_over);
    let pause = executor.clone();
    all(&rig, &live, vec![async move { pause.sleep(Duration::from_secs(1)).await }]);
    let found = all(&rig, &live, vec![read(&live, AT, 1)]).remove(0);
    let is_held = found.as_ref().is_ok_and(|bytes| bytes[0] == NEW || answer.is_err() && bytes[0] == old(AT));
    assert!(is_held, "{case}: the write was answered {answer:?}, a read gives {:?}", found.map(|bytes| bytes[0]));
    rig.power_off();
    was_over
}

/// ```text
///   copies of sectors 2..6     member a  [ 2 | x | 4 | 5 ]       x: cannot be read, also when it was written again
///                              member b  [ 2 | 3 | 4 | x ]
/// ```
/// Neither member can be given all of its stretch. Each sector is on one of them: none is listed together with a neighbour,
/// so that the other copy, which is bad, is asked for it.
#[test]
fn bad_sectors_of_two_members_next_to_each_other_cost_no_sector() {
    for array in CASES.into_iter().filter(|(_, _, slots)| *slots > 1) {
        for (one, other) in [(0, 1), (1, 0), (1, 3), (3, 2), (2, 0)] {
            let case = format!("{array:?}, sectors {one} and {other} of a chunk");
            let rig_with_logs = |(level, layout, slots): (i32, u32, u16)| {
                let chunk = if level == 1 { 0 } else { 4 };
                let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
                let mut rng = Rng::new(13);
                let executor = Executor::new(rng.fork(), false);
                let setup = Setup { shards: 2, ..Setup::plain(shape) }.with_logs();
                Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
            };
            let mut rig = rig_with_logs(array);
            rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
            rig.judge.is_over_budget.set(true);
            let live = start_with(&mut rig, &[], &Config::default());
            filled(&rig, &live);
            // The first chunk; its other copies, or another block of its row.
            let (model, data_at) = (rig.judge.model.clone(), rig.setup.data_offsets[0]);
            let place = |copy: usize| {
                let copies = &model.copies[0];
                let of_row = (copies[0].slot + 1) % array.2;
                if model.is_parity() && copy == 1 {
                    (of_row, copies[0].sector)
                } else {
                    (copies[copy].slot, copies[copy].sector)
                }
            };
            for (copy, sector) in [(0, one), (1, other)] {
                let (slot, at) = place(copy);
                rig.disk(slot).add_unreadable([data_at + at + sector]);
            }
            for turn in 0..3 {
                // As one read, so that the stretch fails as a whole; then what was to be mended is.
                all(&rig, &live, (0..4).map(|_| read(&live, 0, 4)).collect());
                let pause = rig.executor.clone();
                all(&rig, &live, vec![async move { pause.sleep(Duration::from_secs(1)).await }]);
                expect_content(&rig, &live, Operation::Write, false, &format!("{case}, turn {turn}"));
            }
            rig.power_off();
        }
    }
}
