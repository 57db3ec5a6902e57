//! An array that becomes read-only by command, and takes writes again.
//! Owns: what is refused and served meanwhile, what the members hold, members that fail, passes and stops around it. Not
//! here: arrays that are started read-only, which the swarm has.

use super::joining::assembled_anywhere;
use super::several::in_slots;
use super::spares::{CASES, content_of, fail, fill, rig_with_spare, wait};
use super::*;
use uraid_engine::{AccessError, FailError, PassKind};
use uraid_sim::machine::member::{Access, Op, Watch};

/// Counts what is written to a member.
struct Written {
    inner: Option<Rc<dyn Watch>>,
    count: Rc<Cell<u64>>,
}

impl Watch for Written {
    fn submitted(&self, access: Access) -> Result<(), String> {
        if matches!(access.op, Op::Write { .. } | Op::Zeroes | Op::Discard) {
            self.count.set(self.count.get() + 1);
        }
        self.inner.as_ref().map_or(Ok(()), |inner| inner.submitted(access))
    }
    fn superblock(&self, disk: u16, bytes: &[u8]) -> Result<(), String> {
        self.inner.as_ref().map_or(Ok(()), |inner| inner.superblock(disk, bytes))
    }
    fn failed(&self, access: Access, error: ErrorKind) {
        self.inner.iter().for_each(|inner| inner.failed(access, error));
    }
    fn given_up(&self, disk: u16) {
        self.inner.iter().for_each(|inner| inner.given_up(disk));
    }
    fn corrupted(&self, disk: u16, at: u64, length: u64) {
        self.inner.iter().for_each(|inner| inner.corrupted(disk, at, length));
    }
}

/// Counts the writes to all members, spares included, from now on.
fn count_writes(rig: &Rig) -> Rc<Cell<u64>> {
    count_writes_besides(rig, Some(rig.guard.clone()))
}

/// `guard`: goes on to check the members in slots.
fn count_writes_besides(rig: &Rig, guard: Option<Rc<dyn Watch>>) -> Rc<Cell<u64>> {
    let (count, slots) = (Rc::new(Cell::new(0)), usize::from(rig.setup.shape.slots));
    for (index, disk) in rig.judge.disks.iter().enumerate() {
        let inner = guard.clone().filter(|_| index < slots);
        disk.set_watch(Some(Rc::new(Written { inner, count: count.clone() })));
    }
    count
}

fn become_read_only(live: &Live) -> impl Future<Output = Result<bool, AccessError>> + 'static {
    let array = live.arrays[0].clone();
    async move { array.become_read_only().await }
}

fn become_writable(live: &Live) -> impl Future<Output = Result<bool, AccessError>> + 'static {
    let array = live.arrays[0].clone();
    async move { array.become_writable().await }
}

fn sleep(rig: &Rig, live: &Live, time: Duration) {
    let executor = rig.executor.clone();
    all(rig, live, vec![async move { executor.sleep(time).await }]);
}

/// Writes, zeroes and discards are refused, a flush succeeds.
fn assert_refused(rig: &Rig, live: &Live, case: &str) {
    for array in &live.arrays {
        let (zeroing, trimming, flushing) = (array.clone(), array.clone(), array.clone());
        let range = uraid_block::Range::new(Sector(1), Sectors(3));
        let requests: Vec<Request> = vec![
            Box::pin(async move { zeroing.write_zeroes(range).await }),
            Box::pin(async move { trimming.discard(range).await }),
            Box::pin(async move { flushing.flush().await }),
        ];
        let refused = Some(ErrorKind::ReadOnly);
        // A trim that no member would take is answered as always.
        let of_trim = refused.filter(|_| !array.geometry().discard_granularity.is_zero());
        let kinds: Vec<_> = all(rig, live, requests).iter().map(kind).collect();
        assert_eq!(kinds, [refused, of_trim, None], "{case}");
    }
    for fua in [Fua::No, Fua::Yes] {
        let answers = all(rig, live, vec![write_as(rig, live, 0, 2, 99, fua)]);
        assert_eq!(kind(&answers[0]), Some(ErrorKind::ReadOnly), "{case}");
    }
}

/// What a power cut would leave now: a clean array of this many members, whose members hold all that was written.
fn assert_settled(rig: &mut Rig, members: usize, case: &str) {
    let plan = plan_now(rig);
    assert_eq!((in_slots(&plan), plan.is_dirty), (members, false), "{case}");
    let loose = |disk: &uraid_sim::machine::member::Disk| !disk.medium().uncertain_data().is_empty();
    assert!(!rig.judge.disks.iter().any(|disk| loose(disk)), "{case}: power would undo a write");
    let images: Vec<_> = rig.judge.disks.iter().map(|disk| Some(disk.medium().current().to_vec())).collect();
    rig.judge.check_redundancy(&images, &plan).unwrap_or_else(|found| panic!("{case}: {found}"));
}

