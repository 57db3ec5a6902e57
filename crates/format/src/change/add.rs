//! The superblock of a device that joins an array which exists.
//! Owns: its place and size, what it takes over from the others, the length of the role table. Not here: which devices
//! may join (`uraid`), the role (`engine`), its number, ids.
//! Invariant: the array's data fits behind the data offset, and overlaps no metadata.
//! Spec: docs/md/formats.md#what-mdadm-creates. As mdadm does, data begins where it begins on the others; on a device that
//! is too small for that, earlier, as far as the metadata beside the superblock lets it.
//!
//! ```text
//!   a member     [superblock, bitmap, list]  . . . . . .  |------ data ------|        data offset 129 MiB
//!   joins        [superblock, bitmap, list]  |------ data ------|                     a smaller device: 1 MiB
//! ```

use crate::change::create::{self, Geometry};
use crate::logs::bitmap::BitmapImage;
use crate::superblock::HEADER_BYTES;
use crate::{BadBlocks, Features, FlagChange, Role, SUPERBLOCK_BYTES, Superblock};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};

/// Entries of the longest role table.
pub const ROLES_MAX: usize = (SUPERBLOCK_BYTES - HEADER_BYTES) / 2;

/// The device that joins.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    /// Its size.
    pub size: Sectors,
    /// A new id for it.
    pub uuid: [u8; 16],
    /// Its permanent number: its index in the role table.
    pub number: u32,
    /// What it has of md's flags of members.
    pub flags: FlagChange,
    /// The length of the array's bitmap, rounded up; zero without one.
    pub bitmap: Sectors,
}

/// The device has too little room for the array's data. The text follows its name and a colon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "has {}, at least {} are needed: the array uses {} of each member, behind the metadata",
    found.size(),
    minimum.size(),
    used.size()
)]
pub struct TooSmall {
    /// Its size.
    pub found: Sectors,
    /// The least size.
    pub minimum: Sectors,
    /// What the array uses of a member.
    pub used: Sectors,
}

/// The superblock of the device: a spare. What all members share is that of `template`, a member's.
pub fn superblock(template: &Superblock, joining: &Joining) -> Result<Superblock, TooSmall> {
    let version = template.version;
    let list = if template.bad_blocks.size == 0 { BadBlocks::default() } else { template.bad_blocks };
    let has_bitmap = template.features.contains(Features::BITMAP_OFFSET);
    let ppl = template.ppl_word();
    let first = ppl.map_or(if has_bitmap { template.bitmap_offset } else { 0 }, |(offset, _)| offset.into());
    let before = u64::from(first.min(0).unsigned_abs());
    let offset_on = |size: Sectors| -> Option<Sectors> {
        let at = version.location(size)?;
        let same = Sectors(template.data_offset.0);
        let data_end = same + template.size;
        // Of 1.0 superblocks, which follow the data, the list, the bitmap and the log are in between.
        if at.0 >= same.0 {
            return (data_end.0 + before.max(u64::from(list.size)) <= at.0).then_some(same);
        }
        if data_end <= size {
            return Some(same);
        }
        earlier_offset(template, size.0.checked_sub(template.size.0)?, joining.bitmap)
    };
    let Some(data_offset) = offset_on(joining.size) else {
        let minimum = (template.size.0..).map(Sectors).find(|size| offset_on(*size).is_some());
        let minimum = minimum.expect("a device can be large enough");
        return Err(TooSmall { found: joining.size, minimum, used: template.size });
    };
    let geometry = Geometry { data_offset, size: template.size, bad_blocks_offset: None, max_dev: 0 };
    let ppl = ppl.map_or(Sectors::ZERO, |(_, size)| Sectors(size.into()));
    let beside = create::beside(template.size, None, ppl);
    let data_size = create::data_size(version, joining.size, &geometry, beside);
    let own = Features::RECOVERY_OFFSET.with(Features::RECOVERY_BITMAP).with(Features::BAD_BLOCKS);
    Ok(Superblock {
        features: template.features.without(own.with(Features::REPLACEMENT)),
        data_offset: Sector(data_offset.0),
        data_size: data_size.expect("the data fits").max(template.size),
        super_offset: version.location(joining.size).expect("it fits"),
        recovery_offset: 0,
        dev_number: joining.number,
        corrected_reads: 0,
        device_uuid: joining.uuid,
        devflags: joining.flags.apply(0),
        bad_blocks: list,
        roles: roles_with(&template.roles, joining.number),
        ..template.clone()
    })
}

/// Where data begins on a device that is too small for the offset of the others: at most at `last`, at a MiB if there is
/// one, behind all that lies beside the superblock. `None`: there is no such place.
fn earlier_offset(template: &Superblock, last: u64, bitmap: Sectors) -> Option<Sectors> {
    const ALIGNMENTS: [u64; 2] = [2048, 8];
    let own = template.super_offset.0 + (SUPERBLOCK_BYTES / SECTOR_BYTES) as u64;
    let areas = [template.bad_blocks_extent(), template.ppl_extent()].into_iter().flatten();
    let ends = areas.map(|area| area.start.0 + area.length.0);
    let bits = template.bitmap_start().map(|start| start.0 + bitmap.0);
    let first = ends.chain(bits).chain([own]).max().expect("the superblock is one");
    ALIGNMENTS.iter().map(|alignment| last / alignment * alignment).find(|offset| *offset >= first).map(Sectors)
}

