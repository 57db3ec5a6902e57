//! What the system says of block devices: the drive under a member, the file under a loop device.
//! Owns: reading /sys/dev/block. Not here: names of members (`member_name`).
//! Spec: the kernel's Documentation/ABI/stable/sysfs-block.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_control::member_name;

/// A block device, or the part of one that a member is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Drive {
    /// Where the member begins on it.
    pub start: Sector,
    pub logical_block: Option<Sectors>,
    pub physical_block: Option<Sectors>,
    /// As `MemberFacts` has it.
    pub lacks_holes: bool,
}

/// A block device in sysfs, whole or a partition.
pub(crate) struct Node {
    folder: PathBuf,
}

impl Node {
    /// The device with this number, as `stat` gives it; `None`: it is no block device, as that of Btrfs or overlayfs.
    pub(crate) fn of(device: u64) -> Option<Node> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Some(Node { folder })
    }

    /// `loop0p1`
    pub(super) fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn is_partition(&self) -> bool {
        self.folder.join("partition").exists()
    }

    /// The folder of the whole device.
    fn whole(&self) -> &Path {
        if self.is_partition() { self.folder.parent().unwrap_or(&self.folder) } else { &self.folder }
    }

    /// Where it begins on the whole device.
    pub(super) fn start(&self) -> Sector {
        Sector(if self.is_partition() { number(&self.folder.join("start")).unwrap_or(0) } else { 0 })
    }

    /// The file under a loop device, and at which sector of it the device begins.
    pub(super) fn backing(&self) -> Option<(PathBuf, Sector)> {
        let file = fs::read_to_string(self.whole().join("loop/backing_file")).ok()?;
        let offset = number(&self.whole().join("loop/offset"))?;
        Some((PathBuf::from(file.trim_end_matches('\n')), Sector(offset / SECTOR_BYTES as u64)))
    }

    /// The discards that it has ended: the kernel's Documentation/block/stat.rst.
    pub(crate) fn discards(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("stat")).unwrap_or_default();
        text.split_whitespace().nth(11).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    fn lacks(&self, file: &str) -> bool {
        number(&self.whole().join("queue").join(file)) == Some(0)
    }

    fn block(&self, file: &str) -> Option<Sectors> {
        let bytes = number(&self.whole().join("queue").join(file))?;
        Some(Sectors(bytes / SECTOR_BYTES as u64))
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The drive under a member; `None`: it is a file, or cannot be found.
pub(super) fn drive_of_member(name: &str) -> Option<Drive> {
    let target = member_name::resolve(name).ok()?;
    let status = fs::metadata(&target.path).ok().filter(|status| status.file_type().is_block_device())?;
    let node = Node::of(status.rdev())?;
    let in_device = target.window.map_or(0, |window| window.offset / SECTOR_BYTES as u64);
    Some(Drive {
        start: Sector(node.start().0 + in_device),
        logical_block: node.block("logical_block_size"),
        physical_block: node.block("physical_block_size"),
        lacks_holes: node.lacks("discard_max_bytes") || node.lacks("write_zeroes_max_bytes"),
    })
}
