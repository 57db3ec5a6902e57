//! Requests to parts of an array that its resync has not reached.
//! Owns: which data outlives the loss of a member there. Not here: the resync itself (`ends`, `own_mistakes`).

use super::*;
use uraid_layout::{Layout, Row};

const ROW: u64 = 1;

/// A dirty array whose resync does not come on, because one member of the row that is tested answers no read for ten
/// seconds: P, or Q if a member is missing. `lost`: which data blocks of the row are missing from the start.
fn held(level: i32, slots: u16, lost: Option<usize>) -> (Rig, Live, Vec<Slot>) {
    let mut rig = rig(level, slots, true);
    rig.judge.is_over_budget.set(true);
    let map = {
        let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
        let Layout::Parity(layout) = plan.layout else { panic!("raid{level} has parity") };
        layout.row(Row(ROW))
    };
    let held = map.syndrome.filter(|_| lost.is_some()).unwrap_or(map.parity);
    let hang = Effect::Hang(Duration::from_secs(10));
    (0..64).for_each(|_| rig.disk(held.0).add_fault(Fault { victim: Target::Reads, after: 0, effect: hang }));
    let away: Vec<u16> = lost.iter().map(|data| map.data[*data].0).collect();
    // The pass arena has room for one window, which is row 0.
    let config = Config { pass_window: Sectors(2), ..Config::default() };
    let live = open_with(&mut rig, &away, &config);
    (rig, live, map.data.to_vec())
}

/// The members hold anything, so all parity is wrong. A write that modified it would leave the new data to be computed
/// from wrong parity when its member is lost.
#[test]
fn what_is_written_before_the_resync_outlives_the_loss_of_its_member() {
    for (level, slots, lost) in [(5, 4, None), (5, 5, None), (6, 6, None), (6, 6, Some(0)), (6, 6, Some(2))] {
        let data_blocks = usize::from(slots) - if level == 6 { 2 } else { 1 };
        for target in (0..data_blocks).filter(|target| Some(*target) != lost) {
            let (rig, live, slots_of_data) = held(level, slots, lost);
            let case = format!("raid{level} of {slots}, without {lost:?}, data block {target}");
            let layout = live.arrays[0].layout();
            let Layout::Parity(layout) = &*layout else { panic!("it has parity") };
            let at = ROW * layout.stripe().0 + target as u64 * layout.chunk().0;
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, 1, 7)]), [Ok(())], "{case}");
            let status = live.arrays[0].status();
            assert!(status.pass.is_some_and(|progress| progress.done.is_zero()), "{case}: {status:?}");
            let victim = SlotSet::EMPTY.with(slots_of_data[target]);
            let failing = live.arrays[0].clone();
            assert_eq!(all(&rig, &live, vec![async move { failing.fail(victim).await }]), [Ok(())], "{case}");
            let found = all(&rig, &live, vec![read(&live, at, 1)]);
            assert!(found == [Ok(vec![7; 512])], "{case}");
            rig.power_off();
        }
    }
}

/// A stop in the middle of a resync says in the superblocks how far it has come, and the next start goes on there.
#[test]
fn a_resync_goes_on_where_a_stop_has_ended_it() {
    for (level, slots) in [(1, 2), (5, 3), (6, 4), (10, 4)] {
        let mut rig = rig(level, slots, true);
        rig.judge.is_over_budget.set(true);
        // The first two windows are read. The others wait until the stop has closed the gate.
        let hang = Effect::Hang(Duration::from_secs(1));
        (0..64).for_each(|_| rig.disk(0).add_fault(Fault { victim: Target::Reads, after: 2, effect: hang }));
        let config = Config { pass_window: Sectors(1), ..Config::default() };
        let live = open_with(&mut rig, &[], &config);
        let stopping = live.arrays[0].clone();
        let pause = rig.executor.clone();
        let stop = async move {
            pause.sleep(Duration::from_millis(10)).await;
            stopping.stop().await
        };
        assert_eq!(all(&rig, &live, vec![stop]), [Ok(())], "raid{level}");
        let left = live.arrays[0].status().pass.unwrap_or_else(|| panic!("raid{level}: the resync has ended"));
        let plan = plan_now(&mut rig);
        assert_eq!(plan.template.resync_offset, left.done.0, "raid{level}");
        assert!(plan.is_dirty && left.done > Sectors(0) && left.done < left.total, "raid{level}: {left:?}");
        rig.power_off();
    }
}

