//! What five known reports were about, each as works that can be measured anywhere, and the two budgets of writes.
//! Owns: [`ScenarioName`], the arrays and works of each scenario. Not here: measuring them (`session`, `discard`).
//! Invariant: all members are memory or nothing, so that a scenario needs no disk and changes none.

use super::figures::{Interval, median};
use super::session::{Case, DrainTime};
use super::table::{self, Row};
use super::target::{Target, Trial};
use super::work::{Pattern, Work};
use super::{BenchError, Run, cycles, discard, order, shards};
use crate::{names, print};
use std::time::Duration;
use uraid_block::Sectors;
use uraid_layout::{Level, default_layout};

/// Sectors of a KiB.
pub const KIB: u64 = 2;
/// How often an array that is drained now and then is drained.
const DRAIN_EVERY: Duration = Duration::from_millis(10);

/// The scenarios, in the order in which `all` runs them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ScenarioName {
    /// All of them, one after the other.
    All,
    /// Reads of a healthy raid6, also while it is drained every 10 ms: a lock on this path halved them.
    Raid6Read,
    /// A million drains among clients on two shards, none of which may be lost.
    DrainCycles,
    /// Sequential streams on a raid0 whose members take time for each request: cut and in the wrong order, they lost a third.
    Raid0Order,
    /// Reads and writes of a raid10.
    Raid10,
    /// Discard of a whole array: it took minutes where it was cut into pieces of a chunk.
    Raid10Discard,
    /// Sequential writes of whole stripes, beside the member writes and the parity alone.
    FullStripe,
    /// 4 KiB random writes of a raid5, beside two reads and two writes alone.
    SmallWrite,
    /// Many sequential readers of a mirror: a lock on this path cost a third.
    Raid1Read,
    /// Writes of two stripes, aligned and not: the difference was a quarter.
    Alignment,
}

const ALL: [ScenarioName; 9] = [
    ScenarioName::Raid6Read,
    ScenarioName::DrainCycles,
    ScenarioName::Raid0Order,
    ScenarioName::Raid10,
    ScenarioName::Raid10Discard,
    ScenarioName::FullStripe,
    ScenarioName::SmallWrite,
    ScenarioName::Raid1Read,
    ScenarioName::Alignment,
];

impl ScenarioName {
    fn name(self) -> &'static str {
        match self {
            ScenarioName::All => "all",
            ScenarioName::Raid6Read => "raid6-read",
            ScenarioName::DrainCycles => "drain-cycles",
            ScenarioName::Raid0Order => "raid0-order",
            ScenarioName::Raid10 => "raid10",
            ScenarioName::Raid10Discard => "raid10-discard",
            ScenarioName::FullStripe => "full-stripe",
            ScenarioName::SmallWrite => "small-write",
            ScenarioName::Raid1Read => "raid1-read",
            ScenarioName::Alignment => "alignment",
        }
    }
}

/// One array and what is done with it.
struct Setup {
    trial: Trial,
    member: &'static str,
    works: Vec<Step>,
}

/// One work, and whether the array is drained meanwhile.
struct Step {
    work: Work,
    drain_every: Option<Duration>,
}

