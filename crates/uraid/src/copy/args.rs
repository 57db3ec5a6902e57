//! `uraid copy` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use crate::arguments::MemberArrays;
use clap::Args;
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_block::sizes::{parse_size, parse_size_or_zero};
use uraid_format::Version;
use uraid_layout::Level;
use uraid_option_values::{level, number};

pub(crate) const COPY: &str = "\
Copy all the bytes of an array to a file, a block device or a pipe, without serving it.

The members are opened for reading only and never written, whatever state they are in. Missing
members are computed from the others where the level allows it. OUT is the last argument, or stands
before --array; `-` is standard output. A new file is sparse: blocks of zeroes take no room.

If a sector cannot be read from any member, it is listed in the map file and is zeroes in OUT; the
rest is still copied, and the exit code is 1. The map file (OUT.map) also records how far the copy
is: repeat the same command to continue where the last one ended and to try the unreadable sectors
again. The file has the format of GNU ddrescue's map files.

A raid0 or linear array may lack members, or have one that is cut short or whose superblock cannot
be read. Then --run copies what is left; the map lists what is lost.

Data in OUT is overwritten only with --overwrite.

With --array, once for each array, the members are arrays, and copy reads the array that they make
up (`uraid create --array`). That array and each of its members may lack as many members as its
level allows.

If the superblocks are lost, --assume copies by the geometry that you give, as `create` would lay
the array out: the members in the order of their slots, `missing` for one that is gone. The
members' own superblocks are ignored. Give the options that the array was created with; an option
that you leave out has the default of `create`.

--order does the same for members in an unknown order. It tries all orders, and the layouts, chunks
and data offsets that are not given, and prints which fit best. The evidence is parity and copies,
the marks of file systems and partition tables, and text and tables that continue from one member
to the next. It prints what it tried and how sure it is. With OUT as the last argument, it copies
by the best candidate if that one is clearly ahead of the others; otherwise choose one with
--candidate N. Without OUT it only prints the ranking.";

pub(crate) const COPY_AFTER: &str = "\
EXAMPLES
  uraid copy disk0 disk1 disk2 disk3 rescued.img
  uraid copy --force disk0 disk2 disk3 rescued.img
  uraid copy /dev/sd[b-e] - | zstd > home.zst
  uraid copy --overwrite /dev/sd[b-e] /dev/sdx
  uraid copy --run stripe0 stripe2 stripe3 rescued.img
  uraid copy --run rescued.img --array disk0 disk1 disk3 --array disk4 disk6 disk7
  uraid copy --assume -l 5 -n 4 -c 64K disk0 missing disk2 disk3 rescued.img
  uraid copy --order -l 6 -n 4 -c 64K a.img b.img c.img d.img

SIGNALS
  SIGTERM, SIGINT  write what was read, save the map, exit 1; repeat the command to continue";

/// With `--array`, which takes all names that follow, OUT is the first name instead of the last.
const USAGE: &str = "uraid copy [OPTIONS] MEMBER... OUT
       uraid copy [OPTIONS] OUT --array MEMBER... [--array MEMBER...]";

/// Options of `uraid copy`.
#[derive(Args, Debug)]
#[command(allow_missing_positional = true, override_usage = USAGE)]
pub(crate) struct CopyArgs {
    /// Copy although data may be wrong: dirty and degraded, or with members that missed the last writes
    #[arg(short, long)]
    pub force: bool,
    /// Copy even if members that the superblocks expect are missing; of a raid0 or linear array, copy what is left
    #[arg(short = 'R', long)]
    pub run: bool,
    /// Overwrite what OUT holds, and an older map of it
    #[arg(long)]
    pub overwrite: bool,
    /// The map file [default: OUT.map; none when OUT is a pipe]
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// The superblocks are lost: copy by the geometry given here
    #[arg(long, requires = "level", requires = "raid_devices", group = "lost", conflicts_with = "array")]
    pub assume: bool,
    /// The order is lost too: try all orders (and layouts, without --layout) and print which fit; OUT may be left out
    #[arg(long, requires = "level", requires = "raid_devices", group = "lost", conflicts_with = "array")]
    pub order: bool,
    /// With --order: copy by this candidate of the ranking instead of the first
    #[arg(long, value_name = "N", requires = "order")]
    pub candidate: Option<usize>,
    /// With --assume or --order: the RAID level: linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(short, long, requires = "lost", value_parser = level, allow_hyphen_values = true)]
    pub level: Option<Level>,
    /// With --assume or --order: how many slots the array has, `missing` ones included
    #[arg(short = 'n', long, value_name = "N", requires = "lost", value_parser = number::<u16>(0..=u16::MAX.into()))]
    pub raid_devices: Option<u16>,
    /// With --assume or --order: consecutive data on one member; a bare number is in KiB [default: as create chooses; --order tries 4K to 1M]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, requires = "lost")]
    pub chunk: Option<Sectors>,
    /// With --assume or --order: how data and parity, or copies, are placed; see LAYOUTS in create's --help
    #[arg(short = 'p', long, visible_alias = "parity", value_name = "LAYOUT", requires = "lost")]
    pub layout: Option<String>,
    /// With --assume or --order: the kind of superblock that was there: 1.0, 1.1, 1.2
    #[arg(short = 'e', long, value_name = "VERSION", value_parser = version, default_value = "1.2", requires = "lost")]
    pub metadata: Version,
    /// With --assume or --order: where the data starts on each member; a bare number is in KiB [default: as create chooses; --order tries others too]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_or_zero, requires = "lost")]
    pub data_offset: Option<Sectors>,
    /// With --assume or --order: how much of each member was used [default: what the smallest has]; otherwise how much data each missing member of a raid0 or linear array held [default: what each of the others holds]; a bare number is in KiB
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<Sectors>,
    #[command(flatten)]
    arrays: MemberArrays,
    /// The array's members, in any order; with --assume in the order of their slots
    #[arg(required_unless_present = "array", conflicts_with = "array", value_name = "MEMBER|missing")]
    pub members: Vec<String>,
    /// Where to: a file, a block device, or `-`; before --array
    #[arg(required = true, value_name = "OUT")]
    pub out: PathBuf,
}

impl CopyArgs {
    /// The members of each array.
    pub(crate) fn groups(&self) -> Vec<Vec<String>> {
        self.arrays.groups_or(&self.members)
    }

    /// Whether the arrays may be members of another one: they were given with --array.
    pub(crate) fn has_member_arrays(&self) -> bool {
        !self.arrays.0.is_empty()
    }
}

fn version(text: &str) -> Result<Version, String> {
    match Version::parse(text) {
        Some(Version::V0_90) | None => {
            Err(format!("no geometry is assumed for superblocks of version {text}: give 1.0, 1.1 or 1.2"))
        }
        Some(version @ (Version::V1_0 | Version::V1_1 | Version::V1_2)) => Ok(version),
    }
}
