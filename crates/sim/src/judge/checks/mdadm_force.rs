//! M2 for `mdadm --assemble --force`: mdadm takes every member that is at most one event behind the freshest one, even
//! if the freshest superblock calls it faulty. So the data of such a member must be legal too.
//! Owns: that check. Not here: members that our own assembly takes (`content_after_cut`); members that are too small or
//! have no good superblock, which mdadm leaves out as well.
//! Spec: docs/md/behaviour.md#assembly.
//!
//! ```text
//!   a failed member's superblock   7 events
//!   after one round of the others  8          mdadm --force takes the member back: its old data must be legal
//!   after two rounds               9          mdadm leaves it out
//! ```

use crate::judge::{Judge, superblock_of};
use crate::reference::model::Place;
use std::collections::BTreeSet;
use uraid_block::SECTOR_BYTES;
use uraid_format::{Features, Role, Superblock};

/// How many events mdadm lets a member lag behind the freshest one.
pub(crate) const MDADM_MARGIN: u64 = 1;

impl Judge {
    /// Whether the members that mdadm would take by force in addition to `chosen` hold only legal data.
    pub(crate) fn check_mdadm_force(
        &self,
        images: &[Option<Vec<u8>>],
        chosen: &BTreeSet<u16>,
        is_exempt: &dyn Fn(u64) -> bool,
    ) -> Result<(), String> {
        let superblock = |slot: u16| superblock_of(images[usize::from(slot)].as_ref()?).ok();
        let events = |slot: u16| Some(superblock(slot)?.events);
        // mdadm does not read a member that is recovering, and gives a spare no slot.
        let is_recovering = |slot: &u16| {
            let is_spare = |superblock: &Superblock| superblock.own_role() == Role::Spare;
            superblock(*slot).is_some_and(|superblock| {
                superblock.features.contains(Features::RECOVERY_OFFSET) || is_spare(&superblock)
            })
        };
        let Some(freshest) = chosen.iter().filter_map(|slot| events(*slot)).max() else { return Ok(()) };
        let taken = (0..self.setup.shape.slots).filter(|slot| !chosen.contains(slot));
        let taken = taken.filter(|slot| !self.disks[usize::from(*slot)].is_shrunk() && !is_recovering(slot));
        let taken: BTreeSet<u16> =
            taken.filter(|slot| events(*slot).is_some_and(|events| events + MDADM_MARGIN >= freshest)).collect();
        let get = |place: Place| -> Option<[u8; SECTOR_BYTES]> { self.sector_of(images, &taken, place) };
        for x in (0..self.model.array_size()).filter(|x| !is_exempt(*x)) {
            for place in &self.model.copies[x as usize] {
                let Some(bytes) = get(*place) else { continue };
                let verdict = self.oracle.borrow_mut().may_hold_after_crash(x, &bytes);
                verdict.map_err(|found| {
                    format!("mdadm --force would take disk {} back, one event behind: {found}", place.slot)
                })?;
            }
        }
        Ok(())
    }
}
