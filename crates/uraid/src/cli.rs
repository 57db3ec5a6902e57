//! What a person can type.
//! Owns: subcommands, options, their help texts. Not here: what they do (one file per subcommand).
//! Invariant: an option that mdadm has too is spelled, and means, the same. Spec: mdadm(8); md-reference 4.1.

use crate::names::{parse_uuid, valid_host, valid_name};
use crate::sizes::{MemberSize, parse_member_size, parse_size};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_layout::Level;

const OVERVIEW: &str = "\
Linux software RAID (md) in user space: creates arrays over files and block devices, keeps them
redundant and serves them over NBD, from one unprivileged process. The bytes on the members are
those of the kernel's md and of mdadm.

An ARRAY is a name (as `uraid list` shows it), one or more of its members, or `--control SOCK`.
A MEMBER is a file or a block device.";

const OVERVIEW_AFTER: &str = "\
EXAMPLES
  truncate -s 1G disk0 disk1 disk2 disk3
  uraid create --level 6 --raid-devices 4 --name backup disk0 disk1 disk2 disk3
  uraid serve disk0 disk1 disk2 disk3
  uraid detail backup
  uraid fail backup disk2
  uraid stop backup

EXIT CODES
  0  done
  1  refused, or failed; the reason is on stderr
  2  the command line is wrong

FILES
  $XDG_RUNTIME_DIR/uraid/NAME.nbd   where a running array is served (root: /run/uraid; $URAID_RUNTIME_DIR wins)
  $XDG_RUNTIME_DIR/uraid/NAME.ctl   where `detail`, `fail` and `stop` reach it: JSON-RPC 2.0, one object per line";

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "uraid", version, about = "Linux md RAID in user space", long_about = OVERVIEW)]
#[command(after_long_help = OVERVIEW_AFTER, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a new array: choose its geometry and write the members' superblocks
    #[command(long_about = CREATE, after_long_help = CREATE_AFTER)]
    Create(CreateArgs),
    /// Assemble an array from its members and serve it over NBD until told to stop
    #[command(long_about = SERVE, after_long_help = SERVE_AFTER)]
    Serve(ServeArgs),
    /// Show what the superblock of each member says
    #[command(long_about = EXAMINE, after_long_help = EXAMINE_AFTER)]
    Examine(ExamineArgs),
    /// Show the state of an array, running or not
    #[command(long_about = DETAIL, after_long_help = DETAIL_AFTER)]
    Detail(DetailArgs),
    /// Declare a member of a running array failed: it is not read or written any more
    #[command(long_about = FAIL, after_long_help = FAIL_AFTER)]
    Fail(FailArgs),
    /// Stop a running array: answer what is in flight, flush, mark it clean
    #[command(after_long_help = STOP_AFTER)]
    Stop(StopArgs),
    /// Show the arrays that run now
    #[command(after_long_help = LIST_AFTER)]
    List(ListArgs),
    /// Wipe the superblock of members, so that nothing assembles them any more
    #[command(long_about = ZERO, after_long_help = ZERO_AFTER)]
    ZeroSuperblock(ZeroArgs),
}

const CREATE: &str = "\
Make a new array: choose its geometry and write the members' superblocks.

Every member is checked before any is changed. A member that carries another array, a partition
table or a file system is refused, unless --run (do not ask) or --force is given. Offsets and
sizes are those that `mdadm --create` chooses, the first state is that of `mdadm --create
--force`: every listed member is active at once.

The redundancy of a new array is made consistent when it is served for the first time, before it
takes requests; --assume-clean skips this, and is right only when the members hold nothing but
zeroes, or an old array of the same geometry. The word `missing` keeps a slot empty.";

const CREATE_AFTER: &str = "\
EXAMPLES
  A mirror of two files:
      uraid create --level 1 --raid-devices 2 --name home a.img b.img
  A raid6 of eight disks with chunks of 64 KiB:
      uraid create -l 6 -n 8 -c 64K -N pool /dev/sd[b-i]
  A raid10 with two far copies, one member to come later:
      uraid create -l 10 -n 4 -p f2 -N fast /dev/sdb /dev/sdc /dev/sdd missing

