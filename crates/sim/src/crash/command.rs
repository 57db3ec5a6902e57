//! `uraid-sim --crash-images`: the options and what is printed.
//! Owns: [`command`]. Not here: anything that is explored.
//! Invariant: a finding makes the command fail, and is printed with the command that reproduces it.

use super::catalogue::Portion;
use super::report::Finding;
use super::{Selection, replay, run};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "usage: uraid-sim --crash-images [--level raid1|raid10|raid5|raid6] [--time 90s] [--threads N] [--short] [--json]
       uraid-sim --crash-images --replay ARRAY;SCRIPT;SCHEDULE;DEPTH;CRASHES";

enum Order {
    Explore { wanted: Selection, is_json: bool },
    Replay(Finding),
}

fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit {
        "" | "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Order> {
    let mut wanted = Selection { level: None, portion: Portion::Full, time: None, threads: 2 };
    let mut is_json = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => is_json = true,
            "--level" => {
                let level = arguments.next()?;
                ["raid1", "raid10", "raid5", "raid6"].contains(&level.as_str()).then_some(())?;
                wanted.level = Some(level);
            }
            "--time" => wanted.time = Some(seconds(&arguments.next()?)?),
            "--threads" => wanted.threads = arguments.next()?.parse().ok().filter(|threads| *threads > 0)?,
            "--short" => wanted.portion = Portion::Short,
            "--replay" => return Some(Order::Replay(Finding::parse(&arguments.next()?)?)),
            _ => return None,
        }
    }
    Some(Order::Explore { wanted, is_json })
}

/// Runs the command with the arguments after `--crash-images`.
pub fn command(arguments: impl Iterator<Item = String>) -> ExitCode {
    match parse(arguments) {
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Some(Order::Replay(finding)) => match replay(&finding) {
            Ok(counts) => {
                println!("nothing is wrong with it: {counts:?}");
                ExitCode::SUCCESS
            }
            Err(found) => {
                println!("{}", Finding { found, ..finding });
                ExitCode::FAILURE
            }
        },
        Some(Order::Explore { wanted, is_json }) => {
            let report = run(&wanted, || {});
            report.findings.iter().for_each(|finding| println!("{finding}\n"));
            println!("{report}");
            if is_json {
                println!("{}", report.json());
            }
            if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
