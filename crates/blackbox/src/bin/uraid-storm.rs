//! `uraid-storm`: kills the server and damages or removes members for a given time, and reports the findings.
//! Owns: its options. Not here: the storm (`uraid_blackbox::storm`).
//! Invariant: exit code 0 only if nothing was lost and at least one kill was made; the last line is JSON with `--json`.

use std::process::ExitCode;
use std::time::Duration;
use uraid_blackbox::storm::{Canary, Figures, Plan, run};

const USAGE: &str = "\
usage: uraid-storm [--kills N] [--time 90s] [--seed N] [--threads N] [--json]
       uraid-storm --canaries [--seed N]
Without --time 60 kills; with both, until both are reached. The binary under test is the `uraid` of
the same build; URAID_BIN names another. --canaries plays members that lie, and succeeds when every lie is found.";

/// The default of `--kills`.
const KILLS: u64 = 60;

struct Wanted {
    plan: Plan,
    is_json: bool,
    plays_canaries: bool,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `90`, `90s`, `10m`, `2h`.
fn time(text: &str) -> Option<Duration> {
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

fn parse() -> Option<Wanted> {
    let plan = Plan { seed: 0x5eed, kills: 0, time: Duration::ZERO, threads: 2 };
    let mut wanted = Wanted { plan, is_json: false, plays_canaries: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--kills" => wanted.plan.kills = number(&arguments.next()?)?,
            "--time" => wanted.plan.time = time(&arguments.next()?)?,
            "--seed" => wanted.plan.seed = number(&arguments.next()?)?,
            "--threads" => wanted.plan.threads = usize::try_from(number(&arguments.next()?)?).ok()?,
            "--json" => wanted.is_json = true,
            "--canaries" => wanted.plays_canaries = true,
            _ => return None,
        }
    }
    if wanted.plan.kills == 0 && wanted.plan.time.is_zero() {
        wanted.plan.kills = KILLS;
    }
    (wanted.plan.threads > 0).then_some(wanted)
}

fn canaries(seed: u64) -> ExitCode {
    let mut missed = 0;
    for canary in Canary::ALL {
        let Figures { lost_bytes, violations, .. } = canary.play(seed);
        match violations.first() {
            Some(found) if lost_bytes > 0 => println!("{canary:?}: found, {lost_bytes} bytes: {found}"),
            other => {
                missed += 1;
                println!("{canary:?}: MISSED: {other:?}");
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let Some(wanted) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if wanted.plays_canaries {
        return canaries(wanted.plan.seed);
    }
    let figures = run(wanted.plan);
    print!("{figures}");
    if wanted.is_json {
        println!("{}", figures.json());
    }
    if figures.is_good() && figures.kill_cycles > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