#[test]
fn a_read_only_array_refuses_writes_serves_reads_and_writes_nothing() {
    for (level, layout, slots) in CASES {
        for shards in [1, 3] {
            let case = format!("raid{level} {layout:#x} of {slots}, {shards} shards");
            let mut rig = rig_with_spare(level, layout, slots, shards);
            let live = start(&mut rig, &[]);
            let content = fill(&rig, &live);
            assert!(live.arrays[0].status().is_dirty, "{case}");
            assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)], "{case}");
            let status = live.arrays[0].status();
            assert_eq!((status.gate, status.is_dirty), (Gate::ReadOnly, false), "{case}");
            assert_settled(&mut rig, slots.into(), &case);

            let written = count_writes(&rig);
            assert_refused(&rig, &live, &case);
            assert!(content_of(&rig, &live) == content, "{case}");
            assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(false)], "{case}: twice");
            sleep(&rig, &live, Duration::from_secs(20));
            assert_eq!(written.get(), 0, "{case}");

            assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Ok(true)], "{case}");
            assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Ok(false)], "{case}: twice");
            assert_eq!(written.get(), 0, "{case}: there was nothing to record");
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 5, 77)]), [Ok(())], "{case}");
            assert_eq!(all(&rig, &live, vec![read(&live, 4, 1)]), [Ok(vec![77; 512])], "{case}");
            assert!(live.arrays[0].status().is_dirty && plan_now(&mut rig).is_dirty, "{case}");
            assert_eq!(rig.stop(&live), Ok(true), "{case}");
            rig.power_off();
        }
    }
}

/// Writes that are under way end as they would have; each later one is refused.
#[test]
fn writes_under_way_end_before_the_array_is_read_only() {
    for (level, slots) in [(1, 3), (5, 4), (6, 5), (10, 4)] {
        let layout = if level == 10 { 0x102 } else { 2 };
        for step in 0..40 {
            let case = format!("raid{level} of {slots}, after {} us", step * 20);
            let mut rig = rig_with_spare(level, if level == 1 { 0 } else { layout }, slots, 3);
            let live = start(&mut rig, &[]);
            fill(&rig, &live);
            let executor = rig.executor.clone();
            let (making, is_done) = (become_read_only(&live), Rc::new(Cell::new(false)));
            let done = is_done.clone();
            let access: Request = Box::pin(async move {
                executor.sleep(Duration::from_micros(step * 20)).await;
                assert_eq!(making.await, Ok(true));
                done.set(true);
                Ok(())
            });
            let mut requests: Vec<Request> = vec![access];
            for number in 0..8u64 {
                let (executor, writing) = (rig.executor.clone(), write(&rig, &live, number * 3, 3, 100 + number as u8));
                requests.push(Box::pin(async move {
                    executor.sleep(Duration::from_micros(number * 90)).await;
                    writing.await
                }));
            }
            let answers = all(&rig, &live, requests);
            assert!(is_done.get(), "{case}");
            for (number, answer) in answers[1..].iter().enumerate() {
                let expected = match answer {
                    Ok(()) => 100 + number as u8,
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::ReadOnly, "{case}");
                        number as u8 * 3 + 1
                    }
                };
                let found = all(&rig, &live, vec![read(&live, number as u64 * 3, 1)]);
                assert!(found == [Ok(vec![expected; 512])], "{case}, write {number}: {answer:?}");
            }
            assert_settled(&mut rig, slots.into(), &case);
            rig.power_off();
        }
    }
}

