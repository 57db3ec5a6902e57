//! Signatures of other formats on a device.
//! Owns: magic numbers and their places. Not here: the decision to overwrite (`uraid create --force`).
//! Invariant: no bytes make it panic. An empty result means that nothing known was found, not that a device is free.

use crate::SUPERBLOCK_BYTES;
use std::fmt;
use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors};

/// Bytes of the device's head and tail to pass to [`detect`]; more are ignored, fewer find less.
pub const WINDOW_BYTES: usize = 128 * 1024;

/// The format of a signature.
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
    /// A member of a firmware RAID in the DDF format.
    Ddf,
    /// A member of an Intel firmware RAID.
    Imsm,
}

impl Kind {
    /// In words, to follow "carries".
    pub const fn text(self) -> &'static str {
        match self {
            Kind::Md090 => "md metadata 0.90",
            Kind::Md10 => "md metadata 1.0",
            Kind::Md11 => "md metadata 1.1",
            Kind::Md12 => "md metadata 1.2",
            Kind::Gpt => "a GPT partition table",
            Kind::Mbr => "a DOS partition table",
            Kind::Ext => "an ext2, ext3 or ext4 file system",
            Kind::Xfs => "an XFS file system",
            Kind::Btrfs => "a Btrfs file system",
            Kind::Lvm2 => "an LVM2 physical volume",
            Kind::Luks1 => "a LUKS1 volume",
            Kind::Luks2 => "a LUKS2 volume",
            Kind::Swap => "swap space",
            Kind::Ntfs => "an NTFS file system",
            Kind::Vfat => "a FAT file system",
            Kind::Exfat => "an exFAT file system",
            Kind::Zfs => "a member of a ZFS pool",
            Kind::F2fs => "an F2FS file system",
            Kind::Bcache => "a bcache device",
            Kind::Bcachefs => "a bcachefs file system",
            Kind::Iso9660 => "an ISO 9660 file system",
            Kind::Squashfs => "a SquashFS file system",
            Kind::Ddf => "a member of a DDF firmware RAID",
            Kind::Imsm => "a member of an Intel firmware RAID",
        }
    }

    /// Whether it is md's own metadata.
    pub const fn is_md(self) -> bool {
        matches!(self, Kind::Md090 | Kind::Md10 | Kind::Md11 | Kind::Md12)
    }
}

/// A signature that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Its format.
    pub kind: Kind,
    /// The byte of the device where the mark is.
    pub at: u64,
}

impl Signature {
    /// What to overwrite so that the signature is not found again: the whole of an md superblock, or the sector of any
    /// other signature; cut at the end of the device.
    pub fn extent(self, device_size: Sectors) -> Range {
        let start = self.at / SECTOR_BYTES as u64;
        let length = if self.kind.is_md() { SUPERBLOCK_BYTES / SECTOR_BYTES } else { 1 };
        Range::new(Sector(start), Sectors(device_size.0.saturating_sub(start).min(length as u64)))
    }
}

/// The first signature in a fixed order of importance: md first, then containers of other volumes, then file systems.
/// `head` is the start of the device, `tail` its end; at most [`WINDOW_BYTES`] of each are used.
pub fn detect(head: &[u8], tail: &[u8], device_size: Sectors) -> Option<Signature> {
    detect_all(head, tail, device_size).into_iter().next()
}

/// Every signature, in the order of [`detect`].
pub fn detect_all(head: &[u8], tail: &[u8], device_size: Sectors) -> Vec<Signature> {
    let device = Device::new(head, tail, device_size);
    let mut found = Vec::new();
    for (kind, look) in LOOKS {
        if let Some(at) = look(&device) {
            found.push(Signature { kind: *kind, at });
        }
    }
    found
}

