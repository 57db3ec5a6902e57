//! `uraid copy` on the command line.
//! Owns: its options and help texts. Not here: what it does (`crate::copy`).

use crate::sizes::{parse_size, parse_size_or_zero};
use clap::Args;
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_format::Version;
use uraid_layout::Level;

pub(super) const COPY: &str = "\
Copy all the bytes of an array to a file, a block device or a pipe, without serving it.

The members are opened for reading only and never written, whatever state they are in. Missing
members are computed from the others where the level allows it. OUT is the last argument; `-` is
standard output. A new file is sparse: blocks of zeroes take no room.

A sector that cannot be read from any member is listed in the map file, is zeroes in OUT, and
makes the exit code 1; the rest is copied all the same. The map file (OUT.map) also tells how far
the copy is: the same command again goes on where the last one ended, and tries the unreadable
sectors again. It has the format of GNU ddrescue's map files.

What OUT holds is overwritten only with --overwrite.

When the superblocks are lost, --assume copies by the geometry that you give, as `create` would
lay the array out: the members in the order of their slots, `missing` for one that is gone. What
the members carry is not looked at. Give what the array was created with; what you leave out is
what `create` chooses.";

pub(super) const COPY_AFTER: &str = "\
EXAMPLES
  uraid copy disk0 disk1 disk2 disk3 rescued.img
  uraid copy --force disk0 disk2 disk3 rescued.img
  uraid copy /dev/sd[b-e] - | zstd > home.zst
  uraid copy --overwrite /dev/sd[b-e] /dev/sdx
  uraid copy --assume -l 5 -n 4 -c 64K disk0 missing disk2 disk3 rescued.img

SIGNALS
  SIGTERM, SIGINT  write what was read, save the map, exit 1; the same command goes on later";

/// Options of `uraid copy`.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// Copy although data may be wrong: dirty and degraded, or with members that missed the last writes
    #[arg(short, long)]
    pub force: bool,
    /// Copy although members that were there last time are not
    #[arg(short = 'R', long)]
    pub run: bool,
    /// Give up what OUT holds, and an older map of it
    #[arg(long)]
    pub overwrite: bool,
    /// The map file [default: OUT.map; none when OUT is a pipe]
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// The superblocks are lost: copy by the geometry given here
    #[arg(long, requires = "level", requires = "raid_devices")]
    pub assume: bool,
    /// With --assume: the RAID level: linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(short, long, requires = "assume", value_parser = level, allow_hyphen_values = true)]
    pub level: Option<Level>,
    /// With --assume: how many slots the array has, `missing` ones included
    #[arg(short = 'n', long, value_name = "N", requires = "assume")]
    pub raid_devices: Option<u16>,
    /// With --assume: consecutive data on one member; a bare number is in KiB [default: as create chooses]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, requires = "assume")]
    pub chunk: Option<Sectors>,
    /// With --assume: how data and parity, or copies, are placed; see LAYOUTS in create's --help
    #[arg(short = 'p', long, visible_alias = "parity", value_name = "LAYOUT", requires = "assume")]
    pub layout: Option<String>,
    /// With --assume: the kind of superblock that was there: 1.0, 1.1, 1.2
    #[arg(short = 'e', long, value_name = "VERSION", value_parser = version, default_value = "1.2", requires = "assume")]
    pub metadata: Version,
    /// With --assume: where the data starts on each member; a bare number is in KiB [default: as create chooses]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_or_zero, requires = "assume")]
    pub data_offset: Option<Sectors>,
    /// With --assume: how much of each member was used; a bare number is in KiB [default: what the smallest has]
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_size, requires = "assume")]
    pub size: Option<Sectors>,
    /// The array's members, in any order; with --assume in the order of their slots
    #[arg(required = true, value_name = "MEMBER|missing")]
    pub members: Vec<String>,
    /// Where to: a file, a block device, or `-`
    #[arg(required = true, value_name = "OUT")]
    pub out: PathBuf,
}

fn version(text: &str) -> Result<Version, String> {
    match Version::parse(text) {
        Some(Version::V0_90) | None => {
            Err(format!("no geometry is assumed for superblocks of version {text}: give 1.0, 1.1 or 1.2"))
        }
        Some(version @ (Version::V1_0 | Version::V1_1 | Version::V1_2)) => Ok(version),
    }
}

fn level(text: &str) -> Result<Level, String> {
    Level::parse(text)
        .ok_or_else(|| format!("no such level: {text}, expected linear, raid0, raid1, raid4, raid5, raid6 or raid10"))
}
