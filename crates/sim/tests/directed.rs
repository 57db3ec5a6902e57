//! Failures that seeds rarely reach, each as the shortest run that reaches it.
//! Owns: errors that must stay with their own sectors, mirrors whose copies differ, superblock rounds that meet several
//! failures. Not here: requests in flight when the array freezes or ends (`ends`), mistakes found by seeds.

mod bad_blocks;
mod behind;
mod bits;
mod checks;
mod coming_back;
mod each_step;
mod ends;
mod frozen;
mod holes;
mod joining;
mod late;
mod member_seeds;
mod passes;
mod ppl;
mod re_adding;
mod read_only;
mod second_failure;
mod several;
mod spares;
mod states;
mod unsynced;
mod write_mostly;
mod zeroes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Device, ErrorKind, Fua, IoError, Sector, Sectors, Slot, SlotSet};
use uraid_engine::view::{Copies, Gate};
use uraid_engine::{Config, MemberState, StartPlan, StopError};
use uraid_format::{Role, Superblock};
use uraid_sim::judge::{AssembleMode, Assembled};
use uraid_sim::machine::executor::Executor;
use uraid_sim::machine::member::{Effect, Fault, Target};
use uraid_sim::random::rng::Rng;
use uraid_sim::reference::model::Shape;
use uraid_sim::rig::tally::Tally;
use uraid_sim::rig::{Live, Rig};
use uraid_sim::setup::Setup;

type Request = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;

/// The first data sector of every member.
const DATA_AT: u64 = 16;

/// One shard, chunks of two sectors.
fn rig(level: i32, slots: u16, starts_dirty: bool) -> Rig {
    rig_of(7, 1, level, slots, starts_dirty)
}

fn rig_of(seed: u64, shards: u16, level: i32, slots: u16, starts_dirty: bool) -> Rig {
    rig_that_discards(seed, shards, level, slots, starts_dirty, false)
}

/// `gives_zeroes`: what members have discarded reads as zeroes.
fn rig_that_discards(seed: u64, shards: u16, level: i32, slots: u16, starts_dirty: bool, gives_zeroes: bool) -> Rig {
    let (layout, chunk) = match level {
        1 => (0, 0),
        10 => (0x102, 2),
        _ => (2, 2),
    };
    let member_sizes = if level == 0 { vec![10; usize::from(slots)] } else { Vec::new() };
    let shape = Shape { level, layout, chunk, slots, size: 6, member_sizes };
    let mut rng = Rng::new(seed);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { starts_dirty, shards, discard: (1, gives_zeroes), ..Setup::plain(shape) };
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

/// How many steps lie between two moments of a sweep, and how many cases between two that it takes. Each of them:
/// `URAID_EACH_STEP=1 cargo test --release -p uraid-sim --test suite directed::`, which takes long.
fn stride(short: usize) -> usize {
    if std::env::var_os("URAID_EACH_STEP").is_some() { 1 } else { short }
}

fn start(rig: &mut Rig, away: &[u16]) -> Live {
    start_with(rig, away, &Config::default())
}

/// Changes the superblock of a member while no array uses it.
fn change_superblock(rig: &Rig, slot: u16, change: impl FnOnce(&mut Superblock)) {
    let disk = rig.disk(slot);
    let mut image = disk.medium().current().to_vec();
    let place = 8 * 512..16 * 512;
    let bytes: &[u8; 4096] = image[place.clone()].try_into().expect("a superblock");
    let mut superblock = Superblock::parse(bytes, Sector(8), disk.geometry().size).expect("a good one");
    change(&mut superblock);
    image[place].copy_from_slice(&superblock.encode()[..]);
    disk.replace(image);
    rig.guard.reset_events(slot, superblock.events);
}

/// The array, open; a dirty one after its resync.
fn start_with(rig: &mut Rig, away: &[u16], config: &Config) -> Live {
    let live = open_with(rig, away, config);
    let executor = rig.executor.clone();
    run(rig, &live, || !executor.is_running(live.start));
    live
}

/// The array, open, perhaps in the middle of its resync.
fn open_with(rig: &mut Rig, away: &[u16], config: &Config) -> Live {
    let plan = rig.assemble(&away.iter().copied().collect()).expect("legal").expect("it starts");
    rig.prepare_oracle(&plan, &BTreeSet::new());
    let live = rig.boot(&plan, config).expect("sizes agree");
    let started = live.started.clone();
    run(rig, &live, || started.get().is_some());
    assert_eq!(started.get(), Some(true));
    live
}

fn run(rig: &Rig, live: &Live, is_done: impl Fn() -> bool) {
    let end = rig.executor.now() + Duration::from_secs(60);
    let ended = rig.executor.run(1_000_000, end, is_done);
    rig.judge_end(ended, live, false).expect("no violation");
}

/// Makes requests concurrently and waits for all of them.
fn all<T: 'static>(rig: &Rig, live: &Live, requests: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
    let answers: Rc<RefCell<Vec<(usize, T)>>> = Rc::default();
    let count = requests.len();
    for (at, request) in requests.into_iter().enumerate() {
        let answers = answers.clone();
        rig.executor.spawn(0, "request", async move {
            let answer = request.await;
            answers.borrow_mut().push((at, answer));
        });
    }
    run(rig, live, || answers.borrow().len() == count);
    let mut answers = answers.take();
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// A write of one byte value that bypasses the oracle, which therefore is not used afterwards.
fn write(
    rig: &Rig,
    live: &Live,
    at: u64,
    length: u64,
    byte: u8,
) -> impl Future<Output = Result<(), IoError>> + 'static {
    write_as(rig, live, at, length, byte, Fua::No)
}

