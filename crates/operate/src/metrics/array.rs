//! The metrics of an array: its state, its redundancy, its passes and checks, its requests.
//! Owns: these samples. Not here: node_exporter's (`md`), its members (`members`), its process (`process`).

use super::family::{Families, Histogram, Labels};
use super::names;
use uraid_control::protocol::{CheckRecord, CheckResult};
use uraid_control::report::{Report, RequestTimes};

/// The words of `uraid_array_state`.
const STATES: [&str; 7] = ["active", "degraded", "read-only", "frozen", "starting", "stopping", "stopped"];
/// The kinds of passes.
const PASSES: [&str; 4] = ["resync", "recovery", "check", "repair"];

/// The labels that all samples of an array have.
#[derive(Clone)]
pub(super) struct Of {
    /// `md127`
    pub(super) device: String,
    /// `home`
    pub(super) array: String,
}

impl Of {
    pub(super) fn labels(&self) -> Labels {
        vec![("device", self.device.clone()), ("array", self.array.clone())]
    }

    pub(super) fn with(&self, name: &'static str, value: impl Into<String>) -> Labels {
        let mut labels = self.labels();
        labels.push((name, value.into()));
        labels
    }
}

/// Adds those of one array.
pub(super) fn add(families: &mut Families, of: &Of, report: &Report, checks: Option<&CheckRecord>) {
    let mut info = of.labels();
    info.extend([
        ("uuid", report.uuid.clone()),
        ("level", report.level.clone()),
        ("metadata", report.metadata.clone()),
        ("policy", report.consistency_policy.clone()),
    ]);
    families.whole(names::ARRAY_INFO, info, 1);
    families.whole(names::UP, vec![("array", of.array.clone())], 1);
    for word in STATES {
        let has = report.state.iter().any(|own| own == word);
        families.whole(names::STATE, of.with("state", word), has.into());
    }
    families.whole(names::SIZE, of.labels(), report.array_sectors * 512);
    families.whole(names::SLOTS, of.labels(), report.raid_devices.into());
    families.whole(names::UPDATED, of.labels(), report.updated);
    families.whole(names::LEFT_OUT, of.labels(), report.left_out.len() as u64);
    if let Some(redundancy) = report.redundancy() {
        families.whole(names::REDUNDANCY_LEFT, of.labels(), redundancy.left.into());
        families.whole(names::REDUNDANCY_FULL, of.labels(), redundancy.full.into());
        families.whole(names::EXPOSED, of.labels(), redundancy.exposed_bytes);
    }
    if let Some(bitmap) = &report.bitmap {
        let chunk = bitmap.chunk_sectors * 512;
        families.whole(names::BITMAP_CHUNK, of.labels(), chunk);
        families.whole(names::BITMAP_DIRTY, of.labels(), chunk * bitmap.dirty);
    }
    passes(families, of, report);
    if let Some(until) = report.maintenance_until {
        families.whole(names::MAINTENANCE, of.labels(), until);
    }
    match (checks.and_then(|checks| checks.complete.as_ref()), &report.last_check) {
        (Some(fact), _) => {
            let kind = &fact.result.kind;
            families.whole(names::CHECK_FINISHED, of.with("kind", kind), fact.ended);
            families.whole(names::CHECK_SECONDS, of.with("kind", kind), fact.seconds);
            check(families, of, &fact.result);
        }
        (None, Some(last)) => check(families, of, last),
        (None, None) => {}
    }
    requests(families, of, report);
    if let Some(times) = &report.times {
        durations(families, of, times);
    }
}

fn passes(families: &mut Families, of: &Of, report: &Report) {
    let pass = report.pass();
    for kind in PASSES {
        let own = pass.as_ref().filter(|pass| pass.word == kind);
        let is_pending = own.is_some_and(|pass| pass.is_pending);
        families.whole(names::PASS_ACTIVE, of.with("kind", kind), (own.is_some() && !is_pending).into());
        families.whole(names::PASS_WAITING, of.with("kind", kind), is_pending.into());
        let Some(progress) = own.map(|pass| pass.progress) else { continue };
        let ratio = if progress.total == 0 { 1.0 } else { progress.done as f64 / progress.total as f64 };
        families.real(names::PASS_DONE, of.with("kind", kind), ratio);
        families.whole(names::PASS_SPEED, of.with("kind", kind), progress.sectors_per_second.unwrap_or(0) * 512);
        if let Some(seconds) = progress.seconds_left {
            families.whole(names::PASS_REMAINING, of.with("kind", kind), seconds);
        }
    }
    families.whole(names::PASSES_PAUSED, of.labels(), report.passes_frozen.into());
}

/// What the last check or repair has found, as far as it is known without its time.
fn check(families: &mut Families, of: &Of, last: &CheckResult) {
    let bytes = |sectors: u64| sectors.saturating_mul(512);
    families.whole(names::CHECK_COMPLETE, of.with("kind", &last.kind), (last.end == "complete").into());
    families.whole(names::CHECK_MISMATCHED, of.with("kind", &last.kind), bytes(last.mismatched));
    families.whole(names::CHECK_CORRECTED, of.with("kind", &last.kind), bytes(last.corrected));
    families.whole(names::CHECK_HEALED, of.with("kind", &last.kind), bytes(last.healed));
    families.whole(names::CHECK_UNREADABLE, of.with("kind", &last.kind), bytes(last.unreadable));
}

fn requests(families: &mut Families, of: &Of, report: &Report) {
    let Some(counts) = &report.counts else { return };
    families.whole(names::REQUESTS, of.with("op", "read"), counts.reads);
    families.whole(names::REQUESTS, of.with("op", "write"), counts.writes);
    for (kind, count) in [
        ("full", counts.rows_full),
        ("read-modify-write", counts.rows_modified),
        ("reconstruct-write", counts.rows_reconstructed),
    ] {
        families.whole(names::ROWS_WRITTEN, of.with("kind", kind), count);
    }
    families.whole(names::ROWS_RECOVERED, of.labels(), counts.rows_recovered);
    families.whole(names::WRITES_ABSORBED, of.labels(), counts.writes_absorbed);
    families.whole(names::READS_RETRIED, of.labels(), counts.reads_retried);
    families.whole(names::READ_ERRORS, of.labels(), counts.read_errors);
}

fn durations(families: &mut Families, of: &Of, times: &RequestTimes) {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    for (op, times_of) in [("read", &times.reads), ("write", &times.writes), ("flush", &times.flushes)] {
        let bounds = times.bounds_ns.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets = bounds.zip(times_of.counts.iter().copied()).collect();
        let histogram = Histogram { buckets, sum: seconds(times_of.sum_ns) };
        families.histogram(names::DURATIONS, of.with("op", op), histogram);
    }
}
