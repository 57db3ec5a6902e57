//! `uraid idle`, `freeze`, `unfreeze` and `speed`: steers the passes of a running array.
//! Owns: the calls and the lines about them. Not here: check and repair (`check`), when a pass runs (`engine`), how an array
//! is asked (`client`).

use crate::cli::{PassArgs, SpeedArgs};
use serde_json::Value;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::pass_calls::PassCall;
use uraid_engine::SpeedLimits;

/// `uraid idle`, `freeze` and `unfreeze`.
pub(crate) fn steer(args: &PassArgs, call: PassCall) -> Result<(), ClientError> {
    let answer = client::find(args.array.as_deref(), args.control.as_deref())?.passes(call)?;
    let name = name_in(&answer);
    print(&format!("{name}: {}\n", steered(call, &answer, &name)));
    Ok(())
}

/// What the answer to `call` says.
fn steered(call: PassCall, answer: &Value, name: &str) -> String {
    // An older server does not say all of it.
    let is = |field, unknown| answer.get(field).and_then(Value::as_bool).unwrap_or(unknown);
    match call {
        PassCall::Idle => {
            let ended = if is("ended", false) { "its check or repair is ended" } else { "no check or repair runs" };
            let continued = if is("continued", false) { "; resync and recovery are not paused any more" } else { "" };
            format!("{ended}{continued}")
        }
        PassCall::Freeze => "resync, recovery, check and repair are paused".to_owned(),
        PassCall::Check | PassCall::Repair | PassCall::Unfreeze | PassCall::Speed { .. } | PassCall::Mismatches => {
            let verb = if is("changed", true) { "are not paused any more" } else { "were not paused" };
            let frozen = match is("takes_writes", true) {
                true => String::new(),
                false => {
                    format!("; the array is frozen by an error and takes no writes: `uraid detail {name}` shows why")
                }
            };
            format!("resync, recovery, check and repair {verb}{frozen}")
        }
    }
}

/// `uraid speed`.
pub(crate) fn speed(args: &SpeedArgs) -> Result<(), ClientError> {
    let call = PassCall::Speed { min: args.min, max: args.max };
    let answer = client::find(args.of.array.as_deref(), args.of.control.as_deref())?.passes(call)?;
    let limit =
        |name, unset: String| answer.get(name).and_then(Value::as_u64).map_or(unset, |kib| format!("{kib} KiB/s"));
    let min = limit("min", format!("{} KiB/s (default)", SpeedLimits::MIN_KIB));
    let max = limit("max", "none".to_owned());
    print(&format!("{}: minimum {min}, maximum {max}, of each member\n", name_in(&answer)));
    Ok(())
}

/// The array of an answer.
pub(crate) fn name_in(answer: &Value) -> String {
    answer.get("array").and_then(Value::as_str).unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unfreeze_says_whether_it_changed_anything_and_what_it_does_not_help_against() {
        let said = |call, answer: Value| steered(call, &answer, "home");
        let passes = "resync, recovery, check and repair";
        let unfreeze = |changed, takes_writes| {
            said(PassCall::Unfreeze, json!({ "changed": changed, "takes_writes": takes_writes }))
        };
        assert_eq!(unfreeze(true, true), format!("{passes} are not paused any more"));
        assert_eq!(unfreeze(false, true), format!("{passes} were not paused"));
        let frozen = "the array is frozen by an error and takes no writes: `uraid detail home` shows why";
        assert_eq!(unfreeze(false, false), format!("{passes} were not paused; {frozen}"));
        let idle = said(PassCall::Idle, json!({ "ended": false, "continued": true }));
        assert_eq!(idle, "no check or repair runs; resync and recovery are not paused any more");
    }
}
