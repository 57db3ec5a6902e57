//! Write-behind: writes that are answered before a write-mostly member has them.
//! Owns: what is read, flushed, cleared and stopped meanwhile, crashes at every moment of such a write, members that fail.
//! Not here: how a run is made (the parent), many such writes among everything else, which the swarm has.

use super::*;
use uraid_format::MemberFlag;
use uraid_sim::image::bits::Bits;

/// The write-mostly member: the lowest slot, which a resync would copy from if its flag did not count.
const LATE: u16 = 0;
const FIRST_DATA: usize = 24 * 512;
const CLEAR_AFTER: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(400);

/// A raid1 of two whose first member is write-mostly, with bits for one sector each. Not one is set.
fn rig_behind(shards: u16, write_behind: u32) -> Rig {
    let shape = Shape { level: 1, layout: 0, chunk: 0, slots: 2, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let write_mostly = SlotSet::EMPTY.with(Slot(LATE));
    let setup = Setup { shards, write_mostly, ..Setup::plain(shape) };
    let bits = Bits { chunk: 1, clear_after: CLEAR_AFTER, are_set: false, write_behind };
    Rig::new(executor, rng, Rc::new(setup.with_bits(Some(bits))), Rc::new(RefCell::new(Tally::default())))
}

fn config() -> Config {
    Config { clear_bits_after: Some(CLEAR_AFTER), ..Config::default() }
}

fn on_next_late_write(rig: &Rig, effect: Effect) {
    rig.disk(LATE).add_fault(Fault { victim: Target::Writes, after: 0, effect });
}

/// The first byte of data on a member.
fn first_byte(rig: &Rig, slot: u16) -> u8 {
    rig.disk(slot).medium().current()[FIRST_DATA]
}

fn has_bit(rig: &Rig, slot: u16) -> bool {
    rig.disk(slot).medium().durable()[16 * 512 + 256] & 1 == 1
}

fn pause(rig: &Rig, live: &Live, time: Duration) {
    let executor = rig.executor.clone();
    all(rig, live, vec![async move { executor.sleep(time).await }]);
}

/// The answer, and how long it took in virtual time.
fn timed<T: 'static>(rig: &Rig, live: &Live, request: impl Future<Output = T> + 'static) -> (T, Duration) {
    let began = rig.executor.now();
    let answer = all(rig, live, vec![request]).pop().expect("one answer");
    (answer, rig.executor.now().since(began))
}

fn flush(live: &Live, shard: usize) -> impl Future<Output = Result<(), IoError>> + 'static {
    let array = live.arrays[shard].clone();
    async move { array.flush().await }
}

fn read_first(live: &Live, shard: usize) -> impl Future<Output = Result<Vec<u8>, IoError>> + 'static {
    let array = live.arrays[shard].clone();
    let into = live.worlds[shard].client_arena().take(512).expect("room");
    async move { array.read(Sector(0), into).await.map(|pieces| pieces.to_vec()) }
}

fn fail(live: &Live, slot: u16) -> impl Future<Output = bool> + 'static {
    let array = live.arrays[0].clone();
    async move { array.fail(SlotSet::EMPTY.with(Slot(slot))).await.is_ok() }
}

#[test]
fn a_write_is_answered_before_the_write_mostly_member_has_it_and_keeps_its_bit_until_then() {
    for shards in [1, 3] {
        let mut rig = rig_behind(shards, 4);
        let live = start_with(&mut rig, &[], &config());
        on_next_late_write(&rig, Effect::Hang(20 * SECOND));
        let (answer, took) = timed(&rig, &live, write(&rig, &live, 0, 1, 7));
        assert!(answer == Ok(()) && took < SOON, "{answer:?} after {took:?}");
        assert_eq!((first_byte(&rig, LATE), first_byte(&rig, 1)), (0, 7));
        pause(&rig, &live, 15 * SECOND);
        assert_eq!(first_byte(&rig, LATE), 0);
        assert!(has_bit(&rig, LATE) && has_bit(&rig, 1), "without it, no resync would know of the sector");
        pause(&rig, &live, 10 * SECOND);
        assert_eq!(first_byte(&rig, LATE), 7);
        pause(&rig, &live, 10 * SECOND);
        assert!(!has_bit(&rig, LATE) && !has_bit(&rig, 1), "it is cleared afterwards");
        rig.power_off();
    }
}

