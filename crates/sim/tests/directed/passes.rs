//! Passes beside clients: their share of the time and of the bytes, and that they end.
//! Owns: these runs. Not here: what a pass does (the other files), how a maximum is kept (`checks`).

use super::*;
use uraid_engine::{PassKind, Share, SpeedLimits};
use uraid_sim::machine::member::Latency;

/// A minimum that does not count here.
const SLOW: SpeedLimits = SpeedLimits { min: Some(1), max: None, share: None };

/// The sectors of each member, and the windows that they are passed in.
const SIZE: u64 = 512;
const WINDOW: u64 = 4;
const WINDOWS: u32 = (SIZE / WINDOW) as u32;

/// An open array of short windows. A read of a member takes at least this long, and at most twice as long. So does a
/// window of a check: it reads all members at once.
fn opened(level: i32, slots: u16, shards: u16, takes: Duration, spare_blocks: u32) -> (Rig, Live) {
    let (layout, chunk) = if level == 1 { (0, 0) } else { (2, 2) };
    let shape = Shape { level, layout, chunk, slots, size: SIZE, member_sizes: Vec::new() };
    let mut rng = Rng::new(7);
    let executor = Executor::new(rng.fork(), false);
    let nanos = takes.as_nanos() as u64;
    let latency = Latency { min: nanos, max: 2 * nanos, slow_one_in: 0 };
    let setup = Setup { shards, latency, spare_blocks, ..Setup::plain(shape) };
    let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    let live = start_with(&mut rig, &[], &Config { pass_window: Sectors(WINDOW), ..Config::default() });
    (rig, live)
}

fn set_speed(rig: &Rig, live: &Live, limits: SpeedLimits) {
    let array = live.arrays[0].clone();
    all(rig, live, vec![async move { array.set_speed(limits).await }]);
}

fn sleep(rig: &Rig, live: &Live, time: Duration) {
    let executor = rig.executor.clone();
    all(rig, live, vec![async move { executor.sleep(time).await }]);
}

/// How long a check takes that begins now.
fn check(rig: &Rig, live: &Live) -> Duration {
    let (array, began) = (live.arrays[0].clone(), rig.executor.now());
    array.begin_check().expect("it begins");
    run(rig, live, || array.checked().is_some());
    rig.executor.now().since(began)
}

/// Reads on this shard, one after the other, until the flag is set.
fn load(rig: &Rig, live: &Live, shard: u16) -> Rc<Cell<bool>> {
    load_of(rig, live, shard, 512)
}

fn load_of(rig: &Rig, live: &Live, shard: u16, bytes: usize) -> Rc<Cell<bool>> {
    let is_over = Rc::new(Cell::new(false));
    let at = usize::from(shard);
    let (array, arena, flag) = (live.arrays[at].clone(), live.worlds[at].client_arena().clone(), is_over.clone());
    rig.executor.spawn(shard, "load", async move {
        while !flag.get() {
            array.read(Sector(0), arena.take(bytes).expect("room")).await.expect("healthy");
        }
    });
    is_over
}

#[test]
fn a_pass_beside_a_load_without_end_takes_its_share_of_the_time_and_ends() {
    let takes = Duration::from_micros(15);
    for (level, slots) in [(1, 2), (5, 3)] {
        // Room for four windows at a time, or five.
        let (rig, live) = opened(level, slots, 1, takes, 14);
        set_speed(&rig, &live, SLOW);
        let alone = check(&rig, &live);
        assert!(alone < takes * WINDOWS, "raid{level}: {alone:?} alone, several windows at a time");
        let is_over = load(&rig, &live, 0);
        let beside = check(&rig, &live);
        // 15 % of the time.
        let share = takes * WINDOWS * 100 / 15..takes * WINDOWS * 2 * 100 / 15;
        assert!(share.contains(&beside), "raid{level}: {beside:?} beside clients, expected {share:?}");
        set_speed(&rig, &live, SpeedLimits { share: Share::of_percent(5), ..SLOW });
        let less = check(&rig, &live);
        assert!(
            less > beside * 5 / 2 && less < beside * 7 / 2,
            "raid{level}: {less:?} with a third of the share, {beside:?}"
        );
        set_speed(&rig, &live, SpeedLimits { min: Some(1 << 30), max: None, share: None });
        let pushed = check(&rig, &live);
        assert!(pushed < alone * 2, "raid{level}: {pushed:?} with a minimum that it does not reach, {alone:?} alone");
        is_over.set(true);
        set_speed(&rig, &live, SLOW);
        sleep(&rig, &live, Duration::from_millis(20));
        let again = check(&rig, &live);
        assert!(again < alone * 2, "raid{level}: {again:?} when the clients are gone, {alone:?} before they came");
    }
}

