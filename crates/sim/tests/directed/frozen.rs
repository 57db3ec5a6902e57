//! `fail` in an array that froze because members are full: it takes writes again, and readers see no change.
//! Owns: each redundant level, each slot, several full members, what stays frozen. Not here: how arrays freeze
//! (`several`).

use super::several::{counted, fill_up, in_slots, plan_now, rig, start_plain, write};
use super::zeroes::zero;
use super::*;
use super::{re_adding, spares};
use uraid_engine::{FailError, StaysFrozen};
use uraid_sim::judge::{AssembleMode, Assembled};

fn fail(live: &Live, slots: &[u16]) -> Pin<Box<dyn Future<Output = Result<(), FailError>>>> {
    let (array, slots) = (live.arrays[0].clone(), slots.iter().copied().map(Slot).collect());
    Box::pin(async move { array.fail(slots).await })
}

/// Reads each sector by itself, from both shards in turn, so that an unreadable one does not hide another.
fn read_all(rig: &Rig, live: &Live) -> Vec<Result<Vec<u8>, ErrorKind>> {
    let size = live.arrays[0].geometry().size.0;
    let reads = (0..size).map(|at| {
        let shard = at as usize % 2;
        let array = live.arrays[shard].clone();
        let into = live.worlds[shard].client_arena().take(512).expect("room");
        async move { array.read(Sector(at), into).await.map(|pieces| pieces.to_vec()).map_err(|error| error.kind) }
    });
    all(rig, live, reads.collect())
}

/// Whether copies agree and parity is right on the members that would be started now.
pub(super) fn redundancy(rig: &mut Rig) -> Result<(), String> {
    let images: Vec<_> = rig.judge.disks.iter().map(|disk| Some(disk.medium().current().to_vec())).collect();
    let Assembled::Plan(plan) = rig.judge.assemble(&images, AssembleMode::Forced).expect("legal") else {
        return Err("it does not start".to_owned());
    };
    rig.judge.check_redundancy(&images, &plan)
}

fn assert_redundant(rig: &mut Rig, case: &str) {
    redundancy(rig).unwrap_or_else(|found| panic!("{case}: {found}"));
}

const ARRAYS: [(i32, u16); 6] = [(1, 2), (1, 3), (10, 4), (4, 3), (5, 3), (6, 4)];

/// Writes, of bytes or of zeroes, of whole rows and of parts; some of them freeze the array.
fn freeze(rig: &Rig, live: &Live, of_zeroes: bool, case: &str) {
    let size = live.arrays[0].geometry().size.0;
    let parts = [(0, size), (1, 2), (3, 1), (size - 2, 2)].into_iter().zip(2..);
    let request = |((at, length), byte): ((u64, u64), u8)| match of_zeroes {
        true => zero(rig, live, 1, at, length),
        false => write(rig, live, at, length, byte),
    };
    let writes: Vec<Request> = parts.map(request).collect();
    let answers = all(rig, live, writes);
    assert!(answers.contains(&Err(ErrorKind::NoSpace.into())), "{case}: {answers:?}");
    assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace), "{case}");
}

#[test]
fn a_full_member_is_failed_by_command_and_the_array_takes_writes_again() {
    for (level, slots) in ARRAYS {
        for slot in 0..slots {
            for (victim, of_zeroes) in [
                (Target::Writes, false),
                (Target::Writes, true),
                (Target::SuperWrites, false),
                (Target::SuperWrites, true),
            ] {
                let case = format!("level {level}, member {slot} of {slots}, {victim:?}, zeroes: {of_zeroes}");
                let mut rig = rig(level, slots);
                let live = start_plain(&mut rig);
                let size = live.arrays[0].geometry().size.0;
                if victim == Target::Writes {
                    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 1)]), [Ok(())]);
                }
                fill_up(&rig, slot, victim);
                freeze(&rig, &live, of_zeroes, &case);
                let plan = plan_now(&mut rig).unwrap_or_else(|found| panic!("{case}: {found}"));
                assert_eq!(in_slots(&plan), usize::from(slots), "{case}: no member is failed");
                let before = read_all(&rig, &live);
                assert!(before.iter().all(Result::is_ok), "{case}");

                rig.judge.lost.borrow_mut().insert(slot);
                assert_eq!(all(&rig, &live, vec![fail(&live, &[slot])]), [Ok(())], "{case}");
                assert_eq!(live.arrays[0].status().gate, Gate::Open, "{case}");
                assert!(before == read_all(&rig, &live), "{case}: other bytes than before");
                assert_redundant(&mut rig, &case);
                let loose = |other: u16| !rig.disk(other).medium().uncertain_data().is_empty();
                assert!(!(0..slots).any(|other| other != slot && loose(other)), "{case}: power would undo it");
                let answers = all(&rig, &live, vec![write(&rig, &live, 1, 3, 9), write(&rig, &live, 4, 2, 8)]);
                assert_eq!(answers, [Ok(()), Ok(())], "{case}");
                assert_redundant(&mut rig, &case);
                assert_eq!(rig.stop(&live), Ok(true), "{case}: clean");
                let plan = plan_now(&mut rig).unwrap_or_else(|found| panic!("{case}: {found}"));
                assert_eq!((in_slots(&plan), plan.is_dirty), (usize::from(slots) - 1, false), "{case}");
                rig.power_off();
            }
        }
    }
}

