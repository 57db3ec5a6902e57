//! `uraid idle`, `freeze`, `unfreeze` and `speed`: steers the passes of a running array.
//! Owns: their options and help texts, the calls and the lines about them. Not here: check and repair (`check`), when a pass runs (`engine`), how an array
//! is asked (`client`).

use crate::arguments::OneArray;
use clap::Args;
use serde_json::Value;
use uraid_block::sizes::{SizeError, parse_size_or_zero};
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::Method;
use uraid_engine::{Share, SpeedLimits};

pub(crate) const IDLE: &str = "End the check or repair of a running array, and continue what `freeze` paused.";

pub(crate) const IDLE_AFTER: &str = "\
EXAMPLES
  uraid idle home

A check or repair ends where it is; what it has found until then is kept. A resync or recovery
continues, also one that `uraid freeze` has paused, as with md's `idle`.";

pub(crate) const FREEZE: &str = "Pause the resync, recovery, check or repair of a running array.";

pub(crate) const FREEZE_AFTER: &str = "\
EXAMPLES
  uraid freeze home; uraid unfreeze home

This pauses only resync, recovery, check and repair: the one that runs waits where it is, and none
begins, until `uraid unfreeze` or `uraid idle`. Clients are served meanwhile, and the next start of the
array is not paused. md's `frozen` ends a check; uraid continues it after `uraid unfreeze`.

An array whose state is `frozen` in `uraid detail` is something else: see `uraid unfreeze --help`.";

pub(crate) const UNFREEZE_AFTER: &str = "\
EXAMPLES
  uraid unfreeze home

This continues a resync, recovery, check or repair that `uraid freeze` has paused.

An array whose state is `frozen` in `uraid detail` takes no more writes because of an error. `uraid
unfreeze` does not help there: `uraid detail` shows the reason, `uraid fail --help` what helps.";

pub(crate) const SPEED: &str = "\
Show or set the speed limits of resync, recovery, check and repair of a running array, in KiB a second
of each member, as md's sync_speed_min and sync_speed_max. A pass (any of these) is never faster than
--max. While clients are active, a pass that is faster than --min takes its --share of the members: 15 %,
or 30 % for a recovery of an array that cannot lose another member. That is a part of the time, or of
the bytes that members move, whichever lets it go on earlier. While clients are quiet, a pass is as fast
as the members are.

A limit that is not given stays as it is. An array starts with a minimum of 1000, as md does, and
without a maximum; md's is 200000. The limits last until the array is stopped.";

pub(crate) const SPEED_AFTER: &str = "\
EXAMPLES
  uraid speed home
  uraid speed home --min 1000 --max 200000
  uraid speed home --max 200M                  200 MiB a second
  uraid speed home --share 40                  a recovery matters more than clients
  uraid speed home --min 0 --max 0 --share 0   the limits of an array that starts
  uraid speed home --min 1000000000            never wait for clients";

/// Options of `uraid speed`.
#[derive(Args, Debug)]
pub(crate) struct SpeedArgs {
    /// The array.
    #[command(flatten)]
    pub of: OneArray,
    /// Below this speed, do not wait for clients: KiB a second of each member, or with K, M, G; 0: 1000, as an array
    /// starts
    #[arg(long, value_name = "SPEED", value_parser = parse_speed)]
    pub min: Option<u64>,
    /// Never be faster: KiB a second of each member, or with K, M, G; 0: no limit
    #[arg(long, value_name = "SPEED", value_parser = parse_speed)]
    pub max: Option<u64>,
    /// Take this much of the members while clients are active, in percent: 1 to 90; 0: 15 or 30, as an array starts
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=i64::from(Share::MAX)))]
    pub share: Option<u8>,
}

/// KiB a second, from the text of a size.
fn parse_speed(text: &str) -> Result<u64, SizeError> {
    let sectors = parse_size_or_zero(text)?;
    // Less than a KiB is not no limit.
    Ok(sectors.0.div_ceil(2))
}

/// `uraid idle`.
pub(crate) fn idle(args: &OneArray) -> Result<(), ClientError> {
    steer(args, &Method::Idle {}, |answer, _| idle_text(answer))
}

/// `uraid freeze`.
pub(crate) fn freeze(args: &OneArray) -> Result<(), ClientError> {
    steer(args, &Method::Freeze {}, |_, _| "resync, recovery, check and repair are paused".to_owned())
}

/// `uraid unfreeze`.
pub(crate) fn unfreeze(args: &OneArray) -> Result<(), ClientError> {
    steer(args, &Method::Unfreeze {}, unfreeze_text)
}

/// Makes a call, and prints what `text` makes of the answer and the array's name.
fn steer(args: &OneArray, method: &Method, text: impl Fn(&Value, &str) -> String) -> Result<(), ClientError> {
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
    let method = Method::Speed { min: args.min, max: args.max, share: args.share };
    let answer = client::find(args.of.array.as_deref(), args.of.control.as_deref())?.call(&method)?;
    let limit =
        |name, unset: String| answer.get(name).and_then(Value::as_u64).map_or(unset, |kib| format!("{kib} KiB/s"));
    let min = limit("min", format!("{} KiB/s (default)", SpeedLimits::MIN_KIB));
    let max = limit("max", "none".to_owned());
    let share = share_text(&answer);
    print(&format!("{}: minimum {min}, maximum {max}, of each member{share}\n", name_in(&answer)));
    Ok(())
}

/// What a pass takes beside clients. An older server does not say it.
fn share_text(answer: &Value) -> String {
    let Some(percent) = answer.get("share").and_then(Value::as_u64) else { return String::new() };
    let is_set = if is(answer, "share_is_set", true) { "" } else { " (default)" };
    format!("; beside clients {percent} %{is_set}")
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
    #[test]
    fn a_speed_takes_the_units_of_a_size() {
        assert_eq!(parse_speed("10M"), Ok(10_240));
        assert_eq!(parse_speed("1000"), Ok(1000));
        assert_eq!((parse_speed("0"), parse_speed("1s")), (Ok(0), Ok(1)));
        let error = parse_speed("fast").unwrap_err().to_string();
        assert!(error.starts_with("\"fast\" is not a size, expected a number with K, M, G"), "{error}");
    }
}
