//! The array to measure: a trial array that is gone afterwards, or an existing one.
//! Owns: [`Target`], making trial arrays, filling their members, the operator's consent. Not here: the content of a
//! superblock (`uraid_format`), which members make up an array (`uraid_engine::assemble`).
//! Invariant: without consent nothing that outlives the run is changed. A trial leaves no superblock behind.

use super::progress::Progress;
use super::work::Luck;
use crate::create::{self, Refusal};
use crate::metadata::{self, ClaimError, MetadataError};
use crate::serve::{self, ServeError, Timeouts};
use crate::stack::Assembled;
use crate::warn;
use uraid_arrays::Members;
use uraid_block::sizes;
use uraid_block::{IoError, SECTOR_BYTES, Sectors};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember};
use uraid_format::{NameTooLong, SUPERBLOCK_BYTES, SetName, Version};
use uraid_host::{Access, Claimed};
use uraid_layout::{Level, layout_name};

/// Bytes of one write of the filling.
const FILL_BYTES: usize = 1 << 20;

/// Why there is nothing to measure.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Data would be lost that the operator has not given up.
    #[error("{member}: a member of a trial array loses what it holds; give --destructive if that is meant")]
    TrialNeedsConsent {
        /// Its name.
        member: String,
    },
    /// Writes into an array that exists.
    #[error("--rw {pattern} writes into the array, which loses what it holds; give --destructive if that is meant")]
    WritesNeedConsent {
        /// fio's word.
        pattern: &'static str,
    },
    /// Consent to write, but the array is read-only.
    #[error("--rw {pattern} writes into the array, which can only be read: {reason}")]
    ReadOnly {
        /// fio's word.
        pattern: &'static str,
        /// Why.
        reason: uraid_engine::ReadOnlyReason,
    },
    /// A member could not be claimed.
    #[error("nothing was measured")]
    Claim(#[from] ClaimError),
    /// Such an array cannot be made.
    #[error("the trial array cannot be made")]
    Create(#[source] Refusal),
    /// A name that is too long.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// Filling them would need more memory than the system has.
    #[error(
        "the members are filled with {} of memory, expected at most the {} that are available; give smaller ones, or \
         null:SIZE, which holds nothing",
        sizes::binary(*.found), sizes::binary(*.expected)
    )]
    TooMuchMemory {
        /// What is to be filled.
        found: Sectors,
        /// What the system has.
        expected: Sectors,
    },
    /// The new members do not make up an array.
    #[error("the trial array cannot be assembled")]
    Assemble(#[from] AssembleError),
    /// The existing array could not be opened.
    #[error(transparent)]
    Array(#[from] Box<ServeError>),
    /// A member failed before the run.
    #[error("{member}: {action} failed")]
    Member {
        /// Its name.
        member: String,
        /// What was tried.
        action: &'static str,
        /// Why.
        source: IoError,
    },
    /// Old or new metadata could not be wiped.
    #[error(transparent)]
    Wipe(#[from] MetadataError),
}

/// What a trial array is to be like.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The level.
    pub level: Level,
    /// How many members.
    pub raid_devices: u16,
    /// md's number of the layout.
    pub layout: u32,
    /// The chunk; zero for raid1.
    pub chunk: Sectors,
}

/// An array that can be driven, and its members.
pub struct Target {
    /// The slot of each member.
    pub plan: StartPlan,
    /// The members, in the order of the plan.
    pub members: Vec<Claimed>,
    /// It is gone after the run.
    pub is_trial: bool,
}

/// Whether the member is of this kind, ignoring `bad:`.
fn is_kind(name: &str, kind: &str) -> bool {
    create::without_bad_list(name).starts_with(kind)
}

impl Target {
    /// A trial array. If one memory or null member is named, every slot gets one like it.
    pub fn trial(trial: &Trial, names: &[String], destructive: bool) -> Result<Target, TargetError> {
        let names = match names {
            [one] if create::is_fleeting(one) => vec![one.clone(); trial.raid_devices.into()],
            names => names.to_vec(),
        };
        if let Some(member) = names.iter().find(|name| !create::is_fleeting(name) && !destructive) {
            return Err(TargetError::TrialNeedsConsent { member: member.clone() });
        }
        let members: Vec<Claimed> =
            names.iter().map(|name| metadata::claim(name, Access::ReadWrite)).collect::<Result<_, _>>()?;
        let new = |member: &Claimed| NewMember::Device { size: member.size(), uuid: *uuid::Uuid::new_v4().as_bytes() };
        let listed: Vec<NewMember> = members.iter().map(new).collect();
        let made = uraid_format::create::create(&options(trial)?, &listed);
        let made = made.map_err(|error| TargetError::Create(create::with_name(error, &names)))?;
        let candidates: Vec<Candidate> = (made.superblocks.into_iter().flatten().zip(&members))
            .map(|(superblock, member)| Candidate { superblock, device_size: member.size() })
            .collect();
        let plan = assemble(&candidates, &AssembleOptions::default())?;
        let by_plan = plan.members.iter().map(|member| members[member.candidate].clone()).collect();
        let target = Target { plan, members: by_plan, is_trial: true };
        let of_memory = target.plan.members.iter().zip(&target.members);
        let of_memory = of_memory.filter(|(_, member)| is_kind(member.name(), "mem:"));
        let found = Sectors(of_memory.map(|(plan, _)| plan.superblock.data_size.0).sum());
        check_memory(found, memory_available())?;
        target.wipe_old()?;
        target.fill()?;
        Ok(target)
    }

    /// The array that these members make up; `writes` is fio's word where the work writes.
    pub fn existing(
        names: &[String],
        writes: Option<&'static str>,
        options: &AssembleOptions,
        destructive: bool,
    ) -> Result<Target, TargetError> {
        if let Some(pattern) = writes.filter(|_| !destructive) {
            return Err(TargetError::WritesNeedConsent { pattern });
        }
        let arrays = serve::assemble_all(&[names.to_vec()], options, &Timeouts::begin()).map_err(Box::new)?;
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
    fn wipe_old(&self) -> Result<(), TargetError> {
        for member in self.members.iter().filter(|member| !create::is_fleeting(member.name())) {
            let reading = |source| TargetError::Member { member: member.name().to_owned(), action: "reading", source };
            let marks = metadata::signatures(member).map_err(reading)?;
            if let Some(first) = marks.first() {
                warn(&format!("{}: carries {first}, which is given up", member.name()));
            }
            metadata::wipe(member, &marks)?;
        }
        Ok(())
    }

    /// Unwritten memory and files return zeroes without reading: fill them. Block devices stay as they are.
    fn fill(&self) -> Result<(), TargetError> {
        let is_wanted = |member: &Claimed| {
            let is_block_device = member.identity().inode == 0 && !create::is_fleeting(member.name());
            !is_kind(member.name(), "null:") && !is_block_device
        };
        let each = self.plan.members.iter().zip(&self.members).filter(|(_, member)| is_wanted(member));
        let each: Vec<_> = each.collect();
        let total: u64 = each.iter().map(|(plan, _)| plan.superblock.data_size.bytes()).sum();
        let mut bytes = vec![0u8; FILL_BYTES];
        let mut luck = Luck::new(0);
        bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&luck.next().to_ne_bytes()));
        let mut line = Progress::new("filling the members");
        let mut done = 0;
        for (plan, member) in each {
            let start = plan.superblock.data_offset.0 * SECTOR_BYTES as u64;
            let end = start + plan.superblock.data_size.bytes();
            let failed =
                |source| TargetError::Member { member: member.name().to_owned(), action: "filling it", source };
            let mut at = start;
            while at < end {
                let length = (end - at).min(FILL_BYTES as u64);
                member.write_at(at, &bytes[..length as usize]).map_err(failed)?;
                at += length;
                done += length;
                line.show(done, total);
            }
            // Otherwise the system would write it back during the measurement.
            member.sync().map_err(failed)?;
        }
        line.finish();
        Ok(())
    }

    /// After the run: wipes a trial's superblocks if the members outlive it.
    pub fn leave(&self) -> Result<(), TargetError> {
        if !self.is_trial {
            return Ok(());
        }
        for (plan, member) in self.plan.members.iter().zip(&self.members) {
            if create::is_fleeting(member.name()) {
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

    /// `raid6, 8 members, left-symmetric, chunk 64K, 360.00 MiB`.
    pub fn describe(&self) -> String {
        let layout = &self.plan.layout;
        let mut parts = vec![layout.level().name().to_owned(), format!("{} members", layout.slots())];
        let name = layout_name(layout.level(), self.plan.template.layout);
        parts.extend((!name.is_empty()).then_some(name));
        if !layout.chunk().is_zero() {
            parts.push(format!("chunk {}", sizes::chunk(layout.chunk())));
        }
        if !self.plan.missing.is_empty() {
            parts.push(format!("{} slots without a member", self.plan.missing.count()));
        }
        parts.push(sizes::binary(layout.array_size()));
        parts.join(", ")
    }
}

/// Memory is allocated page by page while it is filled: too late for an error.
fn check_memory(found: Sectors, available: Option<Sectors>) -> Result<(), TargetError> {
    match available {
        Some(expected) if found > expected => Err(TargetError::TooMuchMemory { found, expected }),
        Some(_) | None => Ok(()),
    }
}

/// The memory that is available without swapping; `None` if the system does not tell. Spec: proc(5).
fn memory_available() -> Option<Sectors> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let words = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = words.split_whitespace().next()?.parse().ok()?;
    Some(Sectors(kib * 2))
}

fn options(trial: &Trial) -> Result<CreateOptions, NameTooLong> {
    Ok(CreateOptions {
        version: Version::V1_2,
        level: trial.level,
        layout: trial.layout,
        chunk: trial.chunk,
        raid_disks: trial.raid_devices,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: *uuid::Uuid::new_v4().as_bytes(),
        set_name: SetName::new("", "trial")?,
        now_seconds: crate::dates::now(),
        // Its redundancy is not read, so it need not be consistent.
        assume_clean: true,
        force: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_not_filled_with_more_memory_than_there_is() {
        let available = memory_available().expect("Linux says it");
        assert!(check_memory(available, Some(available)).is_ok() && check_memory(available, None).is_ok());
        let text = check_memory(Sectors(60 << 31), Some(Sectors(17 << 21))).expect_err("too much").to_string();
        assert!(
            text.starts_with("the members are filled with 60.00 TiB of memory, expected at most the 17.00 GiB"),
            "{text}"
        );
    }
}
