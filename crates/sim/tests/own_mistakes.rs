//! Past mistakes of this engine, each as the shortest run that shows it.
//! Owns: those that seeds have found. Not here: deliberate mistakes (`canaries`), bugs of others (`museum`), partial
//! superblock rounds (`rounds`, which also has the start that was interrupted twice and left all members but one stale).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{ErrorKind, Slot, SlotSet};
use uraid_engine::Config;
use uraid_sim::machine::executor::Executor;
use uraid_sim::machine::member::{Effect, Fault, Target};
use uraid_sim::random::rng::Rng;
use uraid_sim::reference::model::Shape;
use uraid_sim::rig::tally::Tally;
use uraid_sim::rig::{Live, Rig};
use uraid_sim::setup::Setup;

fn rig(level: i32, slots: u16, rows: u64, starts_dirty: bool, seed: u64) -> Rig {
    let layout = if level == 1 { 0 } else { 2 };
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: 2 * rows, member_sizes: Vec::new() };
    let mut rng = Rng::new(seed);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { starts_dirty, shards: 2, mail_delay_max: 50_000, ..Setup::plain(shape) };
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

fn start(rig: &mut Rig, away: &BTreeSet<u16>) -> Live {
    let plan = rig.assemble(away).expect("legal").expect("it starts");
    rig.prepare_oracle(&plan, &BTreeSet::new());
    let live = rig.boot(&plan, &Config::default()).expect("sizes agree");
    let started = live.started.clone();
    let end = rig.executor.now() + Duration::from_secs(60);
    let ended = rig.executor.run(1_000_000, end, || started.get().is_some());
    rig.judge_end(ended, &live, false).expect("no violation");
    assert_eq!(started.get(), Some(true));
    live
}

fn stop_and_check(rig: &mut Rig, live: &Live) {
    assert!(rig.stop(live).expect("no violation"), "clean");
    rig.close(live).expect("all is as it should be");
    rig.power_off();
}

/// One unreadable sector made the resync skip every row of its window, and the array was marked clean anyway.
#[test]
fn an_unreadable_sector_leaves_no_row_with_wrong_parity_behind() {
    for (level, slots) in [(5, 4), (6, 5)] {
        for victim in 0..slots {
            for sector in 0..6 {
                let mut rig = rig(level, slots, 3, true, u64::from(victim));
                rig.disk(victim).add_latent([16 + sector]);
                let live = start(&mut rig, &BTreeSet::new());
                stop_and_check(&mut rig, &live);
            }
        }
    }
}

/// The same in a forced array that lacks a member: what can be computed is computed, and an unreadable Q is written.
#[test]
fn a_forced_degraded_start_writes_the_parity_that_it_could_not_read() {
    for away in 0..5u16 {
        for victim in (0..5).filter(|victim| *victim != away) {
            let mut rig = rig(6, 5, 5, true, 3);
            rig.disk(victim).add_latent([16, 19, 24]);
            let live = start(&mut rig, &BTreeSet::from([away]));
            stop_and_check(&mut rig, &live);
        }
    }
}

/// A member was failed by command while the array stopped: superblocks were written after the stop had been answered.
#[test]
fn nothing_is_written_after_a_stop_was_answered() {
    for seed in 0..200 {
        let mut rig = rig(5, 4, 3, false, seed);
        let live = start(&mut rig, &BTreeSet::new());
        let (stopper, _) = rig.begin_stop(&live, Duration::from_micros(rig.executor.random(|rng| rng.below(60))));
        let (array, executor) = (live.arrays[0].clone(), rig.executor.clone());
        let wait = Duration::from_micros(rig.executor.random(|rng| rng.below(120)));
        rig.judge.lost.borrow_mut().insert(1);
        let operator = rig.executor.spawn(0, "operator", async move {
            executor.sleep(wait).await;
            let _ = array.fail(SlotSet::EMPTY.with(Slot(1))).await;
        });
        rig.wait_for(&live, stopper).expect("no violation");
        rig.wait_for(&live, operator).expect("no violation");
        rig.close(&live).expect("all is as it should be");
        rig.power_off();
    }
}

