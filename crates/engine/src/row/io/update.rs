//! The fast path of a small write: one stretch of one data chunk and its P, in a row whose members are all there.
//! Owns: [`Update`], which writes go this way. Not here: all other writes of a row, and this one if a read fails
//! (`row::io`).
//! Invariant: it reads and writes what `write_interval` would. All of its scratch is taken before its first read, and
//! it writes nothing before both reads have ended.
//!
//! ```text
//!   raid5, 5 members, 4 KiB     read D2 and P │ P ^= old D2 ^ new D2 │ write D2 and P
//!   with a log                  read D2 and P │ P ^= old D2 ^ new D2 │ log P ^ new D2 │ write D2 and P
//! ```
//! It needs no list: the write's own future performs both reads at once, then both writes at once. The partial parity is
//! what the write leaves alone, `old P ^ old D2`; it is put where old D2 was read to.

use super::log::Logged;
use super::room::Room;
use super::{FailedPart, RowIo};
use crate::World;
use crate::row::parity::{modify_p, take_out};
use crate::row::plan::{Interval, RowPlan, Segment, blocks_of, choose};
use crate::shard::buffers;
use crate::shard::member_io::MemberRun;
use crate::state::recorded::Recorded;
use crate::words::failure::{Failure, ReadError};
use smallvec::smallvec;
use std::pin::pin;
use uraid_block::local::join_pair;
use uraid_block::{Fua, IoError, Lease, Sectors, SlotSet, WritePieces};
use uraid_layout::{ParityLayout, Row, RowBlock};

/// A read-modify-write of one stretch of one data chunk, with all that it needs.
pub(crate) struct Update {
    row: Row,
    block: RowBlock,
    /// From the view in which the members were looked up.
    recorded: Option<Recorded>,
    data: MemberRun,
    parity: MemberRun,
    old_data: Lease,
    old_parity: Lease,
    room: Room,
}

/// Whether a write into one chunk of a healthy row reads and writes that chunk and P alone.
pub(super) fn is_of_two(layout: &ParityLayout) -> bool {
    let map = layout.row(Row(0));
    let all = SlotSet::first(layout.slots());
    let plan = choose(SlotSet::EMPTY.with(map.data[0]), &blocks_of(&map, all, all));
    map.syndrome.is_none() && plan == RowPlan::ReadModifyWrite
}

impl<W: World> RowIo<W> {
    /// Prepares a write of `length` sectors from `start` of a row's data, if it can take the fast path now.
    #[inline]
    pub(crate) fn plan_update(&self, row: Row, start: Sectors, length: Sectors) -> Option<Update> {
        if !self.updates_two || length > self.partial_max() {
            return None;
        }
        let block = self.layout().block(row, start, length)?;
        assert!(block.syndrome.is_none(), "a row with Q has three blocks to update");
        if !self.is_in_sync(block.at, length) {
            return None;
        }
        if !self.shared.torn.is_empty() || !self.shared.slow_members().is_empty() {
            return None;
        }
        let (recorded, data, parity) = self.shared.with_view(|view| {
            let run = |slot| MemberRun::by(view, slot, block.at, length);
            let is_of_two = view.readable() == self.all && !view.has_replacement();
            is_of_two.then(|| (Recorded::by(view), run(block.slot), run(block.parity)))
        })?;
        let room = self.try_room(&self.blocks, length)?;
        let old_data = self.scratch(&room, length)?;
        let old_parity = self.scratch(&room, length)?;
        Some(Update { row, block, recorded, data, parity, old_data, old_parity, room })
    }

