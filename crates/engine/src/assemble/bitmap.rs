//! The write-intent bitmap of an array that starts: which members' bitmaps are believed.
//! Owns: [`BitmapPlan`], [`StartPlan::take_bitmaps`]. Not here: reading members (`format::bitmap`, the caller), setting
//! and clearing bits (`bitmap`).
//! Invariant: a bit that a member in sync may need is set. A bitmap that may have missed a write is not believed.
//! Spec: docs/md/formats.md#bitmap.

use super::{Place, ReadOnlyReason, StartPlan};
use crate::words::mark::{self, Mark};
use crate::words::progress;
use uraid_block::Sectors;
use uraid_format::Features;
use uraid_format::bitmap::{BitmapHeader, BitmapImage, BitmapUnusable};

/// The bitmap that an array starts with.
#[derive(Clone, Debug)]
pub struct BitmapPlan {
    /// What every member with a slot is to hold before the first superblock is written.
    pub image: BitmapImage,
    /// Indexes of the members with a slot that do not hold it.
    pub behind: Vec<usize>,
    /// No bitmap was believed, so all bits are set (md: "forcing full recovery").
    pub is_out_of_date: bool,
}

impl StartPlan {
    /// Lets the array take writes if its bitmap can be kept up to date. `found` returns the bitmap of a candidate as it
    /// was read. Without this call an array with a bitmap stays read-only.
    ///
    /// A bitmap is believed if it belongs to the array, is of a member in sync, and is as fresh as the superblocks. The
    /// bits of all that are believed count. If there are none, all bits are set. Where no member in a slot has one, the
    /// array starts without: a crash came while it was being added.
    pub fn take_bitmaps(&mut self, found: impl Fn(usize) -> Result<BitmapImage, BitmapUnusable>) {
        // Without the freshest superblock's word, some member has a bitmap that the array has no more.
        let is_of_array = self.template.features.contains(Features::BITMAP_OFFSET);
        if self.read_only != Some(ReadOnlyReason::Bitmap) || !is_of_array || !self.layout.level().is_redundant() {
            return;
        }
        let mut with_slot = self.members.iter().filter(|member| member.place != Place::Spare);
        if !with_slot.any(|member| member.superblock.features.contains(Features::BITMAP_OFFSET)) {
            // The bitmap was being added, and only members that are left out say so: no write has relied on it.
            self.template.features = self.template.features.without(Features::BITMAP_OFFSET);
            self.template.bitmap_offset = 0;
            self.read_only = self.read_only_besides;
            return;
        }
        self.read_only = match self.decide_bitmap(&found) {
            Ok(plan) => {
                self.bitmap = Some(plan);
                self.read_only_besides
            }
            Err(error) => Some(ReadOnlyReason::BitmapUnusable(error)),
        };
    }

    fn decide_bitmap(
        &self,
        found: &impl Fn(usize) -> Result<BitmapImage, BitmapUnusable>,
    ) -> Result<BitmapPlan, BitmapUnusable> {
        let with_slot = || self.members.iter().enumerate().filter(|(_, member)| member.place != Place::Spare);
        let of_array: Vec<(usize, Result<BitmapImage, BitmapUnusable>)> = with_slot()
            .map(|(index, member)| (index, found(member.candidate).and_then(|image| self.check_owner(image))))
            .collect();
        let usable = || of_array.iter().filter_map(|(index, image)| Some((*index, image.as_ref().ok()?)));
        let is_current = |(index, image): &(usize, &BitmapImage)| self.is_current(*index, image.header());
        let freshest = usable().max_by_key(|one| (is_current(one), one.1.header().events, std::cmp::Reverse(one.0)));
        let Some((_, freshest)) = freshest else {
            let first = of_array.into_iter().find_map(|(_, image)| image.err());
            return Err(first.expect("an array has a member in a slot"));
        };
        let mut header = freshest.header().clone();
        header.sync_size = progress::total(&self.layout);
        header.events = self.events;
        header.state &= !(BitmapHeader::STALE | BitmapHeader::WRITE_ERROR);
        let all = BitmapImage::filled(header, self.bitmap_room()?)?;
        let believed: Vec<&BitmapImage> =
            usable().filter(|one| is_current(one) && one.1.is_alike(&all)).map(|(_, image)| image).collect();
        let is_out_of_date = believed.is_empty();
        let mut image = all;
        if is_out_of_date {
            mark::hit(Mark::BitmapOutOfDate);
        } else {
            image = image.cleared();
            believed.iter().for_each(|other| image.unite(other));
            // One member's pages may have been cleared, and the header of another one not written yet.
            let cleared = believed.iter().map(|other| other.header().events_cleared).max().expect("one is believed");
            image.change_header(|header| header.events_cleared = cleared);
        }
        let behind = with_slot().map(|(index, _)| index).filter(|index| {
            let own = usable().find(|(of, _)| of == index).map(|(_, own)| own);
            !own.is_some_and(|own| self.holds(own, &image))
        });
        Ok(BitmapPlan { behind: behind.collect(), image, is_out_of_date })
    }

    fn check_owner(&self, image: BitmapImage) -> Result<BitmapImage, BitmapUnusable> {
        let (found, expected) = (image.header().set_uuid, self.template.set_uuid);
        if found == expected { Ok(image) } else { Err(BitmapUnusable::Foreign { found, expected }) }
    }

    /// Whether a member's bitmap knows of every write that members in sync may have.
    fn is_current(&self, member: usize, header: &BitmapHeader) -> bool {
        let is_in_sync = matches!(self.members[member].place, Place::Slot(_));
        // A member that was raised by force, or a second history, may differ anywhere.
        let is_one_history = self.forced.raised.is_empty() && !self.forced.is_split_brain;
        let is_fresh = header.events >= self.events;
        let is_kept = header.state & (BitmapHeader::STALE | BitmapHeader::WRITE_ERROR) == 0;
        is_in_sync && is_one_history && is_fresh && is_kept
    }

    /// Whether a member's bitmap needs no write before the superblocks.
    fn holds(&self, own: &BitmapImage, image: &BitmapImage) -> bool {
        let mut header = own.header().clone();
        let is_fresh = header.events >= self.events;
        header.events = image.header().events;
        is_fresh && header == *image.header() && own.has_bits_of(image)
    }

    /// The room that each member with a slot has for the bitmap.
    fn bitmap_room(&self) -> Result<Sectors, BitmapUnusable> {
        let offset = self.template.bitmap_offset;
        let with_slot = self.members.iter().filter(|member| member.place != Place::Spare);
        let rooms = with_slot.map(|member| member.superblock.bitmap_room(offset).map(|place| place.length));
        let rooms: Option<Vec<Sectors>> = rooms.collect();
        rooms.and_then(|rooms| rooms.into_iter().min()).ok_or(BitmapUnusable::NoRoom)
    }
}