type Look = fn(&Device<'_>) -> Option<u64>;

const LOOKS: &[(Kind, Look)] = &[
    (Kind::Md12, |device| device.md_version_1(8)),
    (Kind::Md11, |device| device.md_version_1(0)),
    (Kind::Md10, |device| device.md_version_1(device.bytes.checked_div(512)?.checked_sub(16)? & !7)),
    (Kind::Md090, md_090),
    (Kind::Ddf, |device| device.tag(device.end_minus(512)?, b"\xde\x11\xde\x11")),
    (Kind::Imsm, |device| device.tag(device.end_minus(1024)?, b"Intel Raid ISM Cfg Sig. ")),
    (Kind::Lvm2, lvm2),
    (Kind::Luks1, |device| device.tag(0, b"LUKS\xba\xbe\x00\x01")),
    (Kind::Luks2, luks2),
    (Kind::Zfs, zfs),
    (Kind::Bcache, |device| device.tag(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")),
    (Kind::Bcachefs, |device| device.tag(4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")),
    (Kind::Gpt, gpt),
    (Kind::Ext, ext),
    (Kind::Xfs, |device| device.tag(0, b"XFSB")),
    (Kind::Btrfs, |device| device.tag(65536 + 64, b"_BHRfS_M")),
    (Kind::F2fs, |device| device.tag(1024, b"\x10\x20\xf5\xf2")),
    (Kind::Swap, swap),
    (Kind::Ntfs, |device| device.tag(3, b"NTFS    ")),
    (Kind::Exfat, |device| device.tag(3, b"EXFAT   ")),
    (Kind::Vfat, vfat),
    (Kind::Iso9660, |device| device.tag(32769, b"CD001")),
    (Kind::Squashfs, |device| device.tag(0, b"hsqs")),
    (Kind::Mbr, mbr),
];

/// The two ends of a device.
struct Device<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    bytes: u64,
}

impl<'a> Device<'a> {
    fn new(head: &'a [u8], tail: &'a [u8], size: Sectors) -> Device<'a> {
        let tail = &tail[tail.len() - tail.len().min(WINDOW_BYTES)..];
        let bytes = size.0.saturating_mul(SECTOR_BYTES as u64);
        Device { head: &head[..head.len().min(WINDOW_BYTES)], tail, bytes }
    }

    /// `length` bytes at a byte of the device, if head or tail has them.
    fn read(&self, at: u64, length: usize) -> Option<&'a [u8]> {
        let end = at.checked_add(length as u64)?;
        if end > self.bytes {
            return None;
        }
        if end <= self.head.len() as u64 {
            return Some(&self.head[at as usize..end as usize]);
        }
        let tail_start = self.bytes.checked_sub(self.tail.len() as u64)?;
        let within = usize::try_from(at.checked_sub(tail_start)?).ok()?;
        self.tail.get(within..within.checked_add(length)?)
    }

    /// The place of `tag`, if it is at `at`.
    fn tag(&self, at: u64, tag: &[u8]) -> Option<u64> {
        (self.read(at, tag.len())? == tag).then_some(at)
    }

    fn end_minus(&self, bytes: u64) -> Option<u64> {
        self.bytes.checked_sub(bytes)
    }

    /// A version-1 superblock at the sector that it records itself. Even damaged, with a wrong checksum or another major
    /// version, it is md's.
    fn md_version_1(&self, sector: u64) -> Option<u64> {
        let at = sector.checked_mul(SECTOR_BYTES as u64)?;
        self.tag(at, b"\xfc\x4e\x2b\xa9")?;
        self.tag(at + 144, &sector.to_le_bytes())?;
        Some(at)
    }
}

/// In the byte order of the machine that wrote it; the major version 0 follows.
fn md_090(device: &Device<'_>) -> Option<u64> {
    let sectors = device.bytes / SECTOR_BYTES as u64;
    let at = (sectors & !127).checked_sub(128)? * SECTOR_BYTES as u64;
    device.tag(at, b"\xfc\x4e\x2b\xa9\0\0\0\0").or_else(|| device.tag(at, b"\xa9\x2b\x4e\xfc\0\0\0\0"))
}

/// The label is in one of the first four sectors.
fn lvm2(device: &Device<'_>) -> Option<u64> {
    let mut sectors = (0..4).map(|sector| sector * 512);
    sectors.find(|at| device.tag(*at, b"LABELONE").is_some() && device.tag(at + 24, b"LVM2 001").is_some())
}

/// The second header begins with the letters reversed, and remains when the first is wiped.
fn luks2(device: &Device<'_>) -> Option<u64> {
    let second = [0x4000, 0x8000, 0x10000];
    device
        .tag(0, b"LUKS\xba\xbe\x00\x02")
        .or_else(|| second.into_iter().find(|at| device.tag(*at, b"SKUL\xba\xbe\x00\x02").is_some()))
}

/// The list of names and values of the first label, or an uberblock of the last one.
fn zfs(device: &Device<'_>) -> Option<u64> {
    const LIST: u64 = 16384;
    const LABEL: u64 = 256 * 1024;
    if let Some(list) = device.read(LIST, 64)
        && list[0] == 1
        && list[2..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        && list.windows(7).any(|word| word == b"version")
    {
        return Some(LIST);
    }
    // A label ends with 128 KiB of uberblocks; the last label ends at a multiple of its size.
    let uberblocks = (device.bytes & !(LABEL - 1)).checked_sub(LABEL / 2)?;
    let mut places = (0..128).map(|n| uberblocks + n * 1024);
    places.find(|at| {
        device.tag(*at, b"\x0c\xb1\xba\x00\0\0\0\0").is_some() || device.tag(*at, b"\0\0\0\0\x00\xba\xb1\x0c").is_some()
    })
}

/// The header behind the first block, or its copy in the last, for both block sizes.
fn gpt(device: &Device<'_>) -> Option<u64> {
    let places = [Some(512), Some(4096), device.end_minus(512), device.end_minus(4096)];
    places.into_iter().flatten().find(|at| device.tag(*at, b"EFI PART").is_some())
}

/// The magic has two bytes only: one of 65,536 disks full of random bytes has it. So the size of a block, as a power of
/// two above 1 KiB, must be one that exists, too: of 4 bytes at 24 of the superblock, 1 KiB to 64 KiB are seven values.
fn ext(device: &Device<'_>) -> Option<u64> {
    let block_size = device.read(1024 + 24, 4)?;
    let is_size = block_size[0] <= 6 && block_size[1..] == [0; 3];
    if is_size { device.tag(1080, b"\x53\xef") } else { None }
}

/// At the end of the first page, whose size depends on the machine.
fn swap(device: &Device<'_>) -> Option<u64> {
    let places = [4096u64, 8192, 16384, 32768, 65536].map(|page| page - 10);
    places.into_iter().find(|at| {
        [b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND\0", b"S2SUSPEND\0"].iter().any(|tag| device.tag(*at, *tag).is_some())
    })
}

fn vfat(device: &Device<'_>) -> Option<u64> {
    device.tag(510, b"\x55\xaa")?;
    let fat32 = device.tag(82, b"FAT32   ");
    let fat16 = || [b"FAT12   ", b"FAT16   ", b"FAT     "].iter().find_map(|tag| device.tag(54, *tag));
    fat32.or_else(fat16)
}

/// Every boot sector has this magic: the four entries must also look like partitions.
fn mbr(device: &Device<'_>) -> Option<u64> {
    device.tag(510, b"\x55\xaa")?;
    if vfat(device).is_some() || device.tag(3, b"NTFS    ").is_some() || device.tag(3, b"EXFAT   ").is_some() {
        return None;
    }
    let entries = device.read(446, 64)?;
    let mut is_used = false;
    for entry in entries.chunks_exact(16) {
        if entry[0] & 0x7f != 0 {
            return None;
        }
        is_used |= entry[4] != 0 && entry[12..16] != [0; 4];
    }
    is_used.then_some(446)
}

impl fmt::Display for Signature {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (at byte {})", self.kind.text(), self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Sectors = Sectors(4096);

    /// Bytes, and where on the device they are.
    type Mark<'a> = (u64, &'a [u8]);

    /// A device of 2 MiB with these marks, as its two ends show it.
    fn with(marks: &[Mark<'_>]) -> Vec<Signature> {
        let mut device = vec![0; SIZE.len_bytes()];
        for (at, mark) in marks {
            device[*at as usize..*at as usize + mark.len()].copy_from_slice(mark);
        }
        detect_all(&device[..WINDOW_BYTES], &device[device.len() - WINDOW_BYTES..], SIZE)
    }

    fn kinds(marks: &[Mark<'_>]) -> Vec<Kind> {
        with(marks).into_iter().map(|signature| signature.kind).collect()
    }

    #[test]
    fn two_bytes_of_garbage_are_no_ext() {
        assert_eq!(kinds(&[(1080, b"\x53\xef")]), [Kind::Ext]);
        assert_eq!(kinds(&[(1080, b"\x53\xef"), (1048, b"\x06\0\0\0")]), [Kind::Ext]);
        assert_eq!(kinds(&[(1080, b"\x53\xef"), (1048, b"\x07\0\0\0")]), []);
        assert_eq!(kinds(&[(1080, b"\x53\xef"), (1048, b"\x02\0\0\x5a")]), []);
    }

    #[test]
    fn a_superblock_is_overwritten_whole_and_other_signatures_by_their_sector() {
        let range = |kind, at, size| {
            let range = Signature { kind, at }.extent(Sectors(size));
            (range.start.0, range.length.0)
        };
        assert_eq!(range(Kind::Md12, 4096, 100), (8, 8));
        assert_eq!(range(Kind::Ext, 1080, 100), (2, 1));
        assert_eq!(range(Kind::Md10, 96 * 512, 100), (96, 4));
    }

    #[test]
    fn an_empty_device_has_no_signature() {
        assert_eq!(with(&[]), []);
        assert_eq!(detect(&[], &[], Sectors(0)), None);
        assert_eq!(detect(&[0; 512], &[0; 512], Sectors(1)), None);
    }

    #[test]
    fn every_version_of_md_is_found_at_its_place() {
        let magic: &[u8] = b"\xfc\x4e\x2b\xa9\x01\x00\x00\x00";
        let at = |sector: u64| (sector * 512, sector * 512 + 144, sector.to_le_bytes());
        for (sector, kind) in [(8, Kind::Md12), (0, Kind::Md11), (4080, Kind::Md10)] {
            let (start, place, number) = at(sector);
            assert_eq!(with(&[(start, magic), (place, &number)]), [Signature { kind, at: start }]);
            let damaged: &[u8] = b"\xfc\x4e\x2b\xa9\x04\x00\x00\x00";
            assert_eq!(kinds(&[(start, damaged), (place, &number)]), [kind]);
            // A superblock that records another place is a copy, or belongs to another device's partition.
            assert_eq!(kinds(&[(start, magic), (place, &99u64.to_le_bytes())]), []);
        }
        assert_eq!(kinds(&[(3968 * 512, b"\xfc\x4e\x2b\xa9\0\0\0\0")]), [Kind::Md090]);
        assert_eq!(kinds(&[(3968 * 512, b"\xa9\x2b\x4e\xfc\0\0\0\0")]), [Kind::Md090]);
    }

    /// The mark of a swap space of 4 KiB pages is the end of its first page.
    #[test]
    fn a_signature_may_end_with_the_device_and_not_behind_it() {
        for (sectors, is_seen) in [(7, false), (8, true), (9, true)] {
            let mut device = vec![0; 9 * 512];
            device[4086..4096].copy_from_slice(b"SWAPSPACE2");
            let window = &device[..sectors * 512];
            let found = detect(window, window, Sectors(sectors as u64)).map(|found| found.kind);
            assert_eq!(found, is_seen.then_some(Kind::Swap), "{sectors} sectors");
        }
    }

    #[test]
    fn other_formats_are_found_by_their_signatures() {
        let end = SIZE.bytes();
        let cases: &[(Kind, &[Mark<'_>])] = &[
            (Kind::Gpt, &[(512, b"EFI PART")]),
            (Kind::Gpt, &[(4096, b"EFI PART")]),
            (Kind::Gpt, &[(end - 512, b"EFI PART")]),
            (Kind::Gpt, &[(end - 4096, b"EFI PART")]),
            (Kind::Mbr, &[(450, b"\x83"), (458, b"\x01"), (510, b"\x55\xaa")]),
            (Kind::Ext, &[(1080, b"\x53\xef")]),
            (Kind::Xfs, &[(0, b"XFSB")]),
            (Kind::Btrfs, &[(65600, b"_BHRfS_M")]),
            (Kind::Lvm2, &[(512, b"LABELONE"), (536, b"LVM2 001")]),
            (Kind::Luks1, &[(0, b"LUKS\xba\xbe\x00\x01")]),
            (Kind::Luks2, &[(0, b"LUKS\xba\xbe\x00\x02")]),
            (Kind::Luks2, &[(0x4000, b"SKUL\xba\xbe\x00\x02")]),
            (Kind::Swap, &[(4086, b"SWAPSPACE2")]),
            (Kind::Swap, &[(65526, b"SWAPSPACE2")]),
            (Kind::Ntfs, &[(3, b"NTFS    "), (510, b"\x55\xaa")]),
            (Kind::Exfat, &[(3, b"EXFAT   "), (510, b"\x55\xaa")]),
            (Kind::Vfat, &[(82, b"FAT32   "), (510, b"\x55\xaa")]),
            (Kind::Vfat, &[(54, b"FAT16   "), (510, b"\x55\xaa")]),
            (Kind::Zfs, &[(16384, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20\0\0\0\x07version")]),
            (Kind::Zfs, &[(end - 131072 + 5 * 1024, b"\x0c\xb1\xba\x00\0\0\0\0")]),
            (Kind::F2fs, &[(1024, b"\x10\x20\xf5\xf2")]),
            (Kind::Iso9660, &[(32769, b"CD001")]),
            (Kind::Squashfs, &[(0, b"hsqs")]),
            (Kind::Ddf, &[(end - 512, b"\xde\x11\xde\x11")]),
            (Kind::Imsm, &[(end - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00")]),
        ];
        for (kind, marks) in cases {
            assert_eq!(kinds(marks), [*kind], "{marks:?}");
        }
    }

    #[test]
    fn a_protective_partition_table_is_reported_as_the_gpt_it_protects() {
        let marks: &[Mark<'_>] = &[(450, b"\xee"), (458, b"\x01"), (510, b"\x55\xaa"), (512, b"EFI PART")];
        assert_eq!(kinds(marks), [Kind::Gpt, Kind::Mbr]);
        assert_eq!(with(marks)[0].to_string(), "a GPT partition table (at byte 512)");
    }

    #[test]
    fn a_boot_signature_alone_is_no_partition_table() {
        assert_eq!(kinds(&[(510, b"\x55\xaa")]), []);
    }

    #[test]
    fn inconsistent_windows_and_sizes_are_harmless() {
        let block = [0x55u8; 4096];
        for size in [0, 1, 7, 8, 15, 16, 127, 128, 129, u64::MAX] {
            for head in [0, 1, 511, 4096] {
                for tail in [0, 1, 511, 4096] {
                    detect_all(&block[..head], &block[..tail], Sectors(size));
                }
            }
        }
    }
}
