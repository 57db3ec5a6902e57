//! `uraid examine`, `uraid detail` and `uraid list` on the command line.
//! Owns: their options and help texts. Not here: what they do (`crate::examine`, `crate::detail`, `crate::list`).

use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMINE: &str = "\
Show what the superblock of each member says, in mdadm's words and order. Works on members in use.
Times are in UTC. Fails when a member has no superblock, or a wrong one; one that is wrong only in
its checksum is shown, with the sum that was expected.";

pub(super) const EXAMINE_AFTER: &str = "\
EXAMPLES
  uraid examine disk0 disk1
  uraid examine disk* | grep -E '^disk|Events|State'
  uraid examine --json disk* | jq '.[] | {path, events, device_role}'
  uraid examine --export disk0
  uraid examine --brief disk* >> /etc/mdadm/mdadm.conf

FIELDS
  State         clean, or active: there were writes that no clean stop followed
  Events        changes of the array's state; the highest among the members is current
  Array State   one letter per slot: A active, . missing, R being replaced";

/// Options of `uraid examine`.
#[derive(Args, Debug)]
pub struct ExamineArgs {
    /// As one JSON array of one object per member: sizes and places in sectors, times in seconds since 1970
    #[arg(long, conflicts_with_all = ["export", "brief"])]
    pub json: bool,
    /// As lines KEY=VALUE that mdadm prints too: MD_LEVEL, MD_UUID, ...
    #[arg(short = 'Y', long, conflicts_with = "brief")]
    pub export: bool,
    /// One ARRAY line per array, for mdadm.conf
    #[arg(short, long)]
    pub brief: bool,
    /// With --brief: the level, the number of slots and the members too
    #[arg(short, long, requires = "brief")]
    pub verbose: bool,
    /// What to look at
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,
}

pub(super) const DETAIL: &str = "\
Show the state of an array: from the process that serves it, or, when it does not run, from its
members: who is left out and why, who was not given, and what would keep it from starting. Then the
lines for mkfs that fit its stripes, and the one for mdadm.conf that keeps udev's mdadm off it.";

pub(super) const DETAIL_AFTER: &str = "\
EXAMPLES
  uraid detail home
  uraid detail --json home
  uraid detail disk0 disk1 disk2 disk3";

/// Options of `uraid detail`.
#[derive(Args, Debug)]
pub struct DetailArgs {
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// The array's name, or its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Vec<String>,
}

pub(super) const LIST_AFTER: &str = "\
EXAMPLES
  uraid list
  uraid list --json";

/// Options of `uraid list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// As one JSON array
    #[arg(long)]
    pub json: bool,
}