/// All pairs of different members of four.
fn pairs() -> impl Iterator<Item = (u16, u16)> {
    (0..4).flat_map(|one| (0..4).map(move |other| (one, other))).filter(|(one, other)| one != other)
}

/// Two members of a raid6 are full. If the remaining one would have to take parity, it must be failed, too.
#[test]
fn a_full_member_may_stay_only_if_it_missed_nothing_that_it_would_have_to_take() {
    let (mut with_one, mut with_both) = (0, 0);
    for (named, other) in pairs() {
        let case = format!("members {named} and {other} full, {named} is failed");
        let mut rig = rig(6, 4);
        let live = start_plain(&mut rig);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 16, 1)]), [Ok(())]);
        [named, other].into_iter().for_each(|slot| fill_up(&rig, slot, Target::Writes));
        rig.judge.lost.borrow_mut().extend([named, other]);
        assert!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 2)])[0].is_err(), "{case}");
        let before = read_all(&rig, &live);
        match all(&rig, &live, vec![fail(&live, &[named])])[0] {
            Ok(()) => {
                with_one += 1;
                assert_eq!(counted(&mut rig), 3, "{case}");
            }
            Err(FailError::StaysFrozen(StaysFrozen::CannotWrite { slot, .. })) => {
                with_both += 1;
                assert_eq!(slot, Slot(other), "{case}");
                assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace), "{case}");
                assert_eq!(counted(&mut rig), 4, "{case}: none is failed");
                assert!(before == read_all(&rig, &live), "{case}: other bytes than before");
                assert_eq!(all(&rig, &live, vec![fail(&live, &[named, other])]), [Ok(())], "{case}");
                assert_eq!(counted(&mut rig), 2, "{case}");
            }
            Err(error) => panic!("{case}: {error:?}"),
        }
        assert_eq!(live.arrays[0].status().gate, Gate::Open, "{case}");
        assert!(before == read_all(&rig, &live), "{case}: other bytes than before");
        assert_redundant(&mut rig, &case);
        rig.power_off();
    }
    assert!(with_one > 0 && with_both > 0, "{with_one} and {with_both}");
}

/// Two members of a raid5 are full: failing both is refused. Once one of them has room, failing the other is enough.
#[test]
fn more_full_members_than_can_be_lost_are_not_failed() {
    let mut rig = rig(5, 3);
    let live = start_plain(&mut rig);
    [1, 2].into_iter().for_each(|slot| fill_up(&rig, slot, Target::Writes));
    freeze(&rig, &live, false, "raid5");
    let refused = FailError::Needed { left: 2, working: 3, needed: 2 };
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1, 2])]), [Err(refused)]);
    assert_eq!(plan_now(&mut rig).map(|plan| in_slots(&plan)), Ok(3));
    rig.disk(2).forget_faults();
    rig.judge.lost.borrow_mut().insert(1);
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Ok(())]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 7, 2)]), [Ok(())]);
    rig.power_off();
}

