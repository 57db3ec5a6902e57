//! Opening a member: finding out what it is, and claiming it.
//! Owns: names, locks, geometry of files and block devices. Not here: I/O.
//! Invariant: whatever comes out is locked and listed; whatever fails leaves nothing behind.

use super::claim::{Access, Backing, Claim, Identity, OpenError, Registration};
use super::memory::Memory;
use super::watch::Watch;
use crate::ring::SEGMENTS_MAX;
use crate::sys::{self, DirectAlignment, Errno};
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uraid_block::{Geometry, SECTOR_BYTES, Sectors};

/// The largest I/O a member takes: 1 GiB. Longer ones than the system's limit are continued anyway.
const IO_MAX: Sectors = Sectors(1 << 21);
/// A page, in sectors.
const PAGE: Sectors = Sectors(8);
/// What `null:` has for a device, with a number as its inode.
const NULL_DEVICE: u64 = u64::MAX;
/// udev takes a shared lock on a block device while it looks at it: so often, so long.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

static NULLS: AtomicU64 = AtomicU64::new(0);
static MEMORIES: Mutex<BTreeMap<String, Arc<Memory>>> = Mutex::new(BTreeMap::new());

pub(super) fn open(path: &Path, access: Access) -> Result<Claim, OpenError> {
    let name = path.to_string_lossy().into_owned();
    if let Some(size) = name.strip_prefix("null:") {
        let size = parse_size(size).ok_or_else(|| OpenError::BadSize { path: path.into() })?;
        let identity = Identity { device: NULL_DEVICE, inode: NULLS.fetch_add(1, Ordering::Relaxed) };
        let registration = register(path, identity)?;
        return finish(path, access, Backing::Null, registration, memory_geometry(size, false));
    }
    if let Some(rest) = name.strip_prefix("mem:") {
        let memory = memory(rest, path)?;
        let file = File::from(memory.file().try_clone().map_err(|error| failed(path, "dup", &error))?);
        let status = file.metadata().map_err(|error| failed(path, "fstat", &error))?;
        let geometry = memory_geometry(Sectors::from_bytes_floor(memory.bytes()), true);
        let registration = register(path, identity(&status))?;
        return finish(path, access, Backing::Memory(memory), registration, geometry);
    }
    open_file(path, access)
}

fn register(path: &Path, identity: Identity) -> Result<Registration, OpenError> {
    Registration::new(identity, &path.to_string_lossy())
        .map_err(|claimed_as| OpenError::ClaimedTwice { path: path.into(), claimed_as })
}

fn finish(
    path: &Path,
    access: Access,
    backing: Backing,
    registration: Registration,
    geometry: Geometry,
) -> Result<Claim, OpenError> {
    if geometry.size.is_zero() {
        return Err(OpenError::Empty { path: path.into() });
    }
    let name = path.to_string_lossy().into_owned();
    let watch = match &backing {
        Backing::File { is_block_device: false, .. } => Watch::regular_file(geometry.size.bytes()),
        Backing::File { is_block_device: true, .. } | Backing::Memory(_) | Backing::Null => Watch::default(),
    };
    Ok(Claim { backing, watch: Arc::new(watch), name, access, geometry, registration })
}

fn failed(path: &Path, call: &'static str, error: &std::io::Error) -> OpenError {
    failed_with(path, call, Errno(error.raw_os_error().unwrap_or(libc::EINVAL)))
}

fn failed_with(path: &Path, call: &'static str, Errno(os): Errno) -> OpenError {
    let path = path.to_owned();
    match os {
        libc::ENOENT | libc::ENOTDIR => OpenError::NotFound { path },
        libc::EACCES | libc::EPERM | libc::EROFS => OpenError::Permission { path, os },
        libc::EBUSY | libc::ETXTBSY => OpenError::InUse { path },
        libc::EISDIR => OpenError::IsDirectory { path },
        _ => OpenError::Os { path, call, os },
    }
}

/// Whole sectors of `64M`, `2T`, `4096`. `None` for anything else, and above 8 EiB.
fn parse_size(text: &str) -> Option<Sectors> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        (at, 'T' | 't') => (&text[..at], 40),
        _ => (text, 0),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes < 1 << 63).then_some(Sectors::from_bytes_floor(bytes))
}

fn memory(size_and_name: &str, path: &Path) -> Result<Arc<Memory>, OpenError> {
    let bad = || OpenError::BadSize { path: path.into() };
    let (size, name) = match size_and_name.split_once(':') {
        Some((size, name)) => (size, Some(name)),
        None => (size_and_name, None),
    };
    let size = parse_size(size).ok_or_else(bad)?;
    if size.is_zero() {
        return Err(OpenError::Empty { path: path.into() });
    }
    let new = || Memory::new(size.bytes()).map(Arc::new).map_err(|errno| failed_with(path, "memfd_create", errno));
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
        zeroes_after_discard: zeroes,
        volatile_cache: false,
    }
}

fn identity(status: &Metadata) -> Identity {
    if status.file_type().is_block_device() {
        // Two nodes of one device have different inodes: the device's own number says which it is.
        Identity { device: status.rdev(), inode: 0 }
    } else {
        Identity { device: status.dev(), inode: status.ino() }
    }
}

