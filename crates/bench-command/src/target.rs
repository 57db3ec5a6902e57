//! The array that `uraid bench` measures: a trial array that is gone afterwards, or an existing one.
//! Owns: the operator's consent, claiming the members, wiping what they held and the trial's superblocks. Not here:
//! planning and filling a trial array (`uraid_bench`).
//! Invariant: without consent nothing that outlives the run is changed. A trial leaves no superblock behind.

use uraid_arrays::Members;
use uraid_bench::{Screen, Target, Trial, TrialError};
use uraid_block::{IoError, SECTOR_BYTES};
use uraid_control::log::warn;
use uraid_control::member_name::is_fleeting;
use uraid_engine::AssembleOptions;
use uraid_format::SUPERBLOCK_BYTES;
use uraid_format::create::CreateError;
use uraid_host::{Access, Claimed};
use uraid_option_values::MISSING;
use uraid_serve::metadata::{self, ClaimError, MetadataError};
use uraid_serve::opening::{self, ServeError, Timeouts};
use uraid_serve::stack::Assembled;

/// Why there is nothing to measure.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The members would lose their data, and --destructive was not given.
    #[error("{member}: a member of a trial array loses what it holds; give --destructive if that is meant")]
    TrialNeedsConsent { member: String },
    /// The work writes to an existing array, and --destructive was not given.
    #[error("--rw {pattern} writes into the array, which loses what it holds; give --destructive if that is meant")]
    WritesNeedConsent { pattern: &'static str },
    /// --destructive was given, but the array is read-only.
    #[error("--rw {pattern} writes into the array, which can only be read: {reason}")]
    ReadOnly { pattern: &'static str, reason: uraid_engine::ReadOnlyReason },
    /// A member could not be claimed.
    #[error("nothing was measured")]
    Claim(#[from] ClaimError),
    /// Such an array cannot be made.
    #[error("the trial array cannot be made")]
    Create(#[source] Impossible),
    /// The trial array cannot be planned or filled.
    #[error(transparent)]
    Trial(TrialError),
    /// The existing array could not be opened.
    #[error(transparent)]
    Array(#[from] Box<ServeError>),
    /// A member failed before the run.
    #[error("{member}: {action} failed")]
    Member { member: String, action: &'static str, source: IoError },
    /// Old or new metadata could not be wiped.
    #[error(transparent)]
    Wipe(#[from] MetadataError),
}

/// Why a trial array cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Impossible {
    /// Its geometry is impossible.
    #[error(transparent)]
    Geometry(CreateError),
    /// It is impossible because of one member.
    #[error("{member}")]
    Member {
        /// Its name.
        member: String,
        /// What is wrong with it.
        source: CreateError,
    },
}

/// The name of each slot's member, or `missing`. If only one memory or null member is named, perhaps beside `missing`,
/// all other slots get a member like it.
fn slots(names: &[String], raid_devices: u16) -> Vec<String> {
    let present: Vec<&String> = names.iter().filter(|name| *name != MISSING).collect();
    let mut slots = names.to_vec();
    if let [one] = present[..]
        && is_fleeting(one)
        && slots.len() < usize::from(raid_devices)
    {
        slots.resize(raid_devices.into(), one.clone());
    }
    slots
}

/// A trial array, filled; see [`slots`].
pub(super) fn trial(
    trial: &Trial,
    names: &[String],
    destructive: bool,
    screen: &dyn Screen,
) -> Result<Target, TargetError> {
    let names = slots(names, trial.raid_devices);
    let is_lost = |name: &&String| *name != MISSING && !is_fleeting(name);
    if let Some(member) = names.iter().find(is_lost).filter(|_| !destructive) {
        return Err(TargetError::TrialNeedsConsent { member: member.clone() });
    }
    let claim = |name: &String| (name != MISSING).then(|| metadata::claim(name, Access::ReadWrite)).transpose();
    let members: Vec<Option<Claimed>> = names.iter().map(claim).collect::<Result<_, _>>()?;
    let target = Target::trial(trial, &members).map_err(|error| named(error, &names))?;
    wipe_old(&target.members)?;
    target.fill(screen).map_err(TargetError::Trial)?;
    Ok(target)
}

/// The array that these members make up; `writes` is fio's word for the work if it writes.
pub(super) fn existing(
    names: &[String],
    writes: Option<&'static str>,
    options: &AssembleOptions,
    destructive: bool,
) -> Result<Target, TargetError> {
    if let Some(pattern) = writes.filter(|_| !destructive) {
        return Err(TargetError::WritesNeedConsent { pattern });
    }
    let arrays = opening::assemble_all(&[names.to_vec()], options, &Timeouts::begin()).map_err(Box::new)?;
    let Assembled { plan, members, .. } = arrays.into_iter().next().expect("one group is one array");
    if let (Some(pattern), Some(reason)) = (writes, plan.read_only) {
        return Err(TargetError::ReadOnly { pattern, reason });
    }
    let members = match members {
        Members::Claimed(members) => members,
        Members::Arrays(_) => unreachable!("members are devices where no group is said to be an array"),
    };
    Ok(Target { plan, members, is_trial: false })
}

/// Wipes the signatures of what the members held: its data will be overwritten, so it must not be recognized any
/// more.
fn wipe_old(members: &[Claimed]) -> Result<(), TargetError> {
    for member in members.iter().filter(|member| !is_fleeting(member.name())) {
        let reading = |source| TargetError::Member { member: member.name().to_owned(), action: "reading", source };
        let marks = metadata::signatures(member).map_err(reading)?;
        if let Some(first) = marks.first() {
            warn(&format!("{}: carries {first}, which is given up", member.name()));
        }
        metadata::wipe(member, &marks)?;
    }
    Ok(())
}

/// After the run: wipes a trial's superblocks if the members outlive it.
pub(super) fn leave(target: &Target) -> Result<(), TargetError> {
    if !target.is_trial {
        return Ok(());
    }
    for (plan, member) in target.plan.members.iter().zip(&target.members) {
        if is_fleeting(member.name()) {
            continue;
        }
        let at = plan.superblock.super_offset.0 * SECTOR_BYTES as u64;
        let wiping = |source| TargetError::Member {
            member: member.name().to_owned(),
            action: "wiping the trial's superblock",
            source,
        };
        member.write_at(at, &[0; SUPERBLOCK_BYTES]).and_then(|()| member.sync()).map_err(wiping)?;
    }
    Ok(())
}

/// Adds the name of the member that does not fit.
fn named(error: TrialError, names: &[String]) -> TargetError {
    match error {
        TrialError::Create(error) => {
            let member = error.member().and_then(|at| names.get(at)).cloned();
            TargetError::Create(match member {
                Some(member) => Impossible::Member { member, source: error },
                None => Impossible::Geometry(error),
            })
        }
        error @ (TrialError::Open(_)
        | TrialError::Name(_)
        | TrialError::TooMuchMemory { .. }
        | TrialError::Assemble(_)
        | TrialError::Fill { .. }) => TargetError::Trial(error),
    }
}