/// The superblock of a former member that returns: its own, with another number, and its flags changed. Its old number
/// stays one of a device that failed, as the superblocks of all who left before say.
pub fn returned_superblock(former: &Superblock, template: &Superblock, number: u32, flags: FlagChange) -> Superblock {
    let (devflags, roles) = (flags.apply(former.devflags), roles_with(&template.roles, number));
    Superblock { dev_number: number, devflags, roles, ..former.clone() }
}

/// The role table with an entry for this number, which is a spare's: header and table fill whole sectors.
pub fn roles_with(roles: &[Role], number: u32) -> Vec<Role> {
    let number = number as usize;
    assert!(number < ROLES_MAX, "no table is longer");
    let mut roles = roles.to_vec();
    if number >= roles.len() {
        let bytes = (HEADER_BYTES + 2 * (number + 1)).next_multiple_of(SECTOR_BYTES);
        roles.resize((bytes - HEADER_BYTES) / 2, Role::Spare);
    }
    roles[number] = Role::Spare;
    roles
}

/// What is written to a device before its superblock, and must be durable before that: the empty list of bad blocks, the
/// bitmap, an empty log.
pub fn writes_before(superblock: &Superblock, bitmap: Option<&BitmapImage>) -> Vec<(Sector, Vec<u8>)> {
    let all = create::writes(superblock, bitmap).into_iter();
    all.filter(|(at, _)| *at != superblock.super_offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::create::{CreateOptions, NewMember, NewPolicy, create};
    use crate::{SetName, Version};
    use uraid_layout::Level;

    fn template(version: Version) -> Superblock {
        let options = CreateOptions {
            version,
            level: Level::Raid5,
            layout: 2,
            chunk: Sectors(128),
            raid_disks: 3,
            spare_devices: 0,
            size: None,
            data_offset: None,
            set_uuid: [7; 16],
            set_name: SetName::new("", "add").expect("a short name"),
            now_seconds: 1,
            assume_clean: true,
            force: false,
            policy: NewPolicy::Resync,
        };
        let device = |n: u8| NewMember::Device { size: Sectors(40_000), uuid: [n; 16] };
        let creation = create(&options, &[1, 2, 3].map(device)).expect("an array");
        creation.superblocks[0].clone().expect("it is there")
    }

    #[test]
    fn a_device_that_is_just_large_enough_joins_and_its_superblock_parses_at_its_place() {
        for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
            let template = template(version);
            let joining = |size| Joining {
                size,
                uuid: [9; 16],
                number: 200,
                flags: FlagChange::default(),
                bitmap: Sectors::ZERO,
            };
            let Err(TooSmall { minimum, .. }) = superblock(&template, &joining(Sectors(2000))) else {
                panic!("{version}: 1 MB is too small")
            };
            let less = joining(minimum - Sectors(1));
            let used = template.size;
            assert_eq!(superblock(&template, &less), Err(TooSmall { found: less.size, minimum, used }), "{version}");
            for more in [0, 1, 7, 9000] {
                let size = minimum + Sectors(more);
                let own = superblock(&template, &joining(size)).expect("large enough");
                let parsed = Superblock::parse(&own.encode(), own.super_offset, size).expect("a good one");
                assert_eq!(parsed, own, "{version}");
                assert!(own.data_size >= template.size && own.own_role() == Role::Spare, "{version}");
                assert_eq!(own.bad_blocks, template.bad_blocks, "{version}");
                assert_eq!((HEADER_BYTES + 2 * own.roles.len()) % SECTOR_BYTES, 0, "{version}");
            }
        }
    }

    /// Where the data of a device of this size begins.
    fn data_offset(template: &Superblock, size: u64) -> Result<u64, TooSmall> {
        let (uuid, bitmap) = ([9; 16], Sectors::ZERO);
        let joining = Joining { size: Sectors(size), uuid, number: 3, flags: FlagChange::default(), bitmap };
        superblock(template, &joining).map(|own| own.data_offset.0)
    }

    /// The list takes 8 sectors, 16 behind the start of the superblock: data may begin where it ends.
    #[test]
    fn on_the_smallest_device_data_begins_right_behind_the_list() {
        for (version, first) in [(Version::V1_1, 24), (Version::V1_2, 32)] {
            let template = template(version);
            let least = template.size.0 + first;
            let error = TooSmall { found: Sectors(least - 1), minimum: Sectors(least), used: template.size };
            for (size, expected) in [(least - 1, Err(error)), (least, Ok(first)), (least + 8, Ok(first + 8))] {
                assert_eq!(data_offset(&template, size), expected, "{version}, {size} of {least}");
            }
        }
    }

    #[test]
    fn a_device_that_ends_with_the_used_data_has_it_where_the_others_do() {
        for version in [Version::V1_1, Version::V1_2] {
            // Of this offset, 2048 is the next one below at which data would begin.
            let template = Superblock { data_offset: Sector(2050), ..template(version) };
            let end = 2050 + template.size.0;
            for (size, expected) in [(end - 2, 2048), (end - 1, 2048), (end, 2050), (end + 1, 2050)] {
                assert_eq!(data_offset(&template, size), Ok(expected), "{version}, {size} of {end}");
            }
        }
        // The list is between data and superblock, which begins 8 to 12 KiB before the end.
        let template = template(Version::V1_0);
        let least = template.size.0 + 8 + 16;
        let error = TooSmall { found: Sectors(least - 1), minimum: Sectors(least), used: template.size };
        for (size, expected) in [(least - 1, Err(error)), (least, Ok(0)), (least + 1, Ok(0))] {
            assert_eq!(data_offset(&template, size), expected, "{size} of {least}");
        }
    }
}
