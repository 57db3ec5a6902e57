//! The proof that superblocks record which members a request could not reach.
//! Owns: [`Recorded`], [`FailureOutcome`]. Not here: writing the superblocks (`record`).
//! Invariant: no write or flush is answered with success without a [`Recorded`], and only this module makes one.

use crate::view::View;
use uraid_block::IoError;

/// Proof that the superblocks say truthfully which members a request could not reach.
#[must_use]
#[derive(Clone, Debug)]
pub(crate) struct Recorded(());

impl Recorded {
    /// For a request that no member failed: the view it was planned with says whether the members it left out are
    /// recorded.
    #[inline]
    pub(crate) fn by(view: &View) -> Option<Recorded> {
        view.is_recorded.then_some(Recorded(()))
    }
}

/// The steward's answer to a report of failed members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureOutcome {
    /// The superblocks of all other members record it, durably.
    Recorded,
    /// The array could not survive or record it: nothing that depends on it may be answered with success.
    Frozen(IoError),
}

impl FailureOutcome {
    pub(crate) fn into_recorded(self) -> Result<Recorded, IoError> {
        match self {
            FailureOutcome::Recorded => Ok(Recorded(())),
            FailureOutcome::Frozen(error) => Err(error),
        }
    }
}
