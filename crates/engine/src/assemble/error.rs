//! Why no array can be started from the given members.
//! Owns: [`AssembleError`] and its texts. Not here: why one member is left out ([`super::Refusal`]).

use super::Refused;
use std::fmt;
use uraid_block::{Slot, SlotSet};
use uraid_layout::LayoutError;

/// How many candidates an array has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetCount {
    /// The array's id.
    pub set_uuid: [u8; 16],
    /// Its name.
    pub name: String,
    /// Indexes of its candidates.
    pub candidates: Vec<usize>,
}

/// One of several histories that exclude each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// Indexes of the candidates that tell it.
    pub candidates: Vec<usize>,
    /// Their event count.
    pub events: u64,
    /// The latest update time among them, seconds since 1970; to be shown, not to be believed.
    pub updated_seconds: u64,
    /// The slots that have a member in it.
    pub slots: Vec<Slot>,
}

/// What two candidates share that must be unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicate {
    /// The device's id: one is a copy of the other.
    DeviceUuid,
    /// The entry in the role table.
    DevNumber(u32),
    /// The slot.
    Slot(Slot),
}

/// What the array uses that cannot be served rightly, not even for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// A reshape has begun.
    Reshape,
    /// A raid456 journal.
    Journal,
    /// A bitmap shared by several hosts.
    Clustered,
    /// Feature bits that we have no meaning for.
    Features(u32),
    /// A level that we do not have.
    Level(i32),
}

/// Why no array can be started. Numbers of candidates are indexes into the list given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AssembleError {
    /// The list is empty.
    NoCandidates,
    /// Candidates of several arrays, none with more than half of them.
    SeveralArrays {
        /// The arrays.
        sets: Vec<SetCount>,
    },
    /// Nobody has, or had, a slot.
    OnlySpares {
        /// How many spares there are.
        found: usize,
    },
    /// Two candidates that exclude each other.
    Duplicate {
        /// What they share.
        what: Duplicate,
        /// The two.
        candidates: [usize; 2],
    },
    /// Members of one array that differ in what they must agree on.
    Mismatch {
        /// The candidate.
        candidate: usize,
        /// The field.
        field: &'static str,
        /// What it says.
        found: i128,
        /// What the freshest superblock says.
        expected: i128,
    },
    /// The members ran apart.
    SplitBrain {
        /// The histories, freshest first.
        histories: Vec<History>,
    },
    /// Something that would make even reading wrong.
    Unsupported(Unsupported),
    /// More slots than can be handled.
    TooManySlots {
        /// Slots of the array.
        found: u32,
        /// What can be handled.
        maximum: u32,
    },
    /// More is missing than the level survives.
    TooFewMembers {
        /// The level.
        level: &'static str,
        /// Members in sync that were found.
        found: usize,
        /// Slots of the array.
        slots: u16,
        /// The least number that can do.
        expected: usize,
        /// Slots without a member.
        missing: SlotSet,
        /// Who was left out, and why.
        refused: Vec<Refused>,
        /// Whether `--force` can help: a stale member could fill a slot.
        can_force: bool,
    },
    /// More is missing than the superblocks know of.
    NeedsRun {
        /// Members in sync that were found.
        found: usize,
        /// Members that the freshest superblock counts.
        expected: usize,
        /// Slots that should have a member.
        missing: SlotSet,
        /// Who was left out, and why.
        refused: Vec<Refused>,
    },
    /// Parity that cannot be trusted, and members that it would have to stand in for.
    DirtyDegraded {
        /// The level.
        level: &'static str,
        /// Slots without a member whose data would be guessed.
        missing: SlotSet,
    },
    /// The superblock describes addresses that cannot be.
    Layout(LayoutError),
}

impl fmt::Display for AssembleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self:?}")
    }
}

impl std::error::Error for AssembleError {}
