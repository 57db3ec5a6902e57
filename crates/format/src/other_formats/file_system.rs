//! The superblocks of file systems, as far as they say how the file system lies on its device.
//! Owns: [`FileSystem`], the fields of XFS, ext2 to ext4 and Btrfs. Not here: finding other formats (`signature`),
//! partitions (`partition`), what follows from it (`doctor`).
//! Invariant: no bytes make it panic, and every number that it returns is in its range.
//! Spec: XFS: "XFS Algorithms & Data Structures", superblocks; ext4: the kernel's Documentation/filesystems/ext4, "Super
//! Block"; Btrfs: btrfs.readthedocs.io, "On-disk Format".
//! No crate: those that read these formats read all of one of them; here it is ten fields.

use std::fmt;

/// How many bytes from the start of a file system are looked at.
pub const HEAD_BYTES: usize = BTRFS_AT + 512;

const EXT_AT: usize = 1024;
const BTRFS_AT: usize = 64 << 10;

/// The format of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystemKind {
    /// XFS.
    Xfs,
    /// ext2, ext3 or ext4.
    Ext,
    /// Btrfs.
    Btrfs,
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            FileSystemKind::Xfs => "XFS",
            FileSystemKind::Ext => "ext4",
            FileSystemKind::Btrfs => "Btrfs",
        })
    }
}

/// How a file system lies on its device. All numbers are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Its format.
    pub kind: FileSystemKind,
    /// Its own size.
    pub size: u64,
    /// The unit in which it allocates space.
    pub block: u64,
    /// The smallest unit that it writes.
    pub sector: u64,
    /// The stripes that it knows of; `None`: it was told of none, or has no field for them.
    pub stripes: Option<Stripes>,
    /// The size of its allocation groups, or block groups; `None` for Btrfs.
    pub group: Option<u64>,
}

/// The stripes of a device, as a file system was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    /// XFS: su; ext4: stride.
    pub unit: u64,
    /// XFS: su x sw; ext4: stripe_width. Zero if it was told the unit only.
    pub width: u64,
}

impl Stripes {
    /// How many units a stripe has.
    pub fn units(self) -> u64 {
        self.width.checked_div(self.unit).unwrap_or(0)
    }
}

/// A field that has an impossible value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} superblock: {field} is {found}, expected a power of two from {min} to {max}")]
pub struct FileSystemError {
    /// The format that its first bytes show.
    pub kind: FileSystemKind,
    /// The field in words.
    pub field: &'static str,
    /// Its value.
    pub found: u64,
    /// The smallest value that it may have.
    pub min: u64,
    /// The largest one.
    pub max: u64,
}

/// The file system that begins with these bytes, [`HEAD_BYTES`] of them or fewer at the end of a device. `None`: it is
/// none of these three.
pub fn parse(head: &[u8]) -> Result<Option<FileSystem>, FileSystemError> {
    let head = Head(head);
    if head.bytes(0) == Some(*b"XFSB") {
        return xfs(&head).transpose();
    }
    if head.bytes(EXT_AT + 56) == Some([0x53, 0xef]) {
        return ext(&head).transpose();
    }
    if head.bytes(BTRFS_AT + 64) == Some(*b"_BHRfS_M") {
        return btrfs(&head).transpose();
    }
    Ok(None)
}

/// Bytes that may end early.
struct Head<'a>(&'a [u8]);

impl Head<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn le32(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(|bytes| u32::from_le_bytes(bytes).into())
    }

    fn le64(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    fn be32(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(|bytes| u32::from_be_bytes(bytes).into())
    }
}

/// The outcome if the head has all of the fields.
type Parsed = Option<Result<FileSystem, FileSystemError>>;

fn power(
    kind: FileSystemKind,
    field: &'static str,
    found: u64,
    (min, max): (u64, u64),
) -> Result<u64, FileSystemError> {
    let is_good = found.is_power_of_two() && (min..=max).contains(&found);
    if is_good { Ok(found) } else { Err(FileSystemError { kind, field, found, min, max }) }
}

/// Stripes of `unit` and `width` blocks; zero: none.
fn stripes(unit: u64, width: u64, block: u64) -> Option<Stripes> {
    let of_unit = if unit == 0 { width } else { unit };
    (of_unit > 0).then(|| Stripes { unit: of_unit * block, width: width * block })
}

fn xfs(head: &Head<'_>) -> Parsed {
    let (block, blocks, group) = (head.be32(4)?, head.bytes(8).map(u64::from_be_bytes)?, head.be32(84)?);
    let sector = u64::from(u16::from_be_bytes(head.bytes(102)?));
    let (unit, width) = (head.be32(184)?, head.be32(188)?);
    let checked = || {
        let block = power(FileSystemKind::Xfs, "block size", block, (512, 64 << 10))?;
        let sector = power(FileSystemKind::Xfs, "sector size", sector, (512, 32 << 10))?;
        Ok(FileSystem {
            kind: FileSystemKind::Xfs,
            size: blocks.saturating_mul(block),
            block,
            sector,
            stripes: stripes(unit, width, block),
            group: Some(group * block),
        })
    };
    Some(checked())
}

