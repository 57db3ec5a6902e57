//! Opens a member: finds out what it is, and claims it.
//! Owns: names, the place of a window, geometry of files and block devices. Not here: locks (`locks`), I/O.
//! Invariant: a member that is returned is locked and listed. A failure leaves nothing behind.

use super::claim::{Backing, Claim};
use super::cost::Completion;
use super::error::{Access, OpenError, failed, failed_with};
use super::locks;
use super::memory::Memory;
use super::origin::{Origin, identity};
use super::registration::{Identity, Registration};
use super::system_use::{hidden_use, system_use};
use super::target::{BadSectors, Target, Window, parse_size};
use super::watch::Watch;
use crate::ring::SEGMENTS_MAX;
use crate::sys::{self, DirectAlignment, Errno};
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use uraid_block::{Geometry, SECTOR_BYTES, Sectors};

/// The largest I/O of a member: 1 GiB. The system moves less per call; transfers are continued.
const IO_MAX: Sectors = Sectors(1 << 21);
/// A page, in sectors.
const PAGE: Sectors = Sectors(8);
/// The device number of `null:` members; the inode is a counter.
const NULL_DEVICE: u64 = u64::MAX;

static NULLS: AtomicU64 = AtomicU64::new(0);
static MEMORIES: Mutex<BTreeMap<String, Arc<Memory>>> = Mutex::new(BTreeMap::new());

pub(super) fn open(target: &Target, access: Access) -> Result<Claim, OpenError> {
    let (path, name) = (target.path.to_string_lossy(), Path::new(&target.name));
    let is_null = path.starts_with("null:");
    if (is_null || path.starts_with("mem:")) && target.window.is_some() {
        return Err(OpenError::NotStorage { path: name.into() });
    }
    let registration = |identity| register(name, identity, 0..u64::MAX);
    if let Some(words) = path.strip_prefix("null:") {
        let (size, completion) = split_completion(words, name)?;
        let size = parse_size(size).ok_or_else(|| OpenError::BadSize { path: name.into() })?;
        let identity = Identity { device: NULL_DEVICE, inode: NULLS.fetch_add(1, Ordering::Relaxed) };
        let claim = finish(target, access, Backing::Null, registration(identity)?, memory_geometry(size, false))?;
        return Ok(Claim { completion, ..claim });
    }
    if let Some(rest) = path.strip_prefix("mem:") {
        let (words, called) = rest.split_once(':').map_or((rest, None), |(words, called)| (words, Some(called)));
        let (size, completion) = split_completion(words, name)?;
        let memory = memory(size, called, name)?;
        let file = File::from(memory.file().try_clone().map_err(|error| failed(name, "dup", &error))?);
        let status = file.metadata().map_err(|error| failed(name, "fstat", &error))?;
        let geometry = memory_geometry(Sectors::from_bytes_floor(memory.bytes()), true);
        let claim = finish(target, access, Backing::Memory(memory), registration(identity(&status))?, geometry)?;
        return Ok(Claim { completion, ..claim });
    }
    open_file(target, access)
}

fn register(name: &Path, identity: Identity, bytes: std::ops::Range<u64>) -> Result<Registration, OpenError> {
    Registration::new(identity, bytes, &name.to_string_lossy())
        .map_err(|claimed_as| OpenError::ClaimedTwice { path: name.into(), claimed_as })
}

fn finish(
    target: &Target,
    access: Access,
    backing: Backing,
    registration: Registration,
    geometry: Geometry,
) -> Result<Claim, OpenError> {
    let name = target.name.clone();
    if geometry.size.is_zero() {
        return Err(OpenError::Empty { path: name.into() });
    }
    if let Backing::File { is_block_device: false, base, .. } = &backing
        && access != Access::ReadOnly
    {
        check_size_limit(base + geometry.size.bytes(), Path::new(&name))?;
    }
    let watch = match &backing {
        Backing::File { is_block_device: false, base, .. } => Watch::regular_file(base + geometry.size.bytes()),
        Backing::File { is_block_device: true, base, .. } => Watch::block_device(base + geometry.size.bytes()),
        Backing::Memory(_) | Backing::Null => Watch::default(),
    };
    let (bad, identity) = (target.bad.clone(), registration.identity());
    let (watch, under, path) = (Arc::new(watch), None, target.path.clone());
    Ok(Claim {
        backing,
        under,
        watch,
        name,
        path,
        access,
        geometry,
        bad,
        listed: BadSectors::default(),
        overlay: OnceLock::new(),
        completion: Completion::default(),
        identity,
        reopened: Mutex::default(),
        registration,
    })
}

