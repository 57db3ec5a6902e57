//! `uraid fail`: declares members of a running array failed.
//! Owns: the call and the line about it. Not here: what the array does (`overseer`, `engine::command::fail`).

use crate::cli::FailArgs;
use crate::running::words;
use serde_json::Value;
use uraid_control::client::{self, ClientError};
use uraid_control::log::{print, warn};

/// Declares members of a running array failed.
pub(crate) fn run(args: &FailArgs) -> Result<(), ClientError> {
    let (array, members) = args.array_and_members();
    let answer = client::find(array, args.control.as_deref()).and_then(|mut client| client.fail(members));
    let answer = answer.map_err(|error| words::explained("fail", array, members, error))?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
    let failed = answer.get("members").and_then(Value::as_array).into_iter().flatten();
    let failed: Vec<String> = failed.map(|member| text(Some(member))).collect();
    let (array, slots) = (text(answer.get("array")), text(answer.get("slots")));
    match failed.is_empty() {
        // `detached`.
        true => print(&format!("{array}: no member is {}, {slots}\n", members.join(" or "))),
        false => print(&format!("{}: set faulty in {array}, {slots}\n", failed.join(", "))),
    }
    if let Some(caution) = answer.get("caution").and_then(Value::as_str) {
        warn(&format!("{array}: {caution}"));
    }
    Ok(())
}
