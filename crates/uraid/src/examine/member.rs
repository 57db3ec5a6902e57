//! A look at one member for `examine`: the superblock, its checksum, and the values that mdadm derives.
//! Owns: reading a superblock with a wrong checksum all the same, the derived sizes. Not here: their form.
//! Invariant: nothing is written; a checksum is never hidden: it is correct, or both values are there.

use super::areas::{self, Areas};
use crate::probe::{self, ProbeError, Unclaimed};
use std::path::{Path, PathBuf};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_format::{Features, Found, SUPERBLOCK_BYTES, Superblock, SuperblockError, Version};
use uraid_layout::{Layout, Level, Spec};

/// Where a version-1 superblock keeps its checksum.
const CHECKSUM_AT: usize = 216;

/// The sum in a superblock, and the sum of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksum {
    pub found: u32,
    pub computed: u32,
}

impl Checksum {
    /// Whether they are the same.
    pub fn is_correct(self) -> bool {
        self.found == self.computed
    }
}

/// What a look at a member gave.
pub struct Examined {
    pub path: PathBuf,
    /// The device's size.
    pub size: Sectors,
    pub superblock: Superblock,
    pub checksum: Checksum,
    /// What the superblock says is beside it.
    pub areas: Areas,
}

/// Looks at a member without claiming it.
pub fn examine(path: &Path) -> Result<Examined, ProbeError> {
    let member = probe::open(path)?;
    let (superblock, checksum) = match member.find_superblock() {
        Ok(Found { superblock, .. }) => {
            let found = read_block(&member, superblock.super_offset).map_or(0, |block| checksum_of(&block));
            (superblock, Checksum { found, computed: found })
        }
        Err(ProbeError::Superblock { path, at, version, source: source @ SuperblockError::Checksum { .. } }) => {
            damaged(&member, at, version).ok_or(ProbeError::Superblock { path, at, version, source })?
        }
        Err(error) => return Err(error),
    };
    let areas = areas::read(&member, &superblock);
    Ok(Examined { path: path.to_owned(), size: member.size(), superblock, checksum, areas })
}

/// A superblock whose fields make sense but for the checksum: looked at as if the sum were right.
fn damaged(member: &Unclaimed, at: Sector, version: Version) -> Option<(Superblock, Checksum)> {
    match version {
        // Its sum is elsewhere.
        Version::V0_90 => return None,
        Version::V1_0 | Version::V1_1 | Version::V1_2 => (),
    }
    let mut block = read_block(member, at)?;
    let Err(SuperblockError::Checksum { found, computed }) = Superblock::parse(&block, at, member.size()) else {
        return None;
    };
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&computed.to_le_bytes());
    let superblock = Superblock::parse(&block, at, member.size()).ok()?;
    Some((superblock, Checksum { found, computed }))
}

fn checksum_of(block: &[u8; SUPERBLOCK_BYTES]) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| block[CHECKSUM_AT + n]))
}

/// 4096 bytes of a member from a sector on; `None` where they cannot be read.
pub fn read_block(member: &Unclaimed, at: Sector) -> Option<Box<[u8; SUPERBLOCK_BYTES]>> {
    let mut block = Box::new([0; SUPERBLOCK_BYTES]);
    member.read_at(at.0.checked_mul(SECTOR_BYTES as u64)?, &mut *block).ok()?;
    Some(block)
}

impl Examined {
    /// What a client sees by mdadm's rule, in bytes: the members' size times those that hold data, not rounded to
    /// chunks. `None` for levels whose superblock does not say.
    pub fn mdadm_array_bytes(&self) -> Option<u128> {
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

    /// What a client sees, by the addresses; `None` where this superblock alone does not say, or makes no sense.
    pub fn array_size(&self) -> Option<Sectors> {
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

    /// What the array uses of this member: all of its data room for linear and raid0.
    pub fn used(&self) -> Sectors {
        if self.superblock.level > 0 { self.superblock.size } else { self.superblock.data_size }
    }

    /// Sectors between the areas of a superblock and the data behind them.
    pub fn unused_before(&self) -> u64 {
        /// What mdadm keeps of a superblock and a bitmap: 4 KiB and 32 KiB.
        const KEPT: u64 = 72;
        let (at, data) = (self.superblock.super_offset.0, self.superblock.data_offset.0);
        if at >= data {
            // 1.0: superblock and areas are behind the data.
            return 0;
        }
        let areas = [self.bad_blocks_end(), self.log_end()].into_iter().flatten();
        data.saturating_sub(areas.fold(at.saturating_add(KEPT), u64::max))
    }

    /// Sectors behind the data that nothing has a use for; negative where the device is too small for the data.
    pub fn unused_after(&self) -> i128 {
        let superblock = &self.superblock;
        let data_end = i128::from(superblock.data_offset.0) + i128::from(self.used().0);
        let at = superblock.super_offset.0;
        let is_behind = at > superblock.data_offset.0;
        let end = if is_behind && superblock.version == Version::V1_0 {
            let list = Some(superblock.bad_blocks).filter(|log| log.size > 0 && log.offset < 0).map(|log| log.offset);
            let bitmap = superblock.features.contains(Features::BITMAP_OFFSET).then_some(superblock.bitmap_offset);
            let log = self.log_place().map(|(offset, _)| i32::from(offset));
            let lowest = [list, bitmap, log].into_iter().flatten().fold(0, i32::min);
            i128::from(at) + i128::from(lowest)
        } else {
            i128::from(self.size.0)
        };
        end - data_end
    }

    fn bad_blocks_end(&self) -> Option<u64> {
        let log = self.superblock.bad_blocks;
        let start = self.superblock.super_offset.0.checked_add_signed(log.offset.into())?;
        (log.size > 0).then(|| start.saturating_add(log.size.into()))
    }

    fn log_end(&self) -> Option<u64> {
        let (offset, size) = self.log_place()?;
        Some(self.superblock.super_offset.0.checked_add_signed(offset.into())?.saturating_add(size.into()))
    }

    /// The partial parity log: sectors from the superblock, and its size in sectors.
    pub fn log_place(&self) -> Option<(i16, u16)> {
        let raw = self.superblock.bitmap_offset;
        let has_log = self.superblock.features.intersects(Features::PPL.with(Features::MULTIPLE_PPLS));
        has_log.then_some((raw as i16, (raw >> 16) as u16))
    }

    /// One letter per slot, as this member sees the others.
    pub fn slot_letters(&self) -> String {
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
