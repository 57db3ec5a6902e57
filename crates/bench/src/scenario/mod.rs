//! The scenarios: known performance reports as works that can be measured anywhere, and the two budgets of writes.
//! Owns: [`ScenarioName`], the arrays and works of each scenario. Not here: measuring them (`measure`), scenarios with a
//! measurement of their own (a file each).
//! Invariant: all members are memory or nothing, so that a scenario needs no disk and changes none.

pub(crate) mod beside_pass;
pub(crate) mod bitmap;
pub(crate) mod cycles;
pub(crate) mod discard;
pub(crate) mod order;
pub(crate) mod passes;
pub(crate) mod shards;

use crate::figures::{Interval, median};
use crate::measure::{Case, DrainTime};
use crate::report::table::{self, Row};
use crate::scenario::passes::Measured;
use crate::screen::Screen;
use crate::target::{KIB, Target, Trial};
use crate::work::{Pattern, Work};
use crate::{BenchError, Run};
use std::time::Duration;
use uraid_block::Sectors;
use uraid_layout::Level;

/// The period of drains.
const DRAIN_EVERY: Duration = Duration::from_millis(10);

/// The scenarios, in the order in which `all` runs them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ScenarioName {
    /// All of them, one after the other.
    All,
    /// Reads of a healthy raid6, also while it is drained every 10 ms: in the report, a lock on this path halved them.
    Raid6Read,
    /// A million drains among clients on two shards, none of which may be lost.
    DrainCycles,
    /// Sequential streams on a raid0 whose members take time for each request: in the report, requests that were cut
    /// and came in the wrong order cost a third.
    Raid0Order,
    /// Reads and writes of a raid10.
    Raid10,
    /// Discard of a whole array: in the report it took minutes, because it was cut into pieces of a chunk.
    Raid10Discard,
    /// Arrays that were not stopped cleanly are made consistent, beside the bare reads of a member.
    Resync,
    /// A member of each array is recovered, beside the same.
    Recovery,
    /// A member of each array is copied to another one, beside the same.
    Replace,
    /// Whole arrays are checked, beside the same.
    Check,
    /// 4 KiB random writes of a raid1 beside a resync of 200 MB/s, beside one without limits, and into the window of a
    /// pass.
    BesidePass,
    /// Random writes beside a recovery.
    BesideRecovery,
    /// 4 KiB random writes with a write-intent bitmap, beside the same array without one.
    Bitmap,
    /// Sequential writes of whole stripes, beside the member writes and the parity alone.
    FullStripe,
    /// 4 KiB random writes of a raid5, beside two reads and two writes alone.
    SmallWrite,
    /// Many sequential readers of a mirror: in the report, a lock on this path cost a third.
    Raid1Read,
    /// Writes of two stripes, aligned and not: in the report, the difference was a quarter.
    Alignment,
    /// 4 KiB random reads of a raid10, and of a raid5 that has lost a member.
    RandomRead,
    /// 4 KiB random writes of levels without parity.
    RandomWrite,
}

const ALL: [ScenarioName; 18] = [
    ScenarioName::Raid6Read,
    ScenarioName::DrainCycles,
    ScenarioName::Raid0Order,
    ScenarioName::Raid10,
    ScenarioName::Raid10Discard,
    ScenarioName::Resync,
    ScenarioName::Recovery,
    ScenarioName::Replace,
    ScenarioName::Check,
    ScenarioName::BesidePass,
    ScenarioName::BesideRecovery,
    ScenarioName::Bitmap,
    ScenarioName::FullStripe,
    ScenarioName::SmallWrite,
    ScenarioName::Raid1Read,
    ScenarioName::Alignment,
    ScenarioName::RandomRead,
    ScenarioName::RandomWrite,
];

impl ScenarioName {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ScenarioName::All => "all",
            ScenarioName::Raid6Read => "raid6-read",
            ScenarioName::DrainCycles => "drain-cycles",
            ScenarioName::Raid0Order => "raid0-order",
            ScenarioName::Raid10 => "raid10",
            ScenarioName::Raid10Discard => "raid10-discard",
            ScenarioName::Resync => "resync",
            ScenarioName::Recovery => "recovery",
            ScenarioName::Replace => "replace",
            ScenarioName::Check => "check",
            ScenarioName::BesidePass => "beside-pass",
            ScenarioName::BesideRecovery => "beside-recovery",
            ScenarioName::Bitmap => "bitmap",
            ScenarioName::FullStripe => "full-stripe",
            ScenarioName::SmallWrite => "small-write",
            ScenarioName::Raid1Read => "raid1-read",
            ScenarioName::Alignment => "alignment",
            ScenarioName::RandomRead => "random-read",
            ScenarioName::RandomWrite => "random-write",
        }
    }
}

