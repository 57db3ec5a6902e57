//! The pass over an array, in a report.
//! Owns: [`Pass`]: what each kind of pass is called, its lines in `detail`. Not here: how far it is, how fast (`pace`),
//! the format of /proc/mdstat (`mdstat`).
//! Invariant: at most one pass runs over an array, and [`Report::pass`] alone says which.
//! Spec: docs/md/behaviour.md#procmdstat.

use super::{Report, field};
use crate::protocol::{CheckRecord, CheckResult};
use crate::report::pass_progress::{PassProgress, duration};
use crate::words::dates;
use serde::{Deserialize, Serialize};
use uraid_block::Sectors;
use uraid_block::sizes::counted;

/// How fast a pass is at least and at most, in KiB a second of each member.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct PassLimits {
    /// A pass that is slower does not wait for clients.
    pub min_kib: u64,
    /// `None`: as fast as the members are.
    pub max_kib: Option<u64>,
    /// What a pass takes of the members while clients are active, in percent. `None`: an older server does not say it.
    #[serde(default)]
    pub share_percent: Option<u8>,
}

impl PassLimits {
    /// The maximum counts, also where it is below the minimum.
    pub fn new(min_kib: u64, max_kib: Option<u64>, share_percent: Option<u8>) -> PassLimits {
        PassLimits { min_kib: max_kib.map_or(min_kib, |max| min_kib.min(max)), max_kib, share_percent }
    }
}

/// A pass that runs, or waits until the array takes writes again.
pub struct Pass<'a> {
    /// `resync`, `recovery`, `check` or `repair`.
    pub word: &'static str,
    /// `Resync`, `Rebuild` or `Check`, as in `mdadm --detail`'s `Rebuild Status`; `Repair`, for which it says `Resync`.
    title: &'static str,
    /// It does not move: the array takes no writes now.
    pub is_pending: bool,
    /// How far it is.
    pub progress: &'a PassProgress,
    limits: Option<PassLimits>,
}

impl Report {
    /// The pass over the array, if it needs one.
    pub fn pass(&self) -> Option<Pass<'_>> {
        const MOVING: [&str; 4] = ["resyncing", "recovering", "checking", "repairing"];
        let is_pending = self.passes_frozen || !self.state.iter().any(|word| MOVING.contains(&word.as_str()));
        let resync = self.resync.as_ref().map(|progress| ("resync", "Resync", progress));
        let recovery = self.recovery.as_ref().map(|progress| ("recovery", "Rebuild", progress));
        let check = self.check.as_ref().map(|progress| ("check", "Check", progress));
        let repair = self.repair.as_ref().map(|progress| ("repair", "Repair", progress));
        resync.or(recovery).or(check).or(repair).map(|(word, title, progress)| Pass {
            word,
            title,
            is_pending,
            progress,
            limits: self.pass_limits,
        })
    }
}

impl Pass<'_> {
    /// As lines of `detail`. mdadm has the first one, which scripts read, and leaves the others to /proc/mdstat and sysfs.
    pub(super) fn write(&self, out: &mut String) {
        let Pass { title, progress, .. } = self;
        field(out, &format!("{title} Status"), &format!("{}% complete", progress.permille() / 10));
        if let Some(left) = progress.time_left() {
            field(out, &format!("{title} Speed"), &format!("{}, {left} left", progress.speed()));
        }
        if let Some(PassLimits { min_kib, max_kib, share_percent }) = self.limits {
            let most = max_kib.map(|kib| format!(", at most {kib}K/sec")).unwrap_or_default();
            let share = share_percent.map(|percent| format!("{percent}% beside clients, ")).unwrap_or_default();
            let text = format!("{share}at least {min_kib}K/sec{most}");
            field(out, &format!("{title} Limits"), &text);
        }
    }
}

