//! The results of a storm.
//! Owns: the counts, their sum, the table for people and the line for programs. Not here: counting (`episode`).
//! Invariant: `lost_bytes` and `violations` are both zero, or the storm failed.

use super::trouble::Trouble;
use std::fmt;

/// Counts of a storm, or of one array.
#[derive(Clone, Default, Debug)]
pub struct Figures {
    /// The seed of the storm.
    pub seed: u64,
    /// Arrays made.
    pub arrays: u64,
    /// kill -9 under load.
    pub kill_cycles: u64,
    /// Of these, with writes that may or may not have happened.
    pub kills_with_open_writes: u64,
    /// SIGTERM, exit code 0.
    pub clean_stops: u64,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of writes that were answered.
    pub acknowledged_bytes: u64,
    /// Of these, answered before a flush that was answered too.
    pub flushed_bytes: u64,
    /// Sectors read and compared after starts.
    pub verified_sectors: u64,
    /// Sectors that were found old or new, both being legal.
    pub open_sectors: u64,
    /// Members taken away between runs.
    pub taken_away: u64,
    /// Members zeroed, truncated, or with a destroyed superblock.
    pub corrupted: u64,
    /// Members failed by command while clients wrote.
    pub failed_under_load: u64,
    /// Starts with a stale copy of a lost member among those given.
    pub stale_given: u64,
    /// Members that swapped their names.
    pub swapped: u64,
    /// Starts that had to be refused, and were: too few members, dirty and degraded, duplicates, split brain, an
    /// unrecorded loss.
    pub refused: u64,
    /// Dirty and degraded arrays started by force.
    pub forced: u64,
    /// Read-only starts that read everything, often without some present members, and changed no byte.
    pub looks: u64,
    /// Bytes that were acknowledged and are missing, or that no client wrote.
    pub lost_bytes: u64,
    /// Other violations by the server.
    pub violations: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

impl Figures {
    /// Adds one array's figures.
    pub(super) fn add(&mut self, one: &Figures) {
        for ((_, sum), (_, one)) in self.numbers_mut().into_iter().zip(one.numbers()) {
            *sum += one;
        }
    }

    /// Adds a failure.
    pub(super) fn blame(&mut self, trouble: &Trouble, log: &str) {
        match trouble {
            Trouble::Lost { sectors, .. } => self.lost_bytes += sectors * 512,
            Trouble::Conduct(_) => {}
        }
        self.violations.push(format!("{trouble}\n  {log}\n  again: uraid-storm --seed {}", self.seed));
    }

    /// Whether nothing was found.
    pub fn is_good(&self) -> bool {
        self.lost_bytes == 0 && self.violations.is_empty()
    }

    fn numbers_mut(&mut self) -> [(&'static str, &mut u64); 18] {
        [
            ("arrays", &mut self.arrays),
            ("kill_cycles", &mut self.kill_cycles),
            ("kills_with_open_writes", &mut self.kills_with_open_writes),
            ("clean_stops", &mut self.clean_stops),
            ("requests", &mut self.requests),
            ("acknowledged_bytes", &mut self.acknowledged_bytes),
            ("flushed_bytes", &mut self.flushed_bytes),
            ("verified_sectors", &mut self.verified_sectors),
            ("open_sectors", &mut self.open_sectors),
            ("taken_away", &mut self.taken_away),
            ("corrupted", &mut self.corrupted),
            ("failed_under_load", &mut self.failed_under_load),
            ("stale_given", &mut self.stale_given),
            ("swapped", &mut self.swapped),
            ("refused", &mut self.refused),
            ("forced", &mut self.forced),
            ("looks", &mut self.looks),
            ("lost_bytes", &mut self.lost_bytes),
        ]
    }

    fn numbers(&self) -> Vec<(&'static str, u64)> {
        self.clone().numbers_mut().into_iter().map(|(name, number)| (name, *number)).collect()
    }

    /// One JSON object on one line.
    pub fn json(&self) -> String {
        let numbers: Vec<String> =
            self.numbers().into_iter().map(|(name, number)| format!("\"{name}\": {number}")).collect();
        let (seed, violations, milliseconds) = (self.seed, self.violations.len(), self.milliseconds);
        format!(
            "{{\"seed\": {seed}, {}, \"violations\": {violations}, \"milliseconds\": {milliseconds}}}",
            numbers.join(", ")
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "storm with seed {}, {:.1} s", self.seed, self.milliseconds as f64 / 1000.0)?;
        for (name, number) in self.numbers() {
            writeln!(out, "  {:<24} {number:>12}", name.replace('_', " "))?;
        }
        for violation in &self.violations {
            writeln!(out, "FOUND: {violation}")?;
        }
        Ok(())
    }
}
