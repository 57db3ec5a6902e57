//! Computes the simulator's figures within a given time.
//! Owns: [`Figures`], `prove`. Not here: other kinds of proof (crash images, layouts, the black box).
//! Invariant: every figure is counted in this run.

use crate::proof::fleet::{Sum, run_seeds_while};
use crate::scenario::Options;
use std::time::{Duration, Instant};

/// Figures of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The sum of all seeds.
    pub sum: Sum,
    /// Bugs of the museum that were found.
    pub museum_found: usize,
    /// Bugs in the museum.
    pub museum_total: usize,
}

impl Figures {
    /// One JSON object.
    pub fn json(&self) -> String {
        let sum = &self.sum;
        let (operations, faults) = sum.least.unwrap_or_default();
        format!(
            "{{\"seeds\": {}, \"seeds_full\": {}, \"simulated_seconds\": {}, \"operations\": {}, \"operations_least\": {operations}, \
             \"faults\": {}, \"faults_least\": {faults}, \"violations\": {}, \"marks_hit\": {}, \"marks_total\": {}, \
             \"museum_found\": {}, \"museum_total\": {}}}",
            sum.seeds,
            sum.full,
            sum.time / 1_000_000_000,
            sum.tally.operations,
            sum.tally.faults,
            sum.failures.len(),
            sum.marks_hit(),
            sum.marks.len(),
            self.museum_found,
            self.museum_total
        )
    }

    /// Whether no seed has a finding, and every bug of the museum was found.
    pub fn is_good(&self) -> bool {
        self.sum.failures.is_empty() && self.museum_found == self.museum_total
    }
}

/// Runs long seeds from 0 on until the time is over.
pub fn swarm(time: Duration, threads: usize) -> Sum {
    let end = Instant::now() + time;
    let options = Options { is_long: true, ..Options::default() };
    run_seeds_while(0..u64::MAX, threads, options, || {}, || Instant::now() < end)
}

/// Runs the swarm for this time, then the museum. `say` receives lines of progress.
#[cfg(feature = "sabotage")]
pub fn prove(time: Duration, threads: usize, say: impl Fn(&str)) -> Figures {
    use crate::proof::museum::{ENTRIES, hunt};
    let sum = swarm(time, threads);
    say(&format!("{}{sum}\n{}", sum.report(), sum.marks_report()));
    let mut museum_found = 0;
    for entry in &ENTRIES {
        let began = Instant::now();
        match hunt(entry) {
            Some(find) => {
                museum_found += 1;
                let seconds = began.elapsed().as_secs_f32();
                say(&format!("museum {}: seed {} after {seconds:.1} s: {}", entry.id, find.seed, find.found));
            }
            None => say(&format!("museum {}: NOT FOUND", entry.id)),
        }
    }
    Figures { sum, museum_found, museum_total: ENTRIES.len() }
}
