//! `uraid idle`, `freeze`, `unfreeze` and `speed`: steers the passes of a running array.
//! Owns: the calls and the lines about them. Not here: check and repair (`check`), when a pass runs (`engine`), how an array
//! is asked (`client`).

use crate::cli::{PassArgs, SpeedArgs};
use serde_json::Value;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::Method;
use uraid_engine::SpeedLimits;

/// `uraid idle`.
pub(crate) fn idle(args: &PassArgs) -> Result<(), ClientError> {
    steer(args, &Method::Idle {}, |answer, _| idle_text(answer))
}

/// `uraid freeze`.
pub(crate) fn freeze(args: &PassArgs) -> Result<(), ClientError> {
    steer(args, &Method::Freeze {}, |_, _| "resync, recovery, check and repair are paused".to_owned())
}

/// `uraid unfreeze`.
pub(crate) fn unfreeze(args: &PassArgs) -> Result<(), ClientError> {
    steer(args, &Method::Unfreeze {}, unfreeze_text)
}

/// Makes a call, and prints what `text` makes of the answer and the array's name.
fn steer(args: &PassArgs, method: &Method, text: impl Fn(&Value, &str) -> String) -> Result<(), ClientError> {
    let answer = client::find(args.array.as_deref(), args.control.as_deref())?.call(method)?;
    let name = name_in(&answer);
    print(&format!("{name}: {}\n", text(&answer, &name)));
    Ok(())
}

/// What an answer says. An older server does not say all of it.
fn is(answer: &Value, field: &str, unknown: bool) -> bool {
    answer.get(field).and_then(Value::as_bool).unwrap_or(unknown)
}

fn idle_text(answer: &Value) -> String {
    let has_ended = is(answer, "ended", false);
    let ended = if has_ended { "its check or repair is ended" } else { "no check or repair runs" };
    let continued = if is(answer, "continued", false) { "; resync and recovery are not paused any more" } else { "" };
    format!("{ended}{continued}")
}

fn unfreeze_text(answer: &Value, name: &str) -> String {
    let verb = if is(answer, "changed", true) { "are not paused any more" } else { "were not paused" };
    let frozen = match is(answer, "takes_writes", true) {
        true => String::new(),
        false => format!("; the array is frozen by an error and takes no writes: `uraid detail {name}` shows why"),
    };
    format!("resync, recovery, check and repair {verb}{frozen}")
}

/// `uraid speed`.
pub(crate) fn speed(args: &SpeedArgs) -> Result<(), ClientError> {
    let method = Method::Speed { min: args.min, max: args.max };
    let answer = client::find(args.of.array.as_deref(), args.of.control.as_deref())?.call(&method)?;
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
        let passes = "resync, recovery, check and repair";
        let unfreeze =
            |changed, takes_writes| unfreeze_text(&json!({ "changed": changed, "takes_writes": takes_writes }), "home");
        assert_eq!(unfreeze(true, true), format!("{passes} are not paused any more"));
        assert_eq!(unfreeze(false, true), format!("{passes} were not paused"));
        let frozen = "the array is frozen by an error and takes no writes: `uraid detail home` shows why";
        assert_eq!(unfreeze(false, false), format!("{passes} were not paused; {frozen}"));
        let idle = idle_text(&json!({ "ended": false, "continued": true }));
        assert_eq!(idle, "no check or repair runs; resync and recovery are not paused any more");
    }
}
