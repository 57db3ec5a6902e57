//! What a seed finds becomes small, and stays found. Run with `--features sabotage`.
//! Owns: a few mistakes, each from the seed that finds it to the tape that shows it.

use std::time::Duration;
use uraid_engine::sabotage::{Sabotage, set};
use uraid_sim::scenario::{Options, Source, run_recorded, run_seed};
use uraid_sim::shrink::{checker, shrink};

/// Client operations and faults that a small run has at most. A missing flush needs the most: 25.
const OPERATIONS_MAX: u64 = 30;
const FAULTS_MAX: u64 = 3;

fn becomes_small(mistake: Sabotage) {
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
fn a_flush_that_no_member_saw_becomes_small() {
    becomes_small(Sabotage::SkipFlush);
}

#[test]
fn a_failure_that_was_not_recorded_becomes_small() {
    becomes_small(Sabotage::SkipRecord);
}

#[test]
fn parity_that_was_left_as_it_was_becomes_small() {
    becomes_small(Sabotage::SkipParity);
}