fn open_file(path: &Path, access: Access) -> Result<Claim, OpenError> {
    // Looked at before it is opened: opening a FIFO would wait, opening a tape would move it.
    let before = std::fs::metadata(path).map_err(|error| failed(path, "stat", &error))?;
    let kind = before.file_type();
    if kind.is_dir() {
        return Err(OpenError::IsDirectory { path: path.into() });
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotStorage { path: path.into() });
    }
    let registration = register(path, identity(&before))?;
    // On a block device O_EXCL keeps out mounts, the kernel's md and others that ask for it.
    let exclusive = if kind.is_block_device() && access == Access::ReadWrite { libc::O_EXCL } else { 0 };
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(exclusive | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| failed(path, "open", &error))?;
    let status = file.metadata().map_err(|error| failed(path, "fstat", &error))?;
    if identity(&status) != registration.identity() {
        // Replaced between the two looks.
        return Err(OpenError::InUse { path: path.into() });
    }
    let is_block_device = kind.is_block_device();
    lock(path, &file, is_block_device, access)?;
    let (direct, geometry) =
        if is_block_device { block_device(path, &file, &status)? } else { regular_file(path, &file, &status, access)? };
    finish(path, access, Backing::File { file, is_block_device, direct }, registration, geometry)
}

fn lock(path: &Path, file: &File, is_block_device: bool, access: Access) -> Result<(), OpenError> {
    let mut attempts = if is_block_device { LOCK_ATTEMPTS } else { 1 };
    loop {
        let result = match access {
            Access::ReadWrite => file.try_lock(),
            Access::ReadOnly => file.try_lock_shared(),
        };
        attempts -= 1;
        match result {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if attempts > 0 => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.into() }),
            Err(TryLockError::Error(error)) => return Err(failed(path, "flock", &error)),
        }
    }
}

/// Turns direct I/O on where sectors are enough for it.
fn make_direct(file: &File, align: Option<DirectAlignment>) -> Option<DirectAlignment> {
    let align = align.filter(|align| align.offset as usize <= SECTOR_BYTES)?;
    sys::set_direct(file.as_fd()).is_ok().then_some(align)
}

fn regular_file(
    path: &Path,
    file: &File,
    status: &Metadata,
    access: Access,
) -> Result<(Option<DirectAlignment>, Geometry), OpenError> {
    let direct = make_direct(file, sys::direct_alignment(file.as_fd()));
    // A hole punched behind the end changes nothing and tells whether the file system can do it.
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let behind = status.len().next_multiple_of(1 << 20);
    let punches = access == Access::ReadWrite && sys::allocate(file.as_raw_fd(), mode, behind, 4096) == 0;
    let block = Sectors::from_bytes_floor(status.blksize()).0.clamp(1, 256);
    if Sectors::from_bytes_floor(status.len()).is_zero() {
        return Err(OpenError::Empty { path: path.into() });
    }
    let geometry = Geometry {
        size: Sectors::from_bytes_floor(status.len()),
        logical_block: Sectors(1),
        physical_block: Sectors(block.min(PAGE.0)),
        chunk: Sectors::ZERO,
        stripe: Sectors::ZERO,
        io_max: IO_MAX,
        segments_max: SEGMENTS_MAX,
        discard_granularity: if punches { Sectors(block) } else { Sectors::ZERO },
        zeroes_after_discard: punches,
        volatile_cache: true,
    };
    Ok((direct, geometry))
}

fn block_device(path: &Path, file: &File, status: &Metadata) -> Result<(Option<DirectAlignment>, Geometry), OpenError> {
    let failed = |errno| failed_with(path, "ioctl", errno);
    let bytes = sys::block_size_bytes(file.as_fd()).map_err(failed)?;
    let (logical, physical) = sys::block_sizes(file.as_fd()).map_err(failed)?;
    // Kernels before 6.1 do not tell; there the logical block is what direct I/O wants.
    let told = sys::direct_alignment(file.as_fd()).unwrap_or(DirectAlignment { offset: logical, memory: 512 });
    let direct = make_direct(file, Some(told));
    let queue = |name: &str| queue_attribute(status.rdev(), name);
    let discard = queue("discard_granularity").and_then(|text| text.parse().ok()).unwrap_or(0);
    let can_discard = queue("discard_max_bytes").is_some_and(|text| text != "0");
    let geometry = Geometry {
        size: Sectors::from_bytes_floor(bytes),
        logical_block: Sectors::from_bytes_floor(u64::from(logical.max(512))),
        physical_block: Sectors::from_bytes_floor(u64::from(physical.max(512))),
        chunk: Sectors::ZERO,
        stripe: Sectors::ZERO,
        io_max: IO_MAX,
        segments_max: SEGMENTS_MAX,
        discard_granularity: if can_discard {
            Sectors::from_bytes_floor(discard).max(Sectors(1))
        } else {
            Sectors::ZERO
        },
        zeroes_after_discard: false,
        // Through the page cache a write is volatile whatever the device says.
        volatile_cache: direct.is_none() || queue("write_cache").is_none_or(|text| text != "write through"),
    };
    Ok((direct, geometry))
}

/// What sysfs says of a block device, or of the disk that a partition is on.
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