#[test]
fn writes_that_may_not_be_behind_wait_for_every_member() {
    // No write-behind; FUA; beyond the bound.
    for (write_behind, fua, outstanding) in [(0, Fua::No, 0), (4, Fua::Yes, 0), (2, Fua::No, 2)] {
        let mut rig = rig_behind(1, write_behind);
        let live = start_with(&mut rig, &[], &config());
        for at in 0..outstanding {
            on_next_late_write(&rig, Effect::Hang(3 * SECOND));
            let (answer, took) = timed(&rig, &live, write(&rig, &live, at + 4, 1, 1));
            assert!(answer == Ok(()) && took < SOON, "{took:?}");
        }
        on_next_late_write(&rig, Effect::Hang(3 * SECOND));
        let (answer, took) = timed(&rig, &live, write_as(&rig, &live, 0, 1, 7, fua));
        assert!(answer == Ok(()) && took >= 3 * SECOND, "{write_behind}, {fua:?}: {took:?}");
        assert_eq!(first_byte(&rig, LATE), 7);
        rig.power_off();
    }
}

/// A write of one sector from a shard, whose memory is of that shard. `answered` counts its success.
fn write_counted(
    live: &Live,
    rig: &Rig,
    shard: u16,
    at: u64,
    answered: &Rc<Cell<u32>>,
) -> impl Future<Output = Result<(), IoError>> + 'static {
    let (array, guard) = (live.arrays[usize::from(shard)].clone(), rig.guard.clone());
    let mut pieces = live.worlds[usize::from(shard)].client_arena().take(512).expect("room");
    pieces.fill(9);
    let answered = answered.clone();
    guard.open_range(at, 1);
    async move {
        let answer = array.write(Sector(at), pieces.freeze(), Fua::No).await;
        guard.close_range(at, 1);
        answered.set(answered.get() + u32::from(answer.is_ok()));
        answer
    }
}

/// The buffers in use on all shards: those of clients, and all others.
fn buffers(live: &Live) -> (usize, usize) {
    let of_clients = live.worlds.iter().map(|world| world.blocks_in_use()[4]).sum();
    (of_clients, live.worlds.iter().flat_map(|world| world.blocks_in_use()).sum::<usize>() - of_clients)
}

/// The shards of an array, and how many of its writes may be behind: with one shard, and with fewer, as many and more
/// writes than shards.
const SHARES: [(u16, u32); 6] = [(1, 1), (1, 4), (3, 1), (3, 3), (3, 5), (4, 22)];

/// An array whose bits are all set, so that no write has to wait for its bit on the member that hangs.
fn rig_before_a_hang(shards: u16, write_behind: u32) -> (Rig, Live) {
    let mut rig = rig_behind(shards, write_behind);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &config());
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 24, 1)]), [Ok(())]);
    assert_eq!(all(&rig, &live, vec![flush(&live, 0)]), [Ok(())]);
    (rig, live)
}

