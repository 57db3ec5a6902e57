//! Two shards beside one: do two do twice the work, what does a request cost them, and what its way to another shard?
//! Owns: the two works and the ratios between them. Not here: measuring a work (`session`).
//! Invariant: both are measured in every round, so that a machine that is slow for a while is slow for both.

use super::figures::{Interval, median};
use super::session::{self, Case, Outcome, Sample, Side};
use super::table::{self, Row};
use super::target::Target;
use super::work::Work;
use super::{BenchError, Run, measure_error};
use crate::{names, print};
use std::fmt::Write;

/// A figure of one round, by the clients of all shards.
type Figure = fn(&[Sample; 3], f64) -> f64;

/// What is compared: its name, its unit, how it is taken.
const FIGURES: [(&str, &str, Figure); 4] = [
    ("requests", "IOPS", |sides, _| sides[Side::Array as usize].rate),
    ("time of a request", "ns", |sides, clients| clients / sides[Side::Array as usize].rate * 1e9),
    ("CPU of a request", "ns", |sides, _| sides[Side::Array as usize].cpu_ns),
    ("the engine's CPU of a request", "ns", |sides, _| {
        sides[Side::Array as usize].cpu_ns - sides[Side::Replay as usize].cpu_ns
    }),
];

/// Measures `work` by one shard and by two.
pub fn run(
    scenario: &str,
    target: &Target,
    on: &str,
    work: &Work,
    run: &Run,
    is_shown: bool,
) -> Result<Vec<Row>, BenchError> {
    let &Run { runtime, rounds, has_latencies, .. } = run;
    let cases = [1, 2].map(|shards| {
        let work = Work { shards, ..work.clone() };
        let name = format!("{}; {on}", work.describe());
        Case { target, work, runtime, rounds, has_latencies, drain_every: None, merging: true, name }
    });
    let outcomes = session::measure_in_turn(&cases).map_err(measure_error(&cases[0].name))?;
    let mut rows = Vec::new();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        rows.extend(super::shown(case, scenario, on, outcome, is_shown));
        if is_shown {
            print("\n");
        }
    }
    let compared = compared(scenario, &cases, &outcomes);
    if is_shown {
        print(&names::printable_lines(&text(&compared)));
    }
    rows.extend(compared);
    Ok(rows)
}

/// The second case beside the first.
fn compared(scenario: &str, cases: &[Case<'_>; 2], outcomes: &[Outcome]) -> Vec<Row> {
    let name = &cases[1].name;
    let cpu: Vec<f64> = outcomes[1].rounds.iter().map(|sides| sides[Side::Array as usize].cpu_ns).collect();
    let row = |(what, unit, figure): (&str, &'static str, Figure)| {
        let of = |which: usize| {
            let work = &cases[which].work;
            let clients = work.jobs_in_all() as f64 * f64::from(work.depth);
            outcomes[which].rounds.iter().map(|sides| figure(sides, clients)).collect::<Vec<f64>>()
        };
        let ratios: Vec<f64> = of(1).iter().zip(of(0)).map(|(two, one)| two / one).collect();
        Row {
            raw: Some(median(&of(0))),
            against: "one shard",
            cpu_ns_per_io: Some(median(&cpu)),
            ..Row::bare(scenario, &format!("two shards beside one, {what}; {name}"), median(&of(1)), unit)
        }
        .with_ratio(Some(Interval::of(&ratios)))
    };
    FIGURES.map(row).to_vec()
}

fn text(rows: &[Row]) -> String {
    let mut out = "two shards / one shard\n\n".to_owned();
    for ((what, unit, _), row) in FIGURES.iter().zip(rows) {
        let ratio = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high).unwrap_or_default();
        let shown = |value: f64| if *unit == "ns" { table::nanos(value) } else { table::count(value) };
        let (two, one) = (shown(row.array), shown(row.raw.unwrap_or(0.0)));
        let sure = row.confidence.unwrap_or(0.0) * 100.0;
        writeln!(out, "  {what:<29}  {ratio}, {sure:.1} %; {two}, {one}").expect("a string takes all");
    }
    out.push('\n');
    out
}