/// Whether this process may write a file up to this byte.
fn check_size_limit(end: u64, path: &Path) -> Result<(), OpenError> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if limit < end => Err(OpenError::SizeLimit { path: path.into(), end, limit }),
        Some(_) | None => Ok(()),
    }
}

/// `SIZE`, `SIZE,COST` or `SIZE,completion=deferred`.
fn split_completion<'a>(words: &'a str, path: &Path) -> Result<(&'a str, Completion), OpenError> {
    let Some((size, found)) = words.split_once(',') else { return Ok((words, Completion::Inline)) };
    let bad = || OpenError::BadCompletion { path: path.into(), found: found.to_owned() };
    Ok((size, Completion::parse(found).ok_or_else(bad)?))
}

fn memory(size: &str, name: Option<&str>, path: &Path) -> Result<Arc<Memory>, OpenError> {
    let bad = || OpenError::BadSize { path: path.into() };
    let size = parse_size(size).ok_or_else(bad)?;
    if size.is_zero() {
        return Err(OpenError::Empty { path: path.into() });
    }
    let none = |Errno(os)| OpenError::NoMemory { path: path.into(), os };
    let new = || Memory::new(size.bytes()).map(Arc::new).map_err(none);
    let Some(name) = name else { return new() };
    let mut memories = MEMORIES.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = match memories.get(name) {
        Some(memory) => memory.clone(),
        None => memories.entry(name.to_owned()).or_insert(new()?).clone(),
    };
    if memory.bytes() == size.bytes() { Ok(memory) } else { Err(bad()) }
}

fn memory_geometry(size: Sectors, zeroes: bool) -> Geometry {
    Geometry {
        size,
        logical_block: Sectors(1),
        physical_block: Sectors(1),
        chunk: Sectors::ZERO,
        stripe: Sectors::ZERO,
        io_max: IO_MAX,
        segments_max: SEGMENTS_MAX,
        discard_granularity: PAGE,
        fast_holes: zeroes,
        fast_zeroes: zeroes,
        volatile_cache: false,
    }
}

fn open_file(target: &Target, access: Access) -> Result<Claim, OpenError> {
    let (path, name, window) = (&target.path, Path::new(&target.name), target.window);
    // Check the type before opening: opening a FIFO would block, opening a tape would move it.
    let before = std::fs::metadata(path).map_err(|error| failed(name, "stat", &error))?;
    let kind = before.file_type();
    if kind.is_dir() {
        return Err(OpenError::IsDirectory { path: name.into() });
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotStorage { path: name.into() });
    }
    let is_block_device = kind.is_block_device();
    let bytes = window.map_or(0..u64::MAX, |window| window.offset..window.end().unwrap_or(u64::MAX));
    let (own, origin) = (identity(&before), Origin::of(path, &before, bytes));
    let registration = register(name, origin.identity, origin.bytes.clone())?;
    let free_of_system = || {
        let use_now = (access == Access::ReadWrite).then(|| system_use(origin.identity, &origin.bytes)).flatten();
        use_now.map_or(Ok(()), |used_as| Err(OpenError::UsedBySystem { path: name.into(), used_as }))
    };
    if !is_block_device {
        free_of_system()?;
    }
    // On a block device O_EXCL excludes mounts, the kernel's md and other users of O_EXCL. Do not use it for a window:
    // the rest of the disk may be in use.
    let is_exclusive = is_block_device && access == Access::ReadWrite && window.is_none();
    let exclusive = if is_exclusive { libc::O_EXCL } else { 0 };
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(exclusive | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| failed(name, "open", &error))?;
    // A loop device on a device does not claim it: O_EXCL has not met it.
    if is_block_device {
        free_of_system()?;
        let is_read_only = sys::is_block_read_only(file.as_raw_fd());
        if access == Access::ReadWrite && is_read_only.map_err(|errno| failed_with(name, "ioctl", errno))? {
            return Err(OpenError::ReadOnlyDevice { path: name.into() });
        }
    }
    let status = file.metadata().map_err(|error| failed(name, "fstat", &error))?;
    if identity(&status) != own {
        // The file was replaced between the two checks.
        return Err(OpenError::InUse { path: name.into() });
    }
    let span = || Span::new(name, window, file_bytes(name, &file, is_block_device)?);
    // Report an invalid window even if another process holds the locks. The position that is used is computed under the
    // locks.
    span()?;
    locks::take(name, &file, access, window)?;
    let under = origin.lock(name, access)?;
    // Not for a window: a loop device over the file is taken where any of its partitions is, also another one.
    let is_all_written = access == Access::ReadWrite && window.is_none();
    let device = is_block_device.then(|| before.rdev());
    if let Some(used_as) = is_all_written.then(|| hidden_use(origin.identity, &origin.bytes, device)).flatten() {
        return Err(OpenError::UsedBySystem { path: name.into(), used_as });
    }
    let span = span()?;
    let (direct, geometry) = if is_block_device {
        block_device(name, &file, &status, &span)?
    } else {
        regular_file(&file, &status, access, &span)
    };
    let backing = Backing::File { file, is_block_device, base: span.base, direct };
    let claim = finish(target, access, backing, registration, geometry)?;
    Ok(Claim { identity: own, under, ..claim })
}

