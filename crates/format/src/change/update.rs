//! What an update of a stopped array changes in a member's superblock.
//! Owns: [`Change`], the place of a partial parity log on a member that was made without one. Not here: which arrays may
//! be updated, the order of writes (`uraid`), event counts (the caller).
//! Invariant: the place of a log follows from the member's superblock alone, so that an update that was cut short gives
//! the same places when it goes on.
//! Spec: docs/format/ppl.md#where-an-update-puts-it; mdadm(8), `--update`.

use crate::change::create::PPL_SECTORS;
use crate::logs::ppl::{PPL_HEADER_SECTORS, PPL_PARITY_MAX};
use crate::{BadBlocks, Features, SUPERBLOCK_BYTES, SetName, Superblock, Version};
use uraid_block::{Extent, SECTOR_BYTES, Sector, Sectors};
use uraid_layout::Level;

/// Sectors of a 4 KiB block: logs begin and end with one.
const BLOCK: u64 = 8;
const SUPERBLOCK_SECTORS: Sectors = Sectors((SUPERBLOCK_BYTES / SECTOR_BYTES) as u64);
/// The headers of the two places that uraid uses, and the parity of the longest stretch: a chunk, or 64 KiB of a larger
/// one.
const LONGEST: Sectors = Sectors(PPL_PARITY_MAX.0 / 2);
const LOG: Features = Features::PPL.with(Features::MULTIPLE_PPLS);

/// What an update changes, in mdadm's words for `--update`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// `ppl`: the array gets a partial parity log.
    Ppl,
    /// `no-ppl`: it loses it.
    NoPpl,
    /// `resync`: the next start makes everything consistent.
    Resync,
    /// `name`, `homehost`: the array gets another name.
    Name(SetName),
    /// `no-bbl`: the member keeps no list of bad blocks.
    NoBadBlocks,
    /// `bbl`: the member gets an empty list of bad blocks.
    BadBlocks,
    /// `devicesize`: what the member counts as room for data ends with its device.
    DeviceSize,
    /// `uuid`: the array gets another id. Bitmaps and logs name it, too: the caller writes their headers.
    Uuid([u8; 16]),
}

/// What a change depends on besides a member's superblock.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The size of the device.
    pub device_size: Sectors,
    /// The length of the bitmap beside the superblock; zero without one.
    pub bitmap: Sectors,
}

/// Why a member's superblock cannot be changed so. The text follows the member's name and a colon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpdateError {
    /// Partial parity logs are raid5's.
    #[error("belongs to a {level}, which can have no partial parity log, expected raid5")]
    Level {
        /// The level, in md's words.
        level: &'static str,
    },
    /// A log and a bitmap exclude each other.
    #[error("belongs to an array with a bitmap, and md allows no partial parity log beside it: remove it first")]
    Bitmap,
    /// A log keeps a bit for each slot.
    #[error("belongs to an array of {found} slots, and a partial parity log allows at most {maximum}")]
    Slots {
        /// The array's.
        found: u32,
        /// md's limit.
        maximum: u32,
    },
    /// What lies beside the superblock leaves too little.
    #[error(
        "has {} in one piece between its superblock and its data, at least {} are needed for a partial parity log{}",
        found.size(),
        minimum.size(),
        if *has_list { "; `no-bbl` may make room" } else { "" }
    )]
    Room {
        /// The largest gap.
        found: Sectors,
        /// What a log needs.
        minimum: Sectors,
        /// A list of bad blocks lies there too.
        has_list: bool,
    },
    /// There is nothing to make consistent.
    #[error("belongs to a {level}, which has no redundancy to resync")]
    NoRedundancy {
        /// The level, in md's words.
        level: &'static str,
    },
    /// Something lies where a list of bad blocks goes.
    #[error(
        "has no room for a list of bad blocks: the last 4 KiB before its {} hold something",
        if *is_behind { "superblock" } else { "data" }
    )]
    ListRoom {
        /// The superblock is behind the data.
        is_behind: bool,
    },
    /// Its array's layout depends on what is to be changed.
    #[error("belongs to a {level}, whose layout follows from the sizes of its members: they stay as they are")]
    SizedByMembers {
        /// The level, in md's words.
        level: &'static str,
    },
    /// The superblock bounds the data, wherever the device ends.
    #[error("has its superblock behind the data (version 1.0), so its device's size says nothing: expected 1.1 or 1.2")]
    SizeOfEnd,
    /// The device has become smaller than what the array uses of it.
    #[error("has {} now, and the array uses {}", found.size(), minimum.size())]
    Shrank {
        /// The size of the device.
        found: Sectors,
        /// The end of the used data.
        minimum: Sectors,
    },
    /// Sectors on the list would be read as if they were good.
    #[error("lists bad blocks: its list stays until they are written again, by `uraid repair` or by clients")]
    ListInForce,
}

