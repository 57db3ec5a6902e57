//! Write-intent bitmaps of simulated arrays: what a seed draws, a new bitmap's bytes, reading a bitmap back.
//! Owns: [`Bits`]. Not here: that a bit is durable before its data (`judge::bits_check`), which sectors disagree
//! (`judge::checks::redundancy`).
//! Invariant: drawing a bitmap changes nothing else that a seed draws.

use crate::image::areas::{BITMAP_AT, BITMAP_SECTORS, SUPER_AT};
use crate::random::rng::mix;
use crate::reference::model::{Model, Shape};
use std::time::Duration;
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_format::Superblock;
use uraid_format::bitmap::{BITMAP_HEADER_BYTES, BitmapHeader, BitmapImage, BitmapUnusable, BitmapVersion};
use uraid_format::create::BitmapToAdd;

/// The bitmap of a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    /// Sectors of a chunk, a power of two.
    pub chunk: u64,
    /// How long after its last write a bit may be cleared.
    pub clear_after: Duration,
    /// Whether all bits of a new array are set, as mdadm leaves them; if not, its copies or parity must agree already.
    pub are_set: bool,
    /// How many writes of a raid1 may be behind on its write-mostly members.
    pub write_behind: u32,
}

impl Bits {
    /// What the seed of this array draws, for a level with redundancy.
    /// `is_wanted`: it has one in any case.
    pub fn draw(array: u64, starts_dirty: bool, is_wanted: bool) -> Option<Bits> {
        let draw = |number: u64, below: u64| mix(array ^ (0xb175 + number)) % below;
        (draw(0, 5) < 2 || is_wanted).then(|| Bits {
            chunk: 1 << draw(1, 5),
            clear_after: Duration::from_micros([500, 1_000, 5_000, 50_000][draw(2, 4) as usize]),
            are_set: starts_dirty || draw(3, 2) == 0,
            write_behind: [0, 1, 3, 256][draw(4, 4) as usize],
        })
    }

    /// The page as a new array has it.
    pub fn page(&self, shape: &Shape, set_uuid: [u8; 16]) -> Vec<u8> {
        let header = header(shape, set_uuid, self.chunk, self.write_behind);
        let mut page = vec![if self.are_set { 0xff } else { 0 }; BITMAP_SECTORS as usize * SECTOR_BYTES];
        page[..BITMAP_HEADER_BYTES].copy_from_slice(&header.encode());
        page
    }
}

fn header(shape: &Shape, set_uuid: [u8; 16], chunk: u64, write_behind: u32) -> BitmapHeader {
    let model = Model::new(shape.clone());
    let covered = if model.is_parity() { shape.size } else { model.array_size() };
    BitmapHeader {
        version: BitmapVersion::LittleEndian,
        set_uuid,
        events: 1,
        events_cleared: 1,
        sync_size: Sectors(covered),
        state: 0,
        chunk_bytes: (chunk as usize * SECTOR_BYTES) as u32,
        daemon_sleep_seconds: 5,
        write_behind,
        sectors_reserved: Sectors::ZERO,
        nodes: 0,
        cluster_name: [0; 64],
    }
}

/// A bitmap for an array that serves: the array of this shape and id, with this many sectors a bit. `write_behind`: how
/// many writes may be behind.
pub fn bitmap_to_add(shape: &Shape, set_uuid: [u8; 16], chunk: u64, write_behind: u32) -> BitmapToAdd {
    let image = BitmapImage::filled(header(shape, set_uuid, chunk, write_behind), Sectors(BITMAP_SECTORS))
        .expect("one page is room");
    BitmapToAdd { offset: (BITMAP_AT - SUPER_AT) as i32, image: image.cleared() }
}

/// The bitmap in a member's image, by the real parser.
pub fn bitmap_of(image: &[u8], superblock: &Superblock) -> Result<BitmapImage, BitmapUnusable> {
    BitmapImage::read_beside(superblock, |at, into| match image.get(at as usize..at as usize + into.len()) {
        Some(bytes) => {
            into.copy_from_slice(bytes);
            true
        }
        None => false,
    })
}
