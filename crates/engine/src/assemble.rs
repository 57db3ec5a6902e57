//! Which of the given members make up the array, and how far it may be trusted: one pure decision.
//! Owns: the choice of the freshest set, every refusal with its reason, what `--run` and `--force` allow.
//! Not here: reading superblocks (`format`, `host`), acting on the decision (`array`).
//! Invariant: the order of the candidates never matters; a member that a durable round of superblocks left out is
//! never chosen, unless `--force` had to.
//! Spec: docs/md/behaviour.md#assembly; md's margin of one event only where the freshest superblock agrees.

mod choose;
mod error;
mod start;

use std::fmt;
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::{Superblock, uuid};
use uraid_layout::Layout;

pub use error::{AssembleError, Duplicate, History, Named, SetCount, Unsupported};

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
    /// Start although more members are missing than the superblocks know of, and write although md is still rebuilding
    /// one: it is given up.
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
    /// Its own superblock, as found: its events may lag behind [`StartPlan::events`]. With the feature bit of bad blocks the
    /// member's device must fail reads of what its list names: the engine does not know the list.
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
        /// The slot it was rebuilt for.
        slot: Slot,
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
    /// It is the second device of a slot.
    Replacement {
        /// That slot.
        slot: Slot,
    },
    /// A spare that does not fit the array.
    Mismatch {
        /// What it differs in.
        field: &'static str,
        /// What it says.
        found: i128,
        /// What the freshest superblock says.
        expected: i128,
    },
    /// It has no part in the array that could be used: a journal, a reserved role, or no entry in the role table.
    NoRole,
}

/// Why the array may only be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOnlyReason {
    /// The operator said so.
    Requested,
    /// The superblocks are of version 0.90, which are read and not written.
    OldSuperblock,
    /// An internal write-intent bitmap would have to be kept up to date.
    Bitmap,
    /// A partial parity log would have to be kept up to date.
    Ppl,
    /// A member has bad blocks recorded.
    BadBlocks,
    /// The event count is so high that a later one could not be read back: see
    /// [`Superblock::EVENTS_WRITE_END`].
    Events {
        /// What the freshest one counts.
        found: u64,
    },
    /// A slot is being moved to another device, and writing without that device would give it up.
    Replacement,
    /// md was rebuilding a member, and writing without it would give it up: md would have to begin anew.
    Rebuilding {
        /// Its slot; of several the lowest.
        slot: Slot,
        /// How far it is rebuilt.
        rebuilt: Sectors,
    },
    /// A member is itself an array that may only be read. [`assemble`] never says this: it does not know what members are.
    Member,
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
    /// Members taken by force are not among them: the template's roles leave them out, only the next round takes them in.
    pub fn lagging(&self) -> impl Iterator<Item = usize> + '_ {
        let is_lagging = |member: &MemberPlan| match member.place {
            Place::Slot(_) => member.superblock.events < self.events && !self.forced.raised.contains(&member.candidate),
            Place::Spare => false,
        };
        self.members.iter().enumerate().filter(move |(_, member)| is_lagging(member)).map(|(at, _)| at)
    }
}