/// A member's superblock after the change; the same one if it is as it should be. The event count stays.
pub fn changed(
    superblock: &Superblock,
    change: &Change,
    surroundings: &Surroundings,
) -> Result<Superblock, UpdateError> {
    let mut next = superblock.clone();
    match change {
        Change::Ppl => next = with_log(superblock)?,
        Change::NoPpl => next = without_log(superblock),
        Change::Resync => match superblock.known_level() {
            Some(level @ (Level::Linear | Level::Raid0)) => {
                return Err(UpdateError::NoRedundancy { level: level.name() });
            }
            Some(Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10) | None => {
                next.resync_offset = 0
            }
        },
        Change::Name(name) => next.set_name = *name,
        Change::NoBadBlocks if superblock.features.contains(Features::BAD_BLOCKS) => {
            return Err(UpdateError::ListInForce);
        }
        Change::NoBadBlocks => next.bad_blocks = BadBlocks::default(),
        Change::BadBlocks => next = with_list(superblock, surroundings.bitmap)?,
        Change::DeviceSize => next.data_size = room_for_data(superblock, surroundings.device_size)?,
        Change::Uuid(set_uuid) => next.set_uuid = *set_uuid,
    }
    Ok(next)
}

/// The superblock with a list of bad blocks where mdadm puts one: the last 4 KiB before the data, or, in version 1.0,
/// before the superblock.
///
/// Version 1.2, superblock at 8, data from 2048: the list is at sectors 2040 to 2047, so 2032 from the superblock.
fn with_list(superblock: &Superblock, bitmap: Sectors) -> Result<Superblock, UpdateError> {
    if superblock.bad_blocks.size != 0 {
        return Ok(superblock.clone());
    }
    let is_behind = superblock.version == Version::V1_0;
    let no_room = UpdateError::ListRoom { is_behind };
    let used = if superblock.size.is_zero() { superblock.data_size } else { superblock.size };
    let end = if is_behind { superblock.super_offset } else { superblock.data_offset };
    let list = Extent::new(Sector(end.0.checked_sub(BLOCK).ok_or(no_room)?), Sectors(BLOCK));
    let own = Extent::new(superblock.super_offset, SUPERBLOCK_SECTORS);
    let bitmap = superblock.bitmap_start().map(|start| Extent::new(start, bitmap));
    let taken = [Some(own), bitmap, superblock.ppl_extent(), Some(Extent::new(superblock.data_offset, used))];
    let overlaps =
        |other: &Extent<Sector>| other.start < list.start + list.length && list.start < other.start + other.length;
    if taken.iter().flatten().any(overlaps) {
        return Err(no_room);
    }
    let distance = list.start.0.cast_signed() - superblock.super_offset.0.cast_signed();
    let offset = i32::try_from(distance).map_err(|_| no_room)?;
    // With version 1.0 the list takes sectors behind the used ones, which the member counted as room for data.
    let data_size = match is_behind {
        true => superblock.data_size.min(Sectors(list.start.0 - superblock.data_offset.0)),
        false => superblock.data_size,
    };
    let next =
        Superblock { bad_blocks: BadBlocks { shift: 0, size: BLOCK as u16, offset }, data_size, ..superblock.clone() };
    assert_eq!(next.bad_blocks_extent(), Some(list), "it is where it was looked for");
    Ok(next)
}

