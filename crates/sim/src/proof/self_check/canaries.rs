//! Checks the checkers: the engine makes one mistake on purpose, and some seed must find it.
//! Owns: one canary per checker. Not here: bugs of other systems (`museum`); mistakes that show only in a crash at one
//! moment (`tests/crash_images.rs`).

use super::Tell;
use crate::proof::fleet::run_seeds;
use crate::proof::museum::ENTRIES;
use crate::scenario::Options;
use uraid_engine::canary::{names, set};

/// Each mistake must be found within this many seeds. Most need fewer than 100, the rarest about 2,400 on average.
const SEEDS_MAX: u64 = 12_000;
const STEP: u64 = 20;
/// Members of the swarm that are spoiled may give any bytes, so it does not find `RepairByData`: `directed::checks` does.
/// A member of the swarm seldom fails in the moment between a crash and the resync of the very row that was being written:
/// `directed::bits::unsynced` finds `ComputeUnsynced`. A new array with a log that crashes in its first resync is not in the
/// swarm: `directed::ppl::rare` finds the last but one. Seldom do all other members fail in the moment in which a write is
/// behind, while a client reads it: `directed::behind` finds the last one.
/// Seeds rarely find the first two, and their spares never take a slot. Every exploration of crash images finds the
/// first. `directed::several` finds the second, where superblocks can be written and data cannot; `directed::spares` the
/// third, `directed::joining` the fourth, `directed::re_adding` the next two, and `directed::joining::replacing` the one
/// after them.
const SHOWN_ELSEWHERE: [&str; 11] = [
    "RowFlushByOldView",
    "FailOneByOne",
    "SpareUnrecorded",
    "JoinUnrecorded",
    "ReAddTooOld",
    "KeepRecovery",
    "ReplaceUnflushed",
    "RepairByData",
    "ComputeUnsynced",
    "LogCompleteEarly",
    "ReadNotBehind",
];

fn first_find(mistake: &str) -> Option<(u64, String)> {
    (0..SEEDS_MAX).step_by(STEP as usize).find_map(|start| {
        // A mistake must be found by itself, not by a member that hangs.
        let options = Options { never_hangs: mistake != "WaitForDead", ..Options::default() };
        let sum = run_seeds(start..start + STEP, 2, options, || set(Some(mistake)));
        let (seed, found) = sum.failures.into_iter().next()?;
        Some((seed, found.lines().next().unwrap_or_default().chars().take(160).collect()))
    })
}

/// Every mistake that the seeds are meant to find.
pub(super) fn run(tell: Tell<'_>) {
    let is_own =
        |mistake: &&str| !SHOWN_ELSEWHERE.contains(mistake) && ENTRIES.iter().all(|entry| entry.canary != *mistake);
    for mistake in names().filter(is_own) {
        tell(match first_find(mistake) {
            Some((seed, found)) => Ok(format!("{mistake}: seed {seed}: {found}")),
            None => Err(format!("{mistake}: not found in {SEEDS_MAX} seeds")),
        });
    }
}
