//! A member that fails twice in the moment in which failures are collected: first in a way that the array forgives, a
//! read of a failfast member, then so that it lacks something.
//! Owns: that the graver failure counts. Not here: failures of several members, one each (`several`).

use super::*;
use uraid_format::MemberFlag;
use uraid_sim::image::bits::Bits;

/// What the members fail after the reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Writes,
    /// Superblocks, and the bitmap.
    Metadata,
    Flushes,
}

fn rig(level: i32, slots: u16, has_bits: bool) -> Rig {
    let (layout, chunk) = if level == 10 { (0x102, 2) } else { (0, 0) };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(13);
    let executor = Executor::new(rng.fork(), false);
    let bits = Bits { chunk: 1, clear_after: Duration::from_secs(2), are_set: false, write_behind: 0 };
    let setup = Setup { shards: 2, ..Setup::plain(shape) }.with_bits(has_bits.then_some(bits));
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

/// Members `readers` fail reads, then members `victims` fail what follows, and the array writes and flushes.
fn run_case(level: i32, slots: u16, has_bits: bool, readers: u16, victims: u16, then: Then) {
    let case = format!("raid{level} of {slots}, bitmap {has_bits}, reads {readers:b}, then {then:?} of {victims:b}");
    let mut rig = rig(level, slots, has_bits);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &Config::default());
    let array = live.arrays[0].clone();
    let members: Vec<usize> = (0..usize::from(slots)).collect();
    assert!(
        all(&rig, &live, vec![async move { array.set_flag(&members, MemberFlag::FailFast, true).await.is_ok() }])[0]
    );
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 8, 1)]), [Ok(())]);
    let is_in = |set: u16| (0..slots).filter(move |slot| set >> slot & 1 == 1);
    for slot in is_in(readers) {
        let effect = Effect::ErrorsFromNow(ErrorKind::Media);
        rig.disk(slot).add_fault(Fault { victim: Target::Reads, after: 0, effect });
    }
    // Reads wait for the members to be judged, so they do not end before the writes.
    let reads: Vec<Request> = (0..8)
        .map(|at| -> Request {
            let read = read(&live, at, 1);
            Box::pin(async move { read.await.map(drop) })
        })
        .collect();
    let (executor, disks) = (rig.executor.clone(), rig.judge.disks.clone());
    let target = match then {
        Then::Writes => Target::Writes,
        Then::Metadata => Target::SuperWrites,
        Then::Flushes => Target::Flushes,
    };
    let victims: Vec<u16> = is_in(victims).collect();
    let (write, array) = (write(&rig, &live, 9, 3, 2), live.arrays[0].clone());
    let written: Request = Box::pin(async move {
        executor.sleep(Duration::from_millis(1)).await;
        for slot in victims {
            let effect = Effect::ErrorsFromNow(ErrorKind::Media);
            disks[usize::from(slot)].add_fault(Fault { victim: target, after: 0, effect });
        }
        write.await?;
        array.flush().await
    });
    let answer = all(&rig, &live, reads.into_iter().chain([written]).collect()).pop().expect("one each");
    if answer == Ok(()) {
        // Every member in use holds what was answered.
        let usable = live.arrays[0].status().usable;
        assert!(!usable.is_empty(), "{case}");
        for x in 9..12 {
            for place in rig.judge.model.copies[x].iter().filter(|place| usable.contains(Slot(place.slot))) {
                let at = (rig.setup.data_offsets[usize::from(place.slot)] + place.sector) as usize * 512;
                assert_eq!(rig.disk(place.slot).medium().durable()[at], 2, "{case}: {place:?} of sector {x}");
            }
        }
    } else {
        assert!(matches!(live.arrays[0].status().gate, Gate::Frozen(_)), "{case}: {answer:?}");
    }
    rig.power_off();
}

#[test]
fn the_graver_failure_of_a_member_counts() {
    for (level, slots) in [(1, 2), (1, 3), (10, 4)] {
        for has_bits in [false, true] {
            for then in [Then::Writes, Then::Metadata, Then::Flushes] {
                for readers in 1..1 << slots {
                    for victims in 1..1 << slots {
                        run_case(level, slots, has_bits, readers, victims, then);
                    }
                }
            }
        }
    }
}
