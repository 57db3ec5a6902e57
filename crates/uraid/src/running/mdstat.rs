//! `uraid mdstat`: the arrays that run now, as /proc/mdstat shows those of the kernel.
//! Owns: its options and help texts. Not here: how arrays are found (`client`), the picture (`report`).

use clap::Args;
use serde_json::json;
use uraid_control::client::{self, ClientError, Running};
use uraid_control::log::print;
use uraid_control::report::mdstat;
use uraid_control::runtime;

pub(crate) const MDSTAT: &str = "\
Show the arrays that run now in the format of /proc/mdstat: level, members with their numbers, size
in KiB, slots, and while a resync, recovery or check runs a line with its speed and the minutes that
are left. A repair is shown as `resync`, as by md. The arrays are those that `uraid list` shows; those
of the kernel are not among them.";

pub(crate) const MDSTAT_AFTER: &str = "\
EXAMPLES
  uraid mdstat
  watch uraid mdstat
  uraid mdstat --json | jq '.[] | {name, state, resync, recovery}'

  Personalities : [linear] [raid0] [raid1] [raid10] [raid4] [raid5] [raid6]
  md127 : active raid5 disk0[0] disk1[1] disk2[2](F) disk3[3](S)
        2093056 blocks super 1.2 level 5, 512k chunk, algorithm 2 [3/2] [UU_]

  md126 : active raid1 disk4[0] disk5[1]
        1046528 blocks super 1.2 [2/2] [UU]
        [==>..................]  resync = 12.6% (132096/1046528) finish=0.4min speed=33024K/sec

  unused devices: <none>

MARKS
  [3]                 the member's number in the superblocks' table
  (F), (S)            faulty, spare
  [3/2] [UU_]         two of three slots have a member in sync
  broken              the array takes no more writes: `uraid detail` says why
  resync=PENDING      the resync waits: the array takes no writes now, or `uraid freeze` has paused it
A blank in a name shows as _. --json has the objects of `uraid list --json`, with whole paths. An array
of another user is named on stderr, and the exit code is 1 then.";

/// Options of `uraid mdstat`.
#[derive(Args, Debug)]
pub(crate) struct MdstatArgs {
    /// As one JSON array
    #[arg(long)]
    pub json: bool,
}

/// Prints the running arrays: the picture, or the JSON array that `list` prints. Returns false if this user may not ask
/// some of them.
pub(crate) fn run(is_json: bool) -> Result<bool, ClientError> {
    let Running { reports, is_incomplete } = client::running()?;
    runtime::say_not_shown(&reports);
    print(&if is_json { format!("{}\n", json!(reports)) } else { mdstat(&reports) });
    Ok(!is_incomplete)
}
