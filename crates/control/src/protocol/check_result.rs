//! The result of a check or repair, as the control socket gives it.
//! Owns: [`CheckResult`] and [`Mismatch`]; what is said of sectors that could not be compared. Not here: the calls
//! (`method`), what is printed (`uraid check`).
//! Invariant: the answer lists at most as many mismatches as the engine keeps.

use serde::{Deserialize, Serialize};
use uraid_block::sizes::counted;

/// The result of a check or repair. Lengths and addresses in sectors of 512 bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckResult {
    /// The array's name.
    pub array: String,
    /// `check` or `repair`.
    pub kind: String,
    /// `complete`, `ended` by a command, `superseded` by a resync or recovery, `stopped` with the array.
    pub end: String,
    /// How far it came: of each member on parity levels, of the array on mirrors.
    pub done: u64,
    /// Of how much.
    pub total: u64,
    /// Sectors of a member at which something disagrees: md's `mismatch_cnt`.
    pub mismatched: u64,
    /// Sectors that a repair has written over them.
    pub corrected: u64,
    /// Sectors that a member could not read and that were written again from the others.
    pub healed: u64,
    /// Sectors that a member could not read, and that could not be written to it again: it lacks them.
    #[serde(default)]
    pub lacking: u64,
    /// Sectors without redundancy left to compare.
    pub skipped: u64,
    /// Sectors that no member could give.
    pub unreadable: u64,
    /// The first of them, by address; empty in a report of the array.
    #[serde(default)]
    pub mismatches: Vec<Mismatch>,
}

/// Sectors, one after the other, that disagree in the same way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    /// The data that may be wrong: its first sector in the array.
    pub sector: u64,
    /// The length of that data.
    pub sectors: u64,
    /// The same on the members in `slots`: the first sector, from the start of their data.
    pub member_sector: u64,
    /// How many sectors of them.
    pub member_sectors: u64,
    /// The members that disagree with the rest. If it cannot be known which member is wrong: those of
    /// the parity that does not fit, or of the copies that differ from the first.
    pub slots: Vec<u16>,
    /// Their paths.
    pub members: Vec<String>,
    /// Whether parity was compared with data; else, copies.
    #[serde(default)]
    pub parity: bool,
    /// Whether these are known to be wrong. Else it cannot be known which member is.
    pub known: bool,
    /// Whether a repair has written over them.
    pub corrected: bool,
}

/// The sectors that a check could not compare, to follow what it has found; empty if there are none.
pub fn not_compared(lacking: u64, skipped: u64, unreadable: u64) -> String {
    let parts = [
        (lacking, "that a member cannot read or take again"),
        (skipped, "without redundancy left to compare"),
        (unreadable, "that no member could give"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, what)| format!(", {} {what}", counted(count, "sector", "sectors"))).collect()
}
