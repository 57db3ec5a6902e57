//! `uraid-sim`: runs seeds and tapes, prints findings, and shrinks them.
//! Owns: its options. Not here: what a seed does.
//! Invariant: every failure is printed with the command that reproduces it.

use std::process::ExitCode;
use std::time::Duration;
use uraid_sim::proof::fleet::run_seeds;
use uraid_sim::proof::shrink::shrink;
use uraid_sim::random::tape::Tape;
use uraid_sim::scenario::{Options, Source, run_recorded, run_seed};

const USAGE: &str = "usage: uraid-sim --seed N | --seeds A..B | --tape FILE|TEXT
  --crash-images   exhaustive crash images of tiny arrays instead, with options of its own
  --self-check NAME  which rare branches of the engine are taken: marks, in a build with that feature; the engine makes
                   mistakes on purpose, and each must be found: canaries, museum or shrinking, by `cargo xtask canaries`
  --prove SECONDS  long seeds for that time; figures as one line of JSON; only in a build with the feature `marks`
  --swarm          long seeds: 1,000 client operations and 20 faults each
  --marks          say which rare branches of the engine were taken; only in a build with the feature `marks`
  --verbose        print every event
  --threads N      how many at a time (2)
  --hashes         print one line a seed: its number, trace hash and events
  --shrink         make the failing run of --seed or --tape small, and print it as a test
  --budget SECONDS for --shrink (60)
  --canary NAME    let the engine make this mistake; only in the build that `cargo xtask canaries` makes";

struct Arguments {
    seeds: std::ops::Range<u64>,
    tape: Option<Tape>,
    threads: usize,
    proves: Option<Duration>,
    is_verbose: bool,
    is_long: bool,
    prints_marks: bool,
    prints_hashes: bool,
    shrinks: bool,
    budget: Duration,
    canary: Option<String>,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn read_tape(text: &str) -> Result<Tape, String> {
    let text = match std::fs::read_to_string(text) {
        Ok(content) => content,
        Err(_) if text.contains('=') => text.to_string(),
        Err(error) => return Err(format!("{text}: {error}")),
    };
    Tape::parse(&text).map_err(|error| error.to_string())
}

fn parse() -> Result<Arguments, String> {
    let mut wanted = Arguments {
        seeds: 0..0,
        tape: None,
        threads: 2,
        proves: None,
        is_verbose: false,
        is_long: false,
        prints_marks: false,
        prints_hashes: false,
        shrinks: false,
        budget: Duration::from_secs(60),
        canary: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let is_no_number = |text: String| format!("{text} is no number");
        match argument.as_str() {
            "--seed" => {
                let text = value()?;
                let seed = number(&text).filter(|seed| *seed < u64::MAX).ok_or(is_no_number(text))?;
                wanted.seeds = seed..seed + 1;
            }
            "--seeds" => {
                let text = value()?;
                let range = text.split_once("..").and_then(|(from, to)| Some(number(from)?..number(to)?));
                wanted.seeds = range.ok_or(format!("{text} is no range, expected A..B"))?;
            }
            "--tape" => wanted.tape = Some(read_tape(&value()?)?),
            "--threads" => {
                let text = value()?;
                let threads = number(&text).filter(|threads| (1..=256).contains(threads));
                wanted.threads = threads.ok_or(is_no_number(text))? as usize;
            }
            "--budget" => {
                let text = value()?;
                wanted.budget = Duration::from_secs(number(&text).ok_or(is_no_number(text))?);
            }
            "--prove" => {
                let text = value()?;
                wanted.proves = Some(Duration::from_secs(number(&text).ok_or(is_no_number(text))?));
            }
            "--canary" => wanted.canary = Some(value()?),
            "--swarm" => wanted.is_long = true,
            "--marks" if !cfg!(feature = "marks") => {
                return Err("this build counts no marks; build it with `--features marks`".to_string());
            }
            "--marks" => wanted.prints_marks = true,
            "--verbose" => wanted.is_verbose = true,
            "--hashes" => wanted.prints_hashes = true,
            "--shrink" => wanted.shrinks = true,
            _ => return Err(format!("{argument} is no option")),
        }
    }
    let chosen = [wanted.tape.is_some(), !wanted.seeds.is_empty(), wanted.proves.is_some()];
    if chosen.iter().filter(|is_chosen| **is_chosen).count() != 1 {
        return Err("expected one of --seed, --seeds, --tape and --prove".to_string());
    }
    Ok(wanted)
}

#[cfg(feature = "canaries")]
fn canary(name: Option<&str>) -> Result<impl Fn() + Sync, String> {
    use uraid_engine::canary::{names, set};
    match name.filter(|name| names().all(|known| known != *name)) {
        Some(name) => Err(format!("{name} is no canary; there are {:?}", names().collect::<Vec<_>>())),
        None => Ok(move || set(name)),
    }
}

#[cfg(not(feature = "canaries"))]
fn canary(name: Option<&str>) -> Result<impl Fn() + Sync, String> {
    match name {
        None => Ok(|| {}),
        Some(_) => Err("this build has no canaries; `cargo xtask canaries` makes one".to_string()),
    }
}

#[cfg(feature = "marks")]
fn prove(time: Duration, threads: usize) -> ExitCode {
    // Panics are findings: do not print them.
    std::panic::set_hook(Box::new(|_| {}));
    let sum = uraid_sim::proof::prove::swarm(time, threads);
    println!("{}{sum}\n{}", sum.report(), sum.marks_report());
    println!("{}", uraid_sim::proof::prove::json(&sum));
    if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "marks"))]
