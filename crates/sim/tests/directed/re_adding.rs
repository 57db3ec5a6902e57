//! Former members that return to a running array, and recover only what the bitmap names.
//! Owns: what they hold and what is copied. Not here: each condition of returning (`coming_back`), devices that join as
//! spares (`joining`), which bits are set and when (`bits`), members that come and go in random order (`member_seeds`).

mod steps;

use super::joining::{assembled_with, joining, leaving, wipe};
use super::spares::{CASES, content_of, fail, fill, wait};
use super::*;
use uraid_engine::{AssembleOptions, FormerMember, PassKind, ReAddError, SpeedLimits};
use uraid_format::{Features, FlagChange, returned_superblock};
use uraid_sim::image::bits::{Bits, bitmap_of};
use uraid_sim::machine::member::{Access, Op, SimMember, Watch};

pub(super) const SIZE: u64 = 64;
pub(super) const CLEAR_AFTER: Duration = Duration::from_secs(2);

/// An array with a bitmap. The last disk is blank and not a member. A chunk of the bitmap is one sector.
pub(super) fn rig_with(level: i32, layout: u32, slots: u16, shards: u16) -> Rig {
    let chunk = if level == 1 { 0 } else { 8 };
    let shape = Shape { level, layout, chunk, slots, size: SIZE, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let all = usize::from(slots) + 1;
    let plain = Setup::plain(shape);
    let (data_offsets, data_sizes) = (vec![24; all], vec![SIZE; all]);
    let setup = Setup { spares: 1, shards, data_offsets, data_sizes, pass_window: Sectors(3), ..plain };
    let setup = setup.with_bits(Some(Bits { chunk: 1, clear_after: CLEAR_AFTER, are_set: false, write_behind: 0 }));
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    // No guard: it expects that members keep their slot, and knows what their superblocks must say.
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    wipe(&rig, slots);
    rig
}

pub(super) fn config() -> Config {
    Config { clear_bits_after: Some(CLEAR_AFTER), pass_window: Sectors(3), ..Config::default() }
}

pub(super) fn superblock_of(rig: &Rig, disk: u16) -> Superblock {
    let image = rig.disk(disk).medium().current().to_vec();
    let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
    Superblock::parse(bytes, Sector(8), rig.disk(disk).geometry().size).expect("a superblock")
}

pub(super) fn former_member(rig: &Rig, disk: u16) -> FormerMember {
    let superblock = superblock_of(rig, disk);
    let bitmap = bitmap_of(rig.disk(disk).medium().current(), &superblock);
    FormerMember { superblock, device_size: rig.disk(disk).geometry().size, bitmap }
}

/// Lets a former member return. Returns its index.
pub(super) fn returning(
    rig: &Rig,
    live: &Live,
    disk: u16,
) -> impl Future<Output = Result<usize, ReAddError>> + 'static {
    let (arrays, device, former) = (live.arrays.clone(), rig.disk(disk).clone(), former_member(rig, disk));
    async move {
        device.change_process();
        arrays[0].former_slot(&former)?;
        let vacancy = arrays[0].vacancy().map_err(ReAddError::NotNow)?;
        let own = returned_superblock(&former.superblock, &vacancy.template, vacancy.number, FlagChange::default());
        let index = arrays[0].reserve(own).map_err(ReAddError::NotNow)?;
        arrays.iter().for_each(|array| array.install(index, SimMember(device.clone())));
        let outcome = arrays[0].re_add(index, &former).await;
        if arrays[0].status().members[index] == MemberState::Removed {
            arrays.iter().for_each(|array| array.let_go(index));
        }
        outcome.map(|()| index)
    }
}

pub(super) fn return_now(rig: &Rig, live: &Live, disk: u16) -> Result<usize, ReAddError> {
    all(rig, live, vec![returning(rig, live, disk)]).remove(0)
}

pub(super) fn leave(rig: &Rig, live: &Live, index: usize) {
    assert_eq!(all(rig, live, vec![leaving(live, index)]), [Ok(())]);
}

pub(super) fn write_now(rig: &Rig, live: &Live, content: &mut [u8], at: u64, byte: u8) {
    assert_eq!(all(rig, live, vec![write(rig, live, at, 1, byte)]), [Ok(())]);
    content[at as usize * 512..][..512].fill(byte);
}

pub(super) fn pause(rig: &Rig, live: &Live, time: Duration) {
    let executor = rig.executor.clone();
    all(rig, live, vec![async move { executor.sleep(time).await }]);
}

/// Fails as many other members as the array can do without, and reads everything.
pub(super) fn content_without_others(rig: &Rig, live: &Live, slot: u16) -> Vec<u8> {
    for other in (0..rig.setup.shape.slots).filter(|other| *other != slot) {
        let status = live.arrays[0].status();
        let left = status.usable.without(Slot(other));
        if status.usable.contains(Slot(other)) && live.arrays[0].layout().can_serve(&left) {
            fail(rig, live, other);
        }
    }
    content_of(rig, live)
}

