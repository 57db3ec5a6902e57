//! The eventfd that wakes a sleeping shard.
//! Owns: [`Bell`]. Not here: when it is rung (`door`), who waits for it (`ring`).
//! Invariant: once rung, it wakes every waiter until it is silenced.

use crate::process::descriptors;
use crate::sys;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// An eventfd: readable once rung.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(descriptors::eventfd_or_end())
    }

    pub(crate) fn ring(&self) {
        sys::eventfd_add(self.descriptor());
    }

    pub(crate) fn silence(&self) {
        sys::eventfd_take(self.descriptor());
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
