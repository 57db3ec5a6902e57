//! `uraid examine` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use crate::arguments::MemberTimeout;
use clap::{ArgGroup, Args};
use std::path::PathBuf;

pub(crate) const EXAMINE: &str = "\
Show what the superblock of each member says, in mdadm's words and order. Works on members in use.
Times are in UTC. Fails when a member has no superblock, or a wrong one; one that is wrong only in
its checksum is shown, with the sum that was expected.";

pub(crate) const EXAMINE_AFTER: &str = "\
EXAMPLES
  uraid examine disk0 disk1
  uraid examine disk* | grep -E '^disk|Events|State'
  uraid examine --json disk* | jq '.[] | {path, events, device_role}'
  uraid examine --export disk0
  uraid examine --brief disk* >> /etc/mdadm/mdadm.conf
  uraid examine --scan
  uraid examine --brief '/disks/*.img'
  uraid examine --bitmap disk0
  uraid examine --bad-blocks disk*

FIELDS
  State         clean; or active: written, and not stopped cleanly since
  Events        changes of the array's state; the highest among the members is current
  Array State   one letter per slot: A active, . missing, R being replaced";

/// Options of `uraid examine`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("conf_lines").args(["brief", "scan"]).multiple(true))]
pub(crate) struct ExamineArgs {
    /// As one JSON array of one object per member: sizes and places in sectors, times in seconds since 1970
    #[arg(long, conflicts_with_all = ["export", "brief"])]
    pub json: bool,
    /// As lines KEY=VALUE that mdadm prints too: MD_LEVEL, MD_UUID, ...
    #[arg(short = 'Y', long, conflicts_with = "brief")]
    pub export: bool,
    /// One ARRAY line per array for mdadm.conf, with which mdadm assembles it: for arrays that the kernel runs
    #[arg(short, long)]
    pub brief: bool,
    /// As --brief, and without MEMBER of what the DEVICE lines of the configuration name, or of all block devices
    #[arg(short, long, conflicts_with_all = ["json", "export"])]
    pub scan: bool,
    /// With --scan: mdadm.conf, another such file, a folder of *.conf, `partitions` or `none`
    /// [default: see `uraid assemble --help`]
    #[arg(short, long, value_name = "FILE", requires = "scan")]
    pub config: Option<std::ffi::OsString>,
    /// With --brief or --scan: the level, the number of slots and the members too
    #[arg(short, long, requires = "conf_lines")]
    pub verbose: bool,
    /// The write-intent bitmap alone, in mdadm's lines
    #[arg(short = 'X', long, visible_alias = "examine-bitmap")]
    #[arg(conflicts_with_all = ["json", "export", "conf_lines", "verbose", "bad_blocks"])]
    pub bitmap: bool,
    /// The list of bad blocks alone, in mdadm's lines
    #[arg(long, visible_alias = "examine-badblocks", conflicts_with_all = ["json", "export", "conf_lines", "verbose"])]
    pub bad_blocks: bool,
    #[command(flatten)]
    pub member_timeout: MemberTimeout,
    /// What to look at: files, devices, and what has a superblock in folders and among patterns
    #[arg(required_unless_present = "scan", value_name = "MEMBER")]
    pub members: Vec<PathBuf>,
}
