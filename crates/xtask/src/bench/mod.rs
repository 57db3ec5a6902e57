//! `cargo xtask bench`: measures every performance figure of the project now, by one command or in parts.
//! Owns: the parts, their order, how long they take. Not here: any measurement (`uraid bench`, the files beside this
//! one). Called by the program alone.
//! Invariant: the expected time of every part is printed before it starts; a failed part fails the command.

mod beside;
mod direct;
mod discards;
mod nbd;

use crate::project;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The fewest rounds that give an interval of 95 %.
const ROUNDS_MIN: u64 = 6;
/// The approximate number of measurements that `uraid bench --scenario all` makes in each round, including warm-ups.
/// They are on members that answer at once, so each needs only a tenth of the time.
const SCENARIO_SIDES: u64 = 182;
const SCENARIO_PART: u64 = 10;
/// Other parts of it: a million drains, resyncs, filling memory.
const SCENARIO_REST: Duration = Duration::from_secs(170);
/// ISA-L's comparison takes a fixed amount of work.
const ISAL: Duration = Duration::from_secs(75);

/// The settings of the parts.
struct Run {
    /// The program that is measured.
    uraid: PathBuf,
    rounds: u64,
    /// The time of each server and job.
    seconds: u64,
}

/// Some of the figures.
struct Part {
    name: &'static str,
    /// What it measures.
    about: &'static str,
    /// Its approximate duration.
    time: fn(&Run) -> Duration,
    measure: fn(&Run) -> Result<(), String>,
}

/// In the order in which they run.
const PARTS: [Part; 6] = [
    Part {
        name: "tests",
        about: "what must hold of every read: no allocation, no atomic; one ascending request of each member",
        time: |_| Duration::from_secs(20),
        measure: tests,
    },
    Part {
        name: "kernels",
        about: "parity kernels, each beside the portable one, the chosen one beside ISA-L",
        time: |run| Duration::from_secs(run.rounds.max(ROUNDS_MIN)) + ISAL,
        measure: kernels,
    },
    Part {
        name: "scenarios",
        about: "arrays beside their own members: every row of the budgets",
        time: |run| {
            let side = Duration::from_millis(scenario_millis(run));
            side * (SCENARIO_SIDES * run.rounds.max(ROUNDS_MIN)) as u32 + SCENARIO_REST
        },
        measure: scenarios,
    },
    Part {
        name: "direct",
        about: "arrays of files with direct I/O beside fio on the same files: as root",
        time: direct::time,
        measure: direct::measure,
    },
    Part {
        name: "nbd",
        about: "arrays over NBD beside nbdkit, with the same client",
        time: nbd::time,
        measure: nbd::measure,
    },
    Part {
        name: "discards",
        about: "mkfs.xfs with its discards on parity arrays beside raid0: as root",
        time: discards::time,
        measure: discards::measure,
    },
];

/// The command: parts, all if none is named; `--rounds N` (6), `--seconds N` of each job (3); or `--beside PROGRAM`.
/// Whether all went well.
pub(crate) fn run(words: &[&str]) -> bool {
    if words.contains(&"--beside") {
        return beside::run(words).map_err(|what| eprintln!("bench: {what}")).is_ok();
    }
    let outcome = parse(words).and_then(|(parts, rounds, seconds)| {
        let run = Run { uraid: build()?, rounds, seconds };
        let total: Duration = parts.iter().map(|part| (part.time)(&run)).sum();
        println!("bench: about {} in all", minutes(total));
        for part in &parts {
            println!("  {:<10} {:>8}  {}", part.name, minutes((part.time)(&run)), part.about);
        }
        all(&parts, &run)
    });
    outcome.map_err(|what| eprintln!("bench: {what}")).is_ok()
}

fn all(parts: &[&Part], run: &Run) -> Result<(), String> {
    let mut failed = Vec::new();
    for part in parts {
        println!("\n=== {}: {}\n", part.name, part.about);
        let began = Instant::now();
        // Continue with the other parts.
        if let Err(what) = (part.measure)(run) {
            eprintln!("bench: {}: {what}", part.name);
            failed.push(part.name);
        }
        println!("\n{}: {:.0} s", part.name, began.elapsed().as_secs_f64());
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn parse(words: &[&str]) -> Result<(Vec<&'static Part>, u64, u64), String> {
    let (mut parts, mut rounds, mut seconds) = (Vec::new(), ROUNDS_MIN, 3);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--rounds" => rounds = number(word, words.next())?,
            "--seconds" => seconds = number(word, words.next())?,
            name => parts.push(PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
                let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
                format!("found {name:?}, expected --rounds N, --seconds N, or one of {}", names.join(", "))
            })?),
        }
    }
    if parts.is_empty() {
        parts.extend(&PARTS);
    }
    Ok((parts, rounds, seconds))
}

/// The number behind an option, at least 1.
fn number(option: &str, found: Option<&&str>) -> Result<u64, String> {
    let number = found.and_then(|number| number.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| format!("{option} wants a number, at least 1"))
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

fn scenario_millis(run: &Run) -> u64 {
    run.seconds * 1000 / SCENARIO_PART
}

fn scenarios(run: &Run) -> Result<(), String> {
    let (rounds, runtime) = (run.rounds.max(ROUNDS_MIN).to_string(), format!("{}ms", scenario_millis(run)));
    show(Command::new(&run.uraid).args(["bench", "--scenario", "all", "--rounds", &rounds, "--runtime", &runtime]))
}

fn kernels(run: &Run) -> Result<(), String> {
    show(Command::new(&run.uraid).args(["bench", "kernels", "--rounds", &run.rounds.max(ROUNDS_MIN).to_string()]))?;
    println!();
    show(&mut project::cargo(&["bench", "--quiet", "--package", "uraid-parity"]))
}

fn tests(_: &Run) -> Result<(), String> {
    for (package, rest) in [
        ("uraid-engine", &["--test", "no_allocation"][..]),
        ("uraid-host", &["--test", "no_allocation", "--test", "no_atomic"]),
        ("uraid-arrays", &["--test", "member_requests"]),
    ] {
        show(project::cargo(&["test", "--quiet", "--package", package]).args(rest))?;
    }
    Ok(())
}

fn build() -> Result<PathBuf, String> {
    succeed(&mut project::cargo(&["build", "--release", "--package", "uraid"]))?;
    Ok(project::target().join("release/uraid"))
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Runs a command that writes its result to stdout.
fn show(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("{}: {error}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", name(command))) }
}

/// Runs a command; its output, if it went well.
fn succeed(command: &mut Command) -> Result<String, String> {
    let name = name(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}, {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_selected_by_name_and_all_run_by_default() {
        let names = |words: &[&str]| {
            let (parts, rounds, seconds) = parse(words)?;
            Ok((parts.iter().map(|part| part.name).collect::<Vec<_>>(), rounds, seconds))
        };
        assert_eq!(names(&["nbd", "--rounds", "7"]), Ok((vec!["nbd"], 7, 3)));
        assert_eq!(names(&["--seconds", "1"]).map(|(parts, ..)| parts.len()), Ok(PARTS.len()));
        for wrong in [&["disks"][..], &["--rounds"], &["--rounds", "0"], &["--seconds", "x"]] {
            assert!(
                names(wrong).is_err_and(|what: String| what.contains("number") || what.contains("one of")),
                "{wrong:?}"
            );
        }
    }
}
