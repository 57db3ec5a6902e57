//! The fast path of a small write: one stretch of one data chunk and its parity, in a row that has these members.
//! Owns: [`Update`], which writes go this way. Not here: all other writes of a row, and this one if a read fails
//! (`row::io`).
//! Invariant: it reads and writes what `write_interval` would. All of its scratch is taken before its first read, and
//! it writes nothing before all reads have ended.
//!
//! ```text
//!   raid5, 5 members, 4 KiB     read D2 and P     │ P ^= old D2 ^ new D2             │ write D2 and P
//!   with a log                  read D2 and P     │ P ^= old D2 ^ new D2             │ log P ^ new D2 │ write D2 and P
//!   raid6                       read D2, P and Q  │ Q ^= g^k (old D2 ^ new D2), too  │ write D2, P and Q
//!   D4 has no member            the same: what is lost is another data block, which stays what P and Q say
//! ```
//! It needs no list: the write's own future performs the reads at once, then the writes at once. The partial parity is
//! what the write leaves alone, `old P ^ old D2`; it is put where old D2 was read to.

use super::log::Logged;
use super::room::Room;
use super::{FailedPart, RowIo};
use crate::World;
use crate::row::parity::{modify_p, modify_pq, take_out};
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
    /// The run of Q and scratch for it; raid6 only.
    syndrome: Option<(MemberRun, Lease)>,
    room: Room,
}

/// What has ended of an update's blocks: data, P, and Q if there is one.
type Ended<T, E> = (Result<T, E>, Result<T, E>, Option<Result<T, E>>);

/// Whether a write into one chunk of a healthy row reads and writes that chunk and the parity alone. Where another data
/// block is lost, every such write does.
pub(super) fn modifies_healthy(layout: &ParityLayout) -> bool {
    let map = layout.row(Row(0));
    let all = SlotSet::first(layout.slots());
    choose(SlotSet::EMPTY.with(map.data[0]), &blocks_of(&map, all, all)) == RowPlan::ReadModifyWrite
}

impl<W: World> RowIo<W> {
    /// Prepares a write of `length` sectors from `start` of a row's data, if it can take the fast path now.
    #[inline]
    pub(crate) fn plan_update(&self, row: Row, start: Sectors, length: Sectors) -> Option<Update> {
        if length > self.partial_max() {
            return None;
        }
        let block = self.layout().block(row, start, length)?;
        if !self.is_in_sync(block.at, length) {
            return None;
        }
        if !self.shared.torn.is_empty() || !self.shared.slow_members().is_empty() {
            return None;
        }
        let (recorded, data, parity, syndrome) = self.shared.with_view(|view| {
            let run = |slot| MemberRun::by(view, slot, block.at, length);
            let modifies = self.modifies(&block, view.readable()) && !view.has_replacement();
            modifies.then(|| (Recorded::by(view), run(block.slot), run(block.parity), block.syndrome.map(run)))
        })?;
        let room = self.try_room(&self.blocks, length)?;
        let old_data = self.scratch(&room, length)?;
        let old_parity = self.scratch(&room, length)?;
        let syndrome = match syndrome {
            Some(run) => Some((run, self.scratch(&room, length)?)),
            None => None,
        };
        Some(Update { row, block, recorded, data, parity, old_data, old_parity, syndrome, room })
    }

