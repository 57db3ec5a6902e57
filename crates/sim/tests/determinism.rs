//! The same seed gives the same run.
//! Owns: the check of that within one build. Between builds: compare `uraid-sim --seeds 0..100 --hashes`.

use uraid_sim::proof::fleet::run_seeds;
use uraid_sim::scenario::{Options, Source, run_recorded, run_seed};

#[test]
fn thirty_seeds_give_the_same_hash_twice_on_one_thread_and_on_two() {
    let once = run_seeds(5000..5030, 1, Options::default(), || {});
    let again = run_seeds(5000..5030, 2, Options::default(), || {});
    println!("total hash {:016x}", once.hash);
    assert_eq!(once.hash, again.hash);
    assert_eq!((once.steps, once.time), (again.steps, again.time));
}

#[test]
fn seeds_differ() {
    let hashes: std::collections::BTreeSet<u64> = (0..20).map(|seed| run_seed(seed, Options::default()).hash).collect();
    assert_eq!(hashes.len(), 20);
}

#[test]
fn a_tape_reproduces_the_run_of_its_seed_and_itself() {
    for seed in 5000..5010 {
        let options = Options::default();
        let (recorded, tape) = run_recorded(Source::Seed(seed), options);
        assert_eq!(recorded.hash, run_seed(seed, options).hash, "recording changes nothing");
        let (replayed, again) = run_recorded(Source::Tape(tape.clone()), options);
        assert_eq!(replayed.hash, recorded.hash, "seed {seed}");
        assert_eq!(again, tape, "seed {seed}");
    }
}
