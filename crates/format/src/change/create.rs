//! The first state of a new array: offsets, sizes and superblocks, with the numbers that `mdadm --create` chooses.
//! Owns: the first state of an array. Not here: asking the user, writing the devices, making ids (`uraid`).
//! Invariant: every superblock made here parses at its place. The members' superblocks differ only in their own fields.
//! Spec: docs/md/formats.md#what-mdadm-creates.

mod bitmap;
mod error;
mod geometry;

use crate::logs::bitmap::BitmapImage;
use crate::logs::ppl::{PPL_HEADER_BYTES, PplHeader};
use crate::superblock::{HEADER_BYTES, data_offset_min};
use crate::{BadBlocks, Features, FlagChange, Role, SUPERBLOCK_BYTES, SetName, Superblock, Version, bad_blocks};
use uraid_block::{SECTOR_BYTES, Sector, Sectors, Slot, SlotSet};
use uraid_layout::{Layout, Level, Spec, default_chunk, default_layout};

pub use bitmap::{BitmapToAdd, NewPolicy, NoBitmapPlace, bitmap_to_add};
pub use error::CreateError;
pub use geometry::{
    BitmapPlacement, Geometry, PPL as PPL_SECTORS, bad_blocks_offset, beside, bitmap_chunk_min, bitmap_of_chunk,
    bitmap_placement, bitmap_space, data_offset, data_size,
};

/// The array to make.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The version of the superblocks: 1.0, 1.1 or 1.2.
    pub version: Version,
    /// The level.
    pub level: Level,
    /// md's number of the layout; 0 where the level has none.
    pub layout: u32,
    /// The chunk; zero for raid1, and for linear without rounding.
    pub chunk: Sectors,
    /// Slots of the array.
    pub raid_disks: u16,
    /// Spares, listed after the slots' members.
    pub spare_devices: u16,
    /// Use this much of each member instead of all.
    pub size: Option<Sectors>,
    /// Start the data here on each member instead of at mdadm's place.
    pub data_offset: Option<Sectors>,
    /// The id of the array.
    pub set_uuid: [u8; 16],
    /// The name of the array.
    pub set_name: SetName,
    /// Now, in seconds since 1970.
    pub now_seconds: u64,
    /// The members are known to be in sync: no first resync.
    pub assume_clean: bool,
    /// Allow unusual arrays: one member alone, a raid6 that starts dirty and degraded.
    pub force: bool,
    /// How it is made consistent after a crash.
    pub policy: NewPolicy,
}

impl CreateOptions {
    /// What mdadm chooses for such an array without further options. It has no name, was made in 1970, and has no spares:
    /// a caller sets what it knows better. `set_uuid` must be of this array only.
    pub fn new(level: Level, raid_disks: u16, set_uuid: [u8; 16]) -> CreateOptions {
        CreateOptions {
            version: Version::V1_2,
            level,
            layout: default_layout(level),
            chunk: default_chunk(level),
            raid_disks,
            spare_devices: 0,
            size: None,
            data_offset: None,
            set_uuid,
            set_name: SetName::default(),
            now_seconds: 0,
            assume_clean: false,
            force: false,
            policy: NewPolicy::IfLarge,
        }
    }
}

/// One entry of the list of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewMember {
    /// The word `missing`: the slot stays empty.
    Missing,
    /// A device.
    Device {
        /// Its size.
        size: Sectors,
        /// A new id for it.
        uuid: [u8; 16],
    },
}

/// A new array, not yet written.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The offsets and sizes that were chosen.
    pub geometry: Geometry,
    /// The layout of the array.
    pub layout: Layout,
    /// What to write to each listed device, in the order of the list; `None` for `missing`.
    pub superblocks: Vec<Option<Superblock>>,
    /// Whether the array starts in sync, without a first resync.
    pub is_clean: bool,
    /// The bitmap of each member: all bits are set, as mdadm leaves them.
    pub bitmap: Option<BitmapImage>,
}

