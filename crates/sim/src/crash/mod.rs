//! Exhaustive crash images of tiny arrays.
//! Owns: [`run`], its counts and its report. Not here: which arrays are explored (`catalogue`), how (`explore`).
//! Called by the program and by tests.
//! Invariant: the counts do not depend on the number of threads. Every finding is printed with the command that
//! reproduces it.
//!
//! A script of concurrent requests is stopped at every moment. For each moment, take every subset of the sectors
//! (superblocks included) that are in flight or not yet flushed, and every set of members that may be lost: together
//! they give one *image*. Each image is assembled by the real assembly, brought to clean by the real engine, read from
//! end to end, and compared with what the oracle allows; its copies and parity are recomputed by the slow model. At
//! depth 2 the same is done at every moment of those restarts.
//!
//! Two images are different if the contents of the present members or the sets of lost members differ.
//!
//! Not covered: several shards (the seeds cover them), errors other than a member that is gone, torn sectors, restarts
//! of restarts (depth 3; `proof::enumerator` does it for superblocks), bitmaps of more than one sector, logs of more than one write, spares.

pub mod catalogue;
pub mod command;
pub mod content;
pub mod expect;
pub mod explore;
pub mod found;
pub mod lab;
pub mod machine;
pub mod media;
pub mod recover;
pub mod report;
pub mod script;

use catalogue::{CatalogueEntry, Portion};
use explore::Explorer;
use found::Found;
use lab::Lab;
use report::{Finding, Group, Report};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What to explore.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Only this level, as "raid5".
    pub level: Option<String>,
    /// Which part of the catalogue.
    pub portion: Portion,
    /// No script is started after this time.
    pub time: Option<Duration>,
    /// The number of threads.
    pub threads: usize,
}

/// Explores the catalogue. Calls `on_thread` first on each thread.
pub fn run(wanted: &Selection, on_thread: impl Fn() + Sync) -> Report {
    let start = Instant::now();
    let mut entries = catalogue::arrays(wanted.portion);
    entries.retain(|entry| wanted.level.as_ref().is_none_or(|level| level == entry.tiny.level_name()));
    let end = wanted.time.map(|time| start + time);
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, (Group, Option<Finding>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..wanted.threads {
            scope.spawn(|| {
                on_thread();
                while let Some((at, entry)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    entries.get(at).map(|entry| (at, entry))
                } {
                    let result = run_array(entry, end);
                    results.lock().expect("no panic while summing").insert(at, result);
                }
            });
        }
    });
    let mut report = Report::default();
    for (at, (one, finding)) in results.into_inner().expect("no panic while summing") {
        let tiny = &entries[at].tiny;
        let name = format!("{}{}", tiny.level_name(), if tiny.missing == 0 { "" } else { " degraded" });
        let group = report.groups.entry(name).or_default();
        group.counts.add(&one.counts);
        group.arrays += one.arrays;
        group.scripts += one.scripts;
        group.scripts_left += one.scripts_left;
        group.seconds += one.seconds;
        report.findings.extend(finding);
    }
    report.seconds = start.elapsed().as_secs_f64();
    report
}

/// All scripts of one array, up to the first finding.
fn run_array(entry: &CatalogueEntry, end: Option<Instant>) -> (Group, Option<Finding>) {
    let start = Instant::now();
    let lab = Lab::new(entry.tiny.clone());
    let jobs = catalogue::scripts(entry, lab.model.array_size());
    let mut explorer = Explorer::new(lab);
    let mut group = Group { arrays: 1, ..Group::default() };
    let mut finding = None;
    for (done, job) in jobs.iter().enumerate() {
        if end.is_some_and(|end| Instant::now() >= end) {
            group.scripts_left = (jobs.len() - done) as u64;
            break;
        }
        group.scripts += 1;
        if let Err(found) = run_caught(&mut explorer, job) {
            let (tiny, script) = (entry.tiny.clone(), job.script.clone());
            finding = Some(Finding { tiny, script, schedule: job.schedule, depth: job.depth, found });
            break;
        }
    }
    group.counts = explorer.counts;
    group.seconds = start.elapsed().as_secs_f64();
    if finding.is_some() {
        // Leak what is half done: after a panic its destructors could panic again.
        std::mem::forget(explorer);
    }
    (group, finding)
}

/// A panic of the engine is a finding like any other.
fn run_caught(explorer: &mut Explorer, job: &catalogue::Job) -> Result<(), Found> {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| explorer.run(&job.script, job.schedule, job.depth)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        Err(Found { what: format!("panic: {}", text.unwrap_or_default()), crashes: explorer.crashes().to_vec() })
    })
}

/// Reproduces a finding: prints the image and its outcome. If the finding has no crash, explores its script.
pub fn replay(finding: &Finding) -> Result<report::Counts, Found> {
    let mut explorer = Explorer::new(Lab::new(finding.tiny.clone()));
    if !finding.found.crashes.is_empty() {
        explorer.only(finding.found.crashes.clone());
    }
    explorer.run(&finding.script, finding.schedule, finding.depth)?;
    Ok(explorer.counts)
}
