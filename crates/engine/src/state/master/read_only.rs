//! The state of an array that becomes read-only by command, and takes writes again.
//! Owns: [`ReadOnly`], what each step changes, and when it may be. Not here: what happens between them (`read_only`).
//! Invariant: an array of which nothing is written to any member has nothing that its superblocks lack, but for members
//! that failed since.

use super::Master;
use crate::state::view::Gate;

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOnly {
    /// No write is admitted any more. Those under way end, and superblocks are written.
    RefuseWrites,
    /// From here on nothing is written to any member.
    Begin,
    /// Superblocks are written again. Writes are still refused.
    Leave,
    /// Writes are admitted again.
    End,
}

impl Master {
    /// Whether the array was open, and is read-only by command.
    pub(crate) fn writes_nothing(&self) -> bool {
        self.writes_nothing
    }

    pub(super) fn change_read_only(&mut self, change: ReadOnly) {
        match change {
            ReadOnly::RefuseWrites => self.gate = Gate::NoNewWrites,
            ReadOnly::Begin => {
                (self.gate, self.writes_nothing) = (Gate::ReadOnly, true);
                self.takes_writes = false;
            }
            ReadOnly::Leave => (self.gate, self.writes_nothing) = (Gate::NoNewWrites, false),
            ReadOnly::End => {
                self.gate = Gate::Open;
                // Else the first write waits for the dirty mark.
                self.takes_writes = !self.is_redundant() || self.is_dirty;
            }
        }
    }

    pub(super) fn check_read_only(&self, change: ReadOnly) {
        let is_recorded = self.shows(self.version) || !self.is_redundant();
        match change {
            ReadOnly::RefuseWrites => assert_eq!(self.gate, Gate::Open, "an open array becomes read-only"),
            ReadOnly::Begin => {
                assert_eq!(self.gate, Gate::NoNewWrites, "the writes under way have ended");
                assert!(!self.is_dirty || self.is_suspect, "its superblocks say clean, if they may");
                assert!(is_recorded, "nothing is left to be written");
            }
            ReadOnly::Leave => {
                assert_eq!((self.gate, self.writes_nothing), (Gate::ReadOnly, true), "it was open before");
                assert!(self.frozen.is_none(), "a frozen array writes no superblock");
            }
            ReadOnly::End => {
                assert_eq!(self.gate, Gate::NoNewWrites, "superblocks are written first");
                assert!(is_recorded, "members that failed meanwhile are recorded");
            }
        }
    }
}
