//! `uraid readonly` and `uraid readwrite`.
//! Owns: what they print. Not here: their options (`cli::access`), what the server does (`overseer::access`).

use crate::cli::AccessArgs;
use serde_json::Value;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;

/// Lets a running array take no more writes, or take them again.
pub(crate) fn run(args: &AccessArgs, is_read_only: bool) -> Result<(), ClientError> {
    let answer = client::find(args.array.as_deref(), args.control.as_deref())?.access(is_read_only)?;
    let name = answer.get("array").and_then(Value::as_str).unwrap_or("?");
    let is_changed = answer.get("changed").and_then(Value::as_bool).unwrap_or(true);
    let text = match (is_read_only, is_changed) {
        (true, true) => "read-only",
        (true, false) => "is read-only already",
        (false, true) => "takes writes again",
        (false, false) => "takes writes already",
    };
    print(&format!("{name}: {text}\n"));
    Ok(())
}