/// ```text
///   raid6, D2 missing      a write of D0 and D1 holds the row, a window of the resync waits for it
///                          D1's member is full: the array freezes, and the row is torn: D0, P, Q new, D1 old
/// ```
/// The window must not take the row for a whole one: it would compute another D2 from P and the old D1, and write the Q
/// of that.
#[test]
fn a_window_that_waited_for_a_row_leaves_it_alone_if_it_is_torn() {
    let shape = Shape { level: 6, layout: 2, chunk: 2, slots: 5, size: 40, member_sizes: Vec::new() };
    let mut rng = Rng::new(7);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { pool_factor: 2, ..Setup::plain(shape) };
    let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.is_over_budget.set(true);
    // All is zero, so the resync has nothing to correct.
    (0..5).for_each(|slot| change_superblock(&rig, slot, |superblock| superblock.resync_offset = 0));
    let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
    let Layout::Parity(layout) = plan.layout else { panic!("it has parity") };
    // Behind those that the first windows take.
    let row = Row(15);
    let map = layout.row(row);
    let live = open_with(&mut rig, &[map.data[2].0], &Config { pass_window: layout.chunk(), ..Config::default() });
    let full = Effect::ErrorsFromNow(ErrorKind::NoSpace);
    rig.disk(map.data[1].0).add_fault(Fault { victim: Target::Writes, after: 0, effect: full });
    let slow = Effect::Hang(Duration::from_secs(2));
    rig.disk(map.data[0].0).add_fault(Fault { victim: Target::Writes, after: 0, effect: slow });
    let (at, chunk) = (row.0 * layout.stripe().0, layout.chunk().0);
    let answers = all(&rig, &live, vec![write(&rig, &live, at, 2 * chunk, 7)]);
    assert_eq!(answers[0].as_ref().map_err(|error| error.kind), Err(ErrorKind::NoSpace));
    let pause = rig.executor.clone();
    all(&rig, &live, vec![async move { pause.sleep(Duration::from_secs(5)).await }]);
    let lost = all(&rig, &live, vec![read(&live, at + 2 * chunk, chunk)]);
    assert!(lost == [Ok(vec![0; 2 * 512])], "the data of the missing member has changed");
    rig.power_off();
}

/// An idle array records how far its resync has come. Everything below that sector was flushed before, so power may
/// fail right after the record.
#[test]
fn what_an_idle_array_records_of_its_resync_survives_a_power_cut() {
    for (level, slots) in [(1, 2), (5, 3), (6, 4)] {
        let mut rig = rig(level, slots, true);
        // The resync stands still twice: the array becomes idle in the first pause, and records more in the second.
        for after in [2, 4] {
            let pause = Effect::Hang(Duration::from_secs(1));
            rig.disk(0).add_fault(Fault { victim: Target::Reads, after, effect: pause });
        }
        let live = open_with(&mut rig, &[], &Config { pass_window: Sectors(1), ..Config::default() });
        let mut recorded = Vec::new();
        for millis in [900, 800] {
            let pause = rig.executor.clone();
            all(&rig, &live, vec![async move { pause.sleep(Duration::from_millis(millis)).await }]);
            for _ in 0..20 {
                let images = rig.judge.images(&mut rig.rng);
                let Ok(Assembled::Plan(plan)) = rig.judge.assemble(&images, AssembleMode::Plain) else {
                    panic!("raid{level} cannot be assembled")
                };
                rig.judge.check_redundancy_below(&images, &plan).unwrap_or_else(|found| panic!("raid{level}: {found}"));
                recorded.push(plan.template.resync_offset);
            }
        }
        recorded.dedup();
        assert!(recorded.len() == 2 && recorded[0] < recorded[1], "raid{level}: {recorded:?}");
        rig.power_off();
    }
}
