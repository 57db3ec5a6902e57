//! Which of the given members make up the array, and how far each may be trusted: one pure decision.
//! Owns: the choice of the freshest set, every refusal with its reason, what `--run` and `--force` allow.
//! Not here: reading superblocks (`format`, `host`), acting on the decision (`array`).
//! Invariant: the order of the candidates never matters. A member that a durable round of superblocks left out is
//! chosen only if `--force` needs it.
//! Spec: docs/md/behaviour.md#assembly. md's margin of one event applies only if the freshest superblock agrees.

mod bitmap;
mod choose;
mod error;
mod examine;
mod history;
mod ppl;
mod reshape;
mod start;

use crate::words::bad_blocks;
use std::fmt;
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::bad_blocks::BadBlockLog;
use uraid_format::bitmap::BitmapUnusable;
use uraid_format::ppl::PplLog;
use uraid_format::{Features, Role, Superblock, uuid};
use uraid_layout::Layout;

pub use bitmap::BitmapPlan;
pub use error::{AssembleError, Duplicate, History, Named, PartlyRecovered, SetCount, Unsupported};
pub use examine::{ExamineError, Examined, assemble_examined, examine};
pub use ppl::{PplPlan, PplReplay};
pub use reshape::{HalfReshaped, ReshapedPart, assemble_half_reshaped};

/// One device that carries a good superblock.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What it carries.
    pub superblock: Superblock,
    /// How large the device is now.
    pub device_size: Sectors,
    /// Its bad-block log, if it was read. Without it, an array with a member that has one in force is only read.
    pub bad_blocks: Option<BadBlockLog>,
    /// Its partial parity log, if it was read. Without it, an array that has one is only read.
    pub ppl: Option<PplLog>,
}

impl Candidate {
    /// A device of which nothing but the superblock was read.
    pub fn new(superblock: Superblock, device_size: Sectors) -> Candidate {
        Candidate { superblock, device_size, bad_blocks: None, ppl: None }
    }

    /// Whether the list of bad blocks can be kept up to date, or none is in force.
    fn keeps_list(&self) -> bool {
        let is_in_force = self.superblock.features.contains(Features::BAD_BLOCKS);
        let is_read = self.bad_blocks.is_some();
        !is_in_force || is_read && bad_blocks::room_to_write(&self.superblock).is_some()
    }
}

/// What the operator allows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AssembleOptions {
    /// Start although data may be lost: see [`assemble`].
    pub force: bool,
    /// Start although more members are missing than the superblocks record. Write although a second member of a slot was
    /// being rebuilt: that one is given up.
    pub run: bool,
    /// Change nothing on any member.
    pub read_only: bool,
}

/// The place of a member in the array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// In sync, in this slot.
    Slot(Slot),
    /// In this slot, and being recovered: it holds what is below `below`.
    Recovering {
        /// Its slot.
        slot: Slot,
        /// How far it was recovered, in sectors of its data.
        below: Sectors,
    },
    /// In this slot beside the member in sync, which is being copied to it: it holds what is below `below`.
    Replacing {
        /// The slot.
        slot: Slot,
        /// How far it was copied, in sectors of its data.
        below: Sectors,
    },
    /// Waiting.
    Spare,
}

/// A member of the array that starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberPlan {
    /// Its index in the list of candidates.
    pub candidate: usize,
    /// Its place in the freshest superblock.
    pub place: Place,
    /// Its own superblock, as found: its events may lag behind [`StartPlan::events`].
    pub superblock: Superblock,
    /// Its bad-block log: the sectors that it lacks, in the order of its disk.
    pub bad_blocks: BadBlockLog,
}

impl MemberPlan {
    /// Whether it is the second member of a slot, and holds everything: both stay.
    pub fn is_whole_replacement(&self) -> bool {
        let has_offset = self.superblock.features.contains(Features::RECOVERY_OFFSET);
        matches!(self.place, Place::Replacing { below, .. } if !has_offset && below >= self.superblock.size)
    }
}