fn write_as(
    rig: &Rig,
    live: &Live,
    at: u64,
    length: u64,
    byte: u8,
    fua: Fua,
) -> impl Future<Output = Result<(), IoError>> + 'static {
    let (array, guard) = (live.arrays[0].clone(), rig.guard.clone());
    let mut pieces = live.worlds[0].client_arena().take(Sectors(length).len_bytes()).expect("room");
    pieces.fill(byte);
    guard.open_range(at, length);
    async move {
        let answer = array.write(Sector(at), pieces.freeze(), fua).await;
        guard.close_range(at, length);
        if answer.is_err() {
            guard.leave_torn(at, length);
        }
        answer
    }
}

fn read(live: &Live, at: u64, length: u64) -> impl Future<Output = Result<Vec<u8>, IoError>> + 'static {
    let array = live.arrays[0].clone();
    let into = live.worlds[0].client_arena().take(Sectors(length).len_bytes()).expect("room");
    async move { array.read(Sector(at), into).await.map(|pieces| pieces.to_vec()) }
}

/// The plan that would be started if power failed now.
fn plan_now(rig: &mut Rig) -> Box<StartPlan> {
    let images = rig.judge.images(&mut rig.rng);
    match rig.judge.assemble(&images, AssembleMode::Forced).expect("legal") {
        Assembled::Plan(plan) => plan,
        Assembled::DirtyDegraded | Assembled::Impossible => panic!("it does not start"),
    }
}

fn kind<T>(answer: &Result<T, IoError>) -> Option<ErrorKind> {
    answer.as_ref().err().map(|error| error.kind)
}

/// ```text
///   raid5 of 3, member 0 away:   sector 0 (member 0), 1 (member 0), 2 (member 1), 3 (member 1)
///   unreadable on member 1:      its first sector, so that nothing can be computed at offset 0 of the row
/// ```
/// Three writes wait for the row, and one of them performs all of them. Only the first one must fail.
#[test]
fn a_write_is_not_failed_by_unreadable_sectors_of_another_in_its_batch() {
    let mut rig = rig(5, 3, false);
    let live = start(&mut rig, &[0]);
    let warm = all(&rig, &live, vec![write(&rig, &live, 4, 1, 9)]);
    assert_eq!(warm, [Ok(())]);
    rig.disk(1).add_latent([DATA_AT]);
    // Holds the row while the others gather.
    let requests = [(3, 1), (0, 2), (1, 3)].map(|(at, byte)| write(&rig, &live, at, 1, byte));
    let answers = all(&rig, &live, requests.into());
    let kinds: Vec<Option<ErrorKind>> = answers.iter().map(kind).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Media), None]);
    let found = all(&rig, &live, vec![read(&live, 1, 1), read(&live, 3, 1)]);
    assert!(found == [Ok(vec![3; 512]), Ok(vec![1; 512])], "the bytes of the writes that were answered well");
    assert!(live.arrays[0].counters().writes_absorbed > 0, "one of them took another along");
    rig.power_off();
}

