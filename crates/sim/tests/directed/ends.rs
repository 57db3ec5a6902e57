//! Requests in flight when the array freezes or stops, and members that are gone during rare operations.
//! Owns: these runs. Not here: how a run is made (the parent).

use super::*;
use uraid_block::{Range, Tick};
use uraid_engine::FailError;

/// Whether a request succeeded, and when it ended.
type Ending = Pin<Box<dyn Future<Output = (bool, Tick)>>>;

/// Shorter than the time after which a read is sent to another copy.
const HANGS: Duration = Duration::from_millis(100);

/// ```text
///    0 ms   a read meets an unreadable sector of member 0, and retries on member 1, which takes 100 ms and cannot read it
///   50 ms   a write freezes the array: members 0 and 1 have it, the full member 2 does not
/// ```
/// Member 2 must not serve reads any more: a later read would return the other version.
#[test]
fn a_retry_that_began_before_a_freeze_returns_no_other_version() {
    let mut retried = 0;
    for turn in 0..3 {
        let mut rig = rig(1, 3, false);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())]);
        for _ in 0..turn {
            // A read that follows no earlier one, so the next read takes the next member.
            assert_eq!(kind(&all(&rig, &live, vec![read(&live, 0, 1)])[0]), None);
        }
        (0..2).for_each(|disk| rig.disk(disk).add_latent([DATA_AT + 3]));
        let slow = Effect::Hang(HANGS);
        rig.disk(1).add_fault(Fault { victim: Target::Reads, after: 0, effect: slow });
        let full = Effect::ErrorsFromNow(ErrorKind::NoSpace);
        rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 0, effect: full });
        let (reading, writing) = (read(&live, 2, 2), write(&rig, &live, 2, 1, 2));
        let (executor, clock) = (rig.executor.clone(), rig.executor.clone());
        let began = rig.executor.now();
        let requests: Vec<Ending> = vec![
            Box::pin(async move {
                let answer = reading.await;
                (answer.is_ok(), clock.now())
            }),
            Box::pin(async move {
                executor.sleep(HANGS / 2).await;
                (writing.await.is_ok(), executor.now())
            }),
        ];
        let answers = all(&rig, &live, requests);
        assert!(!answers[1].0, "the write is not on every member");
        let (is_read, ended) = answers[0];
        let is_after = ended > began + HANGS;
        assert!(!is_read || !is_after, "turn {turn}: bytes of a copy that missed the write");
        retried += u32::from(is_after);
        rig.power_off();
    }
    assert!(retried > 0, "some reads went to member 1");
}

/// ```text
///   raid5 of 3, array sectors      row 0:  0 1 | 2 3 | P        row 1:  6 7 | P | 4 5
///   unreadable                                  3 of member 1           6 of member 0
/// ```
/// Sectors 1, 6 and 7 are one read of member 0, which fails because of 6. Sector 1 cannot be computed without member 1,
/// and member 0 can read it alone.
#[test]
fn a_sector_in_a_failed_read_of_its_neighbour_is_read_again_alone() {
    let mut rig = rig(5, 3, false);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 8, 6)]), [Ok(())]);
    rig.disk(0).add_latent([DATA_AT + 2]);
    rig.disk(1).add_latent([DATA_AT + 1]);
    for (at, length) in [(1, 7), (0, 8), (1, 6)] {
        let found = all(&rig, &live, vec![read(&live, at, length)]);
        assert!(found[0] == Ok(vec![6; length as usize * 512]), "{at}+{length}: {:?}", kind(&found[0]));
    }
    rig.power_off();
}

/// A stop closes the array, the flush of its members freezes it, and a waiting reader is admitted. The stop must not
/// release the members before the reader has its bytes.
#[test]
fn a_stop_waits_for_readers_that_a_freeze_admitted() {
    // Whether the reader or the stop goes on first is the executor's choice.
    let admitted = (1..20).filter(|seed| a_reader_waits_at_the_gate_of_a_stop(*seed)).count();
    assert!(admitted > 0, "the array froze, and is read from its canonical copy");
}

/// Whether the reader was admitted, and not refused because the array stopped.
fn a_reader_waits_at_the_gate_of_a_stop(seed: u64) -> bool {
    let mut rig = rig_of(seed, 1, 1, 2, false);
    rig.judge.is_over_budget.set(true);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
    for disk in 0..2 {
        let effect = Effect::Error(ErrorKind::Media);
        rig.disk(disk).add_fault(Fault { victim: Target::Flushes, after: 0, effect });
        let slow = Effect::Hang(Duration::from_secs(5));
        rig.disk(disk).add_fault(Fault { victim: Target::Reads, after: 0, effect: slow });
    }
    let (array, reading) = (live.arrays[0].clone(), read(&live, 0, 1));
    let (stopped, served) = (rig.executor.clone(), rig.executor.clone());
    let requests: Vec<Ending> = vec![
        Box::pin(async move {
            let outcome = array.stop().await;
            (outcome.is_ok(), stopped.now())
        }),
        Box::pin(async move {
            // After the gate, in any case.
            served.sleep(Duration::from_nanos(1)).await;
            let outcome = reading.await;
            assert!(outcome.is_ok() || kind(&outcome) == Some(ErrorKind::Stopping), "{:?}", kind(&outcome));
            (outcome.is_ok(), served.now())
        }),
    ];
    let ends = all(&rig, &live, requests);
    assert!(!ends[0].0, "the array froze");
    let is_admitted = ends[1].0;
    assert!(!is_admitted || ends[0].1 >= ends[1].1, "stopped at {:?}, read at {:?}", ends[0].1, ends[1].1);
    rig.power_off();
    is_admitted
}