/// A candidate that is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its index in the list of candidates.
    pub candidate: usize,
    /// Why.
    pub reason: Refusal,
}

/// Why a candidate is left out. The text follows the candidate's name and a colon.
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
        /// The freshest event count. A member one below it can still be current.
        expected: u64,
    },
    /// The freshest superblock records it as failed or removed.
    Faulty {
        /// Its event count.
        found: u64,
        /// The event count of the superblock that says so.
        recorded: u64,
    },
    /// The freshest superblock lists it in another slot than its own superblock does: its data belongs elsewhere.
    Moved {
        /// The slot by its own superblock.
        found: Slot,
        /// The slot by the freshest one.
        expected: Slot,
    },
    /// Its history and the freshest one exclude each other, and `--force` chose the other history.
    SplitBrain {
        /// Its event count.
        found: u64,
        /// The event count of the chosen history.
        expected: u64,
    },
    /// It was being recovered for a slot that has a member in sync.
    NotInSync {
        /// The slot it was rebuilt for.
        slot: Slot,
        /// How far it is rebuilt.
        found: Sectors,
        /// What a member in sync holds.
        expected: Sectors,
    },
    /// The device is now smaller than the member's data.
    Shrank {
        /// The device's size.
        found: Sectors,
        /// Where its data ends.
        expected: Sectors,
    },
    /// A spare that does not fit the array.
    Mismatch {
        /// The field that differs.
        field: &'static str,
        /// The candidate's value.
        found: i128,
        /// The freshest superblock's value.
        expected: i128,
    },
    /// Its role is a slot that the array does not have.
    NoSlot {
        /// The role's number.
        found: u16,
        /// How many the array has.
        slots: u32,
    },
    /// It is the array's journal.
    Journal,
    /// It has no usable part in the array: a reserved role, or no entry in the role table.
    NoRole,
}

impl Refusal {
    /// The slot that a role would name without bit 15, which some vendors use as a flag.
    pub fn flagged_slot(&self) -> Option<Slot> {
        let Refusal::NoSlot { found, slots } = self else { return None };
        let slot = Role::from_raw(found & 0x7fff).slot()?;
        (slot.0 != *found && u32::from(slot.0) < *slots).then_some(slot)
    }
}

/// Why the array is read-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOnlyReason {
    /// The operator asked for it.
    Requested,
    /// The superblocks are of version 0.90, which uraid reads and does not write.
    OldSuperblock,
    /// An internal write-intent bitmap would have to be updated, and was not read: see [`StartPlan::take_bitmaps`].
    Bitmap,
    /// An internal write-intent bitmap would have to be updated, and cannot be.
    BitmapUnusable(BitmapUnusable),
    /// A partial parity log would have to be updated, and cannot be.
    Ppl,
    /// A member has bad blocks recorded.
    BadBlocks,
    /// The event count is so high that uraid could not read back a later one: see [`Superblock::EVENTS_WRITE_END`].
    Events {
        /// The freshest event count.
        found: u64,
    },
    /// Beside a member in sync there is one that was being recovered for the same slot. A write would record it as
    /// failed.
    TwoMembers,
    /// It has a journal, and is read without it, by force.
    Journal,
    /// A member is itself an array that may only be read. [`assemble`] never sets this: it does not know what members
    /// are.
    Member,
}

/// What `--force` was needed for. The engine records it when the array starts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Forced {
    /// Candidates that were taken although they missed changes.
    pub raised: Vec<usize>,
    /// The slots of `raised`, the freshest event count first, if some of their chunks have fresher copies: each set
    /// counts only where no fresher member has a copy. Until a resync has ended, no superblock lists these members: a
    /// start without `--force` would take them for as fresh as the others.
    ///
    /// ```text
    ///   raid10, 2 copies of 3    chunk   0  1  2        slot 0 is current, 1 missed changes, 2 is lost:
    ///                  slot 0     A  .  C  A            chunk A, C: slot 0
    ///                  slot 1     A  B  .  A            chunk B: slot 1, which is taken for it
    ///                  slot 2     .  B  C  .
    /// ```
    pub older: Vec<SlotSet>,
    /// The array was dirty and degraded: blocks of missing members may be reconstructed wrongly.
    pub is_dirty_degraded: bool,
    /// One of several exclusive histories was chosen.
    pub is_split_brain: bool,
}

