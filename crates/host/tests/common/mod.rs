//! What tests of claims share.
//! Owns: [`Company`]. Not here: any test.
//!
//! A process that a test starts has all files of this process open, with their locks, until it executes its program. A
//! claim that is released and taken again in that moment is refused as in use.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static STARTS: RwLock<()> = RwLock::new(());

/// Held by a test while it lasts: those that start processes run alone.
#[expect(dead_code, reason = "guards are for being dropped")]
pub(crate) enum Company {
    /// Others that start none may run.
    Some(RwLockReadGuard<'static, ()>),
    /// No other test may start one.
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