LAYOUTS
  raid5   left-symmetric (ls, the default), left-asymmetric, right-symmetric, right-asymmetric, parity-first,
          parity-last, ddf-zero-restart, ddf-N-restart, ddf-N-continue
  raid6   those, and left-symmetric-6, left-asymmetric-6, right-symmetric-6, right-asymmetric-6, parity-first-6
  raid10  nK, fK, oK: K near, far or offset copies; n2 is the default
  raid0   original, alternate: where the chunks of members of unequal size go";

/// Options of `uraid create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// The RAID level: linear, raid0 (0, stripe), raid1 (1, mirror), raid4, raid5, raid6, raid10
    #[arg(short, long, value_parser = level, allow_hyphen_values = true)]
    pub level: Level,
    /// How many members are active, `missing` ones included
    #[arg(short = 'n', long, value_name = "N")]
    pub raid_devices: u16,
    /// How many of the members are spares: the last ones listed
    #[arg(short = 'x', long, value_name = "S", default_value_t = 0)]
    pub spare_devices: u16,
    /// The kind of superblock: 1.2, the only one so far
    #[arg(short = 'e', long, value_name = "VERSION", value_parser = metadata_version, default_value = "1.2")]
    pub metadata: String,
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
    /// What the array is called [default: the first eight digits of its UUID]
    #[arg(short = 'N', long, value_name = "NAME", value_parser = valid_name)]
    pub name: Option<String>,
    /// The array's UUID: 32 hex digits, separators as you like [default: random]
    #[arg(short, long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<[u8; 16]>,
    /// The host that the name is prefixed with; `none` for no prefix [default: this host]
    #[arg(long, value_name = "HOST", value_parser = valid_host)]
    pub homehost: Option<String>,
    /// Say that the members are consistent already: no first resync
    #[arg(long)]
    pub assume_clean: bool,
    /// Do not ask: go on although a member carries an array, a partition table or a file system
    #[arg(short = 'R', long)]
    pub run: bool,
    /// As --run; and allow what is unusual: an array of one member, a raid6 that starts dirty and degraded
    #[arg(short, long)]
    pub force: bool,
    /// The members in order of their slots, or the word `missing`; spares last
    #[arg(required = true, value_name = "MEMBER|missing")]
    pub members: Vec<String>,
}

const SERVE: &str = "\
Assemble an array from its members and serve it over NBD until SIGTERM, SIGINT or `uraid stop`.

The members' superblocks decide which of them are current; stale and foreign ones are left out,
and why is said on stderr. An array that was not stopped cleanly is made consistent before it
takes requests. When it is ready, one line with its NBD URI goes to stdout.";

const SERVE_AFTER: &str = "\
EXAMPLES
  uraid serve disk0 disk1 disk2 disk3
  uraid serve --nbd tcp:127.0.0.1:10809 /dev/sdb /dev/sdc
  nbdcopy \"nbd+unix:///home?socket=/run/uraid/home.nbd\" copy.img

SIGNALS
  SIGTERM, SIGINT  answer what is in flight, flush, mark the array clean, exit 0; a second one does no harm";

/// Options of `uraid serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Never write a byte to a member, not even its superblock
    #[arg(short = 'o', long, visible_alias = "readonly")]
    pub read_only: bool,
    /// Start although members that were there last time are not
    #[arg(short = 'R', long)]
    pub run: bool,
    /// Start although data may be lost: dirty and degraded, or with members that missed the last writes
    #[arg(short, long)]
    pub force: bool,
    /// Where to serve NBD: unix:PATH or tcp:HOST:PORT [default: unix:$XDG_RUNTIME_DIR/uraid/NAME.nbd]
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<String>,
    /// The name that NBD clients ask for [default: the array's]
    #[arg(long, value_name = "NAME")]
    pub export_name: Option<String>,
    /// How many threads serve [default: one per processor, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub shards: Option<u16>,
    /// Where `detail`, `fail` and `stop` reach this array [default: $XDG_RUNTIME_DIR/uraid/NAME.ctl]
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// Allow tcp: other than loopback, where anybody who reaches the port can read and write the array
    #[arg(long)]
    pub insecure: bool,
    /// The array's members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
}

const EXAMINE: &str = "\
Show what the superblock of each member says, in mdadm's words. Works on members in use. Times
are in UTC. Fails when a member has no superblock, or a wrong one.";

const EXAMINE_AFTER: &str = "\
EXAMPLES
  uraid examine disk0 disk1
  uraid examine disk* | grep -E '^disk|Events|State'