/// How the array starts.
#[derive(Clone, Debug)]
pub struct StartPlan {
    /// The addresses.
    pub layout: Layout,
    /// The members that take part: slots ascending, then those being recovered, then those that replace another one, then
    /// spares by dev_number.
    pub members: Vec<MemberPlan>,
    /// Slots without a member in sync.
    pub missing: SlotSet,
    /// The candidates that were left out, in the order of the candidates.
    pub refused: Vec<Refused>,
    /// The freshest superblock. Everything that the members share is taken from it.
    pub template: Superblock,
    /// A resync must run before the array serves writes.
    pub is_dirty: bool,
    /// The array may only be read.
    pub read_only: Option<ReadOnlyReason>,
    /// Why it may only be read even if its bitmap can be kept up to date.
    pub read_only_besides: Option<ReadOnlyReason>,
    /// Its write-intent bitmap, if it has one that is kept up to date.
    pub bitmap: Option<BitmapPlan>,
    /// Its partial parity log, if it has one that can be kept up to date.
    pub ppl: Option<PplPlan>,
    /// The event count of the freshest superblock. Members below it must be brought up to it, durably, before any
    /// member gets a higher count: see [`StartPlan::lagging`].
    pub events: u64,
    /// What `--force` was needed for.
    pub forced: Forced,
}

impl StartPlan {
    /// Whether blocks of a missing member could be read wrong until what the partial parity logs name is made good. An
    /// array that is only read is not started then; a caller that lays [`PplPlan::replays`] over its members in memory
    /// takes them out of the plan.
    pub fn must_write_to_read(&self) -> bool {
        let has_replays = self.ppl.as_ref().is_some_and(|ppl| !ppl.replays.is_empty());
        self.is_dirty && !self.missing.is_empty() && has_replays
    }

    /// Indexes into `members` of the members in a slot whose superblock on disk is behind `events`.
    ///
    /// The caller must write them with `events` and the template's roles, and wait for that, before the next round
    /// increments the events. Otherwise a crash in that round could leave one member two events ahead of the rest, and
    /// the rest stale. Members taken by force are not among them: the template's roles leave them out, and only the
    /// next round adds them.
    pub fn lagging(&self) -> impl Iterator<Item = usize> + '_ {
        let is_lagging = |member: &MemberPlan| match member.place {
            Place::Slot(_) | Place::Recovering { .. } | Place::Replacing { .. } => {
                member.superblock.events < self.events && !self.forced.raised.contains(&member.candidate)
            }
            Place::Spare => false,
        };
        self.members.iter().enumerate().filter(move |(_, member)| is_lagging(member)).map(|(at, _)| at)
    }
}