fn file_bytes(name: &Path, file: &File, is_block_device: bool) -> Result<u64, OpenError> {
    if is_block_device {
        sys::block_size_bytes(file.as_raw_fd()).map_err(|errno| failed_with(name, "ioctl", errno))
    } else {
        sys::file_bytes(file.as_raw_fd()).map_err(|errno| failed_with(name, "fstat", errno))
    }
}

/// A member's bytes in its file.
struct Span {
    /// Its first byte.
    base: u64,
    size: Sectors,
    file_bytes: u64,
}

impl Span {
    fn new(name: &Path, window: Option<Window>, file_bytes: u64) -> Result<Span, OpenError> {
        let Some(window) = window else {
            return Ok(Span { base: 0, size: Sectors::from_bytes_floor(file_bytes), file_bytes });
        };
        let start = window.offset;
        let end = window.end().unwrap_or(file_bytes);
        let size = Sectors::from_bytes_floor(end.saturating_sub(start));
        if end > file_bytes || size.is_zero() {
            let end = window.end().unwrap_or(start.saturating_add(SECTOR_BYTES as u64));
            return Err(OpenError::Window { path: name.into(), start, end, found: file_bytes });
        }
        Ok(Span { base: start, size, file_bytes })
    }

    /// Whether both ends are at multiples of `bytes`, or at the file's own ends. Then no other member shares one of
    /// these blocks.
    fn has_own_blocks(&self, bytes: u64) -> bool {
        let end = self.base + self.size.bytes();
        let is_last = self.file_bytes - end < SECTOR_BYTES as u64;
        self.base.is_multiple_of(bytes) && (is_last || end.is_multiple_of(bytes))
    }

    /// Turns direct I/O on if it accepts whole sectors in sector-aligned memory. It stays off if a page is shared with
    /// a neighbouring window: write-back of the neighbour's cached page would overwrite a direct write with stale data.
    fn make_direct(&self, file: &File, status: &Metadata, align: Option<DirectAlignment>) -> Option<DirectAlignment> {
        let align = align.filter(takes_sectors)?;
        let own = self.has_own_blocks(sys::page_bytes()) && self.has_own_blocks(status.blksize().max(1));
        (own && sys::set_direct(file.as_fd()).is_ok()).then_some(align)
    }

    /// `block` if the member starts at a multiple of it, else `smallest`.
    fn aligned(&self, block: Sectors, smallest: Sectors) -> Sectors {
        if self.base.is_multiple_of(block.bytes().max(1)) { block } else { smallest }
    }
}

/// Whether a transfer may begin and end at any sector, as the rest of a short transfer does.
fn takes_sectors(align: &DirectAlignment) -> bool {
    align.offset as usize <= SECTOR_BYTES && align.memory as usize <= SECTOR_BYTES
}