/// Writes of every sector, each shard's share of them, half of them half a minute later. Each of them that is answered has
/// given its memory back; the others hold what they brought, and wait.
#[test]
fn a_member_that_hangs_holds_back_the_writes_beyond_the_bound_until_it_is_failed() {
    for (shards, write_behind) in SHARES {
        let (rig, live) = rig_before_a_hang(shards, write_behind);
        let (what, tasks) = (format!("{write_behind} of {shards} shards"), rig.executor.tasks());
        rig.disk(LATE).hang_without_deadline();
        let (answered, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for half in [0, 1] {
            for at in 12 * half..12 * (half + 1) {
                let write = write_counted(&live, &rig, at as u16 % shards, at, &answered);
                let ended = ended.clone();
                rig.executor.spawn(0, "client", async move {
                    assert_eq!(write.await, Ok(()));
                    ended.set(ended.get() + 1);
                });
            }
            pause(&rig, &live, 30 * SECOND);
            let (given, shards) = (12 * (half as u32 + 1), u32::from(shards));
            // Each shard has its share of the places, and as many writes as the others.
            let shares = (0..shards).map(|shard| write_behind / shards + u32::from(shard < write_behind % shards));
            let expected: u32 = shares.map(|share| share.min(given / shards)).sum();
            assert_eq!(answered.get(), expected, "{what}, {given} writes");
            assert_eq!(rig.disk(LATE).in_flight(), u64::from(given), "{what}: each is asked for once");
            assert_eq!(buffers(&live), ((given - expected) as usize, 0), "{what}: clients' memory, and others'");
        }
        assert!(all(&rig, &live, vec![read_first(&live, 0)]) == [Ok(vec![9; 512])], "{what}: reads go on");
        assert_eq!(all(&rig, &live, vec![fail(&live, LATE)]), [true]);
        run(&rig, &live, || ended.get() == 24);
        pause(&rig, &live, SECOND);
        assert_eq!((answered.get(), rig.disk(LATE).in_flight(), buffers(&live)), (24, 0, (0, 0)), "{what}");
        assert_eq!(rig.executor.tasks(), tasks, "{what}: no task waits for the member");
        assert_eq!(all(&rig, &live, vec![flush(&live, 0)]), [Ok(())], "{what}");
        rig.power_off();
    }
}

/// A member that is slow again and again, and answers each time: the places are free again.
#[test]
fn the_places_of_writes_that_were_behind_are_free_when_the_member_answers() {
    for (shards, write_behind) in SHARES {
        let (rig, live) = rig_before_a_hang(shards, write_behind);
        for round in 0..6 {
            let what = format!("{write_behind} of {shards} shards, round {round}");
            (0..24).for_each(|_| on_next_late_write(&rig, Effect::Hang(5 * SECOND)));
            let answered = Rc::new(Cell::new(0));
            let writes = (0..24).map(|at| write_counted(&live, &rig, at as u16 % shards, at, &answered));
            let writes = writes.collect();
            let seen = Rc::new(Cell::new(0));
            let (executor, now, later) = (rig.executor.clone(), answered.clone(), seen.clone());
            rig.executor.spawn(0, "watch", async move {
                executor.sleep(SECOND).await;
                later.set(now.get());
            });
            assert!(all(&rig, &live, writes).iter().all(Result::is_ok), "{what}");
            assert_eq!(seen.get(), write_behind, "{what}: after a second, those that are behind are answered");
            pause(&rig, &live, SECOND);
            assert_eq!((rig.disk(LATE).in_flight(), buffers(&live)), (0, (0, 0)), "{what}");
        }
        rig.power_off();
    }
}

/// A write of the same sectors begins when the earlier one has ended: the later one is what every member holds.
#[test]
fn overlapping_writes_stay_in_order() {
    let mut rig = rig_behind(1, 4);
    let live = start_with(&mut rig, &[], &config());
    on_next_late_write(&rig, Effect::Hang(3 * SECOND));
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 2, 1)]), [Ok(())]);
    let (answer, took) = timed(&rig, &live, write(&rig, &live, 4, 1, 9));
    assert!(answer == Ok(()) && took < SOON, "no other sector waits: {took:?}");
    let (answer, took) = timed(&rig, &live, write(&rig, &live, 0, 1, 2));
    assert!(answer == Ok(()) && took >= 2 * SECOND, "{took:?}");
    pause(&rig, &live, SECOND);
    assert_eq!((first_byte(&rig, LATE), first_byte(&rig, 1)), (2, 2));
    rig.power_off();
}

