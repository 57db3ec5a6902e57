//! The block devices of this system, for commands that are given no members.
//! Owns: their list. Not here: which of them are members (`probe`). Spec: proc_partitions(5).

use std::fs;
use std::path::{Path, PathBuf};

/// The block devices of this system, as mdadm finds them.
pub(crate) fn block_devices() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/partitions").unwrap_or_default();
    // major minor #blocks name; behind a head and an empty line.
    let name = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    let names = text.lines().skip(2).filter_map(name);
    // A name's slash is an exclamation mark in sysfs.
    names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}
