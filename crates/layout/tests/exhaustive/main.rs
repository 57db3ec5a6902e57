//! Every range of small arrays of every level and layout, against a model that knows nothing but the formulas.
//! Owns: the domains. Not here: the model (`model`), what a plan must be (`check`).
//! The default domains run in seconds; the large ones with
//! `cargo test --release -p uraid-layout --test exhaustive -- --ignored --nocapture`.

mod check;
mod domain;
mod model;
mod refusals;
mod runs;

use check::{Effort, check};
use domain::Case;
use uraid_layout::Layout;

/// Checks all the cases in the way that `effort` says, and tells how many plans that were.
fn run(name: &str, cases: &[Case], effort: Effort) {
    let plans: u64 = cases.iter().map(|case| check(case, effort)).sum();
    println!("{name}: {} geometries, {plans} plans", cases.len());
    assert!(plans > 0);
}

#[test]
fn linear_plans_are_exact() {
    run("linear, every usable set", &domain::linear(), Effort::EverySet);
}

#[test]
fn raid0_plans_are_exact() {
    run("raid0, every usable set", &domain::raid0(1, 6), Effort::EverySet);
    run("raid0, chunk 2", &domain::raid0(2, 6), Effort::EverySet);
    run("raid0, chunk 3", &domain::raid0(3, 4), Effort::Healthy);
    run("raid0, chunk 8", &domain::raid0(8, 6), Effort::Healthy);
}

#[test]
fn raid1_plans_are_exact() {
    run("raid1, every usable set", &domain::raid1(), Effort::EverySet);
}

#[test]
fn raid10_plans_are_exact_with_any_members_missing() {
    run("raid10, chunk 1, every usable set", &domain::raid10(1, 5), Effort::EverySet);
    run("raid10, chunk 2, tolerated sets", &domain::raid10(2, 6), Effort::ToleratedSets);
}

#[test]
fn raid10_plans_are_exact() {
    run("raid10, chunk 8", &domain::raid10(8, 6), Effort::Healthy);
}

#[test]
fn parity_plans_are_exact_with_any_members_missing() {
    run("raid456, chunk 1, every usable set", &domain::raid456(1, 6), Effort::EverySet);
    run("raid456, chunk 2, tolerated sets", &domain::raid456(2, 6), Effort::ToleratedSets);
}

#[test]
fn parity_plans_are_exact() {
    run("raid456, chunk 8", &domain::raid456(8, 6), Effort::Healthy);
}

#[test]
#[ignore = "minutes; cargo test --release -p uraid-layout --test exhaustive -- --ignored --nocapture"]
fn large_domains() {
    run("raid0, chunk 8, every usable set", &domain::raid0(8, 6), Effort::EverySet);
    run("raid10, chunk 2, every usable set", &domain::raid10(2, 7), Effort::EverySet);
    run("raid10, chunk 8, tolerated sets", &domain::raid10(8, 6), Effort::ToleratedSets);
    run("raid10, chunk 8, 9 members", &domain::raid10(8, 9), Effort::Healthy);
    run("raid456, chunk 8, tolerated sets", &domain::raid456(8, 6), Effort::ToleratedSets);
    run("raid456, chunk 4, 9 members", &domain::raid456(4, 9), Effort::ToleratedSets);
}

/// Every start and length of three stripes: read (two copy choices where there are two), write and discard; the parity
/// levels' writes and discards by row; and the promised numbers of runs. `members_max` and `effort` choose the domain,
/// whose size in plans must be `size`.
fn three_stripes(chunk: u64, members_max: u64, effort: Effort, size: u64) {
    let cases = domain::three_stripes(chunk, members_max);
    let (mut plans, mut expected) = (0, 0);
    for (case, sectors) in &cases {
        let layout = &case.layout;
        plans += check(case, effort);
        let ranges = sectors * (sectors + 3) / 2;
        let copies = u64::from(layout.copies_count());
        let (sets, choices) = match effort {
            Effort::Healthy => (1, copies.min(2)),
            Effort::ToleratedSets | Effort::EverySet => (tolerated_sets(layout), copies + 1),
        };
        let each = if layout.level().is_parity() { choices } else { 2 + choices };
        expected += ranges * each * sets;
        let missing_max = if effort == Effort::Healthy { 0 } else { usize::from(layout.tolerates()) };
        check::sets(layout, missing_max).for_each(|usable| runs::check_promises(layout, &usable));
    }
    println!("three stripes, chunk {chunk}, to {members_max} members: {} geometries, {plans} plans", cases.len());
    assert_eq!(plans, expected);
    assert_eq!(plans, size, "the domain has another size than the one that is told");
}

/// How many sets of members an array can miss: sums of binomials, the empty set included.
fn tolerated_sets(layout: &Layout) -> u64 {
    let members = u64::from(layout.slots());
    let choose = |k: u64| (0..k).fold(1, |product, n| product * (members - n) / (n + 1));
    (0..=layout.tolerates().into()).map(choose).sum()
}

#[test]
fn three_stripes_of_everything_in_small_chunks() {
    three_stripes(1, 8, Effort::Healthy, 229_914);
    three_stripes(2, 8, Effort::Healthy, 852_795);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "long; cargo test --release -p uraid-layout --test exhaustive three_stripes")]
fn three_stripes_of_everything_in_chunks_of_eight() {
    three_stripes(8, 8, Effort::Healthy, 12_842_388);
}

#[test]
fn three_stripes_of_everything_with_every_tolerated_set_missing() {
    three_stripes(1, 5, Effort::ToleratedSets, 830_058);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "long; cargo test --release -p uraid-layout --test exhaustive three_stripes")]
fn three_stripes_of_everything_in_chunks_of_two_with_every_tolerated_set_missing() {
    three_stripes(2, 5, Effort::ToleratedSets, 3_000_678);
}
