//! Two shards compared with one: the work done, the cost of a request, and the cost of its way to another shard.
//! Owns: the two works and the ratios between them. Not here: measuring a work (`measure`).
//! Invariant: both are measured in every round, so that a temporary slowdown of the machine affects both.

use crate::figures::{Interval, median};
use crate::measure::drive::Side;
use crate::measure::{self, Case, Sample};
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::target::Target;
use crate::work::Work;
use crate::{BenchError, Run, measure_error};
use std::fmt::Write;

/// A figure of one round. The second parameter is the number of clients of all shards.
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

/// Measures `work` on one shard and on two.
pub(crate) fn run(
    scenario: &str,
    target: &Target,
    on: &str,
    work: &Work,
    run: &Run,
    screen: &dyn Screen,
) -> Result<Vec<Row>, BenchError> {
    let cases = [1, 2].map(|shards| Case::new(target, on, Work { shards, ..work.clone() }, run));
    let outcomes = measure::measure_in_turn(&cases, screen).map_err(measure_error(&cases[0].name))?;
    let mut rows = Vec::new();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        rows.extend(crate::shown(case, scenario, on, outcome, screen));
        screen.print("\n");
    }
    let clients = cases.each_ref().map(|case| case.work.jobs_in_all() as f64 * f64::from(case.work.depth));
    let compared = compared(scenario, &cases[1].name, clients, [0, 1].map(|which| &outcomes[which].rounds[..]));
    screen.print(&text(&compared));
    rows.extend(compared);
    Ok(rows)
}

/// The rounds of two shards compared with those of one, each with its number of clients.
fn compared(scenario: &str, name: &str, clients: [f64; 2], rounds: [&[[Sample; 3]]; 2]) -> Vec<Row> {
    let cpu: Vec<f64> = rounds[1].iter().map(|sides| sides[Side::Array as usize].cpu_ns).collect();
    let row = |(what, unit, figure): (&str, &'static str, Figure)| {
        let of = |n: usize| rounds[n].iter().map(|sides| figure(sides, clients[n])).collect::<Vec<f64>>();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_shards_are_compared_with_one_of_the_same_round() {
        let sample = |rate, cpu_ns| Sample { requests: 1, rate, cpu_ns };
        let round = |rate, cpu_ns| [sample(rate, cpu_ns), sample(1e9, 40.0), sample(1e9, 1.0)];
        // The machine is ten times as slow in the second round.
        let (one, two) = ([round(1e6, 100.0), round(1e5, 100.0)], [round(1.9e6, 103.0), round(1.9e5, 103.0)]);
        let rows = compared("s", "w", [32.0, 64.0], [&one, &two]);
        let near = |found: Option<f64>, expected: f64| found.is_some_and(|found| (found / expected - 1.0).abs() < 1e-9);
        for (row, ratio) in rows.iter().zip([1.9, 2.0 / 1.9, 1.03, 1.05]) {
            assert!(near(row.ratio, ratio) && near(row.ratio_low, ratio) && near(row.ratio_high, ratio), "{row:?}");
            assert_eq!((row.against, row.cpu_ns_per_io), ("one shard", Some(103.0)));
        }
        assert!(near(Some(rows[3].array), 63.0) && near(rows[3].raw, 60.0), "what replay takes is not the engine's");
        assert!(text(&rows).contains("the engine's CPU of a request  1.050 (1.050..1.050)"), "{}", text(&rows));
    }
}
