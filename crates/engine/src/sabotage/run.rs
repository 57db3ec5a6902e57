//! Mistakes in one run of a mirror's write.
//! Owns: the wrong writes. Not here: the right one (`mirror`).

use super::{Sabotage, is};
use crate::shared::Shared;
use crate::{Pool, World, buffers};
use uraid_block::{Device, Fua, IoError, SECTOR_BYTES, Sector, Slot, WritePieces};
use uraid_layout::{Level, Run};

/// Writes the run's bytes; `first` is the slot of the plan's first run.
pub(crate) async fn write<W: World>(
    shared: &Shared<W>,
    first: Slot,
    run: &Run,
    from: WritePieces,
    fua: Fua,
) -> Result<(), IoError> {
    let at = shared.on_device(run.slot, run.at);
    if is(Sabotage::Overreach) && run.at.0 > 0 {
        let one_before = Sector(at.0 - 1);
        let _ = shared.member(run.slot).write(one_before, from.slice(0, SECTOR_BYTES), fua).await;
    }
    if is(Sabotage::BufferChanges) && run.slot != first {
        let mut changed = buffers::take(&shared.world, Pool::Request, run.length).await;
        changed.fill(0x17);
        return shared.member(run.slot).write(at, changed.freeze(), fua).await;
    }
    if is(Sabotage::CopiesTogether) && shared.layout.level() == Level::Raid10 {
        let (member, range) = shared.run_on_device(first, run.at, run.length);
        return member.write(range.start, from, fua).await;
    }
    shared.member(run.slot).write(at, from, fua).await
}
