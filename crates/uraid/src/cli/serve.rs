//! `uraid serve` on the command line.
//! Owns: its options and help texts. Not here: what it does (`crate::serve`).

use clap::Args;
use std::path::PathBuf;

pub(super) const SERVE: &str = "\
Assemble an array from its members and serve it over NBD until SIGTERM, SIGINT or `uraid stop`.

The members' superblocks decide which of them are current; stale and foreign ones are left out,
and why is said on stderr. An array that was not stopped cleanly is made consistent before it
takes requests. When it is ready, one line with its NBD URI goes to stdout.";

pub(super) const SERVE_AFTER: &str = "\
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
