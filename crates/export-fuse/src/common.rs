//! What the servers of all shards share.
//! Owns: [`Common`]: how often files are open, the turns of writes, the beginning of the mount. Not here: a shard's own
//! state (`server`).
//! Invariant: an open that was answered is counted until its release arrives, on whichever shard.

use crate::turns::Turns;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the servers of one mount share. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Common(Arc<[FileState]>);

#[derive(Debug, Default)]
pub(crate) struct FileState {
    opens: AtomicU64,
    pub(crate) turns: Turns,
}

impl Common {
    /// For this many files.
    pub fn new(files: usize) -> Common {
        Common((0..files).map(|_| FileState::default()).collect())
    }

    /// How often the file of an export is open now. A loop device counts as one.
    pub fn opens(&self, export: usize) -> u64 {
        self.0[export].opens.load(Ordering::Relaxed)
    }

    pub(crate) fn file(&self, export: usize) -> &FileState {
        &self.0[export]
    }
}

impl FileState {
    pub(crate) fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    /// The kernel releases what it has opened: more would be its mistake, and is ignored.
    pub(crate) fn released(&self) {
        let _ = self.opens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |opens| opens.checked_sub(1));
    }
}