/// Every other member has failed: the write-mostly one is read when it has what was answered, on any shard.
#[test]
fn a_read_of_the_write_mostly_member_waits_for_what_was_answered() {
    for (shards, reader) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        let mut rig = rig_behind(shards, 4);
        let live = start_with(&mut rig, &[], &config());
        on_next_late_write(&rig, Effect::Hang(5 * SECOND));
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
        assert_eq!(all(&rig, &live, vec![fail(&live, 1)]), [true]);
        assert_eq!(first_byte(&rig, LATE), 0, "it has not ended yet");
        let (answer, took) = timed(&rig, &live, read_first(&live, reader));
        assert!(answer == Ok(vec![7; 512]) && took > SECOND, "{took:?}");
        let (answer, took) = timed(&rig, &live, write(&rig, &live, 0, 1, 8));
        assert!(answer == Ok(()) && took < SOON, "{took:?}");
        assert!(all(&rig, &live, vec![read_first(&live, reader)]) == [Ok(vec![8; 512])]);
        rig.power_off();
    }
}

#[test]
fn a_flush_waits_for_what_was_answered_on_any_shard() {
    for (shards, flusher) in [(1, 0), (3, 1), (3, 2)] {
        let mut rig = rig_behind(shards, 4);
        let live = start_with(&mut rig, &[], &config());
        on_next_late_write(&rig, Effect::Hang(5 * SECOND));
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
        let (answer, took) = timed(&rig, &live, flush(&live, flusher));
        assert!(answer == Ok(()) && took > 4 * SECOND, "{took:?}");
        assert_eq!(rig.disk(LATE).medium().durable()[FIRST_DATA], 7);
        rig.power_off();
    }
}

#[test]
fn stops_flags_and_bitmaps_wait_for_what_was_answered() {
    for what in ["stop", "clear", "no bitmap", "read-only"] {
        let mut rig = rig_behind(2, 4);
        let live = start_with(&mut rig, &[], &config());
        on_next_late_write(&rig, Effect::Hang(5 * SECOND));
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
        let array = live.arrays[0].clone();
        let changed = async move {
            match what {
                "stop" => array.stop().await.is_ok(),
                "clear" => array.set_flag(&[0], MemberFlag::WriteMostly, false).await.is_ok(),
                "no bitmap" => array.remove_bitmap().await.is_ok(),
                _ => array.become_read_only().await.is_ok(),
            }
        };
        let (is_done, took) = timed(&rig, &live, changed);
        assert!(is_done && took > 4 * SECOND, "{what}: {is_done}, {took:?}");
        assert_eq!((first_byte(&rig, LATE), first_byte(&rig, 1)), (7, 7), "{what}");
        if matches!(what, "clear" | "no bitmap") {
            on_next_late_write(&rig, Effect::Hang(5 * SECOND));
            let (answer, took) = timed(&rig, &live, write(&rig, &live, 1, 1, 7));
            assert!(answer == Ok(()) && took > 4 * SECOND, "{what}: no write is behind any more: {took:?}");
        }
        rig.power_off();
    }
}

/// The flag is durable before a write is behind.
#[test]
fn a_member_that_becomes_write_mostly_may_be_behind() {
    let mut rig = rig_behind(2, 4);
    let live = start_with(&mut rig, &[], &config());
    let set = |is_set| {
        let array = live.arrays[0].clone();
        async move { array.set_flag(&[0], MemberFlag::WriteMostly, is_set).await.is_ok() }
    };
    assert_eq!(all(&rig, &live, vec![set(false)]), [true]);
    assert_eq!(all(&rig, &live, vec![set(true)]), [true]);
    on_next_late_write(&rig, Effect::Hang(5 * SECOND));
    let (answer, took) = timed(&rig, &live, write(&rig, &live, 0, 1, 7));
    assert!(answer == Ok(()) && took < SOON, "{took:?}");
    let flags = |plan: &StartPlan| plan.members.iter().map(|member| member.superblock.devflags).collect::<Vec<_>>();
    assert_eq!(flags(&plan_now(&mut rig)), [1, 0]);
    rig.power_off();
}

