//! `uraid fail`, `uraid stop` and `uraid wait` on the command line.
//! Owns: their options and help texts. Not here: what they do (`fail`, `stop` and `wait` of `running`).

use super::usage_error_of;
use clap::Args;
use std::path::PathBuf;

pub(super) const FAIL: &str = "\
Declare members of a running array failed: they are not read or written any more, and the
superblocks of the others say so before this returns. Refused if the array could not be served
without the members. All members of one command are failed together, or none.

If members have no space, the array is frozen: it takes no more writes until all full members are
failed in one command, or until there is room and it is started again. After any other error it stays
frozen: stop it and start it again.

A member that does not answer can be failed, too. Name it by its slot, or by its path exactly as it
was given to `serve` or as `uraid detail` shows it: resolving another path would wait for it. The word
`detached` stands for members whose device is gone.";

pub(super) const FAIL_AFTER: &str = "\
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
    pub(crate) fn array_and_members(&self) -> (Option<&str>, &[String]) {
        match (self.array_and_members.as_slice(), &self.control) {
            ([array, members @ ..], None) if !members.is_empty() => (Some(array), members),
            (members, Some(_)) => (None, members),
            _ => usage_error_of("fail", "fail takes ARRAY MEMBER..., or --control SOCK MEMBER..."),
        }
    }
}

pub(super) const STOP: &str = "Stop a running array: answer what is in flight, flush, mark it clean.";

pub(super) const STOP_AFTER: &str = "\
EXAMPLES
  uraid stop home
  uraid stop --control /tmp/home.ctl
  uraid stop --all home
  uraid stop --scan

Refused while clients with write access are connected: one of them may have a file system of the
array mounted. Disconnect them first (umount, nbd-client -d), or use --force. SIGTERM, as from
systemd, stops the server in any case; so do SIGINT and SIGHUP.

Returns when the array is stopped and its members can be used by others. If a member does not
answer, the process may remain, but the array is stopped, and its name, sockets and other members
are free. Arrays of one `uraid serve` end together, and are stopped only with --all. An array whose
members are arrays is stopped together with them.";

/// Options of `uraid stop`.
#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// Stop the other arrays of the same process, too
    #[arg(long)]
    pub all: bool,
    /// Stop all arrays that run
    #[arg(short, long, conflicts_with_all = ["array", "control", "all"])]
    pub scan: bool,
    /// Stop even if clients with write access are connected: a file system that is mounted from the array loses its
    /// disk
    #[arg(long)]
    pub force: bool,
    /// The array's name, or its members: one is enough
    #[arg(required_unless_present_any = ["control", "scan"], value_name = "ARRAY")]
    pub array: Vec<String>,
}

pub(super) const WAIT: &str = "\
Wait until no resync, recovery, check or repair of these arrays runs. One that `uraid freeze` has paused
is waited for, too, until it continues and ends. On a terminal a line shows how far it is, how fast, and
how long it takes; elsewhere nothing is printed. Any number of commands may wait for one array. If an
array is stopped or takes no more writes meanwhile, the wait for it ends with an error.";

pub(super) const WAIT_AFTER: &str = "\
EXAMPLES
  uraid wait home
  uraid wait home work; echo $?
  uraid wait home disk7 && echo both were waited for
  uraid wait --control /tmp/home.ctl

EXIT CODES
  Of several arrays the highest. 0 and 1 are those of `mdadm --wait`, 4 is uraid's own:
  0  every array had a resync, recovery, check or repair, which has ended
  1  an array had none: there was nothing to wait for, and the others were waited for
  4  an array could not be asked, was stopped, or takes no more writes";

/// Options of `uraid wait`.
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "arrays")]
    pub control: Option<PathBuf>,
    /// The name of each array, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub arrays: Vec<String>,
}