/// A member without room for its superblock has missed a round: two more rounds would leave it out at the next start.
#[test]
fn a_member_that_missed_a_round_of_superblocks_must_be_failed_too() {
    let mut rig = rig(6, 4);
    let live = start_plain(&mut rig);
    fill_up(&rig, 2, Target::SuperWrites);
    freeze(&rig, &live, false, "raid6");
    let cause = StaysFrozen::CannotWrite { slot: Slot(2), error: ErrorKind::NoSpace.into() };
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Err(FailError::StaysFrozen(cause))]);
    assert_eq!(plan_now(&mut rig).map(|plan| in_slots(&plan)), Ok(4));
    rig.judge.lost.borrow_mut().extend([1, 2]);
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1, 2])]), [Ok(())]);
    assert_eq!(counted(&mut rig), 2);
    rig.power_off();
}

/// The array did not freeze because of a full member, so failing a member does not help.
#[test]
fn an_array_that_froze_for_another_reason_stays_frozen() {
    for (victim, cause) in [(Target::Writes, StaysFrozen::TooMany), (Target::Flushes, StaysFrozen::LostFlush)] {
        let mut rig = rig(5, 3);
        rig.judge.is_over_budget.set(true);
        let live = start_plain(&mut rig);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
        for slot in [0, 2] {
            rig.disk(slot).add_fault(Fault { victim, after: 0, effect: Effect::Error(ErrorKind::Media) });
        }
        let array = live.arrays[0].clone();
        let requests: Vec<Request> = vec![write(&rig, &live, 0, 4, 2), Box::pin(async move { array.flush().await })];
        assert!(all(&rig, &live, requests).iter().any(Result::is_err));
        let refused = FailError::StaysFrozen(cause);
        assert_eq!(all(&rig, &live, vec![fail(&live, &[0])]), [Err(refused)], "{victim:?}");
        assert_eq!(plan_now(&mut rig).map(|plan| in_slots(&plan)), Ok(3));
        rig.power_off();
    }
}

/// A raid6 without one member, and with a full one: the missing member's content is computed from the blocks that have
/// the refused write. Readers see no error while it is frozen, and the same bytes afterwards.
#[test]
fn a_degraded_raid6_takes_writes_again_after_failing_a_full_member() {
    for (missing, full) in pairs() {
        let case = format!("without member {missing}, member {full} is full");
        let mut rig = rig(6, 4);
        let live = start_plain(&mut rig);
        for at in 0..8 {
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, at * 2, 2, at as u8 + 1)]), [Ok(())]);
        }
        rig.judge.lost.borrow_mut().extend([missing, full]);
        assert_eq!(all(&rig, &live, vec![fail(&live, &[missing])]), [Ok(())]);
        let written = read_all(&rig, &live);
        fill_up(&rig, full, Target::Writes);
        freeze(&rig, &live, false, &case);
        let before = read_all(&rig, &live);
        for (at, (found, earlier)) in before.iter().zip(&written).enumerate() {
            let found = found.as_ref().unwrap_or_else(|error| panic!("{case}, sector {at}: {error:?}"));
            assert!(
                found[0] < 10 && (Ok(found) == earlier.as_ref() || found[0] < 6),
                "{case}, sector {at}: {}",
                found[0]
            );
        }
        assert_eq!(all(&rig, &live, vec![fail(&live, &[full])]), [Ok(())], "{case}");
        assert_eq!(counted(&mut rig), 2, "{case}");
        assert!(before == read_all(&rig, &live), "{case}: other bytes than before");
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 16, 9)]), [Ok(())], "{case}");
        rig.power_off();
    }
}

/// Too many blocks of a torn row have missed the write: the missing member's content is lost.
#[test]
fn a_torn_row_that_lacks_a_data_member_and_two_blocks_keeps_the_array_frozen() {
    let mut rig = rig(6, 4);
    rig.judge.is_over_budget.set(true);
    let live = start_plain(&mut rig);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 16, 1)]), [Ok(())]);
    rig.judge.lost.borrow_mut().insert(0);
    assert_eq!(all(&rig, &live, vec![fail(&live, &[0])]), [Ok(())]);
    [1, 2].into_iter().for_each(|slot| fill_up(&rig, slot, Target::Writes));
    freeze(&rig, &live, false, "raid6");
    let refused = FailError::StaysFrozen(StaysFrozen::LostData { slot: Slot(0) });
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Err(refused)]);
    assert_eq!(counted(&mut rig), 3);
    rig.power_off();
}

