//! What all shards must know of a file: that it shrank, that a flush failed, that a write may still land.
//! Owns: [`Watch`], one per claim, shared by all shards. Not here: the I/O that finds it out (`file`, `claim`).
//! Invariant: that it shrank or that a flush failed stays so until the claim ends.
//!
//! A regular file that somebody truncates under us must not be made longer again by our own writes: its tail would come
//! back as zeroes, and be read as if it were data. So its size is looked at before each write. The look and the write
//! are two steps; a truncation between them is seen by the look after the write, before the write is answered. (Unseen
//! is only one that falls between them when that very write reaches the member's last sector.) One look after
//! them does for all writes that had ended when the shard's turn began.

use super::device_error;
use crate::sys::{self, Errno};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use uraid_block::{ErrorKind, IoError};

/// Flags of one claim. Relaxed is enough: what they guard is looked at again by each operation.
#[derive(Default)]
pub(super) struct Watch {
    /// A regular file must have so many bytes; 0: it cannot shrink, or that shows in other ways.
    bytes_min: u64,
    /// The bytes that a block device must have; 0: the member is no block device. Checked when a write finds no space.
    device_bytes_min: u64,
    is_gone: AtomicBool,
    /// The errno of the first flush that failed; 0: none has.
    flush_errno: AtomicI32,
    /// How many changes of the member were given up without its answer, and may land later.
    pub(super) owed_changes: Arc<AtomicUsize>,
}

impl Watch {
    /// Of a regular file that has at least so many bytes.
    pub(super) fn regular_file(bytes_min: u64) -> Watch {
        Watch { bytes_min, ..Watch::default() }
    }

    /// Of a block device that must have this many bytes.
    pub(super) fn block_device(device_bytes_min: u64) -> Watch {
        Watch { device_bytes_min, ..Watch::default() }
    }

    /// What an errno of the member means. A write behind the end of a block device finds no space: of one that was
    /// pulled that is every write, because its capacity is 0 from then on. A device that still has all its sectors
    /// says the same when the pool behind it is full (thin provisioning), as a file does of its file system.
    pub(super) fn error(&self, fd: RawFd, os: i32) -> IoError {
        let is_whole = |bytes: u64| bytes >= self.device_bytes_min;
        if os == libc::ENOSPC && self.device_bytes_min > 0 && !sys::block_size_bytes(fd).is_ok_and(is_whole) {
            return IoError { os, ..self.lost() };
        }
        device_error(os)
    }

    /// `Gone` if it has ever been found gone.
    #[inline]
    pub(super) fn check(&self) -> Result<(), IoError> {
        if self.is_gone.load(Ordering::Relaxed) { Err(ErrorKind::Gone.into()) } else { Ok(()) }
    }

    /// Looks at the file's size as well.
    #[inline]
    pub(super) fn look(&self, fd: RawFd) -> Result<(), IoError> {
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

    /// Does a blocking write of the file between two looks at it.
    pub(super) fn around(&self, fd: RawFd, write: impl FnOnce() -> Result<(), IoError>) -> Result<(), IoError> {
        self.look(fd)?;
        write()?;
        self.look(fd)
    }

    /// From now on it is gone: it ended before the range did.
    pub(super) fn lost(&self) -> IoError {
        self.is_gone.store(true, Ordering::Relaxed);
        ErrorKind::Gone.into()
    }

    /// The end of a flush: a failed one is final. The system tells of a lost write once and takes it for settled; a
    /// later flush that succeeds says nothing about that write.
    pub(super) fn flushed(&self, result: Result<(), Errno>) -> Result<(), IoError> {
        if let Err(Errno(os)) = result {
            assert!(os > 0);
            // Only the first is kept; who comes later fails with it too.
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
    fn a_file_that_was_short_once_is_gone_even_when_it_is_long_again() {
        let path = std::env::temp_dir().join(format!("uraid-watch-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        file.set_len(8192).expect("room");
        let watch = Watch::regular_file(8192);
        assert_eq!(watch.look(file.as_raw_fd()), Ok(()));
        file.set_len(8191).expect("shrunk");
        assert_eq!(watch.check(), Ok(()), "nobody has looked");
        assert_eq!(watch.look(file.as_raw_fd()), Err(ErrorKind::Gone.into()));
        file.set_len(8192).expect("room");
        assert_eq!(watch.look(file.as_raw_fd()), Err(ErrorKind::Gone.into()));
        assert_eq!(watch.check(), Err(ErrorKind::Gone.into()));
    }

    #[test]
    fn a_blocking_write_looks_at_the_file_before_and_after() {
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
        let never = || panic!("a file that is short is not written");
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
