//! `uraid-sim`: runs seeds and says what they found.
//! Owns: its few options. Not here: anything that a seed does.
//! Invariant: every failure is printed with the command that shows it again.

use std::collections::BTreeMap;
use std::process::ExitCode;
use uraid_sim::scenario::{Options, Outcome, run_seed};

const USAGE: &str = "usage: uraid-sim --seed N [--verbose] | --seeds A..B [--hashes]";

struct Wanted {
    seeds: std::ops::Range<u64>,
    is_verbose: bool,
    prints_hashes: bool,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse() -> Option<Wanted> {
    let mut wanted = Wanted { seeds: 0..0, is_verbose: false, prints_hashes: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => {
                let seed = number(&arguments.next()?)?;
                wanted.seeds = seed..seed + 1;
            }
            "--seeds" => {
                let text = arguments.next()?;
                let (from, to) = text.split_once("..")?;
                wanted.seeds = number(from)?..number(to)?;
            }
            "--verbose" => wanted.is_verbose = true,
            "--hashes" => wanted.prints_hashes = true,
            _ => return None,
        }
    }
    (!wanted.seeds.is_empty()).then_some(wanted)
}

fn report(outcome: &Outcome) {
    if let Some(failure) = &outcome.failure {
        println!("seed {} ({}) FAILED: {failure}", outcome.seed, outcome.kind);
        println!("again: cargo run --release -p uraid-sim -- --seed {} --verbose\n", outcome.seed);
    }
}

fn main() -> ExitCode {
    let Some(wanted) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let options = Options { is_verbose: wanted.is_verbose, ..Options::default() };
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut failures = 0u64;
    for seed in wanted.seeds {
        let outcome = run_seed(seed, options);
        report(&outcome);
        failures += u64::from(outcome.failure.is_some());
        if wanted.prints_hashes {
            println!("{seed} {:016x} {}", outcome.hash, outcome.events);
        }
        *kinds.entry(outcome.kind).or_default() += 1;
    }
    println!("{failures} failed; {kinds:?}");
    if failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