/// Decides which candidates start as which members.
///
/// - The set is the one that more than half of the candidates belong to; the others are refused as foreign.
/// - The freshest superblock is the one with the most events among those that have a slot. Everything shared comes
///   from it, and so does everybody's role. A member is current when it is at most one event behind *and* the freshest
///   superblock still lists it in the slot that it had: a member that failed can be exactly one behind.
/// - Histories that exclude each other (members that each ran without the others) are an error.
/// - More missing than the freshest superblock knows of is an error without `run`; md starts such an array only then.
/// - A dirty raid4, 5 or 6 with a missing member whose blocks would be reconstructed is an error: parity that a crash
///   left half-written would make up wrong data for it.
/// - What needs a bitmap, a partial parity log or a bad-block list to be kept right starts read-only. A reshape, a
///   journal, a clustered bitmap or unknown bits are an error.
/// - A member that md is rebuilding, or that is to replace another, is left out, and the array starts read-only: to
///   write is to record this member as failed, and md would begin it anew. `run` does that.
///
/// `force` gives up data for service, always in the same way, and [`Forced`] tells what it was needed for:
/// members that missed changes are taken, the freshest first, one generation of event counts at a time, until there
/// are enough and no further; dirty and degraded is accepted; of several histories the freshest is taken, of equally
/// fresh ones that with the most members, then that with the lowest dev_number. The
/// array is dirty then, so that the first pass makes the redundancy agree with what is there. It implies `run`.
///
/// Duplicates are an error even with `force`: two candidates with one device id always, two for one slot or one
/// dev_number when nothing makes one of them stale.
pub fn assemble(candidates: &[Candidate], options: &AssembleOptions) -> Result<StartPlan, AssembleError> {
    let chosen = choose::choose(candidates, options.force)?;
    start::start(candidates, chosen, options)
}

/// To follow the candidate's name and a colon.
impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Foreign { found, expected } => {
                let (found, expected) = (uuid::text(found), uuid::text(expected));
                write!(out, "foreign: belongs to array {found}, expected {expected}")
            }
            Refusal::Stale { found, expected } => {
                write!(out, "stale: has {found} events, expected at least {}", expected.saturating_sub(1))
            }
            Refusal::Faulty { found, recorded } => {
                write!(out, "faulty: has {found} events, and the superblock with {recorded} no longer lists it")
            }
            Refusal::Moved { found, expected } => {
                write!(out, "moved: was in {found}, the freshest superblock lists it in {expected}")
            }
            Refusal::SplitBrain { found, expected } => {
                write!(out, "ran apart: has {found} events of another history, the one with {expected} was forced")
            }
            Refusal::NotInSync { slot, found, expected } => {
                write!(out, "not in sync: {} of {} sectors of {slot} are rebuilt", found.0, expected.0)
            }
            Refusal::Shrank { found, expected } => {
                write!(out, "shrank: device has {found}, its data needs {expected}")
            }
            Refusal::Replacement { slot } => write!(out, "is a replacement for {slot}, which cannot be continued yet"),
            Refusal::Mismatch { field, found, expected } => {
                write!(out, "does not fit: {field} is {found}, expected {expected}")
            }
            Refusal::NoRole => out.write_str("has no role that could be used"),
        }
    }
}

/// To follow "read-only: ".
impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ReadOnlyReason::Requested => "as requested",
            ReadOnlyReason::OldSuperblock => {
                "its superblocks are of version 0.90, which are not written; `mdadm --assemble --update=metadata` converts them"
            }
            ReadOnlyReason::Bitmap => "the array has an internal bitmap, which writes would have to keep up to date",
            ReadOnlyReason::Ppl => "the array has a partial parity log, which writes would have to keep up to date",
            ReadOnlyReason::BadBlocks => "a member has bad blocks recorded, which cannot be kept up to date yet",
            ReadOnlyReason::Events { found } => {
                return write!(
                    out,
                    "its superblocks count {found} events, expected below {}: no array counts so far, so something else \
                     has written this; copy its data to a new array",
                    Superblock::EVENTS_WRITE_END
                );
            }
            ReadOnlyReason::Member => "a member is an array that opens read-only itself",
            ReadOnlyReason::Replacement => {
                "a member is being replaced by md; let the kernel finish that, or --run to write to the array without \
                 the new member, which is then rebuilt from the beginning"
            }
            ReadOnlyReason::Rebuilding { slot, rebuilt } => {
                return write!(
                    out,
                    "{slot} is being rebuilt by md, up to sector {} so far; let the kernel finish that, or --run to write \
                     to the array without this member, which is then rebuilt from the beginning",
                    rebuilt.0
                );
            }
        };
        out.write_str(text)
    }
}