fn regular_file(file: &File, status: &Metadata, access: Access, span: &Span) -> (Option<DirectAlignment>, Geometry) {
    let direct = span.make_direct(file, status, sys::direct_alignment(file.as_fd()));
    // Punching a hole after the end of the file changes nothing and shows whether the file system supports it.
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let behind = span.file_bytes.next_multiple_of(1 << 20);
    let punches = access == Access::ReadWrite && sys::allocate(file.as_raw_fd(), mode, behind, 4096) == 0;
    let block = Sectors::from_bytes_floor(status.blksize()).0.clamp(1, 256);
    let geometry = Geometry {
        size: span.size,
        logical_block: Sectors(1),
        physical_block: span.aligned(Sectors(block.min(PAGE.0)), Sectors(1)),
        chunk: Sectors::ZERO,
        stripe: Sectors::ZERO,
        io_max: IO_MAX,
        segments_max: SEGMENTS_MAX,
        discard_granularity: if punches { Sectors(block) } else { Sectors::ZERO },
        fast_holes: punches,
        fast_zeroes: punches,
        volatile_cache: true,
    };
    (direct, geometry)
}

fn block_device(
    path: &Path,
    file: &File,
    status: &Metadata,
    span: &Span,
) -> Result<(Option<DirectAlignment>, Geometry), OpenError> {
    let (logical, physical) = sys::block_sizes(file.as_fd()).map_err(|errno| failed_with(path, "ioctl", errno))?;
    // Kernels before 6.1 do not report the alignment; direct I/O then needs the logical block.
    let told = sys::direct_alignment(file.as_fd()).unwrap_or(DirectAlignment { offset: logical, memory: 512 });
    let direct = span.make_direct(file, status, Some(told));
    let queue = |name: &str| queue_attribute(status.rdev(), name);
    let discard = queue("discard_granularity").and_then(|text| text.parse().ok()).unwrap_or(0);
    // A device discards whole granules: a window that starts inside one cannot discard.
    let can_discard = queue("discard_max_bytes").is_some_and(|text| text != "0")
        && span.base.is_multiple_of(u64::from(logical.max(512)));
    // Where a block device has both, the kernel makes holes by its zeroing. A disk that zeroes and does not discard, as
    // by WRITE SAME, writes all of it.
    let can_zero = queue("write_zeroes_max_bytes").is_some_and(|text| text != "0");
    let logical_block = Sectors::from_bytes_floor(u64::from(logical.max(512)));
    let geometry = Geometry {
        size: span.size,
        logical_block,
        physical_block: span.aligned(Sectors::from_bytes_floor(u64::from(physical.max(512))), logical_block),
        chunk: Sectors::ZERO,
        stripe: Sectors::ZERO,
        io_max: IO_MAX,
        segments_max: SEGMENTS_MAX,
        discard_granularity: if can_discard {
            Sectors::from_bytes_floor(discard).max(Sectors(1))
        } else {
            Sectors::ZERO
        },
        fast_holes: can_discard && can_zero,
        fast_zeroes: false,
        // Through the page cache every write is volatile, whatever the device reports.
        volatile_cache: direct.is_none() || queue("write_cache").is_none_or(|text| text != "write through"),
    };
    Ok((direct, geometry))
}

/// A queue attribute in sysfs, of a block device or of the disk that a partition is on.
fn queue_attribute(device: u64, name: &str) -> Option<String> {
    let base = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(format!("{base}/queue/{name}"))
        .or_else(|_| std::fs::read_to_string(format!("{base}/../queue/{name}")));
    Some(text.ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_io_needs_sector_alignment_in_memory_and_on_the_device() {
        for (offset, memory, expected) in
            [(512, 4, true), (512, 512, true), (1, 1, true), (4096, 512, false), (512, 1024, false), (512, 4096, false)]
        {
            assert_eq!(takes_sectors(&DirectAlignment { offset, memory }), expected, "{offset}, {memory}");
        }
    }

    #[test]
    fn sizes_are_numbers_with_a_unit() {
        assert_eq!(parse_size("1K"), Some(Sectors(2)));
        assert_eq!(parse_size("64M"), Some(Sectors(64 << 11)));
        assert_eq!(parse_size("2T"), Some(Sectors(2 << 31)));
        assert_eq!(parse_size("513"), Some(Sectors(1)));
        for nonsense in ["", "M", "+1M", "1X", "1 M", "-1", "99999999T", "1é"] {
            assert_eq!(parse_size(nonsense), None, "{nonsense}");
        }
    }
}
