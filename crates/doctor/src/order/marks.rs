//! Backup superblocks and tables of file systems and partitions, at places that the first one records.
//! Owns: their places and how each is recognized. Not here: how an array is read (`bench`).
//! Invariant: no number from a disk makes more than [`MARKS_MAX`] marks, or a sum that overflows.
//! Spec: ext4: the kernel's Documentation/filesystems/ext4, "Super Block"; xfs: "XFS Algorithms & Data Structures",
//! superblocks and AGF; GPT: UEFI 2.10, 5.3.2.

use uraid_block::ArraySector;

/// The most marks: enough to tell orders apart, and a bound on the work.
pub(crate) const MARKS_MAX: usize = 64;
/// The bytes from the array's start that hold the first marks.
pub(crate) const HEAD_BYTES: usize = 2048;

/// A structure expected at a known place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// Its sector.
    pub(crate) at: ArraySector,
    /// The expected bytes of that sector: offset and content.
    pub(crate) expected: Vec<(usize, Vec<u8>)>,
}

impl Mark {
    /// Whether the sector has the expected bytes.
    pub(crate) fn is_in(&self, sector: &[u8]) -> bool {
        self.expected.iter().all(|(at, bytes)| sector.get(*at..*at + bytes.len()) == Some(bytes.as_slice()))
    }
}

/// The marks to expect, because the array's first bytes record their places; none if the format is unknown.
pub(crate) fn promised(head: &[u8; HEAD_BYTES]) -> Vec<Mark> {
    let mut marks = gpt(head);
    marks.extend(ext4(head));
    marks.extend(xfs(head));
    marks.truncate(MARKS_MAX);
    marks
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The starts of the partitions listed in the array's first bytes: the first four of a table, GPT or MBR.
pub(crate) fn partitions(head: &[u8; HEAD_BYTES]) -> Vec<ArraySector> {
    const ENTRIES: usize = 4;
    let starts: Vec<u64> = if &head[512..520] == b"EFI PART" {
        // An entry of 128 bytes, as every tool makes them: at 32, its first sector.
        let entries = head[1024..].chunks_exact(128).take(ENTRIES);
        entries.map(|entry| u64::from_le_bytes(entry[32..40].try_into().expect("eight bytes"))).collect()
    } else if head[510..512] == [0x55, 0xaa] {
        (0..ENTRIES).map(|nth| u64::from(le32(head, 446 + 16 * nth + 8))).collect()
    } else {
        Vec::new()
    };
    starts.into_iter().filter(|start| *start != 0).map(ArraySector).collect()
}

/// The backup table is at the place that the first one records, and records that place, too. Its entries are 32 sectors
/// before it and equal those of the first table.
fn gpt(head: &[u8; HEAD_BYTES]) -> Vec<Mark> {
    let first = &head[512..1024];
    if &first[..8] != b"EFI PART" {
        return Vec::new();
    }
    let other = &first[32..40];
    let at = ArraySector(u64::from_le_bytes(other.try_into().expect("eight bytes")));
    let disk = first[56..72].to_vec();
    let header = Mark { at, expected: vec![(0, b"EFI PART".to_vec()), (24, other.to_vec()), (56, disk)] };
    let entries = head[1024..1536].to_vec();
    let copy = at.0.checked_sub(32).filter(|_| entries.iter().any(|byte| *byte != 0));
    let copy = copy.map(|at| Mark { at: ArraySector(at), expected: vec![(0, entries)] });
    [header].into_iter().chain(copy).collect()
}

/// Copies of the superblock in the groups that have one: each names its group and the file system.
fn ext4(head: &[u8; HEAD_BYTES]) -> Vec<Mark> {
    let first = &head[1024..];
    let (log, per_group, count) = (le32(first, 24), u64::from(le32(first, 32)), u64::from(le32(first, 4)));
    if first[56..58] != [0x53, 0xef] || log > 6 || per_group == 0 {
        return Vec::new();
    }
    let sectors_per_block = 2_u64 << log;
    let first_block = u64::from(le32(first, 20));
    let uuid = first[0x68..0x78].to_vec();
    let is_power = |group: u64, base: u64| {
        std::iter::successors(Some(base), |n| n.checked_mul(base)).take_while(|n| *n <= group).any(|n| n == group)
    };
    let has_copy = |group: &u64| *group == 1 || [3, 5, 7].iter().any(|base| is_power(*group, *base));
    let groups = count.saturating_sub(first_block).div_ceil(per_group).min(1 << 16);
    let mark = |group: u64| Mark {
        at: ArraySector((group * per_group + first_block) * sectors_per_block),
        expected: vec![(56, vec![0x53, 0xef]), (0x5a, (group as u16).to_le_bytes().to_vec()), (0x68, uuid.clone())],
    };
    (1..groups).filter(has_copy).map(mark).take(MARKS_MAX).collect()
}

/// Each allocation group begins with a copy of the superblock; the sector after it has the group's number.
fn xfs(head: &[u8; HEAD_BYTES]) -> Vec<Mark> {
    let (block, of_group, groups) = (u64::from(be32(head, 4)), u64::from(be32(head, 84)), be32(head, 88));
    let sector = u64::from(u16::from_be_bytes([head[102], head[103]]));
    if &head[..4] != b"XFSB" || block % 512 != 0 || sector % 512 != 0 || sector == 0 || block > 1 << 16 {
        return Vec::new();
    }
    let uuid = head[32..48].to_vec();
    let mut marks = Vec::new();
    for group in (0..groups).take(MARKS_MAX / 2) {
        let at = u64::from(group) * of_group * (block / 512);
        let superblock = vec![(0, b"XFSB".to_vec()), (32, uuid.clone())];
        let numbered = vec![(0, b"XAGF".to_vec()), (8, group.to_be_bytes().to_vec())];
        marks.push(Mark { at: ArraySector(at), expected: superblock });
        marks.push(Mark { at: ArraySector(at + sector / 512), expected: numbered });
    }
    marks
}
