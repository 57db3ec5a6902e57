//! A lock for tests of claims.
//! Owns: [`StartLock`]. Not here: any test.
//!
//! A process that a test starts inherits all open files of this process, with their locks, until it executes its program.
//! A claim that is released and taken again in that moment is refused as in use.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static STARTS: RwLock<()> = RwLock::new(());

/// Held during a whole test. Tests that start processes run alone.
#[expect(dead_code, reason = "guards are for being dropped")]
pub(crate) enum StartLock {
    /// Tests that start no process run beside each other.
    Shared(RwLockReadGuard<'static, ()>),
    /// No other test may run.
    Exclusive(RwLockWriteGuard<'static, ()>),
}

impl StartLock {
    /// For a test that starts no process.
    #[allow(dead_code, reason = "each test file uses a part of this, and some files have only tests of the other kind")]
    pub(crate) fn shared() -> StartLock {
        StartLock::Shared(STARTS.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// For a test that starts a process.
    pub(crate) fn exclusive() -> StartLock {
        StartLock::Exclusive(STARTS.write().unwrap_or_else(PoisonError::into_inner))
    }
}
