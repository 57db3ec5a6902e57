//! `uraid readonly` and `uraid readwrite`.
//! Owns: what they print. Not here: their options (`cli::access`), what the server does (`overseer::access`).

use crate::cli::AccessArgs;
use serde_json::Value;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::Method;

/// Lets a running array take no more writes, or take them again.
pub(crate) fn run(args: &AccessArgs, is_read_only: bool) -> Result<(), ClientError> {
    let method = if is_read_only { Method::ReadOnly {} } else { Method::ReadWrite {} };
    let answer = client::find(args.array.as_deref(), args.control.as_deref())?.call(&method)?;
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
