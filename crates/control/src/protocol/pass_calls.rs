//! Calls about passes on the control socket: check, repair, and what every pass is told.
//! Owns: [`PassCall`], its form in a request; [`CheckResult`] and [`Mismatch`], the answer; what is said of sectors that could not be compared. Not here: what the calls do
//! (`overseer`), the rest of the protocol (`rpc`), what is printed (`check`).
//! Invariant: the answer lists at most as many mismatches as the engine keeps.

use crate::protocol::rpc_error::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uraid_block::sizes::counted;

/// A call about passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassCall {
    /// Begins a check.
    Check,
    /// Begins a repair.
    Repair,
    /// Ends a check or repair, and continues paused passes.
    Idle,
    /// Pauses every pass.
    Freeze,
    /// Continues them.
    Unfreeze,
    /// Changes the limits that are given, in KiB a second of each member; 0: as an array starts.
    Speed {
        /// What a pass may have beside clients.
        min: Option<u64>,
        /// What it has at most.
        max: Option<u64>,
    },
    /// Returns the result of the last check or repair.
    Mismatches,
}

impl PassCall {
    /// The methods that are calls about passes.
    pub const NAMES: &str = "check, repair, idle, freeze, unfreeze, speed, mismatches";

    /// `None`: another method.
    pub fn parse<'a>(
        name: &str,
        param: &impl Fn(&'static str) -> Option<&'a Value>,
    ) -> Option<Result<PassCall, &'static str>> {
        let limit = |name| match param(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or("speed takes {\"min\": KiB, \"max\": KiB}, whole numbers"),
        };
        let speed = || Ok(PassCall::Speed { min: limit("min")?, max: limit("max")? });
        Some(match name {
            "check" => Ok(PassCall::Check),
            "repair" => Ok(PassCall::Repair),
            "idle" => Ok(PassCall::Idle),
            "freeze" => Ok(PassCall::Freeze),
            "unfreeze" => Ok(PassCall::Unfreeze),
            "speed" => speed(),
            "mismatches" => Ok(PassCall::Mismatches),
            _ => return None,
        })
    }

    /// Its name and parameters in a request.
    pub fn line(self) -> (&'static str, Value) {
        match self {
            PassCall::Check => ("check", json!({})),
            PassCall::Repair => ("repair", json!({})),
            PassCall::Idle => ("idle", json!({})),
            PassCall::Freeze => ("freeze", json!({})),
            PassCall::Unfreeze => ("unfreeze", json!({})),
            PassCall::Speed { min, max } => ("speed", json!({ "min": min, "max": max })),
            PassCall::Mismatches => ("mismatches", json!({})),
        }
    }
}

/// The error of a call with wrong parameters.
pub fn invalid(text: &str) -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, text)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{self, Method};

    #[test]
    fn calls_about_passes_survive_the_way() {
        let speed = PassCall::Speed { min: Some(1000), max: None };
        for call in [
            PassCall::Check,
            PassCall::Repair,
            PassCall::Idle,
            PassCall::Freeze,
            PassCall::Unfreeze,
            speed,
            PassCall::Mismatches,
        ] {
            let line = protocol::call_line(&Method::Passes(call));
            assert_eq!(protocol::parse_call(line.as_bytes()).expect("a call").method, Method::Passes(call));
        }
        let wrong = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"speed\",\"params\":{\"min\":\"fast\"}}";
        assert_eq!(protocol::parse_call(wrong).expect_err("no number").1.code, RpcError::INVALID_PARAMS);
    }
}
