//! What the system uses a regular file for: swap space, or a loop device that is mounted or has a user of its own.
//! Owns: [`system_use`]. Not here: locks of other processes (`locks`), block devices, which the kernel guards with O_EXCL.
//! Invariant: only what the system says now. What it hides from this user counts as no use.
//!
//! Nothing else guards a file: the kernel writes to swap space and below a mount without a lock.

use super::origin::{identity, under_loop};
use super::registration::Identity;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Says in words what uses these bytes of a file for writing, and how to end that; `None`: nothing does.
pub(super) fn system_use(file: Identity, bytes: &Range<u64>) -> Option<String> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|status| identity(&status) == file);
    if let Some(path) = swap_files(&swaps).find(|path| is_it(path)) {
        return Some(format!("is swap space: swapoff {}", path.display()));
    }
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    let loops = devices.filter(|device| device.file_name().to_string_lossy().starts_with("loop"));
    loops.map(|device| device.path()).find_map(|device| loop_use(&device, file, bytes))
}

/// The files of /proc/swaps; spaces in their names are `\040`.
fn swap_files(swaps: &str) -> impl Iterator<Item = PathBuf> + '_ {
    let words = swaps.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.get(1) == Some(&"file")).map(|words| unescaped(words[0]).into())
}

fn unescaped(name: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(name.to_owned(), |name, (code, text)| name.replace(code, text))
}

/// Who uses a loop device, given by its folder in sysfs, if it shows some of these bytes.
fn loop_use(folder: &Path, file: Identity, bytes: &Range<u64>) -> Option<String> {
    // Most loop devices have no file: look before anything is opened.
    folder.join("loop").exists().then_some(())?;
    let node = Path::new("/dev").join(folder.file_name()?);
    let device = number(folder)?;
    let under = under_loop(device, &node)?;
    let end = under.length.map_or(u64::MAX, |length| under.offset.saturating_add(length));
    if under.identity != file || end <= bytes.start || bytes.end <= under.offset {
        return None;
    }
    if fs::read_to_string(folder.join("ro")).is_ok_and(|text| text.trim() == "1") {
        return None;
    }
    let parts = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let parts: Vec<PathBuf> = parts.filter(|part| part.join("partition").exists()).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    std::iter::once(folder).chain(parts.iter().map(PathBuf::as_path)).find_map(|part| {
        let holder = fs::read_dir(part.join("holders")).ok().and_then(|mut holders| holders.next()?.ok());
        let name = part.file_name()?.to_string_lossy();
        match (mounted_on(&mounts, number(part)?), holder) {
            (Some(place), _) => Some(format!("is what /dev/{name} shows, which is mounted: umount {place}")),
            (None, Some(user)) => {
                let user = user.file_name();
                Some(format!("is what /dev/{name} shows, which {} uses: stop that", user.to_string_lossy()))
            }
            (None, None) => None,
        }
    })
}

/// Where a device is mounted, by the lines of /proc/self/mountinfo: `36 35 7:0 / /mnt rw shared:1 - ext4 /dev/loop0 rw`.
fn mounted_on(mounts: &str, device: u64) -> Option<String> {
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.get(2) == Some(&number.as_str())).then(|| words.get(4).map(|place| unescaped(place)))?
    })
}

/// The device number of a folder in sysfs.
fn number(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_swap_space_are_found_and_partitions_are_not() {
        let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/sda2                               partition\t1048572\t\t0\t\t-2\n\
                     /var/swap\\040space                       file\t\t8188\t\t0\t\t-3\n";
        assert_eq!(swap_files(swaps).collect::<Vec<_>>(), [PathBuf::from("/var/swap space")]);
        assert_eq!(swap_files("").count(), 0);
    }

    #[test]
    fn a_mount_is_found_by_its_device_number() {
        let mounts =
            "36 35 7:0 / /mnt/my\\040disk rw,relatime shared:1 - ext4 /dev/loop0 rw\n37 35 7:10 / /b rw - xfs x rw\n";
        assert_eq!(mounted_on(mounts, libc::makedev(7, 0)).as_deref(), Some("/mnt/my disk"));
        assert_eq!(mounted_on(mounts, libc::makedev(7, 10)).as_deref(), Some("/b"));
        assert_eq!(mounted_on(mounts, libc::makedev(7, 1)), None);
        assert_eq!(mounted_on("nonsense", 0), None);
    }
}
