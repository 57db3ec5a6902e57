//! Every bug of the museum is found, by the checker that is meant to. Run with `--features sabotage`.
//! Owns: how long that may take. Not here: the bugs (`uraid_sim::museum`), mistakes this engine once made
//! (`own_mistakes`).

use std::time::{Duration, Instant};
use uraid_sim::museum::{ENTRIES, hunt};

/// Seeds and time in which each must be found.
const SEEDS_MAX: u64 = 2_000;
const TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn every_bug_of_the_museum_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for entry in &ENTRIES {
        let began = Instant::now();
        match hunt(entry, SEEDS_MAX) {
            Some(find) if entry.finders.iter().any(|finder| find.found.starts_with(finder)) => {
                let (seconds, found) =
                    (began.elapsed().as_secs_f32(), find.found.chars().take(120).collect::<String>());
                println!("{} ({:?}): seed {}, {seconds:.1} s: {found}", entry.id, entry.switch, find.seed);
            }
            Some(find) => missed.push(format!("{}: found by another checker: {}", entry.id, find.found)),
            None => missed.push(format!("{}: not found in {SEEDS_MAX} seeds", entry.id)),
        }
        if began.elapsed() > TIME_MAX && !cfg!(debug_assertions) {
            missed.push(format!("{}: took {:?}", entry.id, began.elapsed()));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