impl Creation {
    /// Gives the members md's flags, in the order of the list. A `missing` one gets none, as with mdadm.
    pub fn give_flags(&mut self, flags: &[FlagChange]) -> Result<(), CreateError> {
        assert_eq!(flags.len(), self.superblocks.len(), "one for each listed member");
        flags.iter().try_for_each(|change| change.check_level(self.layout.level()))?;
        for (superblock, change) in self.superblocks.iter_mut().zip(flags) {
            if let Some(superblock) = superblock {
                superblock.devflags = change.apply(superblock.devflags);
            }
        }
        Ok(())
    }
}

/// The writes for a new member: place and bytes. Each must be durable before the next is written: first the empty
/// bad-block list, partial parity log and bitmap, then the superblock that points to them.
pub fn writes(superblock: &Superblock, bitmap: Option<&BitmapImage>) -> Vec<(Sector, Vec<u8>)> {
    let list = superblock.bad_blocks_extent().map(|list| (list.start, bad_blocks::empty(list.length)));
    let log = superblock.ppl_extent().map(|log| {
        let mut bytes = vec![0; log.length.len_bytes()];
        bytes[..PPL_HEADER_BYTES].copy_from_slice(&PplHeader::empty(&superblock.set_uuid).encode()[..]);
        (log.start, bytes)
    });
    let bits = superblock.bitmap_start().zip(bitmap).map(|(start, bitmap)| {
        let pages = (0..bitmap.pages()).flat_map(|page| bitmap.page_bytes(page).iter().copied());
        (start, pages.collect())
    });
    let own = (superblock.super_offset, superblock.encode().to_vec());
    list.into_iter().chain(log).chain(bits).chain([own]).collect()
}

/// The whole decision: what to write where for this array on these members.
///
/// The numbers are mdadm's. The first state is that of mdadm with `--force`: every listed member is active, and raid1,
/// 10, 4, 5 and 6 start dirty (`resync_offset` 0), so that the first resync computes the parity or the copies. mdadm
/// without `--force` makes the last member of a raid4 or raid5 a spare and fills it by a recovery, and leaves a second
/// member out of a raid6 that has one missing; that needs a background recovery, which uraid does not have yet.
/// A raid4 or raid5 with a missing slot and a raid6 with two start clean: the content of the missing members is
/// defined by the others' parity.
pub fn create(options: &CreateOptions, members: &[NewMember]) -> Result<Creation, CreateError> {
    check_counts(options, members)?;
    check_chunk(options)?;
    check_policy(options)?;
    let Chosen { geometry, bitmap: placement, sizes } = choose_geometry(options, members)?;
    let sizes_of_data: Vec<_> =
        sizes.iter().map(|size| size.map(|size| data_sectors(options, &geometry, placement.as_ref(), size))).collect();
    let slots = usize::from(options.raid_disks);
    let present: SlotSet = (0..options.raid_disks).map(Slot).filter(|s| sizes[s.index()].is_some()).collect();
    let is_sized_by_member = matches!(options.level, Level::Linear | Level::Raid0);
    if is_sized_by_member && present.count() < slots {
        return Err(too_many_missing(options, present.count()));
    }
    let spec = Spec {
        level: options.level,
        layout: options.layout,
        chunk: options.chunk,
        raid_disks: options.raid_disks,
        size: geometry.size,
        member_sizes: if is_sized_by_member { sizes_of_data.iter().flatten().copied().collect() } else { Vec::new() },
    };
    let layout = Layout::new(&spec).map_err(CreateError::Layout)?;
    let (geometry, layout) = cut_to_used(geometry, layout);
    if !layout.can_serve(&present) {
        return Err(too_many_missing(options, present.count()));
    }
    let is_clean = is_first_state_clean(options, slots - present.count())?;
    let features =
        if records_layout(options, &spec.member_sizes) { Features::RAID0_LAYOUT } else { Features::default() };
    let (policy, bitmap_offset) = match &placement {
        Some(placement) => (Features::BITMAP_OFFSET, placement.offset),
        None if options.policy == NewPolicy::Ppl => (Features::PPL, geometry::ppl_word(options.version)),
        None => (Features::default(), 0),
    };
    let features = features.with(policy);
    let first = Superblock { features, bitmap_offset, ..first_superblock(options, members, &geometry, is_clean) };
    let bitmap = placement.map(|placement| bitmap::first_bitmap(options, &placement, bitmap::covered(&layout)));
    let superblocks = (0u32..).zip(members).zip(&sizes_of_data).map(|((number, member), size)| match (member, size) {
        (NewMember::Device { uuid, size }, Some(data_size)) => {
            let super_offset = options.version.location(*size).expect("choose_geometry checked the size");
            let (device_uuid, data_size) = (*uuid, *data_size);
            Some(Superblock { dev_number: number, device_uuid, data_size, super_offset, ..first.clone() })
        }
        (NewMember::Device { .. }, None) | (NewMember::Missing, _) => None,
    });
    Ok(Creation { geometry, layout, superblocks: superblocks.collect(), is_clean, bitmap })
}

