//! `uraid detail` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use crate::arguments::{MemberArrays, MemberTimeout};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_block::sizes::parse_size;
use uraid_control::report::MkfsOf;
use uraid_layout::Level;
use uraid_option_values::{level, number};

/// The most rows that a part of a drawing has.
pub(crate) const ROWS_MAX: u64 = 64;

/// A file system whose mkfs is given its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum FileSystem {
    Xfs,
    Ext4,
    Btrfs,
}

impl From<FileSystem> for MkfsOf {
    fn from(of: FileSystem) -> MkfsOf {
        match of {
            FileSystem::Xfs => MkfsOf::Xfs,
            FileSystem::Ext4 => MkfsOf::Ext4,
            FileSystem::Btrfs => MkfsOf::Btrfs,
        }
    }
}

pub(crate) const DETAIL: &str = "\
Show the state of an array: from the process that serves it, or, when it does not run, from its
members: which are left out and why, which were not given, what would keep it from starting, and
which are in use by another process or the kernel. Then it prints lines that you can copy: options
for mkfs, if the array holds no data, and `ARRAY <ignore>` for mdadm.conf, so that mdadm leaves the
members alone.
Members that make up no array are shown as far as their superblocks tell; the exit code is 1 then.

With --export, print what mdadm prints for scripts. With --brief or --scan, print the opposite line
for mdadm.conf: the one with which mdadm assembles the array, for arrays that you hand over to the
kernel. With --test, the exit code tells the state of a running array, as mdadm's does.

With --array, once for each, show arrays that do not run and, where they carry the superblocks of an
outer array, whose members are arrays, that one as well.

With --draw, show which chunk lies where: a row of the table is a chunk of every member, a column a
member. Without an array it draws the one that --level, --raid-devices, --layout, --chunk and
--size describe, as `create` would lay it out.";

pub(crate) const DETAIL_AFTER: &str = "\
EXAMPLES
  uraid detail home
  uraid detail --json home
  uraid detail --test home > /dev/null || echo home needs attention: code $?
  uraid detail --export home
  uraid detail --query home /dev/sdb disk0
  mkfs.xfs $(uraid detail --mkfs-args xfs home) /dev/loop0
  uraid detail disk0 disk1 disk2 disk3
  uraid detail --array disk0 disk1 disk2 --array disk3 disk4 disk5
  uraid detail --draw disk0 disk1 disk2 disk3
  uraid detail --draw --level 6 --raid-devices 6 --layout ls --chunk 64K
  uraid detail --draw --level 0 --raid-devices 3 --size 1G,2G,2G --stripes 4
  All running arrays, for the kernel's md to assemble after you stop them:
      uraid detail --scan >> /etc/mdadm/mdadm.conf

EXIT CODES
  With --test, of several arrays the highest:
  0  every slot of the array has a member
  1  at least one slot has no member; the array works
  2  the array takes no more writes, or too many members are missing
  4  the state could not be found out, or the array does not run
  2 is also the code of a wrong command line.

DRAWING
  D0, D1, ...  chunks of the array, on levels with parity; 0, 1, ... on the others
  P, Q         parity
  [D7]         a chunk whose slot has no member
  -            nothing of the array
With --json, `rows` has one object for each row, with a cell for each slot.";

