//! `uraid mount` and `uraid umount` on the command line.
//! Owns: their options and help texts. Not here: what they do (the parent).

use clap::Args;
use std::path::PathBuf;

pub(crate) const MOUNT: &str = "\
Mount the file system of an array at DIR, in one command: serve the array as a file (`uraid serve
--fuse`) if it does not run, attach a loop device to that file, and mount that. On a kernel without
FUSE, and with --nbd, the kernel's NBD driver takes the place of both. If a step fails, those before it
are undone. For root.

ARRAY is the name of an array that runs, or one of its members; or the members of one that does not
run. The process that serves it stays in the background, and `uraid umount DIR` stops it. It is
an array like any other meanwhile: `uraid list`, `detail`, `fail`, `add` and so on take its name.";

pub(crate) const MOUNT_AFTER: &str = "\
EXAMPLES
  uraid mount disk0 disk1 disk2 /mnt
  uraid mount --read-only --run disk0 disk2 /mnt
  uraid mount -t xfs -o noatime,swalloc home /mnt
  uraid mount --partition 1 disk0 disk1 /mnt
  uraid mount --nbd disk0 disk1 disk2 /mnt
  uraid umount /mnt

The array is served with default options; if it needs others (--force, --shards), start it with
`uraid serve --fuse FOLDER` first, and mount it by its name. What the server logs is in the file that
`mount` names.";

/// Options of `uraid mount`.
#[derive(Args, Debug)]
#[command(override_usage = "uraid mount [OPTIONS] <ARRAY>... <DIR>")]
pub(crate) struct MountArgs {
    /// Change nothing: serve the array read-only, and mount it so
    #[arg(short, long, alias = "readonly")]
    pub read_only: bool,
    /// Start the array although it lacks a member that its superblocks list as active, as `uraid serve --run` does
    #[arg(long)]
    pub run: bool,
    /// Take the kernel's NBD driver (module nbd, package nbd-client) instead of a file of --fuse and a loop device; without
    /// /dev/fuse it is taken by itself
    #[arg(long)]
    pub nbd: bool,
    /// Mount the file system in this partition of the array
    #[arg(long, value_name = "NUMBER")]
    pub partition: Option<u32>,
    /// The type of the file system; mount(8) finds out without it
    #[arg(short = 't', long = "types", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Mount options, as mount(8) takes them
    #[arg(short, long, value_name = "OPTIONS")]
    pub options: Option<String>,
    // One argument, as options may stand between its words; the text above says what they are.
    #[arg(required = true, num_args = 1.., value_name = "ARRAY>... <DIR", hide = true)]
    words: Vec<String>,
}

impl MountArgs {
    /// The words for the array, and the folder; `None`: there is one word only.
    pub(crate) fn array_and_folder(&self) -> Option<(&[String], PathBuf)> {
        let (folder, array) = self.words.split_last()?;
        (!array.is_empty()).then(|| (array, PathBuf::from(folder)))
    }
}

pub(crate) const UMOUNT: &str = "\
Undo `uraid mount`: unmount DIR, detach the loop device, and stop the array if `uraid mount` has started
its server. Refused if the file system is in use. For root.";

pub(crate) const UMOUNT_AFTER: &str = "\
EXAMPLES
  uraid umount /mnt";

/// Options of `uraid umount`.
#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// Where the file system is mounted
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
