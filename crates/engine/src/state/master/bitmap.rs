//! The write-intent bitmap in the state of an array: where it is, when bits may be cleared.
//! Owns: what superblocks say of it, whether all members hold everything. Not here: the bits (`crate::steward::bitmap`).

use super::Master;
use crate::StartPlan;
use crate::state::bits::BitsShape;
use uraid_block::{Sector, Sectors, SlotSet};
use uraid_format::bitmap::BitmapHeader;
use uraid_format::{Features, Superblock};

/// The bitmap of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayBitmap {
    /// Sectors from each superblock to it.
    offset: i32,
    /// What it takes.
    length: Sectors,
    pub(super) shape: BitsShape,
    /// How many writes may be behind; 0: none.
    pub(super) write_behind: u32,
    /// The next superblocks say that the array has it.
    is_listed: bool,
}

/// The array gets a bitmap, or loses it: see `bitmap_changer`.
pub(crate) enum BitmapChange {
    /// Every write notes its bits. No superblock says so yet. `offset`: sectors from each superblock to the bitmap.
    Use { offset: i32, length: Sectors, shape: BitsShape, write_behind: u32 },
    /// The next superblocks say that the array has it.
    List,
    /// The next superblocks say that it has none. Writes still ask.
    Unlist,
    /// No write asks for a bit.
    Drop,
}

impl BitmapChange {
    pub(crate) fn to_use(offset: i32, header: &BitmapHeader) -> BitmapChange {
        let (length, shape) = (header.used_sectors(), BitsShape::of(header));
        BitmapChange::Use { offset, length, shape, write_behind: header.write_behind }
    }
}

/// The bitmap that this start keeps up to date.
pub(super) fn bitmap_of(plan: &StartPlan) -> Option<ArrayBitmap> {
    let header = plan.bitmap.as_ref()?.image.header();
    let (offset, length) = (plan.template.bitmap_offset, header.used_sectors());
    let (shape, write_behind) = (BitsShape::of(header), header.write_behind);
    Some(ArrayBitmap { offset, length, shape, write_behind, is_listed: true })
}

impl Master {
    pub(super) fn change_bitmap(&mut self, change: BitmapChange) {
        match change {
            BitmapChange::Use { offset, length, shape, write_behind } => {
                self.bitmap = Some(ArrayBitmap { offset, length, shape, write_behind, is_listed: false });
                self.bits_round.0 += 1;
            }
            BitmapChange::List => {
                self.listed_bitmap().is_listed = true;
                self.version += 1;
            }
            BitmapChange::Unlist => {
                self.listed_bitmap().is_listed = false;
                // A recovery that was given up does not go on by bits. The same superblocks say so: one that still said
                // that it does would be believed with the next bitmap.
                self.by_bits = SlotSet::EMPTY;
                self.version += 1;
            }
            BitmapChange::Drop => {
                self.bitmap = None;
                self.bits_round.0 += 1;
            }
        }
    }

    fn listed_bitmap(&mut self) -> &mut ArrayBitmap {
        self.bitmap.as_mut().expect("writes ask for bits")
    }

    pub(super) fn check_bitmap_change(&self, change: &BitmapChange) {
        let is_listed = self.bitmap.is_some_and(|bitmap| bitmap.is_listed);
        match change {
            BitmapChange::Use { .. } => {
                assert!(self.bitmap.is_none(), "an array has one bitmap");
                assert!(self.resync_from.is_none(), "what a resync must not skip is not in the new bitmap");
            }
            BitmapChange::List => assert!(self.bitmap.is_some() && !is_listed, "writes note their bits"),
            BitmapChange::Unlist => assert!(is_listed, "superblocks list the bitmap"),
            BitmapChange::Drop => {
                assert!(!is_listed, "a bitmap that superblocks list is kept up to date");
                assert!(self.by_bits.is_empty(), "no recovery goes on by a bitmap that is gone");
            }
        }
    }

    /// Whether the bitmap lets writes be behind.
    pub(crate) fn has_write_behind(&self) -> bool {
        self.bitmap.is_some_and(|bitmap| bitmap.write_behind > 0)
    }

    /// Whether the next superblocks say that the array has a bitmap.
    pub(crate) fn lists_bitmap(&self) -> bool {
        self.bitmap.is_some_and(|bitmap| bitmap.is_listed)
    }

    /// Whether every slot has a member that holds everything, as the superblocks say: no bit of a bitmap is needed for
    /// one that comes back.
    pub(crate) fn is_whole(&self) -> bool {
        let has_all = self.readable().count() == usize::from(self.slots());
        has_all && self.is_recorded && self.resync_from.is_none() && self.frozen.is_none()
    }

    /// The events that every member in use has at least.
    pub(crate) fn events_shown(&self) -> u64 {
        self.events_recorded.max(self.template.events)
    }

    /// Where a member's bitmap is on its device.
    pub(crate) fn bitmap_start(&self, member: usize) -> Sector {
        let bitmap = self.bitmap.expect("an array with a bitmap says where it is");
        let place = self.superblocks[member].bitmap_room(bitmap.offset).expect("a member with a slot has room for it");
        place.start
    }

    /// All members have the bitmap at the same distance from their superblock. A member's own superblock may not say so
    /// yet, or may still name a bitmap that the array has no more.
    pub(super) fn show_bitmap(&self, superblock: &mut Superblock) {
        if let Some(bitmap) = self.bitmap.filter(|bitmap| bitmap.is_listed) {
            superblock.features = superblock.features.with(Features::BITMAP_OFFSET);
            superblock.bitmap_offset = bitmap.offset;
        } else if superblock.features.contains(Features::BITMAP_OFFSET) {
            superblock.features = superblock.features.without(Features::BITMAP_OFFSET);
            superblock.bitmap_offset = 0;
        }
    }

    /// The fields that a joining member shares with the others.
    pub(crate) fn template_to_join(&self) -> Superblock {
        let mut template = self.template.clone();
        self.show_bitmap(&mut template);
        template
    }

    /// Whether a spare could hold the bitmap, if there is one.
    pub(super) fn has_bitmap_room(&self, member: usize) -> bool {
        self.has_room_for_bitmap(&self.superblocks[member])
    }

    /// Whether a device with this superblock could hold the bitmap, if there is one.
    pub(crate) fn has_room_for_bitmap(&self, superblock: &Superblock) -> bool {
        self.bitmap.is_none_or(|bitmap| has_room(superblock, bitmap.offset, bitmap.length))
    }

    /// The first member, in a slot or spare, that has no room for a bitmap at this distance from its superblock.
    pub(crate) fn without_room(&self, offset: i32, length: Sectors) -> Option<usize> {
        let trusted = (0..self.members.len()).filter(|member| self.members[*member].is_trusted());
        let mut without = trusted.filter(|member| !has_room(&self.superblocks[*member], offset, length));
        without.next()
    }
}

fn has_room(superblock: &Superblock, offset: i32, length: Sectors) -> bool {
    superblock.bitmap_room(offset).is_some_and(|room| room.length >= length)
}
