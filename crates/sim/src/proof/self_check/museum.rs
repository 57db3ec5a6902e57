//! Every bug of the museum is found, and by the checker that is meant to.
//! Owns: nothing. Not here: the bugs, and within how many seeds (`crate::proof::museum`); past mistakes of this engine
//! (`tests/own_mistakes.rs`).

use super::Tell;
use crate::proof::museum::{ENTRIES, SEEDS_MAX, hunt};
use std::time::Instant;

pub(super) fn run(tell: Tell<'_>) {
    for entry in &ENTRIES {
        let began = Instant::now();
        tell(match hunt(entry) {
            Some(find) if entry.finders.iter().any(|finder| find.found.starts_with(finder)) => {
                let (seconds, found) =
                    (began.elapsed().as_secs_f32(), find.found.chars().take(120).collect::<String>());
                Ok(format!("{} ({}): seed {}, {seconds:.1} s: {found}", entry.id, entry.canary, find.seed))
            }
            Some(find) => Err(format!("{}: found by another checker: {}", entry.id, find.found)),
            None => Err(format!("{}: not found in {SEEDS_MAX} seeds", entry.id)),
        });
    }
}
