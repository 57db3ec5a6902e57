//! What one member is in its array.
//! Owns: [`MemberState`]. Not here: when it changes (`master`).

use crate::words::verdict::Operation;
use uraid_block::{IoError, Sectors, Slot, Tick};

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// Read and written in its slot.
    Active(Slot),
    /// Written in its slot, and not read: a recovery writes what it does not hold yet.
    Recovering {
        /// Its slot.
        slot: Slot,
        /// It holds what is below this, in sectors of its data, and was flushed.
        below: Sectors,
    },
    /// Written in its slot beside the member that is there, and not read: that one is being copied to it.
    Replacing {
        /// Their slot.
        slot: Slot,
        /// It holds what is below this, in sectors of its data, and was flushed.
        below: Sectors,
    },
    /// Waiting for a slot.
    Spare,
    /// Without a device: it was removed, or is about to be added.
    Removed,
    /// Failed while the array was open.
    Faulty {
        /// The slot it had.
        slot: Option<Slot>,
        /// The operation that failed.
        operation: Operation,
        /// The error.
        error: IoError,
        /// When.
        at: Tick,
    },
}

impl MemberState {
    /// Whether it has not failed.
    pub(crate) fn is_trusted(&self) -> bool {
        match self {
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare => true,
            MemberState::Removed | MemberState::Faulty { .. } => false,
        }
    }

    /// The slot that it has, if it has not failed. One that replaces another has none yet.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            MemberState::Active(slot) | MemberState::Recovering { slot, .. } => Some(*slot),
            MemberState::Replacing { .. } | MemberState::Spare | MemberState::Removed | MemberState::Faulty { .. } => {
                None
            }
        }
    }

    /// The slot whose writes go to it.
    pub fn written_slot(&self) -> Option<Slot> {
        match self {
            MemberState::Replacing { slot, .. } => Some(*slot),
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Spare
            | MemberState::Removed
            | MemberState::Faulty { .. } => self.slot(),
        }
    }
}
