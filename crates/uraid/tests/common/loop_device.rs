//! Block devices for tests.
//! Owns: [`LoopDevice`]. Invariant: it is detached when it is dropped.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A loop device, gone with the test.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None` where that is not allowed: it needs root and losetup.
    pub fn new(file: &Path) -> Option<LoopDevice> {
        LoopDevice::with_options(file, &[])
    }

    /// The same with more options of losetup.
    pub fn with_options(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        let device =
            output.status.success().then(|| LoopDevice(String::from_utf8_lossy(&output.stdout).trim().into()))?;
        device.take_discards().expect("root");
        Some(device)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Cuts the device off after `bytes`.
    pub fn shrink(&self, file: &Path, bytes: u64) {
        OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(bytes)).expect("a file");
        let resized = Command::new("losetup").arg("--set-capacity").arg(&self.0).status().expect("losetup");
        assert!(resized.success());
    }

    fn queue(&self, attribute: &str) -> PathBuf {
        let name = self.0.file_name().expect("a device has a name");
        Path::new("/sys/block").join(name).join("queue").join(attribute)
    }

    /// Makes it a device that takes no discards.
    pub fn refuse_discards(&self) {
        fs::write(self.queue("discard_max_bytes"), "0").expect("root");
    }

    /// Linux keeps the limit of `refuse_discards` when it detaches the file, and gives it to the next one: also to
    /// another test, or after a run that was killed. A limit above the device's own is that; it has to be a multiple of
    /// the granularity, which the device's own need not be.
    fn take_discards(&self) -> io::Result<()> {
        fs::write(self.queue("discard_max_bytes"), (1_u64 << 40).to_string())
    }

    /// Where it is open, Linux puts this off until it is closed.
    pub fn detach(&self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status().expect("losetup");
        assert!(detached.success());
    }

    /// Whether it has a file.
    pub fn is_attached(&self) -> bool {
        let name = self.0.file_name().expect("a device has a name");
        Path::new("/sys/block").join(name).join("loop/backing_file").exists()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.take_discards();
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).stderr(Stdio::null()).status();
    }
}
