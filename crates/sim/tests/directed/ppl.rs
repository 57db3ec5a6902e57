//! raid5 with a partial parity log: power cuts in the middle of writes, with and without the loss of a member.
//! Owns: what may be lost then, at every step of some runs; crashes in the start that follows. Not here: what an entry of
//! a log says (`engine`), logs that md has written (the VM).

mod rare;
mod recovering;

use super::spares::{content_of, fail, fill, wait};
use super::*;
use uraid_sim::machine::member::medium::CrashMode;

thread_local! {
    /// Whether members of a new rig have bad-block logs.
    pub(super) static HAS_LISTS: Cell<bool> = const { Cell::new(false) };
    /// The members of a new rig that have a volatile cache; all without this.
    pub(super) static CACHED: Cell<Option<SlotSet>> = const { Cell::new(None) };
}

/// Layout, slots, shards.
const CASES: [(u32, u16, u16); 4] = [(2, 3, 1), (2, 4, 3), (0, 4, 1), (5, 4, 2)];

pub(super) fn rig_with_ppl(layout: u32, slots: u16, shards: u16, spares: u16, seed: u64) -> Rig {
    rig_of_chunk(4, layout, slots, shards, spares, seed)
}

/// Six rows.
fn rig_of_chunk(chunk: u64, layout: u32, slots: u16, shards: u16, spares: u16, seed: u64) -> Rig {
    let size = 6 * chunk;
    let shape = Shape { level: 5, layout, chunk, slots, size, member_sizes: Vec::new() };
    let mut rng = Rng::new(seed);
    let executor = Executor::new(rng.fork(), false);
    let all = usize::from(slots + spares);
    let plain = Setup::plain(shape);
    let caches = CACHED.get().unwrap_or(SlotSet::first(slots + spares));
    let setup = Setup { spares, shards, caches, data_offsets: vec![16; all], data_sizes: vec![size; all], ..plain };
    let setup = if HAS_LISTS.get() { setup.with_logs().with_ppl() } else { setup.with_ppl() };
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    (slots..slots + spares).for_each(|spare| {
        change_superblock(&rig, spare, |own| own.features = own.features.without(uraid_format::Features::BAD_BLOCKS))
    });
    rig.judge.is_over_budget.set(true);
    rig
}

/// A write of one run, with the byte that it writes.
#[derive(Clone, Copy, Debug)]
struct Written {
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) byte: u8,
}

/// What happens before the writes, or among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Among {
    Nothing,
    /// A member is missing from the start.
    Missing(u16),
    /// A member fails with its next write of this kind.
    Fails(u16, Target),
    /// A member has failed, and a spare is being recovered.
    Recovery(u16),
    /// A member is being copied to a spare.
    Copy(u16),
}

/// Starts some writes at once. Returns them, and how many are left.
fn begin_writes(rig: &mut Rig, live: &Live) -> (Vec<Written>, Rc<Cell<usize>>) {
    let size = rig.judge.model.array_size();
    let written: Vec<Written> = (0..6u8)
        .map(|number| {
            let length = *rig.rng.pick(&[1, 2, 4, 5, 9, 16]);
            let at = rig.rng.below(size - length);
            Written { at, length, byte: 200 + number }
        })
        .collect();
    let left = Rc::new(Cell::new(written.len()));
    for one in &written {
        let fua = if rig.rng.chance(1, 3) { Fua::Yes } else { Fua::No };
        let (writing, left) = (write_as(rig, live, one.at, one.length, one.byte, fua), left.clone());
        rig.executor.spawn(0, "write", async move {
            let _ = writing.await;
            left.set(left.get() - 1);
        });
    }
    (written, left)
}

fn images(rig: &Rig, seed: u64) -> Vec<Option<Vec<u8>>> {
    let mut rng = Rng::new(seed);
    let one = *rng.pick(&CrashMode::ALL);
    let is_mixed = rng.chance(1, 2);
    let disks = rig.judge.disks.iter();
    let image = disks.map(|disk| {
        let mode = if is_mixed { *rng.pick(&CrashMode::ALL) } else { one };
        // Superblocks of one sector are not torn.
        Some(disk.medium().image(mode, &mut rng, None))
    });
    image.collect()
}

