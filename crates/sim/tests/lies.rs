//! Tests of the checkers: members with deliberate faults make a correct engine answer wrongly. Each must be found.
//! Owns: one lie per checker of bytes. Not here: mistakes of the engine (`canaries`).

use uraid_sim::machine::member::Lie;
use uraid_sim::scenario::{Options, run_seed};

fn first_seed_that_finds(lie: Lie, seeds_max: u64) -> Option<(u64, String)> {
    (0..seeds_max).find_map(|seed| {
        let outcome = run_seed(seed, Options { lie: Some(lie), ..Options::default() });
        outcome.failure.map(|found| (seed, found.lines().next().unwrap_or_default().to_string()))
    })
}

#[test]
fn every_lie_of_a_member_is_found() {
    for lie in [Lie::Flush, Lie::SuperWrite, Lie::Write, Lie::ReadBit, Lie::Misdirect] {
        let Some((seed, found)) = first_seed_that_finds(lie, 60) else { panic!("{lie:?} was not found in 60 seeds") };
        println!("{lie:?}: seed {seed}: {found}");
    }
}
