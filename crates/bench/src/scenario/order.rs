//! The scenario `raid0-order`: sequential streams over members with a cost per request, like that of a controller.
//! Owns: its array and works, the member I/O trace by stream and member. Not here: what is merged (`host`), which plan
//! has the fewest requests (`layout`). Invariant: the raw figure comes from as many requests of the same size, spread
//! over the members and never merged. Figures come from runs without a trace; the trace comes from a separate run.

use crate::figures::median;
use crate::measure::drive::Side;
use crate::measure::on_shards::{self, on_shards};
use crate::measure::{self, Case, Sample};
use crate::report::table::{self, Latency, Row, StreamTrace};
use crate::screen::Screen;
use crate::target::{KIB, Target, Trial};
use crate::work::{Pattern, Request, Work};
use crate::{BenchError, Run, measure_error};
use std::cell::Cell;
use std::fmt::Write;
use uraid_arrays::{HostArray, OnShard, Stop};
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::join_all;
use uraid_block::{Device, IoError, Sectors};
use uraid_host::{CLIENT_ARENA, Traced};
use uraid_layout::Level;

const MEMBER: &str = "null:1T,request=20us";
const MEMBERS: u16 = 2;
const CHUNK: Sectors = Sectors(256 * KIB);
const STREAMS: u32 = 4;
const DEPTH: u32 = 8;
const SIZES: [Sectors; 4] = [Sectors(64 * KIB), Sectors(192 * KIB), Sectors(256 * KIB), Sectors(1024 * KIB)];
/// As in a file, requests do not begin at a chunk, so a request as long as a chunk lies in two chunks.
const OFFSET: Sectors = Sectors(64 * KIB);
/// How much each stream reads while it is traced: little enough that the members' logs hold every request.
const TRACED: Sectors = Sectors(256 * 1024 * KIB);

pub(crate) fn run(scenario: &str, run: &Run, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let target = Target::in_memory(&Trial::new(Level::Raid0, MEMBERS, CHUNK), MEMBER, 0, screen)?;
    let on = format!("{}, {MEMBER}", target.describe());
    let mut rows = Vec::new();
    for block in SIZES {
        let work =
            Work { pattern: Pattern::Read, block, depth: DEPTH, jobs: STREAMS, offset: OFFSET, ..Work::default() };
        rows.extend(size(scenario, &target, &on, work, run, screen)?);
    }
    Ok(rows)
}

/// Measures requests of one size, merged and not merged in turn.
fn size(
    scenario: &str,
    target: &Target,
    on: &str,
    work: Work,
    run: &Run,
    screen: &dyn Screen,
) -> Result<Vec<Row>, BenchError> {
    let cases = [true, false].map(|merging| {
        let name = format!("{}, merging {}; {on}", work.describe(), if merging { "on" } else { "off" });
        Case { merging, name, ..Case::new(target, on, work.clone(), run) }
    });
    let failed = measure_error(&cases[0].name);
    let outcomes = measure::measure_in_turn(&cases, screen).map_err(&failed)?;
    let raw = (&outcomes[1], Side::Ideal);
    let mut rows = Vec::new();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        let traces = trace(case).map_err(&failed)?;
        let row = Row::beside(scenario, &work, &case.name, outcome, raw, "ideal, not merged");
        rows.push(Row { work: case.name.clone(), member_ios: Some(traces), ..row });
    }
    let ideal = |what: fn(&Sample) -> f64| median(&outcomes[1].each(Side::Ideal, what));
    let latency = Latency::of(&outcomes[1].latencies[Side::Ideal as usize]);
    let raw = [ideal(|sample| sample.rate), ideal(|sample| sample.cpu_ns)];
    screen.print(&text(&work, on, run.rounds, &rows, (raw, latency)));
    Ok(rows)
}

fn text(work: &Work, on: &str, rounds: u32, rows: &[Row], raw: ([f64; 2], Option<Latency>)) -> String {
    let mut out = format!("{on}\n{}; {rounds} rounds\n\n", work.describe());
    let head = ["", "IOPS", "MB/s", "CPU/IO", "p50", "p99", "of raw"];
    let mut cells = vec![head.map(str::to_owned)];
    let mut add = |name: &str, rate: f64, cpu: f64, latency: Option<Latency>, ratio: String| {
        let megabytes = table::megabytes(rate, work);
        let [p50, p99, ..] = table::latency_cells(latency);
        cells.push([name.to_owned(), table::count(rate), megabytes, table::nanos(cpu), p50, p99, ratio]);
    };
    for (name, row) in ["array", "array, merging off"].into_iter().zip(rows) {
        let ratio = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high).unwrap_or_default();
        add(name, row.array, row.cpu_ns_per_io.unwrap_or(0.0), row.latency_ns, ratio);
    }
    let ([rate, cpu], latency) = raw;
    add("raw: not merged", rate, cpu, latency, "1".to_owned());
    table::align(&mut out, &cells);
    writeln!(out, "\n  member I/Os of {} requests", requests(work) * u64::from(STREAMS)).expect("a string takes all");
    let head = ["", "I/Os", "mean", "descending", "off: I/Os", "mean", "descending"];
    let mut cells = vec![head.map(str::to_owned)];
    let traces = |row: &Row| row.member_ios.clone().unwrap_or_default();
    for (merged, cut) in traces(&rows[0]).into_iter().zip(traces(&rows[1])) {
        let kib = |trace: StreamTrace| format!("{:.0}K", trace.mean() as f64 / 1024.0);
        cells.push([
            format!("stream {}, member {}", merged.stream, merged.member),
            merged.ios.to_string(),
            kib(merged),
            merged.descending.to_string(),
            cut.ios.to_string(),
            kib(cut),
            cut.descending.to_string(),
        ]);
    }
    table::align(&mut out, &cells);
    out.push('\n');
    out
}

