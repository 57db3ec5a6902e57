//! `uraid update`: changes the superblocks of a stopped array.
//! Owns: which arrays may be changed, how an interrupted change of the id goes on. Not here: the order of the writes
//! (`writes`), what a change is (`uraid_format::update`), which members make up the array (`engine::assemble`).
//! Invariant: every member is claimed and checked before any is changed.

pub(crate) mod args;
mod each;
mod writes;

use crate::create::steps::carry_out;
use args::{UpdateArgs, What as UpdateWhat};
use each::EachError;
use std::collections::BTreeSet;
use uraid_control::log::print;
use uraid_control::names::{self, printable};
use uraid_engine::{AssembleOptions, Candidate, Place, StartPlan};
use uraid_format::bitmap::BitmapUnusable;
use uraid_format::update::{Change, UpdateError};
use uraid_format::{NameTooLong, SetName, Superblock, Version, uuid};
use uraid_host::{Access, Claimed};
use uraid_serve::assembly::{self, NamedError};
use uraid_serve::metadata::{ClaimError, MetadataError};
use uraid_serve::opening::{self, Opened, ServeError, Timeouts};
use writes::{Beside, needs_bitmaps, steps};

/// Why nothing was changed, or not all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpdateRefusal {
    /// A member could not be claimed.
    #[error("nothing was changed")]
    Claim(#[from] ClaimError),
    /// The members could not be read.
    #[error("nothing was changed")]
    Open(#[source] Box<ServeError>),
    /// The members make up no array.
    #[error("nothing was changed")]
    Assemble(#[from] NamedError),
    /// Named members are not of the array, or cannot be read.
    #[error("{count} of the members cannot be used, see above: name all members of one array; nothing was changed")]
    LeftOut { count: usize },
    /// A slot has no member in sync.
    #[error(
        "{array}: {missing} of its {slots} slots have no member in sync: name all of its members, or serve it until it is whole; nothing was changed"
    )]
    Degraded { array: String, missing: usize, slots: u16 },
    /// It was not stopped, or is new.
    #[error("{array}: is dirty: serve it until it is consistent, and stop it; nothing was changed")]
    Dirty { array: String },
    /// A member is being copied to a second one of its slot.
    #[error("{array}: a member is being replaced: serve it until that has ended, and stop it; nothing was changed")]
    Replacing { array: String },
    /// An update of the id was interrupted.
    #[error(
        "the members name two arrays with one name, {found} and {other}, as an interrupted update leaves them: give --uuid \
         {found} or --uuid {other}, and all members get it; nothing was changed"
    )]
    Interrupted { found: String, other: String },
    /// The bitmap of a member, whose header names the array, is damaged.
    #[error(
        "{member}: its bitmap cannot be used: serve the array, which writes it again if another member has it, and stop it; \
         nothing was changed"
    )]
    Bitmap { member: String, source: BitmapUnusable },
    /// 0.90 is not written.
    #[error("{array}: its superblocks are of version 0.90, which uraid does not write; nothing was changed")]
    Old { array: String },
    /// Its event count leaves no room.
    #[error("{array}: its superblocks count {found} events, which uraid does not write; nothing was changed")]
    Events { array: String, found: u64 },
    /// The new name does not fit.
    #[error("nothing was changed")]
    Name(#[from] NameTooLong),
    /// A member cannot be changed so.
    #[error("{member}: {source}; nothing was changed")]
    Member { member: String, source: UpdateError },
    /// A member cannot be changed so, by itself.
    #[error("{member}: {source}; nothing was changed")]
    Each { member: String, source: EachError },
    /// A write failed, and each superblock stands for itself.
    #[error("not all superblocks were changed; the same command goes on")]
    WriteEach(#[source] MetadataError),
    /// A write failed.
    #[error(
        "not all superblocks were changed: the array starts without the change or with it; the same command goes on"
    )]
    Write(#[source] MetadataError),
    /// A write failed, and the id was to be changed.
    #[error(
        "not all members have the new UUID, and the array may not start before they do: `uraid update uuid --uuid {uuid}` \
         with all members goes on"
    )]
    WriteUuid { uuid: String, source: MetadataError },
}