    /// Performs the write, like [`RowIo::write_interval`].
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(crate) fn update(
        &self,
        update: Update,
        from: WritePieces,
        fua: Fua,
    ) -> impl Future<Output = Result<Recorded, Vec<FailedPart>>> {
        async move {
            assert_eq!(from.bytes(), update.old_data.len(), "the scratch was taken for this write");
            let (old_data, mut parity) = {
                // Pin the futures where they are made, so that they are not moved.
                let data = pin!(self.shared.read_run(&update.data, buffers::one_piece(update.old_data)));
                let parity = pin!(self.shared.read_run(&update.parity, buffers::one_piece(update.old_parity)));
                match join_pair(data, parity).await {
                    (Ok(data), Ok(parity)) => (data, parity),
                    (data, parity) => {
                        let failed = [data.err(), parity.err()].into_iter().flatten().collect();
                        let again = self.write_again(update.row, update.block, from, fua, update.room, failed);
                        return Box::pin(again).await;
                    }
                }
            };
            self.shared.count(|counters| counters.rows_modified += 1);
            modify_p(&mut parity, &old_data, &from);
            let logged = if self.shared.has_log {
                // Boxed to keep the future of an array without a log small.
                match Box::pin(self.log_update(update.row, &update.block, &parity, old_data, &from)).await {
                    Ok(logged) => logged,
                    Err(error) => return Err(failed_part(&update.block, from.length(), error)),
                }
            } else {
                drop(old_data);
                None
            };
            let (data, parity) = {
                let data = pin!(self.shared.write_run(&update.data, from, fua));
                let parity = buffers::one_piece(parity).freeze();
                let parity = pin!(self.shared.write_run(&update.parity, parity, fua));
                join_pair(data, parity).await
            };
            // Give back the room: other rows need not wait for the record of this one.
            drop(update.room);
            let outcome = match (update.recorded, data, parity) {
                (Some(recorded), Ok(()), Ok(())) => Ok(recorded),
                (recorded, data, parity) => {
                    let failures = [data.err(), parity.err()].into_iter().flatten().collect();
                    let of = (update.row, update.block, update.data.range.length);
                    Box::pin(self.settle_update(of, recorded, failures)).await
                }
            };
            // Until the superblocks say that a member missed this write, a crash could leave it in the array with old data.
            drop(logged);
            outcome
        }
    }

    /// Logs an update, durably, before it is written: the new parity without the new data. `scratch` is as long as both.
    async fn log_update(
        &self,
        row: Row,
        block: &RowBlock,
        parity: &Lease,
        mut scratch: Lease,
        from: &WritePieces,
    ) -> Result<Option<Logged<W>>, IoError> {
        scratch.copy_from_slice(parity);
        take_out(&mut scratch, from);
        let partial = buffers::one_piece(scratch).freeze();
        self.log_stretch(row, block.parity, (block.data, block.start), from.bytes(), partial).await
    }

    /// Performs the write without the fast path, after a read has failed.
    async fn write_again(
        &self,
        row: Row,
        block: RowBlock,
        from: WritePieces,
        fua: Fua,
        room: Room,
        failed: Vec<ReadError>,
    ) -> Result<Recorded, Vec<FailedPart>> {
        assert!(!failed.is_empty(), "a read failed");
        let room = match room {
            Room::Small => self.room_for_interval().await,
            Room::Interval(room) => room,
        };
        let map = self.layout().row(row);
        assert_eq!(map.data[block.data], block.slot, "the block is of its row");
        let (start, length) = (block.start, from.length());
        let interval =
            Interval { start, length, new: smallvec![Segment { data: block.data, start, from }], is_hole: false };
        self.write_planned(&map, interval, fua, room, failed).await
    }

    async fn settle_update(
        &self,
        (row, block, length): (Row, RowBlock, Sectors),
        recorded: Option<Recorded>,
        failures: Vec<Failure>,
    ) -> Result<Recorded, Vec<FailedPart>> {
        let outcome = self.settle_row(row, block.start..block.start + length, recorded, &failures).await;
        outcome.map_err(|error| failed_part(&block, length, error))
    }
}

fn failed_part(block: &RowBlock, length: Sectors, error: IoError) -> Vec<FailedPart> {
    vec![FailedPart { start: block.start, length, covered: SlotSet::EMPTY.with(block.slot), error }]
}