/// Measures a scenario, or all of them.
pub fn run(name: ScenarioName, run: &Run, is_shown: bool) -> Result<Vec<Row>, BenchError> {
    let setups = match name {
        ScenarioName::All => {
            let mut rows = Vec::new();
            for one in ALL {
                rows.extend(self::run(one, run, is_shown)?);
            }
            return Ok(rows);
        }
        ScenarioName::Raid10Discard => return discard::run(name.name(), is_shown),
        ScenarioName::DrainCycles => return cycles::run(name.name(), run.cycles, is_shown),
        ScenarioName::Raid6Read => raid6_read(),
        ScenarioName::Raid0Order => raid0_order(),
        ScenarioName::Raid10 => raid10(),
        ScenarioName::FullStripe => full_stripe(),
        ScenarioName::SmallWrite => small_write(),
        ScenarioName::Raid1Read => raid1_read(),
        ScenarioName::Alignment => alignment(),
    };
    if is_shown {
        print(&format!("== {}\n\n", name.name()));
    }
    let mut rows = match name {
        ScenarioName::Raid0Order => order::run(name.name(), run, is_shown)?,
        ScenarioName::Raid6Read => {
            let on = trial(Level::Raid6, 8, Sectors(64 * KIB));
            shards::run(name.name(), (&on, "null:1T"), &random_reads(), run, is_shown)?
        }
        ScenarioName::All
        | ScenarioName::DrainCycles
        | ScenarioName::Raid10
        | ScenarioName::Raid10Discard
        | ScenarioName::FullStripe
        | ScenarioName::SmallWrite
        | ScenarioName::Raid1Read
        | ScenarioName::Alignment => Vec::new(),
    };
    for setup in setups {
        let target = Target::trial(&setup.trial, &[setup.member.to_owned()], false)?;
        for step in setup.works {
            let &Run { runtime, rounds, has_latencies, .. } = run;
            let on = format!("{}, {}", target.describe(), setup.member);
            let Step { work, drain_every } = step;
            let drained = drain_every.map_or(String::new(), |every| format!(", drained every {every:?}"));
            let on = format!("{on}{drained}");
            let what = format!("{}; {on}", work.describe());
            let case =
                Case { target: &target, work, runtime, rounds, has_latencies, name: what, drain_every, merging: true };
            rows.extend(super::measured(&case, name.name(), &on, is_shown)?);
            if is_shown {
                print("\n");
            }
        }
    }
    Ok(rows)
}

/// With the default layout.
pub fn trial(level: Level, raid_devices: u16, chunk: Sectors) -> Trial {
    Trial { level, raid_devices, layout: default_layout(level), chunk }
}

fn steps(works: impl IntoIterator<Item = Work>) -> Vec<Step> {
    works.into_iter().map(|work| still(&work)).collect()
}

fn still(work: &Work) -> Step {
    Step { work: work.clone(), drain_every: None }
}

/// 4 KiB, depth 32.
fn random_reads() -> Work {
    Work { pattern: Pattern::Randread, block: Sectors(4 * KIB), ..Work::default() }
}

fn drained(work: &Work) -> Step {
    Step { work: work.clone(), drain_every: Some(DRAIN_EVERY) }
}

fn raid6_read() -> Vec<Setup> {
    let small = random_reads();
    let large = Work { pattern: Pattern::Read, block: Sectors(128 * KIB), ..Work::default() };
    let deep = Work { depth: 1024, ..small.clone() };
    let trial = trial(Level::Raid6, 8, Sectors(64 * KIB));
    let on_memory = vec![still(&small), still(&large), drained(&deep), drained(&Work { depth: 128, ..large })];
    vec![
        Setup { trial: trial.clone(), member: "mem:64M", works: on_memory },
        Setup { trial: trial.clone(), member: "mem:64M,request=1500ns", works: steps([small]) },
        Setup { trial: trial.clone(), member: "null:1T", works: vec![drained(&deep)] },
        // Members that answer at once have answered before a drain begins: these have not.
        Setup { trial, member: "null:1T,request=20us", works: vec![drained(&deep)] },
    ]
}

fn raid0_order() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Read, block: Sectors(1024 * KIB), depth: 8, ..Work::default() };
    let raid0 = trial(Level::Raid0, 2, Sectors(256 * KIB));
    vec![
        Setup { trial: raid0.clone(), member: "mem:256M", works: vec![still(&work), drained(&work)] },
        Setup { trial: raid0, member: "null:1T", works: steps([work]) },
    ]
}

fn raid10() -> Vec<Setup> {
    let reads = Work { pattern: Pattern::Read, block: Sectors(64 * KIB), ..Work::default() };
    let writes = Work { pattern: Pattern::Write, ..reads.clone() };
    let random = |work: &Work, pattern| Work { pattern, ..work.clone() };
    let mut works = steps([random(&reads, Pattern::Randread), random(&writes, Pattern::Randwrite)]);
    works.extend(steps([reads.clone(), writes]));
    works.push(drained(&reads));
    vec![Setup { trial: trial(Level::Raid10, 4, Sectors(512 * KIB)), member: "mem:128M", works }]
}

