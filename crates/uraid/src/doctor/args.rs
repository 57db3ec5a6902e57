//! `uraid doctor` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use clap::Args;
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_block::sizes::parse_size;

pub(crate) const DOCTOR: &str = "\
Say what of an array costs I/O or safety, and what helps: how partitions and file systems lie on its
chunks and stripes, how members lie on their drives, what a crash would cost. The figures of each cost
come from the planner that performs the writes.

ARRAY is the name of an array that runs, or one of its members; or the members of one that does not run.
Partition tables (GPT, MBR), XFS, ext4 and Btrfs are read through the array. Nothing is written.

With --file, say the same of one file of a mounted file system: where its extents lie on the chunks and
stripes, with the flags of `xfs_bmap -vvp`, and how the rows of a parity level are written when the file
is written in order, in writes of --bs: whole, by read-modify-write, or after reading their rest. The
array under the file is found if it is mounted by a loop device on a file of `uraid serve --fuse`, as
`uraid mount` does it; otherwise name the array, and with --at the sector of it where the block device
of the file system begins.";

pub(crate) const DOCTOR_AFTER: &str = "\
EXAMPLES
  uraid doctor home
  uraid doctor disk0 disk1 disk2 disk3
  uraid doctor --file /mnt/database/table
  uraid doctor --file /mnt/video --bs 1280K --plot
  uraid doctor --file /mnt/video --at 2048 home
  uraid doctor --json home | jq '.findings[] | select(.severity == \"warning\")'

EXIT CODES
  0  nothing, or notes only
  1  the array or the file could not be looked at
  3  at least one warning
With --file, 3 says that a part of the file's writes is not of whole stripes on a level with parity.";

/// Options of `uraid doctor`.
#[derive(Args, Default, Debug)]
pub(crate) struct DoctorArgs {
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
    /// A file of a mounted file system on the array
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// With --file: the size of each write; a bare number is in KiB [default: one stripe]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "file")]
    pub bs: Option<Sectors>,
    /// With --file: draw its extents over the stripes
    #[arg(long, requires = "file", conflicts_with = "json")]
    pub plot: bool,
    /// With --file: the sector of the array where the file system's block device begins [default: the offset of the
    /// loop device, or 0]; the start of the partition in which the file system lies is added by itself
    #[arg(long, value_name = "SECTOR", requires = "file")]
    pub at: Option<u64>,
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "named")]
    pub control: Option<PathBuf>,
    /// The array's name, or its members
    #[arg(required_unless_present_any = ["file", "control"], value_name = "ARRAY")]
    pub named: Vec<String>,
}
