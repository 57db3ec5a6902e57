//! The 0.90 superblock: its own fields, and their conversion to those of the later versions.
//! Owns: parse, check, encode, its checksum, the conversion. Not here: its offsets (`old_raw`), its use (`engine`).
//! Invariant: encode(parse(bytes)) gives the bytes back, for every superblock that md or mdadm writes.
//! Spec: docs/format/superblock-0.90.md; docs/md/formats.md#version-090.

use super::old_raw::{CHECKSUM_AT, DISKS, RawDisk, RawOld};
use super::{BadBlocks, Checksum, DATA_SECTORS_MIN, MAGIC, Reshape, Role, SUPERBLOCK_BYTES, Superblock};
use super::{SECTORS_END, SuperblockError};
use crate::{Features, SetName, Version};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A device's descriptor in a 0.90 superblock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Disk090 {
    /// Its place in the table.
    pub number: u32,
    /// Its device number when the superblock was written.
    pub major: u32,
    /// The second half of it.
    pub minor: u32,
    /// Its slot.
    pub raid_disk: u32,
    /// Bits: see the constants.
    pub state: u32,
}

impl Disk090 {
    /// Failed, or an empty slot.
    pub const FAULTY: u32 = 1;
    /// Has a slot.
    pub const ACTIVE: u32 = 1 << 1;
    /// Its data is in sync.
    pub const SYNC: u32 = 1 << 2;
    /// Gone.
    pub const REMOVED: u32 = 1 << 3;
    /// Read only if no other is left.
    pub const WRITE_MOSTLY: u32 = 1 << 9;
    /// Fail early rather than retry.
    pub const FAILFAST: u32 = 1 << 10;
}

/// A 0.90 superblock in its own fields. Fields that md reserves are not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock090 {
    /// 90, or 91 while the array is reshaped.
    pub minor_version: u32,
    /// 0 in practice.
    pub patch_version: u32,
    /// 0 in practice.
    pub valid_words: u32,
    /// The id of the array, in the order in which mdadm prints it: each word on disk has its bytes reversed.
    pub set_uuid: [u8; 16],
    /// Seconds since 1970 of the creation.
    pub created: u32,
    /// md's number of the level.
    pub level: i32,
    /// KiB used of each member; 0 for linear and raid0.
    pub size_kib: u32,
    /// Devices of the array, without failed ones.
    pub nr_disks: u32,
    /// Slots of the array.
    pub raid_disks: u32,
    /// The number of its last md device.
    pub md_minor: u32,
    /// 0: the superblock is kept on the members.
    pub not_persistent: u32,
    /// Seconds since 1970 of the last update.
    pub updated: u32,
    /// Bits: see the constants.
    pub state: u32,
    /// Devices with a slot, in sync.
    pub active_disks: u32,
    /// Devices that have not failed.
    pub working_disks: u32,
    /// Devices that have failed, and slots without one.
    pub failed_disks: u32,
    /// Devices without a slot.
    pub spare_disks: u32,
    /// Counts changes of the array's state.
    pub events: u64,
    /// The count at which `recovery_cp` was written.
    pub cp_events: u64,
    /// Sectors of each member in sync; valid only if `cp_events` equals `events` and the array is not clean.
    pub recovery_cp: u32,
    /// The reshape fields, valid with minor version 91. Its chunk is in bytes here.
    pub reshape: Reshape,
    /// md's number of the layout within the level.
    pub layout: u32,
    /// The chunk in bytes.
    pub chunk_bytes: u32,
    /// The devices by their number.
    pub disks: [Disk090; DISKS],
    /// The device that this superblock is on, as it was when it was written.
    pub this_disk: Disk090,
}

impl Superblock090 {
    /// Bit of `state`: everything is in sync.
    pub const CLEAN: u32 = 1;
    /// Bit of `state`: the array met errors.
    pub const ERRORS: u32 = 1 << 1;
    /// Bit of `state`: a bitmap is 4 KiB after the start of the superblock.
    pub const BITMAP_PRESENT: u32 = 1 << 8;
    /// Sectors from the superblock to a bitmap.
    pub const BITMAP_OFFSET: i32 = 8;

