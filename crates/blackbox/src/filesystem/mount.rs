//! A served array as a kernel block device: nbdfuse makes it a file, losetup a device, mount a file system.
//! Owns: setting up the chain and taking it down. Not here: its use (the tests).
//! Invariant: dropped guards leave no mount, loop device or process, in whatever order a panic drops them.

use crate::programs::binary::run;
use crate::programs::foreign;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Why this machine cannot mount; `None` if it can.
pub fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("there is no /dev/loop-control");
    }
    None
}

/// An export as `/dev/loopN`.
#[derive(Debug)]
pub struct Loop {
    fuse: Child,
    folder: PathBuf,
    device: Option<String>,
}

impl Loop {
    /// Attaches the export; `folder` is created and removed again. An error is the tools' message: a container may
    /// forbid it.
    pub fn attach(uri: &str, folder: &Path) -> Result<Loop, String> {
        std::fs::create_dir(folder).map_err(|error| error.to_string())?;
        let file = folder.join("disk");
        let fuse = foreign::command("nbdfuse", [file.as_os_str(), uri.as_ref()])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut attached = Loop { fuse, folder: folder.to_path_buf(), device: None };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !file.exists() {
            let ended = attached.fuse.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!("nbdfuse gave no file: {ended:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = run(&mut foreign::command("losetup", ["--find".as_ref(), "--show".as_ref(), file.as_os_str()]));
        if said.code != Some(0) {
            return Err(said.err);
        }
        attached.device = Some(said.out.trim().to_string());
        Ok(attached)
    }

    /// `/dev/loopN`.
    pub fn device(&self) -> &str {
        self.device.as_deref().expect("an attached loop has a device")
    }

    /// Mounts it on a new folder.
    #[track_caller]
    pub fn mount(&self, at: &Path, options: &str) -> Mounted {
        std::fs::create_dir_all(at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
        let words = ["-o".as_ref(), options.as_ref(), self.device().as_ref(), at.as_os_str()];
        run(&mut foreign::command("mount", words)).expect_done();
        Mounted { at: Some(at.to_path_buf()) }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            run(&mut foreign::command("losetup", ["--detach", device]));
        }
        // The kernel may release the file a moment after losetup has ended.
        for _ in 0..100 {
            if run(foreign::command("umount", [&self.folder]).stderr(Stdio::null())).code == Some(0) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.fuse.kill();
        let _ = self.fuse.wait();
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    at: Option<PathBuf>,
}

impl Mounted {
    /// Unmounts; an error there is a failed write-back.
    #[track_caller]
    pub fn unmount(mut self) {
        let at = self.at.take().expect("it is mounted");
        run(&mut foreign::command("umount", [at])).expect_done();
    }

    /// Unmounts a file system whose device is gone: what was not written back is lost.
    pub fn abandon(mut self) {
        let at = self.at.take().expect("it is mounted");
        // The kernel may be about to shut it down.
        for _ in 0..100 {
            if run(foreign::command("umount", [&at]).stderr(Stdio::null())).code == Some(0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        run(&mut foreign::command("umount", ["--lazy".as_ref(), at.as_os_str()]));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            run(&mut foreign::command("umount", ["--lazy".as_ref(), at.as_os_str()]));
        }
    }
}