/// ```text
///   member        0     1     2, full
///   row 0         new   new   old parity: nothing to write, it leaves
///   row 1         new   parity cannot be written: the array stays frozen, with member 2
/// ```
/// The parity of row 0 is still old: what member 0 cannot read is not computed from it.
#[test]
fn nothing_is_computed_from_the_parity_of_a_member_that_was_to_be_failed_and_stays() {
    let mut rig = rig(5, 3);
    rig.judge.is_over_budget.set(true);
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    let live = start_plain(&mut rig);
    let size = live.arrays[0].geometry().size.0;
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 1)]), [Ok(())]);
    fill_up(&rig, 2, Target::Writes);
    let answers = all(&rig, &live, vec![write(&rig, &live, 0, size, 2)]);
    assert_eq!(answers, [Err(ErrorKind::NoSpace.into())]);
    let effect = Effect::ErrorsFromNow(ErrorKind::Media);
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    let answer = all(&rig, &live, vec![fail(&live, &[2])]).remove(0);
    assert!(matches!(answer, Err(FailError::StaysFrozen(_))), "{answer:?}");
    let place = rig.judge.model.copies[0][0];
    assert_eq!(place.slot, 0);
    rig.disk(0).add_unreadable([rig.setup.data_offsets[0] + place.sector]);
    let found = all(&rig, &live, vec![super::read(&live, 0, 1)]).remove(0);
    assert!(found.as_ref().is_err_and(|error| error.kind == ErrorKind::Media), "{:?}", found.map(|bytes| bytes[0]));
    rig.power_off();
}

/// Member 0 fails a write, and its failure is collected; member 1 is full. Readers see the copy of member 0 throughout.
#[test]
fn a_member_of_a_frozen_mirror_that_fails_is_read_as_before() {
    for (level, slots) in [(1, 3), (10, 4)] {
        let mut rig = rig(level, slots);
        let live = start_plain(&mut rig);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 2, 1)]), [Ok(())]);
        rig.disk(0).add_fault(Fault { victim: Target::Writes, after: 1, effect: Effect::Error(ErrorKind::Media) });
        let full = Fault { victim: Target::Writes, after: 0, effect: Effect::ErrorsFromNow(ErrorKind::NoSpace) };
        rig.disk(1).add_fault(full);
        let (first, second) = (write(&rig, &live, 0, 1, 2), write(&rig, &live, 1, 1, 3));
        let (executor, seen) = (rig.executor.clone(), Rc::new(RefCell::new(Vec::new())));
        let (reader, found) = (super::read(&live, 0, 2), seen.clone());
        rig.executor.spawn(0, "reader", async move {
            executor.sleep(Duration::from_millis(20)).await;
            found.replace(reader.await.expect("readable"));
        });
        assert!(all(&rig, &live, vec![first, second]).iter().all(Result::is_err), "level {level}");
        let during = seen.take();
        let after = all(&rig, &live, vec![super::read(&live, 0, 2)]).pop().expect("one").expect("readable");
        assert!(during == after, "level {level}: {} {} then {} {}", during[0], during[512], after[0], after[512]);
        assert_eq!(live.arrays[0].status().usable.count(), usize::from(slots), "level {level}");
        let refused = FailError::StaysFrozen(StaysFrozen::FailedSince);
        assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Err(refused)], "level {level}");
        rig.power_off();
    }
}

/// A member that does not answer delays readers of the other members only for a while, both if a reader waits for it
/// and if `fail` itself reads or writes it.
#[test]
fn fail_lets_readers_in_again_when_a_member_does_not_answer() {
    for (hung, is_read, later) in
        [(0, true, StaysFrozen::Unanswered), (0, false, StaysFrozen::TooMany), (2, false, StaysFrozen::TooMany)]
    {
        let case = format!("member {hung}, read: {is_read}");
        let mut rig = rig(1, 3);
        let live = start_plain(&mut rig);
        fill_up(&rig, 1, Target::Writes);
        freeze(&rig, &live, false, &case);
        rig.disk(hung).hang_without_deadline();
        if is_read {
            let (array, into) = (live.arrays[0].clone(), live.worlds[0].client_arena().take(512).expect("room"));
            rig.executor.spawn(0, "reader", async move {
                let _ = array.read(Sector(0), into).await;
            });
            let executor = rig.executor.clone();
            all(&rig, &live, vec![async move { executor.sleep(Duration::from_millis(1)).await }]);
        }
        for cause in [StaysFrozen::Unanswered, later] {
            let refused = FailError::StaysFrozen(cause);
            assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Err(refused)], "{case}");
            assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace), "{case}");
        }
        rig.power_off();
    }
}

