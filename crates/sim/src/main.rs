//! `uraid-sim`: runs seeds and says what they found.
//! Owns: its few options. Not here: anything that a seed does.
//! Invariant: every failure is printed with the command that shows it again.

use std::process::ExitCode;
use uraid_sim::fleet::run_seeds;
use uraid_sim::scenario::{Options, run_seed};

const USAGE: &str = "usage: uraid-sim --seed N [--verbose] | --seeds A..B [--threads N] [--hashes]";

struct Wanted {
    seeds: std::ops::Range<u64>,
    threads: usize,
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
    let mut wanted = Wanted { seeds: 0..0, threads: 2, is_verbose: false, prints_hashes: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => {
                let seed = number(&arguments.next()?)?;
                wanted.seeds = seed..seed.checked_add(1)?;
            }
            "--seeds" => {
                let text = arguments.next()?;
                let (from, to) = text.split_once("..")?;
                wanted.seeds = number(from)?..number(to)?;
            }
            "--threads" => wanted.threads = usize::try_from(number(&arguments.next()?)?).ok()?,
            "--verbose" => wanted.is_verbose = true,
            "--hashes" => wanted.prints_hashes = true,
            _ => return None,
        }
    }
    (!wanted.seeds.is_empty() && wanted.threads > 0).then_some(wanted)
}

fn main() -> ExitCode {
    let Some(wanted) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let options = Options { is_verbose: wanted.is_verbose, ..Options::default() };
    if wanted.prints_hashes {
        for seed in wanted.seeds {
            let outcome = run_seed(seed, options);
            println!("{seed} {:016x} {}", outcome.hash, outcome.events);
        }
        return ExitCode::SUCCESS;
    }
    let threads = if wanted.is_verbose { 1 } else { wanted.threads };
    let sum = run_seeds(wanted.seeds, threads, options, || {});
    print!("{}", sum.report());
    println!("{sum}");
    if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
