//! Block devices for tests.
//! Owns: [`LoopDevice`], [`RamFolder`]. Invariant: it is detached, or unmounted, when it is dropped.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A loop device, gone with the test.
pub struct LoopDevice {
    path: PathBuf,
    /// The backing file that it was made for: its number may be another test's when this is dropped.
    file: PathBuf,
}

impl LoopDevice {
    /// `None` where that is not allowed: it needs root and losetup.
    pub fn new(file: &Path) -> Option<LoopDevice> {
        LoopDevice::with_options(file, &[])
    }

    /// The same with more options of losetup.
    pub fn with_options(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        let path = || String::from_utf8_lossy(&output.stdout).trim().into();
        let file = fs::canonicalize(file).ok()?;
        output.status.success().then(|| LoopDevice { path: path(), file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts the device off after `bytes`.
    pub fn shrink(&self, file: &Path, bytes: u64) {
        OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(bytes)).expect("a file");
        let resized = Command::new("losetup").arg("--set-capacity").arg(&self.path).status().expect("losetup");
        assert!(resized.success());
    }

    /// Where it is open, Linux puts this off until it is closed.
    pub fn detach(&self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.path).status().expect("losetup");
        assert!(detached.success());
    }

    /// Waits until no mount has it: the kernel lets go of some only after umount(8) has returned.
    pub fn wait_until_free(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&self.path).is_err() {
            assert!(Instant::now() < end, "{} is in use", self.path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it still has its file.
    pub fn is_attached(&self) -> bool {
        let name = self.path.file_name().expect("a device has a name");
        let backing = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
        // A file that was removed since is called `PATH (deleted)`.
        backing.is_ok_and(|found| Path::new(found.trim_end().trim_end_matches(" (deleted)")) == self.file)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.is_attached() {
            return;
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).stderr(Stdio::null()).status();
    }
}

/// A folder in memory (ramfs) whose files take no holes, so that a loop device on one takes no discards. A limit in
/// sysfs would do that, too, but the loop device would keep it for all its later files.
pub struct RamFolder(PathBuf);

impl RamFolder {
    /// Panics where that is not allowed: it needs root.
    pub fn mount(folder: PathBuf) -> RamFolder {
        fs::create_dir(&folder).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(&folder).status().expect("mount");
        assert!(mounted.success());
        RamFolder(folder)
    }

    /// A new file of this length.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("room");
        path
    }
}

impl Drop for RamFolder {
    fn drop(&mut self) {
        // Lazily: Linux may detach the loop device only when its last user closes it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
