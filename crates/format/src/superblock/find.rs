//! Finds the superblock of a device of unknown version.
//! Owns: which places are read, which superblock is in force, which error is returned. Not here: the read itself (the
//! caller).
//! Invariant: a good superblock is found whatever the other places hold, and even if they cannot be read; but a
//! superblock inside the data area of a damaged one is never taken.
//! Spec: docs/md/formats.md#places-of-the-superblock; docs/format/superblock-1.md#several-superblocks-on-one-device.

use crate::superblock::version::DEVICE_SECTORS_MIN;
use crate::{SUPERBLOCK_BYTES, Superblock, SuperblockError, TIME_SECONDS_MASK, Version};
use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors};
use uraid_layout::Level;

/// The superblock in force, and the other places that have one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The one in force.
    pub superblock: Superblock,
    /// The other places with a superblock, by their sectors.
    pub others: Vec<OtherPlace>,
}

impl Found {
    /// Superblocks in the data of the one in force of which it is not known whether they are of a member of an array that
    /// lies in this one, or of today's array, and the one in force is a leftover.
    pub fn doubtful_contents(&self) -> impl Iterator<Item = &OtherPlace> {
        self.others.iter().filter(|other| other.standing == Standing::Content { is_doubtful: true })
    }

    /// The other superblocks that are out of force only because of their creation time.
    pub fn rivals(&self) -> impl Iterator<Item = &OtherPlace> {
        self.others.iter().filter(|other| other.standing == Standing::Earlier)
    }
}

/// A place that has another superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherPlace {
    /// The version that belongs there.
    pub version: Version,
    /// The first sector of it.
    pub at: Sector,
    /// Why it is not in force.
    pub standing: Standing,
}

/// Why a superblock is not in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is good, but lies in the data area of the one in force: that array's content is a member of another array.
    Content {
        /// It was made after the last update of the one in force, and its data would fit this device. So the array may
        /// also have been gone when it was made.
        is_doubtful: bool,
    },
    /// It is good, but was not made later than the one in force. Their places do not show which one is right.
    Earlier,
    /// It is not good.
    Damaged(SuperblockError),
}

/// Why a device has no usable superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FindError<E> {
    /// No version fits.
    #[error("device has {found}, at least {minimum} are needed for a superblock")]
    DeviceTooSmall {
        /// Its size.
        found: Sectors,
        /// The least size.
        minimum: Sectors,
    },
    /// A place cannot be read, and no other has a superblock.
    #[error("sector {}, where a superblock would be, cannot be read", at.0)]
    Read {
        /// The first sector of the place.
        at: Sector,
        /// Why.
        source: E,
    },
    /// The content of the places is unusable; this is the most informative error of all places.
    #[error("no good superblock, at the place of version {version} (sector {})", at.0)]
    Superblock {
        /// The version that belongs there.
        version: Version,
        /// The first sector of the place.
        at: Sector,
        /// What is wrong.
        source: SuperblockError,
    },
}

/// Reads every place where a superblock may be and returns the one in force. `read` fills 4096 bytes from a sector on,
/// all of them inside the device.
///
/// A superblock is content of another array (an array over arrays) if it lies in the data area of that array's
/// superblock, and not the other way round. A damaged superblock can contain others too. Of the remaining superblocks,
/// the one that was created last is in force. This is mdadm's only rule. Of two created at the same time, the first in
/// the order of [`Version::ALL`] is in force.
pub fn find<E>(
    device_size: Sectors,
    mut read: impl FnMut(Sector, &mut [u8; SUPERBLOCK_BYTES]) -> Result<(), E>,
) -> Result<Found, FindError<E>> {
    let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
    let mut good: Vec<Superblock> = Vec::new();
    let mut others: Vec<OtherPlace> = Vec::new();
    let mut damaged: Vec<Superblock> = Vec::new();
    let mut unreadable = None;
    let mut empty = None;
    for version in Version::ALL {
        let Some(at) = version.location(device_size) else { continue };
        if let Err(source) = read(at, &mut bytes) {
            unreadable = unreadable.or(Some(FindError::Read { at, source }));
            continue;
        }
        match Superblock::parse(&bytes, at, device_size) {
            // On a tiny device two versions share a place; the bytes belong to one of them.
            Ok(found) if found.version != version => {}
            Ok(found) => good.push(found),
            Err(source @ SuperblockError::Magic { .. }) => {
                empty = Some(FindError::Superblock { version, at, source });
            }
            Err(source) => {
                damaged.extend(Superblock::parse_damaged(&bytes, at, device_size).ok().map(|(found, _)| found));
                others.push(OtherPlace { version, at, standing: Standing::Damaged(source) });
            }
        }
    }
    let own = own(&good, device_size);
    let is_own_damaged = own.is_some_and(|own| damaged.iter().any(|it| holds(it, &good[own], device_size)));
    if let Some(index) = own.filter(|_| !is_own_damaged) {
        let superblock = good.swap_remove(index);
        others.extend(good.iter().map(|it| {
            let is_content = holds(&superblock, it, device_size);
            let is_doubtful = it.created_seconds() > superblock.updated_seconds() && fits(it, device_size);
            let standing = if is_content { Standing::Content { is_doubtful } } else { Standing::Earlier };
            OtherPlace { version: it.version, at: it.super_offset, standing }
        }));
        others.sort_by_key(|other| other.at);
        return Ok(Found { superblock, others });
    }
    let damaged = others.into_iter().filter_map(|it| match it.standing {
        Standing::Damaged(source) => Some((it.version, it.at, source)),
        Standing::Content { .. } | Standing::Earlier => None,
    });
    if let Some((version, at, source)) = damaged.max_by_key(|(_, _, source)| weight(source)) {
        return Err(FindError::Superblock { version, at, source });
    }
    let too_small = FindError::DeviceTooSmall { found: device_size, minimum: Sectors(DEVICE_SECTORS_MIN) };
    Err(unreadable.or(empty).unwrap_or(too_small))
}