/// The array freezes while the clean-up of the idle array waits for a slow flush. The stop cancels the clean-up, and
/// does not wait for that flush.
#[test]
fn a_stop_of_a_frozen_array_does_not_wait_for_the_clean_ups_flush() {
    let mut rig = rig(5, 3, false);
    rig.judge.is_over_budget.set(true);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 8, 1)]), [Ok(())]);
    let takes = Effect::Hang(Duration::from_secs(50));
    rig.disk(2).add_fault(Fault { victim: Target::Flushes, after: 0, effect: takes });
    for disk in 0..2 {
        let gone = Effect::ErrorsFromNow(ErrorKind::Gone);
        rig.disk(disk).add_fault(Fault { victim: Target::Reads, after: 0, effect: gone });
    }
    let (executor, later) = (rig.executor.clone(), read(&live, 0, 8));
    let reading = async move {
        executor.sleep(Duration::from_secs(1)).await;
        later.await
    };
    assert!(all(&rig, &live, vec![reading])[0].is_err());
    assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::Gone));
    let (array, begun) = (live.arrays[0].clone(), rig.executor.now());
    let stopped = all(&rig, &live, vec![async move { array.stop().await }]);
    assert!(matches!(stopped[0], Err(StopError::Frozen(_))), "{stopped:?}");
    assert!(rig.executor.now().since(begun) < Duration::from_secs(5));
    rig.power_off();
}

/// A stop waits for the flush of a member that hangs, until the operator fails that member: then the array is clean
/// without it.
#[test]
fn a_member_that_delays_a_stop_can_be_failed() {
    for level in [1, 10, 5, 6] {
        let mut rig = rig(level, 4, false);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
        rig.judge.lost.borrow_mut().insert(2);
        let takes = Effect::Hang(Duration::from_secs(50));
        rig.disk(2).add_fault(Fault { victim: Target::Flushes, after: 0, effect: takes });
        let (array, begun) = (live.arrays[0].clone(), rig.executor.now());
        let (failing, executor) = (array.clone(), rig.executor.clone());
        let both: Vec<Request> = vec![
            Box::pin(async move {
                array.stop().await.expect("it ends clean");
                Ok(())
            }),
            Box::pin(async move {
                executor.sleep(Duration::from_secs(1)).await;
                assert_eq!(failing.status().gate, Gate::Closed, "the stop waits");
                assert_eq!(failing.fail(SlotSet::EMPTY.with(Slot(2))).await, Ok(()));
                Ok(())
            }),
        ];
        assert_eq!(all(&rig, &live, both), [Ok(()), Ok(())], "raid{level}");
        assert!(rig.executor.now().since(begun) < Duration::from_secs(5), "raid{level}");
        let status = live.arrays[0].status();
        assert!(!status.is_dirty && !status.usable.contains(Slot(2)), "raid{level}: {status:?}");
        let late = live.arrays[0].clone();
        let answer = all(&rig, &live, vec![async move { late.fail(SlotSet::EMPTY.with(Slot(1))).await }]);
        assert_eq!(answer, [Err(FailError::NotOpen)], "raid{level}: after the stop none is failed");
        rig.power_off();
    }
}

/// A stop in the middle of a resync waits for the window in flight, and so for a member that does not answer. It may be
/// failed meanwhile, as in an open array.
#[test]
fn a_member_can_be_failed_while_a_stop_waits_for_a_window_of_the_resync() {
    let mut rig = rig(1, 3, true);
    let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
    rig.prepare_oracle(&plan, &BTreeSet::new());
    rig.disk(0).add_fault(Fault { victim: Target::Reads, after: 0, effect: Effect::Hang(Duration::from_secs(20)) });
    rig.judge.lost.borrow_mut().insert(0);
    let live = rig.boot(&plan, &Config::default()).expect("sizes agree");
    let (array, failing, executor) = (live.arrays[0].clone(), live.arrays[0].clone(), rig.executor.clone());
    let session = live.session.clone();
    let both: Vec<Request> = vec![
        Box::pin(async move {
            executor.sleep(Duration::from_millis(100)).await;
            session.is_stopping.set(true);
            array.stop().await.expect("the others are there");
            Ok(())
        }),
        Box::pin({
            let executor = rig.executor.clone();
            async move {
                executor.sleep(Duration::from_millis(200)).await;
                assert_eq!(failing.status().gate, Gate::Closed);
                assert_eq!(failing.fail(SlotSet::EMPTY.with(Slot(0))).await, Ok(()));
                Ok(())
            }
        }),
    ];
    assert_eq!(all(&rig, &live, both), [Ok(()), Ok(())]);
    assert!(rig.executor.now() < Tick(5_000_000_000), "nothing waits for the member any more");
    rig.power_off();
}

