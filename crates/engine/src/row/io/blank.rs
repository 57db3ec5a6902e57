//! Zeroes for a part of a row that reads as zeroes already.
//! Owns: whether it does, [`KnownHoles`]. Not here: zeroes over other bytes, which change the parity (`row::io`).
//! Invariant: no sector of any member reads otherwise afterwards, so the row's parity is as right as it was, whatever
//! fails.
//!
//! ```text
//!   mkfs.xfs discards a new array, 2 GiB at a time     stripe 1.5 MiB: 1365 rows and 512 KiB, then 1 MiB, 1364 rows, ...
//!     as data    512 KiB in 8 stretches: each reads D0 and P, and makes both a hole
//!     files      the member of D0 has no data there: nothing to do, and the same holds for the next 1000 GiB
//!     disks      512 KiB of D0 are read at once, and made one hole
//! ```

use super::RowIo;
use crate::row::zeroes::Stretch;
use crate::shard::member_io::{MemberRun, Zeroing};
use crate::shard::shared::Changes;
use crate::state::recorded::Recorded;
use crate::state::view::Gate;
use crate::words::mark::{self, Mark};
use crate::words::progress;
use crate::{Pool, World};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::join_each;
use uraid_block::{Allocation, Device, Extent, IoError, SECTOR_BYTES, Sector, Sectors};
use uraid_layout::Row;

/// Bytes that are looked at together: the compiler makes it a few vector instructions without a branch.
const STEP: usize = 256;

/// What is read first where data is expected.
const PROBE: Sectors = Sectors(8);

/// Whether every byte is zero.
pub(super) fn is_zeroes(bytes: &[u8]) -> bool {
    let mut steps = bytes.chunks_exact(STEP);
    steps.by_ref().all(|step| step.iter().fold(0, |any, byte| any | byte) == 0)
        && steps.remainder().iter().all(|byte| *byte == 0)
}

/// The last hole that each member has told of. A write of this shard into any row, or a change of the members, may end
/// them all: no other shard writes into the data of this shard's rows. A write in flight while the member is asked may
/// land later; it holds its row until it has ended, which is a change.
#[derive(Default)]
pub(super) struct KnownHoles {
    list: RefCell<Vec<(usize, Extent<Sector>)>>,
    /// The state of `Shared::changes` for which the list is right.
    at: Cell<Changes>,
}

impl KnownHoles {
    fn contain(&self, now: Changes, member: usize, wanted: Extent<Sector>) -> bool {
        let is_around = |(index, hole): &(usize, Extent<Sector>)| {
            *index == member && hole.start <= wanted.start && wanted.end() <= hole.end()
        };
        self.at.get() == now && self.list.borrow().iter().any(is_around)
    }

    /// `asked`: when the member was asked.
    fn add(&self, asked: Changes, member: usize, hole: Extent<Sector>) {
        let mut list = self.list.borrow_mut();
        if self.at.replace(asked) != asked {
            list.clear();
        }
        list.retain(|(index, _)| *index != member);
        list.push((member, hole));
    }
}

impl<W: World> RowIo<W> {
    /// Makes a part of a row, which this task holds, holes, if it reads as zeroes. `None`: it does not, or not all of it
    /// can be read simply; nothing was written. `is_rest`: the rest of the row is zeroes already, so that all of it can be
    /// made zeroes, whatever this part holds.
    pub(crate) async fn punch_blank(
        &self,
        row: Row,
        part: Range<Sectors>,
        is_rest: bool,
    ) -> Option<Result<Recorded, IoError>> {
        let (mut stretches, is_sound) = (self.stretches(row, &part), self.is_sound(row));
        if is_sound {
            let are_holes = join_each(stretches.iter().map(|stretch| self.is_hole(stretch))).await;
            let mut known = are_holes.collect::<SmallVec<[bool; 4]>>().into_iter();
            stretches.retain(|_| !known.next().expect("each was asked for"));
        }
        if !stretches.is_empty() && is_rest {
            mark::hit(Mark::RowZeroedInParts);
            let (map, length) = (self.layout().row(row), self.layout().chunk());
            let parity = [Some(map.parity), map.syndrome].into_iter().flatten();
            stretches.extend(parity.map(|slot| Stretch { slot, at: map.start, length }));
            return Some(self.zero_held(row.0..row.0 + 1, stretches.into_iter(), Zeroing::Punch).await);
        }
        if !is_sound || !stretches.is_empty() && !self.all_read_as_zeroes(&stretches).await {
            return None;
        }
        let (recorded, runs) = self.whole_runs(&stretches)?;
        mark::hit(if stretches.is_empty() { Mark::RowHole } else { Mark::RowBlank });
        let outcomes = join_each(runs.iter().map(async |run| Zeroing::Punch.run(&self.shared, run).await));
        let failures: SmallVec<[_; 1]> = outcomes.await.filter_map(Result::err).collect();
        Some(match recorded {
            Some(recorded) if failures.is_empty() => Ok(recorded),
            recorded => self.shared.settle_planned(recorded, &failures).await.map_err(IoError::from),
        })
    }