#[test]
fn a_pass_is_as_fast_as_its_minimum_beside_a_load_without_end() {
    // 15 % of the time is a window each 7 to 13 ms.
    let (rig, live) = opened(1, 2, 1, Duration::from_millis(1), 1);
    // 2 KiB each 4 ms.
    set_speed(&rig, &live, SpeedLimits { min: Some(500), max: None, share: None });
    let is_over = load(&rig, &live, 0);
    let beside = check(&rig, &live);
    is_over.set(true);
    let expected = Duration::from_millis(4) * (WINDOWS - 1);
    assert!((expected..expected + expected / 20).contains(&beside), "{beside:?} beside clients, expected {expected:?}");
}

/// Sixteen readers, one request each of 16 KiB, on members that answer each within some 15 ms: a window waits as long as
/// any of them, and a share of the time would be one window of 2 KiB each 100 to 200 ms.
#[test]
fn a_pass_beside_a_deep_load_has_its_share_of_the_bytes() {
    let (rig, live) = opened(1, 2, 1, Duration::from_millis(15), 14);
    set_speed(&rig, &live, SLOW);
    let loads: Vec<_> = (0..16).map(|_| load_of(&rig, &live, 0, 16 << 10)).collect();
    // The shards are asked each 200 ms; before, nothing is known.
    let beside = check(&rig, &live);
    loads.iter().for_each(|is_over| is_over.set(true));
    // About 16 x 16 KiB each 22 ms on two members: 6 MB/s of each, and 15/85 of it for the pass: a check of 256 KiB
    // takes a quarter of a second. By time alone it takes 16 s.
    assert!(beside < Duration::from_millis(1200), "{beside:?} beside clients");
    assert!(beside > Duration::from_millis(200), "{beside:?}: it has waited until then");
}

/// A recovery of a raid1 of two has a larger share than one of a raid1 of three, which can still lose a member.
#[test]
fn a_recovery_without_redundancy_has_a_larger_share() {
    let shares = [2, 3].map(|slots| {
        let mut rig = super::spares::rig_with_spare(1, 0, slots, 1);
        let live = open_with(&mut rig, &[], &Config { pass_window: Sectors(1), ..Config::default() });
        let array = live.arrays[0].clone();
        assert_eq!(array.pass_share(), Share::DEFAULT);
        // A sector each half second.
        set_speed(&rig, &live, SpeedLimits { max: Some(1), ..SLOW });
        super::spares::fail(&rig, &live, 1);
        run(&rig, &live, || array.status().pass.is_some_and(|pass| pass.kind == PassKind::Recovery && pass.done.0 > 0));
        let of_recovery = array.pass_share().percent();
        set_speed(&rig, &live, SpeedLimits { share: Share::of_percent(7), ..SLOW });
        assert_eq!(array.pass_share().percent(), 7);
        set_speed(&rig, &live, SLOW);
        assert_eq!(array.pass_share().percent(), of_recovery);
        rig.power_off();
        of_recovery
    });
    assert_eq!(shares, [30, 15]);
}

#[test]
fn a_request_that_is_in_flight_for_long_is_a_client() {
    let (rig, live) = opened(1, 2, 1, Duration::from_micros(15), 1);
    set_speed(&rig, &live, SLOW);
    let alone = check(&rig, &live);
    // It is tried on the other member after a quarter of a second: by then the check has ended.
    let effect = Effect::Hang(Duration::from_secs(3));
    rig.disk(0).add_fault(Fault { victim: Target::Reads, after: 0, effect });
    let reading = read(&live, 0, 1);
    rig.executor.spawn(0, "read", async move { assert_eq!(reading.await.map(|bytes| bytes.len()), Ok(512)) });
    run(&rig, &live, || rig.disk(0).in_flight() > 0);
    sleep(&rig, &live, Duration::from_millis(30));
    let beside = check(&rig, &live);
    assert!(beside >= alone * 5, "{beside:?} beside a request that takes long, {alone:?} alone");
}

#[test]
fn a_pass_on_a_shard_without_clients_hears_of_those_of_another_shard() {
    // Shard 0 owns all of a mirror that is smaller than 64 MiB: shard 1 has no part in the check.
    let (rig, live) = opened(1, 2, 2, Duration::from_millis(5), 1);
    set_speed(&rig, &live, SLOW);
    let alone = check(&rig, &live);
    let is_over = load(&rig, &live, 1);
    let beside = check(&rig, &live);
    // With two shards, each takes 7.5 % of the time. The first 200 ms are passed unaware of the clients.
    assert!(beside >= alone * 6, "{beside:?} beside clients of another shard, {alone:?} alone");
    let array = live.arrays[0].clone();
    array.begin_check().expect("it begins");
    sleep(&rig, &live, Duration::from_secs(2));
    is_over.set(true);
    let gone = rig.executor.now();
    run(&rig, &live, || array.checked().is_some());
    let rest = rig.executor.now().since(gone);
    let heard = Duration::from_millis(250);
    assert!(rest <= alone + heard, "{rest:?} from when the clients were gone, {alone:?} alone");
}

