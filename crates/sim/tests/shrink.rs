//! Findings of seeds shrink to small runs that still have the finding.
//! Owns: several mistakes, each from the seed that finds it to the tape that reproduces it.

use std::time::Duration;
use uraid_engine::sabotage::{Sabotage, set};
use uraid_sim::scenario::{Options, Source, run_recorded, run_seed};
use uraid_sim::shrink::{checker, shrink};

/// The most client operations and faults in a shrunk run. A missing flush needs the most: 25 operations.
const OPERATIONS_MAX: u64 = 30;
const FAULTS_MAX: u64 = 3;

fn shrinks(mistake: Sabotage) {
    set(Some(mistake));
    let options = Options::default();
    let seed = (0..200).find(|seed| run_seed(*seed, options).failure.is_some()).expect("some seed finds it");
    let small = shrink(Source::Seed(seed), options, Duration::from_secs(60)).expect("it fails again");
    let (again, used) = run_recorded(Source::Tape(small.tape.clone()), options);
    let (found, tally) = (small.outcome.failure.expect("it still fails"), small.outcome.tally);
    println!(
        "{mistake:?}: seed {seed}, {} runs: {} client operations, {} faults, {} choices: {}",
        small.runs,
        tally.operations,
        tally.faults,
        small.tape.choices(),
        found.lines().next().unwrap_or_default()
    );
    assert_eq!(again.hash, small.outcome.hash, "a tape is a whole run");
    assert_eq!(used, small.tape, "a tape records itself");
    assert_eq!(again.failure.map(|text| checker(&text)), Some(checker(&found)));
    assert!(tally.operations <= OPERATIONS_MAX, "{} client operations are left", tally.operations);
    assert!(tally.faults <= FAULTS_MAX, "{} faults are left", tally.faults);
    set(None);
    let (right, _) = run_recorded(Source::Tape(small.tape), options);
    assert_eq!(right.failure, None, "without the mistake nothing is found");
}

#[test]
fn the_seed_of_a_skipped_flush_shrinks() {
    shrinks(Sabotage::SkipFlush);
}

#[test]
fn the_seed_of_an_unrecorded_failure_shrinks() {
    shrinks(Sabotage::SkipRecord);
}

#[test]
fn the_seed_of_skipped_parity_shrinks() {
    shrinks(Sabotage::SkipParity);
}