/// A write of two rows of which the first one fails: its error is the answer, although the second row succeeds.
#[test]
fn an_error_in_any_row_fails_the_write() {
    // The row that cannot be computed at its offset 0: one member of its data is away, another one cannot read.
    for (row, away, unreadable) in [(0, 0, 1), (2, 1, 2)] {
        let mut rig = rig(5, 3, false);
        let live = start(&mut rig, &[away]);
        rig.disk(unreadable).add_latent([DATA_AT + 2 * row]);
        // From the second chunk of row 0 to the first sector of row 2.
        let answers = all(&rig, &live, vec![write(&rig, &live, 2, 7, 5)]);
        assert_eq!(kind(&answers[0]), Some(ErrorKind::Media), "row {row}");
        let found = all(&rig, &live, vec![read(&live, 4, 4)]);
        assert!(found[0] == Ok(vec![5; 4 * 512]), "the row between was written all the same");
        rig.power_off();
    }
}

/// Copies differ after a write that the full second member did not take. The array is frozen: every read returns the
/// canonical copy, whichever was read before.
#[test]
fn a_frozen_mirror_whose_copies_differ_is_read_from_one_copy() {
    let mut rig = rig(1, 2, false);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())]);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    let answers = all(&rig, &live, vec![write(&rig, &live, 2, 2, 2)]);
    assert_eq!(kind(&answers[0]), Some(ErrorKind::NoSpace));
    let view = live.arrays[0].view();
    assert_eq!((view.gate, view.copies), (Gate::Frozen(ErrorKind::NoSpace), Copies::Canonical));
    for _ in 0..8 {
        // Several at a time, so that read balancing would use both copies.
        let found = all(&rig, &live, (0..4).map(|_| read(&live, 2, 1)).collect());
        assert!(found.iter().all(|answer| *answer == Ok(vec![2; 512])), "the new bytes of the canonical copy");
    }
    // The canonical copy cannot be read: an error, never the other version.
    rig.disk(0).add_latent([DATA_AT + 2]);
    assert_eq!(kind(&all(&rig, &live, vec![read(&live, 2, 1)])[0]), Some(ErrorKind::Media));
    rig.power_off();
}

/// Two members cannot read the same sector while a dirty mirror is resynced. The array stays dirty and is read from the
/// canonical copy, because the sector may become readable later, and differ.
#[test]
fn a_mirror_whose_resync_met_an_unreadable_sector_stays_dirty_and_is_read_from_one_copy() {
    let mut rig = rig(1, 2, true);
    rig.judge.is_over_budget.set(true);
    for disk in 0..2 {
        rig.disk(disk).add_latent([DATA_AT + 3]);
    }
    let live = start(&mut rig, &[]);
    let view = live.arrays[0].view();
    assert_eq!((view.gate, view.copies, live.arrays[0].status().is_dirty), (Gate::Open, Copies::Canonical, true));
    let found = all(&rig, &live, vec![read(&live, 2, 1), read(&live, 3, 1)]);
    assert_eq!((kind(&found[0]), kind(&found[1])), (None, Some(ErrorKind::Media)));
    rig.power_off();
}

