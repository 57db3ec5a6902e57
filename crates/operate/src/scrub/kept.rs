//! What `scrub` itself remembers: which slot of the schedule has begun a check, and which speed limits it has set.
//! Owns: the file `scrub.json` in the state directory, the lock that lets only one `scrub` run checks. Not here: what checks
//! have found (`uraid_control::history`).
//! Invariant: a limit is in the file, durably, before a server is told it.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use uraid_control::state::{self, StateError};

const BYTES_MAX: u64 = 1 << 20;

/// The file, while this process alone may change it.
pub(super) struct Kept {
    path: PathBuf,
    /// By UUID.
    pub(super) arrays: BTreeMap<String, KeptArray>,
    _lock: File,
}

/// Of one array.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct KeptArray {
    /// The last slot in which a check has begun, in seconds since 1970.
    #[serde(default)]
    pub(super) slot: Option<u64>,
    /// The limit that was set, until it is taken back.
    #[serde(default)]
    pub(super) limit: Option<KeptLimit>,
}

/// A speed limit, in KiB a second.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct KeptLimit {
    /// The server that was told.
    pub(super) pid: u32,
    pub(super) max: u64,
    /// What it had before; `None`: no limit.
    pub(super) before: Option<u64>,
}

/// Why nothing can be remembered.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeptError {
    /// There is no state directory that may be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The file or the lock cannot be used.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has another form.
    #[error("{} is not what uraid writes: remove it", path.display())]
    Unknown {
        /// Which.
        path: PathBuf,
        /// Where.
        source: serde_json::Error,
    },
    /// Another process has the lock.
    #[error("another `uraid scrub` runs checks; they are not run twice")]
    Taken,
}

impl Kept {
    /// Reads the file, and keeps others from it until this is dropped.
    pub(super) fn take() -> Result<Kept, KeptError> {
        let directory = state::make()?;
        let lock = directory.join("scrub.lock");
        let failed = |path: &PathBuf| {
            let path = path.clone();
            |source| KeptError::Io { path, source }
        };
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&lock);
        let file = opened.map_err(failed(&lock))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Err(KeptError::Taken),
            Err(error) => return Err(failed(&lock)(error.into())),
        }
        let path = directory.join("scrub.json");
        let content = state::read(&path, BYTES_MAX).map_err(failed(&path))?;
        let arrays = content.map_or(Ok(BTreeMap::new()), |content| serde_json::from_slice(&content));
        let arrays = arrays.map_err(|source| KeptError::Unknown { path: path.clone(), source })?;
        Ok(Kept { path, arrays, _lock: file })
    }

    /// Changes what is kept of an array, durably.
    pub(super) fn change(&mut self, uuid: &str, change: impl FnOnce(&mut KeptArray)) -> Result<(), KeptError> {
        change(self.arrays.entry(uuid.to_owned()).or_default());
        let text = serde_json::to_string(&self.arrays).unwrap_or_default();
        state::replace(&self.path, text.as_bytes()).map_err(|source| KeptError::Io { path: self.path.clone(), source })
    }
}