/// Requests of each stream while it is traced.
fn requests(work: &Work) -> u64 {
    TRACED.0 / work.block.0
}

/// The member I/Os of the streams.
fn trace(case: &Case<'_>) -> Result<Vec<StreamTrace>, measure::MeasureError> {
    let Case { target, work, .. } = case;
    let mut options = uraid_arrays::options_for(MEMBERS);
    (options.merging, options.trace) = (case.merging, true);
    let large = work.block.len_bytes().div_ceil(LARGE_BLOCK_BYTES) as u32 * STREAMS * DEPTH;
    options.arenas[CLIENT_ARENA] = uraid_host::ArenaBlocks { small: 64, large };
    let share = work.share(target.plan.layout.array_size())?;
    let failed = |source| measure::MeasureError::Request { side: "array", source };
    let task = async |on: &OnShard| -> Result<Vec<Vec<Traced>>, measure::MeasureError> {
        let (array, traces) = (&on.arrays[0], &on.traces[0]);
        traces.iter().for_each(|trace| trace.clear());
        let arena = on.local.arena(CLIENT_ARENA);
        let streams = (0..u64::from(STREAMS)).map(|job| {
            let requests = &work.requests(job, share)[..requests(work) as usize];
            read_stream(array, arena, requests.to_vec(), work.block)
        });
        join_all(streams).await.into_iter().collect::<Result<(), IoError>>().map_err(failed)?;
        Ok(traces.iter().map(|trace| trace.log().to_vec()).collect())
    };
    let logs = on_shards(target, 1, &options, Stop::AfterSuccess, on_shards::start, task)?;
    let logs = logs.into_iter().next().expect("one shard gives one value");
    let data_offset = |member: usize| target.plan.members[member].superblock.data_offset;
    let logs = logs.iter().enumerate();
    Ok(logs.flat_map(|(member, log)| by_stream(member, log, data_offset(member), share)).collect())
}

/// Reads all of `requests`, several at once, like a read-ahead.
async fn read_stream(
    array: &HostArray,
    arena: &uraid_block::Arena,
    requests: Vec<Request>,
    block: Sectors,
) -> Result<(), IoError> {
    let next = Cell::new(0);
    let clients = (0..DEPTH).map(|_| async {
        let mut buffer = arena.take(block.len_bytes()).expect("the arena was made for it");
        while let Some(request) = requests.get(next.replace(next.get() + 1)) {
            buffer = array.read(request.at, buffer).await?;
        }
        Ok(())
    });
    join_all(clients).await.into_iter().collect()
}

/// Assigns requests to streams by their addresses. A stream has `share` of the array, and reads only its start.
fn by_stream(member: usize, log: &[Traced], data_offset: uraid_block::Sector, share: Sectors) -> Vec<StreamTrace> {
    let new = |stream| StreamTrace { stream, member, ..StreamTrace::default() };
    let mut streams: Vec<(Option<Traced>, StreamTrace)> = (0..STREAMS as usize).map(|n| (None, new(n))).collect();
    for traced in log {
        // A stream may begin up to a chunk before its part of the member.
        let sector = traced.range.start.0 - data_offset.0 + CHUNK.0;
        let (last, trace) = &mut streams[(sector / (share.0 / u64::from(MEMBERS))) as usize];
        trace.descending += u64::from(last.is_some_and(|last| traced.is_behind(&last)));
        trace.ios += 1;
        trace.bytes += traced.range.length.bytes();
        *last = Some(*traced);
    }
    streams.into_iter().map(|(_, trace)| trace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{Range, Sector};
    use uraid_host::TracedKind;

    #[test]
    fn requests_are_told_apart_by_stream_and_only_those_of_one_stream_can_descend() {
        let (offset, share) = (Sector(2048), Sectors(8 * CHUNK.0));
        let own = share.0 / u64::from(MEMBERS);
        let read = |start, length| Traced {
            kind: TracedKind::Read,
            range: Range::new(Sector(offset.0 + start), Sectors(length)),
            parts: 1,
        };
        // The first stream continues, and then goes back by a sector; the third begins half a chunk before its part.
        let log = [read(0, 8), read(2 * own - CHUNK.0 / 2, 16), read(8, 8), read(15, 8), read(2 * own, 8)];
        let found = by_stream(1, &log, offset, share);
        let counts: Vec<_> = found.iter().map(|trace| (trace.ios, trace.bytes, trace.descending)).collect();
        assert_eq!(counts, [(3, 24 * 512, 1), (0, 0, 0), (2, 24 * 512, 0), (0, 0, 0)]);
        assert_eq!((found[2].stream, found[2].member, found[2].mean(), found[1].mean()), (2, 1, 12 * 512, 0));
    }
}