/// The same for a row of a raid5: the array stays dirty, and only what cannot be computed is an error.
#[test]
fn a_raid5_whose_resync_met_two_unreadable_sectors_of_a_row_stays_dirty() {
    let mut rig = rig(5, 3, true);
    rig.judge.is_over_budget.set(true);
    for disk in 0..2 {
        rig.disk(disk).add_latent([DATA_AT]);
    }
    let live = start(&mut rig, &[]);
    assert!(live.arrays[0].status().is_dirty);
    let found = all(&rig, &live, vec![read(&live, 0, 1), read(&live, 1, 1), read(&live, 4, 1)]);
    assert_eq!(found.iter().map(kind).collect::<Vec<_>>(), [Some(ErrorKind::Media), None, None]);
    rig.power_off();
}

/// A raid6 fails a member; the round that records this meets a second failure. The write is answered when both failures
/// are recorded on the last two members, two events ahead.
#[test]
fn a_round_of_superblocks_that_meets_a_second_failure_records_both() {
    for first in 0..4 {
        for second in (0..4).filter(|second| *second != first) {
            let mut rig = rig(6, 4, false);
            let live = start(&mut rig, &[]);
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
            let before = rig.guard.events()[usize::from(first)];
            let gone = Effect::ErrorsFromNow(ErrorKind::Media);
            rig.disk(first).add_fault(Fault { victim: Target::Writes, after: 0, effect: gone });
            rig.disk(second).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect: gone });
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 2)]), [Ok(())], "{first}, then {second}");
            let status = live.arrays[0].status();
            let is_faulty = |slot: u16| matches!(status.members[usize::from(slot)], MemberState::Faulty { .. });
            assert!(is_faulty(first) && is_faulty(second), "{:?}", status.members);
            let events = rig.guard.events();
            for slot in (0..4).filter(|slot| *slot != first && *slot != second) {
                assert!(events[usize::from(slot)] >= before + 2, "{events:?}");
            }
            let images = rig.judge.images(&mut rig.rng);
            let Assembled::Plan(plan) = rig.judge.assemble(&images, AssembleMode::Forced).expect("legal") else {
                panic!("two members of a raid6 are enough");
            };
            assert!(!plan.template.roles.iter().take(4).enumerate().any(|(number, role)| {
                role.slot().is_some() && (number == usize::from(first) || number == usize::from(second))
            }));
            rig.power_off();
        }
    }
}

/// A member is failed while the permanent failure of another one by command is still being recorded.
#[test]
fn a_member_failed_by_command_is_two_events_behind_when_the_command_returns() {
    for (level, slots) in [(1, 3), (5, 4), (6, 5)] {
        let mut rig = rig(level, slots, false);
        let live = start(&mut rig, &[]);
        rig.judge.lost.borrow_mut().insert(0);
        let before = rig.guard.events()[0];
        let array = live.arrays[0].clone();
        let done = Rc::new(Cell::new(false));
        let inside = done.clone();
        rig.executor.spawn(0, "operator", async move {
            array.fail(SlotSet::EMPTY.with(Slot(0))).await.expect("a member to spare");
            inside.set(true);
        });
        run(&rig, &live, || done.get());
        let events = rig.guard.events();
        assert_eq!(events[0], before);
        assert!(events[1..].iter().all(|events| *events >= before + 2), "{events:?}");
        assert_eq!(plan_now(&mut rig).template.roles[0], Role::Faulty, "no spare, which md would rebuild onto");
        rig.power_off();
    }
}

