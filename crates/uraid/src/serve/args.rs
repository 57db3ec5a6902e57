//! `uraid serve` on the command line.
//! Owns: its options and help texts, which frontends they ask for. Not here: what it does (the parent).

use super::spare_groups::SpareGroups;
use crate::arguments::MemberArrays;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use uraid_block::Sectors;
use uraid_block::sizes::parse_size;
use uraid_control::names::{parse_uuid, valid_name};
use uraid_engine::verdict::OnFull;
use uraid_host::RingChoice;
use uraid_option_values::{
    MEMBER_TIMEOUT_TEXT, Processors, SPIN_TEXT, number, parse_member_timeout, parse_processors, parse_spin, parse_wait,
    usage_error,
};
use uraid_serve::frontend::{Places, parse_address};

pub(crate) const SERVE: &str = "\
Assemble arrays from their members and serve them over NBD, with --fuse also as files, until SIGTERM, SIGINT, SIGHUP or `uraid stop`.

The members' superblocks decide which of them are current; stale and foreign ones are left out,
and stderr says why. When all is ready, one line with the NBD URI of each array goes to stdout.
An array that was not stopped cleanly is made consistent while it takes requests; `uraid detail`
shows the progress. If the array is stopped before that has ended, the next start continues it.

With --uuid, the members are looked for, as a unit that must start after a disk was exchanged or has
died needs it: MEMBER may be a folder, a pattern, or missing for all block devices; what has another
UUID is left out, and spares are taken. --run-after 30s waits for late members, then starts degraded.

With --array, once for each array, one process serves several. If they carry the superblocks of
an outer array, whose members are arrays (`uraid create --array`), the outer array is assembled
over them and served. Otherwise each is an export of its own on one socket. They start together
and stop together, by a signal or `uraid stop --all`.

--spare-group NAME holds for the arrays given behind it: they share their spares, as with mdadm's
monitor. When one of them lacks a member and has no spare, the smallest spare that is large enough
leaves another one that is whole, and is recovered there. At the next start the same command line
is right: members of arrays of one group are told apart by their superblocks.";

pub(crate) const SERVE_AFTER: &str = "\
EXAMPLES
  uraid serve disk0 disk1 disk2 disk3
  uraid serve --background disk0 disk1 disk2 disk3
  uraid serve --nbd tcp:127.0.0.1:10809 --insecure /dev/sdb /dev/sdc
  uraid serve --uuid c9d3d9fb:39864ae6:b6437b7f:7b65dc9f --run-after 30s '/dev/disk/by-id/*'
  uraid serve --scan home --run-after 30s
  uraid serve --array disk0 disk1 disk2 --array disk3 disk4 disk5
  uraid serve --fuse /mnt/arrays disk0 disk1
  losetup --find --show --direct-io=on /mnt/arrays/home
  uraid serve --spare-group pool --array disk0 disk1 disk2 spare --array disk3 disk4 disk5
  nbdcopy \"nbd+unix:///home?socket=/run/uraid/home.nbd\" copy.img

LOG
  What happens goes to stderr, one line each, with the time and the array. If nothing reads stderr, serving goes on:
  lines that do not fit are dropped and counted. With --background, what happens before the arrays are served goes to
  stderr, and all of it to NAME.log in the runtime directory (`uraid help files`); `uraid detail` shows where.

SIGNALS
  SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGPWR, SIGIO, SIGSTKFLT,
  real-time signals (SIGRTMIN+3 of containers)
      answer what is in flight, flush, mark the array clean, exit 0; a second one changes nothing. Under nohup,
      SIGHUP stays ignored";

/// How members are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Ring {
    /// io_uring where the system allows it, threads otherwise
    Auto,
    /// Helper threads
    Threads,
}

impl From<Ring> for RingChoice {
    fn from(ring: Ring) -> RingChoice {
        match ring {
            Ring::Auto => RingChoice::Auto,
            Ring::Threads => RingChoice::Threads,
        }
    }
}

