//! Mounting a FUSE file system, and its end.
//! Owns: [`FuseMount`], what a mount point must be, mount(2) for root, fusermount3 for others. Not here: requests
//! (`fuse`), the child that unmounts (`keeper`).
//! Invariant: a mount that was made is unmounted when the process ends. A folder with files in it is never covered.

use super::keeper::{self, Keeper, Unmount};
use crate::sys::{self, Errno, errno_text};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CStr, CString};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Mounts for ordinary users.
const HELPER: &str = match keeper::HELPER.to_str() {
    Ok(name) => name,
    Err(_) => panic!("its name is ASCII"),
};
const DEVICE: &str = "/dev/fuse";
/// How long the drop of a mount waits until it is unmounted.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// How long the keeper of a server that was killed may take to unmount.
const DEAD_TIME_MAX: Duration = Duration::from_secs(2);

/// Why nothing was mounted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MountError {
    /// There is no such folder, or it cannot be looked at.
    #[error("{}: {}; expected an empty folder, which becomes the mount point", path.display(), errno_text(*os))]
    NoFolder {
        /// The path given.
        path: PathBuf,
        /// The system's errno.
        os: i32,
    },
    /// Something else is there.
    #[error("{}: is not a folder; expected an empty folder, which becomes the mount point", path.display())]
    NotAFolder {
        /// The path given.
        path: PathBuf,
    },
    /// The folder has contents.
    #[error("{}: the folder is not empty, and a mount would hide what is in it; expected an empty folder", path.display())]
    NotEmpty {
        /// The path given.
        path: PathBuf,
    },
    /// A file system is mounted there.
    #[error("{}: a file system is mounted there already; unmount it (umount), or name another folder", path.display())]
    Busy {
        /// The path given.
        path: PathBuf,
    },
    /// A mount was left by a server that is gone.
    #[error(
        "{0}: what is mounted there has no server any more (transport endpoint is not connected); \
         clean it up with `umount {0}`, as an ordinary user with `{HELPER} -u {0}`", path.display()
    )]
    Dead {
        /// The path given.
        path: PathBuf,
    },
    /// The kernel has no FUSE.
    #[error(
        "{DEVICE}: {}: the kernel has no FUSE, or has not loaded it (`modprobe fuse`); a container has to be given \
         the device", errno_text(*os)
    )]
    NoDevice {
        /// The system's errno.
        os: i32,
    },
    /// The device is not for this user.
    #[error("{DEVICE}: {}; expected the right to read and write it", errno_text(*os))]
    DeviceRefused {
        /// The system's errno.
        os: i32,
    },
    /// Ordinary users need a helper.
    #[error("{HELPER} is not installed, and only root may mount without it; install fuse3, or start as root")]
    NoHelper,
    /// The helper refused.
    #[error("{}: {HELPER} refused: {text}", path.display())]
    Helper {
        /// The path given.
        path: PathBuf,
        /// What it said.
        text: String,
    },
    /// The system refused.
    #[error("{}: {call} failed: {}{}", path.display(), errno_text(*os), if *os == libc::EPERM {
        "; expected the capability CAP_SYS_ADMIN, which a container may lack"
    } else {
        ""
    })]
    Os {
        /// The path given.
        path: PathBuf,
        /// Which call.
        call: &'static str,
        /// Its errno.
        os: i32,
    },
}

/// A mounted folder. It is unmounted by [`FuseMount::let_go`], by the drop, and when the process ends.
#[derive(Debug)]
pub struct FuseMount {
    path: PathBuf,
    /// One for each shard, until the shard takes it.
    devices: Mutex<Vec<Option<OwnedFd>>>,
    keeper: Mutex<Keeper>,
}

impl FuseMount {
    /// Mounts at the empty folder `path`, for `shards` shards. Call it before the process drops its privileges. From
    /// now on a look at the folder waits until a shard answers.
    pub fn new(path: &Path, shards: u16) -> Result<FuseMount, MountError> {
        let given = path;
        let path = mount_point_soon(given)?;
        let failed = |call| move |Errno(os)| MountError::Os { path: given.to_owned(), call, os };
        let at = CString::new(path.as_os_str().as_bytes()).expect("the system has resolved it");
        let (first, how) = if rustix::process::geteuid().is_root() {
            let device = open_device()?;
            mount(&device, &at).map_err(failed("mount"))?;
            (device, Unmount::Call)
        } else {
            (by_helper(given, &path)?, Unmount::Helper)
        };
        // If there is no child, the mount ends now: the device is closed, and root may still unmount.
        let keeper = Keeper::start(&at, how).inspect_err(|_| {
            let _ = sys::unmount(&at);
        });
        let keeper = keeper.map_err(failed("fork"))?;
        sys::set_nonblocking(first.as_fd()).map_err(failed("fcntl"))?;
        let another = || match another_device(&first) {
            Ok(device) => Ok(device),
            // All shards then share one queue of requests that are being done, which is correct, too.
            Err(_) => first.try_clone().map_err(|error| failed("dup")(Errno::from(error))),
        };
        let others = (1..shards).map(|_| another().map(Some)).collect::<Result<Vec<_>, _>>()?;
        let devices = std::iter::once(Some(first)).chain(others).collect();
        Ok(FuseMount { path, devices: Mutex::new(devices), keeper: Mutex::new(keeper) })
    }