/// A degraded raid5 freezes after one block of a row was written and its parity was not. The missing member's content
/// at that offset can no longer be computed, and reading it is an error; the sector beside it is read as before.
#[test]
fn only_the_half_written_sectors_of_a_row_are_refused_after_a_freeze() {
    let mut rig = rig(5, 3, false);
    let live = start(&mut rig, &[0]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
    let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    let answers = all(&rig, &live, vec![write(&rig, &live, 2, 1, 2)]);
    assert_eq!(kind(&answers[0]), Some(ErrorKind::NoSpace));
    let found = all(&rig, &live, vec![read(&live, 0, 1), read(&live, 1, 1), read(&live, 2, 1), read(&live, 3, 1)]);
    assert_eq!(found.iter().map(kind).collect::<Vec<_>>(), [Some(ErrorKind::Media), None, None, None]);
    assert!(found[1] == Ok(vec![1; 512]) && found[2] == Ok(vec![2; 512]) && found[3] == Ok(vec![1; 512]));
    // In one request: an error, never bytes that no client wrote.
    assert_eq!(kind(&all(&rig, &live, vec![read(&live, 0, 2)])[0]), Some(ErrorKind::Media));
    rig.power_off();
}

/// After a failed flush on a level without redundancy, it is unknown what was lost: no later flush may succeed.
#[test]
fn a_raid0_with_a_failed_flush_fails_all_later_flushes() {
    for slot in 0..2 {
        let mut rig = rig(0, 2, false);
        rig.judge.is_over_budget.set(true);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
        rig.disk(slot).add_fault(Fault { victim: Target::Flushes, after: 0, effect: Effect::Error(ErrorKind::Media) });
        let flush = || {
            let array = live.arrays[0].clone();
            async move { array.flush().await }
        };
        for round in 0..3 {
            let answers = all(&rig, &live, vec![flush()]);
            assert!(answers[0].is_err(), "member {slot}, flush {round}");
        }
        let array = live.arrays[0].clone();
        let stopped = all(&rig, &live, vec![async move { array.stop().await }]).remove(0).expect_err("it froze");
        assert!(matches!(stopped, StopError::FrozenPlain(_)), "{stopped:?}");
        let text = stopped.to_string();
        assert_eq!(text, "the array was frozen: what was written since its last good flush may be lost");
        rig.power_off();
    }
}

/// A first write may arrive at any moment of the rounds that record a failure. It is submitted only after superblocks
/// that say dirty: those rounds began before it and say clean.
#[test]
fn a_first_write_while_a_failure_is_recorded_waits_for_the_dirty_mark() {
    for step in 0..120 {
        let mut rig = rig(1, 3, false);
        let live = start(&mut rig, &[]);
        rig.judge.lost.borrow_mut().insert(0);
        let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
        let failing =
            async move { array.fail(SlotSet::EMPTY.with(Slot(0))).await.map_err(|_| IoError::new(ErrorKind::Gone)) };
        let later = write(&rig, &live, 0, 1, 7);
        let writing = async move {
            executor.sleep(Duration::from_micros(step)).await;
            later.await
        };
        let requests: Vec<Request> = vec![Box::pin(failing), Box::pin(writing)];
        assert_eq!(all(&rig, &live, requests), [Ok(()), Ok(())]);
        assert!(live.arrays[0].status().is_dirty, "it is not idle yet");
        assert!(plan_now(&mut rig).is_dirty, "{step} us: the bytes of a write are down, and the superblocks say clean");
        rig.power_off();
    }
}

/// A member that is failed by command just before the array stops is recorded in the superblocks when the stop has
/// ended.
#[test]
fn a_member_failed_just_before_a_stop_is_recorded_by_the_stop() {
    let mut failed = 0;
    for seed in 0..200 {
        let mut rig = rig_of(seed, 2, 1, 3, false);
        let live = start(&mut rig, &[]);
        rig.judge.lost.borrow_mut().insert(0);
        let (array, stopped) = (live.arrays[0].clone(), live.arrays[0].clone());
        let failing = async move {
            array.fail(SlotSet::EMPTY.with(Slot(0))).await.map_err(|_| IoError::new(ErrorKind::Stopping))
        };
        let stopping = async move { stopped.stop().await.map_err(|_| IoError::new(ErrorKind::Frozen)) };
        let requests: Vec<Request> = vec![Box::pin(failing), Box::pin(stopping)];
        let answers = all(&rig, &live, requests);
        assert_eq!(answers[1], Ok(()), "seed {seed}");
        let is_faulty = matches!(live.arrays[0].status().members[0], MemberState::Faulty { .. });
        assert_eq!(plan_now(&mut rig).template.roles[0] == Role::Faulty, is_faulty, "seed {seed}: {answers:?}");
        failed += u32::from(is_faulty);
        rig.power_off();
    }
    assert!((1..200).contains(&failed), "either may come first: {failed}");
}

/// A sector that a member of a raid5 cannot read is requested once: a disk may retry for many seconds.
#[test]
fn an_unreadable_sector_is_requested_once_and_computed_from_the_others() {
    for (at, slot) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        let mut rig = rig(5, 3, false);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 6)]), [Ok(())]);
        rig.disk(slot).add_latent([DATA_AT + at % 2]);
        let found = all(&rig, &live, vec![read(&live, at, 1)]);
        assert!(found[0] == Ok(vec![6; 512]));
        let failed = rig.guard.failures();
        assert_eq!(failed.len(), 1, "sector {at}: {failed:?}");
        rig.power_off();
    }
}

