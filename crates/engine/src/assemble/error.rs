//! Why no array can be started from the given members.
//! Owns: [`AssembleError`] and its texts. Not here: why one member is left out ([`super::Refusal`]).

use super::{Refusal, Refused};
use std::fmt;
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::{ReshapeError, uuid};
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
    /// Indexes of the candidates with this history.
    pub candidates: Vec<usize>,
    /// Their event count.
    pub events: u64,
    /// The latest update time among them, in seconds since 1970. For display only: clocks may be wrong.
    pub updated_seconds: u64,
    /// The slots that have a member in this history.
    pub slots: Vec<Slot>,
}

/// A member in a slot whose recovery has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartlyRecovered {
    /// Index of the candidate.
    pub candidate: usize,
    /// Its slot.
    pub slot: Slot,
    /// Sectors from its first one on that it holds.
    pub found: Sectors,
    /// Sectors that it must hold.
    pub expected: Sectors,
}

/// What two candidates share although it must be unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicate {
    /// The device's id: one is a copy of the other.
    DeviceUuid,
    /// The entry in the role table.
    DevNumber(u32),
    /// The slot.
    Slot(Slot),
}

/// A feature that uraid cannot serve correctly, not even for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// A reshape has begun.
    Reshape,
    /// A reshape has begun, and what the superblock says of it is impossible.
    ReshapeFields(ReshapeError),
    /// A raid456 journal.
    Journal,
    /// A bitmap shared by several hosts.
    Clustered,
    /// Feature bits that uraid does not know.
    Features(u32),
    /// A level that uraid does not know.
    Level(i32),
}

/// Why no array can be started. Candidate numbers are indexes into the given list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AssembleError {
    /// The list is empty.
    NoCandidates,
    /// Candidates of several arrays, none with more than half of them.
    SeveralArrays {
        /// The arrays.
        sets: Vec<SetCount>,
    },
    /// No candidate has, or had, a slot.
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
        /// The candidate's value.
        found: i128,
        /// The freshest superblock's value.
        expected: i128,
    },
    /// The members ran apart.
    SplitBrain {
        /// The histories, freshest first.
        histories: Vec<History>,
    },
    /// A feature that would make even reading wrong.
    Unsupported(Unsupported),
    /// More slots than uraid supports.
    TooManySlots {
        /// Slots of the array.
        found: u32,
        /// The most slots that uraid supports.
        maximum: u32,
    },
    /// More members are missing than the level survives.
    TooFewMembers {
        /// The level.
        level: &'static str,
        /// Members in sync that were found.
        found: usize,
        /// Slots of the array.
        slots: u16,
        /// The least number that is enough.
        expected: usize,
        /// Slots without a member in sync.
        missing: SlotSet,
        /// The candidates in these slots that hold only a part of what they must.
        recovering: Box<[PartlyRecovered]>,
        /// The candidates that were left out, and why.
        refused: Vec<Refused>,
        /// Whether `--force` can help: a stale member could fill a slot.
        can_force: bool,
    },
    /// More members are missing than the superblocks record.
    NeedsRun {
        /// Members in sync that were found.
        found: usize,
        /// Members that the freshest superblock lists.
        expected: usize,
        /// Slots that should have a member.
        missing: SlotSet,
        /// The candidates that were left out, and why.
        refused: Vec<Refused>,
    },
    /// The parity may be wrong, and members that it would have to replace are missing.
    DirtyDegraded {
        /// The level.
        level: &'static str,
        /// Slots without a member in sync, whose data would be guessed.
        missing: SlotSet,
        /// The candidates in these slots that hold only a part of what they must.
        recovering: Vec<PartlyRecovered>,
        /// The candidates that were left out, and why.
        refused: Vec<Refused>,
    },
    /// The superblock describes an impossible layout.
    Layout(LayoutError),
}

/// The name of a candidate, from its index.
type Name<'a> = &'a dyn Fn(usize) -> String;

/// An error's text with names instead of indexes.
pub struct Named<'a> {
    error: &'a AssembleError,
    name: Name<'a>,
}

