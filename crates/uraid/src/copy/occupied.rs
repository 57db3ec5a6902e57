//! Members of arrays that OUT is, or holds in a partition.
//! Owns: how they are found. Not here: what else may be overwritten (`output`), the formats (`uraid_format`).
//! Invariant: nothing of it is written. What cannot be read is not called free of members: it is not looked at.
//!
//! ```text
//!   uraid copy --overwrite m0 m1 m2       m2 is the third member, and OUT was forgotten
//!   uraid copy --overwrite m0 m1 /dev/sdc  /dev/sdc1 is a member of another array
//!   uraid copy --overwrite m0 m1 /dev/sdc1 /dev/sdc is one, as a whole, and its data is here
//! ```

use super::map::{Map, State};
use super::output_error::OutputError;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors};
use uraid_format::signature::{self, Signature};
use uraid_format::{Found, find, partition};
use uraid_host::{Access, BadSectors, Claimed, OpenError, Target};

/// The map of an earlier run of this copy.
pub(super) struct Earlier {
    pub(super) map: Map,
    /// It lies beside OUT and has its name: so this copy made OUT. Any map can be named with `--map`.
    pub(super) is_beside: bool,
}

impl Earlier {
    /// Whether an earlier run wrote this place of OUT. It may have written more than the map says, which is saved after
    /// the data.
    fn wrote(&self, place: Range, size: Sectors) -> bool {
        self.is_beside || size == self.map.size() || self.map.is_all(place, State::Copied)
    }
}

/// Refuses what carries md metadata, but for what an earlier run of this copy wrote there: an array may hold a member of
/// another array. Also refuses what a given member is under another name.
pub(super) fn refuse(path: &Path, earlier: Option<&Earlier>) -> Result<(), OutputError> {
    // Before OUT is claimed: a claim of what lies below it would be of the same bytes.
    refuse_data(path)?;
    let name = path.to_string_lossy().into_owned();
    let target = Target { name, path: path.into(), window: None, bad: BadSectors::default() };
    let claimed = match Claimed::open_target(&target, Access::ReadOnly) {
        Ok(claimed) => claimed,
        Err(OpenError::ClaimedTwice { claimed_as, .. }) => {
            return Err(OutputError::Member { path: path.to_owned(), member: claimed_as });
        }
        Err(OpenError::InUse { .. }) => return Err(OutputError::InUse { path: path.to_owned() }),
        // It is empty, or opening it to write will say what is wrong.
        Err(_) => return Ok(()),
    };
    let all = Range::new(Sector(0), claimed.size());
    let own = marks(&claimed, all).map(|mark| (mark, all, String::new()));
    let read = |at: u64, into: &mut [u8]| claimed.read_at(at, into);
    let table = partition::read(claimed.size().bytes(), read).ok();
    let partitions = table.into_iter().flat_map(|table| table.partitions);
    let inside = partitions.filter_map(|found| {
        let range = Range::new(found.start, found.length);
        (range.end() <= all.end()).then(|| (range, format!("@p{}", found.number)))
    });
    let in_partitions =
        inside.flat_map(|(range, name)| marks(&claimed, range).map(move |mark| (mark, range, name.clone())));
    for (mark, within, part) in own.chain(in_partitions) {
        let extent = mark.extent(within.length);
        let place = Range::new(within.start + Sectors(extent.start.0), extent.length);
        if !earlier.is_some_and(|earlier| earlier.wrote(place, all.length)) {
            let member = format!("{}{part}", path.display());
            return Err(OutputError::Superblock { member, mark });
        }
    }
    Ok(())
}

/// Refuses what is a part of a larger device, or of the file below a loop device, if a member has its data there.
fn refuse_data(path: &Path) -> Result<(), OutputError> {
    let mut part = Part { path: path.to_owned(), bytes: 0..u64::MAX };
    for _ in 0..FLOORS_MAX {
        let Some(below) = part.below() else { return Ok(()) };
        part = below;
        let target = Target {
            name: part.path.to_string_lossy().into_owned(),
            path: part.path.clone(),
            window: None,
            bad: BadSectors::default(),
        };
        let Ok(claimed) = Claimed::open_target(&target, Access::ReadOnly) else { continue };
        let read = |at: u64, into: &mut [u8]| claimed.read_at(at, into);
        let table = partition::read(claimed.size().bytes(), read).ok();
        let parts =
            table.into_iter().flat_map(|table| table.partitions).map(|found| Range::new(found.start, found.length));
        let inside = parts.filter(|found| found.end().0 <= claimed.size().0);
        for within in std::iter::once(Range::new(Sector(0), claimed.size())).chain(inside) {
            let byte = |at: Sector| (within.start.0 + at.0) * SECTOR_BYTES as u64;
            let found = find(within.length, |at, block| claimed.read_at(byte(at), block));
            let Ok(Found { superblock, .. }) = found else { continue };
            let data = byte(superblock.data_offset)..byte(superblock.data_offset + superblock.data_size);
            if data.start < part.bytes.end && part.bytes.start < data.end {
                return Err(OutputError::Data { path: path.to_owned(), member: part.path.clone() });
            }
        }
    }
    Ok(())
}

/// How deep stacked loop devices are followed; the kernel allows fewer.
const FLOORS_MAX: usize = 16;

/// Bytes of a file or device.
struct Part {
    path: PathBuf,
    bytes: std::ops::Range<u64>,
}

impl Part {
    /// The same bytes of what lies below a partition or a loop device.
    fn below(&self) -> Option<Part> {
        let status = std::fs::metadata(&self.path).ok().filter(|status| status.file_type().is_block_device())?;
        let (major, minor) = (rustix::fs::major(status.rdev()), rustix::fs::minor(status.rdev()));
        let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let text = |name: &str| Some(std::fs::read_to_string(own.join(name)).ok()?.trim_end_matches('\n').to_owned());
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        let length = number("size")?.saturating_mul(SECTOR_BYTES as u64);
        let (path, start) = match text("loop/backing_file") {
            Some(file) => (PathBuf::from(file), number("loop/offset")?),
            None => {
                number("partition")?;
                let disk = text("../dev")?;
                (PathBuf::from(format!("/dev/block/{disk}")), number("start")?.saturating_mul(SECTOR_BYTES as u64))
            }
        };
        let end = start.saturating_add(length);
        let from = start.saturating_add(self.bytes.start).min(end);
        Some(Part { path, bytes: from..start.saturating_add(self.bytes.end).min(end) })
    }
}

/// The marks of md in a part of the device.
fn marks(claimed: &Claimed, part: Range) -> impl Iterator<Item = Signature> {
    let window = Sectors((signature::WINDOW_BYTES / SECTOR_BYTES) as u64).min(part.length);
    let read = |from: Sector| {
        let mut bytes = vec![0; window.len_bytes()];
        let at = from.0 * SECTOR_BYTES as u64;
        claimed.read_at(at, &mut bytes).map(|()| bytes).unwrap_or_default()
    };
    let (head, tail) = (read(part.start), read(Sector(part.end().0 - window.0)));
    signature::detect_all(&head, &tail, part.length).into_iter().filter(|mark| mark.kind.is_md())
}
