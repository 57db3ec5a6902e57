//! The scenario `raid10-discard`: the member requests of a discard of a whole array, and its cost.
//! Owns: its arrays, counting member requests, the time on a processor. Not here: the runs of a discard (`layout`).
//! Invariant: the members store nothing, so only the array's own work is measured.

use crate::BenchError;
use crate::figures::median;
use crate::measure::MeasureError;
use crate::measure::drive::thread_time;
use crate::measure::on_shards::{self, on_shards};
use crate::measure::trace;
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::target::{Target, Trial};
use uraid_arrays::{OnShard, Stop};
use uraid_block::{Device, IoError, Range, Sector, Sectors};
use uraid_layout::{Level, default_layout, parse_layout};

/// One of four devices of 1.9 TB.
const MEMBER: &str = "null:1900000000000";
const MEMBERS: u16 = 4;
const CHUNK: Sectors = Sectors(1024);
/// How often the whole array is discarded.
const TIMES: usize = 101;

pub(crate) fn run(scenario: &str, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    let mut lines = String::new();
    for (level, name) in
        [(Level::Raid10, "n2"), (Level::Raid10, "f2"), (Level::Raid10, "o2"), (Level::Raid0, "default")]
    {
        let layout = parse_layout(level, name).unwrap_or_else(|| default_layout(level));
        let trial = Trial { layout, ..Trial::new(level, MEMBERS, CHUNK) };
        let target = Target::in_memory(&trial, MEMBER, 0, screen)?;
        let on = target.describe();
        let failed = |source| BenchError::Measure { what: format!("discard; {on}"), source };
        let requests = count(&target).map_err(|error| failed(MeasureError::Trace(error)))?;
        let cpu = time(&target).map_err(failed)?;
        let what = |figure: &str| format!("discard of the whole array, {figure}; {on}");
        rows.push(Row::bare(scenario, &what("member requests"), requests as f64, "requests"));
        let time = Row::bare(scenario, &what("time on a processor"), cpu, "ns");
        rows.push(Row { cpu_ns_per_io: Some(cpu), ..time });
        lines += &format!("  {on}\n    {requests} member requests, {} of CPU\n", table::nanos(cpu));
    }
    screen.print(&format!("== {scenario}\n\n{lines}\n"));
    Ok(rows)
}

fn whole(target: &Target) -> Range {
    Range::new(Sector(0), target.plan.layout.array_size())
}

/// The number of member requests of a discard of the whole array.
fn count(target: &Target) -> Result<usize, IoError> {
    let geometries: Vec<_> = target.members.iter().map(|member| member.geometry()).collect();
    let found = trace::on_tracers(1, &target.plan, &geometries, Sectors(8), async |_, tracer| {
        tracer.discard(whole(target)).await.map(|ios| ios.len())
    });
    found.into_iter().next().expect("one thread gives one value")
}

/// The median cost of a discard of the whole array, in nanoseconds of the shard's thread.
fn time(target: &Target) -> Result<f64, MeasureError> {
    let options = uraid_arrays::options_for(MEMBERS);
    let failed = |source| MeasureError::Request { side: "array", source };
    let task = async |on: &OnShard| -> Result<f64, MeasureError> {
        let mut times = Vec::new();
        // The first discard also marks the array dirty.
        for _ in 0..=TIMES {
            let before = thread_time();
            on.arrays[0].discard(whole(target)).await.map_err(failed)?;
            times.push((thread_time() - before).as_nanos() as f64);
        }
        Ok(median(&times[1..]))
    };
    let found = on_shards(target, 1, &options, Stop::AfterSuccess, on_shards::start, task)?;
    Ok(found.into_iter().next().expect("one shard gives one value"))
}
