//! What tests of claims share.
//! Owns: [`Company`]. Not here: any test.
//!
//! A process that a test starts has, until it runs its program, all files of this one open, with their locks. Whoever
//! gives up a claim and takes it again in that moment is told that somebody has it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static STARTS: RwLock<()> = RwLock::new(());

/// Held by a test while it lasts: those that start processes run alone.
#[expect(dead_code, reason = "guards are for being dropped")]
pub(crate) enum Company {
    /// Others that start none may run.
    Some(RwLockReadGuard<'static, ()>),
    /// Nobody else may.
    None(RwLockWriteGuard<'static, ()>),
}

impl Company {
    /// Of a test that starts no process.
    #[allow(dead_code, reason = "each test file uses a part of this, and some files have only tests of the other kind")]
    pub(crate) fn some() -> Company {
        Company::Some(STARTS.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of a test that starts one.
    pub(crate) fn none() -> Company {
        Company::None(STARTS.write().unwrap_or_else(PoisonError::into_inner))
    }
}