fn ext(head: &Head<'_>) -> Parsed {
    const IS_64BIT: u64 = 0x80;
    let field = |at: usize| head.le32(EXT_AT + at);
    let (low, shift, of_group) = (field(4)?, field(24)?, field(32)?);
    let (features, high, width) = (field(96)?, field(0x150)?, field(0x170)?);
    let unit = u64::from(u16::from_le_bytes(head.bytes(EXT_AT + 0x164)?));
    let checked = || {
        let block = 1024u64.checked_shl(shift.min(63) as u32).unwrap_or(0);
        let block = power(FileSystemKind::Ext, "block size", block, (1024, 64 << 10))?;
        let blocks = if features & IS_64BIT == 0 { low } else { high << 32 | low };
        Ok(FileSystem {
            kind: FileSystemKind::Ext,
            size: blocks.saturating_mul(block),
            block,
            sector: block,
            stripes: stripes(unit, width, block),
            group: Some(of_group * block),
        })
    };
    Some(checked())
}

fn btrfs(head: &Head<'_>) -> Parsed {
    let (size, sector) = (head.le64(BTRFS_AT + 0x70)?, head.le32(BTRFS_AT + 0x90)?);
    let checked = || {
        let sector = power(FileSystemKind::Btrfs, "sector size", sector, (512, 64 << 10))?;
        Ok(FileSystem { kind: FileSystemKind::Btrfs, size, block: sector, sector, stripes: None, group: None })
    };
    Some(checked())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES];
        for (at, bytes) in fields {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn the_fields_of_each_file_system() {
        let found = parse(&head(&[
            (0, b"XFSB"),
            (4, &4096u32.to_be_bytes()),
            (8, &(1u64 << 20).to_be_bytes()),
            (84, &(1u32 << 18).to_be_bytes()),
            (102, &512u16.to_be_bytes()),
            (184, &16u32.to_be_bytes()),
            (188, &160u32.to_be_bytes()),
        ]));
        let xfs = FileSystem {
            kind: FileSystemKind::Xfs,
            size: 4 << 30,
            block: 4096,
            sector: 512,
            stripes: Some(Stripes { unit: 64 << 10, width: 640 << 10 }),
            group: Some(1 << 30),
        };
        assert_eq!(found, Ok(Some(xfs)));
        let found = parse(&head(&[
            (1024 + 4, &5u32.to_le_bytes()),
            (1024 + 24, &2u32.to_le_bytes()),
            (1024 + 32, &32768u32.to_le_bytes()),
            (1024 + 56, &[0x53, 0xef]),
            (1024 + 96, &0x80u32.to_le_bytes()),
            (1024 + 0x150, &1u32.to_le_bytes()),
        ]));
        let size = ((1u64 << 32) + 5) * 4096;
        let (block, group) = (4096, Some(128 << 20));
        let ext = FileSystem { kind: FileSystemKind::Ext, size, block, sector: block, stripes: None, group };
        assert_eq!(found, Ok(Some(ext)));
        let found = parse(&head(&[
            (BTRFS_AT + 64, b"_BHRfS_M"),
            (BTRFS_AT + 0x70, &(7u64 << 30).to_le_bytes()),
            (BTRFS_AT + 0x90, &4096u32.to_le_bytes()),
        ]));
        let (size, block) = (7 << 30, 4096);
        let btrfs = FileSystem { kind: FileSystemKind::Btrfs, size, block, sector: block, stripes: None, group: None };
        assert_eq!(found, Ok(Some(btrfs)));
    }

    #[test]
    fn impossible_fields_are_named_and_short_heads_are_none() {
        let xfs = head(&[(0, b"XFSB"), (4, &5000u32.to_be_bytes())]);
        let error = parse(&xfs).expect_err("no power of two");
        assert_eq!(error.to_string(), "XFS superblock: block size is 5000, expected a power of two from 512 to 65536");
        assert_eq!(parse(&xfs[..100]), Ok(None));
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&[0; HEAD_BYTES]), Ok(None));
        let ext = head(&[(1024 + 24, &u32::MAX.to_le_bytes()), (1024 + 56, &[0x53, 0xef])]);
        assert!(parse(&ext).is_err());
    }

    /// Every bit of every field that is read, and all ones.
    #[test]
    fn no_bytes_make_it_panic() {
        for magic in [(0, &b"XFSB"[..]), (1080, &[0x53, 0xef]), (BTRFS_AT + 64, b"_BHRfS_M")] {
            let start = magic.0 & !1023;
            for at in start..start + 1024 - 8 {
                let mut bytes = head(&[(at.min(HEAD_BYTES - 8), &[0xff; 8])]);
                bytes[magic.0..magic.0 + magic.1.len()].copy_from_slice(magic.1);
                let _ = parse(&bytes);
            }
            let mut bytes = vec![0xff; HEAD_BYTES];
            bytes[magic.0..magic.0 + magic.1.len()].copy_from_slice(magic.1);
            let _ = parse(&bytes);
        }
    }
}
