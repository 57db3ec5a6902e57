//! Whether the path that a member was opened by still leads to it.
//! Owns: [`PathState`], finding it out. Not here: reporting it (the crates above).
//! Invariant: only a helper thread waits for the file system.

use super::claim::{Backing, Claim};
use super::origin::identity;
use crate::ring::{Buffers, Driver, Kind};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// The state of an open member's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// It leads to the member. Also the answer for anything but a regular file.
    Same,
    /// The file has no name any more and is freed when it is closed; another file may have its path.
    Deleted,
    /// It leads to something else; the file has another name now.
    Replaced,
    /// It leads to nothing; the file has another name now.
    Missing,
}

/// `None` if it cannot be found out now.
pub(super) async fn state(claim: Arc<Claim>, driver: &Driver) -> Option<PathState> {
    let found = Arc::new(OnceLock::new());
    let answer = found.clone();
    let has_begun = driver.register_query(&claim.name);
    let call = move || {
        has_begun.store(true, Ordering::Release);
        answer.get_or_init(|| look(&claim));
        0
    };
    driver.start(Kind::short_call(call), Buffers::None, None).await;
    // `None` if no thread could be started to look.
    found.get().copied().flatten()
}

fn look(claim: &Claim) -> Option<PathState> {
    let Backing::File { file, is_block_device: false, .. } = &claim.backing else { return Some(PathState::Same) };
    if file.metadata().is_ok_and(|status| status.nlink() == 0) {
        return Some(PathState::Deleted);
    }
    match std::fs::metadata(&claim.path) {
        Ok(status) if identity(&status) == claim.identity => Some(PathState::Same),
        Ok(_) => Some(PathState::Replaced),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Some(PathState::Missing)
        }
        // The error says nothing about the file.
        Err(_) => None,
    }
}
