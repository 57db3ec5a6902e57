//! Reads of parity levels while a member does not answer: the bytes are computed from the others.
//! Owns: these runs. Not here: how a run is made (the parent), mirrors (`uraid/tests/hung.rs`).

use super::*;

/// More than five age checks, and the reads themselves.
const SOON: Duration = Duration::from_millis(1500);

/// Member 0 hangs: the first read of it takes at most five age checks, later ones none.
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
                // The shard that receives the read may not be the one that has noticed it.
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
fn reads_return_to_a_member_that_answers_again() {
    for level in [5, 6] {
        let mut rig = rig(level, 4, false);
        let live = start(&mut rig, &[]);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        let effect = Effect::Hang(Duration::from_secs(3));
        rig.disk(0).add_fault(Fault { victim: Target::Reads, after: 0, effect });
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

/// If the other members are not enough, a read waits, and so does a write that must read. Neither fails, each gets its
/// bytes.
#[test]
fn requests_that_need_a_slow_member_wait_for_it() {
    for level in [5, 6] {
        let away: &[u16] = if level == 5 { &[1] } else { &[1, 2] };
        let mut rig = rig(level, 4, false);
        let live = start(&mut rig, away);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        for after in 0..100 {
            let effect = Effect::Hang(Duration::from_secs(9));
            rig.disk(0).add_fault(Fault { victim: Target::Reads, after, effect });
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

/// A lost member's content is computed without a second member that hangs, even if nothing else was read from that one.
#[test]
fn reads_of_a_lost_member_do_not_wait_for_another_one_that_hangs() {
    for (shards, hung) in [(1, 1), (1, 3), (2, 1), (2, 4)] {
        let mut first = 0;
        loop {
            let mut rig = rig_of(7, shards, 6, 5, false);
            let live = start(&mut rig, &[0]);
            let size = live.arrays[0].geometry().size.0;
            for at in 0..size {
                assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, 1, at as u8 + 1)]), [Ok(())]);
            }
            rig.disk(hung).hang_without_deadline();
            for round in 0..2 {
                let began = rig.executor.now();
                assert!(all(&rig, &live, vec![read(&live, first, 1)]) == [Ok(vec![first as u8 + 1; 512])], "{first}");
                let took = rig.executor.now().since(began);
                // Each shard notices by itself: the one where the read arrives, and the one where its row is computed.
                let limit = if round == 0 { 2 * SOON } else { SOON / 4 };
                assert!(took < limit, "{shards} shards, round {round}, sector {first}: {took:?}");
            }
            rig.power_off();
            first += 1;
            if first == size {
                break;
            }
        }
    }
}

/// A write of one chunk reads whichever members give the parity. Of equal plans it takes the one without a member that
/// hangs.
#[test]
fn a_write_reads_no_hung_member_if_others_give_its_parity() {
    for (level, slots) in [(5, 4), (6, 5), (6, 6)] {
        let mut rig = rig_of(7, 1, level, slots, false);
        let live = start(&mut rig, &[]);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        // Left-symmetric: the last data chunk of row 0 is in the slot before the parities, or in the one after them.
        let hung = if level == 5 { slots - 2 } else { slots - 3 };
        rig.disk(hung).hang_without_deadline();
        for round in 0..2 {
            let began = rig.executor.now();
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 8 + round)]), [Ok(())]);
            let took = rig.executor.now().since(began);
            let limit = if round == 0 { SOON } else { SOON / 4 };
            assert!(took < limit, "raid{level} of {slots}, round {round}: {took:?}");
        }
        rig.power_off();
    }
}

/// Members that are slow, not hung: reads that are cut and sent again must not keep them busy.
#[test]
fn slow_members_are_read_about_once_per_read() {
    const READS: u64 = 1200;
    for (level, slots, answer_time) in [(1, 2, 600), (10, 4, 600), (5, 4, 1500)] {
        let mut rig = rig_of(7, 1, level, slots, false);
        let live = start(&mut rig, &[]);
        let size = live.arrays[0].geometry().size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        let before: Vec<u64> = (0..slots).map(|slot| rig.disk(slot).reads()).collect();
        for (slot, after) in (0..slots).flat_map(|slot| (0..4 * READS).map(move |after| (slot, after))) {
            let effect = Effect::Hang(Duration::from_millis(answer_time));
            rig.disk(slot).add_fault(Fault { victim: Target::Reads, after, effect });
        }
        for round in 0..READS / 8 {
            let reads = (0..8).map(|n| read(&live, (round * 5 + n * 3) % size, 1)).collect();
            let reads = all(&rig, &live, reads);
            assert!(reads.iter().all(|read| read.as_ref() == Ok(&vec![7; 512])), "raid{level}");
        }
        let reads: u64 = (0..).zip(&before).map(|(slot, before)| rig.disk(slot).reads() - before).sum();
        // The first reads may be sent twice, or on parity levels to all others. Each probe is a read.
        let limit = READS * 5 / 4 + READS / 8 * u64::from(slots);
        assert!(reads < limit, "raid{level}: {reads} reads of members for {READS}");
        rig.power_off();
    }
}

#[test]
fn a_member_that_was_slow_is_read_again() {
    for (level, slots) in [(1, 2), (10, 4)] {
        let mut rig = rig(level, slots, false);
        let live = start(&mut rig, &[]);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 7)]), [Ok(())]);
        rig.disk(1).add_fault(Fault { victim: Target::Reads, after: 0, effect: Effect::Hang(Duration::from_secs(3)) });
        // Sectors that do not follow an earlier read, because streams stay on their copy.
        let reads = || {
            let reads = all(&rig, &live, (0..12).map(|n| read(&live, n % 2 * 4, 1)).collect());
            assert!(reads.iter().all(|read| read.as_ref() == Ok(&vec![7; 512])), "raid{level}: {reads:?}");
        };
        let begun = rig.executor.now();
        reads();
        assert!(rig.executor.now().since(begun) < Duration::from_secs(1), "raid{level}: another copy has it");
        let before = rig.disk(1).reads();
        (0..10).for_each(|_| reads());
        assert!(rig.disk(1).reads() > before + 10, "raid{level}: it has answered the question");
    }
}
