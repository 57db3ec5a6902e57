//! Mistakes in one run of a mirror's write.
//! Owns: the wrong writes. Not here: the right one (`mirror`).

use crate::shard::buffers;
use crate::shard::member_io::MemberRun;
use crate::shard::shared::Shared;
use crate::shard::world::{Pool, World};
use crate::words::sabotage::{Sabotage, is};
use uraid_block::{Device, Fua, IoError, SECTOR_BYTES, Sector, Slot, WritePieces};
use uraid_layout::{Level, Run};

/// Writes the run's bytes to a member; `first` is the slot of the plan's first run.
pub(crate) async fn write<W: World>(
    shared: &Shared<W>,
    first: Slot,
    run: &Run,
    of_member: MemberRun,
    from: WritePieces,
    fua: Fua,
) -> Result<(), IoError> {
    let (member, at) = (shared.members.get(of_member.index), of_member.range.start);
    if is(Sabotage::Overreach) && run.at.0 > 0 {
        let one_before = Sector(at.0 - 1);
        let _ = member.write(one_before, from.slice(0, SECTOR_BYTES), fua).await;
    }
    if is(Sabotage::BufferChanges) && run.slot != first {
        let mut changed = buffers::take(&shared.world, Pool::Request, run.length).await;
        changed.fill(0x17);
        return member.write(at, changed.freeze(), fua).await;
    }
    if is(Sabotage::CopiesTogether) && shared.layout.level() == Level::Raid10 {
        let at = shared.on_device(first, run.at);
        return shared.member(first).write(at, from, fua).await;
    }
    member.write(at, from, fua).await
}