/// The member that is behind does not answer, and is failed. A flush is answered when the superblocks say so.
#[test]
fn a_write_that_fails_after_its_answer_fails_its_member() {
    let mut rig = rig_behind(2, 4);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &config());
    on_next_late_write(&rig, Effect::NeverAnswer);
    let (answer, took) = timed(&rig, &live, write(&rig, &live, 0, 1, 7));
    assert!(answer == Ok(()) && took < SOON, "{took:?}");
    assert_eq!(all(&rig, &live, vec![flush(&live, 1)]), [Ok(())]);
    assert!(live.arrays[0].status().usable == SlotSet::EMPTY.with(Slot(1)), "it is failed");
    assert_eq!(plan_now(&mut rig).members.len(), 1, "and the superblocks say so");
    assert!(all(&rig, &live, vec![read_first(&live, 0)]) == [Ok(vec![7; 512])]);
    rig.power_off();
}

/// The member that is behind has no space, and the array freezes: no superblock says that it lacks the write. So if the
/// other member was lost, a start would take it for right. When it is failed, the superblocks say so.
#[test]
fn no_flush_succeeds_while_a_member_lacks_an_answered_write_without_a_record() {
    for shards in [1, 2] {
        let mut rig = rig_behind(shards, 4);
        rig.judge.is_over_budget.set(true);
        let live = start_with(&mut rig, &[], &config());
        on_next_late_write(&rig, Effect::Error(ErrorKind::NoSpace));
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
        for shard in 0..usize::from(shards) {
            assert!(all(&rig, &live, vec![flush(&live, shard)])[0].is_err(), "shard {shard}: it has no record");
            assert!(all(&rig, &live, vec![read_first(&live, shard)]) == [Ok(vec![7; 512])], "the other member has it");
        }
        assert!(matches!(live.arrays[0].view().gate, Gate::Frozen(_)));
        assert_eq!(all(&rig, &live, vec![fail(&live, LATE)]), [true]);
        assert_eq!(all(&rig, &live, vec![flush(&live, 0)]), [Ok(())], "now it has");
        assert!(live.arrays[0].status().usable == SlotSet::EMPTY.with(Slot(1)));
        rig.power_off();
    }
}

/// The other member fails while the write is behind, and then the write fails: no member has it. The old bytes are not
/// read, and no flush succeeds.
#[test]
fn a_write_that_no_member_has_any_more_is_not_read_as_it_was_before() {
    for shards in [1, 2] {
        let mut rig = rig_behind(shards, 4);
        rig.judge.is_over_budget.set(true);
        let live = start_with(&mut rig, &[], &config());
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())]);
        assert_eq!(all(&rig, &live, vec![flush(&live, 0)]), [Ok(())]);
        // It takes its superblocks, and fails this write in five seconds.
        rig.disk(LATE).add_broken([FIRST_DATA as u64 / 512]);
        on_next_late_write(&rig, Effect::Hang(5 * SECOND));
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
        assert_eq!(all(&rig, &live, vec![fail(&live, 1)]), [true]);
        for shard in 0..usize::from(shards) {
            assert!(all(&rig, &live, vec![read_first(&live, shard)])[0].is_err(), "shard {shard}: not the old bytes");
            assert!(all(&rig, &live, vec![flush(&live, shard)])[0].is_err(), "shard {shard}: it is on no member");
        }
        assert!(matches!(live.arrays[0].view().gate, Gate::Frozen(_)));
        rig.power_off();
    }
}

/// The other member fails the write: it is not answered before the write-mostly one has it.
#[test]
fn a_write_that_another_member_fails_is_not_behind() {
    let mut rig = rig_behind(1, 4);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &config());
    on_next_late_write(&rig, Effect::Hang(5 * SECOND));
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Error(ErrorKind::Media) });
    let (answer, took) = timed(&rig, &live, write(&rig, &live, 0, 1, 7));
    assert!(answer == Ok(()) && took > 4 * SECOND, "{answer:?} after {took:?}");
    assert!(all(&rig, &live, vec![read_first(&live, 0)]) == [Ok(vec![7; 512])], "of the member that is left");
    rig.power_off();
}

