//! Updates of single superblocks: of members whose array need not be whole, or cannot start because of what is updated.
//! Owns: `logical-block-size`, `layout-original`, `layout-alternate`. Not here: updates that all members of a clean array
//! get together (the parent).
//! Invariant: every member is claimed and checked before any is changed. Nothing but this field is changed, so members
//! that have it and members that have not are still of one array: the same command goes on.

use super::args::{UpdateArgs, What as UpdateWhat};
use super::{UpdateRefusal, open_all};
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_control::log::print;
use uraid_control::names;
use uraid_format::{Features, Superblock, Version};
use uraid_host::Claimed;
use uraid_layout::Level;
use uraid_serve::metadata::{self, MetadataError};
use uraid_serve::opening::Opened;

/// Why a member is not changed. The text follows its name and a colon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EachError {
    /// 0.90 has no such field.
    #[error("has a superblock of version 0.90, which has no such field")]
    Old,
    /// Smaller writes than a block would be refused by the device.
    #[error(
        "has blocks of {found} bytes: an array on it needs at least as large ones, and an older kernel cannot start it either"
    )]
    Blocks {
        /// Bytes of a block.
        found: u64,
    },
    /// Only raid0 has zones.
    #[error("belongs to an array of another level, expected raid0")]
    NoRaid0,
    /// Members with different layouts would be no array.
    #[error(
        "{found} of its array's {expected} members are named, expected all: with different layouts they are no array"
    )]
    NotAll {
        /// The members named.
        found: usize,
        /// Those of the array.
        expected: u32,
    },
    /// It is of another array than the first.
    #[error("belongs to another array than {first}: give the members of one")]
    Foreign {
        /// The first member.
        first: String,
    },
}

/// md's numbers of the layouts of a raid0 with members of several sizes.
const ORIGINAL: u32 = 1;
const ALTERNATE: u32 = 2;

/// A field of a superblock, and what it is to say.
#[derive(Clone, Copy)]
pub(super) enum Field {
    LogicalBlockSize,
    Layout(u32),
}

/// The field that this update changes; `None` if it is one of the array.
pub(super) fn field(what: UpdateWhat) -> Option<Field> {
    match what {
        UpdateWhat::LogicalBlockSize => Some(Field::LogicalBlockSize),
        UpdateWhat::LayoutOriginal => Some(Field::Layout(ORIGINAL)),
        UpdateWhat::LayoutAlternate => Some(Field::Layout(ALTERNATE)),
        UpdateWhat::Ppl
        | UpdateWhat::NoPpl
        | UpdateWhat::Resync
        | UpdateWhat::Name
        | UpdateWhat::Homehost
        | UpdateWhat::NoBbl
        | UpdateWhat::Bbl
        | UpdateWhat::Uuid
        | UpdateWhat::DeviceSize => None,
    }
}

/// Changes the members.
pub(super) fn run(args: &UpdateArgs, field: Field) -> Result<(), UpdateRefusal> {
    let Opened { members, candidates, .. } = open_all(&args.members)?;
    let first = &candidates[0].superblock;
    let is_all = candidates.len() >= first.raid_disks as usize;
    if let (Field::Layout(_), false) = (field, is_all) {
        let (found, expected) = (candidates.len(), first.raid_disks);
        let member = members[0].name().to_owned();
        return Err(UpdateRefusal::Each { member, source: EachError::NotAll { found, expected } });
    }
    let mut changed = Vec::new();
    for (member, candidate) in members.iter().zip(&candidates) {
        let refused = |source| UpdateRefusal::Each { member: member.name().to_owned(), source };
        if candidate.superblock.set_uuid != first.set_uuid {
            return Err(refused(EachError::Foreign { first: members[0].name().to_owned() }));
        }
        let next = next(field, &candidate.superblock, member).map_err(refused)?;
        changed.extend((next != candidate.superblock).then_some((member, next)));
    }
    for (member, next) in &changed {
        write(member, next).map_err(UpdateRefusal::WriteEach)?;
    }
    let array = names::printable(&names::short_name(&first.set_name.as_str(), &first.set_uuid));
    let told = match field {
        Field::Layout(ORIGINAL) => "layout: original",
        Field::Layout(_) => "layout: alternate",
        Field::LogicalBlockSize => "logical block size: not recorded; kernels before 6.19 can start the array",
    };
    let already = if changed.is_empty() { " already" } else { "" };
    print(&format!("{array}: {told}{already}, on {} members\n", members.len()));
    Ok(())
}

fn next(field: Field, now: &Superblock, member: &Claimed) -> Result<Superblock, EachError> {
    if now.version == Version::V0_90 {
        return Err(EachError::Old);
    }
    let layout = match field {
        Field::Layout(layout) => layout,
        Field::LogicalBlockSize => {
            let found = member.geometry().logical_block;
            if found > Sectors(1) {
                return Err(EachError::Blocks { found: found.bytes() });
            }
            return Ok(Superblock { logical_block_size: 0, ..now.clone() });
        }
    };
    if now.known_level() != Some(Level::Raid0) {
        return Err(EachError::NoRaid0);
    }
    Ok(Superblock { layout, features: now.features.with(Features::RAID0_LAYOUT), ..now.clone() })
}

fn write(member: &Claimed, superblock: &Superblock) -> Result<(), MetadataError> {
    let failed = metadata::failed(member, "writing the superblock");
    let bytes = superblock.encode();
    let at = superblock.super_offset.0 * SECTOR_BYTES as u64;
    member.write_at(at, &bytes[..superblock.written_bytes()]).map_err(&failed)?;
    member.sync().map_err(&failed)
}
