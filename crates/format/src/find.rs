//! The superblock of a device whose version nobody told.
//! Owns: which places are tried, which superblock counts, which error is told. Not here: the read itself (the caller).
//! Invariant: a good superblock is found whatever stands at, or cannot be read from, the other places.
//! Spec: md-reference 1.1.

use crate::version::DEVICE_SECTORS_MIN;
use crate::{SUPERBLOCK_BYTES, Superblock, SuperblockError, Version};
use uraid_block::{Sector, Sectors};

/// A superblock, and what else looks like one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The one that was made last.
    pub superblock: Superblock,
    /// The other places that carry one.
    pub others: Vec<OtherPlace>,
}

/// A place with another superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherPlace {
    /// The version that belongs there.
    pub version: Version,
    /// The first sector of it.
    pub at: Sector,
    /// What is wrong with it; `None` for a good one that was made earlier.
    pub error: Option<SuperblockError>,
}

/// Why a device has no superblock that can be used.
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
    /// What is there cannot be used; the most telling of all places.
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

/// Reads every place where a superblock may be and takes the one that was made last, as mdadm does; of two made in the
/// same moment the first in the order of [`Version::ALL`]. `read` fills 4096 bytes from a sector on, all of them
/// inside the device.
pub fn find<E>(
    device_size: Sectors,
    mut read: impl FnMut(Sector, &mut [u8; SUPERBLOCK_BYTES]) -> Result<(), E>,
) -> Result<Found, FindError<E>> {
    let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
    let mut best: Option<Superblock> = None;
    let mut others: Vec<OtherPlace> = Vec::new();
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
            Ok(found) => {
                let is_newer = best.as_ref().is_none_or(|best| found.created > best.created);
                let older = if is_newer { best.replace(found) } else { Some(found) };
                others.extend(older.map(|it| OtherPlace { version: it.version, at: it.super_offset, error: None }));
            }
            Err(source @ SuperblockError::Magic { .. }) => {
                empty = Some(FindError::Superblock { version, at, source });
            }
            Err(source) => others.push(OtherPlace { version, at, error: Some(source) }),
        }
    }
    if let Some(superblock) = best {
        others.sort_by_key(|other| other.at);
        return Ok(Found { superblock, others });
    }
    let telling = others.into_iter().filter_map(|it| Some((it, it.error?))).max_by_key(|(_, error)| weight(error));
    if let Some((OtherPlace { version, at, .. }, source)) = telling {
        return Err(FindError::Superblock { version, at, source });
    }
    let too_small = FindError::DeviceTooSmall { found: device_size, minimum: Sectors(DEVICE_SECTORS_MIN) };
    Err(unreadable.or(empty).unwrap_or(too_small))
}

/// How much an error says about what this device was: a copy that belongs elsewhere says less than damage.
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
