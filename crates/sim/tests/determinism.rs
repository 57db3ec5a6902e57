//! The same seed is the same run.
//! Owns: the check of that within one build. Between builds: `uraid-sim --seeds 0..100 --hashes` of both.

use uraid_sim::fleet::run_seeds;
use uraid_sim::scenario::{Options, run_seed};

#[test]
fn a_hundred_seeds_give_the_same_hash_twice_on_one_thread_and_on_two() {
    let once = run_seeds(5000..5100, 1, Options::default(), || {});
    let again = run_seeds(5000..5100, 2, Options::default(), || {});
    println!("total hash {:016x}", once.hash);
    assert_eq!(once.hash, again.hash);
    assert_eq!((once.steps, once.time), (again.steps, again.time));
}

#[test]
fn seeds_differ() {
    let hashes: std::collections::BTreeSet<u64> = (0..20).map(|seed| run_seed(seed, Options::default()).hash).collect();
    assert_eq!(hashes.len(), 20);
}
