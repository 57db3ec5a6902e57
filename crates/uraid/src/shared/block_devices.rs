//! The block devices of this system, for commands that are given no members.
//! Owns: their list. Not here: which of them are members (`probe`). Spec: proc_partitions(5).
//! Invariant: a list that the system does not show, as in a container without /proc, is an error, not an empty list.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the system lists them.
const LIST: &str = "/proc/partitions";

/// The system does not list its block devices.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell which block devices this system has: {LIST}: {}; name the members", uraid_host::io_text(.0))]
pub(crate) struct NotListed(io::Error);

/// The block devices of this system, as mdadm finds them.
pub(crate) fn block_devices() -> Result<Vec<PathBuf>, NotListed> {
    let text = fs::read_to_string(LIST).map_err(NotListed)?;
    // major minor #blocks name; behind a head and an empty line.
    let name = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    let names = text.lines().skip(2).filter_map(name);
    // A name's slash is an exclamation mark in sysfs.
    Ok(names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect())
}
