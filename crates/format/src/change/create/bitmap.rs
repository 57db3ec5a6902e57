//! Whether a new array gets a write-intent bitmap, where it goes, and its first bytes.
//! Owns: the choice, what the bits cover. Not here: the arithmetic of its place (`geometry`), its bytes (`logs::bitmap`).
//! Spec: docs/md/formats.md#what-mdadm-creates.

use super::{BitmapPlacement, CreateError, CreateOptions, geometry};
use crate::logs::bitmap::{BitmapHeader, BitmapImage, BitmapVersion};
use crate::{Superblock, Version};
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_layout::{Layout, Level};

/// How a new array is made consistent after a crash: mdadm's `--consistency-policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewPolicy {
    /// By a resync of everything.
    Resync,
    /// As mdadm 4.2 chooses by itself: a write-intent bitmap if the level has redundancy and more than 100 GiB of each
    /// member are used.
    IfLarge,
    /// By a write-intent bitmap beside each superblock. `chunk`: what a bit stands for; `None`: as mdadm chooses.
    Bitmap {
        /// A power of two.
        chunk: Option<Sectors>,
        /// How many writes of a raid1 may be behind on its write-mostly members; 0: none.
        write_behind: u32,
    },
    /// By a partial parity log; raid5 only.
    Ppl,
}

/// What the bits of an array cover: of each member, or for raid10 of the array.
pub(super) fn covered(layout: &Layout) -> Sectors {
    match layout {
        Layout::Copies(_) => layout.array_size(),
        Layout::Parity(layout) => Sectors(layout.rows_count() * layout.chunk().0),
    }
}

/// Why an array has no place for a bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoBitmapPlace {
    /// Members that are too small.
    #[error("members of which {} are used have no room for a bitmap", found.size())]
    Room {
        /// What is used of each.
        found: Sectors,
    },
    /// An impossible chunk.
    #[error(
        "bitmap chunk is {}, expected a power of two from {} to 1 GiB: there must be room for all bits",
        found.size(),
        minimum.size()
    )]
    Chunk {
        /// The requested value.
        found: Sectors,
        /// The least.
        minimum: Sectors,
    },
}

/// The bitmap of a new array.
pub(super) fn first_bitmap(options: &CreateOptions, placement: &BitmapPlacement, covered: Sectors) -> BitmapImage {
    let mut bitmap = filled(options.set_uuid, 0, placement, covered);
    if let NewPolicy::Bitmap { write_behind, .. } = options.policy {
        bitmap.change_header(|header| header.write_behind = write_behind);
    }
    bitmap
}

/// A bitmap for an array that has none.
#[derive(Clone, Debug)]
pub struct BitmapToAdd {
    /// Sectors from each superblock.
    pub offset: i32,
    /// Its header, and no bit set.
    pub image: BitmapImage,
}

/// The place and the bytes of a bitmap for an array that has none. `template`: the superblock of any member. `covered`: what the bits cover: of each member, for raid10 of the array. `chunk`: what
/// a bit stands for; `None`: as mdadm chooses.
///
/// raid1 of 1 GiB, superblock 1.2: a chunk of 64 MiB, 16 bits, 8 sectors behind the superblock.
pub fn bitmap_to_add(
    template: &Superblock,
    covered: Sectors,
    chunk: Option<Sectors>,
) -> Result<BitmapToAdd, NoBitmapPlace> {
    let placement = place(template.version, template.size, covered, chunk)?;
    let image = filled(template.set_uuid, template.events, &placement, covered);
    Ok(BitmapToAdd { offset: placement.offset, image: image.cleared() })
}

fn filled(set_uuid: [u8; 16], events: u64, placement: &BitmapPlacement, covered: Sectors) -> BitmapImage {
    let header = BitmapHeader {
        version: BitmapVersion::LittleEndian,
        set_uuid,
        events,
        events_cleared: events,
        sync_size: covered,
        state: 0,
        chunk_bytes: u32::try_from(placement.chunk_bytes).expect("`place` bounded it"),
        daemon_sleep_seconds: 5,
        write_behind: 0,
        sectors_reserved: Sectors::ZERO,
        nodes: 0,
        cluster_name: [0; 64],
    };
    BitmapImage::filled(header, Sectors(u64::MAX)).expect("the bits have room, which is at most 128 KiB")
}

/// Where a bitmap goes, with a chunk of this size or of mdadm's choice.
fn place(
    version: Version,
    size: Sectors,
    covered: Sectors,
    chunk: Option<Sectors>,
) -> Result<BitmapPlacement, NoBitmapPlace> {
    const CHUNK_MAX: Sectors = Sectors(1 << 21);
    let no_room = NoBitmapPlace::Room { found: size };
    let minimum = geometry::bitmap_chunk_min(size, covered).ok_or(no_room)?;
    let minimum = Sectors(minimum / SECTOR_BYTES as u64);
    match chunk {
        None => {
            let placement = geometry::bitmap_placement(version, size, covered);
            // The header has 32 bits for the chunk. No member is as large as that takes.
            placement.filter(|placement| u32::try_from(placement.chunk_bytes).is_ok()).ok_or(no_room)
        }
        Some(found) if found < minimum || found > CHUNK_MAX || !found.0.is_power_of_two() => {
            Err(NoBitmapPlace::Chunk { found, minimum })
        }
        Some(chunk) => Ok(geometry::bitmap_of_chunk(version, covered, chunk.len_bytes() as u64)),
    }
}

/// Where the bitmap goes, if the array gets one.
pub(super) fn choose_bitmap(options: &CreateOptions, size: Sectors) -> Result<Option<BitmapPlacement>, CreateError> {
    const LARGE: Sectors = Sectors(100 << 21);
    let is_plain = matches!(options.level, Level::Linear | Level::Raid0);
    let chunk = match options.policy {
        NewPolicy::Resync | NewPolicy::Ppl => return Ok(None),
        NewPolicy::IfLarge if is_plain || size <= LARGE => return Ok(None),
        NewPolicy::Bitmap { .. } if is_plain => {
            return Err(CreateError::NoBitmap { level: options.level.name() });
        }
        NewPolicy::IfLarge => None,
        NewPolicy::Bitmap { chunk, .. } => chunk,
    };
    let copies = if options.level == Level::Raid10 { (options.layout & 255) * (options.layout >> 8 & 255) } else { 1 };
    let covered = match options.level {
        Level::Raid10 => Sectors(size.0 * u64::from(options.raid_disks) / u64::from(copies.max(1))),
        Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 => size,
    };
    match place(options.version, size, covered, chunk) {
        Ok(placement) => Ok(Some(placement)),
        Err(NoBitmapPlace::Room { .. }) if options.policy == NewPolicy::IfLarge => Ok(None),
        Err(NoBitmapPlace::Room { found }) => Err(CreateError::NoBitmapRoom { found }),
        Err(NoBitmapPlace::Chunk { found, minimum }) => Err(CreateError::BitmapChunk { found, minimum }),
    }
}
