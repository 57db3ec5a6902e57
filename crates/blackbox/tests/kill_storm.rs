//! Repeated kill -9 during writes, with members removed and damaged in between: nothing acknowledged is lost.
//! Owns: how long it runs in every test run. Not here: the storm, and its limits (`uraid_blackbox::storm`).
//! `URAID_KILL_CYCLES` (60) is the number of kills, `URAID_SEED` their seed; `uraid-storm --time 10m` is the long form.

use std::io::Write;
use std::time::Duration;
use uraid_blackbox::storm::{Canary, Plan, run};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

#[test]
fn acknowledged_data_survives_kills_losses_and_damage() {
    let kills = number("URAID_KILL_CYCLES", 60);
    let figures = run(Plan { seed: number("URAID_SEED", 0x5eed), kills, time: Duration::ZERO, threads: 2 });
    // Past the test's captured output: the figures of a passed test are worth reading.
    let _ = writeln!(std::io::stderr(), "{figures}{}", figures.json());
    assert!(figures.is_good(), "{figures}");
    assert_eq!((figures.kill_cycles, figures.lost_bytes), (kills, 0));
    if kills >= 60 {
        // A storm in which nothing happened proves nothing.
        assert!(figures.kills_with_open_writes * 4 > kills, "few kills met a write in flight");
        let done = [figures.taken_away, figures.corrupted, figures.stale_given, figures.refused, figures.looks];
        assert!(done.iter().all(|count| *count > 0), "{figures}");
    }
}

#[test]
fn members_with_corrupted_data_are_detected() {
    for canary in Canary::ALL {
        let figures = canary.play(0x5eed);
        assert!(figures.lost_bytes > 0, "{canary:?} was missed: {figures}");
    }
}
