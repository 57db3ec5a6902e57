//! What unmounts when the serving process has ended, in whatever way.
//! Owns: [`Keeper`]. Not here: mounting (`mount`).
//! Invariant: a mount does not outlive its server, also after kill -9. Only a mount without a server is unmounted: never
//! what was mounted in its place.
//!
//! A process that has dropped its privileges cannot unmount, and one that was killed cannot do anything. So a child
//! that still has the privileges waits until the other end of a pipe is closed, which the kernel does in any case. The
//! child of an ordinary user becomes fusermount3 then. (Its own option for this, `auto_unmount`, looks at the mount as
//! root, who may not: with fusermount3 3.14.0 the mount stays.)

use crate::sys::{self, Errno};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What mounts and unmounts for ordinary users.
pub(super) const HELPER: &CStr = c"fusermount3";
/// How often, and how many times, the child looks whether the connection has ended.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 200;

/// How the child unmounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unmount {
    /// With umount(2), for root.
    Call,
    /// As fusermount3, for others.
    Helper,
}

/// The child. It unmounts when the keeper lets go or is dropped, or when this process ends.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Until it has ended.
    child: Option<libc::pid_t>,
    pipe: Option<OwnedFd>,
}

impl Keeper {
    /// Starts the child for the mount at `path`.
    pub(super) fn start(path: &CString, how: Unmount) -> Result<Keeper, Errno> {
        let (ours, its) = sys::pipe()?;
        // SAFETY: the child calls only functions that are safe after a fork (`keep`), and never returns.
        let child = unsafe { libc::fork() };
        match child {
            0 => keep(its.as_raw_fd(), path, how),
            1.. => Ok(Keeper { child: Some(child), pipe: Some(ours) }),
            _ => Err(Errno::last()),
        }
    }

    /// Lets the child unmount. The connection must have ended, or end soon.
    pub(super) fn let_go(&mut self) {
        drop(self.pipe.take());
    }

    /// Whether the child has ended.
    pub(super) fn is_gone(&mut self) -> bool {
        self.child = self.child.filter(|&child| !sys::has_child_ended(child));
        self.child.is_none()
    }
}

/// The child: waits for the end of the pipe, unmounts, ends. It allocates nothing and takes no lock, because another
/// thread of the parent may have held the allocator's when the process was forked.
fn keep(pipe: RawFd, path: &CString, how: Unmount) -> ! {
    // SAFETY: system calls with plain numbers, and with C strings and a buffer that live as long as the process. A
    // failure of the first ones changes nothing that matters here.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"uraid-unmount".as_ptr());
        // Signals for the server's terminal or group must not end the child before the server.
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        // Without the server's descriptors: its members' locks, its sockets and its end of the pipe.
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        libc::chdir(c"/".as_ptr());
        let mut byte = 0u8;
        loop {
            let read = libc::read(0, (&raw mut byte).cast(), 1);
            if read >= 0 || *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        for _ in 0..LOOKS_MAX {
            match answer(path) {
                libc::ENOTCONN => {
                    unmount(path, how);
                    break;
                }
                // The connection is ending.
                libc::ECONNABORTED | libc::EINTR => {}
                _ => break,
            }
            let pause = libc::timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN_AFTER.as_nanos() as libc::c_long };
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
        libc::_exit(0)
    }
}

/// Unmounts; returns if that failed, or is done.
///
/// # Safety
///
/// Only for a process that is a copy of another one and may end here: the helper takes its place.
unsafe fn unmount(path: &CString, how: Unmount) {
    // SAFETY: C strings, and an array of them that ends with a null pointer; all live during the calls.
    unsafe {
        match how {
            Unmount::Call => {
                libc::umount2(path.as_ptr(), libc::MNT_DETACH);
            }
            Unmount::Helper => {
                let words = [HELPER, c"-u", c"-z", c"-q", c"--", path.as_c_str()].map(CStr::as_ptr);
                let [name, unmount, lazily, quietly, end, at] = words;
                let words = [name, unmount, lazily, quietly, end, at, std::ptr::null()];
                libc::execvp(HELPER.as_ptr(), words.as_ptr());
            }
        }
    }
}

/// The errno of a look at `path`, 0 for none: ENOTCONN if a file system without a server is mounted there. While a
/// server is there, this waits for its answer.
fn answer(path: &CString) -> i32 {
    // SAFETY: statx is plain data; all zeroes is a value of it.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // Without AT_STATX_FORCE_SYNC the kernel may answer from its cache.
    let flags = libc::AT_STATX_FORCE_SYNC | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: a C string and a statx to fill, both live during the call.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_BASIC_STATS, &raw mut status) };
    // SAFETY: errno is this thread's own.
    if result < 0 { unsafe { *libc::__errno_location() } } else { 0 }
}
