//! The block device of an array: a loop device on its file, or one of the kernel's NBD driver.
//! Owns: [`Disk`], whether it is still the array's, detaching it. Not here: the programs (`mount::loop_device`,
//! `mount::nbd`).
//! Invariant: a device that someone else has attached meanwhile is not detached.

use super::{MountError, loop_device, nbd};
use crate::shared::program::ProgramError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uraid_host::Window;

/// How long the kernel may take to let a device go.
const DETACH_TIME_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A block device of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Disk {
    /// The whole device.
    pub device: PathBuf,
    /// What is mounted: the device, or a partition of it.
    pub mounted: PathBuf,
    link: Link,
}

/// How to know the device again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Link {
    /// By the array's file, and the attachment, once it is there.
    Loop { file: PathBuf, sequence: Option<u64> },
    /// By the process that has connected it.
    Nbd { user: u32 },
}

impl Disk {
    /// A loop device on a file, or a window of it. `before` is told of it before it is one.
    pub(super) fn attach_loop(
        file: &Path,
        window: Option<Window>,
        read_only: bool,
        mut before: impl FnMut(Disk) -> Result<(), MountError>,
    ) -> Result<Attached, MountError> {
        let disk = |device: &Path, sequence| {
            let link = Link::Loop { file: file.to_owned(), sequence };
            Disk { mounted: device.to_owned(), device: device.to_owned(), link }
        };
        let device = loop_device::attach(file, window, read_only, |device| before(disk(device, None)))?;
        Ok(Attached(Some(disk(&device, loop_device::sequence_of(&device)))))
    }

    /// The array's file under a loop device.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.link {
            Link::Loop { file, .. } => Some(file),
            Link::Nbd { .. } => None,
        }
    }

    /// A device of the NBD driver. `is_large`: the server takes requests of megabytes.
    pub(super) fn attach_nbd(uri: &str, read_only: bool, is_large: bool) -> Result<Attached, MountError> {
        let (device, user) = nbd::attach(uri, read_only)?;
        if is_large {
            nbd::allow_long_requests(&device);
        }
        Ok(Attached(Disk { mounted: device.clone(), device, link: Link::Nbd { user } }.into()))
    }

    /// Whether the device is still the array's. When the server has ended, its mount is gone, and the kernel's path of the
    /// file begins there: `/home` for `/run/uraid/mount-5/files/home`.
    pub(super) fn is_attached(&self) -> bool {
        match &self.link {
            Link::Loop { file, sequence } => {
                let is_same = sequence.is_none() || *sequence == loop_device::sequence_of(&self.device);
                let is_name = |backing: &Path| {
                    backing.parent() == Some(Path::new("/")) && backing.file_name() == file.file_name()
                };
                let backing = loop_device::backing_file(&self.device);
                is_same && backing.is_some_and(|backing| backing == *file || is_name(&backing))
            }
            Link::Nbd { user } => nbd::user_of(&self.device) == Some(*user),
        }
    }

    /// Detaches it. Returns when the array has lost this client.
    pub(super) fn detach(&self) -> Result<(), MountError> {
        let program = match &self.link {
            Link::Loop { .. } => {
                loop_device::detach(&self.device)?;
                "losetup --detach"
            }
            Link::Nbd { .. } => {
                nbd::detach(&self.device)?;
                "nbd-client -d"
            }
        };
        let end = Instant::now() + DETACH_TIME_MAX;
        while self.is_attached() {
            if Instant::now() > end {
                let text = format!("{} is still in use by another program", self.device.display());
                return Err(ProgramError { program: program.to_owned(), text }.into());
            }
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
        Ok(())
    }
}

/// A device that this process has attached. It is detached when this is dropped.
pub(super) struct Attached(Option<Disk>);

impl Attached {
    pub(super) fn disk(&self) -> &Disk {
        self.0.as_ref().expect("until it is kept")
    }

    /// Mounts this partition, not the whole.
    pub(super) fn take_partition(&mut self, number: u32) -> Result<(), MountError> {
        let disk = self.0.as_mut().expect("until it is kept");
        disk.mounted = nbd::partition(&disk.device, number)?;
        Ok(())
    }

    /// Lets it stay.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|disk| disk.detach()) {
            uraid_control::log::complain(&error);
        }
    }
}
