//! How a member is claimed, and why it cannot be.
//! Owns: [`Access`], [`OpenError`], the errors of system calls as these. Not here: errors of I/O (`device_error`).

use crate::sys::Errno;
use std::path::{Path, PathBuf};

/// How a member is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Exclusive.
    ReadWrite,
    /// Other processes may claim it for reading, not for writing.
    ReadOnly,
}

/// Why a member could not be claimed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("{}: not found", path.display())]
    NotFound {
        /// The name given.
        path: PathBuf,
    },
    /// The system does not let this user open the file or device for this access.
    #[error("{}: permission denied (errno {os})", path.display())]
    Permission {
        /// The name given.
        path: PathBuf,
        /// EACCES, EPERM or EROFS.
        os: i32,
    },
    /// The system has made the block device read-only. Writes would fail, though it can be opened for them.
    #[error("{}: the block device is read-only (blockdev --getro)", path.display())]
    ReadOnlyDevice {
        /// The name given.
        path: PathBuf,
    },
    /// Another process has claimed it, mounted it, or uses it in a kernel array.
    #[error("{}: in use by another process or the system", path.display())]
    InUse {
        /// The name given.
        path: PathBuf,
    },
    /// The system itself writes to the file: it is swap space, or below a loop device in use.
    #[error("{}: {used_as}, then try again", path.display())]
    UsedBySystem {
        /// The name given.
        path: PathBuf,
        /// What it is used as, and how to end that.
        used_as: String,
    },
    /// This process has already claimed the same file or device, or an overlapping part of it, perhaps by another name,
    /// or through a partition or loop device on it.
    #[error("{}: already claimed here as {claimed_as}", path.display())]
    ClaimedTwice {
        /// The name given.
        path: PathBuf,
        /// The name of the first claim.
        claimed_as: String,
    },
    /// It is a directory.
    #[error("{}: is a directory", path.display())]
    IsDirectory {
        /// The name given.
        path: PathBuf,
    },
    /// It is neither a file nor a block device.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotStorage {
        /// The name given.
        path: PathBuf,
    },
    /// It is smaller than one sector.
    #[error("{}: empty", path.display())]
    Empty {
        /// The name given.
        path: PathBuf,
    },
    /// This process may not write up to its end: a write there fails, and by default ends the process.
    #[error(
        "{}: its last byte is {end}, and this process may write files up to byte {limit} only (ulimit -f, LimitFSIZE=): \
         raise that limit",
        path.display()
    )]
    SizeLimit {
        /// The name given.
        path: PathBuf,
        /// The byte after its last one, in the file.
        end: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The size in `mem:` or `null:` is invalid, or differs from that of the memory with this name.
    #[error("{}: a size like 64M or 2T was expected", path.display())]
    BadSize {
        /// The name given.
        path: PathBuf,
    },
    /// The system does not have this much memory.
    #[error("{}: so much memory cannot be had: {}; expected less, or null:SIZE, which holds nothing", path.display(),
        crate::sys::errno_text(*os))]
    NoMemory {
        /// The name given.
        path: PathBuf,
        /// The system's errno.
        os: i32,
    },
    /// The text after the size and the comma does not say when requests complete.
    #[error("{}: found \"{found}\" where request=20us, bandwidth=500M or completion=deferred was expected", path.display())]
    BadCompletion {
        /// The name given.
        path: PathBuf,
        /// The invalid text.
        found: String,
    },
    /// The list after `bad:` is invalid.
    #[error("{}: expected bad:SECTOR[+COUNT][,SECTOR[+COUNT]...]:MEMBER", path.display())]
    BadList {
        /// The name given.
        path: PathBuf,
    },
    /// The window is not inside the file or device, or holds no whole sector.
    #[error("{}: the window has bytes {start} to {end}, the file {found} bytes", path.display())]
    Window {
        /// The name given.
        path: PathBuf,
        /// Its first byte.
        start: u64,
        /// The byte after its last one: as given, or one sector after the start if it should reach to the end.
        end: u64,
        /// The size of the file or device in bytes.
        found: u64,
    },
    /// A system call failed.
    #[error("{}: {call} failed: {}", path.display(), crate::sys::errno_text(*os))]
    Os {
        /// The name given.
        path: PathBuf,
        /// Which call.
        call: &'static str,
        /// Its errno.
        os: i32,
    },
}

pub(super) fn failed(path: &Path, call: &'static str, error: &std::io::Error) -> OpenError {
    failed_with(path, call, Errno(error.raw_os_error().unwrap_or(libc::EINVAL)))
}

pub(super) fn failed_with(path: &Path, call: &'static str, Errno(os): Errno) -> OpenError {
    let path = path.to_owned();
    match os {
        libc::ENOENT | libc::ENOTDIR => OpenError::NotFound { path },
        libc::EACCES | libc::EPERM | libc::EROFS => OpenError::Permission { path, os },
        libc::EBUSY | libc::ETXTBSY => OpenError::InUse { path },
        libc::EISDIR => OpenError::IsDirectory { path },
        _ => OpenError::Os { path, call, os },
    }
}
