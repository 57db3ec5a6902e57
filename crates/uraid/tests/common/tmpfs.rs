//! A small file system in memory, which can be filled up.

use super::Scratch;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A mount that goes with the test.
pub struct Tmpfs(pub PathBuf);

impl Tmpfs {
    /// None where it cannot be mounted: that needs root.
    pub fn mount(scratch: &Scratch, options: &str) -> Option<Tmpfs> {
        let path = scratch.path("tmpfs");
        std::fs::create_dir(&path).expect("a folder");
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output().ok()?;
        done.status.success().then_some(Tmpfs(path))
    }

    /// Leaves no room.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).expect("a file");
        while file.write(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