/// The room for data on a device of this size: up to its end, or to what lies behind the data.
fn room_for_data(superblock: &Superblock, device_size: Sectors) -> Result<Sectors, UpdateError> {
    match superblock.known_level() {
        Some(level @ (Level::Linear | Level::Raid0)) => {
            return Err(UpdateError::SizedByMembers { level: level.name() });
        }
        Some(Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10) | None => {}
    }
    if superblock.version == Version::V1_0 {
        return Err(UpdateError::SizeOfEnd);
    }
    let used_end = superblock.data_offset + superblock.size;
    if device_size.0 < used_end.0 {
        return Err(UpdateError::Shrank { found: device_size, minimum: Sectors(used_end.0) });
    }
    let beside = [
        superblock.bad_blocks_extent().map(|list| list.start),
        superblock.bitmap_start(),
        superblock.ppl_extent().map(|log| log.start),
    ];
    let behind = beside.into_iter().flatten().filter(|start| *start >= used_end).map(|start| start.0);
    let end = behind.min().unwrap_or(device_size.0).min(device_size.0);
    Ok(Sectors(end - superblock.data_offset.0))
}

/// The superblock with a log if `template` has one, else without. A member without room for one stays without.
pub fn with_log_of(superblock: &Superblock, template: &Superblock) -> Superblock {
    let (has, should) = (superblock.features.intersects(LOG), template.features.intersects(LOG));
    match (has, should) {
        (true, false) => without_log(superblock),
        (false, true) => with_log(superblock).unwrap_or_else(|_| superblock.clone()),
        (true, true) | (false, false) => superblock.clone(),
    }
}

fn without_log(superblock: &Superblock) -> Superblock {
    if !superblock.features.intersects(LOG) {
        return superblock.clone();
    }
    Superblock { features: superblock.features.without(LOG), bitmap_offset: 0, ..superblock.clone() }
}

fn with_log(superblock: &Superblock) -> Result<Superblock, UpdateError> {
    const SLOTS_MAX: u32 = 64;
    match superblock.known_level() {
        Some(Level::Raid5) => (),
        Some(level) => return Err(UpdateError::Level { level: level.name() }),
        None => return Err(UpdateError::Level { level: "level that uraid does not know" }),
    }
    if superblock.features.intersects(LOG) {
        return Ok(superblock.clone());
    }
    if superblock.features.contains(Features::BITMAP_OFFSET) {
        return Err(UpdateError::Bitmap);
    }
    if superblock.raid_disks > SLOTS_MAX {
        return Err(UpdateError::Slots { found: superblock.raid_disks, maximum: SLOTS_MAX });
    }
    let area = place(superblock)?;
    let distance = area.start.0.cast_signed() - superblock.super_offset.0.cast_signed();
    let (distance, length) = (i16::try_from(distance), u16::try_from(area.length.0));
    let (Ok(distance), Ok(length)) = (distance, length) else {
        return Err(UpdateError::Room { found: Sectors::ZERO, minimum: minimum(superblock), has_list: false });
    };
    let (distance, length) = (distance.to_le_bytes(), length.to_le_bytes());
    // With version 1.0 the log takes sectors behind the used ones, which the member counted as room for data.
    let data_end = superblock.data_offset + superblock.data_size;
    let cut = if superblock.version == Version::V1_0 && data_end > area.start {
        Sectors(area.start.0 - superblock.data_offset.0)
    } else {
        superblock.data_size
    };
    let next = Superblock {
        features: superblock.features.with(Features::PPL),
        bitmap_offset: i32::from_le_bytes([distance[0], distance[1], length[0], length[1]]),
        data_size: cut,
        ..superblock.clone()
    };
    assert_eq!(next.ppl_room(), Some(area), "nothing else lies there");
    Ok(next)
}

