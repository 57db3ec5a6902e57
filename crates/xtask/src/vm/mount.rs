//! `uraid mount` on kernels that have no FUSE, or FUSE and NBD, and real block devices as members; then the real md driver reads what was written.
//! Owns: what must hold. Not here: how anything runs (`machine`), the guest's steps (`tests/vm/mount.sh`).
//! Invariant: a check that did not run has failed.

use super::kernel::Release;
use super::machine::{Disk, Machine, Scratch};
use super::{Lab, checked, host, lab_error, twice};
use crate::programs::packages;
use crate::programs::stage::Tally;

const SCRIPT: &str = include_str!("../../../../tests/vm/mount.sh");

/// Programs of the host besides uraid.
const PROGRAMS: [&str; 6] = ["nbd-client", "losetup", "mount", "umount", "mkfs.ext4", "e2fsck"];
const MEMBERS: usize = 3;
const MEMBER_BYTES: u64 = 48 << 20;

/// What the script tells, and should.
const FACTS: [(&str, &str); 9] = [
    ("busy", "refused"),
    ("twice", "refused"),
    ("left", "nothing"),
    ("e2fsck", "0"),
    ("mismatches", "0"),
    ("kernel-reads", "the-same"),
    ("degraded-reads", "the-same"),
    ("killed", "undone"),
    ("partition", "mounted"),
];

/// Mounts on this kernel and on Debian 12's, which has FUSE as a module that is not loaded.
pub(crate) fn run(release: Release) -> Lab<Tally> {
    let mut sum = Tally::default();
    // Kernel, option, what the file system is to be mounted from.
    let runs = [(Release::Bookworm, "", "nbd"), (release, "", "loop"), (release, "--nbd", "nbd")];
    let is_old = release == Release::Bookworm;
    for (release, option, device) in runs.into_iter().take(if is_old { 1 } else { 3 }) {
        let facts = twice("mount", || {
            let scratch = Scratch::new("uraid-mount")?;
            let images: Vec<_> = (0..MEMBERS).map(|at| scratch.path.join(format!("m{at}"))).collect();
            images.iter().try_for_each(|image| host::empty_image(image, MEMBER_BYTES))?;
            let mut programs = vec![host::uraid()?];
            for name in PROGRAMS {
                match packages::find(name) {
                    Some(path) => programs.push(path),
                    None => return lab_error(format!("{name} is missing")),
                }
            }
            let disks = images.into_iter().map(|image| Disk { image, is_read_only: false }).collect();
            let arguments = vec![option.to_string()];
            Machine { release, disks, script: SCRIPT.into(), arguments, seconds_max: 300, programs }.facts()
        })?;
        let long = if device == "nbd" { "allowed" } else { "not-asked" };
        for (key, wanted) in [("device", device), ("long-requests", long)].into_iter().chain(FACTS) {
            let found = facts.get(&("mount".to_string(), key.to_string())).cloned();
            let title = format!("{}: uraid mount {option}: {key}", release.suite());
            sum.add(checked(&title, Ok(found.unwrap_or_else(|| format!("nothing about {key}"))), wanted));
        }
    }
    Ok(sum)
}
