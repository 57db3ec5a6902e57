//! One scrape: asking all running arrays, and the samples that their reports become.
//! Owns: [`Scrape`], the time limit. Not here: the samples of each part (`md`, `array`, `members`, `process`).
//! Invariant: an array that does not answer takes nothing from the others but time, at most [`TIME_MAX`].

use super::array::{self, Of};
use super::family::{Families, Labels};
use super::{md, members, names, process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uraid_control::client::{self, AllAsked, ClientError};
use uraid_control::history;
use uraid_control::protocol::CheckRecord;
use uraid_control::report::Report;

/// How long a scrape waits for the arrays. A server waits at most two seconds for slow members; Prometheus waits ten.
const TIME_MAX: Duration = Duration::from_secs(3);

/// What the arrays have answered.
pub(super) struct Scrape {
    pub(super) reports: Vec<Report>,
    /// The names of those that have not.
    pub(super) silent: Vec<String>,
    /// By UUID: what is kept of checks.
    pub(super) checks: BTreeMap<String, CheckRecord>,
    /// How long it took to ask them.
    pub(super) took: Duration,
}

impl Scrape {
    /// Asks all arrays.
    pub(super) fn take() -> Result<Scrape, ClientError> {
        let begun = Instant::now();
        let AllAsked { reports, silent } = client::ask_all(TIME_MAX)?;
        let silent = silent.into_iter().map(|unasked| unasked.name).collect();
        // Without a state directory, or with a file that cannot be read, nothing is known of checks that were: `uraid
        // history` says why.
        let kept = |report: &Report| Some((report.uuid.clone(), history::read_checks(&report.uuid).ok()?));
        let checks = reports.iter().filter_map(kept).collect();
        Ok(Scrape { reports, silent, checks, took: begun.elapsed() })
    }

    /// All samples.
    pub(super) fn families(&self) -> Families {
        let mut families = Families::default();
        let version: Labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        families.whole(names::BUILD_INFO, version, 1);
        families.real(names::SCRAPE_SECONDS, Vec::new(), self.took.as_secs_f64());
        let mut pids = Vec::new();
        for report in &self.reports {
            let of = Of { device: device(report), array: report.name.clone() };
            md::add(&mut families, &of.device, report);
            array::add(&mut families, &of, report, self.checks.get(&report.uuid));
            members::add(&mut families, &of, report);
            let pid = report.server.as_ref().map(|server| server.pid);
            process::add(&mut families, &of, report, !pids.contains(&pid));
            pids.push(pid);
        }
        for name in &self.silent {
            families.whole(names::UP, vec![("array", name.clone())], 0);
        }
        families
    }
}

/// `md127`. A server of an older version gives no such name.
fn device(report: &Report) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    report.device.clone().unwrap_or_else(|| format!("md_{}", report.name.chars().map(letter).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_reports;
    use std::collections::BTreeSet;
    use uraid_control::protocol::CheckFact;
    use uraid_control::report::Report;

    fn of(reports: Vec<Report>, silent: &[&str]) -> Scrape {
        let silent = silent.iter().map(|name| (*name).to_owned()).collect();
        let fact = |report: &Report| {
            let result = report.last_check.clone()?;
            let complete = Some(CheckFact { began: 1_700_000_000, ended: 1_700_003_600, seconds: 1800, result });
            Some((report.uuid.clone(), CheckRecord { complete, partial: None }))
        };
        let checks = reports.iter().filter_map(fact).collect();
        Scrape { reports, silent, checks, took: Duration::from_millis(2) }
    }

    /// The value of a sample, as text; `None`: it is not there.
    fn value(text: &str, sample: &str) -> Option<String> {
        let line = text.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')))?;
        Some(line[sample.len() + 1..].to_owned())
    }

    #[test]
    fn node_exporter_s_metrics_are_what_it_reads_in_mdstat() {
        // The words of the state that are 1; active, failed, spare, down; blocks in sync, in KiB; degraded.
        let table: [(&str, &str, [u64; 4], u64, u64); 11] = [
            ("healthy", "active", [4, 0, 1, 0], 2_097_152, 0),
            ("degraded", "active", [3, 1, 0, 1], 2_097_152, 1),
            ("recovering", "recovering", [3, 1, 0, 1], 524_288, 1),
            ("resync pending", "resync", [4, 0, 0, 0], 0, 0),
            ("resyncing", "resync", [4, 0, 0, 0], 524_288, 0),
            ("checking", "check", [4, 0, 0, 0], 524_288, 0),
            ("replacement", "recovering", [4, 0, 0, 0], 524_288, 0),
            ("write-mostly", "active", [2, 0, 0, 0], 1_048_576, 0),
            ("read-only", "active", [4, 0, 0, 0], 2_097_152, 0),
            ("frozen", "", [4, 0, 0, 0], 2_097_152, 0),
            ("starting", "inactive", [0, 0, 0, 0], 2_097_152, 0),
        ];
        let reports = sample_reports::reports();
        assert_eq!(reports.iter().map(|(name, _)| *name).collect::<Vec<_>>(), table.map(|row| row.0));
        for ((name, report), (_, word, disks, synced, degraded)) in reports.into_iter().zip(table) {
            let text = of(vec![report], &[]).families().plain();
            for state in ["active", "inactive", "recovering", "resync", "check"] {
                let found = value(&text, &format!("node_md_state{{device=\"md127\",state=\"{state}\"}}"));
                assert_eq!(found, Some(u8::from(state == word).to_string()), "{name}: {state}");
            }
            for (state, expected) in ["active", "failed", "spare", "down"].into_iter().zip(disks) {
                let found = value(&text, &format!("node_md_disks{{device=\"md127\",state=\"{state}\"}}"));
                assert_eq!(found, Some(expected.to_string()), "{name}: {state}");
            }
            for (metric, expected) in [("blocks_synced", synced), ("degraded", degraded)] {
                let found = value(&text, &format!("node_md_{metric}{{device=\"md127\"}}"));
                assert_eq!(found, Some(expected.to_string()), "{name}: {metric}");
            }
        }
    }

    #[test]
    fn every_sample_is_of_a_name_in_the_list_and_every_name_is_in_some_sample() {
        let known: BTreeSet<String> = names::ALL.iter().flat_map(|name| name.stored()).collect();
        let mut found = BTreeSet::new();
        for (_, report) in sample_reports::reports() {
            let text = of(vec![report], &["away"]).families().plain();
            found.extend(samples(&text).map(|line| line.split(['{', ' ']).next().unwrap_or_default().to_owned()));
        }
        assert_eq!(known, found);
        for name in names::ALL.iter().filter(|name| !name.name.starts_with("node_md_")) {
            assert!(name.name.starts_with("uraid_") && name.help.ends_with('.'), "{name:?}");
            assert!(!name.name.ends_with("_total"), "{name:?}: counters get it when they are written");
        }
    }

    /// With the bound of a bucket behind it, as the number that it is.
    fn of_numbers(line: &str) -> String {
        let of_bucket = || {
            let (begin, rest) = line.split_once("le=\"")?;
            let (bound, end) = rest.split_once('"')?;
            let end = if begin.ends_with('{') { end.trim_start_matches(',') } else { end };
            let bound: f64 = bound.parse().expect("a number");
            Some(format!("{}{end} up to {bound}", begin.trim_end_matches(',')))
        };
        of_bucket().unwrap_or_else(|| line.to_owned())
    }

    fn samples(text: &str) -> impl Iterator<Item = &str> {
        text.lines().filter(|line| !line.starts_with('#'))
    }

    #[test]
    fn no_label_has_a_path_or_the_text_of_an_error_and_names_break_no_line() {
        for (name, mut report) in sample_reports::reports() {
            report.name = "a\"b\\c\nd".to_owned();
            let text = of(vec![report], &["e\nf"]).families().plain();
            assert!(!text.contains("/dev/") && !text.contains("errno"), "{name}: {text}");
            assert!(text.contains(r#"array="a\"b\\c\nd""#) && text.contains(r#"array="e\nf""#), "{text}");
            let is_sample = |line: &str| {
                let value = line.rsplit(' ').next().unwrap_or_default();
                (line.starts_with("uraid_") || line.starts_with("node_md_")) && value.parse::<f64>().is_ok()
            };
            assert!(samples(&text).all(is_sample), "{text}");
        }
    }

    #[test]
    fn a_sample_is_there_once_and_a_process_counts_its_clients_once() {
        let (_, report) = sample_reports::reports().remove(0);
        let other = Report { device: Some("md126".to_owned()), name: "other".to_owned(), ..report.clone() };
        // The same array under two names of its socket, and one that does not answer but has the name of another.
        let text = of(vec![report.clone(), report, other], &["home"]).families().plain();
        let lines: Vec<&str> = samples(&text).collect();
        let keys: BTreeSet<&str> = lines.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        assert_eq!(keys.len(), lines.len(), "{text}");
        assert_eq!(value(&text, "uraid_array_up{array=\"home\"}").as_deref(), Some("1"));
        assert_eq!(text.matches("uraid_frontend_connections{").count(), 1, "{text}");
    }

    #[test]
    fn durations_are_counted_up_to_each_bound_and_add_up() {
        let report = sample_reports::reports().remove(0).1;
        let text = of(vec![report], &[]).families().plain();
        let of_reads = |end: &str, le: &str| {
            value(
                &text,
                &format!("uraid_request_duration_seconds{end}{{device=\"md127\",array=\"home\",op=\"read\"{le}}}"),
            )
        };
        for (le, expected) in [("8.192e-06", "1200"), ("1.6384e-05", "1700"), ("0.001048576", "1999"), ("+Inf", "2000")]
        {
            let found = of_reads("_bucket", &format!(",le=\"{le}\""));
            assert_eq!(found.as_deref(), Some(expected), "{le}: {text}");
        }
        assert_eq!(of_reads("_count", "").as_deref(), Some("2000"));
        assert_eq!(of_reads("_sum", "").as_deref(), Some("0.25"));
        assert!(text.contains("\n# TYPE uraid_request_duration_seconds histogram\n"), "{text}");
    }

    #[test]
    fn both_forms_have_the_same_samples() {
        let scrape = of(sample_reports::reports().into_iter().take(1).map(|(_, report)| report).collect(), &[]);
        let (plain, open) = (scrape.families().plain(), scrape.families().open_metrics());
        // They write bounds of buckets in different ways and places.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = samples(text).map(of_numbers).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&plain), sorted(&open));
        assert!(open.ends_with("\n# EOF\n") && !plain.contains("# EOF"), "{open}");
        assert!(open.contains("\n# TYPE uraid_member_errors counter\n"), "{open}");
        assert!(plain.contains("\n# TYPE uraid_member_errors_total counter\n"), "{plain}");
    }
}