/// The member is avoided at once, and recorded before the first write; a crash until then finds it in sync.
#[test]
fn a_member_that_fails_meanwhile_is_recorded_when_the_array_takes_writes_again() {
    for (level, layout, slots) in CASES {
        for victim in 0..slots {
            let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}");
            let mut rig = rig_with_spare(level, layout, slots, 3);
            let live = start(&mut rig, &[]);
            let content = fill(&rig, &live);
            assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)], "{case}");
            let written = count_writes(&rig);
            let gone = Effect::ErrorsFromNow(ErrorKind::Gone);
            for kind in [Target::Reads, Target::Writes, Target::SuperWrites, Target::Flushes] {
                rig.disk(victim).add_fault(Fault { victim: kind, after: 0, effect: gone });
            }
            rig.judge.lost.borrow_mut().insert(victim);
            let array = live.arrays[0].clone();
            assert_eq!(all(&rig, &live, vec![async move { array.flush().await }]), [Ok(())], "{case}");
            assert!(content_of(&rig, &live) == content, "{case}");
            let is_faulty = |live: &Live| {
                matches!(live.arrays[0].status().members[usize::from(victim)], MemberState::Faulty { .. })
            };
            assert!(is_faulty(&live), "{case}");
            sleep(&rig, &live, Duration::from_secs(20));
            assert_eq!(written.get(), 0, "{case}: no superblock, and no spare takes the slot");
            assert_eq!(in_slots(&plan_now(&mut rig)), usize::from(slots), "{case}");
            assert_refused(&rig, &live, &case);

            let (opening, array) = (become_writable(&live), live.arrays[0].clone());
            let outcome = all(&rig, &live, vec![async move { (opening.await, array.view().is_recorded) }]);
            assert_eq!(outcome, [(Ok(true), true)], "{case}");
            assert!(in_slots(&plan_now(&mut rig)) < usize::from(slots), "{case}");
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 5, 77)]), [Ok(())], "{case}");
            assert_eq!(wait(&rig, &live), [PassKind::Recovery], "{case}: the spare");
            assert_eq!(live.arrays[0].status().usable, SlotSet::first(slots), "{case}");
            assert!(content_of(&rig, &live)[5 * 512..] == content[5 * 512..], "{case}");
            rig.power_off();
        }
    }
}

/// A resync and a recovery stop where they are, go on after it, and begin there after a power cut.
#[test]
fn passes_wait_while_the_array_is_read_only() {
    let mut half_way = std::collections::BTreeMap::new();
    for (level, layout, slots) in CASES {
        for (kind, steps) in [(PassKind::Resync, 0..6), (PassKind::Recovery, 0..6)] {
            for step in steps {
                let case = format!("raid{level} {layout:#x} of {slots}, {kind:?}, after {step} ms");
                let mut rig = rig_with_spare(level, layout, slots, 1 + step as u16 % 3);
                if kind == PassKind::Resync {
                    (0..slots).for_each(|slot| change_superblock(&rig, slot, |own| own.resync_offset = 0));
                }
                let slow_down = |rig: &Rig| {
                    let hang = Effect::Hang(Duration::from_millis(10));
                    for disk in &rig.judge.disks[..usize::from(slots)] {
                        (0..40)
                            .for_each(|n| disk.add_fault(Fault { victim: Target::Reads, after: n * 2, effect: hang }));
                    }
                };
                if kind == PassKind::Resync {
                    slow_down(&rig);
                }
                let live = open_with(&mut rig, &[], &Config { pass_window: Sectors(2), ..Config::default() });
                let filled = (kind == PassKind::Recovery).then(|| fill(&rig, &live));
                if kind == PassKind::Recovery {
                    slow_down(&rig);
                }
                if kind == PassKind::Recovery {
                    fail(&rig, &live, 0);
                }
                sleep(&rig, &live, Duration::from_millis(step * 7));
                assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)], "{case}");
                let done = live.arrays[0].status().pass;
                let is_half_way = done.is_some_and(|done| !done.done.is_zero() && done.done < done.total);
                *half_way.entry(format!("{kind:?}")).or_insert(0) += u32::from(is_half_way);
                let written = count_writes(&rig);
                sleep(&rig, &live, Duration::from_secs(30));
                assert_eq!(live.arrays[0].status().pass, done, "{case}");
                let content = content_of(&rig, &live);
                assert!(filled.is_none_or(|filled| filled == content), "{case}");
                assert_eq!(written.get(), 0, "{case}");
                let plan = if kind == PassKind::Resync { *plan_now(&mut rig) } else { assembled_anywhere(&rig) };
                if let Some(done) = done.filter(|_| kind == PassKind::Resync) {
                    assert_eq!((plan.is_dirty, plan.template.resync_offset), (true, done.done.0), "{case}");
                } else {
                    assert!(!plan.is_dirty, "{case}");
                }
                assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Ok(true)], "{case}");
                wait(&rig, &live);
                assert_eq!(live.arrays[0].status().pass, None, "{case}");
                assert!(content_of(&rig, &live) == content, "{case}");
                if kind == PassKind::Recovery {
                    assert_eq!(live.arrays[0].status().usable, SlotSet::first(slots), "{case}");
                }
                assert_eq!(rig.stop(&live), Ok(true), "{case}");
                assert!(!assembled_anywhere(&rig).is_dirty, "{case}");
                rig.power_off();
            }
        }
    }
    assert!(half_way.len() == 2 && half_way.values().all(|count| *count > 5), "{half_way:?}");
}

