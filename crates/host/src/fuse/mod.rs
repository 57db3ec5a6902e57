//! FUSE: one shard's connection to the kernel; mounting and unmounting.
//! Owns: [`FuseDevice`]. Not here: the messages (`uraid_fuse`), the files (`export-fuse`), mounting (`mount`), what
//! unmounts when the process has ended (`keeper`).
//! Invariant: no call waits in the kernel: a shard that finds no request waits on its ring. A request is answered by
//! the device that received it.
//!
//! ```text
//!   mount point == connection -- queue --+-- FuseDevice of shard 0    /dev/fuse, as it was mounted
//!                                        +-- FuseDevice of shard 1    /dev/fuse, FUSE_DEV_IOC_CLONE
//! ```

mod keeper;
mod mount;

pub use mount::{FuseMount, MountError};

use crate::ring::{Buffers, Driver, Kind};
use crate::shard::Local;
use crate::sys::{self, Errno};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// The kernel takes no more requests from, or answers to, this mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FuseError {
    /// It was unmounted, or its connection was aborted.
    #[error("it was unmounted")]
    Unmounted,
    /// A system call failed.
    #[error("{call} of /dev/fuse failed: {}", sys::errno_text(*os))]
    Os {
        /// Which call.
        call: &'static str,
        /// Its errno.
        os: i32,
    },
}

/// A connection to the kernel's FUSE, on one shard.
pub struct FuseDevice {
    driver: Rc<Driver>,
    file: Rc<OwnedFd>,
}

impl FuseDevice {
    /// The device `file`, which does not block, on this shard.
    pub fn new(shard: &Local, file: OwnedFd) -> FuseDevice {
        FuseDevice { driver: shard.driver().clone(), file: Rc::new(file) }
    }

    /// Takes one request if there is one: how many bytes it has. The buffers must have room for the longest request.
    pub fn try_receive(&self, into: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, FuseError> {
        loop {
            let result = sys::read_vectored(self.file.as_raw_fd(), into);
            return match result {
                Ok(bytes) => Ok(Some(bytes)),
                Err(Errno(libc::EAGAIN)) => Ok(None),
                // ENOENT: the request was cancelled before it was taken.
                Err(Errno(libc::EINTR | libc::ENOENT)) => continue,
                Err(Errno(libc::ENODEV | libc::ECONNABORTED | libc::ENOTCONN)) => Err(FuseError::Unmounted),
                Err(Errno(os)) => Err(FuseError::Os { call: "read", os }),
            };
        }
    }

    /// Waits until there may be a request, or the connection has ended. If several shards wait, one of them is woken
    /// for a request.
    pub async fn readable(&self) {
        self.driver.start(Kind::Poll { is_shared: true }, Buffers::None, Some(self.file.clone())).await;
    }

    /// Answers a request. A caller that is gone is no error.
    pub fn answer(&self, from: &[IoSlice<'_>]) -> Result<(), FuseError> {
        loop {
            return match sys::write_vectored(self.file.as_raw_fd(), from) {
                Ok(_) => Ok(()),
                Err(Errno(libc::EINTR)) => continue,
                // The caller was killed, and the kernel has given its request up.
                Err(Errno(libc::ENOENT)) => Ok(()),
                Err(Errno(libc::ENODEV | libc::ECONNABORTED | libc::ENOTCONN | libc::EPERM)) => {
                    Err(FuseError::Unmounted)
                }
                Err(Errno(os)) => Err(FuseError::Os { call: "write", os }),
            };
        }
    }
}