/// Changes the superblocks.
pub(crate) fn run(args: &UpdateArgs) -> Result<(), UpdateRefusal> {
    let new_names = args.new_names();
    if let Some(field) = each::field(args.what) {
        return each::run(args, field);
    }
    let mut opened = open_all(&args.members)?;
    if args.what == UpdateWhat::Uuid {
        unite(&mut opened.candidates, args.uuid)?;
    }
    let Opened { members, candidates, .. } = &opened;
    // Members that are missing are named below: there is no --run to offer.
    let options = AssembleOptions { run: true, ..AssembleOptions::default() };
    let plan = assembly::decide(candidates, &opened.names(), &options)?;
    let array = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
    check(&plan, &array)?;
    let change = change(args, new_names, &plan.template.set_name)?;
    let devices: Vec<&Claimed> = plan.members.iter().map(|member| &members[member.candidate]).collect();
    let name = |at: usize| devices[at].name().to_owned();
    let besides = plan.members.iter().enumerate().map(|(at, member)| {
        let found = opened.bitmap(member.candidate).filter(|_| needs_bitmaps(&change));
        // A spare that joined without a bitmap gets one when it takes a slot.
        let bitmap = match (member.place, found) {
            (Place::Spare, found) => Ok(found.and_then(Result::ok)),
            (Place::Slot(_) | Place::Recovering { .. } | Place::Replacing { .. }, found) => found.transpose(),
        };
        let bitmap = bitmap.map_err(|source| UpdateRefusal::Bitmap { member: name(at), source })?;
        Ok(Beside { device_size: candidates[member.candidate].device_size, bitmap })
    });
    let besides = besides.collect::<Result<Vec<Beside>, UpdateRefusal>>()?;
    let steps = steps(&plan, &besides, &change);
    let steps = steps.map_err(|(at, source)| UpdateRefusal::Member { member: name(at), source })?;
    let is_nothing = steps.is_empty();
    let new_id = if let Change::Uuid(uuid) = &change { Some(uuid::text(uuid)) } else { None };
    if let Some(uuid) = new_id.as_ref().filter(|_| !is_nothing) {
        // Before the first write: it is needed to go on.
        print(&format!("{}: its UUID becomes {uuid}\n", printable(&array)));
    }
    carry_out(&steps, &devices).map_err(|(at, source)| {
        let member = devices[steps[at].member].name().to_owned();
        let error = MetadataError::Io { member, action: steps[at].action(), source };
        match new_id {
            Some(uuid) => UpdateRefusal::WriteUuid { uuid, source: error },
            None => UpdateRefusal::Write(error),
        }
    })?;
    let told = told(&change);
    print(&format!("{}: {told}{}\n", printable(&array), if is_nothing { " already" } else { "" }));
    Ok(())
}

/// Claims all members, and reads their superblocks.
fn open_all(members: &[String]) -> Result<Opened, UpdateRefusal> {
    let opened = opening::open(members, Access::ReadWrite, &Timeouts::begin());
    let opened = opened.map_err(|error| {
        if let ServeError::Claim(error) = error {
            return UpdateRefusal::Claim(error);
        }
        UpdateRefusal::Open(Box::new(error))
    })?;
    let count = members.len() - opened.members.len();
    if count > 0 { Err(UpdateRefusal::LeftOut { count }) } else { Ok(opened) }
}

fn told(change: &Change) -> String {
    match change {
        Change::Ppl => "consistency policy: ppl".to_owned(),
        Change::NoPpl => "consistency policy: no ppl".to_owned(),
        Change::Resync => "dirty: its next start resyncs all of it".to_owned(),
        Change::Name(name) => format!("name: {}", printable(&name.as_str())),
        Change::NoBadBlocks => "bad-block lists: none".to_owned(),
        Change::BadBlocks => "bad-block lists: on every member".to_owned(),
        Change::DeviceSize => "room for data: up to the end of every device".to_owned(),
        Change::Uuid(uuid) => format!("UUID: {}", uuid::text(uuid)),
    }
}