impl AssembleError {
    /// The text with the candidates' names, usually paths.
    pub fn named<'a>(&'a self, name: &'a dyn Fn(usize) -> String) -> Named<'a> {
        Named { error: self, name }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>, name: Name<'_>) -> fmt::Result {
        match self {
            AssembleError::NoCandidates => out.write_str("no members are given, at least one is needed"),
            AssembleError::SeveralArrays { sets } => write_sets(out, sets, name),
            AssembleError::OnlySpares { found } => {
                write!(out, "none of the given members has a slot, {found} are spares: give the members with the data")
            }
            AssembleError::Duplicate { what, candidates: [one, other] } => {
                let (one, other) = (name(*one), name(*other));
                write!(
                    out,
                    "{one} and {other} have the same {what}: leave out the one that is a copy or does not belong"
                )
            }
            AssembleError::Mismatch { candidate, field, found, expected } => {
                let name = name(*candidate);
                write!(out, "{name}: {field} is {found}, the freshest member says {expected}: ")?;
                out.write_str(match *field {
                    "layout" => {
                        "leave it out, or, of a raid0 whose `uraid update layout-...` was interrupted, update it again"
                    }
                    _ => "leave it out",
                })
            }
            AssembleError::SplitBrain { histories } => write_histories(out, histories, name),
            // The kernel refuses impossible fields too.
            AssembleError::Unsupported(what @ Unsupported::ReshapeFields(_)) => write!(out, "the array {what}"),
            AssembleError::Unsupported(what @ Unsupported::Journal) => write!(
                out,
                "the array {what}: --force reads it without; if it was not stopped cleanly, writes that were only in the \
                 journal are missing then, and `mdadm --assemble` has them"
            ),
            AssembleError::Unsupported(what) => write!(out, "the array {what}: start it with md"),
            AssembleError::TooManySlots { found, maximum } => {
                write!(out, "the array has {found} slots, at most {maximum} are supported")
            }
            AssembleError::TooFewMembers { .. } => self.write_too_few(out, name),
            AssembleError::NeedsRun { found, expected, missing, refused } => {
                let members = if *found == 1 { "member" } else { "members" };
                write!(out, "found {found} {members}, the superblocks count {expected}; {}", without_member(missing))?;
                write_refused(out, refused, name)?;
                out.write_str(if is_one_not_given(missing, refused) {
                    "; give the missing members, or "
                } else {
                    "; "
                })?;
                out.write_str("--run to start degraded")
            }
            AssembleError::DirtyDegraded { level, missing, recovering, refused } => {
                let missing = &missing.minus(recovering.iter().map(|member| member.slot).collect());
                write!(out, "the {level} is dirty and degraded")?;
                if !missing.is_empty() {
                    write!(out, ", {}", without_member(missing))?;
                }
                write_recovering(out, recovering, name)?;
                write_refused(out, refused, name)?;
                out.write_str(
                    "; a crash may have left its parity half-written, and missing data rebuilt from that would ",
                )?;
                out.write_str("be wrong in places; ")?;
                let is_one_to_give = !missing.is_empty() && is_one_not_given(missing, refused);
                out.write_str(if is_one_to_give { "give the missing member, or " } else { "" })?;
                out.write_str("--force to accept that")
            }
            AssembleError::Layout(LayoutError::ZonesWithoutLayout { .. }) => {
                out.write_str("the superblocks do not say how the array is laid out")
            }
            AssembleError::Layout(_) => out.write_str("the superblock describes an array that cannot be"),
        }
    }

    fn write_too_few(&self, out: &mut fmt::Formatter<'_>, name: Name<'_>) -> fmt::Result {
        let AssembleError::TooFewMembers { level, found, slots, expected, missing, recovering, refused, can_force } =
            self
        else {
            unreachable!("called for this variant alone");
        };
        let missing = &missing.minus(recovering.iter().map(|member| member.slot).collect());
        write!(out, "found {found} of {slots} members, {level} needs ")?;
        match found < expected {
            true => write!(out, "at least {expected}")?,
            false => out.write_str("others: all copies of some data are missing")?,
        }
        if !missing.is_empty() {
            write!(out, "; {}", without_member(missing))?;
        }
        for PartlyRecovered { candidate, slot, found, expected } in recovering {
            let (name, found, expected) = (name(*candidate), found.0, expected.0);
            write!(out, "; {name} ({slot}) is only partly recovered, {found} of {expected} sectors")?;
        }
        write_refused(out, refused, name)?;
        match (is_one_not_given(missing, refused), can_force) {
            (true, true) => {
                out.write_str("; give the missing members, or --force to take stale members and lose what they missed")
            }
            (true, false) => out.write_str("; give the missing members"),
            (false, true) => out.write_str("; --force takes stale members and loses what they missed"),
            (false, false) => out.write_str("; no given member can take these slots"),
        }
    }
}

/// `slots without a member: 0, 3`.
fn without_member(slots: &SlotSet) -> String {
    let numbers: Vec<String> = slots.iter().map(|slot| slot.0.to_string()).collect();
    format!("slots without a member: {}", numbers.join(", "))
}

