//! The array to measure: a trial array that is gone afterwards, or an existing one.
//! Owns: [`Target`], planning trial arrays, filling their members. Not here: the content of a superblock
//! (`uraid_format`), which members make up an array (`uraid_engine::assemble`), whether what the members hold may be
//! lost: the caller's.
//! Invariant: [`Target::fill`] writes only into the data areas of the members; nothing else here writes.

use crate::screen::Screen;
use crate::work::Random;
use std::time::{SystemTime, UNIX_EPOCH};
use uraid_block::{IoError, SECTOR_BYTES, Sectors, sizes};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, StartPlan, assemble};
use uraid_format::create::{CreateError, CreateOptions, NewMember, NewPolicy};
use uraid_format::ppl::{PplLog, PplState};
use uraid_format::{NameTooLong, SetName, Version};
use uraid_host::{Access, Claimed, Medium, OpenError};
use uraid_layout::{Level, default_layout, layout_name};

/// Sectors of a KiB.
pub(crate) const KIB: u64 = 2;
/// Bytes of one write of the filling.
const FILL_BYTES: usize = 1 << 20;

/// Why there is no trial array.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// There is no memory for a member.
    #[error("nothing was measured")]
    Open(#[from] OpenError),
    /// Such an array cannot be made.
    #[error("the trial array cannot be made")]
    Create(#[from] CreateError),
    /// A name that is too long.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// Filling the members would need more memory than the system has.
    #[error(
        "the members are filled with {} of memory, expected at most the {} that are available; give smaller ones, or \
         null:SIZE, which holds nothing",
        sizes::binary(*.found), sizes::binary(*.expected)
    )]
    TooMuchMemory {
        /// The size to fill.
        found: Sectors,
        /// What the system has.
        expected: Sectors,
    },
    /// The new members do not make up an array.
    #[error("the trial array cannot be assembled")]
    Assemble(#[from] AssembleError),
    /// A member failed before the run.
    #[error("{member}: filling it failed")]
    Fill {
        /// Its name.
        member: String,
        /// Why.
        source: IoError,
    },
}

/// The geometry of a trial array.
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
    /// How it is made consistent after a crash.
    pub policy: NewPolicy,
}

impl Trial {
    /// With the default layout.
    pub(crate) fn new(level: Level, raid_devices: u16, chunk: Sectors) -> Trial {
        Trial { level, raid_devices, layout: default_layout(level), chunk, policy: NewPolicy::Resync }
    }

    /// One of each level with redundancy and a path of its own.
    pub(crate) fn redundant() -> [Trial; 4] {
        let chunk = Sectors(64 * KIB);
        [
            Trial::new(Level::Raid1, 2, Sectors::ZERO),
            Trial::new(Level::Raid10, 4, chunk),
            Trial::new(Level::Raid5, 5, chunk),
            Trial::new(Level::Raid6, 8, chunk),
        ]
    }
}

/// An array that can be driven, and its members.
pub struct Target {
    /// The slot of each member.
    pub plan: StartPlan,
    /// The members, in the order of the plan.
    pub members: Vec<Claimed>,
    /// Whether the array is gone after the run.
    pub is_trial: bool,
}

impl Target {
    /// A trial array of these members, in the order of its slots; `None` for a slot without a member. It is not filled
    /// yet.
    pub fn trial(trial: &Trial, members: &[Option<Claimed>]) -> Result<Target, TrialError> {
        let new = |member: &Option<Claimed>| match member {
            None => NewMember::Missing,
            Some(member) => NewMember::Device { size: member.size(), uuid: *uuid::Uuid::new_v4().as_bytes() },
        };
        let listed: Vec<NewMember> = members.iter().map(new).collect();
        let made = uraid_format::create::create(&options(trial)?, &listed)?;
        let present: Vec<&Claimed> = members.iter().flatten().collect();
        let candidates: Vec<Candidate> = (made.superblocks.into_iter().flatten().zip(&present))
            .map(|(superblock, member)| {
                let ppl = superblock.ppl_word().map(|_| PplLog { state: PplState::Empty, stretches: Vec::new() });
                Candidate { ppl, ..Candidate::new(superblock, member.size()) }
            })
            .collect();
        let plan = assemble(&candidates, &AssembleOptions::default())?;
        let by_plan = plan.members.iter().map(|member| present[member.candidate].clone()).collect();
        let target = Target { plan, members: by_plan, is_trial: true };
        let of_memory = target.plan.members.iter().zip(&target.members);
        let of_memory = of_memory.filter(|(_, member)| member.medium() == Medium::Memory);
        let found = Sectors(of_memory.map(|(plan, _)| plan.superblock.data_size.0).sum());
        check_memory(found, memory_available())?;
        Ok(target)
    }

    /// A filled trial array that needs no disk. All its members are like `member`: `mem:64M`, `null:1T`. The first
    /// `missing` slots have no member.
    pub fn in_memory(trial: &Trial, member: &str, missing: u16, screen: &dyn Screen) -> Result<Target, TrialError> {
        let open = |slot| (slot >= missing).then(|| Claimed::open(member, Access::ReadWrite)).transpose();
        let members = (0..trial.raid_devices).map(open).collect::<Result<Vec<_>, _>>()?;
        let target = Target::trial(trial, &members)?;
        target.fill(screen)?;
        Ok(target)
    }

    /// Fills memory and files, because unwritten ones return zeroes without reading. Block devices stay as they are.
    pub fn fill(&self, screen: &dyn Screen) -> Result<(), TrialError> {
        let is_wanted = |member: &Claimed| match member.medium() {
            Medium::File | Medium::Memory => true,
            Medium::BlockDevice | Medium::Null => false,
        };
        let each = self.plan.members.iter().zip(&self.members).filter(|(_, member)| is_wanted(member));
        let each: Vec<_> = each.collect();
        let total: u64 = each.iter().map(|(plan, _)| plan.superblock.data_size.bytes()).sum();
        let mut bytes = vec![0u8; FILL_BYTES];
        let mut random = Random::new(0);
        bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_ne_bytes()));
        let mut line = screen.progress("filling the members");
        let mut done = 0;
        for (plan, member) in each {
            let start = plan.superblock.data_offset.0 * SECTOR_BYTES as u64;
            let end = start + plan.superblock.data_size.bytes();
            let failed = |source| TrialError::Fill { member: member.name().to_owned(), source };
            let mut at = start;
            while at < end {
                let length = (end - at).min(FILL_BYTES as u64);
                member.write_at(at, &bytes[..length as usize]).map_err(failed)?;
                at += length;
                done += length;
                line.show(done, total);
            }
            // Otherwise the system would write the data back during the measurement.
            member.sync().map_err(failed)?;
        }
        drop(line);
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
            parts.push(format!("{} missing", self.plan.missing.count()));
        }
        parts.push(sizes::binary(layout.array_size()));
        parts.join(", ")
    }
}

/// Checks that there is enough memory. The system allocates pages only while they are filled, too late for an error.
fn check_memory(found: Sectors, available: Option<Sectors>) -> Result<(), TrialError> {
    match available {
        Some(expected) if found > expected => Err(TrialError::TooMuchMemory { found, expected }),
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
        now_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        // The redundancy is not read, so it need not be consistent.
        assume_clean: true,
        force: true,
        policy: trial.policy,
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
