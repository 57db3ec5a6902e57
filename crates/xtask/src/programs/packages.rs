//! The system programs that the whole test run needs, and the Debian packages they come in.
//! Owns: the table, finding what is missing, installing it where that is allowed. Not here: the guest's kernel (`vm`).
//! Invariant: nothing is installed when nothing is missing.

use std::path::PathBuf;
use std::process::Command;

/// A program, its Debian package, and who needs it.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("cc", "gcc", "Rust's linker"),
    ("git", "git", "fetching nothing, but cargo likes it"),
    ("mdadm", "mdadm", "the judge of our superblocks"),
    ("nbdinfo", "libnbd-bin", "NBD client tests"),
    ("nbdcopy", "libnbd-bin", "NBD client tests and the VM matrix"),
    ("nbd-client", "nbd-client", "`uraid mount` without FUSE, in the VM"),
    ("nbdfuse", "libnbd-bin", "a real file system over NBD without root's nbd module"),
    ("fusermount3", "fuse3", "nbdfuse"),
    ("nbdkit", "nbdkit", "the server that ours is measured against"),
    ("qemu-img", "qemu-utils", "NBD client tests"),
    ("qemu-io", "qemu-utils", "NBD client tests"),
    ("fio", "fio", "NBD load with verification"),
    ("mkfs.ext4", "e2fsprogs", "a real file system"),
    ("e2fsck", "e2fsprogs", "a real file system"),
    ("mkfs.xfs", "xfsprogs", "a real file system"),
    ("xfs_repair", "xfsprogs", "a real file system"),
    ("mkfs.btrfs", "btrfs-progs", "a real file system"),
    ("btrfs", "btrfs-progs", "a real file system"),
    ("qemu-system-x86_64", "qemu-system-x86", "the VM"),
    ("busybox", "busybox-static", "the VM's user space"),
    ("xz", "xz-utils", "unpacking the VM's kernel modules"),
    ("sha256sum", "coreutils", "the VM matrix"),
    ("timeout", "coreutils", "the VM's time limit"),
    ("dpkg-deb", "dpkg", "unpacking the VM's kernel"),
    ("python3", "python3", "readers of mdadm's words"),
    ("pip3", "python3-pip", "readers of mdadm's words"),
    ("perl", "perl", "check_raid, which reads mdstat"),
    ("unshare", "util-linux", "check_raid, which reads /proc/mdstat only"),
];

/// Where Debian puts programs, whatever PATH says: an ordinary user's PATH lacks the sbin folders.
const FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The full path of a program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Installs what is missing when we are root or can be through sudo; otherwise names it. Whether all is there.
pub(crate) fn ensure() -> bool {
    let missing = missing();
    if missing.is_empty() {
        println!("all {} programs are there", PROGRAMS.len());
        return true;
    }
    let packages = packages_of(&missing);
    println!("missing: {}", packages.join(" "));
    if let Some(prefix) = become_root() {
        let apt = |words: &[&str]| {
            let line: Vec<&str> =
                prefix.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]).copied().collect();
            let status = Command::new(line[0]).args(&line[1..]).args(words).status();
            status.is_ok_and(|status| status.success())
        };
        let install = ["install", "-y", "--no-install-recommends"];
        let words: Vec<&str> = install.into_iter().chain(packages.iter().copied()).collect();
        let is_done = apt(&["update"]) && apt(&words);
        println!("apt-get {}", if is_done { "installed them" } else { "failed" });
    }
    let still = self::missing();
    for (program, package, purpose) in &still {
        println!("{program} is missing (Debian package {package}): {purpose}");
    }
    if !still.is_empty() {
        println!("install them with: apt-get install {}", packages_of(&still).join(" "));
    }
    still.is_empty()
}

fn missing() -> Vec<&'static (&'static str, &'static str, &'static str)> {
    PROGRAMS.iter().filter(|(program, _, _)| find(program).is_none()).collect()
}

fn packages_of(programs: &[&'static (&str, &'static str, &str)]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = programs.iter().map(|(_, package, _)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// The words to put before a command that needs root; `None` when we cannot be root without asking.
fn become_root() -> Option<Vec<&'static str>> {
    let answers = |program: &str, words: &[&str]| {
        Command::new(program).args(words).output().ok().filter(|done| done.status.success()).map(|done| done.stdout)
    };
    if answers("id", &["-u"]).is_some_and(|uid| uid.starts_with(b"0\n")) {
        return Some(Vec::new());
    }
    answers("sudo", &["-n", "true"]).map(|_| vec!["sudo", "-n"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}
