//! Every range of small arrays of every level and layout, against a model that knows nothing but the formulas.
//! Owns: the choice of domains. Not here: the model (`model`), the conditions on a plan (`check`).
//! The default domains run in seconds; the large ones with
//! `cargo test --release -p uraid-layout --test suite exhaustive:: -- --ignored --nocapture`.

mod check;
mod domain;
mod model;
mod parity;
mod refusals;
mod runs;
mod three_stripes;

use check::{Cases, Effort, check};
use domain::Case;

/// Checks all geometries with this effort, and prints the number of cases.
fn run(name: &str, geometries: &[Case], effort: Effort) {
    let mut cases = Cases::default();
    geometries.iter().for_each(|case| cases += check(case, effort));
    println!("{name}: {} geometries, {} cases, {} plans", geometries.len(), cases.total(), cases.plans);
    assert!(cases.total() > 0);
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
    run("raid10, chunk 2, tolerated sets", &domain::raid10(2, 5), Effort::ToleratedSets);
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
#[ignore = "minutes; cargo test --release -p uraid-layout --test suite exhaustive:: -- --ignored --nocapture"]
fn large_domains() {
    run("raid0, chunk 8, every usable set", &domain::raid0(8, 6), Effort::EverySet);
    run("raid10, chunk 2, every usable set", &domain::raid10(2, 7), Effort::EverySet);
    run("raid10, chunk 2, 6 members, tolerated sets", &domain::raid10(2, 6), Effort::ToleratedSets);
    run("raid10, chunk 8, tolerated sets", &domain::raid10(8, 6), Effort::ToleratedSets);
    run("raid10, chunk 8, 9 members", &domain::raid10(8, 9), Effort::Healthy);
    run("raid456, chunk 8, tolerated sets", &domain::raid456(8, 6), Effort::ToleratedSets);
    run("raid456, chunk 4, 9 members", &domain::raid456(4, 9), Effort::ToleratedSets);
}
