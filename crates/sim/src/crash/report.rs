//! The totals of an exploration.
//! Owns: [`Counts`], [`Group`], [`Report`], [`Finding`]. Not here: filling them (`crash`).
//! Invariant: the totals do not depend on the order of additions.

use super::found::{Crash, Found};
use super::script::{Schedule, Script, Tiny};
use std::collections::BTreeMap;
use std::fmt;

/// The counts of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Moments at which power failed, including those in restarts.
    pub points: u64,
    /// Subsets of undurable writes, over all moments and sets of lost members.
    pub subsets: u64,
    /// Subsets beyond the bound of one moment, not checked.
    pub left_out: u64,
    /// Distinct images that were assembled, brought to clean, read and verified.
    pub images: u64,
    /// Of these: left by a crash in a restart (depth 2).
    pub again: u64,
    /// Of these: refused as dirty and degraded, and then forced.
    pub refused: u64,
    /// Of these: resynced.
    pub resyncs: u64,
    /// Of these: started without some member.
    pub degraded: u64,
    /// Judgements: one for each image and each moment that can leave it.
    pub judged: u64,
    /// Of these: sectors of lost members that held no legal content after a forced start, which the policy allows.
    pub undefined: u64,
}

impl Counts {
    /// Adds the counts of another exploration.
    pub fn add(&mut self, other: &Counts) {
        self.points += other.points;
        self.subsets += other.subsets;
        self.left_out += other.left_out;
        self.images += other.images;
        self.again += other.again;
        self.refused += other.refused;
        self.resyncs += other.resyncs;
        self.degraded += other.degraded;
        self.judged += other.judged;
        self.undefined += other.undefined;
    }
}

/// The arrays of one level; those that start degraded form a group of their own.
#[derive(Clone, Default, Debug)]
pub struct Group {
    /// Sums.
    pub counts: Counts,
    /// Arrays.
    pub arrays: u64,
    /// Scripts, each under one schedule.
    pub scripts: u64,
    /// Scripts that were not run because the time was over.
    pub scripts_left: u64,
    /// Thread time in seconds.
    pub seconds: f64,
}

/// A violation with all that is needed to reproduce it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The array.
    pub tiny: Tiny,
    /// The requests.
    pub script: Script,
    /// The order of answers.
    pub schedule: Schedule,
    /// The depth of the exploration.
    pub depth: usize,
    /// The violation and its crashes.
    pub found: Found,
}

/// The totals and findings of a run.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// By level; "raid5 degraded" is separate from "raid5".
    pub groups: BTreeMap<String, Group>,
    /// What was found, in the order of the catalogue.
    pub findings: Vec<Finding>,
    /// Elapsed wall-clock seconds.
    pub seconds: f64,
}

impl Report {
    /// The sum of all groups.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.groups.values().for_each(|group| total.add(&group.counts));
        total
    }

    /// The report as one line of JSON.
    pub fn json(&self) -> String {
        let (images, violations) = (self.total().images, self.findings.len());
        format!("{{\"crash_images\": {images}, \"violations\": {violations}}}")
    }

    /// Scripts that were not run because the time was over.
    pub fn scripts_left(&self) -> u64 {
        self.groups.values().map(|group| group.scripts_left).sum()
    }
}

impl Finding {
    /// The text that reproduces the finding.
    pub fn replay(&self) -> String {
        let Finding { tiny, script, schedule, depth, found } = self;
        let crashes: Vec<String> = found.crashes.iter().map(ToString::to_string).collect();
        format!("{tiny};{script};{schedule};{depth};{}", crashes.join("/"))
    }

    /// Parses the text of a finding; the violation is empty.
    pub fn parse(text: &str) -> Option<Finding> {
        let parts: Vec<&str> = text.split(';').collect();
        let [tiny, script, schedule, depth, crashes] = parts[..] else { return None };
        let crashes: Option<Vec<Crash>> =
            crashes.split('/').filter(|text| !text.is_empty()).map(Crash::parse).collect();
        Some(Finding {
            tiny: Tiny::parse(tiny)?,
            script: Script::parse(script)?,
            schedule: Schedule::parse(schedule)?,
            depth: depth.parse().ok().filter(|depth| (1..=2).contains(depth))?,
            found: Found { what: String::new(), crashes: crashes? },
        })
    }
}

/// A finding with the crashes that led to it (moment, lost members, subset) and the command that reproduces it.
impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}: {}", self.tiny.level_name(), self.found.what)?;
        write!(out, "again: cargo run --release -p uraid-sim -- --crash-images --replay '{}'", self.replay())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["moments", "subsets", "left out", "images", "depth 2", "refused", "resyncs", "degraded"];
        write!(out, "{:16} {:>6} {:>7}", "", "arrays", "scripts")?;
        names.iter().try_for_each(|name| write!(out, " {name:>9}"))?;
        writeln!(out, " {:>10} {:>9} {:>7}", "judged", "undefined", "seconds")?;
        for (name, group) in &self.groups {
            let one = &group.counts;
            write!(out, "{name:16} {:>6} {:>7}", group.arrays, group.scripts)?;
            let counts =
                [one.points, one.subsets, one.left_out, one.images, one.again, one.refused, one.resyncs, one.degraded];
            counts.iter().try_for_each(|count| write!(out, " {count:>9}"))?;
            writeln!(out, " {:>10} {:>9} {:>7.1}", one.judged, one.undefined, group.seconds)?;
        }
        let (total, left) = (self.total(), self.scripts_left());
        if left > 0 {
            writeln!(out, "the time did not suffice for {left} scripts")?;
        }
        write!(
            out,
            "crash images: {} distinct, all checked, {} violations, {:.1} seconds",
            total.images,
            self.findings.len(),
            self.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_text_round_trips() {
        let text = "5,2,4,1,3,0;x1@2 w0+3|f;mix7;2;57:2:1234/12:0:5";
        assert_eq!(Finding::parse(text).expect("a good replay").replay(), text);
        assert!(Finding::parse("5,2,4,1,3,0;w0+3;fifo;3;").is_none(), "no depth 3");
    }
}