/// `slot 0, slot 3`.
fn list(slots: &SlotSet) -> String {
    slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(", ")
}

fn names(candidates: &[usize], name: Name<'_>) -> String {
    candidates.iter().map(|at| name(*at)).collect::<Vec<_>>().join(", ")
}

fn write_recovering(out: &mut fmt::Formatter<'_>, recovering: &[PartlyRecovered], name: Name<'_>) -> fmt::Result {
    for PartlyRecovered { candidate, slot, found, expected } in recovering {
        let (name, found, expected) = (name(*candidate), found.0, expected.0);
        write!(
            out,
            "; {name} ({slot}) is only partly recovered, {found} of {expected} sectors: what it lacks cannot be computed \
             for sure"
        )?;
    }
    Ok(())
}

fn write_refused(out: &mut fmt::Formatter<'_>, refused: &[Refused], name: Name<'_>) -> fmt::Result {
    for Refused { candidate, reason } in refused {
        write!(out, "; {}: left out: {reason}", name(*candidate))?;
    }
    Ok(())
}

/// Whether the empty slots outnumber the given members of this array that were left out. Only then can the user add a
/// member.
fn is_one_not_given(missing: &SlotSet, refused: &[Refused]) -> bool {
    let had_a_slot = |refused: &&Refused| match refused.reason {
        Refusal::Stale { .. }
        | Refusal::Faulty { .. }
        | Refusal::Moved { .. }
        | Refusal::SplitBrain { .. }
        | Refusal::NotInSync { .. }
        | Refusal::Shrank { .. } => true,
        Refusal::Foreign { .. }
        | Refusal::Mismatch { .. }
        | Refusal::NoSlot { .. }
        | Refusal::Journal
        | Refusal::NoRole => false,
    };
    missing.count() > refused.iter().filter(had_a_slot).count()
}

fn write_sets(out: &mut fmt::Formatter<'_>, sets: &[SetCount], name: Name<'_>) -> fmt::Result {
    write!(out, "the members belong to {} arrays, expected one:", sets.len())?;
    for SetCount { set_uuid, name: set_name, candidates } in sets {
        write!(out, " {} ({set_name}) has {};", uuid::text(set_uuid), names(candidates, name))?;
    }
    out.write_str(" give the members of one")
}

fn write_histories(out: &mut fmt::Formatter<'_>, histories: &[History], name: Name<'_>) -> fmt::Result {
    out.write_str("split brain: the members ran apart, and each side has what the other lacks:")?;
    for History { candidates, events, updated_seconds: _, slots } in histories {
        let slots: SlotSet = slots.iter().copied().collect();
        let names = names(candidates, name);
        write!(out, " {names}: {events} events, ran with {};", list(&slots))?;
    }
    out.write_str(" give one side only, or --force to take the freshest")
}

impl fmt::Display for Duplicate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duplicate::DeviceUuid => out.write_str("device id"),
            Duplicate::DevNumber(number) => write!(out, "device number {number}"),
            Duplicate::Slot(slot) => write!(out, "place, {slot}"),
        }
    }
}

/// The text that follows "the array ".
impl fmt::Display for Unsupported {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Reshape => out.write_str("is being reshaped, which only `uraid copy` reads so far"),
            Unsupported::ReshapeFields(error) => write!(out, "is being reshaped, but its {error}"),
            Unsupported::Journal => out.write_str("has a journal, which is not supported"),
            Unsupported::Clustered => out.write_str("has a clustered bitmap, which is not supported"),
            Unsupported::Features(bits) => write!(out, "uses features {bits:#x}, which this program does not know"),
            Unsupported::Level(level) => write!(out, "has level {level}, which this program does not know"),
        }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.write(out, self.name)
    }
}

/// Names candidates by their indexes; see [`AssembleError::named`] for names.
impl fmt::Display for AssembleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(out, &|candidate| format!("member {candidate}"))
    }
}

impl std::error::Error for AssembleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AssembleError::Layout(error) => Some(error),
            AssembleError::NoCandidates
            | AssembleError::SeveralArrays { .. }
            | AssembleError::OnlySpares { .. }
            | AssembleError::Duplicate { .. }
            | AssembleError::Mismatch { .. }
            | AssembleError::SplitBrain { .. }
            | AssembleError::Unsupported(_)
            | AssembleError::TooManySlots { .. }
            | AssembleError::TooFewMembers { .. }
            | AssembleError::NeedsRun { .. }
            | AssembleError::DirtyDegraded { .. } => None,
        }
    }
}