/// A stop during a resync ends the resync, and nothing is written afterwards.
#[test]
fn a_stop_ends_a_resync() {
    for seed in 0..100 {
        let mut rig = rig(5, 4, 20, true, seed);
        rig.setup = Rc::new(Setup { stops_while_starting: true, ..(*rig.setup).clone() });
        let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
        rig.prepare_oracle(&plan, &BTreeSet::new());
        let live = rig.boot(&plan, &Config::default()).expect("sizes agree");
        let wait = Duration::from_micros(rig.executor.random(|rng| rng.below(400)));
        let (stopper, _) = rig.begin_stop(&live, wait);
        rig.wait_for(&live, stopper).expect("no violation");
        let executor = rig.executor.clone();
        let end = rig.executor.now() + Duration::from_secs(5);
        let ended = rig.executor.run(1_000_000, end, || executor.tasks() == 0);
        rig.judge_end(ended, &live, false).expect("no violation");
        rig.power_off();
    }
}

/// A stop overwrote the freeze that a failed write had just caused, and the write was answered with success.
#[test]
fn a_failed_write_is_not_answered_with_success_during_a_stop() {
    for seed in 0..600 {
        let mut rig = rig(5, 4, 3, false, seed);
        let live = start(&mut rig, &BTreeSet::from([3]));
        rig.judge.is_over_budget.set(true);
        let after = rig.executor.random(|rng| rng.below(12));
        let effect = Effect::ErrorsFromNow(ErrorKind::Media);
        rig.disk(0).add_fault(Fault { victim: Target::Writes, after, effect });
        for shard in 0..2 {
            let client = live.client(shard, rig.rng.fork());
            rig.executor.spawn(shard, "client", client.run(20));
        }
        let wait = Duration::from_micros(rig.executor.random(|rng| rng.below(1500)));
        let (stopper, is_clean) = rig.begin_stop(&live, wait);
        rig.wait_for(&live, stopper).expect("no violation");
        if !is_clean.get() {
            rig.judge.is_over_budget.set(false);
            rig.crash(live).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        }
        rig.power_off();
    }
}

/// Members had each lost a different sector of one row or copy: the request failed, although every sector was
/// available.
#[test]
fn sectors_that_different_members_lost_are_recovered_separately() {
    for (level, slots) in [(1, 2), (5, 4), (6, 5)] {
        for seed in 0..10 {
            let mut rig = rig(level, slots, 3, false, seed);
            let live = start(&mut rig, &BTreeSet::new());
            for disk in 0..2 {
                rig.disk(disk).add_latent([16 + u64::from(disk), 19 - u64::from(disk)]);
            }
            if level == 6 {
                rig.disk(2).add_latent([16, 18]);
            }
            rig.read_all(&live).unwrap_or_else(|found| panic!("level {level}, seed {seed}: {found}"));
            let client = live.client(1, rig.rng.fork());
            let task = rig.executor.spawn(1, "client", client.run(30));
            rig.wait_for(&live, task).unwrap_or_else(|found| panic!("level {level}, seed {seed}: {found}"));
            stop_and_check(&mut rig, &live);
        }
    }
}

/// Three copies: one on a member that is away, one unreadable, and the third in a run of two sectors of which only the
/// other one is unreadable. The run's error was taken for both sectors, and the read failed although the copy was
/// there.
#[test]
fn an_error_of_a_run_is_not_taken_for_all_its_sectors() {
    for sector in 16..24 {
        let shape = Shape { level: 10, layout: 0x1_0301, chunk: 1, slots: 7, size: 10, member_sizes: Vec::new() };
        let mut rng = Rng::new(sector);
        let executor = Executor::new(rng.fork(), false);
        let setup = Rc::new(Setup { shards: 2, mail_delay_max: 50_000, ..Setup::plain(shape) });
        let mut rig = Rig::new(executor, rng, setup, Rc::new(RefCell::new(Tally::default())));
        let live = start(&mut rig, &BTreeSet::from([1]));
        rig.disk(0).add_latent([sector]);
        rig.disk(2).add_latent([sector + 1]);
        rig.read_all(&live).unwrap_or_else(|found| panic!("sector {sector}: {found}"));
        stop_and_check(&mut rig, &live);
    }
}