/// ```text
///   raid6 of 5, rows of 4 sectors    0    4    8    12   16   20
///   member 1, recovered below 16     |-------------- P --|..........     a crash left its parity of row 3 old
///   member 2, recovered below 8      |--------|.....................     is lost in a power cut after the resync
/// ```
/// The resync has made right what member 1 holds beyond member 2: alone, it is recovered from 16 on.
#[test]
fn a_resync_keeps_right_what_the_furthest_of_two_recovering_members_holds() {
    let shape = Shape { level: 6, layout: 2, chunk: 4, slots: 5, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(5);
    let executor = Executor::new(rng.fork(), false);
    let mut rig = Rig::new(executor, rng, Rc::new(Setup::plain(shape)), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    for slot in 0..5 {
        change_superblock(&rig, slot, |own| own.resync_offset = 0);
    }
    for (slot, below) in [(1, 16), (2, 8)] {
        change_superblock(&rig, slot, |own| {
            own.features = own.features.with(uraid_format::Features::RECOVERY_OFFSET);
            own.recovery_offset = below;
        });
    }
    let data_at = rig.setup.data_offsets[1] as usize;
    let mut image = rig.disk(1).medium().current().to_vec();
    image[(data_at + 12) * 512..(data_at + 16) * 512].fill(0x33);
    rig.disk(1).replace(image);
    let options = uraid_engine::AssembleOptions { force: true, run: true, ..Default::default() };
    let plan = super::joining::assembled_with(&rig, &options);
    let live = rig.boot(&plan, &Config { pass_window: Sectors(1), ..Config::default() }).expect("sizes agree");
    let array = live.arrays[0].clone();
    run(&rig, &live, || array.status().pass.is_some_and(|pass| pass.kind == PassKind::Recovery));
    // The recovery of both goes no further.
    for slot in [1, 2] {
        let hang = Effect::Hang(Duration::from_secs(20));
        rig.disk(slot).add_fault(Fault { victim: Target::Writes, after: 0, effect: hang });
    }
    let is_consistent = || {
        let image = rig.disk(0).medium().durable().to_vec();
        let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a superblock");
        let superblock = Superblock::parse(bytes, Sector(8), rig.disk(0).geometry().size).expect("a good one");
        superblock.resync_offset == u64::MAX
    };
    run(&rig, &live, is_consistent);
    let mut images: Vec<Vec<u8>> = rig.judge.disks.iter().map(|disk| disk.medium().current().to_vec()).collect();
    images[2][8 * 512..16 * 512].fill(0);
    rig.judge.unreadable.borrow_mut().extend(0..5);
    let mut after = rig.branch(images.into_iter().map(Some).collect(), Rng::new(5)).expect("whole superblocks");
    rig.power_off();
    after.judge.is_over_budget.set(true);
    let plan = super::joining::assembled_with(&after, &options);
    let live = after.boot(&plan, &Config::default()).expect("sizes agree");
    run(&after, &live, || live.started.get().is_some());
    super::spares::wait(&after, &live);
    let array = live.arrays[0].clone();
    assert_eq!(array.status().usable, SlotSet::first(5).without(Slot(2)), "{:?}", array.status().members);
    array.begin_check().expect("P or Q is left");
    run(&after, &live, || array.checked().is_some());
    assert_eq!(array.checked().expect("it is over").progress.mismatched, Sectors::ZERO);
    after.power_off();
}

/// A member is full, and the array freezes in the middle of a resync; `fail` makes it whole while a window is in flight. The
/// resync goes on: nothing that it had not reached counts as consistent.
#[test]
fn a_resync_that_a_freeze_cuts_short_goes_on_when_the_array_takes_writes_again() {
    let mut cut = 0;
    for steps in (0..240).step_by(stride(7)) {
        for later in [0, 1, 2, 4, 8, 16] {
            let case = format!("the member is full after {steps} steps, and failed {later} later");
            let mut rig = rig_of(7, 1, 1, 3, true);
            rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
            rig.judge.is_over_budget.set(true);
            let live = open_with(&mut rig, &[], &Config { pass_window: Sectors(1), ..Config::default() });
            let (executor, array) = (rig.executor.clone(), live.arrays[0].clone());
            let end = executor.now() + Duration::from_secs(60);
            executor.run(steps, end, || false);
            let is_running = array.status().pass.is_some();
            let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
            rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect });
            let writing = write(&rig, &live, 1, 1, 7);
            rig.executor.spawn(0, "write", async move {
                let _ = writing.await;
            });
            run(&rig, &live, || matches!(array.view().gate, Gate::Frozen(_)));
            executor.run(later, end, || false);
            let failing = array.clone();
            let answer =
                all(&rig, &live, vec![async move { failing.fail(SlotSet::EMPTY.with(Slot(1))).await }]).remove(0);
            assert_eq!(answer, Ok(()), "{case}");
            cut += u64::from(is_running);
            super::spares::wait(&rig, &live);
            array.begin_check().expect(&case);
            run(&rig, &live, || array.checked().is_some());
            assert_eq!(array.checked().expect("it is over").progress.mismatched, Sectors::ZERO, "{case}");
            rig.power_off();
        }
    }
    assert!(cut > 0);
}