/// Counts the sectors of data that are written to a disk.
#[derive(Default)]
struct Written(Cell<u64>);

impl Watch for Written {
    fn submitted(&self, access: Access) -> Result<(), String> {
        if access.at >= 24 && matches!(access.op, Op::Write { .. }) {
            self.0.set(self.0.get() + access.length);
        }
        Ok(())
    }
}

#[test]
fn a_former_member_gets_what_it_has_missed_and_no_more() {
    for (level, layout, slots) in CASES {
        for shards in [1, 3] {
            let case = format!("raid{level} {layout:#x} of {slots}, {shards} shards");
            let mut rig = rig_with(level, layout, slots, shards);
            let live = start_with(&mut rig, &[slots], &config());
            let mut content = fill(&rig, &live);
            pause(&rig, &live, 4 * CLEAR_AFTER);
            let mut index = 1;
            for turn in 0..3 {
                fail(&rig, &live, 1);
                leave(&rig, &live, index);
                write_now(&rig, &live, &mut content, 1, 200 + turn);
                write_now(&rig, &live, &mut content, 9, 210 + turn);
                let written = Rc::new(Written::default());
                rig.disk(1).set_watch(Some(written.clone()));
                index = return_now(&rig, &live, 1).expect(&case);
                assert_eq!(wait(&rig, &live), [PassKind::Recovery], "{case}");
                assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)), "{case}");
                assert!(written.0.get() <= 32, "{case}: {} of {SIZE} sectors were written", written.0.get());
                let features = superblock_of(&rig, 1).features;
                assert!(!features.contains(Features::RECOVERY_OFFSET.with(Features::RECOVERY_BITMAP)), "{case}");
            }
            assert!(content_without_others(&rig, &live, 1) == content, "{case}");
            rig.power_off();
        }
    }
}

/// Another device was in its slot, and the bits of what was written meanwhile are cleared.
fn returned_too_late() -> (Result<usize, ReAddError>, bool) {
    let mut rig = rig_with(1, 0, 3, 1);
    let live = start_with(&mut rig, &[3], &config());
    let mut content = fill(&rig, &live);
    // Its own bits are cleared: it does not know what it will miss.
    pause(&rig, &live, 4 * CLEAR_AFTER);
    fail(&rig, &live, 1);
    leave(&rig, &live, 1);
    let joined = all(&rig, &live, vec![joining(&rig, &live, 3)]).remove(0).expect("it joins");
    wait(&rig, &live);
    write_now(&rig, &live, &mut content, 40, 99);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    let taken = return_now(&rig, &live, 1);
    assert_eq!(taken, Err(ReAddError::Taken { slot: Slot(1) }));
    fail(&rig, &live, 1);
    leave(&rig, &live, joined);
    let outcome = return_now(&rig, &live, 1);
    wait(&rig, &live);
    let is_equal = content_without_others(&rig, &live, 1) == content;
    rig.power_off();
    (outcome, is_equal)
}

#[test]
fn a_member_that_has_missed_more_than_the_bits_name_is_refused() {
    let (outcome, is_equal) = returned_too_late();
    assert!(matches!(outcome, Err(ReAddError::TooOld { found, expected }) if found < expected), "{outcome:?}");
    assert!(is_equal);
}

/// The canary of that rule.
#[cfg(feature = "canaries")]
#[test]
fn a_member_that_has_missed_more_than_the_bits_name_and_returns_is_found() {
    use uraid_engine::canary::set;
    set(Some("ReAddTooOld"));
    let (outcome, is_equal) = returned_too_late();
    set(None);
    assert!(outcome.is_ok() && !is_equal);
}

pub(super) fn set_speed(rig: &Rig, live: &Live, limits: SpeedLimits) {
    let array = live.arrays[0].clone();
    all(rig, live, vec![async move { array.set_speed(limits).await }]);
}

pub(super) fn pause_passes(rig: &Rig, live: &Live, is_paused: bool) {
    let array = live.arrays[0].clone();
    all(rig, live, vec![async move { array.pause_passes(is_paused).await }]);
}

/// A recovery is paused in the middle, its member fails and leaves, more is written, and the member returns.
fn returned_into_a_paused_recovery(case: (i32, u32, u16)) -> bool {
    let (level, layout, slots) = case;
    let mut rig = rig_with(level, layout, slots, 2);
    let live = start_with(&mut rig, &[slots], &config());
    let mut content = fill(&rig, &live);
    fail(&rig, &live, 1);
    leave(&rig, &live, 1);
    let size = rig.judge.model.array_size();
    (0..size).for_each(|at| write_now(&rig, &live, &mut content, at, (150 + at) as u8));
    set_speed(&rig, &live, SpeedLimits { min: None, max: Some(1), share: None });
    let index = return_now(&rig, &live, 1).expect("its bits are there");
    pause(&rig, &live, Duration::from_secs(15));
    let progress = live.arrays[0].status().pass.expect("it goes on");
    assert!(progress.kind == PassKind::Recovery && progress.done < progress.total, "{progress:?}");
    pause_passes(&rig, &live, true);
    fail(&rig, &live, 1);
    leave(&rig, &live, index);
    (0..size).for_each(|at| write_now(&rig, &live, &mut content, at, (7 + at) as u8));
    return_now(&rig, &live, 1).expect("its bits are there");
    pause_passes(&rig, &live, false);
    set_speed(&rig, &live, SpeedLimits::default());
    wait(&rig, &live);
    let is_equal = content_without_others(&rig, &live, 1) == content;
    rig.power_off();
    is_equal
}