/// Counts members with the id `new` as members of the array that the others name, if an update was interrupted: the two
/// groups agree in all that was chosen when the array was made.
fn unite(candidates: &mut [Candidate], new: Option<[u8; 16]>) -> Result<(), UpdateRefusal> {
    let ids: BTreeSet<[u8; 16]> = candidates.iter().map(|candidate| candidate.superblock.set_uuid).collect();
    let made = |candidate: &Candidate| {
        let Superblock { created, level, layout, chunk, raid_disks, .. } = candidate.superblock;
        (created, level, layout, chunk, raid_disks, candidate.superblock.set_name.as_str().into_owned())
    };
    let are_one = candidates.windows(2).all(|pair| made(&pair[0]) == made(&pair[1]));
    let (Some(&found), Some(&other), true) = (ids.first(), ids.last(), ids.len() == 2 && are_one) else {
        return Ok(());
    };
    let Some(new) = new.filter(|new| ids.contains(new)) else {
        return Err(UpdateRefusal::Interrupted { found: uuid::text(&found), other: uuid::text(&other) });
    };
    let old = if new == found { other } else { found };
    for candidate in candidates.iter_mut().filter(|candidate| candidate.superblock.set_uuid == new) {
        candidate.superblock.set_uuid = old;
    }
    Ok(())
}

fn check(plan: &StartPlan, array: &str) -> Result<(), UpdateRefusal> {
    let array = || printable(array);
    let found = plan.events;
    if !plan.refused.is_empty() {
        Err(UpdateRefusal::LeftOut { count: plan.refused.len() })
    } else if plan.template.version == Version::V0_90 {
        Err(UpdateRefusal::Old { array: array() })
    } else if !plan.missing.is_empty() {
        Err(UpdateRefusal::Degraded { array: array(), missing: plan.missing.count(), slots: plan.layout.slots() })
    } else if plan.is_dirty {
        Err(UpdateRefusal::Dirty { array: array() })
    } else if plan.members.iter().any(|member| matches!(member.place, Place::Replacing { .. })) {
        Err(UpdateRefusal::Replacing { array: array() })
    } else if found >= Superblock::EVENTS_WRITE_END {
        Err(UpdateRefusal::Events { array: array(), found })
    } else {
        Ok(())
    }
}

fn change(args: &UpdateArgs, names: (Option<&str>, Option<&str>), now: &SetName) -> Result<Change, NameTooLong> {
    let renamed = |name: Option<&str>, host: Option<&str>| {
        let wanted = host.map(|host| names::homehost(Some(host)));
        let (host, name) =
            (wanted.clone().or_else(|| now.host()).unwrap_or_default(), name.map_or_else(|| now.name(), str::to_owned));
        let new = SetName::new(&host, &name)?;
        match wanted {
            // mdadm's rule drops a host that does not fit. Here it was asked for.
            Some(host) if !host.is_empty() && new.host().as_ref() != Some(&host) => {
                Err(NameTooLong { found: host.len() + 1 + name.len(), maximum: SetName::BYTES - 1 })
            }
            Some(_) | None => Ok(Change::Name(new)),
        }
    };
    match args.what {
        UpdateWhat::Ppl => Ok(Change::Ppl),
        UpdateWhat::NoPpl => Ok(Change::NoPpl),
        UpdateWhat::Resync => Ok(Change::Resync),
        UpdateWhat::NoBbl => Ok(Change::NoBadBlocks),
        UpdateWhat::Bbl => Ok(Change::BadBlocks),
        UpdateWhat::DeviceSize => Ok(Change::DeviceSize),
        UpdateWhat::Uuid => Ok(Change::Uuid(args.uuid.unwrap_or_else(|| *::uuid::Uuid::new_v4().as_bytes()))),
        UpdateWhat::Name | UpdateWhat::Homehost => renamed(names.0, names.1),
        UpdateWhat::LogicalBlockSize | UpdateWhat::LayoutOriginal | UpdateWhat::LayoutAlternate => {
            unreachable!("each member is updated by itself")
        }
    }
}
