//! The scenario `bitmap`: 4 KiB random writes with a write-intent bitmap, compared with the same array without one.
//! Owns: its arrays, the rounds. Not here: bits (`uraid_engine`), the loop (`drive`).
//! Invariant: the bitmap is added and removed while the array runs, so that both sides are the same run.
//!
//! ```text
//!   round     no bitmap | a new one: each first write into a chunk waits for its bit | the same one: all bits are set
//! ```

use crate::figures::{Interval, median};
use crate::measure::drive::{self, Side};
use crate::measure::on_shards::{self, on_shards};
use crate::measure::{Case, MeasureError, Prepared};
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::target::{Target, Trial};
use crate::work::{Pattern, Work};
use crate::{BenchError, Run};
use uraid_arrays::{OnShard, Stop};

/// Members that cost nothing, and members that are memory.
const MEMBERS: [&str; 2] = ["null:1T,completion=deferred", "mem:64M"];

/// Requests per second of one round: without a bitmap, with a new one, with one whose bits are set.
type Round = [f64; 3];

pub(crate) fn run(scenario: &str, run: &Run, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    screen.print(&format!("== {scenario}\n\n"));
    for trial in Trial::redundant() {
        for member in MEMBERS {
            let target = Target::in_memory(&trial, member, 0, screen)?;
            let work = Work { pattern: Pattern::Randwrite, ..Work::default() };
            let on = format!("{}, {member}", target.describe());
            let case = Case::new(&target, &on, work, &Run { has_latencies: false, ..*run });
            let rounds = measure(&case, screen).map_err(crate::measure_error(&case.name))?;
            screen.print(&format!("  {}\n", case.name));
            for (at, what) in [(1, "a new bitmap"), (2, "a bitmap whose bits are set")] {
                let row = row(scenario, &format!("{what}; {}", case.name), &rounds, at);
                let ratio = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high).unwrap_or_default();
                screen.print(&format!("    {what:<27}  {ratio} of the same without one\n"));
                rows.push(row);
            }
        }
    }
    screen.print("\n");
    Ok(rows)
}

fn row(scenario: &str, what: &str, rounds: &[Round], at: usize) -> Row {
    let all = |at: usize| -> Vec<f64> { rounds.iter().map(|round| round[at]).collect() };
    let ratios: Vec<f64> = rounds.iter().map(|round| round[at] / round[0]).collect();
    let row =
        Row { raw: Some(median(&all(0))), against: "no bitmap", ..Row::bare(scenario, what, median(&all(at)), "IOPS") };
    row.with_ratio(Some(Interval::of(&ratios)))
}

fn measure(case: &Case<'_>, screen: &dyn Screen) -> Result<Vec<Round>, MeasureError> {
    let prepared = Prepared::new(case, screen)?;
    let task = async |on: &OnShard| -> Result<Vec<Round>, MeasureError> {
        let place = prepared.place(on);
        let (array, write) = (&place.array, async |time| drive::run(&place, Side::Array, time).await);
        let section = async |time| write(time).await.map(|section| section.rate()).map_err(failed);
        section(case.runtime).await?;
        let mut rounds = Vec::new();
        for _ in 0..case.rounds {
            let without = section(case.runtime).await?;
            let bitmap = array.choose_bitmap(None).expect("a whole array has room for one");
            array.add_bitmap(bitmap).await.expect("an array without a pass gets one");
            let new = section(case.runtime).await?;
            let set = section(case.runtime).await?;
            array.remove_bitmap().await.expect("an array without a pass loses it");
            rounds.push([without, new, set]);
        }
        Ok(rounds)
    };
    let found = on_shards(case.target, 1, &prepared.options, Stop::AfterSuccess, on_shards::start, task)?;
    Ok(found.into_iter().next().expect("one shard gives one value"))
}

fn failed(source: uraid_block::IoError) -> MeasureError {
    MeasureError::Request { side: "array", source }
}
