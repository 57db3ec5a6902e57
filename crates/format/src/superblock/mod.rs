//! The version-1 superblock at the places of 1.0, 1.1 and 1.2: bytes <-> facts; 0.90 is read into the same facts.
//! Owns: parse, check, encode, the checksum, the role table. Not here: which of several superblocks is right
//! (`find`, `engine`), the fields of 0.90 (`old`).
//! Invariant: encode(parse(bytes)) gives the bytes back, for every superblock that md or mdadm writes.
//! Spec: docs/format/superblock-1.md; docs/md/formats.md#version-1-superblock.

mod error;
pub(crate) mod features;
pub(crate) mod find;
pub(crate) mod member_flag;
mod old;
mod old_raw;
mod places;
mod raw;
mod reshape;
pub(crate) mod set_name;
pub mod uuid;
pub(crate) mod version;

use crate::superblock::features::Features;
use crate::superblock::set_name::SetName;
use crate::superblock::version::{DEVICE_SECTORS_MIN, Version};
use raw::RawSuperblock;
use uraid_block::{SECTOR_BYTES, Sector, Sectors, Slot, SlotSet};
use uraid_layout::Level;
use zerocopy::{FromBytes, IntoBytes};

pub use error::SuperblockError;
pub use old::{Disk090, Superblock090};
pub use reshape::{Reshape, ReshapeError, ReshapePlan, ReshapeShape};

/// Bytes that are read to find a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;

/// The seconds of the `created` and `updated` fields; the bits above are microseconds.
pub const TIME_SECONDS_MASK: u64 = (1 << 40) - 1;

const MAGIC: u32 = 0xa92b_4efc;
/// Bytes before the role table.
pub(crate) const HEADER_BYTES: usize = 256;
const ROLES_MAX: usize = (SUPERBLOCK_BYTES - HEADER_BYTES) / 2;
/// md refuses a smaller data area than this.
const DATA_SECTORS_MIN: u64 = 10;
/// No address or length on disk reaches this: 2^63 bytes, what a system call can address.
const SECTORS_END: u64 = 1 << 54;

/// The place of a 1.2 superblock: 4 KiB into the device.
pub const fn location_v12() -> Sector {
    Sector(8)
}

/// The entry of one dev_number in the role table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A member in this slot, which a set of slots can hold. It may still be more than the array's slots.
    Slot(Slot),
    /// A member in a slot that no set holds, and no array that can be started has: [`SlotSet::SLOTS_MAX`] to 0xfeff.
    BeyondSlots(u16),
    /// A spare, or an unused entry.
    Spare,
    /// Failed.
    Faulty,
    /// The raid456 journal.
    Journal,
    /// A number that md reserves.
    Reserved(u16),
}

impl Role {
    /// From the number in the table.
    pub const fn from_raw(raw: u16) -> Role {
        match raw {
            0..SlotSet::SLOTS_MAX => Role::Slot(Slot(raw)),
            SlotSet::SLOTS_MAX..=0xfeff => Role::BeyondSlots(raw),
            0xffff => Role::Spare,
            0xfffe => Role::Faulty,
            0xfffd => Role::Journal,
            0xff00..=0xfffc => Role::Reserved(raw),
        }
    }

    /// The number in the table.
    pub const fn raw(self) -> u16 {
        match self {
            Role::Slot(slot) => slot.0,
            Role::Spare => 0xffff,
            Role::Faulty => 0xfffe,
            Role::Journal => 0xfffd,
            Role::BeyondSlots(raw) | Role::Reserved(raw) => raw,
        }
    }

    /// The slot, if it is one.
    pub const fn slot(self) -> Option<Slot> {
        match self {
            Role::Slot(slot) => Some(slot),
            Role::BeyondSlots(_) | Role::Spare | Role::Faulty | Role::Journal | Role::Reserved(_) => None,
        }
    }
}

/// The sum in a superblock, and that of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksum {
    /// The recorded sum.
    pub found: u32,
    /// The correct sum.
    pub computed: u32,
}

impl Checksum {
    /// Whether they are the same, to the bit. md accepts more for 0.90: see [`Superblock090::parse`].
    pub const fn is_correct(self) -> bool {
        self.found == self.computed
    }
}

