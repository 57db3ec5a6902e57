//! What five known reports were about, each as works that can be measured anywhere, and the two budgets of writes.
//! Owns: [`ScenarioName`], the arrays and works of each scenario. Not here: measuring them (`session`, `discard`).
//! Invariant: all members are memory or nothing, so that a scenario needs no disk and changes none.

use super::session::Case;
use super::table::{self, Row};
use super::target::{Target, Trial};
use super::work::{Pattern, Work};
use super::{BenchError, Run, discard};
use crate::{names, print};
use std::time::Duration;
use uraid_block::Sectors;
use uraid_layout::{Level, default_layout};

const KIB: u64 = 2;
/// How often an array that is drained now and then is drained.
const DRAIN_EVERY: Duration = Duration::from_millis(10);

/// The scenarios, in the order in which `all` runs them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ScenarioName {
    /// All of them, one after the other.
    All,
    /// Reads of a healthy raid6, also while it is drained every 10 ms: a lock on this path halved them.
    Raid6Read,
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

const ALL: [ScenarioName; 6] = [
    ScenarioName::Raid6Read,
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
        ScenarioName::Raid6Read => raid6_read(),
        ScenarioName::FullStripe => full_stripe(),
        ScenarioName::SmallWrite => small_write(),
        ScenarioName::Raid1Read => raid1_read(),
        ScenarioName::Alignment => alignment(),
    };
    if is_shown {
        print(&format!("== {}\n\n", name.name()));
    }
    let mut rows = Vec::new();
    for setup in setups {
        let target = Target::trial(&setup.trial, &[setup.member.to_owned()], false)?;
        for step in setup.works {
            let &Run { runtime, rounds, has_latencies } = run;
            let on = format!("{}, {}", target.describe(), setup.member);
            let Step { work, drain_every } = step;
            let drained = drain_every.map_or(String::new(), |every| format!(", drained every {every:?}"));
            let on = format!("{on}{drained}");
            let what = format!("{}; {on}", work.describe());
            let case = Case { target: &target, work, runtime, rounds, has_latencies, name: what, drain_every };
            rows.extend(super::measured(&case, name.name(), &on, is_shown)?);
            if is_shown {
                print("\n");
            }
        }
    }
    Ok(rows)
}

fn trial(level: Level, raid_devices: u16, chunk: Sectors) -> Trial {
    Trial { level, raid_devices, layout: default_layout(level), chunk }
}

fn steps(works: impl IntoIterator<Item = Work>) -> Vec<Step> {
    works.into_iter().map(|work| Step { work, drain_every: None }).collect()
}

fn raid6_read() -> Vec<Setup> {
    let small = Work { pattern: Pattern::Randread, block: Sectors(4 * KIB), ..Work::default() };
    let large = Work { pattern: Pattern::Read, block: Sectors(128 * KIB), ..Work::default() };
    let deep = Work { depth: 1024, ..small.clone() };
    let two_shards = Work { shards: 2, ..small.clone() };
    let trial = trial(Level::Raid6, 8, Sectors(64 * KIB));
    let drained = |work: &Work| Step { work: work.clone(), drain_every: Some(DRAIN_EVERY) };
    let mut on_memory = steps([small.clone(), large.clone()]);
    on_memory.extend([drained(&deep), drained(&Work { depth: 128, ..large })]);
    let mut on_nothing = steps([small, two_shards]);
    on_nothing.push(drained(&deep));
    vec![
        Setup { trial: trial.clone(), member: "mem:64M", works: on_memory },
        Setup { trial, member: "null:1T", works: on_nothing },
    ]
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
    vec![Setup { trial: trial(Level::Raid1, 2, Sectors::ZERO), member: "mem:256M", works: steps([work]) }]
}

fn alignment() -> Vec<Setup> {
    let aligned = Work { pattern: Pattern::Write, block: Sectors(1280 * KIB), depth: 8, jobs: 1, ..Work::default() };
    // Where the first file of the report began: six chunks into a stripe of ten.
    let misaligned = Work { offset: Sectors(384 * KIB), ..aligned.clone() };
    let trial = trial(Level::Raid6, 12, Sectors(64 * KIB));
    vec![Setup { trial, member: "mem:64M", works: steps([aligned, misaligned]) }]
}

/// What drains took, as rows and as a line of the table.
pub fn drain_rows(scenario: &str, what: &str, drains: &[Duration], is_shown: bool) -> Vec<Row> {
    if drains.is_empty() {
        return Vec::new();
    }
    let mut nanos: Vec<f64> = drains.iter().map(|time| time.as_nanos() as f64).collect();
    nanos.sort_by(f64::total_cmp);
    let (p50, max) = (super::figures::median(&nanos), nanos[nanos.len() - 1]);
    if is_shown {
        let (count, p50, max) = (nanos.len(), table::nanos(p50), table::nanos(max));
        print(&names::printable_lines(&format!("  time to drain: p50 {p50}, max {max}, {count} drains\n")));
    }
    let row = |which: &str, value| Row::bare(scenario, &format!("time to drain, {which}; {what}"), value, "ns");
    vec![row("p50", p50), row("max", max)]
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
        for setup in [raid6_read(), full_stripe(), small_write(), raid1_read(), alignment()].into_iter().flatten() {
            for step in setup.works {
                assert_eq!(step.work.check(), Ok(()), "{}", step.work.describe());
            }
        }
    }
}
