//! Several members fail at the same time, or are full: which ones are failed, what the superblocks say, how it restarts.
//! Owns: buses that fail several members, arrays that froze because of full members. Not here: single members
//! (the parent), mistakes found by seeds (`own_mistakes`).

use super::*;
use uraid_engine::verdict::OnFull;

/// Two shards, chunks of two sectors, four rows.
pub(super) fn rig(level: i32, slots: u16) -> Rig {
    let (layout, chunk) = match level {
        1 => (0, 0),
        10 => (0x102, 2),
        _ => (2, 2),
    };
    let shape = Shape { level, layout, chunk, slots, size: 8, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { shards: 2, pool_factor: 4, ..Setup::plain(shape) };
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

pub(super) fn write(rig: &Rig, live: &Live, at: u64, length: u64, byte: u8) -> Request {
    Box::pin(super::write(rig, live, at, length, byte))
}

pub(super) fn start_plain(rig: &mut Rig) -> Live {
    start_with(rig, &[], &Config::default())
}

/// Member `slot` fails all requests after the first `after` of each kind.
fn take_away(rig: &Rig, slot: u16, kind: ErrorKind, after: u64) {
    for victim in [Target::Writes, Target::SuperWrites, Target::Flushes] {
        rig.disk(slot).add_fault(Fault { victim, after, effect: Effect::ErrorsFromNow(kind) });
    }
    if kind == ErrorKind::Gone {
        rig.disk(slot).add_fault(Fault { victim: Target::Reads, after, effect: Effect::ErrorsFromNow(kind) });
    }
}

/// The plan that would be started, without force, if power failed now.
pub(super) fn plan_now(rig: &mut Rig) -> Result<Box<StartPlan>, &'static str> {
    plan_of(rig, AssembleMode::Plain)
}

/// How many members the superblocks list.
pub(super) fn counted(rig: &mut Rig) -> usize {
    in_slots(&plan_of(rig, AssembleMode::Forced).expect("it starts"))
}

fn plan_of(rig: &mut Rig, how: AssembleMode) -> Result<Box<StartPlan>, &'static str> {
    let images = rig.judge.images(&mut rig.rng);
    match rig.judge.assemble(&images, how).expect("legal") {
        Assembled::Plan(plan) => Ok(plan),
        Assembled::DirtyDegraded => Err("dirty and degraded: it wants --force"),
        Assembled::Impossible => Err("it does not start"),
    }
}

pub(super) fn in_slots(plan: &StartPlan) -> usize {
    plan.template.roles.iter().filter(|role| matches!(role, Role::Slot(_))).count()
}

/// A bus or a cable fails, and with it two members of a raid5, three of a raid6, both copies of a raid10, all of a
/// raid1. The result does not depend on which of them a write meets first, or on the order of failures.
#[test]
fn members_that_fail_together_are_not_recorded_as_failed() {
    let cases: [(i32, u16, &[u16]); 5] =
        [(5, 3, &[0, 1]), (5, 3, &[1, 2]), (6, 4, &[0, 1, 3]), (10, 4, &[2, 3]), (1, 2, &[0, 1])];
    for (level, slots, away) in cases {
        for kind in [ErrorKind::Media, ErrorKind::Gone] {
            for (at, length) in [(0, 1), (2, 1), (0, 4), (4, 2), (6, 1)] {
                let mut rig = rig(level, slots);
                rig.judge.is_over_budget.set(true);
                let live = start_with(&mut rig, &[], &Config::default());
                assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())]);
                away.iter().for_each(|slot| take_away(&rig, *slot, kind, 0));
                let case = format!("level {level} without {away:?}, {kind:?}, a write at {at}+{length}");
                let answers = all(&rig, &live, vec![write(&rig, &live, at, length, 2)]);
                if answers[0].is_ok() {
                    // The write needed none of the lost members.
                    rig.power_off();
                    continue;
                }
                assert!(matches!(live.arrays[0].status().gate, Gate::Frozen(_)), "{case}");
                let plan = plan_now(&mut rig).unwrap_or_else(|found| panic!("{case}: {found}"));
                assert_eq!((in_slots(&plan), plan.is_dirty), (usize::from(slots), true), "{case}");
                rig.power_off();
            }
        }
    }
}