fn full_stripe() -> Vec<Setup> {
    let stripe = |chunks: u64| {
        let block = Sectors(chunks * 64 * KIB);
        steps([Work { pattern: Pattern::Write, block, depth: 8, ..Work::default() }])
    };
    let raid5 = trial(Level::Raid5, 5, Sectors(64 * KIB));
    let raid6 = trial(Level::Raid6, 8, Sectors(64 * KIB));
    vec![
        Setup { trial: raid5.clone(), member: "mem:64M", works: stripe(4) },
        Setup { trial: raid6.clone(), member: "mem:64M", works: stripe(6) },
        Setup { trial: raid5, member: "null:1T", works: stripe(4) },
        Setup { trial: raid6, member: "null:1T", works: stripe(6) },
    ]
}

fn small_write() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Randwrite, ..Work::default() };
    // At depth 1 half of two shards' writes travel to their row's owner and back, those of one shard do not; without
    // looking round, both shards sleep meanwhile.
    let alone = Work { depth: 1, ..work.clone() };
    let two = |work: &Work| Work { shards: 2, ..work.clone() };
    let asleep = Work { spin: Duration::ZERO, ..two(&alone) };
    let works = || steps([work.clone(), two(&work), alone.clone(), two(&alone), asleep.clone()]);
    let raid5 = trial(Level::Raid5, 5, Sectors(64 * KIB));
    vec![
        Setup { trial: raid5.clone(), member: "mem:64M", works: works() },
        Setup { trial: raid5, member: "null:1T", works: works() },
    ]
}

fn raid1_read() -> Vec<Setup> {
    let work = Work { pattern: Pattern::Read, block: Sectors(64 * KIB), depth: 128, jobs: 40, ..Work::default() };
    vec![Setup {
        trial: trial(Level::Raid1, 2, Sectors::ZERO),
        member: "mem:256M",
        works: vec![still(&work), drained(&work)],
    }]
}

fn alignment() -> Vec<Setup> {
    let aligned = Work { pattern: Pattern::Write, block: Sectors(1280 * KIB), depth: 8, jobs: 1, ..Work::default() };
    // Where the first file of the report began: six chunks into a stripe of ten.
    let misaligned = Work { offset: Sectors(384 * KIB), ..aligned.clone() };
    let trial = trial(Level::Raid6, 12, Sectors(64 * KIB));
    vec![Setup { trial, member: "mem:64M", works: steps([aligned, misaligned]) }]
}

/// What drains took, beside what those in flight took anyway, as rows and as a line of the table.
pub fn drain_rows(scenario: &str, what: &str, drains: &[DrainTime], is_shown: bool) -> Vec<Row> {
    if drains.is_empty() {
        return Vec::new();
    }
    let nanos = |time: Duration| time.as_nanos() as f64;
    let took: Vec<f64> = drains.iter().map(|drain| nanos(drain.took)).collect();
    let answered: Option<Vec<f64>> = drains.iter().map(|drain| drain.answered.map(nanos)).collect();
    let in_flight: Vec<f64> = drains.iter().map(|drain| f64::from(drain.in_flight)).collect();
    let in_flight = median(&in_flight);
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
    if is_shown {
        let both = |of: &dyn Fn(&Row) -> Option<f64>| {
            let [p50, max] = [0, 1].map(|n| of(&rows[n]).map_or("-".to_owned(), table::nanos));
            format!("p50 {p50}, max {max}")
        };
        let mut line = format!("  time to drain: {}, {} drains", both(&|row| Some(row.array)), drains.len());
        if in_flight > 0.0 {
            line += &format!("; the {in_flight:.0} in flight were answered after {}", both(&|row| row.raw));
        }
        print(&names::printable_lines(&format!("{line}\n")));
    }
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
        for setup in [raid6_read(), raid0_order(), raid10(), full_stripe(), small_write(), raid1_read(), alignment()]
            .into_iter()
            .flatten()
        {
            for step in setup.works {
                assert_eq!(step.work.check(), Ok(()), "{}", step.work.describe());
            }
        }
    }
}
