//! Reads one member for `examine`: the superblock, its checksum, and the values that mdadm derives.
//! Owns: reading a superblock in spite of a wrong checksum, the derived sizes. Not here: their form.
//! Invariant: nothing is written. A checksum is never hidden: it is correct, or both values are shown.

use super::areas::{self, Areas, read_block};
use crate::shared::probe::{self, ProbeError};
use std::path::{Path, PathBuf};
use uraid_block::{Sector, Sectors};
use uraid_control::log::warn;
use uraid_format::{Checksum, Superblock, Superblock090, SuperblockError, Version};
use uraid_layout::{Layout, Level, Spec};
use uraid_serve::cautions;

/// The result for one member.
pub(super) struct Examined {
    pub path: PathBuf,
    /// The device's size.
    pub size: Sectors,
    pub superblock: Superblock,
    /// The superblock in its 0.90 form, if it is one of version 0.90.
    pub old: Option<Superblock090>,
    pub checksum: Checksum,
    /// Why it is unusable although its fields make sense: its checksum is wrong.
    pub refusal: Option<SuperblockError>,
    /// The areas beside the superblock.
    pub areas: Areas,
}

/// Examines a member without claiming it.
pub(super) fn examine(path: &Path) -> Result<Examined, ProbeError> {
    let member = probe::open(path)?;
    let (at, version) = match member.find_superblock() {
        Ok(found) => (found.superblock.super_offset, found.superblock.version),
        Err(ProbeError::Superblock { at, version, source: SuperblockError::Checksum { .. }, .. }) => (at, version),
        Err(error) => return Err(error),
    };
    let block = read_block(&member, at).map_err(|source| ProbeError::Read { path: path.to_owned(), source })?;
    let refused = |source| ProbeError::Superblock { path: path.to_owned(), at, version, source };
    let (superblock, checksum) = Superblock::parse_damaged(&block, at, member.size()).map_err(refused)?;
    let old = match superblock.version {
        Version::V0_90 => Some(Superblock090::parse_damaged(&block).map_err(refused)?.0),
        Version::V1_0 | Version::V1_1 | Version::V1_2 => None,
    };
    let refusal = Superblock::parse(&block, at, member.size()).err();
    let areas = areas::read(&member, &superblock);
    let read = |at: u64, into: &mut [u8]| member.read_at(at, into).is_ok();
    let cautions = cautions::of(&path.to_string_lossy(), member.size(), &superblock, read);
    cautions.iter().for_each(|text| warn(&format!("{}: {text}", path.display())));
    Ok(Examined { path: path.to_owned(), size: member.size(), superblock, old, checksum, refusal, areas })
}

impl Examined {
    /// The array size by mdadm's rule, in bytes: the members' size times the number of data members, not rounded to
    /// chunks. `None` for levels whose superblock does not tell.
    pub(super) fn mdadm_array_bytes(&self) -> Option<u128> {
        let superblock = &self.superblock;
        let disks = u128::from(superblock.raid_disks);
        let (data, copies) = match superblock.known_level()? {
            Level::Linear | Level::Raid0 => return None,
            Level::Raid1 => (1, 1),
            Level::Raid4 | Level::Raid5 => (disks.checked_sub(1)?, 1),
            Level::Raid6 => (disks.checked_sub(2)?, 1),
            Level::Raid10 => (disks, u128::from(superblock.layout & 0xff) * u128::from(superblock.layout >> 8 & 0xff)),
        };
        (u128::from(superblock.size.0) * 512 * data).checked_div(copies)
    }

    /// The array size by the layout; `None` if this superblock alone does not tell, or is invalid.
    pub(super) fn array_size(&self) -> Option<Sectors> {
        let (level, layout) = self.superblock.level_layout()?;
        match level {
            Level::Linear | Level::Raid0 => return None,
            Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => (),
        }
        let raid_disks = u16::try_from(self.superblock.raid_disks).ok()?;
        let (chunk, size) = (self.superblock.chunk, self.superblock.size);
        let spec = Spec { level, layout, chunk, raid_disks, size, member_sizes: Vec::new() };
        Layout::new(&spec).ok().map(|layout| layout.array_size())
    }

    /// What the array uses of this member: all of its data area for linear and raid0.
    pub(super) fn used(&self) -> Sectors {
        if self.superblock.level > 0 { self.superblock.size } else { self.superblock.data_size }
    }

    /// Sectors between the areas of a superblock and the data after them.
    pub(super) fn unused_before(&self) -> u64 {
        /// What mdadm reserves for a superblock and a bitmap: 4 KiB and 32 KiB.
        const KEPT: u64 = 72;
        let (at, data) = (self.superblock.super_offset.0, self.superblock.data_offset.0);
        if at >= data {
            // 1.0: superblock and areas are after the data.
            return 0;
        }
        let areas = [self.superblock.bad_blocks_extent(), self.superblock.ppl_extent()].into_iter().flatten();
        data.saturating_sub(areas.map(|area| area.end().0).fold(at.saturating_add(KEPT), u64::max))
    }

    /// Unused sectors after the data; negative if the device is too small for the data.
    pub(super) fn unused_after(&self) -> i128 {
        let superblock = &self.superblock;
        let data_end = i128::from(superblock.data_offset.0) + i128::from(self.used().0);
        let at = superblock.super_offset;
        let end = match superblock.version {
            // The superblock and its areas are after the data.
            Version::V1_0 => {
                let extents = [superblock.bad_blocks_extent(), superblock.ppl_extent()].map(|it| it.map(|it| it.start));
                extents.into_iter().chain([superblock.bitmap_start()]).flatten().fold(at, Sector::min).0
            }
            Version::V0_90 => at.0,
            Version::V1_1 | Version::V1_2 => self.size.0,
        };
        i128::from(end) - data_end
    }

    /// One letter per slot: the state of each slot in this member's superblock.
    pub(super) fn slot_letters(&self) -> String {
        let slots = self.superblock.raid_disks.min(u32::from(u16::MAX));
        let mut counts = vec![0u32; slots as usize];
        for role in &self.superblock.roles {
            if let Some(count) = role.slot().and_then(|slot| counts.get_mut(slot.index())) {
                *count += 1;
            }
        }
        let letter = |&count: &u32| match count {
            0 => '.',
            1 => 'A',
            2 => 'R',
            3.. => '?',
        };
        counts.iter().map(letter).collect()
    }
}