/// One array and what is done with it.
#[derive(Clone)]
struct Setup {
    trial: Trial,
    member: &'static str,
    /// How many slots have no member.
    missing: u16,
    /// Whether the time of each request is not taken: reading the clock would cost as much as the request itself.
    gtod_reduce: bool,
    works: Vec<Step>,
    /// Works that are measured on one shard and on two, in turn.
    shards: Vec<Work>,
}

impl Setup {
    fn new(trial: &Trial, member: &'static str, works: Vec<Step>) -> Setup {
        Setup { trial: trial.clone(), member, missing: 0, gtod_reduce: false, works, shards: Vec::new() }
    }
}

/// One work, and whether the array is drained during it.
#[derive(Clone)]
struct Step {
    work: Work,
    drain_every: Option<Duration>,
}

/// Measures a scenario, or all of them.
pub fn run(name: ScenarioName, run: &Run, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let setups = match name {
        ScenarioName::All => {
            let mut rows = Vec::new();
            for one in ALL {
                rows.extend(self::run(one, run, screen)?);
            }
            return Ok(rows);
        }
        ScenarioName::Raid10Discard => return discard::run(name.name(), screen),
        ScenarioName::Resync => return passes::run(name.name(), Measured::Resync, run, screen),
        ScenarioName::Recovery => return passes::run(name.name(), Measured::Recovery, run, screen),
        ScenarioName::Replace => return passes::run(name.name(), Measured::Replace, run, screen),
        ScenarioName::Check => return passes::run(name.name(), Measured::Check, run, screen),
        ScenarioName::BesidePass => return beside_pass::run(name.name(), run, screen),
        ScenarioName::BesideRecovery => return beside_pass::run_recovery(name.name(), run, screen),
        ScenarioName::Bitmap => return bitmap::run(name.name(), run, screen),
        ScenarioName::DrainCycles => return cycles::run(name.name(), run.cycles, screen),
        ScenarioName::Raid6Read => raid6_read(),
        ScenarioName::Raid0Order => raid0_order(),
        ScenarioName::Raid10 => raid10(),
        ScenarioName::FullStripe => full_stripe(),
        ScenarioName::SmallWrite => small_write(),
        ScenarioName::Raid1Read => raid1_read(),
        ScenarioName::Alignment => alignment(),
        ScenarioName::RandomRead => random_read(),
        ScenarioName::RandomWrite => random_write(),
    };
    screen.print(&format!("== {}\n\n", name.name()));
    let mut rows = Vec::new();
    if name == ScenarioName::Raid0Order {
        rows.extend(order::run(name.name(), run, screen)?);
    }
    for setup in setups {
        let target = Target::in_memory(&setup.trial, setup.member, setup.missing, screen)?;
        let run = &Run { has_latencies: run.has_latencies && !setup.gtod_reduce, ..*run };
        let on = format!("{}, {}", target.describe(), setup.member);
        for work in &setup.shards {
            rows.extend(shards::run(name.name(), &target, &on, work, run, screen)?);
        }
        for step in setup.works {
            let Step { work, drain_every } = step;
            let drained = drain_every.map_or(String::new(), |every| format!(", drained every {every:?}"));
            let on = format!("{on}{drained}");
            let case = Case { drain_every, ..Case::new(&target, &on, work, run) };
            rows.extend(crate::measured(&case, name.name(), &on, screen)?);
            screen.print("\n");
        }
    }
    Ok(rows)
}

fn still(work: &Work) -> Step {
    Step { work: work.clone(), drain_every: None }
}

fn drained(work: &Work) -> Step {
    Step { work: work.clone(), drain_every: Some(DRAIN_EVERY) }
}

