//! A claim on a member: its file, its locks, its entry in the list of claims.
//! Owns: [`Claim`], what keeps it while the ring works. Not here: making one (`open`), its handles (`claimed`).
//! Invariant: the file is closed before its bytes may be claimed again.

use super::cost::Completion;
use super::error::Access;
use super::memory::Memory;
use super::overlay::Overlay;
use super::registration::{Identity, Registration};
use super::target::BadSectors;
use super::watch::Watch;
use crate::sys::{self, DirectAlignment};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use uraid_block::Geometry;

/// How a member's bytes are reached.
pub(super) enum Backing {
    File {
        file: std::fs::File,
        is_block_device: bool,
        // The byte of the file at which the member starts.
        base: u64,
        // The alignment that direct I/O needs; `None` if I/O goes through the page cache.
        direct: Option<DirectAlignment>,
    },
    Memory(Arc<Memory>),
    Null,
}

// The order of the fields matters for dropping: the file that holds the locks comes before all that it protects, behind
// the other descriptions of the same file.
pub(super) struct Claim {
    // For flushes: see `FlushHolder`.
    pub(super) reopened: Mutex<Vec<std::fs::File>>,
    pub(super) backing: Backing,
    // The file below a loop device, held for its locks.
    pub(super) under: Option<std::fs::File>,
    pub(super) watch: Arc<Watch>,
    pub(super) name: String,
    // The path without the window. For memory and null members, `mem:...` or `null:...`.
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) geometry: Geometry,
    /// Sectors that fail when read or written: those of `bad:`, and those of `listed`.
    pub(super) bad: BadSectors,
    /// Sectors in the member's bad-block list.
    pub(super) listed: BadSectors,
    /// What is read instead of its own bytes.
    pub(super) overlay: OnceLock<Arc<Overlay>>,
    // When requests of memory and null members complete. Files and devices complete by themselves.
    pub(super) completion: Completion,
    // The file or device itself. (The list of claims records the origin of its bytes instead: see `origin`.)
    pub(super) identity: Identity,
    #[expect(dead_code, reason = "it is held")]
    pub(super) registration: Registration,
}

/// Keeps the claim while the ring works on the member.
pub(super) struct ClaimHolder(pub(super) Arc<Claim>);

/// Keeps the claim during a flush, and the flush's own open file description if there is one.
///
/// Flushes use separate descriptions, one per shard, because Linux reports a lost write-back once per open file
/// description. A durable write (RWF_DSYNC) waits for write-back and gets the report of every loss since the last
/// report on its description, also of sectors that it did not write. A later flush on the same description would then
/// succeed, and its success would call lost data stable. With one description per shard, no shard's flush consumes the
/// report for another shard. The claim's locks belong to the first description; opening and closing others does not
/// affect them (unlike fcntl locks of the process).
///
/// When it is dropped, its description goes back to the claim: the member may get another device on this shard, of
/// another array, when the process may not open the file any more.
pub(super) struct FlushHolder {
    own: Option<std::fs::File>,
    claim: Arc<Claim>,
}

impl FlushHolder {
    /// Falls back to the claim's description if no separate one can be opened: without /proc, on FUSE, or for a
    /// read-only claim.
    pub(super) fn new(claim: Arc<Claim>) -> FlushHolder {
        let before = claim.lock_reopened().pop();
        FlushHolder { own: before.or_else(|| FlushHolder::reopen(&claim)), claim }
    }

    /// A description for flushes alone, if one can be opened.
    pub(super) fn reopen(claim: &Claim) -> Option<std::fs::File> {
        match (&claim.backing, claim.access) {
            // A FUSE file system may cache writes per handle: a flush must use the handle that wrote.
            (Backing::File { file, .. }, Access::ReadWrite) if !sys::is_fuse(file.as_fd()) => {
                sys::reopen(file.as_fd()).ok()
            }
            (Backing::File { .. } | Backing::Memory(_) | Backing::Null, _) => None,
        }
    }
}

impl Drop for FlushHolder {
    fn drop(&mut self) {
        self.claim.lock_reopened().extend(self.own.take());
    }
}

impl Claim {
    pub(super) fn lock_reopened(&self) -> MutexGuard<'_, Vec<std::fs::File>> {
        self.reopened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for FlushHolder {
    fn as_raw_fd(&self) -> i32 {
        match (&self.own, &self.claim.backing) {
            (Some(own), _) => own.as_raw_fd(),
            (None, Backing::File { file, .. }) => file.as_raw_fd(),
            (None, Backing::Memory(_) | Backing::Null) => -1,
        }
    }
}

impl AsRawFd for ClaimHolder {
    fn as_raw_fd(&self) -> i32 {
        match &self.0.backing {
            Backing::File { file, .. } => file.as_raw_fd(),
            Backing::Memory(memory) => memory.file().as_raw_fd(),
            Backing::Null => -1,
        }
    }
}