/// Where the bad-block list of this member is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct BadBlocks {
    /// Entries count blocks of 2^shift sectors.
    pub shift: u8,
    /// Room for the list in sectors; 0 for no list.
    pub size: u16,
    /// Sectors from the superblock to the list.
    pub offset: i32,
}

/// One member's superblock: facts about the array, about itself, and about the other members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Its version, which follows from its place, not from its bytes.
    pub version: Version,
    /// Features in use beyond the plain fields.
    pub features: Features,
    /// The id of the array, the same on all members.
    pub set_uuid: [u8; 16],
    /// The name of the array.
    pub set_name: SetName,
    /// When the array was made: seconds in the low 40 bits, microseconds above.
    pub created: u64,
    /// md's number of the level, see [`Superblock::known_level`].
    pub level: i32,
    /// md's number of the layout within the level.
    pub layout: u32,
    /// Sectors used of each member; 0 for linear and raid0.
    pub size: Sectors,
    /// The chunk; 0 for raid1.
    pub chunk: Sectors,
    /// Slots of the array.
    pub raid_disks: u32,
    /// Signed sectors from the superblock to the bitmap; with [`Features::PPL`] the place and size of the log instead.
    pub bitmap_offset: i32,
    /// The reshape fields; `None` when all their bytes are zero.
    pub reshape: Option<Reshape>,
    /// The first data sector of this member.
    pub data_offset: Sector,
    /// The size of this member's data area.
    pub data_size: Sectors,
    /// Where this superblock is.
    pub super_offset: Sector,
    /// With [`Features::RECOVERY_OFFSET`]: the sectors of data that are rebuilt.
    pub recovery_offset: u64,
    /// This member's permanent index into `roles`.
    pub dev_number: u32,
    /// Sectors of read errors that were fixed.
    pub corrected_reads: u32,
    /// The id of this member.
    pub device_uuid: [u8; 16],
    /// Flags: those of [`MemberFlag`](crate::MemberFlag), and unknown ones.
    pub devflags: u8,
    /// Where the bad-block list is.
    pub bad_blocks: BadBlocks,
    /// The last update, in the form of `created`. Never used to decide what is newer.
    pub updated: u64,
    /// Counts changes of the array's state: the higher, the fresher.
    pub events: u64,
    /// Member sectors below it are in sync; all ones: clean.
    pub resync_offset: u64,
    /// The array's logical block size in bytes, written by kernels from 6.19; 0 where it is not recorded.
    pub logical_block_size: u32,
    /// The role of each dev_number; the length is the superblock's max_dev.
    pub roles: Vec<Role>,
}

impl Superblock {
    /// The `resync_offset` of a clean array.
    pub const CLEAN: u64 = u64::MAX;

    /// A superblock with this event count or a higher one is refused. No array counts that far: md adds one per change
    /// of its state, so at a million per second it would take 146,000 years. Adding to a smaller count cannot overflow.
    pub const EVENTS_END: u64 = 1 << 62;

    /// An array with this event count or a higher one is not written. A run that starts below it would have to record
    /// 2^56 changes to reach the refused counts: one per microsecond for 2,283 years. So every superblock that uraid
    /// writes can be read again.
    pub const EVENTS_WRITE_END: u64 = Superblock::EVENTS_END - (1 << 56);

    /// Reads and checks a superblock that was found at `found_at` of a device of `device_size`. A 0.90 superblock is
    /// converted to the fields of the later versions.
    ///
    /// Unknown feature bits and levels are kept and left to the caller, and so is a device that is too small for its
    /// superblock: both must be reported together with the other members, not hidden by a parse error.
    pub fn parse(
        bytes: &[u8; SUPERBLOCK_BYTES],
        found_at: Sector,
        device_size: Sectors,
    ) -> Result<Superblock, SuperblockError> {
        if is_old(bytes, found_at, device_size) {
            return Superblock090::parse(bytes)?.to_superblock(found_at, device_size);
        }
        let Checksum { found, computed } = checksum_in(bytes)?;
        if found != computed {
            return Err(SuperblockError::Checksum { found, computed });
        }
        decode(bytes, found_at, device_size)
    }

