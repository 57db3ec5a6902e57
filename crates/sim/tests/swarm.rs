//! Seeds: every level, every fault, every crash, against the oracle.
//! Owns: how many seeds, and that they cover all levels and layouts. Not here: what a seed does (`uraid_sim::scenario`).
//! A few seeds; `cargo xtask ci` runs the first 400 by `uraid-sim`. The long form, and another first seed:
//! `URAID_SIM_SEEDS=2000 cargo test --release -p uraid-sim --test suite swarm:: -- --nocapture`, `URAID_SIM_FIRST`.

use uraid_sim::proof::fleet::run_seeds;
use uraid_sim::scenario::Options;

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn no_seed_has_a_finding() {
    let first = number_from("URAID_SIM_FIRST", 0);
    let count = number_from("URAID_SIM_SEEDS", 30);
    let sum = run_seeds(first..first + count, 2, Options::default(), || {});
    println!("{sum}");
    assert!(sum.failures.is_empty(), "{}", sum.report());
    if count >= 1000 {
        assert!(sum.kinds.len() >= 28, "levels and layouts that were never drawn: {:?}", sum.kinds.keys());
        let tally = sum.tally;
        for (what, count) in [
            ("crashes", tally.crashes),
            ("faults", tally.faults),
            ("images", tally.images),
            ("stops", tally.stops),
            ("resyncs", tally.resyncs),
            ("degraded starts", tally.degraded),
            ("refusals", tally.refusals),
        ] {
            assert!(count >= 20, "only {count} {what}");
        }
    }
}
