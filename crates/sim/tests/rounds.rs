//! Every partial round of superblock writes of four members, with the real engine and assembly.
//! Owns: the choice of arrays. Not here: the enumeration (`uraid_sim::proof::enumerator`).

use std::cell::RefCell;
use std::rc::Rc;
use uraid_sim::machine::executor::Executor;
use uraid_sim::proof::enumerator::Enumerator;
use uraid_sim::random::rng::Rng;
use uraid_sim::reference::model::Shape;
use uraid_sim::rig::Rig;
use uraid_sim::rig::tally::Tally;
use uraid_sim::setup::Setup;

fn check(level: i32, layout: u32, depth: u32, seed: u64) -> (u64, u64) {
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots: 4, size: 4, member_sizes: Vec::new() };
    let mut rng = Rng::new(seed);
    let executor = Executor::new(rng.fork(), false);
    let tally = Rc::new(RefCell::new(Tally::default()));
    let mut rig = Rig::new(executor, rng, Rc::new(Setup::plain(shape)), tally);
    let mut enumerator = Enumerator::new(depth);
    let result = enumerator.run_script(&mut rig, (seed % 4) as u16);
    let tail = rig.executor.trace_tail();
    rig.power_off();
    if let Err(found) = result {
        panic!("level {level}, seed {seed}: {found}\n{tail}");
    }
    (enumerator.images, enumerator.starts)
}

#[test]
fn every_partial_round_leaves_an_array_that_holds_what_was_flushed() {
    for (level, layout) in [(1, 0), (10, 0x102), (5, 2), (6, 2)] {
        for seed in 0..4 {
            let (images, _) = check(level, layout, 0, seed);
            println!("level {level}, seed {seed}: {images} images");
            assert!(images > 100, "{images}");
        }
    }
}

#[test]
fn every_partial_round_can_be_started_and_its_start_interrupted() {
    // With `URAID_SIM_LONG=1` the start after an interrupted start is interrupted everywhere as well: ten times the
    // work.
    let depth = if std::env::var_os("URAID_SIM_LONG").is_some() { 2 } else { 1 };
    for (level, layout) in [(1, 0), (10, 0x102), (5, 2), (6, 2)] {
        for seed in 0..4 {
            let (images, starts) = check(level, layout, depth, seed);
            println!("level {level}, seed {seed}: {images} images, {starts} starts");
            assert!(starts > 20, "{starts}");
        }
    }
}