/// The array after a power cut, with a member lost for good. It starts without `--force`, and needs no resync.
fn restarted(rig: &Rig, images: Vec<Option<Vec<u8>>>, lost: Option<u16>, text: &str) -> (Rig, Live) {
    let mut after = rig.branch(images, Rng::new(5)).expect("whole superblocks");
    after.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    after.judge.unreadable.borrow_mut().extend(0..rig.judge.disks.len() as u16);
    after.judge.is_over_budget.set(true);
    let mut images: Vec<Option<Vec<u8>>> =
        after.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
    if let Some(lost) = lost {
        images[usize::from(lost)] = None;
        after.judge.lost.borrow_mut().insert(lost);
    }
    let plan = assembled(&images, text);
    assert!(plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete), "{text}: no resync is needed");
    assert!(plan.read_only.is_none(), "{text}");
    let live = after.boot(&plan, &config()).expect("sizes agree");
    (after, live)
}

/// The real assembly, without the judge, which knows no members that move.
fn assembled(images: &[Option<Vec<u8>>], text: &str) -> StartPlan {
    let here = images.iter().enumerate().filter_map(|(disk, image)| Some((disk, image.as_ref()?)));
    let mut disks = Vec::new();
    let candidate = |(disk, image): (usize, &Vec<u8>)| {
        let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
        let size = Sectors((image.len() / 512) as u64);
        let superblock = Superblock::parse(bytes, Sector(8), size).expect("a whole superblock");
        disks.push(disk);
        let ppl = uraid_sim::image::ppl::ppl_of(image, &superblock);
        let bad_blocks = uraid_sim::judge::bad_block_log_of(image, &superblock).expect("a good log");
        uraid_engine::Candidate { ppl, bad_blocks, ..uraid_engine::Candidate::new(superblock, size) }
    };
    let candidates: Vec<_> = here.map(candidate).collect();
    let options = uraid_engine::AssembleOptions { run: true, ..Default::default() };
    let mut plan = uraid_engine::assemble(&candidates, &options).unwrap_or_else(|error| panic!("{text}: {error}"));
    plan.members.iter_mut().for_each(|member| member.candidate = disks[member.candidate]);
    plan
}

fn config() -> Config {
    Config { pass_window: Sectors(2), ..Config::default() }
}

/// The sectors that read as what was never there. `missing`: slots whose data is computed.
fn wrong(rig: &Rig, live: &Live, base: &[u8], written: &[Written], missing: &[u16]) -> Vec<u64> {
    let mut wrong = Vec::new();
    for at in 0..rig.judge.model.array_size() {
        let bytes = all(rig, live, vec![read(live, at, 1)]).remove(0).expect("it can be read");
        let is_even = bytes.iter().all(|byte| *byte == bytes[0]);
        let of_writes = || written.iter().filter(|one| (one.at..one.at + one.length).contains(&at));
        let is_missing = missing.contains(&rig.judge.model.copies[at as usize][0].slot);
        let is_allowed = of_writes().any(|one| one.byte == bytes[0]) || bytes[0] == base[at as usize * 512];
        let is_undefined = is_missing && of_writes().next().is_some();
        if !(is_undefined || is_even && is_allowed) {
            wrong.push(at);
        }
    }
    wrong
}

/// How many sectors a check finds whose parity does not belong to their data.
fn mismatched(rig: &Rig, live: &Live) -> usize {
    let array = live.arrays[0].clone();
    array.begin_check().expect("it is whole");
    run(rig, live, || array.checked().is_some());
    array.checked().expect("it has ended").progress.mismatched.0 as usize
}

/// An array that is open, filled and flushed, with what it holds.
fn filled(case: (u32, u16, u16), among: Among, seed: u64) -> (Rig, Live, Vec<u8>) {
    let (layout, slots, shards) = case;
    let has_spare = matches!(among, Among::Recovery(_) | Among::Copy(_));
    let mut rig = rig_with_ppl(layout, slots, shards, u16::from(has_spare), seed);
    let away = if let Among::Missing(slot) = among { vec![slot] } else { Vec::new() };
    let live = start_with(&mut rig, &away, &config());
    let base = fill(&rig, &live);
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.flush().await }]), [Ok(())]);
    match among {
        Among::Nothing | Among::Missing(_) => {}
        Among::Fails(slot, victim) => {
            let effect = Effect::ErrorsFromNow(ErrorKind::Gone);
            rig.disk(slot).add_fault(Fault { victim, after: seed % 3, effect });
        }
        Among::Recovery(slot) => fail(&rig, &live, slot),
        Among::Copy(slot) => {
            let array = live.arrays[0].clone();
            assert_eq!(all(&rig, &live, vec![async move { array.replace(Slot(slot), None).await.is_ok() }]), [true]);
        }
    }
    (rig, live, base)
}