    /// The mount point, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device of a shard, once.
    pub fn take_device(&self, shard: uraid_block::ShardIndex) -> Option<OwnedFd> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(shard.0)].take()
    }

    /// Closes the devices that no shard has taken, and lets the mount go: it is unmounted when the shards have dropped
    /// theirs, too. The connection ends with the last one, and requests that nothing has answered fail.
    pub fn let_go(&self) {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(|device| drop(device.take()));
        self.keeper().let_go();
    }

    /// Whether it is unmounted, after [`FuseMount::let_go`]; also if that failed.
    pub fn is_gone(&self) -> bool {
        self.keeper().is_gone()
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.let_go();
        let end = Instant::now() + UNMOUNT_TIME_MAX;
        while !self.is_gone() && Instant::now() < end {
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

/// [`mount_point`], after a moment if the mount there lost its server just now: its keeper is about to unmount it.
fn mount_point_soon(path: &Path) -> Result<PathBuf, MountError> {
    let end = Instant::now() + DEAD_TIME_MAX;
    loop {
        match mount_point(path) {
            Err(MountError::Dead { .. }) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN_AFTER),
            outcome => return outcome,
        }
    }
}

/// Checks that `path` is an empty folder on which nothing is mounted; returns its absolute path without links.
fn mount_point(path: &Path) -> Result<PathBuf, MountError> {
    let given = || path.to_owned();
    let failed = |error: io::Error| match Errno::from(error) {
        error if is_of_dead_server(error) => MountError::Dead { path: given() },
        Errno(os) => MountError::NoFolder { path: given(), os },
    };
    let status = std::fs::metadata(path).map_err(failed)?;
    if !status.is_dir() {
        return Err(MountError::NotAFolder { path: given() });
    }
    let whole = std::fs::canonicalize(path).map_err(failed)?;
    let above = whole.parent().and_then(|above| std::fs::metadata(above).ok());
    if above.is_none_or(|above| above.dev() != status.dev()) {
        // The kernel may have answered from its cache until now; to open a folder, it has to ask the server.
        let is_dead = std::fs::read_dir(&whole).is_err_and(|error| is_of_dead_server(Errno::from(error)));
        return Err(if is_dead { MountError::Dead { path: given() } } else { MountError::Busy { path: given() } });
    }
    match std::fs::read_dir(&whole).map_err(failed)?.next() {
        None => Ok(whole),
        Some(_) => Err(MountError::NotEmpty { path: given() }),
    }
}

/// ECONNABORTED: of a request that the server had not answered when it ended.
fn is_of_dead_server(error: Errno) -> bool {
    matches!(error, Errno(libc::ENOTCONN | libc::ECONNABORTED))
}

fn open_device() -> Result<OwnedFd, MountError> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
    opened.map(OwnedFd::from).map_err(|error| match Errno::from(error) {
        Errno(os @ (libc::EACCES | libc::EPERM)) => MountError::DeviceRefused { os },
        Errno(os) => MountError::NoDevice { os },
    })
}

fn another_device(of: &OwnedFd) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    sys::fuse_clone(device.as_fd(), of.as_fd()).map_err(|Errno(os)| MountError::NoDevice { os })?;
    Ok(device)
}

fn mount(device: &OwnedFd, path: &CStr) -> Result<(), Errno> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let options =
        format!("fd={},rootmode=40000,user_id={user},group_id={group},default_permissions", device.as_raw_fd());
    let options = CString::new(options).expect("digits and words");
    sys::mount(c"uraid", path, c"fuse.uraid", &options)
}

/// Lets fusermount3 mount.
fn by_helper(given: &Path, path: &Path) -> Result<OwnedFd, MountError> {
    // The helper opens the device with the rights of the user, so this finds the clear reason if it cannot.
    drop(open_device()?);
    let failed =
        |call| move |error: io::Error| MountError::Os { path: given.to_owned(), call, os: Errno::from(error).0 };
    let (socket, other_end) = UnixStream::pair().map_err(failed("socketpair"))?;
    // What the helper inherits. Here it is closed below: if the helper ends without an answer, nothing holds this end.
    let its = sys::duplicate_for_child(other_end.as_fd());
    let its = its.map_err(|Errno(os)| failed("dup")(io::Error::from_raw_os_error(os)))?;
    drop(other_end);
    let mut command = Command::new(HELPER);
    command.args(["-o", "nosuid,nodev,fsname=uraid,subtype=uraid,default_permissions", "--"]).arg(path);
    command.env("_FUSE_COMMFD", its.as_raw_fd().to_string());
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing { MountError::NoHelper } else { failed("exec")(error) }
    })?;
    drop(its);
    let device = received_device(&socket);
    let mut text = String::new();
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
    let _ = child.wait();
    match device {
        Some(device) => Ok(device),
        None => {
            let text = text.trim().trim_start_matches("fusermount3: ").lines().collect::<Vec<_>>().join("; ");
            Err(MountError::Helper { path: given.to_owned(), text })
        }
    }
}

/// The descriptor that the helper sends; `None`: it ended without one.
fn received_device(socket: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(
        |message| {
            if let RecvAncillaryMessage::ScmRights(mut files) = message { files.next() } else { None }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_without_a_mount_becomes_a_mount_point() {
        let folder = std::env::temp_dir().join(format!("uraid-mount-{}", std::process::id()));
        let inner = folder.join("inner");
        std::fs::create_dir_all(&inner).expect("the temporary folder is writable");
        assert_eq!(mount_point(&inner), std::fs::canonicalize(&inner).map_err(|_| unreachable!()));
        let refused = mount_point(&folder).expect_err("it has a folder in it").to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        let refused = mount_point(&folder.join("none")).expect_err("it is not there").to_string();
        assert!(refused.contains("not found; expected an empty folder"), "{refused}");
        let file = inner.join("file");
        std::fs::write(&file, "").expect("room");
        assert!(mount_point(&file).expect_err("a file").to_string().contains("is not a folder"));
        assert!(mount_point(Path::new("/proc")).expect_err("procfs").to_string().contains("mounted there already"));
        std::fs::remove_dir_all(&folder).expect("our own");
    }
}