#[test]
fn a_recovery_of_the_last_member_of_the_slot_is_not_one_of_the_member_that_returns() {
    for case in CASES {
        assert!(returned_into_a_paused_recovery(case), "{case:?}");
    }
}

/// The canary of that rule.
#[cfg(feature = "canaries")]
#[test]
fn a_recovery_that_goes_on_for_another_member_is_found() {
    use uraid_engine::canary::set;
    set(Some("KeepRecovery"));
    let are_equal = CASES.map(returned_into_a_paused_recovery);
    set(None);
    assert!(are_equal.contains(&false));
}

/// Members that ran apart: the disks `away` are one history, the others another one, in which each gets a new number.
/// Returns whether the first of `away` was taken back, and whether the array then holds what the others wrote.
fn returned_from_another_history(slots: u16, away: &[u16]) -> (Result<usize, ReAddError>, bool) {
    let mut rig = rig_with(1, 0, slots, 1);
    let live = start_with(&mut rig, &[slots], &config());
    let mut content = fill(&rig, &live);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    let idle = |rig: &Rig, live: &Live| {
        run(rig, live, || !live.arrays[0].status().is_dirty);
        pause(rig, live, Duration::from_secs(1));
    };
    idle(&rig, &live);
    let images: Vec<Vec<u8>> = rig.judge.disks.iter().map(|disk| disk.medium().durable().to_vec()).collect();
    rig.power_off();
    let blank = |image: &Vec<u8>| vec![0; image.len()];
    let history = |only: &dyn Fn(u16) -> bool| -> Vec<Option<Vec<u8>>> {
        (0..).zip(&images).map(|(at, image)| Some(if only(at) { image.clone() } else { blank(image) })).collect()
    };
    // The first history writes one sector.
    let (one, live) = begun(&rig, history(&|at| away.contains(&at)));
    let mut other_content = content.clone();
    write_now(&one, &live, &mut other_content, 50, 251);
    idle(&one, &live);
    let left: Vec<Vec<u8>> = one.judge.disks.iter().map(|disk| disk.medium().durable().to_vec()).collect();
    one.power_off();
    // In the second one every member leaves and returns, until no number of before is in use.
    let (two, live) = begun(&rig, history(&|at| !away.contains(&at)));
    write_now(&two, &live, &mut content, 9, 99);
    for _ in 0..4 {
        for disk in (0..slots).filter(|disk| !away.contains(disk)) {
            let index = live.arrays[0].status().members.iter().rposition(|state| state.slot() == Some(Slot(disk)));
            let index = index.expect("it works");
            fail(&two, &live, disk);
            leave(&two, &live, index);
            return_now(&two, &live, disk).expect("its bits are there");
            wait(&two, &live);
        }
    }
    let back = away[0];
    two.disk(back).replace(left[usize::from(back)].clone());
    let outcome = return_now(&two, &live, back);
    wait(&two, &live);
    let is_equal = match outcome {
        Ok(_) => content_without_others(&two, &live, back) == content,
        Err(_) => content_of(&two, &live) == content,
    };
    two.power_off();
    (outcome, is_equal)
}

/// An array of these images, with `--run`.
pub(super) fn begun(rig: &Rig, images: Vec<Option<Vec<u8>>>) -> (Rig, Live) {
    rig.judge.unreadable.borrow_mut().extend(0..rig.judge.disks.len() as u16);
    let mut after = rig.branch(images, Rng::new(5)).expect("whole superblocks");
    after.judge.is_over_budget.set(true);
    let plan = assembled_with(&after, &AssembleOptions { run: true, ..AssembleOptions::default() });
    assert!(plan.read_only.is_none(), "a bitmap, if it has one, can be kept: {:?}", plan.read_only);
    let live = after.boot(&plan, &config()).expect("sizes agree");
    run(&after, &live, || live.started.get().is_some());
    assert_eq!(live.started.get(), Some(true));
    (after, live)
}

#[test]
fn a_member_that_was_the_whole_array_elsewhere_is_refused() {
    let (outcome, is_equal) = returned_from_another_history(3, &[0]);
    assert_eq!(outcome, Err(ReAddError::Apart));
    assert!(is_equal);
}

/// Nothing in its superblock tells that it ran apart; its own bits name what was written then.
#[test]
fn what_a_member_wrote_elsewhere_is_overwritten() {
    let (outcome, is_equal) = returned_from_another_history(4, &[0, 1]);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(is_equal);
}