/// ```text
///   raid5 of 3, row 0, offset 0:   member 0 unreadable    so P is made of the old P and the old and new D1
///                      offset 1:   member 2 (P) unreadable    so P is made of D0 and the new D1
/// ```
/// No plan writes both sectors of D1 at once: they are written one after the other, each with FUA.
#[test]
fn both_halves_of_a_durable_row_write_are_durable_when_it_is_answered() {
    let mut rig = rig(5, 3, false);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
    rig.disk(0).add_latent([DATA_AT]);
    rig.disk(2).add_latent([DATA_AT + 1]);
    assert_eq!(all(&rig, &live, vec![write_as(&rig, &live, 2, 2, 2, Fua::Yes)]), [Ok(())]);
    let bytes = (DATA_AT as usize * 512)..(DATA_AT as usize + 2) * 512;
    assert!(rig.disk(1).medium().durable()[bytes].iter().all(|byte| *byte == 2), "what would be left without power");
    rig.power_off();
}

/// If more members fail a flush than the array can lose, none is failed. Writes may be lost: no later flush succeeds.
#[test]
fn an_array_that_lost_a_flush_on_too_many_members_fails_all_later_flushes() {
    for (level, slots) in [(1, 2), (5, 3), (6, 4), (10, 4)] {
        let mut rig = rig(level, slots, false);
        rig.judge.is_over_budget.set(true);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
        for slot in 0..slots {
            let effect = Effect::Error(ErrorKind::Media);
            rig.disk(slot).add_fault(Fault { victim: Target::Flushes, after: 0, effect });
        }
        for round in 0..3 {
            let array = live.arrays[0].clone();
            let answers = all(&rig, &live, vec![async move { array.flush().await }]);
            assert!(answers[0].is_err(), "level {level}, flush {round}");
        }
        rig.power_off();
    }
}

/// A raid10 is resynced chunk by chunk. If any chunk has a sector that no copy can read, the array stays dirty.
#[test]
fn an_unreadable_sector_in_any_window_of_a_resync_keeps_the_array_dirty() {
    for at in 0..6 {
        for disks in [[0, 1], [2, 3]] {
            let mut rig = rig(10, 4, true);
            rig.judge.is_over_budget.set(true);
            disks.iter().for_each(|disk| rig.disk(*disk).add_latent([DATA_AT + at]));
            let live = start(&mut rig, &[]);
            assert!(live.arrays[0].status().is_dirty, "sector {at} of members {disks:?}");
            rig.power_off();
        }
    }
}