    /// The same without checking the checksum: to display a superblock that must not be used.
    pub fn parse_damaged(
        bytes: &[u8; SUPERBLOCK_BYTES],
        found_at: Sector,
        device_size: Sectors,
    ) -> Result<(Superblock, Checksum), SuperblockError> {
        if is_old(bytes, found_at, device_size) {
            let (old, checksum) = Superblock090::parse_damaged(bytes)?;
            return Ok((old.to_superblock(found_at, device_size)?, checksum));
        }
        let checksum = checksum_in(bytes)?;
        Ok((decode(bytes, found_at, device_size)?, checksum))
    }

    /// The 4096 bytes to put at `super_offset`, of which [`Superblock::written_bytes`] are significant. Panics if there
    /// are more roles than fit: no parsed or created superblock has them.
    pub fn encode(&self) -> Box<[u8; SUPERBLOCK_BYTES]> {
        assert!(self.roles.len() <= ROLES_MAX);
        assert_ne!(self.version, Version::V0_90, "0.90 superblocks are read, not written");
        // mdadm writes ones after the table, so that a table that grows later finds unused entries there.
        let mut bytes = Box::new([0xff; SUPERBLOCK_BYTES]);
        let covered = HEADER_BYTES + 2 * self.roles.len();
        bytes[..HEADER_BYTES].copy_from_slice(to_raw(self).as_bytes());
        for (entry, role) in bytes[HEADER_BYTES..covered].chunks_exact_mut(2).zip(&self.roles) {
            entry.copy_from_slice(&role.raw().to_le_bytes());
        }
        let sum = checksum(&bytes[..covered]);
        bytes[raw::CHECKSUM_AT..raw::CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// How many of the encoded bytes md writes: the header and the table, in whole sectors.
    pub fn written_bytes(&self) -> usize {
        (HEADER_BYTES + 2 * self.roles.len()).next_multiple_of(SECTOR_BYTES)
    }

    /// The role of this device in its own table; a dev_number beyond the table is a spare, as in md.
    pub fn own_role(&self) -> Role {
        self.role_of(self.dev_number)
    }

    /// The role of a dev_number; one beyond the table is a spare, as in md.
    pub fn role_of(&self, dev_number: u32) -> Role {
        self.roles.get(dev_number as usize).copied().unwrap_or(Role::Spare)
    }

    /// The level, if it is one that uraid knows; md's number is in `level`.
    pub fn known_level(&self) -> Option<Level> {
        Level::from_md(self.level)
    }

    /// The level and the effective layout number: raid0's is 0 unless a feature bit says that it was recorded.
    pub fn level_layout(&self) -> Option<(Level, u32)> {
        let level = self.known_level()?;
        let recorded = level != Level::Raid0 || self.features.contains(Features::RAID0_LAYOUT);
        Some((level, if recorded { self.layout } else { 0 }))
    }

    /// Whether a resync is due, because not everything is known to be in sync.
    pub fn is_dirty(&self) -> bool {
        self.resync_offset != Superblock::CLEAN
    }

    /// Seconds since 1970 of the creation.
    pub fn created_seconds(&self) -> u64 {
        self.created & TIME_SECONDS_MASK
    }

    /// Seconds since 1970 of the last update.
    pub fn updated_seconds(&self) -> u64 {
        self.updated & TIME_SECONDS_MASK
    }
}

/// Whether [`Superblock090`] must parse the bytes. For the other byte order, it is enough to reverse the magic: the
/// version is 0 in both orders.
fn is_old(bytes: &[u8; SUPERBLOCK_BYTES], found_at: Sector, device_size: Sectors) -> bool {
    let (raw, _) = header(bytes);
    let is_old_place = Version::V0_90.location(device_size) == Some(found_at);
    raw.major_version.get() == 0 && (raw.magic.get() == MAGIC || is_old_place)
}

fn header(bytes: &[u8; SUPERBLOCK_BYTES]) -> (RawSuperblock, &[u8]) {
    RawSuperblock::read_from_prefix(bytes).expect("4096 bytes hold the 256 of the header")
}

/// The sums of version 1. Fails if there is no superblock of version 1.
fn checksum_in(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Checksum, SuperblockError> {
    let (raw, _) = header(bytes);
    if raw.magic.get() != MAGIC {
        return Err(SuperblockError::Magic { found: raw.magic.get() });
    }
    if raw.major_version.get() != 1 {
        return Err(SuperblockError::Version { found: raw.major_version.get() });
    }
    let max_dev = raw.max_dev.get();
    if max_dev as usize > ROLES_MAX {
        return Err(SuperblockError::TooManyRoles { found: max_dev, maximum: ROLES_MAX as u32 });
    }
    let computed = checksum(&bytes[..HEADER_BYTES + 2 * max_dev as usize]);
    Ok(Checksum { found: raw.checksum.get(), computed })
}

/// The fields of version 1, without checking the sum. If [`checksum_in`] succeeded, the table fits.
fn decode(
    bytes: &[u8; SUPERBLOCK_BYTES],
    found_at: Sector,
    device_size: Sectors,
) -> Result<Superblock, SuperblockError> {
    let (raw, table) = header(bytes);
    let version = check_place(&raw, found_at, device_size)?;
    check_fields(&raw)?;
    let (roles, _) = table[..2 * raw.max_dev.get() as usize].as_chunks();
    let roles = roles.iter().map(|entry| Role::from_raw(u16::from_le_bytes(*entry))).collect();
    Ok(from_raw(&raw, version, roles))
}

/// The sum of the little-endian words, folded once; `bytes` are the header and the table, the checksum field counts as
/// zero: docs/md/formats.md#checksums.
fn checksum(bytes: &[u8]) -> u32 {
    let number = |word: &[u8; 4]| u64::from(u32::from_le_bytes(*word));
    let (words, rest) = bytes.as_chunks::<4>();
    // 1024 words of 32 bits cannot overflow 64: without checks, a processor adds several words at once.
    let mut sum = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(number(word)));
    sum -= number(&words[raw::CHECKSUM_AT / 4]);
    // A table of odd length leaves two bytes, which are added as they are.
    let mut wide = [0; 4];
    wide[..rest.len()].copy_from_slice(rest);
    sum += number(&wide);
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

fn check_place(raw: &RawSuperblock, found_at: Sector, device_size: Sectors) -> Result<Version, SuperblockError> {
    if device_size.0 < DEVICE_SECTORS_MIN {
        return Err(SuperblockError::DeviceTooSmall { found: device_size, minimum: Sectors(DEVICE_SECTORS_MIN) });
    }
    // This check distinguishes a whole disk from its last partition.
    let super_offset = Sector(raw.super_offset.get());
    if super_offset != found_at {
        return Err(SuperblockError::Place { found: found_at.0, expected: super_offset.0 });
    }
    // 1.2 first: on a device of 24 to 31 sectors 1.0 has the same place.
    let of_major_1 = [Version::V1_2, Version::V1_1, Version::V1_0];
    let Some(version) = of_major_1.into_iter().find(|version| version.location(device_size) == Some(found_at)) else {
        return Err(SuperblockError::NoPlace { found_at: found_at.0 });
    };
    let data_offset = raw.data_offset.get();
    let data_size = raw.data_size.get();
    let data_start_min = data_offset_min(version).0;
    if !(data_start_min..SECTORS_END).contains(&data_offset) {
        return Err(SuperblockError::DataOffset { found: data_offset, minimum: data_start_min });
    }
    if !(DATA_SECTORS_MIN..SECTORS_END).contains(&data_size) {
        return Err(SuperblockError::DataSize { found: data_size, minimum: DATA_SECTORS_MIN });
    }
    if version == Version::V1_0 && data_offset + data_size > found_at.0 {
        return Err(SuperblockError::DataEnd { found: data_offset + data_size, maximum: found_at.0 });
    }
    if raw.size.get() > data_size {
        return Err(SuperblockError::Size { found: raw.size.get(), maximum: data_size });
    }
    Ok(version)
}

/// The first sector at which data can start: after the superblock if that is at the start.
pub(crate) fn data_offset_min(version: Version) -> Sectors {
    const SUPERBLOCK_SECTORS: u64 = (SUPERBLOCK_BYTES / SECTOR_BYTES) as u64;
    Sectors(match version {
        Version::V0_90 | Version::V1_0 => 0,
        Version::V1_1 => SUPERBLOCK_SECTORS,
        Version::V1_2 => location_v12().0 + SUPERBLOCK_SECTORS,
    })
}

fn check_fields(raw: &RawSuperblock) -> Result<(), SuperblockError> {
    if raw.pad0.get() != 0 {
        return Err(SuperblockError::Padding { at: 12 });
    }
    if let Some(at) = raw.pad3.iter().position(|byte| *byte != 0) {
        return Err(SuperblockError::Padding { at: 228 + at });
    }
    let block = raw.logical_block_size.get();
    if block != 0 && (!block.is_power_of_two() || !(512..=65536).contains(&block)) {
        return Err(SuperblockError::LogicalBlockSize { found: block });
    }
    if raw.events.get() >= Superblock::EVENTS_END {
        return Err(SuperblockError::Events { found: raw.events.get() });
    }
    if raw.raid_disks.get() == 0 || raw.raid_disks.get() > ROLES_MAX as u32 {
        return Err(SuperblockError::RaidDisks { found: raw.raid_disks.get(), maximum: ROLES_MAX as u32 });
    }
    Ok(())
}

fn from_raw(raw: &RawSuperblock, version: Version, roles: Vec<Role>) -> Superblock {
    let reshape = Reshape {
        new_level: raw.new_level.get(),
        position: raw.reshape_position.get(),
        delta_disks: raw.delta_disks.get(),
        new_layout: raw.new_layout.get(),
        new_chunk: raw.new_chunk.get(),
        new_offset: raw.new_offset.get(),
    };
    Superblock {
        version,
        features: Features(raw.feature_map.get()),
        set_uuid: raw.set_uuid,
        set_name: SetName::from_bytes(raw.set_name),
        created: raw.ctime.get(),
        level: raw.level.get(),
        layout: raw.layout.get(),
        size: Sectors(raw.size.get()),
        chunk: Sectors(u64::from(raw.chunk_size.get())),
        raid_disks: raw.raid_disks.get(),
        bitmap_offset: raw.bitmap_offset.get(),
        reshape: (reshape != Reshape::default()).then_some(reshape),
        data_offset: Sector(raw.data_offset.get()),
        data_size: Sectors(raw.data_size.get()),
        super_offset: Sector(raw.super_offset.get()),
        recovery_offset: raw.recovery_offset.get(),
        dev_number: raw.dev_number.get(),
        corrected_reads: raw.corrected_reads.get(),
        device_uuid: raw.device_uuid,
        devflags: raw.devflags,
        bad_blocks: BadBlocks { shift: raw.bblog_shift, size: raw.bblog_size.get(), offset: raw.bblog_offset.get() },
        updated: raw.utime.get(),
        events: raw.events.get(),
        resync_offset: raw.resync_offset.get(),
        logical_block_size: raw.logical_block_size.get(),
        roles,
    }
}

/// The header with a checksum of zero. Panics on a chunk of 2^32 sectors, which no parsed or created one has.
fn to_raw(from: &Superblock) -> RawSuperblock {
    let reshape = from.reshape.unwrap_or_default();
    RawSuperblock {
        magic: MAGIC.into(),
        major_version: 1.into(),
        feature_map: from.features.0.into(),
        pad0: 0.into(),
        set_uuid: from.set_uuid,
        set_name: *from.set_name.as_bytes(),
        ctime: from.created.into(),
        level: from.level.into(),
        layout: from.layout.into(),
        size: from.size.0.into(),
        chunk_size: u32::try_from(from.chunk.0).expect("a chunk fits the field it was read from").into(),
        raid_disks: from.raid_disks.into(),
        bitmap_offset: from.bitmap_offset.into(),
        new_level: reshape.new_level.into(),
        reshape_position: reshape.position.into(),
        delta_disks: reshape.delta_disks.into(),
        new_layout: reshape.new_layout.into(),
        new_chunk: reshape.new_chunk.into(),
        new_offset: reshape.new_offset.into(),
        data_offset: from.data_offset.0.into(),
        data_size: from.data_size.0.into(),
        super_offset: from.super_offset.0.into(),
        recovery_offset: from.recovery_offset.into(),
        dev_number: from.dev_number.into(),
        corrected_reads: from.corrected_reads.into(),
        device_uuid: from.device_uuid,
        devflags: from.devflags,
        bblog_shift: from.bad_blocks.shift,
        bblog_size: from.bad_blocks.size.into(),
        bblog_offset: from.bad_blocks.offset.into(),
        utime: from.updated.into(),
        events: from.events.into(),
        resync_offset: from.resync_offset.into(),
        checksum: 0.into(),
        max_dev: (from.roles.len() as u32).into(),
        logical_block_size: from.logical_block_size.into(),
        pad3: [0; 28],
    }
}
