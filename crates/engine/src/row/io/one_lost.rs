//! The fast path of a read of a degraded row: one stretch of one lost data chunk, as the sum of all other data and P.
//! Owns: [`OneLost`], which reads go this way. Not here: all other reads of lost bytes, and this one if a member fails
//! (`row::io`).
//! Invariant: it reads what `recover_interval` would. All of its scratch is taken before its first read.
//!
//! ```text
//!   raid5, 5 members, D2 lost     read D0, D1, D3 and P │ the client's buffers = D0 ^ D1 ^ D3 ^ P
//! ```

use super::RowIo;
use super::room::Room;
use crate::World;
use crate::shard::buffers;
use crate::shard::member_io::MemberRun;
use crate::words::failure::ReadError;
use crate::words::mark::{self, Mark};
use smallvec::SmallVec;
use uraid_block::local::join_each;
use uraid_block::{IoError, Lease, ReadPieces, Sectors, SlotSet};
use uraid_layout::{Row, RowBlock};
use uraid_parity::generate_p;

/// A lost stretch of one data chunk, with all that computing it needs.
pub(crate) struct OneLost {
    row: Row,
    block: RowBlock,
    /// The other data blocks and P, in no order, each with its scratch.
    others: SmallVec<[(MemberRun, Lease); 4]>,
    room: Room,
}

impl<W: World> RowIo<W> {
    /// Prepares a read of `length` sectors from `start` of a row's data, if it can take the fast path now.
    pub(crate) fn plan_one_lost(&self, row: Row, start: Sectors, length: Sectors) -> Option<OneLost> {
        if length > self.partial_max() || !self.shared.torn.is_empty() || !self.shared.slow_members().is_empty() {
            return None;
        }
        let block = self.layout().block(row, start, length)?;
        if self.shared.unsynced.touches(block.at, length) {
            return None;
        }
        let mut wanted = self.all.without(block.slot);
        if let Some(q) = block.syndrome {
            wanted.remove(q);
        }
        assert!(wanted.contains(block.parity), "P is in the sum");
        let room = self.try_room(&self.blocks_to_read, length)?;
        let others = self.shared.with_view(|view| {
            if view.readable().contains(block.slot) || !wanted.is_within(view.readable()) {
                return None;
            }
            let with_scratch = |slot| {
                let scratch = self.scratch(&room, length)?;
                Some((MemberRun::by(view, slot, block.at, length), scratch))
            };
            wanted.iter().map(with_scratch).collect::<Option<SmallVec<[_; 4]>>>()
        })?;
        assert_eq!(others.len(), wanted.count(), "each other block is read");
        Some(OneLost { row, block, others, room })
    }

    /// Computes the lost stretch, like [`RowIo::recover_interval`].
    pub(crate) async fn recover_one(&self, lost: OneLost, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        let OneLost { row, block, others, room } = lost;
        let reads = others.into_iter();
        let outcomes = join_each(reads.map(|(run, scratch)| async move {
            let scratch = buffers::one_piece(scratch);
            self.shared.read_run(&run, scratch).await
        }));
        let mut failed: Vec<ReadError> = Vec::new();
        let mut known: SmallVec<[Lease; 4]> = SmallVec::new();
        for outcome in outcomes.await {
            match outcome {
                Ok(other) => known.push(other),
                Err(error) => failed.push(error),
            }
        }
        if !failed.is_empty() {
            mark::hit(Mark::RecoveredAround);
            drop((known, room));
            let map = self.layout().row(row);
            assert_eq!(map.data[block.data], block.slot, "the block is of its row");
            let again = self.recover_interval(&map, block.data, block.start, into, SlotSet::EMPTY, failed);
            return Box::pin(again).await;
        }
        self.shared.count(|counters| counters.rows_recovered += 1);
        let mut at = 0;
        for piece in into.iter_mut() {
            let range = at..at + piece.len();
            at = range.end;
            let sources: SmallVec<[&[u8]; 16]> = known.iter().map(|other| &other[range.clone()]).collect();
            generate_p(piece, &sources);
        }
        assert!(known.iter().all(|other| other.len() == at), "the sum is as long as its blocks");
        Ok(into)
    }
}
