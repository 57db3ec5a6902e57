//! `uraid fail`: declares members of a running array failed.
//! Owns: its options and help texts, the call and the line about it. Not here: what the array does (`overseer`, `engine::command::fail`).

use crate::running::words;
use clap::{Args, Command};
use serde_json::Value;
use std::path::PathBuf;
use uraid_control::client::{self, ClientError};
use uraid_control::log::{print, warn};
use uraid_option_values::usage_error_of;

pub(crate) const FAIL: &str = "\
Declare members of a running array failed: they are not read or written any more, and the
superblocks of the others say so before this returns. Refused if the array could not be served
without the members. All members of one command are failed together, or none.

If members have no space, the array is frozen: it takes no more writes until all full members are
failed in one command, or until there is room and it is started again. After any other error it stays
frozen: stop it and start it again.

A member that does not answer can be failed, too. Name it by its slot, or by its path exactly as it
was given to `serve` or as `uraid detail` shows it: resolving another path would wait for it. The word
`detached` stands for members whose device is gone.";

pub(crate) const FAIL_AFTER: &str = "\
EXAMPLES
  uraid fail home disk1
  uraid fail home 1
  uraid fail home disk1 disk3
  uraid fail home detached
  uraid fail --control /tmp/home.ctl disk1";

const FAIL_USAGE: &str = "\
uraid fail ARRAY MEMBER...
       uraid fail --control SOCK MEMBER...";

/// Options of `uraid fail`.
#[derive(Args, Debug)]
#[command(override_usage = FAIL_USAGE)]
pub(crate) struct FailArgs {
    /// The control socket of the process that serves the array, in place of ARRAY
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// The array's name or one of its members, then the path or slot of each member to fail
    // One value name that renders as two: clap would show a second one as optional.
    #[arg(required = true, num_args = 1.., value_name = "ARRAY> <MEMBER")]
    array_and_members: Vec<String>,
}

impl FailArgs {
    /// The array, unless --control selects it, and the members. Ends the process with exit code 2 if one is missing.
    fn array_and_members(&self) -> (Option<&str>, &[String]) {
        match (self.array_and_members.as_slice(), &self.control) {
            ([array, members @ ..], None) if !members.is_empty() => (Some(array), members),
            (members, Some(_)) => (None, members),
            _ => usage_error_of(
                FailArgs::augment_args(Command::new("fail")),
                "fail takes ARRAY MEMBER..., or --control SOCK MEMBER...",
            ),
        }
    }
}

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