fn too_many_missing(options: &CreateOptions, found: usize) -> CreateError {
    CreateError::TooManyMissing { level: options.level.name(), found, slots: options.raid_disks }
}

/// The least number of slots that mdadm makes such an array with.
fn slots_min(level: Level) -> u16 {
    match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => 1,
        Level::Raid10 | Level::Raid4 | Level::Raid5 => 2,
        Level::Raid6 => 4,
    }
}

fn check_counts(options: &CreateOptions, members: &[NewMember]) -> Result<(), CreateError> {
    if options.version == Version::V0_90 {
        return Err(CreateError::OldVersion);
    }
    let level = options.level.name();
    let expected = usize::from(options.raid_disks) + usize::from(options.spare_devices);
    if members.len() != expected {
        return Err(CreateError::MemberCount { found: members.len(), expected });
    }
    if options.raid_disks > SlotSet::SLOTS_MAX {
        return Err(CreateError::TooManySlots { found: options.raid_disks, maximum: SlotSet::SLOTS_MAX });
    }
    let roles_max = (SUPERBLOCK_BYTES - HEADER_BYTES) / 2;
    if expected > roles_max {
        return Err(CreateError::TooManyDevices { found: expected, maximum: roles_max });
    }
    let minimum = slots_min(options.level);
    if options.raid_disks < minimum {
        return Err(CreateError::TooFewSlots { level, found: options.raid_disks, minimum });
    }
    if options.raid_disks == 1 && !options.force {
        return Err(CreateError::SingleSlot { level });
    }
    if options.spare_devices > 0 && matches!(options.level, Level::Linear | Level::Raid0) {
        return Err(CreateError::NoSpares { level, found: options.spare_devices });
    }
    let (slots, spares) = members.split_at(usize::from(options.raid_disks));
    if let Some(at) = spares.iter().position(|member| *member == NewMember::Missing) {
        return Err(CreateError::MissingSpare { member: slots.len() + at });
    }
    if slots.iter().all(|member| *member == NewMember::Missing) {
        return Err(CreateError::NoDevice { level });
    }
    Ok(())
}

fn check_policy(options: &CreateOptions) -> Result<(), CreateError> {
    const PPL_SLOTS_MAX: u16 = 64;
    let level = options.level.name();
    match options.policy {
        NewPolicy::Ppl if options.level != Level::Raid5 => Err(CreateError::NoPpl { level }),
        NewPolicy::Ppl if options.raid_disks > PPL_SLOTS_MAX => {
            Err(CreateError::PplSlots { found: options.raid_disks, maximum: PPL_SLOTS_MAX })
        }
        NewPolicy::Ppl | NewPolicy::Resync | NewPolicy::IfLarge | NewPolicy::Bitmap { .. } => Ok(()),
    }
}

/// md's conditions on a chunk beyond the layout's: whole KiB, and a multiple of 4 KiB for the levels that work in
/// pages.
fn check_chunk(options: &CreateOptions) -> Result<(), CreateError> {
    let level = options.level.name();
    let (multiple, may_be_zero) = match options.level {
        Level::Raid1 => return Ok(()),
        Level::Linear => (Sectors(2), true),
        Level::Raid0 => (Sectors(2), false),
        Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => (Sectors(8), false),
    };
    // A raid0 may have any number of KiB from 4 on: 5K is valid, 3K is not.
    let smallest = if options.level == Level::Raid0 { Sectors(8) } else { Sectors::ZERO };
    let is_good = options.chunk.0.is_multiple_of(multiple.0)
        && options.chunk >= smallest
        && (may_be_zero || !options.chunk.is_zero());
    // The field on disk has 32 bits, and md computes with signed ones.
    if !is_good || options.chunk.0 > i32::MAX as u64 {
        return Err(CreateError::Chunk { level, found: options.chunk, multiple });
    }
    Ok(())
}