/// It froze during its start, before the resync.
#[test]
fn an_array_that_froze_before_it_was_consistent_stays_frozen() {
    let mut rig = super::rig(1, 2, true);
    fill_up(&rig, 1, Target::SuperWrites);
    let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
    rig.prepare_oracle(&plan, &BTreeSet::new());
    let live = rig.boot(&plan, &Config::default()).expect("sizes agree");
    let started = live.started.clone();
    run(&rig, &live, || started.get().is_some());
    assert_eq!(started.get(), Some(false));
    let refused = FailError::StaysFrozen(StaysFrozen::NotStarted);
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Err(refused)]);
    rig.power_off();
}

/// A sector that no copy returned in the resync may differ between copies, before `fail` and after.
#[test]
fn a_mirror_read_from_one_copy_is_still_read_from_it_after_fail() {
    let mut rig = super::rig(1, 3, true);
    rig.judge.is_over_budget.set(true);
    (0..3).for_each(|slot| rig.disk(slot).add_latent([DATA_AT + 3]));
    let live = start_plain(&mut rig);
    fill_up(&rig, 1, Target::Writes);
    assert!(all(&rig, &live, vec![write(&rig, &live, 0, 2, 2)])[0].is_err());
    assert_eq!(all(&rig, &live, vec![fail(&live, &[1])]), [Ok(())]);
    let view = live.arrays[0].view();
    assert_eq!((view.gate, view.copies), (Gate::Open, Copies::Canonical));
    rig.power_off();
}

/// The clean-up of the idle array flushes, and a write cancels the clean-up. The flush continues, and fails on a member
/// while `fail` repairs torn parts. The array does not fail that member as well, because it could not be served without
/// it.
#[test]
fn an_earlier_flush_that_fails_during_fail_fails_no_second_member() {
    for (level, slots, late) in [(1, 2, 1), (5, 3, 2), (5, 3, 1), (10, 4, 0), (6, 4, 2)] {
        let case = format!("level {level}, a late flush of member {late}");
        let mut rig = rig(level, slots);
        rig.judge.is_over_budget.set(true);
        let live = start_plain(&mut rig);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 1)]), [Ok(())]);
        let hang = |slot: u16, time| {
            let effect = Effect::Hang(Duration::from_millis(time));
            rig.disk(slot).add_fault(Fault { victim: Target::Flushes, after: 0, effect });
        };
        let sleep = |time| {
            let executor = rig.executor.clone();
            async move { executor.sleep(Duration::from_millis(time)).await }
        };
        hang(late, 1500);
        all(&rig, &live, vec![sleep(700)]);
        assert!(!live.arrays[0].view().takes_writes, "{case}: the clean-up flushes");
        fill_up(&rig, 1, Target::Writes);
        freeze(&rig, &live, false, &case);
        let slow = (0..slots).rfind(|slot| ![1, late].contains(slot)).expect("a member that stays");
        hang(slow, 3000);
        // Operations that are in flight when this is called fail when they end.
        let (disk, executor) = (rig.disk(late).clone(), rig.executor.clone());
        rig.executor.spawn(0, "bus", async move {
            executor.sleep(Duration::from_millis(100)).await;
            disk.fail_bus(ErrorKind::Media);
        });
        let answer = all(&rig, &live, vec![fail(&live, &[1])])[0];
        let is_refused = |error: FailError| match error {
            FailError::StaysFrozen(_) | FailError::NoMember { .. } | FailError::Needed { .. } => true,
            FailError::ReadOnly | FailError::NotOpen | FailError::Frozen(_) => false,
        };
        assert!(answer.is_err_and(is_refused), "{case}: {answer:?}");
        assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace), "{case}");
        assert_eq!(plan_now(&mut rig).map(|plan| in_slots(&plan)), Ok(usize::from(slots)), "{case}");
        rig.power_off();
    }
}