/// As lines of `detail`, which mdadm has not: that passes are paused, and how the last check or repair went.
pub(super) fn write_last(report: &Report, out: &mut String) {
    if report.passes_frozen {
        field(out, "Passes", "paused; `uraid unfreeze` continues them");
    }
    if let Some(last) = &report.last_check {
        let CheckResult { kind, end, mismatched, corrected, .. } = last;
        let mismatched = counted(*mismatched, "sector", "sectors");
        field(out, "Mismatches", &format!("{mismatched}, {corrected} corrected ({kind} {end})"));
    }
    if let Some(checks) = &report.checks {
        write_record(checks, out);
    }
    if let Some(until) = report.maintenance_until {
        field(out, "Maintenance", &format!("until {}: no spare starts", dates::utc(until)));
    }
    if let Some(error) = &report.history_error {
        field(out, "History", &format!("not written: {error}"));
    }
}

/// When the last complete check was, and whether another one waits to go on.
fn write_record(checks: &CheckRecord, out: &mut String) {
    if let Some(fact) = &checks.complete {
        let (when, long) = (dates::utc(fact.ended), duration(fact.seconds));
        let found = counted(fact.result.mismatched, "sector disagrees", "sectors disagree");
        field(out, "Last Check", &format!("{} complete {when}, took {long}, {found}", fact.result.kind));
    }
    if let Some(fact) = &checks.partial
        && fact.result.end != "running"
    {
        let percent = PassProgress::new(Sectors(fact.result.done), Sectors(fact.result.total), None).percent();
        field(
            out,
            "Check Waits",
            &format!("at {percent} since {}; `uraid scrub --now` continues it", dates::utc(fact.ended)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;
    use super::*;

    #[test]
    fn a_pass_says_how_far_it_is_and_how_fast_where_that_is_known() {
        let mut report = degraded();
        assert!(report.pass().is_none() && !report.text().contains("Resync"));
        report.state.push("resyncing".to_owned());
        assert!(report.text().contains("State : active, degraded, resyncing \n"), "{}", report.text());
        let of = |sectors_per_second, seconds_left| {
            Some(PassProgress { done: 2580, total: 20_480, sectors_per_second, seconds_left })
        };
        report.resync = of(Some(200), Some(90));
        let text = report.text();
        assert!(
            text.contains("     Resync Status : 12% complete\n      Resync Speed : 100K/sec, 90s left\n"),
            "{text}"
        );
        report.pass_limits = Some(PassLimits::new(1000, Some(9000), Some(15)));
        let limits = "     Resync Limits : 15% beside clients, at least 1000K/sec, at most 9000K/sec\n";
        assert!(report.text().contains(limits), "{}", report.text());
        assert_eq!(PassLimits::new(1000, Some(300), None).min_kib, 300);
        report.resync = of(None, None);
        let text = report.text();
        assert!(text.contains("     Resync Status : 12% complete\n") && !text.contains("Resync Speed"), "{text}");
        assert!(report.pass().is_some_and(|pass| pass.word == "resync" && !pass.is_pending));
        report.passes_frozen = true;
        assert!(report.text().contains("State : active, degraded, resyncing (PENDING) \n"), "{}", report.text());
        report.passes_frozen = false;
        assert!(report.text().contains("State : active, degraded, resyncing \n"), "{}", report.text());
        (report.recovery, report.resync) = (report.resync.take(), None);
        report.state = vec!["clean".to_owned(), "degraded".to_owned(), "recovering".to_owned()];
        assert!(report.text().contains("    Rebuild Status : 12% complete\n"), "{}", report.text());
        assert!(report.pass().is_some_and(|pass| pass.word == "recovery" && !pass.is_pending));
        report.passes_frozen = true;
        assert!(report.text().contains("State : clean, degraded, recovering \n"), "{}", report.text());
        report.passes_frozen = false;
        report.state = vec!["active".to_owned(), "frozen".to_owned()];
        assert!(report.pass().is_some_and(|pass| pass.is_pending));
    }
}
