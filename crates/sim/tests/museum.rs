//! Every bug of the museum is found, and by the checker that is meant to.
//! Owns: nothing. Not here: the bugs, and within how many seeds (`uraid_sim::museum`); past mistakes of this engine
//! (`own_mistakes`).

use std::time::Instant;
use uraid_sim::museum::{ENTRIES, SEEDS_MAX, hunt};

#[test]
fn every_bug_of_the_museum_is_found() {
    // A run that meets a bug may panic: in a thread without a name, and its finding is returned. Threads of tests have names.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some() {
            print(panic);
        }
    }));
    let mut missed = Vec::new();
    for entry in &ENTRIES {
        let began = Instant::now();
        match hunt(entry) {
            Some(find) if entry.finders.iter().any(|finder| find.found.starts_with(finder)) => {
                let (seconds, found) =
                    (began.elapsed().as_secs_f32(), find.found.chars().take(120).collect::<String>());
                println!("{} ({:?}): seed {}, {seconds:.1} s: {found}", entry.id, entry.switch, find.seed);
            }
            Some(find) => missed.push(format!("{}: found by another checker: {}", entry.id, find.found)),
            None => missed.push(format!("{}: not found in {SEEDS_MAX} seeds", entry.id)),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
