//! `uraid create` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use crate::arguments::{BitmapPlace, CreateFlags, MemberArrays, bitmap_place, write_behind};
use clap::Args;
use uraid_block::Sectors;
use uraid_block::sizes::{MemberSize, parse_member_size, parse_size};
use uraid_control::names::{parse_uuid, valid_host, valid_name};
use uraid_format::Version;
use uraid_layout::Level;
use uraid_option_values::{Policy, consistency_policy, level, number};

pub(crate) const CREATE: &str = "\
Make a new array: choose its geometry and write the members' superblocks.

Every member is checked before any is changed. A member that carries another array, a partition
table or a file system is refused, unless --run or --force is given: then what it carries is
overwritten. uraid never prompts. Offsets and sizes are those that `mdadm --create` chooses. The
first state is that of `mdadm --create --force`: every listed member is active at once.

The redundancy of a new array is made consistent when it is served for the first time, while it
takes requests. --assume-clean skips this; it is right only if the members hold nothing but
zeroes, or an old array of the same geometry. The word `missing` keeps a slot empty.

--write-mostly and --failfast hold for the members listed behind them, for raid1 and raid10. `uraid
write-mostly` and `uraid failfast` change that later.

With --array, once for each slot, the members are existing arrays. create starts them, makes them
consistent if they are not, and stops them. An array whose members are arrays cannot be a member.";

pub(crate) const CREATE_AFTER: &str = "\
EXAMPLES
  A mirror of two files:
      uraid create --level 1 --raid-devices 2 --name home a.img b.img
  A mirror whose second copy is far away, and is read only if the first one fails:
      uraid create -l 1 -n 2 -N home /dev/sdb --write-mostly /dev/nbd0
  The same, and writes do not wait for it:
      uraid create -l 1 -n 2 -b internal --write-behind -N away /dev/sdb --write-mostly /dev/nbd0
  A raid6 of eight disks with chunks of 64 KiB:
      uraid create -l 6 -n 8 -c 64K -N pool /dev/sd[b-i]
  A raid5 of three disks, and a hot spare, which takes the slot of the first one that fails:
      uraid create -l 5 -n 3 -x 1 -N safe /dev/sd[b-e]
  A raid10 with two far copies, one member to come later:
      uraid create -l 10 -n 4 -p f2 -N fast /dev/sdb /dev/sdc /dev/sdd missing
  A stripe over two raid6 arrays (raid60):
      uraid create -l 6 -n 4 -N left /dev/sd[b-e]
      uraid create -l 6 -n 4 -N right /dev/sd[f-i]
      uraid create -l 0 -n 2 -N wide --array /dev/sd[b-e] --array /dev/sd[f-i]
      uraid serve --array /dev/sd[b-e] --array /dev/sd[f-i]

  A raid5 without a write hole:
      uraid create -l 5 -n 3 -k ppl /dev/sdb /dev/sdc /dev/sdd

LAYOUTS
  raid5   left-symmetric (ls, the default), left-asymmetric, right-symmetric, right-asymmetric, parity-first,
          parity-last, ddf-zero-restart, ddf-N-restart, ddf-N-continue
  raid6   those (ls is the default), and left-symmetric-6, left-asymmetric-6, right-symmetric-6,
          right-asymmetric-6, parity-first-6
  raid10  nK, fK, oK: K near, far or offset copies; n2 is the default
  raid0   original (the default), alternate: where chunks go if the members differ in size";