/// What happens to a member that is out of space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Full {
    /// The array takes no more writes until `uraid fail` fails the full members, or until there is room and the array
    /// is started again. Right if all members are on one file system: otherwise one after the other would be lost
    Freeze,
    /// The member is failed if the array can do without it
    Fail,
}

impl From<Full> for OnFull {
    fn from(full: Full) -> OnFull {
        match full {
            Full::Freeze => OnFull::Freeze,
            Full::Fail => OnFull::Fail,
        }
    }
}

/// Options of `uraid serve`.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("looked_for").args(["uuid", "scan"]))]
pub(crate) struct ServeArgs {
    /// Never write a byte to a member, not even its superblock
    #[arg(short = 'o', long, visible_alias = "readonly")]
    pub read_only: bool,
    /// Start degraded, even if members that the superblocks expect are missing
    #[arg(short = 'R', long)]
    pub run: bool,
    /// Start although data may be lost: dirty and degraded, or with members that missed the last writes
    #[arg(short, long)]
    pub force: bool,
    /// Where to serve NBD: unix:PATH, or tcp:HOST:PORT with --insecure
    /// [default: NAME.nbd in the runtime directory (`uraid help files`), such as unix:/run/uraid/NAME.nbd; NAME is that of
    /// the first array]
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<String>,
    /// The name that NBD clients ask for [default: the array's]
    #[arg(long, value_name = "NAME")]
    pub export_name: Option<String>,
    /// Also show each array as a file in this folder, which must be empty and becomes a FUSE mount point: for programs
    /// that read and write files, and for loop devices (losetup)
    #[arg(long, value_name = "FOLDER")]
    pub fuse: Option<PathBuf>,
    /// Keep the memory of this process from being swapped out, and the kernel from writing back when it allocates for it,
    /// as --fuse does: for an array of which this machine mounts an NBD device
    #[arg(long)]
    pub mlock: bool,
    /// How many threads serve [default: one per processor, at most 4]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=64))]
    pub shards: Option<u16>,
    /// Pin each thread to one of these processors, such as 0-3 or 2,4,6: one thread for each [default: threads are not
    /// pinned]
    #[arg(long, value_name = "LIST", value_parser = parse_processors, conflicts_with = "shards")]
    pub cpus: Option<Processors>,
    /// How long an idle thread busy-polls for messages of other threads before it sleeps. Polling makes small writes of
    /// raid5 and raid6 faster and uses more CPU; a thread stops polling while it finds no messages. 0us: never poll
    #[arg(long, value_name = "TIME", value_parser = parse_spin, default_value = SPIN_TEXT)]
    pub spin: Duration,
    /// How members are read and written: by io_uring, or by helper threads, for sandboxes that forbid io_uring
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Ring::Auto)]
    pub ring: Ring,
    /// How long a member may take to answer a read or a write; after that it is failed as if it were gone, if the array
    /// can do without it. Flushes and discards may take four times as long. A member that does not answer at the start
    /// for this time counts as one that cannot be opened. 100ms to 1440m, a bare number is in seconds, or 0: no limit
    #[arg(long, value_name = "TIME", value_parser = parse_member_timeout, default_value = MEMBER_TIMEOUT_TEXT)]
    pub member_timeout: Duration,
    /// The most memory that the process may take, with all its buffers full, such as 200M. Less means fewer and smaller
    /// requests at a time, and fewer clients. A bare number is in KiB. Members in memory (mem:) are not included [default:
    /// what serves best, about 423M for each thread]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_limit: Option<Sectors>,
    /// How many failed reads a member may have; with one more it is failed, if the array can do without it. A failed
    /// read counts only if the other members supplied its data, and repeated failures of the same sectors count once.
    /// Every hour without a failed read halves the count. 0: no limit
    #[arg(long, value_name = "N", default_value_t = uraid_serve::stack::read_errors_max_default())]
    #[arg(value_parser = number::<u32>(0..=u32::MAX.into()))]
    pub max_read_errors: u32,
    /// What to do when a member has no space for a write, such as a sparse file on a full file system
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Full::Freeze)]
    pub on_full: Full,
    /// Where the other commands (`uraid detail`, `stop`, ...) reach the array
    /// [default: NAME.ctl in the runtime directory (`uraid help files`), such as /run/uraid/NAME.ctl]
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// Allow tcp:, where anyone who reaches the port can read and write the array; on loopback, every user of this machine
    #[arg(long)]
    pub insecure: bool,
    /// For unix sockets only: the mode of the NBD socket, in octal. With 660 the socket's group can connect, too; then
    /// also give --nbd unix:PATH in a folder that the group may enter, because only the owner may enter the default one
    /// [default: 600]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub export_mode: Option<u32>,
    /// Refuse writes of NBD clients and to the files of --fuse. uraid itself still writes to the members: superblocks, a resync or a recovery
    #[arg(long)]
    pub export_read_only: bool,
    /// Return when every array is served; a process of its own session serves on in the background. Its log is the file
    /// NAME.log in the runtime directory
    #[arg(long)]
    pub background: bool,
    /// This is the process in the background.
    #[arg(long, hide = true)]
    pub detached: bool,
    #[command(flatten)]
    pub spare_groups: SpareGroups,
    /// Call the array this as long as it is served, in its sockets, the export and all commands; mdN also asks for that
    /// number of device name [default: the name in its superblocks]
    #[arg(long, value_name = "NAME", value_parser = valid_name, conflicts_with = "array")]
    pub name: Option<String>,
    /// Start the array with this UUID: its members and spares are looked for among the MEMBERs, which may be folders
    /// and patterns such as '/dev/sd*', or among all block devices; what is not its is left out
    #[arg(short, long, value_name = "UUID", value_parser = parse_uuid, conflicts_with = "array")]
    pub uuid: Option<[u8; 16]>,
    /// Start the array that the configuration gives to uraid, with the options of its URAID line; with several, name the
    /// one in place of MEMBER. `uraid assemble --scan` starts all of them
    #[arg(short, long, conflicts_with_all = ["uuid", "array", "name"])]
    pub scan: bool,
    /// With --scan: mdadm.conf, another such file, a folder of *.conf, `partitions` or `none`
    /// [default: see `uraid assemble --help`]
    #[arg(short, long, value_name = "FILE", requires = "scan")]
    pub config: Option<std::ffi::OsString>,
    /// With --uuid or --scan: wait this long for members that are missing, then start without them if that is possible, as
    /// mdadm's last-resort timer does after 30s
    #[arg(long, value_name = "TIME", value_parser = parse_wait, requires = "looked_for")]
    pub run_after: Option<Duration>,
    #[command(flatten)]
    arrays: MemberArrays,
    /// The array's members, in any order
    #[arg(required_unless_present_any = ["array", "uuid", "scan"], conflicts_with = "array", value_name = "MEMBER")]
    pub members: Vec<String>,
}

