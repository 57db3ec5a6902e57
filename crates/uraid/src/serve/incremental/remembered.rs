//! The devices that were taken in one by one, of an array that does not run yet.
//! Owns: the file of each array in the runtime directory, its lock, the process that waits for late members. Not here: when
//! the array starts (the parent).
//! Invariant: who holds one of these is the only one that looks at the array's devices and starts it. The file goes when
//! the array runs: after a stop, devices are taken in anew.
//!
//! ```text
//!   .incoming-c9d3d9fb:39864ae6:b6437b7f:7b65dc9f         {"members":["/dev/sdb"],"waiting":4711}
//!   .incoming-c9d3d9fb:39864ae6:b6437b7f:7b65dc9f.lock    held meanwhile
//! ```

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uraid_control::runtime::{self, RuntimeError};
use uraid_control::state;
use uraid_format::uuid;

const PREFIX: &str = ".incoming-";
/// Room for 384 members with long paths.
const BYTES_MAX: u64 = 4 << 20;

/// The devices are not known, or could not be written down.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RememberError {
    /// There is no place for them.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The file, or its lock.
    #[error("{}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What is in the file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Content {
    members: Vec<String>,
    #[serde(default)]
    waiting: Option<i32>,
}

/// The devices of one array, for as long as this exists.
pub(crate) struct Remembered {
    pub(crate) uuid: [u8; 16],
    path: PathBuf,
    content: Content,
    _lock: File,
}

impl Remembered {
    /// Waits until nobody else has it.
    pub(crate) fn of(uuid: [u8; 16]) -> Result<Remembered, RememberError> {
        Remembered::in_folder(&runtime::make()?, uuid)
    }

    fn in_folder(folder: &Path, uuid: [u8; 16]) -> Result<Remembered, RememberError> {
        let path = folder.join(format!("{PREFIX}{}", uuid::text(&uuid)));
        let lock = path.with_extension("lock");
        let opened = File::options().write(true).create(true).truncate(false).mode(0o600).open(&lock);
        let opened =
            opened.and_then(|file| flock(&file, FlockOperation::LockExclusive).map(|()| file).map_err(io::Error::from));
        let opened = opened.map_err(|source| RememberError::Io { path: lock, source })?;
        let read = state::read(&path, BYTES_MAX).map_err(|source| RememberError::Io { path: path.clone(), source })?;
        // What is no file of ours is as good as none: the devices are taken in again at the next event of each.
        let content = read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Ok(Remembered { uuid, path, content, _lock: opened })
    }

    /// All arrays of which devices were taken in.
    pub(crate) fn arrays() -> Result<Vec<[u8; 16]>, RememberError> {
        let folder = runtime::make()?;
        let entries = fs::read_dir(&folder).map_err(|source| RememberError::Io { path: folder.clone(), source })?;
        let mut found: Vec<[u8; 16]> =
            entries.filter_map(|entry| uuid::parse(entry.ok()?.file_name().to_str()?.strip_prefix(PREFIX)?)).collect();
        found.sort_unstable();
        Ok(found)
    }

    pub(crate) fn members(&self) -> &[String] {
        &self.content.members
    }

    /// Takes a device in.
    pub(crate) fn add(&mut self, member: &str) {
        if !self.content.members.iter().any(|other| other == member) {
            self.content.members.push(member.to_owned());
        }
    }

    /// Leaves only those devices for which this holds.
    pub(crate) fn keep(&mut self, is_kept: impl FnMut(&String) -> bool) {
        self.content.members.retain(is_kept);
    }

    /// The process that will start the array without the members that are missing, if it lives.
    pub(crate) fn waiting(&self) -> Option<i32> {
        let lives = |pid: &i32| Pid::from_raw(*pid).is_some_and(|pid| test_kill_process(pid).is_ok());
        self.content.waiting.filter(lives)
    }

    pub(crate) fn set_waiting(&mut self, pid: u32) {
        self.content.waiting = i32::try_from(pid).ok();
    }

    /// Writes the file.
    pub(crate) fn save(&self) -> Result<(), RememberError> {
        let text = serde_json::to_vec(&self.content).expect("paths and a number");
        state::replace(&self.path, &text).map_err(|source| RememberError::Io { path: self.path.clone(), source })
    }

    /// The array runs, or has no device left.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_remembered_once_and_forgotten() {
        let folder = std::env::temp_dir().join(format!("uraid-incoming-{}", std::process::id()));
        fs::create_dir(&folder).expect("the temporary folder is writable");
        let open = || Remembered::in_folder(&folder, [0x11; 16]).expect("nobody else has it");
        let mut one = open();
        one.add("/dev/sdb");
        one.add("/dev/sdc");
        one.add("/dev/sdb");
        one.set_waiting(std::process::id());
        one.save().expect("room");
        drop(one);
        let mut one = open();
        assert_eq!(one.members(), ["/dev/sdb", "/dev/sdc"]);
        assert!(one.waiting().is_some());
        one.keep(|member| member == "/dev/sdc");
        one.save().expect("room");
        assert_eq!(one.members(), ["/dev/sdc"]);
        one.forget();
        drop(one);
        assert_eq!(open().members(), [""; 0]);
        fs::write(folder.join(format!("{PREFIX}{}", uuid::text(&[0x11; 16]))), "torn").expect("room");
        assert_eq!(open().members(), [""; 0]);
        fs::remove_dir_all(&folder).expect("ours");
    }
}
