//! `uraid copy` on the command line.
//! Owns: its options and help texts. Not here: what it does (`crate::copy`).

use clap::Args;
use std::path::PathBuf;

pub(super) const COPY: &str = "\
Copy all the bytes of an array to a file, a block device or a pipe, without serving it.

The members are opened for reading only and never written, whatever state they are in. Missing
members are computed from the others where the level allows it. OUT is the last argument; `-` is
standard output. A new file is sparse: blocks of zeroes take no room.

A sector that cannot be read from any member is listed in the map file, is zeroes in OUT, and
makes the exit code 1; the rest is copied all the same. The map file (OUT.map) also tells how far
the copy is: the same command again goes on where the last one ended, and tries the unreadable
sectors again. It has the format of GNU ddrescue's map files.

What OUT holds is overwritten only with --overwrite.";

pub(super) const COPY_AFTER: &str = "\
EXAMPLES
  uraid copy disk0 disk1 disk2 disk3 rescued.img
  uraid copy --force disk0 disk2 disk3 rescued.img
  uraid copy /dev/sd[b-e] - | zstd > home.zst
  uraid copy --overwrite /dev/sd[b-e] /dev/sdx

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
    /// The array's members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Where to: a file, a block device, or `-`
    #[arg(required = true, value_name = "OUT")]
    pub out: PathBuf,
}