fn raid6_read() -> Vec<Setup> {
    let small = Work { pattern: Pattern::Randread, block: Sectors(4 * KIB), ..Work::default() };
    let large = Work { pattern: Pattern::Read, block: Sectors(128 * KIB), ..Work::default() };
    let deep = Work { depth: 1024, ..small.clone() };
    let trial = Trial::new(Level::Raid6, 8, Sectors(64 * KIB));
    let on_memory = vec![still(&small), still(&large), drained(&deep), drained(&Work { depth: 128, ..large })];
    vec![
        Setup::new(&trial, "mem:64M", on_memory),
        Setup::new(&trial, "mem:64M,request=1500ns", vec![still(&small)]),
        Setup { shards: vec![small], ..Setup::new(&trial, "null:1T", vec![drained(&deep)]) },
        // These members take time. If they answered at once, all requests would end before a drain begins.
        Setup::new(&trial, "null:1T,request=20us", vec![drained(&deep)]),
    ]
}

fn raid0_order() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Read, block: Sectors(1024 * KIB), depth: 8, ..Work::default() };
    let raid0 = Trial::new(Level::Raid0, 2, Sectors(256 * KIB));
    vec![
        Setup::new(&raid0, "mem:256M", vec![still(&work), drained(&work)]),
        Setup::new(&raid0, "null:1T", vec![still(&work)]),
    ]
}

fn raid10() -> Vec<Setup> {
    let reads = Work { pattern: Pattern::Read, block: Sectors(64 * KIB), ..Work::default() };
    let writes = Work { pattern: Pattern::Write, ..reads.clone() };
    let random = |work: &Work, pattern| Work { pattern, ..work.clone() };
    let (random_reads, random_writes) = (random(&reads, Pattern::Randread), random(&writes, Pattern::Randwrite));
    let works = [&random_reads, &random_writes, &reads, &writes].map(still);
    let works = works.into_iter().chain([drained(&reads)]).collect();
    vec![Setup::new(&Trial::new(Level::Raid10, 4, Sectors(512 * KIB)), "mem:128M", works)]
}

fn full_stripe() -> Vec<Setup> {
    let stripe = |chunks: u64| {
        let block = Sectors(chunks * 64 * KIB);
        vec![still(&Work { pattern: Pattern::Write, block, depth: 8, ..Work::default() })]
    };
    let raid5 = Trial::new(Level::Raid5, 5, Sectors(64 * KIB));
    let raid6 = Trial::new(Level::Raid6, 8, Sectors(64 * KIB));
    vec![
        Setup::new(&raid5, "mem:64M", stripe(4)),
        Setup::new(&raid6, "mem:64M", stripe(6)),
        Setup::new(&raid5, "null:1T", stripe(4)),
        Setup::new(&raid6, "null:1T", stripe(6)),
    ]
}

fn small_write() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Randwrite, ..Work::default() };
    // At depth 1 with two shards, half of the writes travel to their row's owner and back; with one shard none does.
    // Without busy-polling, both shards sleep meanwhile.
    let alone = Work { depth: 1, ..work.clone() };
    let asleep = vec![still(&Work { shards: 2, spin: Duration::ZERO, ..alone.clone() })];
    let raid5 = Trial::new(Level::Raid5, 5, Sectors(64 * KIB));
    let on = |member| Setup { shards: vec![work.clone(), alone.clone()], ..Setup::new(&raid5, member, asleep.clone()) };
    ["mem:64M", "null:1T"].map(on).to_vec()
}

fn raid1_read() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Read, block: Sectors(64 * KIB), depth: 128, jobs: 40, ..Work::default() };
    let raid1 = Trial::new(Level::Raid1, 2, Sectors::ZERO);
    vec![Setup::new(&raid1, "mem:256M", vec![still(&work), drained(&work)])]
}

fn alignment() -> Vec<Setup> {
    let aligned = Work { pattern: Pattern::Write, block: Sectors(1280 * KIB), depth: 8, jobs: 1, ..Work::default() };
    // The start of the first file in the report: six chunks into a stripe of ten.
    let misaligned = Work { offset: Sectors(384 * KIB), ..aligned.clone() };
    let trial = Trial::new(Level::Raid6, 12, Sectors(64 * KIB));
    vec![Setup::new(&trial, "mem:64M", [aligned, misaligned].iter().map(still).collect())]
}

/// Null members. The requests of the first complete within the call, those of the second are in flight for a while.
/// Neither reads a clock.
const WITHOUT_CLOCK: [&str; 2] = ["null:1T", "null:1T,completion=deferred"];