/// The least room that the engine keeps a log in.
fn minimum(superblock: &Superblock) -> Sectors {
    superblock.chunk.min(LONGEST) + PPL_HEADER_SECTORS + PPL_HEADER_SECTORS
}

/// The first of the largest gaps between superblock, list of bad blocks and used data, of at most 1 MiB.
///
/// Version 1.2, list at 24 to 32, data from 2048: 16..24 and 32..2048, so 32..2048. Version 1.0 takes the end of its
/// gap, next to the superblock, as `create` does.
fn place(superblock: &Superblock) -> Result<Extent<Sector>, UpdateError> {
    let used_end = superblock.data_offset + superblock.size;
    let own = superblock.super_offset;
    let is_behind = superblock.version == Version::V1_0;
    let (from, to) = if is_behind { (used_end, own) } else { (own + SUPERBLOCK_SECTORS, superblock.data_offset) };
    let list = superblock.bad_blocks_extent().filter(|list| list.start >= from && list.start < to);
    let gaps = match list {
        Some(list) => vec![(from.0, list.start.0), ((list.start + list.length).0, to.0)],
        None => vec![(from.0, to.0)],
    };
    let whole = |(from, to): (u64, u64)| (from.next_multiple_of(BLOCK), to - to % BLOCK);
    let length = |(from, to): (u64, u64)| to.saturating_sub(from);
    let largest = gaps.into_iter().map(whole).rev().max_by_key(|gap| length(*gap)).expect("a gap");
    let (found, minimum) = (Sectors(length(largest)), minimum(superblock));
    if found < minimum {
        return Err(UpdateError::Room { found, minimum, has_list: list.is_some() });
    }
    let taken = found.min(PPL_SECTORS);
    let start = if is_behind { largest.1 - taken.0 } else { largest.0 };
    Ok(Extent::new(Sector(start), taken))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::create::{CreateOptions, NewMember, NewPolicy, create};

    fn made(version: Version, level: Level, size: u64, policy: NewPolicy) -> Superblock {
        let options = CreateOptions {
            version,
            level,
            layout: 2,
            chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
            raid_disks: 3,
            spare_devices: 0,
            size: None,
            data_offset: None,
            set_uuid: [7; 16],
            set_name: SetName::new("", "update").expect("a short name"),
            now_seconds: 1,
            assume_clean: true,
            force: false,
            policy,
        };
        let device = |n: u8| NewMember::Device { size: Sectors(size), uuid: [n; 16] };
        let creation = create(&options, &[1, 2, 3].map(device)).expect("an array");
        creation.superblocks[0].clone().expect("it is there")
    }

    fn changed_of(superblock: &Superblock, change: &Change) -> Result<Superblock, UpdateError> {
        changed(superblock, change, &Surroundings { device_size: Sectors(65_536), bitmap: Sectors(8) })
    }

    fn word(version: Version) -> Option<(i16, u16)> {
        let before = made(version, Level::Raid5, 65_536, NewPolicy::Resync);
        changed_of(&before, &Change::Ppl).ok().and_then(|after| after.ppl_word())
    }

    #[test]
    fn a_log_takes_the_largest_gap_beside_the_superblock_and_no_more_than_a_mib() {
        assert_eq!(word(Version::V1_2), Some((24, 2016)), "behind the list, up to the data");
        assert_eq!(word(Version::V1_1), Some((24, 2024)));
        let large = made(Version::V1_2, Level::Raid5, 1 << 23, NewPolicy::Resync);
        let after = changed_of(&large, &Change::Ppl).expect("room");
        assert_eq!(after.ppl_word().map(|word| word.1), Some(2048), "{}", large.data_offset.0);
        assert_eq!((after.data_size, after.events), (large.data_size, large.events));
        // Without its list a member has all of the gap.
        let bare = changed_of(&large, &Change::NoBadBlocks).expect("an empty list");
        assert_eq!(changed_of(&bare, &Change::Ppl).ok().and_then(|after| after.ppl_word()), Some((8, 2048)));
    }

    #[test]
    fn a_superblock_behind_the_data_needs_unused_sectors_before_it() {
        let full = made(Version::V1_0, Level::Raid5, 65_536, NewPolicy::Resync);
        assert!(matches!(changed_of(&full, &Change::Ppl), Err(UpdateError::Room { has_list: true, .. })));
        let spared = Superblock { size: Sectors(full.size.0 - 4096), ..full.clone() };
        let after = changed_of(&spared, &Change::Ppl).expect("room");
        assert_eq!(after.ppl_word(), Some((-2056, 2048)), "before the list, as create places it");
        assert!(after.data_size < full.data_size && after.data_size >= after.size);
    }

    #[test]
    fn what_is_taken_away_leaves_the_superblock_as_it_was_without_it() {
        let plain = made(Version::V1_2, Level::Raid5, 65_536, NewPolicy::Resync);
        let with = changed_of(&plain, &Change::Ppl).expect("room");
        assert_eq!(changed_of(&with, &Change::NoPpl), Ok(plain.clone()));
        assert_eq!(changed_of(&with, &Change::Ppl), Ok(with.clone()), "a second time");
        assert_eq!(with_log_of(&plain, &with), with);
        assert_eq!(with_log_of(&with, &plain), plain);
        let engine = Superblock { features: with.features.without(LOG).with(Features::MULTIPLE_PPLS), ..with };
        assert_eq!(changed_of(&engine, &Change::NoPpl), Ok(plain));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let raid1 = made(Version::V1_2, Level::Raid1, 65_536, NewPolicy::Resync);
        assert_eq!(changed_of(&raid1, &Change::Ppl), Err(UpdateError::Level { level: "raid1" }));
        let bitmap = made(Version::V1_2, Level::Raid5, 65_536, NewPolicy::Bitmap { chunk: None, write_behind: 0 });
        assert_eq!(changed_of(&bitmap, &Change::Ppl), Err(UpdateError::Bitmap));
        assert_eq!(changed_of(&bitmap, &Change::NoPpl), Ok(bitmap.clone()), "its bitmap stays");
        let many = Superblock { raid_disks: 65, ..made(Version::V1_2, Level::Raid5, 65_536, NewPolicy::Resync) };
        assert_eq!(changed_of(&many, &Change::Ppl), Err(UpdateError::Slots { found: 65, maximum: 64 }));
        let listed = Superblock { features: Features::BAD_BLOCKS, ..raid1.clone() };
        assert_eq!(changed_of(&listed, &Change::NoBadBlocks), Err(UpdateError::ListInForce));
        assert_eq!(changed_of(&raid1, &Change::Resync).map(|after| after.resync_offset), Ok(0));
        let raid0 = made(Version::V1_2, Level::Raid0, 65_536, NewPolicy::Resync);
        assert_eq!(changed_of(&raid0, &Change::Resync), Err(UpdateError::NoRedundancy { level: "raid0" }));
    }

    #[test]
    fn a_list_goes_before_the_data_or_the_superblock_if_nothing_lies_there() {
        for (version, policy, expected) in [
            (Version::V1_2, NewPolicy::Resync, Some(2032)),
            (Version::V1_1, NewPolicy::Resync, Some(2040)),
            (Version::V1_2, NewPolicy::Bitmap { chunk: None, write_behind: 0 }, Some(2032)),
            (Version::V1_0, NewPolicy::Resync, Some(-8)),
            // The log of create ends at sector 2064, behind it only 8 sectors are left for the list that was there.
            (Version::V1_2, NewPolicy::Ppl, None),
        ] {
            let made = made(version, Level::Raid5, 65_536, policy);
            let bare = changed_of(&made, &Change::NoBadBlocks).expect("an empty list");
            let expected = expected.unwrap_or_else(|| {
                i32::try_from(bare.data_offset.0 - 8 - bare.super_offset.0).expect("a small number")
            });
            let after = changed_of(&bare, &Change::BadBlocks).expect("room");
            assert_eq!((after.bad_blocks.size, after.bad_blocks.shift, after.bad_blocks.offset), (8, 0, expected));
            assert_eq!(changed_of(&after, &Change::BadBlocks), Ok(after.clone()), "a second time");
            assert_eq!(changed_of(&made, &Change::BadBlocks), Ok(made.clone()), "it has one");
            assert_eq!((after.data_size, after.events), (bare.data_size, bare.events), "{version}");
        }
        let bare = |version| {
            let made = made(version, Level::Raid5, 65_536, NewPolicy::Resync);
            Superblock { bad_blocks: BadBlocks::default(), ..made }
        };
        // Data right behind the superblock; a bitmap, and a log, that reach the data; data up to the superblock.
        let next_to = Superblock { data_offset: Sector(16), ..bare(Version::V1_2) };
        let bits = Superblock { features: Features::BITMAP_OFFSET, bitmap_offset: 2032, ..bare(Version::V1_2) };
        let log = changed_of(&bare(Version::V1_2), &Change::Ppl).expect("room for a log");
        for full in [next_to, bits, log] {
            assert_eq!(changed_of(&full, &Change::BadBlocks), Err(UpdateError::ListRoom { is_behind: false }));
        }
        let end = bare(Version::V1_0);
        let full =
            Superblock { size: Sectors(end.super_offset.0 - 7), data_size: Sectors(end.super_offset.0), ..end.clone() };
        assert_eq!(changed_of(&full, &Change::BadBlocks), Err(UpdateError::ListRoom { is_behind: true }));
        let counted = Superblock { data_size: Sectors(end.super_offset.0), ..end };
        let after = changed_of(&counted, &Change::BadBlocks).expect("unused sectors before the superblock");
        assert_eq!(after.data_size.0, counted.super_offset.0 - 8);
    }

    #[test]
    fn room_for_data_ends_with_the_device() {
        for version in [Version::V1_1, Version::V1_2] {
            let made = made(version, Level::Raid1, 60_000, NewPolicy::Resync);
            let after = changed_of(&made, &Change::DeviceSize).expect("a larger device");
            assert_eq!(after.data_size.0, 65_536 - made.data_offset.0);
            assert_eq!(Superblock { data_size: made.data_size, ..after }, made, "nothing else");
            let used = Superblock { size: Sectors(65_536 - made.data_offset.0), ..made.clone() };
            assert!(changed_of(&used, &Change::DeviceSize).is_ok(), "used to the end");
            // No mdadm puts a list there, but a superblock can say so.
            let offset = 62_000 - made.super_offset.0 as i32;
            let behind = Superblock { bad_blocks: BadBlocks { offset, ..made.bad_blocks }, ..made.clone() };
            let after = changed_of(&behind, &Change::DeviceSize).expect("up to the list");
            assert_eq!(after.data_size.0, 62_000 - made.data_offset.0);
            let shrank = Superblock { size: Sectors(65_537 - made.data_offset.0), ..made };
            let error = UpdateError::Shrank { found: Sectors(65_536), minimum: Sectors(65_537) };
            assert_eq!(changed_of(&shrank, &Change::DeviceSize), Err(error));
        }
        let end = made(Version::V1_0, Level::Raid1, 60_000, NewPolicy::Resync);
        assert_eq!(changed_of(&end, &Change::DeviceSize), Err(UpdateError::SizeOfEnd));
        let raid0 = made(Version::V1_2, Level::Raid0, 60_000, NewPolicy::Resync);
        assert_eq!(changed_of(&raid0, &Change::DeviceSize), Err(UpdateError::SizedByMembers { level: "raid0" }));
    }

    /// A list, a bitmap or a log behind the data, whose first sector is at the end of the used data, beside it, and at
    /// the end of the device.
    #[test]
    fn room_for_data_ends_where_something_lies_behind_it() {
        const DEVICE: Sectors = Sectors(24_000);
        type Put = fn(&mut Superblock, i32);
        let puts: [(&str, Put); 3] = [
            ("list", |made, offset| made.bad_blocks = BadBlocks { shift: 0, size: 8, offset }),
            ("bitmap", |made, offset| {
                (made.features, made.bitmap_offset) = (made.features.with(Features::BITMAP_OFFSET), offset);
            }),
            ("log", |made, offset| {
                (made.features, made.bitmap_offset) = (made.features.with(Features::PPL), offset | 16 << 16);
            }),
        ];
        for (version, (what, put)) in [Version::V1_1, Version::V1_2].iter().flat_map(|of| puts.map(|put| (*of, put))) {
            let made = Superblock { size: Sectors(20_000), ..made(version, Level::Raid5, 20_000, NewPolicy::Resync) };
            let used_end = made.data_offset.0 + made.size.0;
            assert!(used_end < DEVICE.0 - 2);
            for (start, end) in [
                // In the used data nothing can lie, whatever the superblock says.
                (used_end - 1, DEVICE.0),
                (used_end, used_end),
                (used_end + 1, used_end + 1),
                (DEVICE.0 - 1, DEVICE.0 - 1),
                (DEVICE.0, DEVICE.0),
                (DEVICE.0 + 1, DEVICE.0),
            ] {
                let mut with = made.clone();
                put(&mut with, (start - made.super_offset.0) as i32);
                let surroundings = Surroundings { device_size: DEVICE, bitmap: Sectors::ZERO };
                let after = changed(&with, &Change::DeviceSize, &surroundings).expect("the device is large enough");
                assert_eq!(after.data_size.0, end - made.data_offset.0, "{version}, a {what} at {start}");
                assert_eq!(Superblock { data_size: with.data_size, ..after }, with, "{version}, {what}: nothing else");
            }
        }
        let made = made(Version::V1_2, Level::Raid5, 20_000, NewPolicy::Resync);
        let used_end = made.data_offset + made.size;
        for less in [1, 0] {
            let device_size = Sectors(used_end.0 - less);
            let surroundings = Surroundings { device_size, bitmap: Sectors::ZERO };
            let error = UpdateError::Shrank { found: device_size, minimum: Sectors(used_end.0) };
            let size = changed(&made, &Change::DeviceSize, &surroundings).map(|after| after.data_size);
            assert_eq!(size, if less > 0 { Err(error) } else { Ok(made.size) });
        }
    }

    /// The least log has two headers of 4 KiB and the parity of a chunk, here 64 KiB: 144 sectors.
    #[test]
    fn a_log_goes_into_a_gap_of_exactly_its_least_length_and_not_over_the_list() {
        let made = made(Version::V1_2, Level::Raid5, 65_536, NewPolicy::Resync);
        assert_eq!(minimum(&made), Sectors(144));
        let with = |list: Option<u64>, data: u64| {
            let list = list.map(|at| BadBlocks { shift: 0, size: 8, offset: (at - 8) as i32 }).unwrap_or_default();
            let gap = Superblock { data_offset: Sector(data), bad_blocks: list, ..made.clone() };
            changed_of(&gap, &Change::Ppl).map(|after| after.ppl_extent().expect("a log"))
        };
        let area = |start: u64| Ok(Extent::new(Sector(start), Sectors(144)));
        let none = |found, has_list| Err(UpdateError::Room { found: Sectors(found), minimum: Sectors(144), has_list });
        // From the superblock's end at 16 to the data. Logs begin and end with a block of 4 KiB.
        assert_eq!(with(None, 16 + 143), none(136, false));
        assert_eq!((with(None, 16 + 144), with(None, 16 + 145)), (area(16), area(16)));
        // The list is right behind the superblock, right before the data, and where the data begins.
        assert_eq!(with(Some(16), 24 + 143), none(136, true));
        assert_eq!((with(Some(16), 24 + 144), with(Some(16), 24 + 145)), (area(24), area(24)));
        assert_eq!((with(Some(16 + 143), 16 + 151), with(Some(16 + 144), 16 + 152)), (none(136, true), area(16)));
        assert_eq!(with(Some(16 + 144), 16 + 144), area(16), "a list in the data is no list before it");
    }
}
