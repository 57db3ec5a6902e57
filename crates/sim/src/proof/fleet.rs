//! Runs many seeds on all cores, and sums up their results.
//! Owns: [`run_seeds`], [`Sum`]. Not here: a single seed (`scenario`).
//! Invariant: the sum does not depend on which core ran which seed.

use crate::machine::fault_kind::FaultKind;
use crate::random::rng::mix;
use crate::rig::tally::Tally;
use crate::scenario::{LONG_FAULTS, LONG_OPERATIONS, Options, Outcome, run_seed};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use uraid_engine::mark::Mark;

/// The summed results of many seeds.
#[derive(Clone, Default, Debug)]
pub struct Sum {
    /// Seeds run.
    pub seeds: u64,
    /// Whether they were long seeds.
    pub is_long: bool,
    /// Counts of all.
    pub tally: Tally,
    /// Seeds per level and layout.
    pub kinds: BTreeMap<String, u64>,
    /// Polls and events.
    pub steps: u64,
    /// Virtual nanoseconds.
    pub time: u64,
    /// Sectors compared with the oracle.
    pub sectors: u64,
    /// All trace hashes combined.
    pub hash: u64,
    /// How often each rare branch of the engine was taken, in the order of `Mark::ALL`.
    pub marks: Vec<u64>,
    /// The smallest numbers of client operations and of faults in a seed.
    pub least: Option<(u64, u64)>,
    /// Seeds that reached the operations and faults of a long seed; some end earlier.
    pub full: u64,
    /// The seeds with findings, and the findings.
    pub failures: BTreeMap<u64, String>,
}

impl Sum {
    /// Adds the outcome of a seed.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        *self.kinds.entry(outcome.kind.clone()).or_default() += 1;
        self.steps += outcome.steps;
        self.time += outcome.time;
        self.sectors += outcome.sectors;
        // A sum does not depend on the order.
        self.hash = self.hash.wrapping_add(mix(outcome.hash ^ mix(outcome.seed)));
        if let Some(found) = &outcome.failure {
            self.failures.insert(outcome.seed, format!("({}) {found}", outcome.kind));
        }
        self.marks.resize(outcome.marks.len(), 0);
        for (sum, one) in self.marks.iter_mut().zip(&outcome.marks) {
            *sum += one;
        }
        let (operations, faults) = (outcome.tally.operations, outcome.tally.faults);
        self.full += u64::from(operations >= LONG_OPERATIONS && faults >= LONG_FAULTS);
        let least = self.least.unwrap_or((operations, faults));
        self.least = Some((least.0.min(operations), least.1.min(faults)));
        let (sum, one) = (&mut self.tally, &outcome.tally);
        sum.done += one.done;
        sum.failed += one.failed;
        sum.images += one.images;
        sum.crashes += one.crashes;
        sum.stops += one.stops;
        sum.faults += one.faults;
        sum.refusals += one.refusals;
        sum.resyncs += one.resyncs;
        sum.degraded += one.degraded;
        sum.zero_claims += one.zero_claims;
        sum.operations += one.operations;
        sum.rebuilds += one.rebuilds;
        sum.recoveries += one.recoveries;
        sum.recovered += one.recovered;
        sum.checks += one.checks;
        for (sum, one) in sum.kinds.iter_mut().zip(one.kinds) {
            *sum += one;
        }
    }

    /// Rare branches of the engine, most frequent first, and those that were never taken.
    pub fn marks_report(&self) -> String {
        let mut hits: Vec<(u64, Mark)> = self.marks.iter().copied().zip(Mark::ALL.iter().copied()).collect();
        hits.sort_by_key(|(count, mark)| (std::cmp::Reverse(*count), *mark));
        let never = self.marks_never_hit();
        let lines: String = hits.iter().map(|(count, mark)| format!("{count:>10} {mark:?}\n")).collect();
        let taken = hits.len() - never.len();
        format!("{lines}{taken} of {} marks hit; never: {}\n", hits.len(), never.join(", "))
    }

    /// Names of the marks that were not hit, in the engine's order.
    pub fn marks_never_hit(&self) -> Vec<String> {
        let never = self.marks.iter().zip(Mark::ALL.iter()).filter(|(count, _)| **count == 0);
        never.map(|(_, mark)| format!("{mark:?}")).collect()
    }

    /// Marks that were hit.
    pub fn marks_hit(&self) -> usize {
        self.marks.iter().filter(|count| **count > 0).count()
    }

    /// The failures, each with the command that reproduces it.
    pub fn report(&self) -> String {
        let class = if self.is_long { "--swarm --" } else { "--" };
        let one = |(seed, found): (&u64, &String)| {
            format!(
                "seed {seed} {found}\nagain: cargo run --release -p uraid-sim -- {}seed {seed} --verbose\n\n",
                class
            )
        };
        self.failures.iter().map(one).collect()
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(out, "{} seeds, {} failed, total hash {:016x}", self.seeds, self.failures.len(), self.hash)?;
        if self.is_long {
            let full = self.full;
            writeln!(out, "{full} of them with {LONG_OPERATIONS} operations and {LONG_FAULTS} faults or more")?;
        }
        writeln!(
            out,
            "{} requests, {} of them by clients, {} legal errors, {} faults, {} crashes, {} imagined power cuts, {} clean stops",
            tally.done + tally.failed,
            tally.operations,
            tally.failed,
            tally.faults,
            tally.crashes,
            tally.images,
            tally.stops
        )?;
        writeln!(
            out,
            "{} resyncs, {} degraded starts, {} refused as dirty and degraded, {} sectors compared, {} ranges said to be zero, {} virtual seconds",
            tally.resyncs,
            tally.degraded,
            tally.refusals,
            self.sectors,
            tally.zero_claims,
            self.time / 1_000_000_000
        )?;
        let faults: Vec<String> =
            FaultKind::ALL.iter().zip(tally.kinds).map(|(kind, hits)| format!("{kind:?} {hits}")).collect();
        writeln!(
            out,
            "faults: {}; {} members rebuilt meanwhile; {} starts of a recovery, {} ended; {} checks and repairs",
            faults.join(", "),
            tally.rebuilds,
            tally.recoveries,
            tally.recovered,
            tally.checks
        )?;
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        write!(out, "{}", kinds.join(", "))
    }
}

/// Runs the seeds on this many threads. Calls `on_thread` first on each.
pub fn run_seeds(seeds: Range<u64>, threads: usize, options: Options, on_thread: impl Fn() + Sync) -> Sum {
    run_seeds_while(seeds, threads, options, on_thread, || true)
}

/// The same, but stops as soon as `goes_on` returns false before a seed.
pub fn run_seeds_while(
    seeds: Range<u64>,
    threads: usize,
    options: Options,
    on_thread: impl Fn() + Sync,
    goes_on: impl Fn() -> bool + Sync,
) -> Sum {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new(Sum { is_long: options.is_long, ..Sum::default() });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                on_thread();
                loop {
                    if !goes_on() {
                        return;
                    }
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run_seed(seed, options);
                    sum.lock().expect("no panic while summing").add(&outcome);
                }
            });
        }
    });
    sum.into_inner().expect("no panic while summing")
}