fn random_read() -> Vec<Setup> {
    let work = still(&Work { pattern: Pattern::Randread, ..Work::default() });
    let raid10 = Trial::new(Level::Raid10, 4, Sectors(64 * KIB));
    let raid5 = Trial::new(Level::Raid5, 5, Sectors(64 * KIB));
    let on = |member| {
        [(&raid10, 0), (&raid5, 1)].map(|(trial, missing)| Setup {
            missing,
            gtod_reduce: true,
            ..Setup::new(trial, member, vec![work.clone()])
        })
    };
    WITHOUT_CLOCK.into_iter().flat_map(on).collect()
}

fn random_write() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Randwrite, ..Work::default() };
    let raid0 = Trial::new(Level::Raid0, 4, Sectors(64 * KIB));
    let raid1 = Trial::new(Level::Raid1, 2, Sectors::ZERO);
    let raid10 = Trial::new(Level::Raid10, 4, Sectors(64 * KIB));
    let on = |member| {
        let without_clock = |trial| Setup { gtod_reduce: true, ..Setup::new(trial, member, Vec::new()) };
        let mirrors = [&raid1, &raid10].map(|trial| Setup { shards: vec![work.clone()], ..without_clock(trial) });
        [Setup { works: vec![still(&work)], ..without_clock(&raid0) }].into_iter().chain(mirrors)
    };
    WITHOUT_CLOCK.into_iter().flat_map(on).collect()
}

/// The times of drains and the times until the requests in flight were answered: returned as rows, and shown as a line
/// of the table.
pub(crate) fn drain_rows(scenario: &str, what: &str, drains: &[DrainTime], screen: &dyn Screen) -> Vec<Row> {
    if drains.is_empty() {
        return Vec::new();
    }
    let nanos = |time: Duration| time.as_nanos() as f64;
    let took: Vec<f64> = drains.iter().map(|drain| nanos(drain.took)).collect();
    let in_flight: Vec<f64> = drains.iter().map(|drain| f64::from(drain.in_flight)).collect();
    let in_flight = median(&in_flight);
    // If members answer at once, almost nothing is in flight when a drain begins, and its time is that of turns of the
    // executor.
    let is_met = in_flight * 2.0 > f64::from(drains[0].clients);
    let answered = drains.iter().map(|drain| drain.answered.filter(|_| is_met).map(nanos));
    let answered: Option<Vec<f64>> = answered.collect();
    let ratio = answered.as_ref().map(|answered| {
        Interval::of(&took.iter().zip(answered).map(|(took, answered)| took / answered).collect::<Vec<f64>>())
    });
    let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let row = |which: &str, of: fn(&[f64]) -> f64| Row {
        raw: answered.as_deref().map(of),
        against: if answered.is_some() { "in flight" } else { "nothing" },
        in_flight: Some(in_flight),
        ..Row::bare(scenario, &format!("time to drain, {which}; {what}"), of(&took), "ns")
    };
    let rows = vec![row("p50", median).with_ratio(ratio), row("max", max)];
    let both = |of: &dyn Fn(&Row) -> Option<f64>| {
        let [p50, max] = [0, 1].map(|n| of(&rows[n]).map_or("-".to_owned(), table::nanos));
        format!("p50 {p50}, max {max}")
    };
    let mut line = format!("  time to drain: {}, {} drains", both(&|row| Some(row.array)), drains.len());
    if answered.is_some() {
        line += &format!("; the {in_flight:.0} in flight were answered after {}", both(&|row| row.raw));
    }
    screen.print(&format!("{line}\n"));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn all_runs_every_scenario_under_the_name_that_selects_it() {
        let others = ScenarioName::value_variants().iter().filter(|name| **name != ScenarioName::All);
        assert_eq!(others.copied().collect::<Vec<_>>(), ALL);
        for name in ScenarioName::value_variants() {
            let spelled = name.to_possible_value().expect("none is hidden");
            assert_eq!(spelled.get_name(), name.name());
        }
    }

    #[test]
    fn works_of_all_scenarios_can_be() {
        let setups = [
            raid6_read(),
            raid0_order(),
            raid10(),
            full_stripe(),
            small_write(),
            raid1_read(),
            alignment(),
            random_read(),
            random_write(),
        ];
        for setup in setups.into_iter().flatten() {
            for work in setup.works.iter().map(|step| &step.work).chain(&setup.shards) {
                assert_eq!(work.check(), Ok(()), "{}", work.describe());
            }
        }
    }
}
