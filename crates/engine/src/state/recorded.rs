//! The proof that superblocks record which members a request could not reach.
//! Owns: [`Recorded`], [`FailureOutcome`], [`NotRecorded`]. Not here: writing the superblocks (`recorder`).
//! Invariant: no write or flush is answered with success without a [`Recorded`], and only this module makes one.

use crate::state::view::View;
use uraid_block::IoError;

/// Proof that the superblocks say truthfully which members a request could not reach.
#[must_use]
#[derive(Clone, Debug)]
pub(crate) struct Recorded(());

impl Recorded {
    /// For a request that met no failure. The view with which it was planned says whether the members that the request
    /// left out are recorded.
    #[inline]
    pub(crate) fn by(view: &View) -> Option<Recorded> {
        view.is_recorded.then_some(Recorded(()))
    }
}

/// The steward's answer to a report of failed members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureOutcome {
    /// The superblocks of all other members record the failures, durably.
    Recorded,
    /// The array could not survive the failures, or could not record them. No request that depends on them may be
    /// answered with success.
    Frozen(IoError),
    /// They are recorded, but no member has all of what was to be written: the failed request is lost, nothing else.
    Unwritten(IoError),
}

/// Why a request that met failures gets an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotRecorded {
    /// See [`FailureOutcome::Frozen`].
    Frozen(IoError),
    /// See [`FailureOutcome::Unwritten`].
    Unwritten(IoError),
}

impl From<NotRecorded> for IoError {
    fn from(reason: NotRecorded) -> IoError {
        match reason {
            NotRecorded::Frozen(error) | NotRecorded::Unwritten(error) => error,
        }
    }
}

impl FailureOutcome {
    pub(crate) fn into_recorded(self) -> Result<Recorded, NotRecorded> {
        match self {
            FailureOutcome::Recorded => Ok(Recorded(())),
            FailureOutcome::Frozen(error) => Err(NotRecorded::Frozen(error)),
            FailureOutcome::Unwritten(error) => Err(NotRecorded::Unwritten(error)),
        }
    }
}