/// Superblocks and bits are under way when a full member freezes the array, and fail while `fail` makes it whole: that freezes
/// the array again, and lets readers in. One shard or two, at every step.
#[test]
fn a_failure_that_comes_while_members_are_failed_is_waited_for() {
    for (level, slots) in [(1, 3), (5, 3), (6, 4)] {
        for slow in [Duration::from_micros(50), Duration::from_millis(2)] {
            for steps in 0..60 {
                let mut rig = super::bits::rig_with_bits(level, slots, 0, 2);
                let live = start_with(&mut rig, &[], &super::bits::config());
                let case = format!("level {level} of {slots}, after {steps} steps, {slow:?}");
                for victim in [Target::Writes, Target::SuperWrites] {
                    rig.disk(1).add_fault(Fault { victim, after: 0, effect: Effect::Hang(slow) });
                    fill_up(&rig, 1, victim);
                }
                let mut writes: Vec<Request> = (0..8).map(|at| write(&rig, &live, at, 1, 2)).collect();
                let late = writes.split_off(4);
                for writing in writes {
                    rig.executor.spawn(0, "write", async move {
                        let _ = writing.await;
                    });
                }
                let array = live.arrays[0].clone();
                run(&rig, &live, || matches!(array.view().gate, Gate::Frozen(_)));
                rig.executor.run(steps, rig.executor.now() + Duration::from_secs(1), || false);
                rig.judge.lost.borrow_mut().insert(1);
                for writing in late {
                    rig.executor.spawn(0, "write", async move {
                        let _ = writing.await;
                    });
                }
                let outcome = all(&rig, &live, vec![fail(&live, &[1])])[0];
                assert!(outcome.is_ok() || live.arrays[0].status().gate != Gate::Open, "{case}: {outcome:?}");
                rig.power_off();
            }
        }
    }
}

/// A member hangs in a round of superblocks, without a time limit, and another one is full: the array is frozen, and neither
/// can be failed. The command says so, instead of waiting for the member.
#[test]
fn a_command_does_not_wait_for_a_member_that_holds_up_the_superblocks() {
    for (level, slots) in [(1, 3), (6, 4)] {
        let mut rig = super::spares::rig_with_spare(level, if level == 1 { 0 } else { 2 }, slots, 1);
        let live = start_with(&mut rig, &[], &Config::default());
        super::spares::fill(&rig, &live);
        // The spare takes the slot of a member that fails, and the round that says so waits for member 0.
        super::spares::fail(&rig, &live, slots - 1);
        let hang = Effect::Hang(Duration::from_secs(50));
        rig.disk(0).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect: hang });
        fill_up(&rig, 1, Target::Writes);
        let array = live.arrays[0].clone();
        let writing = write(&rig, &live, 0, 24, 3);
        rig.executor.spawn(0, "write", async move {
            let _ = writing.await;
        });
        run(&rig, &live, || matches!(array.view().gate, Gate::Frozen(_)));
        let end = rig.executor.now() + Duration::from_secs(20);
        let answer = all(&rig, &live, vec![fail(&live, &[1])])[0];
        assert!(rig.executor.now() < end, "level {level}: {answer:?}");
        rig.power_off();
    }
}

