//! Files, block devices, memory and null as devices, claimed exclusively.
//! Owns: [`Claimed`], [`Member`], how each kind does each operation. Not here: what is stored on them.
//! Invariant: no byte of an inode is claimed twice, in this process or among processes that claim.
//!
//! If another program truncates a regular file, the first operation that notices it and all later ones get `Gone`
//! (`watch`). A file is accessed either directly or through the page cache, never both: neither sees the other's writes
//! at once. Windows of one file may differ in this, but not if they share a page.

mod allocation;
mod claim;
mod claimed;
mod cost;
mod device;
mod error;
mod extents;
#[cfg(test)]
mod fake_ring;
mod file;
mod in_use;
mod locks;
mod memory;
mod open;
mod origin;
mod overlay;
mod path;
mod registration;
mod retry;
mod system_use;
mod target;
mod trial;
mod turns;
mod watch;

pub use claimed::{Claimed, Medium};
pub use device::Member;
pub use error::{Access, OpenError};
pub use extents::{ExtentState, FileExtent, file_extents};
pub use in_use::{Holder, holder, used_by_system};
pub use overlay::Overlay;
pub use path::PathState;
pub use registration::Identity;
pub use target::{BadSectors, Target, Window};

use uraid_block::{ErrorKind, IoError};

/// Classifies an errno of a device.
pub(crate) fn device_error(os: i32) -> IoError {
    let kind = match os {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => ErrorKind::NoSpace,
        libc::EROFS | libc::EPERM | libc::EACCES | libc::ETXTBSY => ErrorKind::ReadOnly,
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::EBADF | libc::ESTALE => ErrorKind::Gone,
        libc::ENOLINK | libc::ETIMEDOUT | libc::ESHUTDOWN | libc::ENOTCONN => ErrorKind::Gone,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENOTTY => ErrorKind::Unsupported,
        libc::ENOMEM | libc::EAGAIN | libc::ENOBUFS => ErrorKind::NoMemory,
        libc::ECANCELED => ErrorKind::Stopping,
        // EIO, and the block layer's errors for single sectors: ENODATA, EILSEQ, EREMOTEIO, EBADE. An unknown errno
        // counts as a medium error too: the member cannot be trusted with these sectors.
        _ => ErrorKind::Media,
    };
    IoError { kind, os }
}

impl From<crate::sys::Errno> for IoError {
    fn from(crate::sys::Errno(os): crate::sys::Errno) -> IoError {
        device_error(os)
    }
}