/// The write-mostly member fails the write before the other one has it: it is recorded as lacking it.
#[test]
fn a_write_that_the_member_behind_fails_first_fails_that_member() {
    let mut rig = rig_behind(1, 4);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &config());
    on_next_late_write(&rig, Effect::Error(ErrorKind::Media));
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(5 * SECOND) });
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
    assert_eq!((first_byte(&rig, LATE), first_byte(&rig, 1)), (0, 7));
    assert!(live.arrays[0].status().usable == SlotSet::EMPTY.with(Slot(1)), "it is failed");
    assert_eq!(plan_now(&mut rig).members.len(), 1, "and the superblocks say so");
    rig.power_off();
}

/// How far the client of the next test has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Come {
    Nowhere,
    Answered,
    Flushed,
}

/// A write that is behind, then a flush, cut off every 50 µs: by the end of the process, which leaves what members were
/// given, and of the power, which leaves what was flushed. With any one member lost.
#[test]
fn a_crash_at_any_moment_keeps_what_was_answered() {
    let mut seen = BTreeSet::new();
    for step in 0..80 {
        let mut rig = rig_behind(2, 4);
        let live = start_with(&mut rig, &[], &config());
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 1)]), [Ok(())]);
        assert_eq!(all(&rig, &live, vec![flush(&live, 0)]), [Ok(())]);
        on_next_late_write(&rig, Effect::Hang(Duration::from_millis(2)));
        let come = Rc::new(Cell::new(Come::Nowhere));
        let (writes, flushes, notes) = (write(&rig, &live, 0, 1, 2), flush(&live, 1), come.clone());
        rig.executor.spawn(0, "client", async move {
            assert_eq!(writes.await, Ok(()));
            notes.set(Come::Answered);
            assert_eq!(flushes.await, Ok(()));
            notes.set(Come::Flushed);
        });
        pause(&rig, &live, Duration::from_micros(50 * step));
        let killed: Vec<_> = rig.judge.disks.iter().map(|disk| Some(disk.medium().current().to_vec())).collect();
        let cut: Vec<_> = rig.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
        for (images, is_killed) in [(killed, true), (cut, false)] {
            for lost in [None, Some(LATE), Some(1)] {
                let must_be_new = match come.get() {
                    Come::Nowhere => false,
                    // The write-mostly member alone may lack what was answered and not flushed.
                    Come::Answered => is_killed && lost != Some(1),
                    Come::Flushed => true,
                };
                let mut branch = rig.branch(images.clone(), Rng::new(step)).expect("legal");
                branch.judge.is_over_budget.set(true);
                let away: Vec<u16> = lost.into_iter().collect();
                let branched = open_with(&mut branch, &away, &config());
                let before = all(&branch, &branched, vec![read_first(&branched, 0)]);
                let executor = branch.executor.clone();
                run(&branch, &branched, || !executor.is_running(branched.start));
                let after = all(&branch, &branched, vec![read_first(&branched, 1)]);
                let what = format!("step {step}, {:?}, killed {is_killed}, without {lost:?}", come.get());
                assert!(before == after, "{what}: two reads disagree");
                assert!(before == [Ok(vec![2; 512])] || !must_be_new && before == [Ok(vec![1; 512])], "{what}");
                branch.power_off();
            }
        }
        seen.insert(come.get());
        rig.power_off();
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// The canary of a read that does not wait.
#[cfg(feature = "canaries")]
#[test]
fn a_read_of_what_a_member_does_not_have_yet_is_found() {
    use uraid_engine::canary::set;
    let mut rig = rig_behind(2, 4);
    let live = start_with(&mut rig, &[], &config());
    on_next_late_write(&rig, Effect::Hang(5 * SECOND));
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
    assert_eq!(all(&rig, &live, vec![fail(&live, 1)]), [true]);
    set(Some("ReadNotBehind"));
    let found = all(&rig, &live, vec![read_first(&live, 1)]);
    set(None);
    assert!(found == [Ok(vec![0; 512])], "the old bytes");
    rig.power_off();
}