/// Read-only and writable again while a pass has not noticed yet, a check among them.
#[test]
fn an_array_may_be_read_only_for_a_moment() {
    for (level, layout, slots) in CASES {
        for step in 0..12 {
            let case = format!("raid{level} {layout:#x} of {slots}, step {step}");
            let mut rig = rig_with_spare(level, layout, slots, 3);
            let live = open_with(&mut rig, &[], &Config { pass_window: Sectors(2), ..Config::default() });
            let content = fill(&rig, &live);
            if step % 2 == 0 {
                fail(&rig, &live, 1)
            } else {
                live.arrays[0].begin_check().expect("it begins")
            }
            sleep(&rig, &live, Duration::from_micros(step * 150));
            for _ in 0..4 {
                let (making, opening) = (become_read_only(&live), become_writable(&live));
                all(
                    &rig,
                    &live,
                    vec![async move {
                        assert_eq!((making.await, opening.await), (Ok(true), Ok(true)));
                    }],
                );
            }
            wait(&rig, &live);
            assert!(content_of(&rig, &live) == content, "{case}");
            assert_eq!(live.arrays[0].status().usable, SlotSet::first(slots), "{case}");
            assert_eq!(rig.stop(&live), Ok(true), "{case}");
            rig.power_off();
        }
    }
}

#[test]
fn a_stop_of_a_read_only_array_writes_nothing() {
    for (level, layout, slots) in CASES {
        for fails in [false, true] {
            let case = format!("raid{level} {layout:#x} of {slots}, a member fails: {fails}");
            let mut rig = rig_with_spare(level, layout, slots, 3);
            let live = start(&mut rig, &[]);
            let content = fill(&rig, &live);
            assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)], "{case}");
            let written = count_writes(&rig);
            let array = live.arrays[0].clone();
            let failing = async move { array.fail(SlotSet::EMPTY.with(Slot(0))).await };
            assert_eq!(all(&rig, &live, vec![failing]), [Err(FailError::ReadOnly)], "{case}");
            if fails {
                let gone = Effect::ErrorsFromNow(ErrorKind::Gone);
                rig.disk(1).add_fault(Fault { victim: Target::Reads, after: 0, effect: gone });
                assert!(content_of(&rig, &live) == content, "{case}");
            }
            assert_eq!(rig.stop(&live), Ok(true), "{case}");
            assert_eq!(written.get(), 0, "{case}");
            assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Err(AccessError::NotOpen)], "{case}");
            assert_settled(&mut rig, slots.into(), &case);
            rig.power_off();
        }
    }
}

#[test]
fn an_array_that_is_frozen_or_was_started_read_only_stays_so() {
    let mut rig = rig(5, 3, false);
    let live = start_with(&mut rig, &[], &Config { read_only: true, ..Config::default() });
    let refused = Err(AccessError::OpenedReadOnly);
    assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [refused]);
    assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [refused]);
    rig.power_off();

    let mut rig = self::rig(5, 3, false);
    let live = start(&mut rig, &[]);
    rig.disk(1).add_fault(Fault {
        victim: Target::Writes,
        after: 0,
        effect: Effect::ErrorsFromNow(ErrorKind::NoSpace),
    });
    assert!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)])[0].is_err());
    let is_frozen = |answer: &Result<bool, AccessError>| matches!(answer, Err(AccessError::Frozen(_)));
    assert!(is_frozen(&all(&rig, &live, vec![become_writable(&live)])[0]));
    assert!(is_frozen(&all(&rig, &live, vec![become_read_only(&live)])[0]));
    assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace));
    rig.power_off();
}

/// The array is not read-only, and frozen as after any lost flush.
#[test]
fn a_flush_that_is_lost_on_the_way_freezes_the_array() {
    let mut rig = rig(5, 3, false);
    rig.judge.is_over_budget.set(true);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
    for slot in 0..2 {
        let effect = Effect::Error(ErrorKind::Media);
        rig.disk(slot).add_fault(Fault { victim: Target::Flushes, after: 0, effect });
    }
    let answers = all(&rig, &live, vec![become_read_only(&live)]);
    assert!(matches!(answers[0], Err(AccessError::Frozen(_))), "{answers:?}");
    let status = live.arrays[0].status();
    assert!(matches!(status.gate, Gate::Frozen(_)) && status.is_dirty, "{status:?}");
    rig.power_off();
}