/// The last member freezes the array by a failed read while the idle array is being flushed to be marked clean.
#[test]
fn an_array_that_froze_during_the_clean_up_is_not_marked_clean() {
    let mut rig = rig(1, 2, false);
    rig.judge.is_over_budget.set(true);
    let live = start(&mut rig, &[1]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
    let takes = Effect::Hang(Duration::from_secs(2));
    rig.disk(0).add_fault(Fault { victim: Target::Flushes, after: 0, effect: takes });
    let gone = Effect::Error(ErrorKind::Gone);
    rig.disk(0).add_fault(Fault { victim: Target::Reads, after: 0, effect: gone });
    let (executor, later) = (rig.executor.clone(), read(&live, 0, 1));
    let reading = async move {
        executor.sleep(Duration::from_secs(1)).await;
        later.await
    };
    assert!(all(&rig, &live, vec![reading])[0].is_err());
    let executor = rig.executor.clone();
    all(&rig, &live, vec![async move { executor.sleep(Duration::from_secs(5)).await }]);
    let status = live.arrays[0].status();
    assert_eq!((status.gate, status.is_dirty), (Gate::Frozen(ErrorKind::Gone), true));
    rig.power_off();
}

/// An array that cannot be marked clean is stopped while a member is being failed by command: the round of superblocks
/// in progress ends before the stop does.
#[test]
fn a_stop_that_leaves_an_array_dirty_leaves_no_superblock_write_in_flight() {
    for step in 0..60 {
        let mut rig = rig(1, 3, true);
        rig.judge.is_over_budget.set(true);
        (0..3).for_each(|disk| rig.disk(disk).add_latent([DATA_AT + 3]));
        let live = start(&mut rig, &[]);
        rig.judge.lost.borrow_mut().insert(0);
        let (array, stopped, executor) = (live.arrays[0].clone(), live.arrays[0].clone(), rig.executor.clone());
        let disks = rig.judge.disks.clone();
        let failing = async move {
            array.fail(SlotSet::EMPTY.with(Slot(0))).await.map_err(|_| IoError::new(ErrorKind::Stopping))
        };
        let stopping = async move {
            executor.sleep(Duration::from_micros(step)).await;
            stopped.stop().await.expect_err("a sector cannot be read");
            assert!(disks.iter().all(|disk| disk.in_flight() == 0), "{step} us: the members are not left alone");
            Ok(())
        };
        let requests: Vec<Request> = vec![Box::pin(failing), Box::pin(stopping)];
        assert_eq!(all(&rig, &live, requests)[1], Ok(()));
        rig.power_off();
    }
}

/// A member that missed the last round and cannot be brought up to date is failed: after the next round it would be two
/// events behind, like a stale one, and the array might not start without it.
#[test]
fn a_member_that_cannot_be_brought_up_to_date_is_failed_during_the_start() {
    for lagging in 0..3 {
        let mut rig = rig(1, 3, false);
        let disk = rig.disk(lagging).clone();
        change_superblock(&rig, lagging, |superblock| superblock.events -= 1);
        rig.judge.lost.borrow_mut().insert(lagging);
        let effect = Effect::Error(ErrorKind::Media);
        disk.add_fault(Fault { victim: Target::SuperWrites, after: 0, effect });
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 1)]), [Ok(())]);
        let status = live.arrays[0].status();
        assert!(matches!(status.members[usize::from(lagging)], MemberState::Faulty { .. }), "{:?}", status.members);
        rig.power_off();
    }
}

#[test]
fn reads_of_a_mirror_wait_for_a_hung_member_for_at_most_two_age_checks() {
    for (level, slots) in [(1, 2), (1, 3), (10, 4)] {
        for hung in 0..slots {
            let mut rig = rig(level, slots, false);
            let live = start(&mut rig, &[]);
            let written = all(&rig, &live, vec![write(&rig, &live, 0, 6, 7)]);
            assert_eq!(written, [Ok(())]);
            let disk = rig.judge.disks[usize::from(hung)].clone();
            disk.hang_without_deadline();
            let begun = rig.executor.now();
            for _ in 0..20 {
                let reads = all(&rig, &live, (0..6).map(|at| read(&live, at, 1)).collect());
                assert!(reads.iter().all(|read| read.as_ref() == Ok(&vec![7; 512])), "raid{level}, {hung}: {reads:?}");
            }
            assert!(rig.executor.now().since(begun) < Duration::from_secs(1), "raid{level}, {hung}");
            let members = live.arrays[0].status().members;
            assert!(members.iter().all(|member| matches!(member, MemberState::Active(_))), "raid{level}, {hung}");
        }
    }
}