/// A discard is advisory: a member that refuses one is kept, and one that is gone is failed.
#[test]
fn a_member_that_is_gone_during_a_discard_is_failed() {
    for (effect, is_failed) in [(Effect::Error(ErrorKind::Gone), true), (Effect::Error(ErrorKind::Media), false)] {
        let mut rig = rig(1, 3, false);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
        rig.judge.lost.borrow_mut().insert(1);
        rig.disk(1).add_fault(Fault { victim: Target::Any, after: 0, effect });
        rig.guard.open_range(0, 4);
        let array = live.arrays[0].clone();
        let range = Range::new(Sector(0), Sectors(4));
        assert_eq!(all(&rig, &live, vec![async move { array.discard(range).await }]), [Ok(())]);
        let member = live.arrays[0].status().members[1];
        assert_eq!(matches!(member, MemberState::Faulty { .. }), is_failed, "{effect:?}: {member:?}");
        rig.power_off();
    }
}

/// ```text
///   raid5 of 3, row 0, offset 0:   member 0 unreadable         offset 1:   member 2 (P) unreadable
/// ```
/// D1 is written sector by sector. Member 1 is full, so the first sector freezes the array: nothing of the second one
/// is written.
#[test]
fn the_second_half_of_a_row_write_is_not_started_after_a_freeze() {
    let mut rig = rig(5, 3, false);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
    rig.disk(0).add_latent([DATA_AT]);
    rig.disk(2).add_latent([DATA_AT + 1]);
    let full = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect: full });
    let answers = all(&rig, &live, vec![write(&rig, &live, 2, 2, 2)]);
    assert_eq!(kind(&answers[0]), Some(ErrorKind::NoSpace));
    assert!(rig.disk(2).has_latent(DATA_AT + 1), "a write would have made it readable");
    rig.power_off();
}

/// A member that was gone for a moment of a resync was not compared in full: it is failed, not called in sync.
#[test]
fn a_member_that_is_gone_in_a_resync_is_failed() {
    for (level, slots) in [(1, 2), (5, 3), (6, 4), (10, 4)] {
        let mut rig = rig(level, slots, true);
        rig.judge.is_over_budget.set(true);
        let gone = Effect::Error(ErrorKind::Gone);
        rig.disk(1).add_fault(Fault { victim: Target::Reads, after: 0, effect: gone });
        let live = start(&mut rig, &[]);
        let member = live.arrays[0].status().members[1];
        assert!(matches!(member, MemberState::Faulty { .. }), "level {level}: {member:?}");
        rig.power_off();
    }
}

/// Member 0 is failed by command, and the others fail their superblocks from some write on: in the stop, for some. If it
/// succeeds, they list what has failed.
#[test]
fn a_stop_that_cannot_record_a_failure_fails() {
    let (mut refused, mut recorded) = (0, 0);
    for seed in 0..100 {
        for after in 0..5 {
            let mut rig = rig_of(seed, 2, 1, 3, false);
            rig.judge.is_over_budget.set(true);
            let live = start(&mut rig, &[]);
            for disk in 1..3 {
                let effect = Effect::ErrorsFromNow(ErrorKind::Media);
                rig.disk(disk).add_fault(Fault { victim: Target::SuperWrites, after, effect });
            }
            let (array, stopped) = (live.arrays[0].clone(), live.arrays[0].clone());
            let failing = async move { array.fail(SlotSet::EMPTY.with(Slot(0))).await.is_ok() };
            let stopping = async move { stopped.stop().await.is_ok() };
            let requests: Vec<Pin<Box<dyn Future<Output = bool>>>> = vec![Box::pin(failing), Box::pin(stopping)];
            let is_stopped = all(&rig, &live, requests)[1];
            let is_faulty = matches!(live.arrays[0].status().members[0], MemberState::Faulty { .. });
            let lists_it = |disk: u16| {
                let bytes: [u8; 4096] =
                    rig.disk(disk).medium().current()[8 * 512..16 * 512].try_into().expect("a place");
                let superblock = Superblock::parse(&bytes, Sector(8), rig.disk(disk).geometry().size).expect("whole");
                superblock.roles[0] == Role::Faulty
            };
            let is_recorded = (1..3).any(lists_it);
            assert!(
                !is_stopped || !is_faulty || is_recorded,
                "seed {seed}, after {after}: stopped, and nothing says so"
            );
            refused += u32::from(is_faulty && !is_recorded);
            recorded += u32::from(is_faulty && is_recorded);
            rig.power_off();
        }
    }
    assert!(refused > 20 && recorded > 20, "{refused} refused, {recorded} recorded");
}
