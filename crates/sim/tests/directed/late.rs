//! Reads of parity levels beside a member that does not answer: the others give the bytes.
//! Owns: these runs. Not here: how a run is made (the parent), mirrors (`uraid/tests/hung.rs`).

use super::*;

/// More than five looks at the reads in flight, and the reads themselves.
const SOON: Duration = Duration::from_millis(1500);

/// Member 0 hangs: the first read of it takes five looks at most, later ones none.
#[test]
fn reads_of_a_member_that_hangs_are_computed_from_the_others() {
    for (level, slots, shards) in [(4, 3, 1), (5, 3, 1), (5, 4, 2), (6, 4, 1), (6, 5, 2)] {
        let mut rig = rig_of(7, shards, level, slots, false);
        let live = start(&mut rig, &[]);
        let size = live.arrays[0].geometry().size.0;
        for at in 0..size {
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, 1, at as u8 + 1)]), [Ok(())]);
        }
        rig.disk(0).hang_without_deadline();
        let whole: Vec<u8> = (0..size).flat_map(|at| [at as u8 + 1; 512]).collect();
        for round in 0..3 {
            let began = rig.executor.now();
            let answers = all(&rig, &live, vec![read(&live, 0, size)]);
            assert!(answers == [Ok(whole.clone())], "raid{level}");
            let took = rig.executor.now().since(began);
            assert!(took < if round == 0 { SOON } else { SOON / 4 }, "raid{level}, round {round}: {took:?}");
            for at in 0..size {
                let began = rig.executor.now();
                assert!(all(&rig, &live, vec![read(&live, at, 1)]) == [Ok(vec![at as u8 + 1; 512])], "raid{level}");
                let took = rig.executor.now().since(began);
                // The shard that answers may not be the one that has seen it.
                assert!(took < SOON, "raid{level}, sector {at}: {took:?}");
            }
        }
        let status = live.arrays[0].status();
        assert_eq!(status.usable.count(), usize::from(slots), "raid{level}: no member is failed");
        assert!(live.arrays[0].counters().read_errors == 0, "raid{level}: it is no error");
        rig.power_off();
    }
}

/// A member that answers again is read again.
#[test]
fn nothing_is_computed_once_a_member_answers_again() {
    for level in [5, 6] {
        let mut rig = rig(level, 4, false);
        let live = start(&mut rig, &[]);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        let effect = Effect::Hang(Duration::from_secs(3));
        rig.disk(0).add_fault(Fault { victim: Victim::Reads, after: 0, effect });
        let is_right = || all(&rig, &live, vec![read(&live, 0, size)]) == [Ok(vec![7; size as usize * 512])];
        let began = rig.executor.now();
        assert!(is_right() && rig.executor.now().since(began) < SOON, "raid{level}");
        let executor = rig.executor.clone();
        all(&rig, &live, vec![async move { executor.sleep(Duration::from_secs(5)).await }]);
        let before = live.arrays[0].counters().rows_recovered;
        assert!(before > 0 && is_right(), "raid{level}");
        assert_eq!(live.arrays[0].counters().rows_recovered, before, "raid{level}");
        rig.power_off();
    }
}

/// Where the others do not suffice, a read waits, and so does a write that must read: neither fails, each gets its bytes.
#[test]
fn what_needs_a_member_that_is_slow_waits_for_it() {
    for level in [5, 6] {
        let away: &[u16] = if level == 5 { &[1] } else { &[1, 2] };
        let mut rig = rig(level, 4, false);
        let live = start(&mut rig, away);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        for after in 0..100 {
            let effect = Effect::Hang(Duration::from_secs(9));
            rig.disk(0).add_fault(Fault { victim: Victim::Reads, after, effect });
        }
        let writing = write(&rig, &live, 3, 1, 77);
        let requests: Vec<Request> = vec![
            Box::pin({
                let reading = read(&live, 0, size);
                async move { reading.await.map(|bytes| assert!(bytes.iter().all(|byte| [7, 77].contains(byte)))) }
            }),
            Box::pin(writing),
        ];
        let began = rig.executor.now();
        assert_eq!(all(&rig, &live, requests), [Ok(()), Ok(())], "raid{level}");
        assert!(rig.executor.now().since(began) >= Duration::from_secs(9), "raid{level}");
        assert!(all(&rig, &live, vec![read(&live, 3, 1)]) == [Ok(vec![77; 512])], "raid{level}");
        rig.power_off();
    }
}