    /// Whether a write of one stretch of a row in sync is a read-modify-write of all of its parity, as `plan::choose` says.
    #[inline]
    fn modifies(&self, block: &RowBlock, readable: SlotSet) -> bool {
        if readable == self.all {
            return self.updates_healthy;
        }
        // Rows that a crash left behind are looked at before their lost blocks are relied upon.
        let is_there = |slot| readable.contains(slot);
        let is_whole = is_there(block.slot) && is_there(block.parity) && block.syndrome.is_none_or(is_there);
        is_whole && self.shared.unsynced.is_empty()
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
            let length = from.length();
            let Update { row, block, recorded, data, parity, old_data, old_parity, syndrome, room } = update;
            let (of_q, old_q) = syndrome.unzip();
            let (old_data, mut p, mut q) =
                match self.read_old((&data, old_data), (&parity, old_parity), of_q.as_ref().zip(old_q)).await {
                    (Ok(data), Ok(p), None) => (data, p, None),
                    (Ok(data), Ok(p), Some(Ok(q))) => (data, p, Some(q)),
                    (data, p, q) => {
                        let failed = [data.err(), p.err(), q.and_then(Result::err)].into_iter().flatten().collect();
                        return Box::pin(self.write_again(row, block, from, fua, room, failed)).await;
                    }
                };
            self.shared.count(|counters| counters.rows_modified += 1);
            match &mut q {
                Some(q) => modify_pq(&mut p, q, &old_data, &from, block.exponent),
                None => modify_p(&mut p, &old_data, &from),
            }
            let logged = if self.shared.has_log {
                // Boxed to keep the future of an array without a log small.
                match Box::pin(self.log_update(row, &block, &p, old_data, &from)).await {
                    Ok(logged) => logged,
                    Err(error) => return Err(failed_part(&block, from.length(), error)),
                }
            } else {
                drop(old_data);
                None
            };
            let (of_data, of_p, of_q) = self.write_new((&data, from), (&parity, p), of_q.as_ref().zip(q), fua).await;
            // Give back the room: other rows need not wait for the record of this one.
            drop(room);
            let outcome = match (recorded, of_data, of_p, of_q) {
                (Some(recorded), Ok(()), Ok(()), None | Some(Ok(()))) => Ok(recorded),
                (recorded, data, p, q) => {
                    let failures = [data.err(), p.err(), q.and_then(Result::err)].into_iter().flatten().collect();
                    Box::pin(self.settle_update((row, block, length), recorded, failures)).await
                }
            };
            // Until the superblocks say that a member missed this write, a crash could leave it in the array with old data.
            drop(logged);
            outcome
        }
    }

    /// Reads the old bytes, all at once.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    fn read_old(
        &self,
        (data, into_data): (&MemberRun, Lease),
        (parity, into_parity): (&MemberRun, Lease),
        syndrome: Option<(&MemberRun, Lease)>,
    ) -> impl Future<Output = Ended<Lease, ReadError>> {
        async move {
            // Pin the futures where they are made, so that they are not moved.
            let data = pin!(self.shared.read_run(data, buffers::one_piece(into_data)));
            let parity = pin!(self.shared.read_run(parity, buffers::one_piece(into_parity)));
            let Some((syndrome, into)) = syndrome else {
                let (data, parity) = join_pair(data, parity).await;
                return (data, parity, None);
            };
            let syndrome = pin!(self.shared.read_run(syndrome, buffers::one_piece(into)));
            let ((data, parity), syndrome) = join_pair(pin!(join_pair(data, parity)), syndrome).await;
            (data, parity, Some(syndrome))
        }
    }

    /// Writes the new bytes, all at once.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    fn write_new(
        &self,
        (data, from): (&MemberRun, WritePieces),
        (parity, p): (&MemberRun, Lease),
        syndrome: Option<(&MemberRun, Lease)>,
        fua: Fua,
    ) -> impl Future<Output = Ended<(), Failure>> {
        async move {
            let data = pin!(self.shared.write_run(data, from, fua));
            let parity = pin!(self.shared.write_run(parity, buffers::one_piece(p).freeze(), fua));
            let Some((syndrome, q)) = syndrome else {
                let (data, parity) = join_pair(data, parity).await;
                return (data, parity, None);
            };
            let syndrome = pin!(self.shared.write_run(syndrome, buffers::one_piece(q).freeze(), fua));
            let ((data, parity), syndrome) = join_pair(pin!(join_pair(data, parity)), syndrome).await;
            (data, parity, Some(syndrome))
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
