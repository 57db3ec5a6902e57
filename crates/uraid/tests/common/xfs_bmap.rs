//! Where xfs_bmap says that a file lies.
//! Owns: [`xfs_bmap`]. Spec: xfs_bmap(8), -vvp.

use std::path::Path;
use std::process::Command;

/// An extent: first sector in the file, first sector on the device, sectors, flags.
pub type BmapExtent = (u64, u64, u64, String);

/// The extents of a file; holes have none.
pub fn xfs_bmap(path: &Path) -> Vec<BmapExtent> {
    let told = Command::new("xfs_bmap").arg("-vvp").arg(path).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    let told = told.expect("xfsprogs: `cargo xtask packages` installs it");
    assert!(told.status.success(), "{told:?}");
    String::from_utf8_lossy(&told.stdout).lines().filter_map(extent_of).collect()
}

/// ` 0: [0..79]: 1024..1103 0 (1024..1103) 80 000101`; a hole has no numbers there.
fn extent_of(line: &str) -> Option<BmapExtent> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let first = |word: &str| word.trim_matches(['[', ']', ':']).split("..").next()?.parse::<u64>().ok();
    words.first()?.strip_suffix(':')?.parse::<u64>().ok()?;
    let flags = words.get(6).copied().unwrap_or("000000").to_owned();
    Some((first(words.get(1)?)?, first(words.get(2)?)?, words.get(5)?.parse().ok()?, flags))
}