/// Options of `uraid detail`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("conf_lines").args(["brief", "scan"]).multiple(true))]
pub(crate) struct DetailArgs {
    /// As one JSON object; as an array of them where the members are of several arrays
    #[arg(long, conflicts_with_all = ["export", "conf_lines"])]
    pub json: bool,
    /// As lines KEY=VALUE that mdadm prints too: MD_LEVEL, MD_UUID, MD_DEVICE_..._ROLE, ...
    #[arg(short = 'Y', long, conflicts_with = "conf_lines")]
    pub export: bool,
    /// With --export: leave out the members
    #[arg(long, requires = "export")]
    pub no_devices: bool,
    /// As one ARRAY line for mdadm.conf, with which mdadm assembles the array: for arrays that you hand over to the
    /// kernel
    #[arg(short, long)]
    pub brief: bool,
    /// All arrays that run now, as --brief
    #[arg(short, long, conflicts_with_all = ["named", "array", "control", "level"])]
    pub scan: bool,
    /// Behind mdadm's text: the requests of each member, options for mkfs. With --brief or --scan: the level, the number
    /// of slots and the members too
    #[arg(short, long, conflicts_with_all = ["json", "export", "draw", "mismatches"])]
    pub verbose: bool,
    /// Tell the state of a running array by the exit code: see EXIT CODES below
    #[arg(short, long, conflicts_with = "draw")]
    pub test: bool,
    /// What the last check or repair of a running array has found, with addresses; also with --json
    #[arg(long, conflicts_with_all = ["export", "conf_lines", "draw", "test", "scan", "level", "array"])]
    pub mismatches: bool,
    /// Only the options of this mkfs that align a file system to the stripes: `mkfs.xfs $(uraid detail --mkfs-args xfs
    /// home) /dev/loop0`. Nothing for btrfs and for levels without stripes
    #[arg(long, value_name = "FILE_SYSTEM", value_enum)]
    #[arg(conflicts_with_all = ["json", "export", "conf_lines", "draw", "test", "mismatches", "level"])]
    pub mkfs_args: Option<FileSystem>,
    /// Of each word, in one line: whether it is an array that runs, or a member of one, and where it is
    #[arg(short = 'Q', long)]
    #[arg(conflicts_with_all = ["json", "export", "conf_lines", "draw", "test", "mismatches", "mkfs_args", "verbose"])]
    #[arg(conflicts_with_all = ["array", "control", "level"])]
    pub query: bool,
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with_all = ["named", "array"])]
    pub control: Option<PathBuf>,
    /// Draw the first stripes: which chunk, P, Q or copy lies where
    #[arg(long, conflicts_with_all = ["export", "conf_lines"])]
    pub draw: bool,
    /// With --draw: how many rows [default: 8, or more if the layout takes more rows to repeat]
    #[arg(long, value_name = "N", requires = "draw", value_parser = number::<u64>(1..=ROWS_MAX))]
    pub stripes: Option<u64>,
    #[command(flatten)]
    pub member_timeout: MemberTimeout,
    #[command(flatten)]
    pub geometry: GeometryArgs,
    #[command(flatten)]
    pub arrays: MemberArrays,
    /// The array's name, or its members
    #[arg(required_unless_present_any = ["control", "level", "array", "scan"], conflicts_with = "array", value_name = "ARRAY")]
    pub named: Vec<String>,
}

/// A geometry without members: `uraid detail --draw --level ...`.
#[derive(Args, Debug)]
pub(crate) struct GeometryArgs {
    /// With --draw, in place of an array: its RAID level: linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(short, long, value_parser = level, allow_hyphen_values = true)]
    #[arg(requires = "draw", requires = "raid_devices", conflicts_with_all = ["named", "array", "control"])]
    pub level: Option<Level>,
    /// With --level: how many slots
    #[arg(short = 'n', long, value_name = "N", requires = "level", value_parser = number::<u16>(0..=u16::MAX.into()))]
    pub raid_devices: Option<u16>,
    /// With --level: consecutive data on one member; a bare number is in KiB [default: as create chooses]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, requires = "level")]
    pub chunk: Option<Sectors>,
    /// With --level: how data and parity, or copies, are placed; see LAYOUTS in create's --help
    #[arg(short = 'p', long, visible_alias = "parity", value_name = "LAYOUT", requires = "level")]
    pub layout: Option<String>,
    /// With --level: data on each member, for linear and raid0 also as one size for each: 1G,2G,2G [default: 1G]
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_size, value_delimiter = ',', requires = "level")]
    pub size: Vec<Sectors>,
}