/// What [`choose_geometry`] decides.
struct Chosen {
    geometry: Geometry,
    bitmap: Option<BitmapPlacement>,
    /// The full size of every listed device; `None` for `missing`.
    sizes: Vec<Option<Sectors>>,
}

/// The offsets and sizes.
fn choose_geometry(options: &CreateOptions, members: &[NewMember]) -> Result<Chosen, CreateError> {
    let device_size = |member: &NewMember| match member {
        NewMember::Missing => None,
        NewMember::Device { size, .. } => Some(*size),
    };
    let first_size = members.iter().find_map(device_size).expect("check_counts found a device");
    let chunk = if options.level == Level::Raid1 { Sectors::ZERO } else { options.chunk };
    let ppl = if options.policy == NewPolicy::Ppl { geometry::PPL } else { Sectors::ZERO };
    let is_at_end = options.version == Version::V1_0;
    if let Some(found) = options.data_offset.filter(|offset| is_at_end && !offset.is_zero()) {
        return Err(CreateError::DataOffsetNotZero { found });
    }
    let data_offset = match options.data_offset {
        _ if is_at_end => Sectors::ZERO,
        Some(asked) => asked,
        None => geometry::data_offset(first_size, chunk, ppl),
    };
    let offset_min = data_offset_min(options.version) + if is_at_end { Sectors::ZERO } else { ppl };
    if data_offset < offset_min || data_offset.0 >= 1 << 54 {
        return Err(CreateError::DataOffset { found: data_offset, minimum: offset_min });
    }
    // A member's size is counted in KiB and cut to whole chunks, as in mdadm.
    let unit = Sectors(chunk.0.max(2));
    let data_min = Sectors(unit.0.max(16));
    let mut sizes = Vec::with_capacity(members.len());
    let mut smallest = Sectors(u64::MAX);
    for (member, entry) in members.iter().enumerate() {
        let Some(found) = device_size(entry) else {
            sizes.push(None);
            continue;
        };
        let reserve = if is_at_end { geometry::reserve_at_end(found, ppl) } else { data_offset };
        let data_size = Sectors(found.0.saturating_sub(reserve.0));
        if data_size < data_min {
            return Err(CreateError::DeviceTooSmall { member, found, minimum: reserve + data_min });
        }
        let usable = Sectors(data_size.0 - data_size.0 % unit.0);
        if let Some(expected) = options.size.filter(|size| *size > usable) {
            return Err(CreateError::SizeTooLarge { member, found: usable, expected });
        }
        smallest = smallest.min(usable);
        sizes.push(Some(found));
    }
    let size = used_size(options, unit, smallest)?;
    let bitmap = bitmap::choose_bitmap(options, size)?;
    let geometry = Geometry {
        data_offset,
        size,
        bad_blocks_offset: geometry::bad_blocks_offset(
            options.version,
            data_offset,
            geometry::beside(size, bitmap.as_ref(), ppl),
        ),
        max_dev: max_dev(members.len()),
    };
    Ok(Chosen { geometry, bitmap, sizes })
}

/// Sectors used of every member: what was asked for, or the smallest member; 0 for linear and raid0.
fn used_size(options: &CreateOptions, unit: Sectors, smallest: Sectors) -> Result<Sectors, CreateError> {
    if matches!(options.level, Level::Linear | Level::Raid0) {
        return Ok(Sectors::ZERO);
    }
    let size = match options.size {
        Some(asked) => Sectors(asked.0 - asked.0 % unit.0),
        // Without --size a raid1 is cut to 64 KiB, so that it can become another level later.
        None if options.level == Level::Raid1 => Sectors(smallest.0 - smallest.0 % 128),
        None => smallest,
    };
    let minimum = Sectors(unit.0.max(16));
    if size < minimum {
        return Err(CreateError::SizeTooSmall { found: options.size.unwrap_or(smallest), minimum });
    }
    Ok(size)
}