/// Chunks of one sector, no bit set; member 1 takes five times as long as the others.
fn rig_with_slow_members(level: i32, slots: u16, seed: u64) -> Rig {
    let (layout, chunk) = if level == 1 { (0, 0) } else { (2, 2) };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(seed);
    let executor = Executor::new(rng.fork(), false);
    let bits =
        uraid_sim::image::bits::Bits { chunk: 1, clear_after: Duration::from_secs(2), are_set: false, write_behind: 0 };
    let slowness = (0..slots).map(|slot| if slot == 1 { 100 } else { 20 }).collect();
    let setup = Setup { shards: 2, slowness, ..Setup::plain(shape) }.with_bits(Some(bits));
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

/// The bits of an area that is not written any more are being cleared when a full member freezes the array. That fails, too,
/// while `fail` makes the array whole, when no request is inside: the array freezes again, lets readers in, and `fail` starts
/// over. Answers of the full member take up to three milliseconds.
#[test]
fn a_failure_that_no_request_waits_for_while_members_are_failed_starts_it_over() {
    for (level, slots) in [(1, 3), (5, 3)] {
        for seed in 0..60 {
            let case = format!("level {level} of {slots}, seed {seed}");
            let mut rig = rig_with_slow_members(level, slots, seed);
            let live = start_with(&mut rig, &[], &super::bits::config());
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1), write(&rig, &live, 20, 1, 1)]), [Ok(()); 2]);
            // Keeps the array dirty, and its own bit set.
            let (executor, array, arena) = (rig.executor.clone(), live.arrays[0].clone(), live.worlds[0].clone());
            rig.guard.open_range(20, 1);
            rig.executor.spawn(0, "writes", async move {
                for _ in 0..200 {
                    executor.sleep(Duration::from_millis(50)).await;
                    let mut pieces = arena.client_arena().take(512).expect("room");
                    pieces.fill(2);
                    let _ = array.write(Sector(20), pieces.freeze(), Fua::No).await;
                }
            });
            let full = rig.disk(1).clone();
            run(&rig, &live, || full.medium().writes_super());
            fill_up(&rig, 1, Target::SuperWrites);
            fill_up(&rig, 1, Target::Writes);
            rig.executor.run(seed % 20, rig.executor.now() + Duration::from_secs(1), || false);
            let writing = write(&rig, &live, 20, 1, 99);
            rig.executor.spawn(0, "write", async move {
                let _ = writing.await;
            });
            let array = live.arrays[0].clone();
            run(&rig, &live, || matches!(array.view().gate, Gate::Frozen(_)));
            rig.judge.lost.borrow_mut().insert(1);
            let outcome = all(&rig, &live, vec![fail(&live, &[1])])[0];
            assert!(outcome.is_ok() || live.arrays[0].status().gate != Gate::Open, "{case}: {outcome:?}");
            rig.power_off();
        }
    }
}

/// ```text
///   member 0   full: has the old bytes, which readers see
///   member 1   has the new ones, and gets the old ones back
///   slot 2     is being recovered, and has the new ones where the recovery has been
/// ```
/// The recovery begins anew when the array takes writes again.
#[test]
fn a_member_that_was_being_recovered_has_what_readers_see_after_fail() {
    for (level, layout, slots) in [(1, 0, 3), (1, 0, 4), (6, 2, 4), (6, 2, 5)] {
        for full in [0, 1] {
            let case = format!("raid{level} of {slots}, member {full} is full");
            let mut rig = spares::rig_with_spare(level, layout, slots, 1);
            rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
            change_superblock(&rig, 2, |own| {
                own.features = own.features.with(uraid_format::Features::RECOVERY_OFFSET);
                own.recovery_offset = 12;
            });
            // Of the recovery, which is paused.
            let hang = Effect::Hang(Duration::from_secs(1));
            rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 0, effect: hang });
            let live = open_with(&mut rig, &[slots], &Config { pass_window: Sectors(1), ..Config::default() });
            re_adding::pause_passes(&rig, &live, true);
            let members = live.arrays[0].status().members;
            let is_part =
                |member: &MemberState| matches!(member, MemberState::Recovering { below, .. } if below.0 >= 6);
            assert!(members.iter().any(is_part), "{case}: {members:?}");
            spares::fill(&rig, &live);
            fill_up(&rig, full, Target::Writes);
            let refused = all(&rig, &live, (0..6).map(|at| write(&rig, &live, at, 1, 201)).collect());
            assert!(refused.contains(&Err(ErrorKind::NoSpace.into())), "{case}: {refused:?}");
            assert_eq!(all(&rig, &live, vec![fail(&live, &[full])]), [Ok(())], "{case}");
            re_adding::pause_passes(&rig, &live, false);
            spares::wait(&rig, &live);
            assert!(live.arrays[0].status().usable.contains(Slot(2)), "{case}");
            let seen = spares::content_of(&rig, &live);
            for other in (0..slots).filter(|other| *other != 2) {
                let usable = live.arrays[0].status().usable;
                let left = usable.without(Slot(other));
                if usable.contains(Slot(other)) && live.arrays[0].layout().can_serve(&left) {
                    spares::fail(&rig, &live, other);
                    assert!(spares::content_of(&rig, &live) == seen, "{case}: without {other}");
                }
            }
            rig.power_off();
        }
    }
}
