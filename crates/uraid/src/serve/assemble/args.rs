//! `uraid assemble` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use crate::arguments::MemberTimeout;
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;
use uraid_control::names::parse_uuid;
use uraid_option_values::parse_wait;

pub(crate) const ASSEMBLE: &str = "\
Find arrays and start them in the background, each as a server of its own: those of the configuration with
--scan, else one.

With --scan, mdadm.conf says which arrays are uraid's: those that a line `URAID NAME` names, and with a
line `URAID all` those that the ARRAY and AUTO lines allow. All others are mdadm's. Members are looked for
where the URAID line says (members=), else among the DEVICE lines, else among all block devices. As
with mdadm, a member that is missing does not keep an array from starting, unless --no-degraded is given;
and as soon as an ARRAY line lists an array, those that none lists are not started, which is said.
Arrays on arrays: it looks again until nothing new is found.

Without --scan, ARRAY is what the array is to be called: NAME, /dev/md/NAME or /dev/mdN. MEMBERs are files,
devices, folders and patterns, and all that is found there is of one array; --uuid or --name tells it
from others. Without MEMBERs, the configuration says which array that is and where to look.";

pub(crate) const ASSEMBLE_AFTER: &str = "\
EXAMPLES
  uraid assemble --scan
  uraid assemble --scan --config /etc/mdadm/mdadm.conf --no-degraded
  uraid assemble home
  uraid assemble home /dev/sdb /dev/sdc /dev/sdd
  uraid assemble /dev/md0 --uuid c9d3d9fb:39864ae6:b6437b7f:7b65dc9f '/disks/*.img'
  uraid assemble --name home --run '/dev/disk/by-id/*'
  uraid assemble --scan --dry-run

CONFIGURATION
  root: /etc/mdadm.conf, else /etc/mdadm/mdadm.conf, and the *.conf in the folder of that name with .d
  others: $XDG_CONFIG_HOME/uraid/mdadm.conf, else ~/.config/uraid/mdadm.conf, and mdadm.conf.d beside it
  $URAID_CONFIG or --config: a file, a folder, `partitions` or `none`

EXIT CODES
  0  every array that was found and is uraid's runs now
  1  one could not be started
  2  there is none; 2 is also the code of a wrong command line";

/// Options of `uraid assemble`.
#[derive(Args, Debug)]
pub(crate) struct AssembleArgs {
    /// Start all arrays that the configuration gives to uraid; with ARRAYs, those of them that are named
    #[arg(short, long, conflicts_with_all = ["uuid", "name"])]
    pub scan: bool,
    /// The configuration: a file, a folder of *.conf, `partitions` or `none` [default: see CONFIGURATION]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<OsString>,
    /// Only the array with this UUID
    #[arg(short, long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<[u8; 16]>,
    /// Only the array with this name in its superblocks, with or without its host
    #[arg(short = 'N', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Start degraded, even if members that the superblocks expect are missing; --scan does it by itself
    #[arg(short = 'R', long, conflicts_with = "no_degraded")]
    pub run: bool,
    /// Stay in the foreground, as the array's server: for units of systemd
    #[arg(long, conflicts_with_all = ["scan", "dry_run"])]
    pub foreground: bool,
    /// With --foreground: wait this long for members that are missing, then start without them if that is possible
    #[arg(long, value_name = "TIME", value_parser = parse_wait, requires = "foreground")]
    pub run_after: Option<Duration>,
    /// Do not start an array that lacks a member that its superblocks expect
    #[arg(long)]
    pub no_degraded: bool,
    /// Start although data may be lost: dirty and degraded, or with members that missed the last writes
    #[arg(short, long)]
    pub force: bool,
    /// Never write a byte to a member, not even its superblock
    #[arg(short = 'o', long, visible_alias = "readonly")]
    pub read_only: bool,
    /// Also say which arrays were found and are left alone, and why
    #[arg(short, long)]
    pub verbose: bool,
    /// Only say what would be started, as command lines
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub member_timeout: MemberTimeout,
    /// What the array is to be called
    #[arg(value_name = "ARRAY", required_unless_present_any = ["scan", "uuid", "name"])]
    pub array: Option<String>,
    /// Its members: files, devices, folders, patterns
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
}