/// Sectors for data of a device that [`choose_geometry`] found large enough.
fn data_sectors(
    options: &CreateOptions,
    geometry: &Geometry,
    bitmap: Option<&BitmapPlacement>,
    device_size: Sectors,
) -> Sectors {
    let ppl = if options.policy == NewPolicy::Ppl { geometry::PPL } else { Sectors::ZERO };
    let beside = geometry::beside(geometry.size, bitmap, ppl);
    geometry::data_size(options.version, device_size, geometry, beside).expect("choose_geometry checked the size")
}

/// Entries of the role table: header and table fill whole sectors.
fn max_dev(devices: usize) -> u16 {
    let bytes = (HEADER_BYTES + 2 * devices).next_multiple_of(SECTOR_BYTES);
    u16::try_from((bytes - HEADER_BYTES) / 2).expect("check_counts bounded the devices")
}

/// Whether the array starts without a resync, with `missing` of its slots empty.
fn is_first_state_clean(options: &CreateOptions, missing: usize) -> Result<bool, CreateError> {
    if options.assume_clean {
        return Ok(true);
    }
    match options.level {
        Level::Linear | Level::Raid0 => Ok(true),
        Level::Raid1 | Level::Raid10 => Ok(false),
        Level::Raid4 | Level::Raid5 => Ok(missing > 0),
        Level::Raid6 if missing == 1 && !options.force => Err(CreateError::DirtyDegraded),
        Level::Raid6 => Ok(missing > 1),
    }
}

/// Cuts the member sizes of a raid10 to the part that md would use: whole chunks of each far copy.
fn cut_to_used(geometry: Geometry, layout: Layout) -> (Geometry, Layout) {
    if layout.level() != Level::Raid10 {
        return (geometry, layout);
    }
    let size = layout.member_used(Slot(0));
    let cut = Layout::new(&Spec { size, ..layout.spec().clone() }).expect("what an array uses is enough for it");
    assert_eq!(cut.array_size(), layout.array_size());
    (Geometry { size, ..geometry }, cut)
}

/// Whether a raid0's layout is marked as recorded; kernels before 5.4 refuse the mark. The layouts differ only if
/// members have different numbers of chunks, and later kernels refuse such an array without the mark.
fn records_layout(options: &CreateOptions, member_sizes: &[Sectors]) -> bool {
    let chunks = |size: &Sectors| size.0 / options.chunk.0;
    let is_raid0 = options.level == Level::Raid0 && options.layout != 0;
    is_raid0 && member_sizes.iter().any(|size| chunks(size) != chunks(&member_sizes[0]))
}

/// What all members share; `features`, `dev_number`, `device_uuid`, `super_offset` and `data_size` are still to be filled in.
fn first_superblock(options: &CreateOptions, members: &[NewMember], geometry: &Geometry, is_clean: bool) -> Superblock {
    let mut roles = vec![Role::Spare; usize::from(geometry.max_dev)];
    for (at, (member, role)) in members.iter().zip(&mut roles).enumerate() {
        // The number of a missing device stays unused, as mdadm leaves it.
        if at < usize::from(options.raid_disks) && *member != NewMember::Missing {
            *role = Role::Slot(Slot(at as u16));
        }
    }
    let now = options.now_seconds & crate::TIME_SECONDS_MASK;
    Superblock {
        version: options.version,
        features: Features::default(),
        set_uuid: options.set_uuid,
        set_name: options.set_name,
        created: now,
        level: options.level.md(),
        layout: options.layout,
        size: geometry.size,
        chunk: if options.level == Level::Raid1 { Sectors::ZERO } else { options.chunk },
        raid_disks: u32::from(options.raid_disks),
        bitmap_offset: 0,
        reshape: None,
        data_offset: Sector(geometry.data_offset.0),
        data_size: Sectors::ZERO,
        super_offset: Sector(0),
        recovery_offset: 0,
        dev_number: 0,
        corrected_reads: 0,
        device_uuid: [0; 16],
        devflags: 0,
        bad_blocks: match geometry.bad_blocks_offset {
            Some(offset) => BadBlocks { shift: 0, size: 8, offset },
            None => BadBlocks::default(),
        },
        updated: now,
        events: 0,
        resync_offset: if is_clean { Superblock::CLEAN } else { 0 },
        logical_block_size: 0,
        roles,
    }
}
