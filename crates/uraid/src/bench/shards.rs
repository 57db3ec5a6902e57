//! Two shards beside one, on members that cost nothing: do two do twice the work, and what does a request cost them?
//! Owns: the two works and the ratios between them. Not here: measuring a work (`session`).
//! Invariant: both are measured in every round, so that a machine that is slow for a while is slow for both.

use super::figures::{Interval, median};
use super::session::{self, Case, Outcome, Sample, Side};
use super::table::{self, Row};
use super::target::{Target, Trial};
use super::work::Work;
use super::{BenchError, Run, measure_error};
use crate::{names, print};
use std::fmt::Write;

/// A figure of one round.
type Figure = fn(&[Sample; 3]) -> f64;

/// What is compared: its name, its unit, how it is taken.
const FIGURES: [(&str, &str, Figure); 3] = [
    ("requests", "IOPS", |sides| sides[Side::Array as usize].rate),
    ("CPU of a request", "ns", |sides| sides[Side::Array as usize].cpu_ns),
    ("the engine's CPU of a request", "ns", |sides| {
        sides[Side::Array as usize].cpu_ns - sides[Side::Replay as usize].cpu_ns
    }),
];

/// Measures `work` by one shard and by two.
pub fn run(
    scenario: &str,
    (trial, member): (&Trial, &str),
    work: &Work,
    run: &Run,
    is_shown: bool,
) -> Result<Vec<Row>, BenchError> {
    let target = Target::trial(trial, &[member.to_owned()], false)?;
    let on = format!("{}, {member}", target.describe());
    let &Run { runtime, rounds, has_latencies, .. } = run;
    let cases = [1, 2].map(|shards| {
        let work = Work { shards, ..work.clone() };
        let name = format!("{}; {on}", work.describe());
        Case { target: &target, work, runtime, rounds, has_latencies, drain_every: None, merging: true, name }
    });
    let outcomes = session::measure_in_turn(&cases).map_err(measure_error(&cases[0].name))?;
    let mut rows = Vec::new();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        rows.extend(super::shown(case, scenario, &on, outcome, is_shown));
        if is_shown {
            print("\n");
        }
    }
    let compared = compared(scenario, &cases[1].name, &outcomes[0], &outcomes[1]);
    if is_shown {
        print(&names::printable_lines(&text(&compared)));
    }
    rows.extend(compared);
    Ok(rows)
}

fn compared(scenario: &str, name: &str, one: &Outcome, two: &Outcome) -> Vec<Row> {
    let row = |(what, unit, figure): (&str, &'static str, Figure)| {
        let of = |outcome: &Outcome| outcome.rounds.iter().map(figure).collect::<Vec<f64>>();
        let ratios: Vec<f64> = of(two).iter().zip(of(one)).map(|(two, one)| two / one).collect();
        Row {
            raw: Some(median(&of(one))),
            against: "one shard",
            ..Row::bare(scenario, &format!("{what}; {name}"), median(&of(two)), unit)
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
