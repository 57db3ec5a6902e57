//! The scenarios `resync`, `recovery`, `replace` and `check`: how fast a pass is, compared with plain reads of a member.
//! Owns: their arrays, the rounds. Not here: the passes (`engine::pass`), clients beside them (`beside_pass`).
//! Invariant: the pass and the plain reads read the same bytes of a member, in turn within each round.

use crate::figures::{Interval, median};
use crate::measure::MeasureError;
use crate::measure::on_shards::{self, members_on, on_shards};
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::target::{Target, Trial, TrialError};
use crate::{BenchError, Run};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;
use uraid_arrays::{ArrayMember, HostArray, OnShard, Stop};
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::join_all;
use uraid_block::{Device, IoError, Sector, Sectors, Slot};
use uraid_engine::Place;
use uraid_format::Role;
use uraid_host::{Access, ArenaBlocks, CLIENT_ARENA, Claimed, Local};

/// Members as fast as disks, which a pass should keep busy, and members that are faster than a pass.
const MEMBERS: [&str; 2] = ["null:256M,bandwidth=500M", "mem:64M"];
/// The size of a plain read, and how many are in flight: enough for any device.
const BLOCK: Sectors = Sectors(2048);
const DEPTH: u64 = 4;

/// Which pass is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    Resync,
    Recovery,
    Replace,
    Check,
}

/// Measures this pass, with the same arrays for each.
pub(crate) fn run(scenario: &str, pass: Measured, run: &Run, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    screen.print(&format!("== {scenario}\n\n"));
    for trial in Trial::redundant() {
        for member in MEMBERS {
            let mut target = Target::in_memory(&trial, member, 0, screen)?;
            match pass {
                Measured::Resync => target.plan.is_dirty = true,
                Measured::Recovery => {
                    target.plan.members[1].place = Place::Recovering { slot: Slot(1), below: Sectors::ZERO };
                }
                Measured::Replace => add_second(&mut target, member)?,
                Measured::Check => {}
            }
            let what = format!("{scenario}; {}, {member}", target.describe());
            let failed = |source| BenchError::Measure { what: what.clone(), source };
            let rounds: Vec<Round> =
                (0..run.rounds).map(|_| round(&target, pass)).collect::<Result<_, _>>().map_err(failed)?;
            let row = row(scenario, &what, &rounds);
            let ratio = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high).unwrap_or_default();
            let (array, raw) = (row.array, row.raw.unwrap_or_default());
            screen.print(&format!("  {what}\n    {array:.2} GB/s of each member, bare reads {raw:.2} GB/s: {ratio}\n"));
            rows.push(row);
        }
    }
    screen.print("\n");
    Ok(rows)
}

/// Adds a member to which that of slot 1 is copied.
fn add_second(target: &mut Target, member: &str) -> Result<(), BenchError> {
    let slot = Slot(1);
    target.members.push(Claimed::open(member, Access::ReadWrite).map_err(TrialError::from)?);
    let mut second = target.plan.members[slot.index()].clone();
    second.place = Place::Replacing { slot, below: Sectors::ZERO };
    let number = target.plan.members.len();
    second.superblock.dev_number = number as u32;
    target.plan.members.push(second);
    target.plan.template.roles.resize(number, Role::Faulty);
    target.plan.template.roles.push(Role::Slot(slot));
    Ok(())
}

/// In GB/s of one member.
struct Round {
    pass: f64,
    raw: f64,
}

fn row(scenario: &str, what: &str, rounds: &[Round]) -> Row {
    let all = |figure: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(figure).collect() };
    Row {
        raw: Some(median(&all(|round| round.raw))),
        against: "bare reads of a member",
        ..Row::bare(scenario, what, median(&all(|round| round.pass)), "GB/s")
    }
    .with_ratio(Some(Interval::of(&all(|round| round.pass / round.raw))))
}

/// Measures the pass that the start of the array begins, or a check, and plain reads of the same bytes of its first
/// member.
fn round(target: &Target, measured: Measured) -> Result<Round, MeasureError> {
    let mut options = uraid_arrays::options_for(target.plan.layout.slots());
    let large = u32::try_from(2 * DEPTH * BLOCK.bytes().div_ceil(LARGE_BLOCK_BYTES as u64)).expect("some MiB");
    options.arenas[CLIENT_ARENA] = ArenaBlocks { small: 64, large };
    let used = target.plan.layout.member_used(Slot(0));
    let started_at = OnceLock::new();
    let start = async |array: &Rc<HostArray>| {
        let is_check = measured == Measured::Check;
        if is_check {
            on_shards::start(array).await?;
        }
        started_at.set(Instant::now()).expect("there is one array");
        if !is_check {
            return on_shards::start(array).await;
        }
        array.begin_check().expect("a whole array can be checked");
        uraid_arrays::wait(array, &mut |_| ()).await
    };
    let task = async |on: &OnShard| -> Result<Round, MeasureError> {
        let pass = speed(used, *started_at.get().expect("the array is started"));
        let members = members_on(&on.local, target);
        let began = Instant::now();
        let source = read(&on.local, &members[0], target.plan.members[0].superblock.data_offset, used).await;
        source.map_err(|source| MeasureError::Request { side: "raw", source })?;
        Ok(Round { pass, raw: speed(used, began) })
    };
    let found = on_shards(target, 1, &options, Stop::AfterSuccess, start, task)?;
    Ok(found.into_iter().next().expect("one shard gives one value"))
}

fn speed(sectors: Sectors, began: Instant) -> f64 {
    sectors.bytes() as f64 / began.elapsed().as_secs_f64() / 1e9
}

async fn read(local: &Local, member: &ArrayMember, start: Sector, length: Sectors) -> Result<(), IoError> {
    let reads = async |reader: u64| {
        let mut at = reader * BLOCK.0;
        while at < length.0 {
            let block = BLOCK.min(Sectors(length.0 - at));
            let into = local.arena(CLIENT_ARENA).take(block.len_bytes()).expect("the arena holds two of each");
            member.read(Sector(start.0 + at), into).await?;
            at += DEPTH * BLOCK.0;
        }
        Ok(())
    };
    join_all((0..DEPTH).map(reads)).await.into_iter().collect()
}
