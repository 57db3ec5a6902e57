//! An operator who removes and adds the write-intent bitmap of an array while clients, faults and passes change it.
//! Owns: when that is, the chunk of the new bitmap, which refusals are right. Not here: a bit before its data
//! (`judge::bits_check`), what is left after a crash (`judge::checks`).

use crate::image::bits::bitmap_to_add;
use crate::machine::event::Event;
use crate::rig::{Live, Rig};
use crate::scenario::checking::start_over;
use std::time::Duration;
use uraid_engine::ChangeBitmapError;

impl Rig {
    /// Perhaps starts the operator, for an array that was made with a bitmap: others have no room for one.
    pub(crate) fn change_bitmap_by_hand(&mut self, live: &Live) {
        if self.setup.bits.is_none() || !self.rng.chance(1, 2) {
            return;
        }
        let (array, executor, started) = (live.arrays[0].clone(), self.executor.clone(), live.started.clone());
        let (setup, mut rng) = (self.setup.clone(), self.rng.fork());
        self.executor.spawn(0, "bitmap changer", async move {
            start_over(&executor, &started).await;
            for _ in 0..rng.between(1, 4) {
                let longest = *rng.pick(&[50, 2_000, 300_000]);
                executor.sleep(Duration::from_micros(rng.below(longest))).await;
                let has_bitmap = array.status().bitmap.is_some();
                let outcome = if has_bitmap {
                    array.remove_bitmap().await
                } else {
                    let chunk = 1 << rng.below(5);
                    let behind = setup.bits.map_or(0, |bits| bits.write_behind);
                    array.add_bitmap(bitmap_to_add(&setup.shape, setup.superblock(0).set_uuid, chunk, behind)).await
                };
                let what = if has_bitmap { "bitmap removed" } else { "bitmap added" };
                executor.record(Event::Note { what, value: u64::from(outcome.is_ok()) });
                if let Err(error) = outcome
                    && is_wrong(&error)
                {
                    executor.violate(format!("C2: {what}: {error}"));
                }
            }
        });
    }
}

/// Refusals that an array with room for a bitmap, and one operator, has no reason for.
fn is_wrong(error: &ChangeBitmapError) -> bool {
    match error {
        ChangeBitmapError::HasBitmap
        | ChangeBitmapError::NoBitmap
        | ChangeBitmapError::HasLog
        | ChangeBitmapError::NoRedundancy { .. }
        | ChangeBitmapError::Place(_)
        | ChangeBitmapError::MemberRoom { .. } => true,
        ChangeBitmapError::Member { .. }
        | ChangeBitmapError::Busy(_)
        | ChangeBitmapError::MemberReturns
        | ChangeBitmapError::Suspect
        | ChangeBitmapError::ReadOnly
        | ChangeBitmapError::NotOpen
        | ChangeBitmapError::Frozen(_) => false,
    }
}
