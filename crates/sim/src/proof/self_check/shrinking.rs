//! Findings of seeds shrink to small runs that still have the finding.
//! Owns: several mistakes, each from the seed that finds it to the tape that reproduces it. Not here: how (`shrink`).

use super::Tell;
use crate::proof::shrink::{checker, shrink};
use crate::scenario::{Options, Source, run_recorded, run_seed};
use std::time::Duration;
use uraid_engine::canary::set;

/// The most client operations and faults in a shrunk run. The first 12 seeds that find each mistake end at 1 to 7
/// operations.
const OPERATIONS_MAX: u64 = 15;
const FAULTS_MAX: u64 = 3;

/// A skipped flush, an unrecorded failure, skipped parity.
const MISTAKES: [&str; 3] = ["SkipFlush", "SkipRecord", "SkipParity"];

pub(super) fn run(tell: Tell<'_>) {
    for mistake in MISTAKES {
        let shrunk = shrinks(mistake);
        set(None);
        tell(match shrunk {
            Ok(how) => Ok(format!("{mistake}: {how}")),
            Err(why) => Err(format!("{mistake}: {why}")),
        });
    }
}

fn shrinks(mistake: &str) -> Result<String, String> {
    set(Some(mistake));
    let options = Options::default();
    let seed = (0..200).find(|seed| run_seed(*seed, options).failure.is_some()).ok_or("no seed of 200 finds it")?;
    let small = shrink(Source::Seed(seed), options, Duration::from_secs(60)).ok_or("it does not fail again")?;
    let (again, used) = run_recorded(Source::Tape(small.tape.clone()), options);
    let found = small.outcome.failure.ok_or("what is left does not fail")?;
    let tally = small.outcome.tally;
    let how = format!(
        "seed {seed}, {} runs: {} client operations, {} faults, {} choices: {}",
        small.runs,
        tally.operations,
        tally.faults,
        small.tape.choices(),
        found.lines().next().unwrap_or_default()
    );
    set(None);
    let (right, _) = run_recorded(Source::Tape(small.tape.clone()), options);
    let holds = [
        (again.hash == small.outcome.hash, "its tape is not a whole run"),
        (used == small.tape, "its tape does not record itself"),
        (again.failure.map(|text| checker(&text)) == Some(checker(&found)), "its tape is found by another checker"),
        (tally.operations <= OPERATIONS_MAX, "too many client operations are left"),
        (tally.faults <= FAULTS_MAX, "too many faults are left"),
        (right.failure.is_none(), "without the mistake something is found"),
    ];
    let wrong: Vec<&str> = holds.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect();
    if wrong.is_empty() { Ok(how) } else { Err(wrong.join("; ")) }
}