/// The index of the one in force; `None` if there is none. In the order of [`Version::ALL`].
fn own(good: &[Superblock], device_size: Sectors) -> Option<usize> {
    // Containment has no cycles, and only 1.0 and 0.90 contain any: one is always left.
    let is_held = |it: &Superblock| good.iter().any(|holder| holds(holder, it, device_size));
    let left = good.iter().enumerate().filter(|(_, it)| !is_held(it));
    // Reversed to get the first of equals: `max_by_key` returns the last.
    left.rev().max_by_key(|(_, it)| made(it)).map(|(index, _)| index)
}

/// The recorded creation time: seconds, then microseconds.
fn made(superblock: &Superblock) -> (u64, u64) {
    (superblock.created_seconds(), superblock.created & !TIME_SECONDS_MASK)
}

/// Whether `held` is content of the array of `holder` on this device: `held` lies in the data area of `holder`, and
/// `holder` does not lie in the data area of `held`. A data area that would run past the end of the device does not
/// count: a member of an array over a stripe is longer than one device of the stripe.
///
/// Nor does an array count that was clean, and last updated before `held` was made: it is a leftover.
///
/// A superblock records its own sector. That sector is the same on the array and on the device only if data starts at
/// sector 0. Example: on a device of 1003 sectors, a 1.0 mirror contains a 1.2 member of another array, and that member
/// is as large as the mirror:
///
/// ```text
///   0     8    16                               976  984  992  1003
///   |     [1.2]|--- data of the 1.2 ------------|    |    |    |
///   |--- data of the 1.0 -----------------------|    [1.0]|    |
/// ```
fn holds(holder: &Superblock, held: &Superblock, device_size: Sectors) -> bool {
    let (holder_data, held_data) = (data(holder), data(held));
    let contains = holder_data.start == Sector(0) && place(held).end() <= holder_data.end();
    contains && !is_leftover(holder, held) && !(fits(held, device_size) && held_data.overlaps(place(holder)))
}

/// Whether the data area lies on the device. That of a member of an array over a stripe does not.
fn fits(superblock: &Superblock, device_size: Sectors) -> bool {
    data(superblock).end().0 <= device_size.0
}

/// Whether `holder` is of an array that was gone when `held` was made: what is written through an array with redundancy
/// marks its superblocks dirty before, which counts as an update. One that is dirty may have been updated long before.
fn is_leftover(holder: &Superblock, held: &Superblock) -> bool {
    // The superblock of a new member is made a moment before it is written.
    const MOMENT_SECONDS: u64 = 60;
    let marks_dirty = holder.known_level().is_some_and(Level::is_redundant);
    let is_older = held.created_seconds() > holder.updated_seconds().saturating_add(MOMENT_SECONDS);
    marks_dirty && !holder.is_dirty() && is_older
}

/// The data area on the device. Both numbers are below 2^54, see [`Superblock::parse`].
fn data(superblock: &Superblock) -> Range {
    Range::new(superblock.data_offset, superblock.data_size)
}

/// The sectors of the superblock itself.
fn place(superblock: &Superblock) -> Range {
    Range::new(superblock.super_offset, Sectors((SUPERBLOCK_BYTES / SECTOR_BYTES) as u64))
}

/// How informative an error is: a copy that belongs elsewhere says less about the device than damage.
fn weight(error: &SuperblockError) -> u8 {
    match error {
        SuperblockError::Magic { .. } => 0,
        SuperblockError::Version { .. } | SuperblockError::NoPlace { .. } => 1,
        SuperblockError::Place { .. } => 2,
        SuperblockError::Checksum { .. }
        | SuperblockError::ByteOrder
        | SuperblockError::MinorVersion { .. }
        | SuperblockError::ChunkBytes { .. }
        | SuperblockError::DiskSlot { .. }
        | SuperblockError::TooManyRoles { .. }
        | SuperblockError::DeviceTooSmall { .. }
        | SuperblockError::DataOffset { .. }
        | SuperblockError::DataSize { .. }
        | SuperblockError::DataEnd { .. }
        | SuperblockError::Size { .. }
        | SuperblockError::Padding { .. }
        | SuperblockError::LogicalBlockSize { .. }
        | SuperblockError::Events { .. }
        | SuperblockError::RaidDisks { .. } => 3,
    }
}