/// Cuts off some writes after every so many steps of a run, and starts with all members and without each that it can do
/// without; sometimes this start is cut off, too. Returns how many sectors were wrong, and rows whose parity was.
fn cut_off(case: (u32, u16, u16), among: Among, seed: u64, stride: u64) -> (usize, usize) {
    let (mut sectors, mut rows) = (0, 0);
    let (mut rig, live, base) = filled(case, among, seed);
    let (written, left) = begin_writes(&mut rig, &live);
    let end = rig.executor.now() + Duration::from_secs(60);
    for step in 0.. {
        let is_over = left.get() == 0;
        for draw in 0..2 {
            let lost = (0..case.1).map(Some).filter(|_| among == Among::Nothing);
            for lost in lost.chain([None]) {
                let text =
                    format!("{case:?}, {among:?}, seed {seed}, step {step} x {stride}, image {draw}, {lost:?} lost");
                let (mut after, mut live) = restarted(&rig, images(&rig, step * 100 + draw), lost, &text);
                if (step + draw) % 2 == 1 {
                    let (executor, end) = (after.executor.clone(), after.executor.now() + Duration::from_secs(60));
                    executor.run(step * 7 % 40, end, || live.started.get().is_some());
                    let again = restarted(&after, images(&after, step), lost, &format!("{text}, the second start"));
                    after.power_off();
                    (after, live) = again;
                }
                run(&after, &live, || live.started.get().is_some());
                assert_eq!(live.started.get(), Some(true), "{text}");
                let is_missing = |slot: &u16| !live.arrays[0].status().usable.contains(Slot(*slot));
                let undefined: Vec<u16> = (0..case.1).filter(is_missing).collect();
                let found = wrong(&after, &live, &base, &written, &undefined);
                wait(&after, &live);
                let is_whole = live.arrays[0].status().usable == SlotSet::first(case.1);
                let apart = if is_whole { mismatched(&after, &live) } else { 0 };
                if !found.is_empty() || apart > 0 {
                    println!("{text}: wrong {found:?}, parity of {apart}, written {written:?}");
                }
                (sectors, rows) = (sectors + found.len(), rows + apart);
                after.power_off();
            }
        }
        if is_over {
            break;
        }
        rig.executor.run(stride, end, || left.get() == 0);
    }
    rig.power_off();
    (sectors, rows)
}

#[test]
fn what_was_not_being_written_outlives_a_crash_and_the_loss_of_a_member() {
    for case in CASES {
        for seed in 0..2 {
            assert_eq!(cut_off(case, Among::Nothing, seed, 7), (0, 0), "{case:?}, seed {seed}");
        }
    }
}

#[test]
fn a_crash_costs_nothing_while_a_member_is_missing_fails_or_is_given_what_it_lacks() {
    for case in CASES {
        for slot in 0..case.1 {
            let failing = [Target::Writes, Target::Reads, Target::Flushes].map(|victim| Among::Fails(slot, victim));
            let others = [Among::Missing(slot), Among::Recovery(slot), Among::Copy(slot)];
            for (seed, among) in (0..).zip(failing.into_iter().chain(others)) {
                assert_eq!(cut_off(case, among, seed, 23), (0, 0), "{case:?}, {among:?}, seed {seed}");
            }
        }
    }
}

/// The canaries.
#[cfg(feature = "canaries")]
#[test]
fn writes_that_no_log_names_are_found() {
    use uraid_engine::canary::set;
    for mistake in ["LogUnwritten", "LogUnflushed"] {
        set(Some(mistake));
        let found = CASES.map(|case| cut_off(case, Among::Nothing, 1, 7));
        set(None);
        println!("{mistake}: {found:?}");
        assert!(found.iter().any(|(sectors, rows)| sectors + rows > 0), "{mistake}");
    }
}

#[test]
fn a_spare_gets_a_log_and_takes_the_slot() {
    for victim in 0..3 {
        let mut rig = rig_with_ppl(2, 3, 2, 1, 3);
        let live = start(&mut rig, &[]);
        let content = fill(&rig, &live);
        fail(&rig, &live, victim);
        wait(&rig, &live);
        assert_eq!(live.arrays[0].status().usable, SlotSet::first(3), "slot {victim}");
        fail(&rig, &live, (victim + 1) % 3);
        assert!(content_of(&rig, &live) == content, "slot {victim}");
        rig.power_off();
    }
}
