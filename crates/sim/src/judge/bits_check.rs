//! The check that a bit is durable before its data is written.
//! Owns: [`BitsCheck`]. Not here: the bytes of a bitmap (`bits`), which sectors disagree (`checks::redundancy`).

use crate::image::areas::{BITMAP_AT, SUPER_AT};
use crate::machine::member::Disk;
use crate::reference::model::{Model, Place};
use std::rc::Rc;
use uraid_block::SECTOR_BYTES;
use uraid_format::bitmap::{BITMAP_HEADER_BYTES, BitmapHeader};

/// Checks that a bit is durable when data of its chunk is written, where a member's superblock lists a bitmap.
pub struct BitsCheck {
    model: Rc<Model>,
    disks: Vec<Rc<Disk>>,
}

impl BitsCheck {
    /// For these members.
    pub fn new(model: Rc<Model>, disks: &[Rc<Disk>]) -> BitsCheck {
        BitsCheck { model, disks: disks.to_vec() }
    }

    /// Whether data may be written to this sector of a member now.
    pub fn check(&self, place: Place) -> Result<(), String> {
        let disk = &self.disks[usize::from(place.slot)];
        let medium = disk.medium();
        // The low byte of the feature map, whose lowest bit says that there is a bitmap.
        let is_listed = medium.durable()[SUPER_AT as usize * SECTOR_BYTES + 8] & 1 != 0;
        if disk.is_liar() || !is_listed {
            return Ok(());
        }
        let sectors = if self.model.is_parity() { vec![place.sector] } else { self.model.sectors_at(place) };
        let (header, bytes) = medium.durable()[BITMAP_AT as usize * SECTOR_BYTES..].split_at(BITMAP_HEADER_BYTES);
        let header = BitmapHeader::parse(header.try_into().expect("its length")).map_err(|error| error.to_string())?;
        for sector in sectors {
            let bit = (sector / header.chunk().0) as usize;
            if bytes[bit / 8] & 1 << (bit % 8) == 0 {
                let slot = place.slot;
                return Err(format!("I8: data of sector {sector} goes to disk {slot}, where bit {bit} is not durable"));
            }
        }
        Ok(())
    }
}
