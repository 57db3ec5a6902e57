//! What the system uses a file for: swap space, or a loop device on it, or on that, which is mounted, swap space, or has a
//! user of its own.
//! Owns: [`system_use`], [`hidden_use`]. Not here: locks of other processes (`locks`), users of a block device itself, which
//! the kernel guards with O_EXCL.
//! Invariant: only what the system says now. What it hides from this user counts as no use.
//!
//! Nothing else guards a file: the kernel writes to swap space and below a mount without a lock.

use super::origin::{identity, under_loop};
use super::registration::Identity;
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How many loop devices on loop devices are followed; the kernel allows fewer.
const FLOORS_MAX: usize = 16;

/// Says in words what uses these bytes of a file or device for writing, and how to end that; `None`: nothing does.
pub(super) fn system_use(file: Identity, bytes: &Range<u64>) -> Option<String> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|status| identity(&status) == file);
    if file.inode != 0
        && let Some(path) = swap_names(&swaps, "file").find(|path| is_it(path))
    {
        return Some(format!("is swap space: swapoff {}", path.display()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    above(file, bytes, &Uses { swaps, mounts, asks: Asks::Lists }, FLOORS_MAX)
}

/// Says the same of a user that no list of this process shows, such as a mount in another mount namespace: the kernel
/// refuses to open its loop device with O_EXCL. `own`: a device of the caller's, which is not asked about. The caller has
/// the locks on the file, so no process of uraid has such a device for a member.
pub(super) fn hidden_use(file: Identity, bytes: &Range<u64>, own: Option<u64>) -> Option<String> {
    let (swaps, mounts) = (String::new(), String::new());
    above(file, bytes, &Uses { swaps, mounts, asks: Asks::Kernel { own } }, FLOORS_MAX)
}

/// What the system says of its devices.
struct Uses {
    swaps: String,
    mounts: String,
    asks: Asks,
}

/// What is asked of a loop device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Whether the lists name it.
    Lists,
    /// Whether it can be had alone.
    Kernel { own: Option<u64> },
}

/// The use of a loop device that shows some of these bytes, or of one on that.
fn above(file: Identity, bytes: &Range<u64>, uses: &Uses, floors: usize) -> Option<String> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    let mut loops = devices.filter(|device| device.file_name().to_string_lossy().starts_with("loop"));
    loops.find_map(|device| loop_use(&device.path(), (file, bytes), uses, floors.checked_sub(1)?))
}

/// The files or devices of /proc/swaps, by the kind that it says; spaces in their names are `\040`.
fn swap_names<'a>(swaps: &'a str, kind: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let words = swaps.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(move |words| words.get(1) == Some(&kind)).map(|words| unescaped(words[0]).into())
}

fn unescaped(name: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(name.to_owned(), |name, (code, text)| name.replace(code, text))
}

/// The use of a loop device, given by its folder in sysfs, if it shows some of these bytes.
fn loop_use(folder: &Path, (file, bytes): (Identity, &Range<u64>), uses: &Uses, floors: usize) -> Option<String> {
    // Most loop devices have no file: look before anything is opened.
    folder.join("loop").exists().then_some(())?;
    let node = Path::new("/dev").join(folder.file_name()?);
    let under = under_loop(number(folder)?, &node)?;
    let end = under.length.map_or(u64::MAX, |length| under.offset.saturating_add(length));
    if under.identity != file || end <= bytes.start || bytes.end <= under.offset {
        return None;
    }
    if fs::read_to_string(folder.join("ro")).is_ok_and(|text| text.trim() == "1") {
        return None;
    }
    let parts = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let parts: Vec<PathBuf> = parts.filter(|part| part.join("partition").exists()).collect();
    let parts: Vec<&Path> = std::iter::once(folder).chain(parts.iter().map(PathBuf::as_path)).collect();
    if let Asks::Kernel { own } = uses.asks
        && !parts.iter().any(|part| own.is_some() && number(part) == own)
        // A device counts as taken where a partition of it is: name the partition.
        && let Some(taken) = parts.iter().rev().find(|part| is_taken(part))
    {
        let name = taken.file_name()?.to_string_lossy();
        return Some(format!(
            "is what /dev/{name} shows, which a mount in another namespace, or another process, uses: stop that"
        ));
    }
    parts.into_iter().find_map(|part| part_use(part, uses, floors))
}

/// Whether the kernel says that a device, given by its folder in sysfs, has a user that wants it alone.
fn is_taken(folder: &Path) -> bool {
    let Some(name) = folder.file_name() else { return false };
    let flags = libc::O_EXCL | libc::O_NOCTTY | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(Path::new("/dev").join(name));
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// The use of a loop device or of a partition of one.
fn part_use(part: &Path, uses: &Uses, floors: usize) -> Option<String> {
    let (name, device) = (part.file_name()?.to_string_lossy().into_owned(), number(part)?);
    let node = PathBuf::from(format!("/dev/{name}"));
    if let Some(place) = mounted_on(&uses.mounts, device) {
        return Some(format!("is what /dev/{name} shows, which is mounted: umount {place}"));
    }
    if swap_names(&uses.swaps, "partition").any(|swap| swap == node) {
        return Some(format!("is what /dev/{name} shows, which is swap space: swapoff /dev/{name}"));
    }
    let holder = fs::read_dir(part.join("holders")).ok().and_then(|mut holders| holders.next()?.ok());
    if let Some(user) = holder {
        let user = user.file_name();
        return Some(format!("is what /dev/{name} shows, which {} uses: stop that", user.to_string_lossy()));
    }
    above(Identity { device, inode: 0 }, &(0..u64::MAX), uses, floors)
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
    fn files_and_devices_of_swap_space_are_found_by_their_kind() {
        let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/sda2                               partition\t1048572\t\t0\t\t-2\n\
                     /var/swap\\040space                       file\t\t8188\t\t0\t\t-3\n";
        assert_eq!(swap_names(swaps, "file").collect::<Vec<_>>(), [PathBuf::from("/var/swap space")]);
        assert_eq!(swap_names(swaps, "partition").collect::<Vec<_>>(), [PathBuf::from("/dev/sda2")]);
        assert_eq!(swap_names("", "file").count(), 0);
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