/// Options of `uraid create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The RAID level: linear, raid0 (0, stripe), raid1 (1, mirror), raid4, raid5, raid6, raid10
    #[arg(short, long, value_parser = level, allow_hyphen_values = true)]
    pub level: Level,
    /// How many members are active, `missing` ones included
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u16>(0..=u16::MAX.into()))]
    pub raid_devices: u16,
    /// How many of the members are spares: the last ones listed
    #[arg(short = 'x', long, value_name = "S", default_value_t = 0, value_parser = number::<u16>(0..=u16::MAX.into()))]
    pub spare_devices: u16,
    /// The kind of superblock: 1.2 (4 KiB into the member), 1.1 (at its start) or 1.0 (at its end)
    /// [default: what the configuration says (CREATE metadata=), else 1.2]
    #[arg(short = 'e', long, value_name = "VERSION", value_parser = metadata_version)]
    pub metadata: Option<Version>,
    /// Consecutive data on one member; a bare number is in KiB [default: 512K; none for raid1 and linear]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    pub chunk: Option<Sectors>,
    /// How data and parity, or copies, are placed; see LAYOUTS
    #[arg(short = 'p', long, visible_alias = "parity", value_name = "LAYOUT")]
    pub layout: Option<String>,
    /// How much of each member to use, or `max`; a bare number is in KiB [default: what the smallest has]
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_member_size)]
    pub size: Option<MemberSize>,
    /// Where the data starts on each member; a bare number is in KiB [default: as mdadm chooses]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data_offset: Option<Sectors>,
    /// The write-intent bitmap: `internal`, or `none`; after a crash only what it names is resynced [default: internal if
    /// more than 100 GiB of each member are used, else none]
    #[arg(short = 'b', long, value_name = "WHERE", value_parser = bitmap_place)]
    pub bitmap: Option<BitmapPlace>,
    /// How the array is made consistent after a crash: `resync` of everything, `bitmap`, or for raid5 `ppl`, a partial
    /// parity log: then no write that a crash cuts off costs what was not being written, even if a member is lost with it
    #[arg(short = 'k', long, value_name = "POLICY", value_parser = consistency_policy)]
    pub consistency_policy: Option<Policy>,
    /// What a bit of the bitmap stands for: a power of two; a bare number is in KiB [default: as mdadm chooses]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "bitmap")]
    pub bitmap_chunk: Option<Sectors>,
    /// raid1: answer at most N writes at once before write-mostly members have them, at most 16383; needs a bitmap. Flushes
    /// wait for all members [default with the option alone: 256]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "256",
        value_parser = write_behind)]
    pub write_behind: Option<u32>,
    /// What the array is called [default: the first eight digits of its UUID]
    #[arg(short = 'N', long, value_name = "NAME", value_parser = valid_name)]
    pub name: Option<String>,
    /// The array's UUID: 32 hex digits, separators as you like [default: random]
    #[arg(short, long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<[u8; 16]>,
    /// The host that the name is prefixed with; `none` for no prefix [default: HOMEHOST of the configuration, else this
    /// host]
    #[arg(long, value_name = "HOST", value_parser = valid_host)]
    pub homehost: Option<String>,
    /// mdadm.conf, another such file, a folder of *.conf, or `none` [default: see `uraid assemble --help`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::ffi::OsString>,
    /// Say that the members are consistent already: no first resync
    #[arg(long)]
    pub assume_clean: bool,
    /// Overwrite members that carry an array, a partition table or a file system; without it, mdadm asks and uraid
    /// refuses
    #[arg(short = 'R', long)]
    pub run: bool,
    /// As --run; and allow what is unusual: an array of one member, a raid6 that starts dirty and degraded
    #[arg(short, long)]
    pub force: bool,
    /// Refuse members that carry something, whatever else is given: mdadm's --force asks about them.
    #[arg(long, hide = true)]
    pub no_overwrite: bool,
    #[command(flatten)]
    pub flags: CreateFlags,
    #[command(flatten)]
    pub arrays: MemberArrays,
    /// The members in order of their slots, or the word `missing`; spares last
    #[arg(required_unless_present = "array", conflicts_with = "array", value_name = "MEMBER|missing")]
    pub members: Vec<String>,
}

impl CreateArgs {
    /// Whether what members carry may be lost.
    pub(crate) fn may_overwrite(&self) -> bool {
        (self.run || self.force) && !self.no_overwrite
    }
}

pub(super) fn metadata_version(text: &str) -> Result<Version, String> {
    match Version::parse(text) {
        Some(Version::V0_90) => {
            Err("superblocks of version 0.90 are read, not written: 1.0, 1.1 and 1.2 are".to_owned())
        }
        Some(version) => Ok(version),
        None => Err(format!("no such version: {text}, expected 1.0, 1.1 or 1.2")),
    }
}
