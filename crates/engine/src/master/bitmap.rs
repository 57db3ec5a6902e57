//! The write-intent bitmap in the state of an array: where it is, when bits may be cleared.
//! Owns: what superblocks say of it, whether all members hold everything. Not here: the bits (`crate::bitmap`).

use super::Master;
use crate::StartPlan;
use uraid_block::{Sector, Sectors};
use uraid_format::{Features, Superblock};

/// The bitmap that this start keeps up to date.
pub(super) fn bitmap_of(plan: &StartPlan) -> Option<(i32, Sectors)> {
    let bitmap = plan.bitmap.as_ref()?;
    Some((plan.template.bitmap_offset, bitmap.image.header().used_sectors()))
}

impl Master {
    /// Whether every slot has a member that holds everything, as the superblocks say: no bit of a bitmap is needed for
    /// one that comes back.
    pub(crate) fn is_whole(&self) -> bool {
        let has_all = self.readable().count() == usize::from(self.slots);
        has_all && self.is_recorded && self.resync_from.is_none() && self.frozen.is_none()
    }

    /// The events that every member in use has at least.
    pub(crate) fn events_shown(&self) -> u64 {
        self.events_recorded.max(self.template.events)
    }

    /// Where a member's bitmap is on its device.
    pub(crate) fn bitmap_start(&self, member: usize) -> Sector {
        let (offset, _) = self.bitmap.expect("an array with a bitmap says where it is");
        let place = self.superblocks[member].bitmap_room(offset).expect("a member with a slot has room for it");
        place.start
    }

    /// All members have the bitmap at the same distance from their superblock. A spare's superblock may not say so yet.
    pub(super) fn show_bitmap(&self, superblock: &mut Superblock) {
        if let Some((offset, _)) = self.bitmap {
            superblock.features = superblock.features.with(Features::BITMAP_OFFSET);
            superblock.bitmap_offset = offset;
        }
    }

    /// Whether a spare could hold the bitmap, if there is one.
    pub(super) fn has_bitmap_room(&self, member: usize) -> bool {
        self.has_room_for_bitmap(&self.superblocks[member])
    }

    /// Whether a device with this superblock could hold the bitmap, if there is one.
    pub(crate) fn has_room_for_bitmap(&self, superblock: &Superblock) -> bool {
        let Some((offset, length)) = self.bitmap else { return true };
        superblock.bitmap_room(offset).is_some_and(|room| room.length >= length)
    }
}
