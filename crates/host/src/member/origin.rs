//! The origin of a member's bytes: a partition's disk, or the file or device below a loop device.
//! Owns: following the stack down, and the locks of a file below a loop device. Not here: the list of claims (`claim`),
//! which locks exist (`locks`).
//! Invariant: two names of one byte lead to one identity and one place, as far as sysfs and the loop driver report it.

use super::error::{Access, OpenError};
use super::locks;
use super::registration::Identity;
use super::target::Window;
use crate::sys::{self, LoopFile};
use std::fs::{File, Metadata, OpenOptions};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use uraid_block::SECTOR_BYTES;

/// How deep stacked loop devices are followed; the kernel allows fewer.
const FLOORS_MAX: usize = 16;

/// The identity of a file or block device. For a device its device number is used, because two nodes of one device have
/// different inodes.
pub(super) fn identity(status: &Metadata) -> Identity {
    if status.file_type().is_block_device() {
        Identity { device: status.rdev(), inode: 0 }
    } else {
        Identity { device: status.dev(), inode: status.ino() }
    }
}

/// Where a member's bytes finally are.
pub(super) struct Origin {
    /// The file or device that stores them.
    pub(super) identity: Identity,
    /// The byte range in it; the end is `u64::MAX` if it extends to the end.
    pub(super) bytes: Range<u64>,
    /// The path of the file below a loop device, as the system reports it.
    file: Option<PathBuf>,
}

impl Origin {
    /// The origin of `bytes` of the file or device at `path`.
    pub(super) fn of(path: &Path, status: &Metadata, bytes: Range<u64>) -> Origin {
        let mut origin = Origin { identity: identity(status), bytes, file: None };
        let mut path = path.to_owned();
        for _ in 0..FLOORS_MAX {
            if origin.identity.inode != 0 {
                break;
            }
            origin.leave_partition();
            let Some(under) = under_loop(origin.identity.device, &path) else { break };
            origin.step(under.offset, under.length, under.identity);
            // If the file was deleted, or replaced by a rename, no path leads to it.
            let is_there = std::fs::metadata(&under.path).is_ok_and(|status| identity(&status) == under.identity);
            origin.file = (is_there && under.identity.inode != 0).then(|| under.path.clone());
            path = under.path;
        }
        origin
    }

    /// Takes the locks that a claim of the file below a loop device would take; they last as long as the returned file.
    /// `None` if there is no such file, or if this user cannot open the file. In the second case, no process of this
    /// user can claim it either.
    pub(super) fn lock(&self, name: &Path, access: Access) -> Result<Option<File>, OpenError> {
        let Some((file, window)) = self.open_under(access) else { return Ok(None) };
        locks::take(name, &file, access, window)?;
        Ok(Some(file))
    }

    /// The file below a loop device, and the member's window in it; `None` as for [`Origin::lock`].
    pub(super) fn open_under(&self, access: Access) -> Option<(File, Option<Window>)> {
        let path = self.file.as_ref()?;
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
        let file = options.open(path).ok()?;
        if !file.metadata().is_ok_and(|status| identity(&status) == self.identity) {
            return None;
        }
        let Range { start, end } = self.bytes;
        let length = (end != u64::MAX).then(|| end - start);
        let window = (start > 0 || length.is_some()).then_some(Window { offset: start, length });
        Some((file, window))
    }

    /// Moves from a partition to its disk.
    fn leave_partition(&mut self) {
        let device = self.identity.device;
        let sectors = |name: &str| attribute::<u64>(device, name)?.checked_mul(SECTOR_BYTES as u64);
        // Only partitions have this attribute.
        let Some(_) = attribute::<u32>(device, "partition") else { return };
        let (Some(start), Some(length)) = (sectors("start"), sectors("size")) else { return };
        let Some(disk) = attribute::<String>(device, "../dev").and_then(|text| device_number(&text)) else { return };
        self.step(start, Some(length), Identity { device: disk, inode: 0 });
    }

    /// Moves to the file or device below, where the device's `length` bytes start at `offset`.
    ///
    /// Example: bytes 100 to 200 of a 150-byte partition at 1000 are bytes 1100 to 1150 of the disk.
    fn step(&mut self, offset: u64, length: Option<u64>, identity: Identity) {
        let end = length.map_or(u64::MAX, |length| offset.saturating_add(length));
        let start = self.bytes.start.saturating_add(offset).min(end);
        self.bytes = start..self.bytes.end.saturating_add(offset).min(end).max(start);
        self.identity = identity;
    }
}

/// The file or device below a loop device.
pub(super) struct UnderLoop {
    pub(super) identity: Identity,
    path: PathBuf,
    pub(super) offset: u64,
    pub(super) length: Option<u64>,
}

/// `None` if it is not a loop device or has no file. `path` is a node of the device or of one of its partitions.
pub(super) fn under_loop(device: u64, path: &Path) -> Option<UnderLoop> {
    let under: PathBuf = attribute::<String>(device, "loop/backing_file")?.into();
    let (offset, length) = (attribute::<u64>(device, "loop/offset")?, attribute::<u64>(device, "loop/sizelimit")?);
    // The driver knows the inode, which identifies the file; sysfs reports only a path.
    let told = File::open(path).ok().and_then(|file| sys::loop_file(file.as_fd()).ok());
    let identity = match told {
        Some(LoopFile { special, .. }) if special != 0 => Identity { device: special, inode: 0 },
        Some(LoopFile { device, inode, .. }) => Identity { device, inode },
        None => identity(&std::fs::metadata(&under).ok()?),
    };
    Some(UnderLoop { identity, path: under, offset, length: (length > 0).then_some(length) })
}

/// A sysfs attribute of a block device.
fn attribute<T: FromStr>(device: u64, name: &str) -> Option<T> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{name}")).ok()?;
    text.strip_suffix('\n').unwrap_or(&text).parse().ok()
}

/// `7:0`
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_partition_stay_inside_it() {
        let disk = Identity { device: 1, inode: 0 };
        let step = |bytes: Range<u64>, offset, length| {
            let mut origin = Origin { identity: Identity { device: 2, inode: 0 }, bytes, file: None };
            origin.step(offset, length, disk);
            assert_eq!(origin.identity, disk);
            origin.bytes
        };
        assert_eq!(step(100..200, 1000, Some(150)), 1100..1150);
        assert_eq!(step(0..u64::MAX, 1000, Some(150)), 1000..1150);
        assert_eq!(step(0..u64::MAX, 1000, None), 1000..u64::MAX);
        assert_eq!(step(0..u64::MAX, 0, None), 0..u64::MAX);
        assert_eq!(step(200..300, 1000, Some(150)), 1150..1150);
        assert_eq!(step(u64::MAX - 1..u64::MAX, u64::MAX, Some(9)), u64::MAX..u64::MAX);
        assert_eq!(device_number("259:3"), Some(libc::makedev(259, 3)));
        assert_eq!(device_number("259"), None);
    }
}