    /// Reads and checks the bytes; [`Superblock090::to_superblock`] checks the place. The checksum is accepted if it is
    /// right after two folds to 16 bits, as in md, because hosts fold differently.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Superblock090, SuperblockError> {
        let Checksum { found, computed } = checksum_in(bytes)?;
        if folded(found) != folded(computed) {
            return Err(SuperblockError::Checksum { found, computed });
        }
        Ok(Superblock090::parse_damaged(bytes)?.0)
    }

    /// The same without checking the checksum: to display a superblock that must not be used.
    pub fn parse_damaged(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<(Superblock090, Checksum), SuperblockError> {
        let checksum = checksum_in(bytes)?;
        let raw = words(bytes);
        check_fields(&raw)?;
        Ok((from_raw(&raw), checksum))
    }

    /// The bytes, with a new checksum.
    pub fn encode(&self) -> Box<[u8; SUPERBLOCK_BYTES]> {
        let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
        bytes.copy_from_slice(to_raw(self).as_bytes());
        let sum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Converts to the struct of the later versions. Fails if `found_at` is not the place of version 0.90 on a device of
    /// this size, or if the array does not fit before that place.
    ///
    /// Fields that 0.90 lacks get fixed values: the device's id is derived from the array's and its number, the logical
    /// block size is not recorded, and there is no bad-block list. A raid1's chunk, which is meaningless, becomes 0 as in
    /// 1.x.
    pub fn to_superblock(&self, found_at: Sector, device_size: Sectors) -> Result<Superblock, SuperblockError> {
        if Version::V0_90.location(device_size) != Some(found_at) {
            return Err(SuperblockError::NoPlace { found_at: found_at.0 });
        }
        let data_size = Sectors(found_at.0);
        if !(DATA_SECTORS_MIN..SECTORS_END).contains(&data_size.0) {
            return Err(SuperblockError::DataSize { found: data_size.0, minimum: DATA_SECTORS_MIN });
        }
        let size = Sectors(u64::from(self.size_kib) * 2);
        if size > data_size {
            return Err(SuperblockError::Size { found: size.0, maximum: data_size.0 });
        }
        let sectors = |bytes: u32| bytes / SECTOR_BYTES as u32;
        let reshape = Reshape { new_chunk: sectors(self.reshape.new_chunk), ..self.reshape };
        Ok(Superblock {
            version: Version::V0_90,
            features: self.features(),
            set_uuid: self.set_uuid,
            set_name: SetName::from_bytes([0; 32]),
            created: self.created.into(),
            level: self.level,
            layout: self.layout,
            size,
            chunk: Sectors(if self.level == 1 { 0 } else { sectors(self.chunk_bytes).into() }),
            raid_disks: self.raid_disks,
            bitmap_offset: if self.has_bitmap() { Superblock090::BITMAP_OFFSET } else { 0 },
            reshape: self.is_reshaping().then_some(reshape),
            data_offset: Sector(0),
            data_size,
            super_offset: found_at,
            recovery_offset: 0,
            dev_number: self.this_disk.number,
            corrected_reads: 0,
            device_uuid: self.device_uuid(),
            devflags: self.devflags(),
            bad_blocks: BadBlocks::default(),
            updated: self.updated.into(),
            events: self.events,
            resync_offset: self.resync_offset(),
            logical_block_size: 0,
            roles: self.disks.iter().map(|disk| self.role(disk)).collect(),
        })
    }

    /// Whether everything is in sync.
    pub fn is_clean(&self) -> bool {
        self.state & Superblock090::CLEAN != 0
    }

    /// Whether the array is being reshaped; this has its own minor version.
    pub fn is_reshaping(&self) -> bool {
        self.minor_version == 91
    }

    /// Whether there is a bitmap after the superblock.
    pub fn has_bitmap(&self) -> bool {
        self.state & Superblock090::BITMAP_PRESENT != 0
    }

    /// Sectors of each member in sync; [`Superblock::CLEAN`] for all.
    pub fn resync_offset(&self) -> u64 {
        if self.is_clean() {
            return Superblock::CLEAN;
        }
        if self.cp_events == self.events { self.recovery_cp.into() } else { 0 }
    }

    fn features(&self) -> Features {
        let mut features = Features(0);
        if self.has_bitmap() {
            features = features.with(Features::BITMAP_OFFSET);
        }
        if self.is_reshaping() {
            features = features.with(Features::RESHAPE_ACTIVE);
        }
        features
    }

    /// The role of a descriptor's device. During a reshape, a member that is being added is not in sync yet, and 0.90
    /// cannot record its progress: it gets its slot, and the feature bits show the reshape.
    fn role(&self, disk: &Disk090) -> Role {
        if disk.state & Disk090::FAULTY != 0 {
            return Role::Faulty;
        }
        match u16::try_from(disk.raid_disk) {
            Ok(slot) if has_slot(disk.state, self.minor_version) => Role::from_raw(slot),
            Ok(_) | Err(_) => Role::Spare,
        }
    }

    /// 0.90 has no device ids. The result is the array's id, with the device's number plus one added to its last word.
    fn device_uuid(&self) -> [u8; 16] {
        let mut uuid = self.set_uuid;
        let last = u32::from_be_bytes([uuid[12], uuid[13], uuid[14], uuid[15]]);
        uuid[12..].copy_from_slice(&last.wrapping_add(self.this_disk.number).wrapping_add(1).to_be_bytes());
        uuid
    }

    /// The flags of this device in the bits of the later versions. They come from the table and not from `this_disk`,
    /// as in md.
    fn devflags(&self) -> u8 {
        let Some(disk) = self.disks.get(self.this_disk.number as usize) else { return 0 };
        u8::from(disk.state & Disk090::WRITE_MOSTLY != 0) | u8::from(disk.state & Disk090::FAILFAST != 0) << 1
    }
}

fn words(bytes: &[u8; SUPERBLOCK_BYTES]) -> RawOld {
    RawOld::read_from_bytes(bytes).expect("the struct has the size of the block")
}

/// The sums. Fails if there is no superblock of version 0.90.
fn checksum_in(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Checksum, SuperblockError> {
    let raw = words(bytes);
    if raw.magic.get() == MAGIC.swap_bytes() && raw.major_version.get() == 0 {
        return Err(SuperblockError::ByteOrder);
    }
    if raw.magic.get() != MAGIC {
        return Err(SuperblockError::Magic { found: raw.magic.get() });
    }
    if raw.major_version.get() != 0 {
        return Err(SuperblockError::Version { found: raw.major_version.get() });
    }
    if !(90..=91).contains(&raw.minor_version.get()) {
        return Err(SuperblockError::MinorVersion { found: raw.minor_version.get() });
    }
    Ok(Checksum { found: raw.checksum.get(), computed: checksum(bytes) })
}

/// The sum of all words but its own, folded once: docs/md/formats.md#checksums.
fn checksum(bytes: &[u8; SUPERBLOCK_BYTES]) -> u32 {
    let mut sum = 0u64;
    for (at, word) in bytes.chunks_exact(4).enumerate() {
        if at * 4 != CHECKSUM_AT {
            sum += u64::from(u32::from_le_bytes(word.try_into().expect("four bytes")));
        }
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// Hosts folded their sums differently; after two folds to 16 bits all are the same.
fn folded(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}

/// Whether a descriptor's slot is valid: its device is in sync, or a reshape is filling it.
fn has_slot(state: u32, minor_version: u32) -> bool {
    let is_being_added = minor_version == 91 && state & Disk090::ACTIVE != 0;
    state & Disk090::FAULTY == 0 && (state & Disk090::SYNC != 0 || is_being_added)
}

fn check_fields(raw: &RawOld) -> Result<(), SuperblockError> {
    if raw.raid_disks.get() == 0 || raw.raid_disks.get() > DISKS as u32 {
        return Err(SuperblockError::RaidDisks { found: raw.raid_disks.get(), maximum: DISKS as u32 });
    }
    if raw.events.get() >= Superblock::EVENTS_END {
        return Err(SuperblockError::Events { found: raw.events.get() });
    }
    let is_reshaping = raw.minor_version.get() == 91;
    for bytes in [Some(raw.chunk_size.get()), is_reshaping.then(|| raw.new_chunk.get())].into_iter().flatten() {
        if !(bytes as usize).is_multiple_of(SECTOR_BYTES) {
            return Err(SuperblockError::ChunkBytes { found: bytes });
        }
    }
    for (number, disk) in raw.disks.iter().enumerate() {
        if has_slot(disk.state.get(), raw.minor_version.get()) && disk.raid_disk.get() >= DISKS as u32 {
            return Err(SuperblockError::DiskSlot { number, found: disk.raid_disk.get(), maximum: DISKS as u32 - 1 });
        }
    }
    Ok(())
}

fn disk(raw: &RawDisk) -> Disk090 {
    Disk090 {
        number: raw.number.get(),
        major: raw.major.get(),
        minor: raw.minor.get(),
        raid_disk: raw.raid_disk.get(),
        state: raw.state.get(),
    }
}

fn raw_disk(from: &Disk090) -> RawDisk {
    RawDisk {
        number: from.number.into(),
        major: from.major.into(),
        minor: from.minor.into(),
        raid_disk: from.raid_disk.into(),
        state: from.state.into(),
        reserved: [0; 27 * 4],
    }
}

fn from_raw(raw: &RawOld) -> Superblock090 {
    let mut set_uuid = [0; 16];
    let words = [raw.set_uuid_0, raw.set_uuid_1_3[0], raw.set_uuid_1_3[1], raw.set_uuid_1_3[2]];
    for (out, word) in set_uuid.chunks_exact_mut(4).zip(words) {
        out.copy_from_slice(&word.get().to_be_bytes());
    }
    Superblock090 {
        minor_version: raw.minor_version.get(),
        patch_version: raw.patch_version.get(),
        valid_words: raw.valid_words.get(),
        set_uuid,
        created: raw.ctime.get(),
        level: raw.level.get(),
        size_kib: raw.size.get(),
        nr_disks: raw.nr_disks.get(),
        raid_disks: raw.raid_disks.get(),
        md_minor: raw.md_minor.get(),
        not_persistent: raw.not_persistent.get(),
        updated: raw.utime.get(),
        state: raw.state.get(),
        active_disks: raw.active_disks.get(),
        working_disks: raw.working_disks.get(),
        failed_disks: raw.failed_disks.get(),
        spare_disks: raw.spare_disks.get(),
        events: raw.events.get(),
        cp_events: raw.cp_events.get(),
        recovery_cp: raw.recovery_cp.get(),
        reshape: Reshape {
            new_level: raw.new_level.get(),
            position: raw.reshape_position.get(),
            delta_disks: raw.delta_disks.get(),
            new_layout: raw.new_layout.get(),
            new_chunk: raw.new_chunk.get(),
            new_offset: 0,
        },
        layout: raw.layout.get(),
        chunk_bytes: raw.chunk_size.get(),
        disks: raw.disks.each_ref().map(disk),
        this_disk: disk(&raw.this_disk),
    }
}

/// The fields, with a checksum of zero.
fn to_raw(from: &Superblock090) -> RawOld {
    let mut raw = RawOld::new_zeroed();
    let word = |at: usize| {
        let bytes: [u8; 4] = from.set_uuid[at * 4..at * 4 + 4].try_into().expect("four bytes");
        u32::from_be_bytes(bytes).into()
    };
    raw.magic = MAGIC.into();
    raw.minor_version = from.minor_version.into();
    raw.patch_version = from.patch_version.into();
    raw.valid_words = from.valid_words.into();
    raw.set_uuid_0 = word(0);
    raw.set_uuid_1_3 = [word(1), word(2), word(3)];
    raw.ctime = from.created.into();
    raw.level = from.level.into();
    raw.size = from.size_kib.into();
    raw.nr_disks = from.nr_disks.into();
    raw.raid_disks = from.raid_disks.into();
    raw.md_minor = from.md_minor.into();
    raw.not_persistent = from.not_persistent.into();
    raw.utime = from.updated.into();
    raw.state = from.state.into();
    raw.active_disks = from.active_disks.into();
    raw.working_disks = from.working_disks.into();
    raw.failed_disks = from.failed_disks.into();
    raw.spare_disks = from.spare_disks.into();
    raw.events = from.events.into();
    raw.cp_events = from.cp_events.into();
    raw.recovery_cp = from.recovery_cp.into();
    raw.reshape_position = from.reshape.position.into();
    raw.new_level = from.reshape.new_level.into();
    raw.delta_disks = from.reshape.delta_disks.into();
    raw.new_layout = from.reshape.new_layout.into();
    raw.new_chunk = from.reshape.new_chunk.into();
    raw.layout = from.layout.into();
    raw.chunk_size = from.chunk_bytes.into();
    raw.disks = from.disks.each_ref().map(raw_disk);
    raw.this_disk = raw_disk(&from.this_disk);
    raw
}
