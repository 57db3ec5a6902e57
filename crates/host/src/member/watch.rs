//! Flags of a member that all shards share: whether its file shrank, whether a flush failed, whether a late write may
//! still reach it.
//! Owns: [`Watch`], one per claim, shared by all shards. Not here: the I/O that detects these states (`file`, `claim`).
//! Invariant: once a file has shrunk or a flush has failed, the flag stays set until the claim ends.
//!
//! If another program truncates a regular file, our own writes must not make it longer again: its tail would come back
//! as zeroes, and clients would read them as data. So the size is checked before each write, and again after it, before
//! the answer. The second check detects a truncation between the first check and the write. It misses one case: if that
//! very write covers the member's last sector, the file has its old size again. One check after the writes covers all
//! writes that had ended when the shard's turn began.

use super::device_error;
use crate::sys::{self, Errno};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use uraid_block::{ErrorKind, IoError};

/// Relaxed is enough: each operation checks again what the flags guard.
#[derive(Default)]
pub(super) struct Watch {
    /// The least size of a regular file in bytes. 0 for anything else: it cannot shrink, or reports that by an error.
    bytes_min: u64,
    /// The bytes that a block device must have; 0 if the member is not one. Checked when a write fails with ENOSPC.
    device_bytes_min: u64,
    is_gone: AtomicBool,
    /// The errno of the first flush that failed; 0: none has.
    flush_errno: AtomicI32,
    /// The number of changing requests that were cut without the member's answer, and may still be performed.
    pub(super) unanswered_changes: Arc<AtomicUsize>,
}

impl Watch {
    /// A regular file that must keep at least this many bytes.
    pub(super) fn regular_file(bytes_min: u64) -> Watch {
        Watch { bytes_min, ..Watch::default() }
    }

    /// A block device that must keep this many bytes.
    pub(super) fn block_device(device_bytes_min: u64) -> Watch {
        Watch { device_bytes_min, ..Watch::default() }
    }

    /// Classifies an errno of the member. A write past the end of a block device gets ENOSPC. After the device was
    /// pulled, its capacity is 0, so every write gets ENOSPC. A device that still has all its sectors gives the same
    /// error if its thin pool is full, like a file on a full file system.
    pub(super) fn error(&self, fd: RawFd, os: i32) -> IoError {
        let is_whole = |bytes: u64| bytes >= self.device_bytes_min;
        if os == libc::ENOSPC && self.device_bytes_min > 0 && !sys::block_size_bytes(fd).is_ok_and(is_whole) {
            return IoError { os, ..self.lost() };
        }
        device_error(os)
    }

    /// Fails with `Gone` if an earlier operation found the member gone.
    #[inline]
    pub(super) fn check(&self) -> Result<(), IoError> {
        if self.is_gone.load(Ordering::Relaxed) { Err(ErrorKind::Gone.into()) } else { Ok(()) }
    }

    /// Checks the flag and the file's size.
    #[inline]
    pub(super) fn check_size(&self, fd: RawFd) -> Result<(), IoError> {
        self.check()?;
        if self.bytes_min == 0 {
            return Ok(());
        }
        match sys::file_bytes(fd) {
            Ok(bytes) if bytes >= self.bytes_min => Ok(()),
            Ok(_) => Err(self.lost()),
            Err(Errno(os)) => Err(device_error(os)),
        }
    }

    /// Runs a blocking write of the file between two checks of its size.
    pub(super) fn around(&self, fd: RawFd, write: impl FnOnce() -> Result<(), IoError>) -> Result<(), IoError> {
        self.check_size(fd)?;
        write()?;
        self.check_size(fd)
    }

    /// Marks the member gone: its file ended before the requested range did.
    pub(super) fn lost(&self) -> IoError {
        self.is_gone.store(true, Ordering::Relaxed);
        ErrorKind::Gone.into()
    }

    /// Records the result of a flush; a failure is final. The system reports a lost write once and then drops it, so a
    /// later flush that succeeds says nothing about that write.
    pub(super) fn flushed(&self, result: Result<(), Errno>) -> Result<(), IoError> {
        if let Err(Errno(os)) = result {
            assert!(os > 0);
            // Only the first errno is kept; later flushes fail with it.
            let _ = self.flush_errno.compare_exchange(0, os, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.check()?;
        match self.flush_errno.load(Ordering::Relaxed) {
            0 => Ok(()),
            os => Err(device_error(os)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_that_was_once_short_stays_gone_after_it_grows_again() {
        let path = std::env::temp_dir().join(format!("uraid-watch-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        file.set_len(8192).expect("room");
        let watch = Watch::regular_file(8192);
        assert_eq!(watch.check_size(file.as_raw_fd()), Ok(()));
        file.set_len(8191).expect("shrunk");
        assert_eq!(watch.check(), Ok(()), "its size was not checked yet");
        assert_eq!(watch.check_size(file.as_raw_fd()), Err(ErrorKind::Gone.into()));
        file.set_len(8192).expect("room");
        assert_eq!(watch.check_size(file.as_raw_fd()), Err(ErrorKind::Gone.into()));
        assert_eq!(watch.check(), Err(ErrorKind::Gone.into()));
    }

    #[test]
    fn a_blocking_write_checks_the_size_before_and_after() {
        let file = std::fs::File::from(sys::memory_file(8192).expect("a file"));
        let fd = file.as_raw_fd();
        let watch = || Watch::regular_file(8192);
        assert_eq!(watch().around(fd, || Ok(())), Ok(()));
        let error = IoError { kind: ErrorKind::Media, os: libc::EIO };
        assert_eq!(watch().around(fd, || Err(error)), Err(error));
        let shrinks = || {
            file.set_len(4096).expect("shrunk");
            Ok(())
        };
        assert_eq!(watch().around(fd, shrinks), Err(ErrorKind::Gone.into()));
        let never = || panic!("a short file is not written");
        assert_eq!(watch().around(fd, never), Err(ErrorKind::Gone.into()));
    }

    #[test]
    fn a_failed_flush_is_final() {
        let watch = Watch::default();
        assert_eq!(watch.flushed(Ok(())), Ok(()));
        let error = IoError { kind: ErrorKind::Media, os: libc::EIO };
        assert_eq!(watch.flushed(Err(Errno(libc::EIO))), Err(error));
        assert_eq!(watch.flushed(Ok(())), Err(error));
        assert_eq!(watch.flushed(Err(Errno(libc::ENOSPC))), Err(error));
    }
}
