//! Which of the given members make up the array, and how far it may be trusted: one pure decision.
//! Owns: the choice of the freshest set, every refusal with its reason, what `--run` and `--force` allow.
//! Not here: reading superblocks (`format`, `host`), acting on the decision (`array`).
//! Invariant: the order of the candidates never matters; a member that a durable round of superblocks left out is
//! never chosen, unless `--force` had to.
//! Spec: md-reference 1.5 "Assembling", 3.1; md's margin of one event only where the freshest superblock agrees.

mod choose;
mod error;
mod start;

use std::fmt;
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::{Features, Superblock};
use uraid_layout::Layout;

pub use error::{AssembleError, Duplicate, History, SetCount, Unsupported};

/// One device that carries a good superblock.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What it carries.
    pub superblock: Superblock,
    /// How large the device is now.
    pub device_size: Sectors,
}

/// What the operator allows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AssembleOptions {
    /// Start although data may be lost: see [`assemble`].
    pub force: bool,
    /// Start although more members are missing than the superblocks know of.
    pub run: bool,
    /// Change nothing on any member.
    pub read_only: bool,
}

/// Where a member stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// In sync, in this slot.
    Slot(Slot),
    /// Waiting.
    Spare,
}

/// A member of the array that starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberPlan {
    /// Its index in the list of candidates.
    pub candidate: usize,
    /// Where it stands, by the freshest superblock.
    pub place: Place,
    /// Its own superblock, as found: its events may lag behind [`StartPlan::events`].
    pub superblock: Superblock,
}

/// A candidate that is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its index in the list of candidates.
    pub candidate: usize,
    /// Why.
    pub reason: Refusal,
}

/// Why a candidate is left out. The text is for the operator, after the candidate's name and a colon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It belongs to another array.
    Foreign {
        /// Its array.
        found: [u8; 16],
        /// The array that is being assembled.
        expected: [u8; 16],
    },
    /// It missed changes.
    Stale {
        /// Its event count.
        found: u64,
        /// The freshest one; one below it can still be current.
        expected: u64,
    },
    /// The freshest superblock records it as failed or removed.
    Faulty {
        /// Its event count.
        found: u64,
        /// The event count of the superblock that says so.
        recorded: u64,
    },
    /// The freshest superblock has it in another slot than it was: its data belongs elsewhere.
    Moved {
        /// The slot by its own superblock.
        found: Slot,
        /// The slot by the freshest one.
        expected: Slot,
    },
    /// Its history and the freshest one exclude each other, and `--force` chose the other.
    SplitBrain {
        /// Its event count.
        found: u64,
        /// The event count of the chosen history.
        expected: u64,
    },
    /// It was being rebuilt, and rebuilding cannot be continued yet.
    NotInSync {
        /// How far it is rebuilt.
        found: Sectors,
        /// What a member in sync holds.
        expected: Sectors,
    },
    /// The device is now smaller than its data.
    Shrank {
        /// The device's size.
        found: Sectors,
        /// Where its data ends.
        expected: Sectors,
    },
    /// The list of its bad blocks is not empty and cannot be honoured yet.
    BadBlocks,
    /// It is the second device of a slot.
    Replacement {
        /// That slot.
        slot: Slot,
    },
    /// It has no part in the array that could be used: a journal, a reserved role, or no entry in the role table.
    NoRole,
}

/// Why the array may only be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOnlyReason {
    /// The operator said so.
    Requested,
    /// An internal write-intent bitmap would have to be kept up to date.
    Bitmap,
    /// A partial parity log would have to be kept up to date.
    Ppl,
    /// A member has bad blocks recorded.
    BadBlocks,
    /// A slot is being moved to another device.
    Replacement,
}

/// What `--force` was needed for. The engine writes it into the record of the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Forced {
    /// Candidates that were taken although they missed changes.
    pub raised: Vec<usize>,
    /// Dirty and degraded: blocks of missing members may be reconstructed wrongly.
    pub is_dirty_degraded: bool,
    /// One of several histories was chosen.
    pub is_split_brain: bool,
}

/// How the array starts.
#[derive(Clone, Debug)]
pub struct StartPlan {
    /// The addresses.
    pub layout: Layout,
    /// Who takes part: slots ascending, then spares by dev_number.
    pub members: Vec<MemberPlan>,
    /// Slots without a member.
    pub missing: SlotSet,
    /// Who was left out, and why; in the order of the candidates.
    pub refused: Vec<Refused>,
    /// The freshest superblock: the source of everything the members share.
    pub template: Superblock,
    /// Redundancy must be made consistent before the array serves writes.
    pub is_dirty: bool,
    /// The array may only be read.
    pub read_only: Option<ReadOnlyReason>,
    /// The event count of the freshest superblock. Members below it must be brought up to it, durably, before any
    /// member gets a higher one: see [`StartPlan::lagging`].
    pub events: u64,
    /// What `--force` was needed for.
    pub forced: Forced,
}

impl StartPlan {
    /// Indexes into `members` of those in a slot whose superblock on disk is behind `events`.
    ///
    /// They must be written with `events` and the template's roles, and awaited, before the next round counts up.
    /// Otherwise a crash in that round could leave one member two events ahead of the rest, and all of them stale.
    pub fn lagging(&self) -> impl Iterator<Item = usize> + '_ {
        let in_slot = |member: &MemberPlan| match member.place {
            Place::Slot(_) => true,
            Place::Spare => false,
        };
        let members = self.members.iter().enumerate();
        members.filter(move |(_, m)| in_slot(m) && m.superblock.events < self.events).map(|(at, _)| at)
    }
}

/// Decides which candidates start as which members.
pub fn assemble(candidates: &[Candidate], options: &AssembleOptions) -> Result<StartPlan, AssembleError> {
    let chosen = choose::choose(candidates, options.force)?;
    start::start(candidates, chosen, options)
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = Features(0);
        write!(out, "{self:?}")
    }
}

impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self:?}")
    }
}