/// A member fails its flush on the way: the others record that, and the array is read-only without it.
#[test]
fn a_member_that_fails_on_the_way_is_recorded_first() {
    for (level, slots) in [(1, 2), (5, 3), (6, 4), (10, 4)] {
        for victim in [Target::Flushes, Target::SuperWrites] {
            let case = format!("raid{level}, {victim:?}");
            let mut rig = rig(level, slots, false);
            let live = start(&mut rig, &[]);
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 1)]), [Ok(())]);
            rig.judge.lost.borrow_mut().insert(0);
            rig.disk(0).add_fault(Fault { victim, after: 0, effect: Effect::ErrorsFromNow(ErrorKind::Media) });
            assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)], "{case}");
            let plan = plan_now(&mut rig);
            assert_eq!((in_slots(&plan), plan.is_dirty), (usize::from(slots) - 1, false), "{case}");
            rig.power_off();
        }
    }
}

#[test]
fn a_level_without_redundancy_becomes_read_only() {
    let mut rig = rig(0, 3, false);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 2)]), [Ok(())]);
    assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)]);
    let written = count_writes(&rig);
    assert_refused(&rig, &live, "raid0");
    assert_eq!(written.get(), 0);
    assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Ok(true)]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 4, 3)]), [Ok(())]);
    assert_eq!(rig.stop(&live), Ok(true));
    rig.power_off();
}

/// Bits that no write needs any more are cleared when the array takes writes again, and not before.
#[test]
fn no_bit_is_cleared_and_no_log_written_while_the_array_is_read_only() {
    for (level, slots) in [(1, 2), (5, 3), (6, 4)] {
        for step in 0..20 {
            let case = format!("raid{level}, step {step}");
            let mut rig = bits::rig_with_bits(level, slots, 0, 3);
            let live = start_with(&mut rig, &[], &bits::config());
            let content = fill(&rig, &live);
            sleep(&rig, &live, Duration::from_millis(step * 200));
            assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)], "{case}");
            let written = count_writes(&rig);
            let dirty = |live: &Live| live.arrays[0].status().bitmap.expect("it has one").dirty;
            let before = dirty(&live);
            sleep(&rig, &live, Duration::from_secs(20));
            assert_eq!((written.get(), dirty(&live)), (0, before), "{case}");
            assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Ok(true)], "{case}");
            sleep(&rig, &live, Duration::from_secs(20));
            assert_eq!(dirty(&live), 0, "{case}");
            assert!(content_of(&rig, &live) == content, "{case}");
            assert_eq!(rig.stop(&live), Ok(true), "{case}");
            rig.power_off();
        }
    }
    let mut rig = ppl::rig_with_ppl(2, 4, 3, 0, 5);
    let live = start(&mut rig, &[]);
    let content = fill(&rig, &live);
    assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)]);
    let written = count_writes_besides(&rig, None);
    assert_refused(&rig, &live, "a partial parity log");
    sleep(&rig, &live, Duration::from_secs(20));
    assert!(content_of(&rig, &live) == content && written.get() == 0, "{} writes", written.get());
    assert_eq!(all(&rig, &live, vec![become_writable(&live)]), [Ok(true)]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 5, 77)]), [Ok(())]);
    assert!(written.get() > 0 && rig.stop(&live) == Ok(true));
    rig.power_off();
}

/// A raid0 has no superblock that says so: the flush alone makes what was answered durable.
#[test]
fn an_array_without_redundancy_is_read_only_when_all_that_was_answered_is_durable() {
    for slots in [2, 3] {
        let member_sizes = vec![10; usize::from(slots)];
        let shape = Shape { level: 0, layout: 0, chunk: 2, slots, size: 8, member_sizes };
        let mut rng = Rng::new(11);
        let executor = Executor::new(rng.fork(), false);
        let mut rig = Rig::new(executor, rng, Rc::new(Setup::plain(shape)), Rc::new(RefCell::new(Tally::default())));
        let live = start_with(&mut rig, &[], &Config::default());
        let size = rig.judge.model.array_size();
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        assert_eq!(all(&rig, &live, vec![become_read_only(&live)]), [Ok(true)]);
        for disk in &rig.judge.disks {
            assert!(disk.medium().durable() == disk.medium().current(), "{slots} members");
        }
        rig.power_off();
    }
}