fn prove(_: Duration, _: usize) -> ExitCode {
    eprintln!("uraid-sim: --prove needs a build with `--features marks`");
    ExitCode::from(2)
}

#[cfg(feature = "marks")]
fn self_check(name: &str) -> ExitCode {
    use std::cell::Cell;
    use uraid_sim::proof::self_check::ALL;
    let Some((_, check)) = ALL.iter().find(|(of, _)| *of == name) else {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("uraid-sim: {name} is no check of this build; there are {names:?}");
        return ExitCode::from(2);
    };
    // Panics are findings: do not print them.
    std::panic::set_hook(Box::new(|_| {}));
    let (passed, failed) = (Cell::new(0), Cell::new(0));
    check(&|result| match result {
        Ok(found) => {
            passed.set(passed.get() + 1);
            println!("{found}");
        }
        Err(missing) => {
            failed.set(failed.get() + 1);
            println!("FAILED: {missing}");
        }
    });
    println!("checks: {} passed, {} failed", passed.get(), failed.get());
    if failed.get() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "marks"))]
fn self_check(_: &str) -> ExitCode {
    eprintln!("uraid-sim: --self-check needs a build with `--features marks`, or that of `cargo xtask canaries`");
    ExitCode::from(2)
}

/// Shrinks a failing run and prints it as a test.
fn print_shrunk(source: Source, options: Options, budget: Duration) -> ExitCode {
    // Panics are findings: do not print thousands of them.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(small) = shrink(source, options, budget) else {
        println!("nothing is found, so there is nothing to make small");
        return ExitCode::FAILURE;
    };
    let tally = small.outcome.tally;
    println!(
        "{} client operations, {} faults, {} choices, after {} runs",
        tally.operations,
        tally.faults,
        small.tape.choices(),
        small.runs
    );
    println!("{}", small.as_test("what_it_shows"));
    println!("again: uraid-sim --tape '{}' --verbose", small.tape);
    ExitCode::SUCCESS
}

fn run_tape(tape: Tape, options: Options) -> ExitCode {
    let (outcome, _) = run_recorded(Source::Tape(tape), options);
    let tally = outcome.tally;
    println!("{} client operations, {} faults, hash {:016x}", tally.operations, tally.faults, outcome.hash);
    match outcome.failure {
        None => ExitCode::SUCCESS,
        Some(found) => {
            println!("{found}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("--crash-images"), _, _) => return uraid_sim::crash::command::command(std::env::args().skip(2)),
        (Some("--self-check"), Some(name), None) => return self_check(&name),
        _ => {}
    }
    let wanted = match parse() {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("uraid-sim: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let on_thread = match canary(wanted.canary.as_deref()) {
        Ok(on_thread) => on_thread,
        Err(error) => {
            eprintln!("uraid-sim: {error}");
            return ExitCode::from(2);
        }
    };
    on_thread();
    if let Some(time) = wanted.proves {
        return prove(time, wanted.threads);
    }
    let options = Options { is_verbose: wanted.is_verbose, is_long: wanted.is_long, ..Options::default() };
    let one = || wanted.tape.clone().map_or(Source::Seed(wanted.seeds.start), Source::Tape);
    if wanted.shrinks {
        return print_shrunk(one(), options, wanted.budget);
    }
    if let Some(tape) = wanted.tape {
        return run_tape(tape, options);
    }
    if wanted.prints_hashes {
        for seed in wanted.seeds {
            let outcome = run_seed(seed, options);
            println!("{seed} {:016x} {}", outcome.hash, outcome.events);
        }
        return ExitCode::SUCCESS;
    }
    let threads = if wanted.is_verbose { 1 } else { wanted.threads };
    let sum = run_seeds(wanted.seeds, threads, options, on_thread);
    print!("{}", sum.report());
    println!("{sum}");
    if wanted.prints_marks {
        print!("{}", sum.marks_report());
    }
    if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
