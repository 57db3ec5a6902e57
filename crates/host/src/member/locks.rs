//! Locks that exclude conflicting claims, also between processes.
//! Owns: which locks a claim takes. Not here: the list of claims of this process (`registration`).
//! Invariant: of two claims that share a byte and of which one may write, at most one gets its locks.
//!
//! ```text
//!                      flock of the file   lock of bytes (OFD)
//!  whole, for writing  exclusive           write, all
//!  whole, for reading  shared              read, all
//!  window, for writing shared              write, its own
//!  window, for reading shared              read, its own
//! ```
//! The flock keeps whole members apart, even on file systems without byte locks. The byte locks keep windows apart, and
//! keep writers of a window and readers of the whole apart.

use super::error::{Access, OpenError, failed, failed_with};
use super::target::Window;
use crate::sys::{self, Errno};
use std::fs::{File, TryLockError};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Locks may be held briefly by others. udev locks a block device while it probes it. A forked process holds its
/// parent's locks until it executes another program. The locks of a killed process last until the kernel has torn down
/// its ring, in the background, in 30 to 70 ms. So locking is retried, at most this often.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Takes a claim's locks on its open file; they end when it is closed. `path` is for messages.
pub(super) fn take(path: &Path, file: &File, access: Access, window: Option<Window>) -> Result<(), OpenError> {
    for _ in 1..ATTEMPTS {
        match try_take(path, file, access, window) {
            Err(OpenError::InUse { .. }) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    try_take(path, file, access, window)
}

fn try_take(path: &Path, file: &File, access: Access, window: Option<Window>) -> Result<(), OpenError> {
    let result = match (access, window) {
        (Access::ReadWrite, None) => file.try_lock(),
        (Access::ReadOnly, _) | (Access::ReadWrite, Some(_)) => file.try_lock_shared(),
    };
    match result {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.into() }),
        Err(TryLockError::Error(error)) => return Err(failed(path, "flock", &error)),
    }
    let (start, length) = window.map_or((0, None), |window| (window.offset, window.length));
    match sys::lock_bytes(file.as_fd(), access == Access::ReadWrite, start, length) {
        Ok(()) => Ok(()),
        Err(Errno(libc::EAGAIN | libc::EACCES)) => Err(OpenError::InUse { path: path.into() }),
        // There are no byte locks on this file system, so no process can have claimed a window: the flock is enough.
        Err(Errno(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP)) if window.is_none() => Ok(()),
        Err(errno) => Err(failed_with(path, "fcntl", errno)),
    }
}

/// Whether a claim through another open file has locks that conflict with a claim for writing. Locks nothing.
pub(super) fn are_taken(file: &File, window: Option<Window>) -> Result<bool, Errno> {
    let (start, length) = window.map_or((0, None), |window| (window.offset, window.length));
    match sys::are_bytes_locked(file.as_fd(), start, length) {
        // No byte locks on this file system, so only a whole member can be claimed. The flock that tests this ends at
        // once.
        Err(Errno(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP)) => match file.try_lock() {
            Ok(()) => {
                release(file);
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error.into()),
        },
        answer => answer,
    }
}

/// Releases what [`take`] took, while the file stays open.
pub(super) fn release(file: &File) {
    // If a lock cannot be released, it ends with the process.
    let _ = file.unlock();
    let _ = sys::unlock_bytes(file.as_fd());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole file, each window of up to 3 of its 4 bytes, and each window that extends to the end.
    fn windows() -> Vec<Option<Window>> {
        let lengths = |offset: u64| (1..=4 - offset).map(Some).chain([None]);
        let window = |offset| lengths(offset).map(move |length| Some(Window { offset, length }));
        [None].into_iter().chain((0..4).flat_map(window)).collect()
    }

    fn bytes(window: Option<Window>) -> std::ops::Range<u64> {
        window.map_or(0..u64::MAX, |window| window.offset..window.end().unwrap_or(u64::MAX))
    }

    #[test]
    fn of_two_overlapping_claims_for_writing_one_gets_its_locks() {
        let path = std::env::temp_dir().join(format!("uraid-locks-{}", std::process::id()));
        std::fs::write(&path, [0; 4]).expect("room");
        let open = || File::options().read(true).write(true).open(&path).expect("there");
        let claims: Vec<_> = windows()
            .into_iter()
            .flat_map(|window| [Access::ReadWrite, Access::ReadOnly].map(|access| (access, window)))
            .collect();
        for &(first_access, first) in &claims {
            // Two open file descriptions, like two processes.
            let holder = open();
            try_take(&path, &holder, first_access, first).expect("nothing is claimed");
            for &(access, window) in &claims {
                let (a, b) = (bytes(first), bytes(window));
                let share = a.start < b.end && b.start < a.end;
                let expected = !share || (first_access, access) == (Access::ReadOnly, Access::ReadOnly);
                let taken = try_take(&path, &open(), access, window);
                let case = format!("{first_access:?} {first:?}, then {access:?} {window:?}: {taken:?}");
                assert_eq!(taken.is_ok(), expected, "{case}");
                assert!(taken.is_ok() || matches!(taken, Err(OpenError::InUse { .. })), "{case}");
            }
        }
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn the_flock_is_enough_for_whole_members_without_byte_locks() {
        let path = std::env::temp_dir().join(format!("uraid-flock-{}", std::process::id()));
        std::fs::write(&path, [0; 4]).expect("room");
        let open = || File::options().read(true).write(true).open(&path).expect("there");
        let may_claim = |access| try_take(&path, &open(), access, None).is_ok();
        let other = open();
        assert!(may_claim(Access::ReadWrite) && may_claim(Access::ReadOnly));
        // The lock that another process would get on a file system without byte locks.
        other.try_lock_shared().expect("free");
        assert_eq!((may_claim(Access::ReadWrite), may_claim(Access::ReadOnly)), (false, true));
        other.unlock().expect("ours");
        other.try_lock().expect("free");
        assert_eq!((may_claim(Access::ReadWrite), may_claim(Access::ReadOnly)), (false, false));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn released_locks_can_be_taken_while_the_file_is_open() {
        let path = std::env::temp_dir().join(format!("uraid-let-go-{}", std::process::id()));
        std::fs::write(&path, [0; 4]).expect("room");
        let open = || File::options().read(true).write(true).open(&path).expect("there");
        for window in windows() {
            let (first, second) = (open(), open());
            try_take(&path, &first, Access::ReadWrite, window).expect("free");
            assert!(try_take(&path, &second, Access::ReadWrite, window).is_err(), "{window:?}");
            release(&first);
            release(&second);
            try_take(&path, &second, Access::ReadWrite, window).expect("let go of");
        }
        std::fs::remove_file(&path).expect("removed");
    }
}