/// Two writers of a raid5: the second member fails shortly after the first one. Returns how many members are failed.
fn failed_of_two(later: u64) -> usize {
    let mut rig = rig(5, 3);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &Config::default());
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())]);
    let fails = Effect::ErrorsFromNow(ErrorKind::Media);
    for slot in [0, 1] {
        // Their superblocks could still be written.
        rig.disk(slot).add_fault(Fault { victim: Target::Writes, after: 0, effect: fails });
    }
    // Row 0 has its data on members 0 and 1, its parity on member 2.
    let (first, second, executor) = (write(&rig, &live, 0, 1, 2), write(&rig, &live, 8, 1, 2), rig.executor.clone());
    let second: Request = Box::pin(async move {
        executor.sleep(Duration::from_millis(later)).await;
        second.await
    });
    let answers = all(&rig, &live, vec![first, second]);
    let failed = failed_slots(&live).len();
    if failed == 0 {
        assert!(answers.iter().all(Result::is_err), "{later} ms: {answers:?}");
        let plan = plan_now(&mut rig).unwrap_or_else(|found| panic!("{later} ms: {found}"));
        assert_eq!(in_slots(&plan), 3, "{later} ms");
    }
    rig.power_off();
    failed
}

fn failed_slots(live: &Live) -> Vec<u16> {
    let slot = |member| match member {
        MemberState::Faulty { slot, .. } => slot.map(|slot: Slot| slot.0),
        MemberState::Active(_)
        | MemberState::Recovering { .. }
        | MemberState::Replacing { .. }
        | MemberState::Spare
        | MemberState::Removed => None,
    };
    live.arrays[0].status().members.into_iter().filter_map(slot).collect()
}

#[test]
fn failures_shortly_after_another_are_judged_together() {
    for later in [1, 20, 150] {
        assert_eq!(failed_of_two(later), 0, "{later} ms");
    }
}

/// The canary of that test. The first thousands of seeds do not find it.
#[cfg(feature = "canaries")]
#[test]
fn the_canary_that_fails_members_one_by_one_is_found() {
    use uraid_engine::canary::set;
    set(Some("FailOneByOne"));
    let failed = [1, 20, 150].map(failed_of_two);
    set(None);
    assert!(failed.into_iter().all(|count| count > 0), "{failed:?}");
}

/// Member 0 of a raid5 exceeds the limit of read errors while member 1 fails a write: the array needs member 0, whose
/// writes succeed. That must not freeze the array. In the second case member 1 is full and freezes it: member 0 must
/// not be failed then either.
#[test]
fn too_many_read_errors_do_not_fail_a_member_that_the_array_needs() {
    for (kind, failed) in [(ErrorKind::Media, vec![1]), (ErrorKind::NoSpace, vec![])] {
        let mut rig = rig(5, 3);
        rig.judge.is_over_budget.set(true);
        let live = start_with(&mut rig, &[], &Config { read_errors_max: 1, ..Config::default() });
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 8, 1)]), [Ok(())]);
        for (slot, victim, kind) in [(0, Target::Reads, ErrorKind::Media), (1, Target::Writes, kind)] {
            rig.disk(slot).add_fault(Fault { victim, after: 0, effect: Effect::ErrorsFromNow(kind) });
        }
        // Row 0 has its data on members 0 and 1; row 1 is written as a whole, without a read.
        let reads = [0, 1].map(|at| {
            let (array, into) = (live.arrays[0].clone(), live.worlds[0].client_arena().take(512).expect("room"));
            Box::pin(async move { array.read(Sector(at), into).await.map(drop) }) as Request
        });
        let (late, executor) = (write(&rig, &live, 4, 4, 2), rig.executor.clone());
        let late: Request = Box::pin(async move {
            executor.sleep(Duration::from_millis(50)).await;
            late.await
        });
        let answers = all(&rig, &live, reads.into_iter().chain([late]).collect());
        let written = if kind == ErrorKind::NoSpace { Err(kind.into()) } else { Ok(()) };
        assert_eq!(answers, [Ok(()), Ok(()), written], "{kind:?}");
        assert_eq!(failed_slots(&live), failed, "{kind:?}");
        let gate = if kind == ErrorKind::NoSpace { Gate::Frozen(kind) } else { Gate::Open };
        assert_eq!(live.arrays[0].status().gate, gate, "{kind:?}");
        rig.power_off();
    }
}

