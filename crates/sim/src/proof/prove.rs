//! Computes the simulator's figures within a given time.
//! Owns: [`json`], [`swarm`]. Not here: other kinds of proof (museum, crash images, layouts, the black box).
//! Invariant: every figure is counted in this run.

use crate::proof::fleet::{Sum, run_seeds_while};
use crate::scenario::Options;
use std::time::{Duration, Instant};

/// The figures of one run, as one JSON object.
pub fn json(sum: &Sum) -> String {
    let (operations, faults) = sum.least.unwrap_or_default();
    format!(
        "{{\"seeds\": {}, \"seeds_full\": {}, \"simulated_seconds\": {}, \"operations\": {}, \"operations_least\": {operations}, \
         \"faults\": {}, \"faults_least\": {faults}, \"violations\": {}, \"marks_hit\": {}, \"marks_total\": {}}}",
        sum.seeds,
        sum.full,
        sum.time / 1_000_000_000,
        sum.tally.operations,
        sum.tally.faults,
        sum.failures.len(),
        sum.marks_hit(),
        sum.marks.len(),
    )
}

/// Runs long seeds from 0 on until the time is over.
pub fn swarm(time: Duration, threads: usize) -> Sum {
    let end = Instant::now() + time;
    let options = Options { is_long: true, ..Options::default() };
    run_seeds_while(0..u64::MAX, threads, options, || {}, || Instant::now() < end)
}
