//! The counts of a run.
//! Owns: [`Tally`]. Not here: counting (`client`, `rig`, `scenario`), the sums of many runs (`fleet`).

use crate::machine::fault_kind::FaultKind;

/// The counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Client requests answered with success.
    pub done: u64,
    /// Client requests answered with a legal error.
    pub failed: u64,
    /// Crash images judged while the run continued.
    pub images: u64,
    /// Power cuts that ended a run of the array.
    pub crashes: u64,
    /// Clean stops checked.
    pub stops: u64,
    /// Faults that changed a result or a byte.
    pub faults: u64,
    /// Starts refused as dirty and degraded.
    pub refusals: u64,
    /// Resyncs at start.
    pub resyncs: u64,
    /// Rounds started with a member missing.
    pub degraded: u64,
    /// Ranges reported as zero by block status, all checked.
    pub zero_claims: u64,
    /// Client requests, without the reads that check the whole array.
    pub operations: u64,
    /// Faults by kind, in the order of `FaultKind::ALL`.
    pub kinds: [u64; FaultKind::COUNT],
    /// Members rebuilt while the array was stopped.
    pub rebuilds: u64,
    /// Starts with a member in recovery, each counted.
    pub recoveries: u64,
    /// Members whose recovery ended.
    pub recovered: u64,
    /// Checks and repairs that went through everything.
    pub checks: u64,
}

impl Tally {
    /// Counts a fault that has changed a result or a byte.
    pub fn count_fault(&mut self, kind: FaultKind, count: u64) {
        self.faults += count;
        self.kinds[kind as usize] += count;
    }
}