pub(super) fn fill_up(rig: &Rig, slot: u16, victim: Target) {
    rig.disk(slot).add_fault(Fault { victim, after: 0, effect: Effect::ErrorsFromNow(ErrorKind::NoSpace) });
}

/// `--on-full=fail`: a full member is failed like any other. If more are full than can be lost, the array freezes, and
/// they are kept.
#[test]
fn a_full_member_is_failed_at_once_with_on_full_fail() {
    let config = Config { on_full: OnFull::Fail, ..Config::default() };
    for (level, slots) in [(1, 2), (10, 4), (5, 3), (6, 4)] {
        let mut rig = rig(level, slots);
        let live = start_with(&mut rig, &[], &config);
        fill_up(&rig, 1, Target::Writes);
        rig.judge.lost.borrow_mut().insert(1);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())], "level {level}");
        assert_eq!(counted(&mut rig), usize::from(slots) - 1, "level {level}");
        assert_eq!(live.arrays[0].status().gate, Gate::Open);
        rig.power_off();
    }
    let mut rig = rig(5, 3);
    let live = start_with(&mut rig, &[], &config);
    (0..3).for_each(|slot| fill_up(&rig, slot, Target::Writes));
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Err(ErrorKind::NoSpace.into())]);
    assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace));
    assert_eq!(plan_now(&mut rig).map(|plan| in_slots(&plan)), Ok(3));
    rig.power_off();
}

/// ```text
///   member 1 fails a flush   |<--- collected, 200 ms --->| judged
///   by command               ^   ^     ^   fail member 0
/// ```
/// Only member 0 has all data then: it is not failed, and the array goes on.
#[test]
fn no_member_is_failed_by_command_while_the_only_other_one_is_about_to_be_judged() {
    for (level, slots, other) in [(1, 2, 0), (10, 4, 0), (5, 3, 2)] {
        for after in [1, 20, 100, 190] {
            let case = format!("raid{level} of {slots}, {after} ms after the failure of member 1");
            let mut rig = rig(level, slots);
            rig.judge.is_over_budget.set(true);
            let live = start_plain(&mut rig);
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())], "{case}");
            let effect = Effect::ErrorsFromNow(ErrorKind::Media);
            rig.disk(1).add_fault(Fault { victim: Target::Flushes, after: 0, effect });
            let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
            let flushing = array.clone();
            rig.executor.spawn(0, "flush", async move {
                let _ = flushing.flush().await;
            });
            let failing = async move {
                executor.sleep(Duration::from_millis(after)).await;
                let outcome = array.fail(SlotSet::EMPTY.with(Slot(other))).await;
                executor.sleep(Duration::from_secs(1)).await;
                outcome
            };
            let outcome = all(&rig, &live, vec![failing]).remove(0);
            let status = live.arrays[0].status();
            assert!(outcome.is_err() && status.gate == Gate::Open, "{case}: {outcome:?}, {:?}", status.gate);
            assert!(!status.usable.contains(Slot(1)), "{case}");
            rig.power_off();
        }
    }
}