FIELDS
  State         clean, or active: there were writes that no clean stop followed
  Events        changes of the array's state; the highest among the members is current
  Array State   one letter per slot: A active, . missing, R being replaced";

/// Options of `uraid examine`.
#[derive(Args, Debug)]
pub struct ExamineArgs {
    /// What to look at
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,
}

const DETAIL: &str = "\
Show the state of an array: from the process that serves it, or, when it does not run, from its
members.";

const DETAIL_AFTER: &str = "\
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

const FAIL: &str = "\
Declare a member of a running array failed: it is not read or written any more, and the
superblocks of the others say so before this returns. Refused when the array could not be served
without the member.";

const FAIL_AFTER: &str = "\
EXAMPLES
  uraid fail home disk1
  uraid fail home 1
  uraid fail --control /tmp/home.ctl disk1";

/// Options of `uraid fail`.
#[derive(Args, Debug)]
pub struct FailArgs {
    /// The control socket of the process that serves the array, in place of ARRAY
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// The array's name or one of its members, then the member's path or slot
    #[arg(required = true, num_args = 1..=2, value_names = ["ARRAY", "MEMBER"])]
    array_and_member: Vec<String>,
}

impl FailArgs {
    /// The array, where the control socket does not say it, and the member. Ends the process when the words do not
    /// fit, as other wrong command lines do.
    pub fn array_and_member(&self) -> (Option<&str>, &str) {
        match (self.array_and_member.as_slice(), &self.control) {
            ([array, member], None) => (Some(array), member),
            ([member], Some(_)) => (None, member),
            _ => usage_error("fail takes ARRAY MEMBER, or --control SOCK MEMBER"),
        }
    }
}

/// Ends the process as clap does when the command line is wrong: exit code 2.
pub fn usage_error(text: &str) -> ! {
    Cli::command().error(clap::error::ErrorKind::InvalidValue, text).exit()
}

const STOP_AFTER: &str = "\
EXAMPLES
  uraid stop home
  uraid stop --control /tmp/home.ctl

It returns when the process that served the array has let go of the members.";

/// Options of `uraid stop`.
#[derive(Args, Debug)]
pub struct StopArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// The array's name, or its members: one is enough
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Vec<String>,
}

const LIST_AFTER: &str = "\
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

const ZERO: &str = "\
Wipe the superblock of members, so that nothing assembles them any more. The data behind it is
left alone. Members in use are refused, and all are checked before any is changed.";

const ZERO_AFTER: &str = "\
EXAMPLES
  uraid zero-superblock disk0 disk1
  uraid zero-superblock --force broken-disk";

/// Options of `uraid zero-superblock`.
#[derive(Args, Debug)]
pub struct ZeroArgs {
    /// Wipe a superblock that is there but wrong too
    #[arg(short, long)]
    pub force: bool,
    /// Whose superblocks
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
}

fn metadata_version(text: &str) -> Result<String, String> {
    match text {
        "1.2" | "1" | "default" => Ok(text.to_owned()),
        _ => Err(format!("superblocks of version {text} are not written yet, 1.2 is")),
    }
}

fn level(text: &str) -> Result<Level, String> {
    Level::parse(text)
        .ok_or_else(|| format!("no such level: {text}, expected linear, raid0, raid1, raid4, raid5, raid6 or raid10"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mdadm_spellings_are_understood() {
        let line = "uraid create -l raid5 -n 3 -x 1 -c 64 -p ls -z max -N home -R a b missing d";
        let Command::Create(create) = Cli::parse_from(line.split(' ')).command else { panic!("not create") };
        assert_eq!((create.level, create.raid_devices, create.spare_devices), (Level::Raid5, 3, 1));
        assert_eq!(create.chunk, Some(Sectors(128)));
        assert_eq!(create.size, Some(MemberSize::Max));
        assert_eq!(create.members, ["a", "b", "missing", "d"]);
        let line = "uraid create --level -1 --raid-devices=2 a b";
        let Command::Create(create) = Cli::parse_from(line.split(' ')).command else { panic!("not create") };
        assert_eq!(create.level, Level::Linear);
    }

    #[test]
    fn every_subcommand_shows_examples() {
        for subcommand in Cli::command().get_subcommands_mut() {
            let help = subcommand.render_long_help().to_string();
            assert!(help.contains("EXAMPLES\n  "), "{help}");
        }
    }
}