    /// Whether the row lacks nothing. New bytes are answered: they must not be lost with the next member because P is
    /// wrong.
    fn is_sound(&self, row: Row) -> bool {
        let (at, chunk) = (self.layout().row_start(row), self.layout().chunk());
        let is_consistent = self.is_in_sync(at, chunk) && !self.shared.unsynced.touches(at, chunk);
        is_consistent && self.shared.torn.is_empty() && self.shared.slow_members().is_empty()
    }

    fn stretches(&self, row: Row, part: &Range<Sectors>) -> SmallVec<[Stretch; 4]> {
        let (map, chunk) = (self.layout().row(row), self.layout().chunk());
        let chunks = (part.start.0 / chunk.0)..part.end.0.div_ceil(chunk.0);
        chunks
            .map(|data| {
                let (first, end) = (Sectors(data * chunk.0), Sectors((data + 1) * chunk.0));
                let (start, end) = (part.start.max(first), part.end.min(end));
                Stretch { slot: map.data[data as usize], at: map.start + (start - first), length: end - start }
            })
            .collect()
    }

    /// The runs of the stretches, if every member is there and none is being replaced.
    fn whole_runs(&self, stretches: &[Stretch]) -> Option<(Option<Recorded>, SmallVec<[MemberRun; 4]>)> {
        self.shared.with_view(|view| {
            let is_whole = view.gate == Gate::Open && view.readable() == self.all && !view.has_replacement();
            let run = |part: &Stretch| MemberRun::by(view, part.slot, part.at, part.length);
            is_whole.then(|| (Recorded::by(view), stretches.iter().map(run).collect()))
        })
    }

    /// Whether the member knows, without reading it, that the stretch is a hole.
    async fn is_hole(&self, stretch: &Stretch) -> bool {
        let longest = Sectors(progress::total(&self.shared.layout()).0 - stretch.at.0);
        let Some((_, runs)) = self.whole_runs(&[Stretch { length: longest, ..*stretch }]) else { return false };
        let (index, asked) = (runs[0].index, runs[0].range);
        let wanted = Extent::new(asked.start, stretch.length);
        let now = self.shared.changes();
        if self.holes.contain(now, index, wanted) {
            return true;
        }
        match self.shared.members.get(index).allocation(asked).await {
            Ok(Allocation { length, is_zero: true }) => {
                self.holes.add(now, index, Extent::new(asked.start, length));
                length >= wanted.length
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// On a disk in use the first bytes tell: after such an answer they are read alone.
    async fn all_read_as_zeroes(&self, stretches: &[Stretch]) -> bool {
        let probe = Stretch { length: Sectors(PROBE.0.min(stretches[0].length.0)), ..stretches[0] };
        let is_zeroes = (!self.holes_had_data.get() || self.reads_as_zeroes(&probe).await)
            && join_each(stretches.iter().map(|stretch| self.reads_as_zeroes(stretch)))
                .await
                .all(|is_zeroes| is_zeroes);
        self.holes_had_data.set(!is_zeroes);
        is_zeroes
    }

    /// Reads the stretch with what memory an interval may take.
    async fn reads_as_zeroes(&self, stretch: &Stretch) -> bool {
        let blocks = self.interval_blocks();
        let _permit = self.blocks.acquire(blocks).await;
        let longest = (blocks * LARGE_BLOCK_BYTES / SECTOR_BYTES) as u64;
        let mut left = *stretch;
        while !left.length.is_zero() {
            let now = Stretch { length: Sectors(longest.min(left.length.0)), ..left };
            let Some((_, runs)) = self.whole_runs(&[now]) else { return false };
            let Ok(into) = self.shared.world.arena(Pool::Row).take(now.length.len_bytes()) else { return false };
            match self.shared.read_pieces(&runs[0], into).await {
                Ok(bytes) if bytes.iter().all(|piece| is_zeroes(piece)) => {}
                Ok(_) | Err(_) => return false,
            }
            left = Stretch { at: left.at + now.length, length: left.length - now.length, ..left };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_hole_is_known_until_something_changes() {
        let range = |start, length| Extent::new(Sector(start), Sectors(length));
        let (holes, now) = (KnownHoles::default(), Changes::default());
        holes.add(now, 1, range(100, 50));
        holes.add(now, 2, range(0, 10));
        assert!(holes.contain(now, 1, range(100, 50)) && holes.contain(now, 1, range(149, 1)));
        assert!(!holes.contain(now, 1, range(99, 2)) && !holes.contain(now, 1, range(149, 2)));
        assert!(holes.contain(now, 2, range(0, 10)) && !holes.contain(now, 0, range(0, 10)));
        let later = Changes { writes: 1, ..now };
        assert!(!holes.contain(later, 1, range(100, 50)));
        holes.add(later, 1, range(0, 5));
        assert!(!holes.contain(later, 2, range(0, 10)), "it was known of an earlier state");
    }

    #[test]
    fn one_bit_anywhere_is_seen() {
        for length in [1, 255, 256, 257, 512, 1000] {
            let mut bytes = vec![0_u8; length];
            assert!(is_zeroes(&bytes));
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_zeroes(&bytes), "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}