/// Decides which candidates start as which members.
///
/// - The set is the one that more than half of the candidates belong to. The other candidates are refused as foreign.
/// - The freshest superblock is the one with the most events among those that have a slot. Everything shared comes
///   from it, and so does every member's role. A member is current if it is at most one event behind *and* the freshest
///   superblock still lists it in its own slot: a member that failed can be exactly one event behind.
/// - Histories that exclude each other, because members each ran without the others, are an error.
/// - If more members are missing than the freshest superblock records, that is an error without `run`, as in md.
/// - A dirty raid4, 5 or 6 is an error if a missing member's blocks would be reconstructed: parity that a crash left
///   half-written would produce wrong data for it. A raid5 whose partial parity log makes that parity good starts.
/// - An array starts read-only if a bitmap, a partial parity log or a bad-block list would have to be updated, and cannot
///   be, and by force if it has a journal. A reshape, a journal, a clustered bitmap or unknown feature bits are an error. [`StartPlan::take_bitmaps`] lets an
///   array with a bitmap take writes.
/// - A member to which another one is being copied goes on being one. Without that other member, it is recovered; if it
///   holds everything, it has the slot.
/// - A member that was being rebuilt for a slot that has one in sync is left out, and the array starts read-only: a write
///   would record this member as failed. With `run` it takes writes anyway.
///
/// `force` gives up data for service, always in the same way; [`Forced`] says what it was needed for. It takes members
/// that missed changes, the freshest first, of one event count at a time, until there are enough: those of which a chunk
/// is on no fresher member. Where a fresher one has a copy, theirs is not read and not copied. It accepts dirty and
/// degraded. Of several histories it takes the freshest, of equally fresh ones the one with the most members, then
/// the one with the lowest dev_number. The array is dirty then, so that the first pass makes the redundancy agree with
/// what is there. It implies `run`.
///
/// Duplicates are an error even with `force`: two candidates with one device id always, two for one slot or one
/// dev_number when nothing makes one of them stale.
pub fn assemble(candidates: &[Candidate], options: &AssembleOptions) -> Result<StartPlan, AssembleError> {
    let chosen = choose::choose(candidates, options.force)?;
    start::start(candidates, chosen, options)
}

/// The text that follows the candidate's name.
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
                write!(out, "shrank: device has {}, its data needs {}", found.size(), expected.size())
            }
            Refusal::Mismatch { field, found, expected } => {
                write!(out, "does not fit: {field} is {found}, expected {expected}")
            }
            Refusal::NoSlot { found, slots } => {
                write!(out, "has role {found} ({found:#x}), and the array has {slots} slots")?;
                match self.flagged_slot() {
                    Some(slot) => write!(
                        out,
                        ": without bit 15, which some NAS vendors set after a read error, it would be that of {slot}; \
                         `uraid copy --force` reads it there"
                    ),
                    None => Ok(()),
                }
            }
            Refusal::Journal => out.write_str("is the array's journal, which uraid does not read"),
            Refusal::NoRole => out.write_str("has no role that could be used"),
        }
    }
}

/// The text that follows "read-only: ".
impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ReadOnlyReason::Requested => "as requested",
            ReadOnlyReason::OldSuperblock => {
                "its superblocks are of version 0.90, which are not written; `mdadm --assemble --update=metadata` converts them"
            }
            ReadOnlyReason::Bitmap => "the array has an internal bitmap, which writes would have to keep up to date",
            ReadOnlyReason::BitmapUnusable(error) => {
                return write!(
                    out,
                    "{error}, and writes would have to keep it up to date; `mdadm --assemble --update=no-bitmap` removes it"
                );
            }
            ReadOnlyReason::Ppl => {
                "the array has a partial parity log that cannot be kept up to date: uraid keeps one on a raid5 without a \
                 bitmap, with room for a chunk, or 64 KiB of a larger one, on every member; \
                 `uraid update no-ppl` removes it, while the array is stopped"
            }
            ReadOnlyReason::BadBlocks => {
                "a member has a list of bad blocks in a form that uraid reads and does not write"
            }
            ReadOnlyReason::Events { found } => {
                return write!(
                    out,
                    "its superblocks count {found} events, expected below {}: no array counts so far, so something else \
                     has written this; copy its data to a new array",
                    Superblock::EVENTS_WRITE_END
                );
            }
            ReadOnlyReason::Journal => {
                "it has a journal, which uraid does not read: writes that were only there are missing"
            }
            ReadOnlyReason::Member => "a member is an array that opens read-only itself",
            ReadOnlyReason::TwoMembers => {
                "a slot has a member in sync and another one that was being rebuilt for it; --run writes to the array \
                 without the second one, which is then rebuilt from the beginning"
            }
        };
        out.write_str(text)
    }
}
