//! `uraid incremental` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use crate::arguments::MemberTimeout;
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;
use uraid_option_values::parse_wait;

pub(crate) const INCREMENTAL: &str = "\
Take in one device that has appeared, as udev's rules do: if it is a member of an array that the
configuration gives to uraid (`uraid assemble --help`), it is remembered, and the array is started in the
background as soon as all members are there that its superblocks expect. Of an array that runs it
becomes a member: one that was away, if the bitmap says what it has missed, or a spare.

What keeps a device out, in this order: no DEVICE line and no members= names it; it has no superblock;
an ARRAY line says <ignore>; no URAID line takes its array. Then it is left to mdadm.

--run-after starts an array that lacks members after that time, from the first device on that makes
this possible; --run does so at once. --fail is for a device that has gone.";

pub(crate) const INCREMENTAL_AFTER: &str = "\
EXAMPLES
  uraid incremental /dev/sdb
  uraid incremental --run-after 30s /dev/sdb
  uraid incremental --export --no-start /dev/sdb
  uraid incremental --run --scan
  uraid incremental --fail /dev/sdb

EXPORT
  --export prints these for udev: MD_DEVICE, MD_DEVNAME: what the array is called; MD_FOREIGN: yes if it is of
  another host; MD_STARTED: yes; already, it ran; unsafe, it could be started without the members that are
  missing; no; nothing, there is nothing to start. URAID_ARRAY is its UUID, URAID_SERVICE the unit to start.

  Once it is known that the array is uraid's, the exit code is 0 and the lines are there, whatever becomes of the
  device: udev reads nothing of a program that fails, and would leave the device to mdadm.

EXIT CODES
  0  the device was taken in
  1  it was not
  2  the array could not be started; 2 is also the code of a wrong command line";

/// Options of `uraid incremental`.
#[derive(Args, Debug)]
pub(crate) struct IncrementalArgs {
    /// Start the array as soon as its data can be read, although members are missing; with --scan, all arrays of which
    /// some members were taken in
    #[arg(short = 'R', long, conflicts_with = "no_start")]
    pub run: bool,
    /// All arrays that wait for members, with --run
    #[arg(short, long, requires = "run", conflicts_with_all = ["device", "fail"])]
    pub scan: bool,
    /// If members are missing, start without them after this time, such as 30s
    #[arg(long, value_name = "TIME", value_parser = parse_wait, conflicts_with_all = ["run", "no_start", "fail"])]
    pub run_after: Option<Duration>,
    /// Only take the device in: somebody else starts the array
    #[arg(long)]
    pub no_start: bool,
    /// Print what became of it as KEY=VALUE lines
    #[arg(long)]
    pub export: bool,
    /// The device has gone: fail it in the array that has it, and remove it
    #[arg(short, long, conflicts_with_all = ["run", "no_start"])]
    pub fail: bool,
    /// The configuration: a file, a folder of *.conf, `partitions` or `none` [default: as `uraid assemble`]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<OsString>,
    #[command(flatten)]
    pub member_timeout: MemberTimeout,
    /// The device
    #[arg(value_name = "DEVICE", required_unless_present = "scan")]
    pub device: Option<String>,
    /// Other names of it, which the lines of the configuration may use
    #[arg(value_name = "ALIAS")]
    pub aliases: Vec<String>,
}