/// Parses the mode of a socket: rights of owner, group and others. The owner must have the rights to read and write.
fn parse_mode(text: &str) -> Result<u32, String> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if is_octal && mode <= 0o777 && mode & 0o600 == 0o600 => Ok(mode),
        Ok(_) | Err(_) => Err("expected octal digits from 600 to 777, such as 660".to_owned()),
    }
}

impl ServeArgs {
    /// The members of each array.
    pub(crate) fn groups(&self) -> Vec<Vec<String>> {
        self.arrays.groups_or(&self.members)
    }

    /// Where clients shall reach the arrays; ends the process if `--nbd` is wrong.
    pub(crate) fn places(&self) -> Places {
        let wrong = |text: &str| usage_error(&format!("--nbd {text:?}: expected unix:PATH or tcp:HOST:PORT"));
        let address = |text: &str| parse_address(text).unwrap_or_else(|| wrong(text));
        Places {
            nbd: self.nbd.as_deref().map(address),
            export_name: self.export_name.clone(),
            export_mode: self.export_mode,
            export_read_only: self.export_read_only,
            insecure: self.insecure,
            control: self.control.clone(),
            fuse: self.fuse.clone(),
        }
    }

    /// Whether the arrays may be members of another one: they were given with --array.
    pub(crate) fn has_member_arrays(&self) -> bool {
        !self.arrays.0.is_empty()
    }
}
