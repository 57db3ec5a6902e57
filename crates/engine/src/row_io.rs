//! Writing and recovering one interval of a row that this shard holds.
//! Owns: the reads, the parity arithmetic and the writes of each row plan. Not here: the choice (`row_plan`), who may
//! work on the row (`row`).
//! Invariant: nothing is written before everything it depends on was read; member states are looked up again after
//! every failed read.

use crate::array::{Array, failure};
use crate::mail::Failure;
use crate::mark::{self, Mark};
use crate::row_plan::{Block, Blocks, Interval, RowPlan, choose};
use crate::sabotage::{self, Sabotage};
use crate::slices::Slices;
use crate::steward::Recorded;
use crate::verdict::Operation;
use crate::view::View;
use crate::{Pool, World};
use smallvec::SmallVec;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::join_each;
use uraid_block::{
    Device, ErrorKind, Fua, IoError, Lease, MemberSector, ReadPieces, Sectors, Slot, SlotSet, WritePieces,
};
use uraid_layout::RowMap;
use uraid_parity::{Lost, generate_p, generate_pq, recover, update_p, update_pq, update_q};

/// Old bytes of a row's blocks, where they were read.
pub(crate) struct OldBytes {
    pub(crate) data: Vec<Option<Lease>>,
    pub(crate) p: Option<Lease>,
    pub(crate) q: Option<Lease>,
}

/// New parity, ready to be written.
#[derive(Default)]
struct NewParity {
    p: Option<ReadPieces>,
    q: Option<ReadPieces>,
}

/// Which blocks a row plan reads.
struct ReadList {
    data: SmallVec<[bool; 16]>,
    p: bool,
    q: bool,
}

impl<W: World> Array<W> {
    /// The longest interval that is read: one contiguous piece of scratch a member.
    pub(crate) fn partial_max(&self) -> Sectors {
        Sectors(self.shape.layout.chunk().0.min((LARGE_BLOCK_BYTES / uraid_block::SECTOR_BYTES) as u64))
    }

    /// The longest interval of full stripes: its parity fits the scratch that a partial one of this width takes.
    pub(crate) fn full_max(&self) -> Sectors {
        let pieces = u64::from(self.shape.layout.slots() / 2).max(1);
        Sectors(self.shape.layout.chunk().0.min(pieces * (LARGE_BLOCK_BYTES / uraid_block::SECTOR_BYTES) as u64))
    }

    fn blocks(&self, map: &RowMap, view: &View, unreadable: SlotSet) -> Blocks {
        let block = |slot: Slot| match (view.usable.contains(slot), unreadable.contains(slot)) {
            (false, _) => Block::Lost,
            (true, true) => Block::Unreadable,
            (true, false) => Block::Whole,
        };
        Blocks {
            data: map.data.iter().map(|slot| block(*slot)).collect(),
            parities: std::iter::once(map.parity).chain(map.syndrome).map(block).collect(),
        }
    }

    /// Writes an interval: plans it, reads what the plan needs, makes parity, writes, and records who failed.
    pub(crate) async fn write_interval(&self, map: &RowMap, interval: Interval, fua: Fua) -> Result<Recorded, IoError> {
        let room = self.rows.blocks.acquire(usize::from(self.shape.layout.slots()) + 2).await;
        let covered: SmallVec<[bool; 16]> = interval.new.iter().map(Option::is_some).collect();
        let at = map.start + interval.start;
        let mut unreadable = SlotSet::EMPTY;
        let (view, parity) = loop {
            let view = self.view();
            let blocks = self.blocks(map, &view, unreadable);
            let plan = choose(&covered, &blocks);
            let list = match reads_of(plan, &covered, &blocks) {
                Some(list) => list,
                None if !unreadable.is_empty() && interval.length > Sectors(1) => {
                    drop(room);
                    return self.write_halves(map, &interval, fua).await;
                }
                None => {
                    mark::hit(Mark::RowImpossible);
                    return Err(lost_error(unreadable));
                }
            };
            match self.read_blocks(map, &list, at, interval.length).await {
                Ok(old) => break (view, self.new_parity(map, &interval, plan, old).await),
                Err(failures) => {
                    mark::hit(Mark::RowPlannedAgain);
                    for failed in failures {
                        self.note_read_failure(&view, failed).await?;
                        unreadable.insert(failed.slot);
                    }
                }
            }
        };
        self.write_blocks(map, &interval, parity, &view, fua).await
    }

    /// What cannot be read at once may be readable by the sector: members seldom lose the same one.
    async fn write_halves(&self, map: &RowMap, interval: &Interval, fua: Fua) -> Result<Recorded, IoError> {
        mark::hit(Mark::RowHalved);
        let half = Sectors(interval.length.0 / 2);
        let part = |from: Sectors, length: Sectors| {
            let new = interval.new.iter().map(|new| Some(new.as_ref()?.slice(from.len_bytes(), length.len_bytes())));
            Interval { start: interval.start + from, length, new: new.collect() }
        };
        let _first = Box::pin(self.write_interval(map, part(Sectors::ZERO, half), fua)).await?;
        Box::pin(self.write_interval(map, part(half, interval.length - half), fua)).await
    }

    async fn write_blocks(
        &self,
        map: &RowMap,
        interval: &Interval,
        parity: NewParity,
        view: &View,
        fua: Fua,
    ) -> Result<Recorded, IoError> {
        let at = map.start + interval.start;
        let mut writes: SmallVec<[(Slot, WritePieces); 16]> = SmallVec::new();
        for (slot, new) in map.data.iter().zip(&interval.new) {
            writes.extend(new.as_ref().map(|new| (*slot, new.clone())));
        }
        if !sabotage::is(Sabotage::SkipParity) {
            writes.extend(parity.p.map(|p| (map.parity, p.freeze())));
            writes.extend(map.syndrome.zip(parity.q).map(|(slot, q)| (slot, q.freeze())));
        }
        writes.retain(|(slot, _)| view.usable.contains(*slot));
        let outcomes = join_each(
            writes
                .into_iter()
                .map(async |(slot, from)| (slot, self.member(slot).write(self.on_device(slot, at), from, fua).await)),
        );
        let mut failures: Vec<Failure> = Vec::new();
        for (slot, outcome) in outcomes.await {
            failures.extend(outcome.err().map(|error| failure(slot, Operation::Write, error)));
        }
        let lost_data = map.data.iter().any(|slot| !view.usable.contains(*slot));
        let mut outcome = self.settle(view, &failures).await;
        if fua == Fua::Yes && lost_data && outcome.is_ok() {
            mark::hit(Mark::FuaFlushed);
            // What a lost member would hold is computed from all others: all of them must be on stable storage.
            outcome = self.flush_members().await;
        }
        if outcome.is_err() {
            mark::hit(Mark::RowTorn);
            // Some blocks of the row are new and some old: what one of them held can no longer be computed.
            self.rows.mark_torn(map.row);
        }
        outcome
    }

    /// Reads blocks of one interval, all members at once; says which failed.
    async fn read_blocks(
        &self,
        map: &RowMap,
        list: &ReadList,
        at: MemberSector,
        length: Sectors,
    ) -> Result<OldBytes, Vec<Failure>> {
        let data = map.data.iter().zip(&list.data).map(|(slot, wanted)| wanted.then_some(*slot));
        let p = list.p.then_some(map.parity);
        let q = if list.q { map.syndrome } else { None };
        let wanted: Vec<Option<Slot>> = data.chain([p, q]).collect();
        let outcomes = join_each(wanted.into_iter().map(async |slot| match slot {
            Some(slot) => self.read_block(slot, at, length, Pool::Row).await.map(Some),
            None => Ok(None),
        }));
        let mut failures = Vec::new();
        let mut blocks = Vec::new();
        for outcome in outcomes.await {
            match outcome {
                Ok(block) => blocks.push(block),
                Err(failed) => failures.push(failed),
            }
        }
        if !failures.is_empty() {
            return Err(failures);
        }
        let q = blocks.pop().expect("Q is the last of the list");
        let p = blocks.pop().expect("P is behind the data");
        Ok(OldBytes { data: blocks, p, q })
    }

    /// One block into scratch of one piece.
    pub(crate) async fn read_block(
        &self,
        slot: Slot,
        at: MemberSector,
        length: Sectors,
        pool: Pool,
    ) -> Result<Lease, Failure> {
        let mut into = ReadPieces::new();
        into.push(self.take_contiguous(pool, length).await);
        match self.member(slot).read(self.on_device(slot, at), into).await {
            Ok(pieces) => {
                assert_eq!(pieces.count(), 1, "a read gives back the pieces it was given");
                Ok(pieces.into_iter().next().expect("there is one piece"))
            }
            Err(error) => Err(failure(slot, Operation::Read, error)),
        }
    }

    /// Scratch in one piece. There is room by the permit that was taken, or as soon as a device lets go.
    pub(crate) async fn take_contiguous(&self, pool: Pool, length: Sectors) -> Lease {
        loop {
            match self.world.arena(pool).take_contiguous(length.len_bytes()) {
                Ok(lease) => return lease,
                Err(_) => self.world.sleep(crate::read::ARENA_RETRY).await,
            }
        }
    }

    async fn new_parity(&self, map: &RowMap, interval: &Interval, plan: RowPlan, old: OldBytes) -> NewParity {
        let length = interval.length;
        match plan {
            RowPlan::DataOnly => NewParity::default(),
            RowPlan::FullStripe => {
                self.count(|counters| counters.rows_full += 1);
                self.generate(map, interval, &old).await
            }
            RowPlan::ReadModifyWrite => {
                self.count(|counters| counters.rows_modified += 1);
                modify(map, interval, old)
            }
            RowPlan::Reconstruct => {
                self.count(|counters| counters.rows_reconstructed += 1);
                self.generate(map, interval, &old).await
            }
            RowPlan::Recover => {
                mark::hit(Mark::RowRecovered);
                self.count(|counters| counters.rows_reconstructed += 1);
                let all = self.recover_blocks(map, old, length, Pool::Row).await;
                self.generate(map, interval, &all).await
            }
            RowPlan::Impossible => unreachable!("an impossible plan has no reads"),
        }
    }

    /// Parity of the new bytes over the old ones.
    async fn generate(&self, map: &RowMap, interval: &Interval, old: &OldBytes) -> NewParity {
        let mut sources: Vec<Slices<'_>> = interval
            .new
            .iter()
            .zip(&old.data)
            .map(|(new, old)| match (new, old) {
                (Some(new), _) => Slices::of_pieces(new),
                (None, Some(old)) => Slices::of_bytes(old),
                (None, None) => unreachable!("a plan that generates parity knows every data block"),
            })
            .collect();
        let mut parity = NewParity { p: Some(ReadPieces::new()), q: map.syndrome.map(|_| ReadPieces::new()) };
        let mut left = interval.length.len_bytes();
        while left > 0 {
            let bytes = left.min(LARGE_BLOCK_BYTES);
            let length = Sectors::from_bytes_floor(bytes as u64);
            let mut p = self.take_contiguous(Pool::Row, length).await;
            let mut q = match map.syndrome {
                Some(_) => Some(self.take_contiguous(Pool::Row, length).await),
                None => None,
            };
            crate::slices::walk(&mut sources, bytes, |at, data| match &mut q {
                Some(q) => {
                    let range = at..at + data[0].len();
                    generate_pq(&mut p[range.clone()], &mut q[range], data, &map.exponents);
                }
                None => generate_p(&mut p[at..at + data[0].len()], data),
            });
            parity.p.as_mut().expect("P is made").push(p);
            if let (Some(pieces), Some(q)) = (&mut parity.q, q) {
                pieces.push(q);
            }
            left -= bytes;
        }
        parity
    }

    /// Fills the data blocks that were not read, from those that were.
    pub(crate) async fn recover_blocks(&self, map: &RowMap, old: OldBytes, length: Sectors, pool: Pool) -> OldBytes {
        let OldBytes { data, mut p, mut q } = old;
        let lost: SmallVec<[usize; 2]> =
            data.iter().enumerate().filter(|(_, block)| block.is_none()).map(|(index, _)| index).collect();
        let mut all = Vec::with_capacity(data.len());
        for block in data {
            all.push(match block {
                Some(block) => block,
                None => self.take_contiguous(pool, length).await,
            });
        }
        {
            let mut blocks: Vec<&mut [u8]> = all.iter_mut().map(|block| &mut block[..]).collect();
            let row = uraid_parity::Row {
                data: &mut blocks,
                exponents: &map.exponents,
                p: p.as_deref_mut(),
                q: q.as_deref_mut(),
            };
            recover(row, &Lost { data: &lost, p: false, q: false }).expect("the plan counted what is lost");
        }
        OldBytes { data: all.into_iter().map(Some).collect(), p, q }
    }

    /// Reads one stretch of data chunk `data` without the slots in `avoid`, and those that fail on the way.
    pub(crate) async fn recover_interval(
        &self,
        map: &RowMap,
        data: usize,
        start: Sectors,
        mut into: ReadPieces,
        avoid: SlotSet,
    ) -> Result<ReadPieces, IoError> {
        let room = self.rows.blocks.acquire(usize::from(self.shape.layout.slots()) + 2).await;
        self.count(|counters| counters.rows_recovered += 1);
        let length = into.length();
        let (mut unreadable, mut suspected) = (avoid, avoid);
        loop {
            if self.rows.is_torn(map.row) {
                mark::hit(Mark::TornRowRefused);
                return Err(ErrorKind::Media.into());
            }
            let view = self.view();
            let blocks = self.blocks(map, &view, unreadable);
            let Some(list) = reads_to_recover(&blocks, data) else {
                if length > Sectors(1) && !unreadable.is_empty() {
                    drop(room);
                    return self.recover_halves(map, data, start, into).await;
                }
                if suspected.is_empty() {
                    return Err(lost_error(unreadable));
                }
                // What was to be avoided may have failed for the sectors beside this one.
                (unreadable, suspected) = (SlotSet::EMPTY, SlotSet::EMPTY);
                continue;
            };
            match self.read_blocks(map, &list, map.start + start, length).await {
                Ok(old) => {
                    let all = if old.data[data].is_some() {
                        old
                    } else {
                        self.recover_blocks(map, old, length, Pool::Row).await
                    };
                    into.copy_from(all.data[data].as_ref().expect("the block was read or computed"));
                    return Ok(into);
                }
                Err(failures) => {
                    mark::hit(Mark::RecoveredAround);
                    for failed in failures {
                        self.note_read_failure(&view, failed).await?;
                        unreadable.insert(failed.slot);
                    }
                }
            }
        }
    }

    /// As `write_halves`, for a read.
    async fn recover_halves(
        &self,
        map: &RowMap,
        data: usize,
        start: Sectors,
        into: ReadPieces,
    ) -> Result<ReadPieces, IoError> {
        mark::hit(Mark::RecoveredInHalves);
        let mut rest = into;
        let half = Sectors(rest.length().0 / 2);
        let first = rest.split_to(half.len_bytes());
        let mut whole = Box::pin(self.recover_interval(map, data, start, first, SlotSet::EMPTY)).await?;
        whole.append(Box::pin(self.recover_interval(map, data, start + half, rest, SlotSet::EMPTY)).await?);
        Ok(whole)
    }
}

/// What a plan has to read; `None` when the row cannot be written.
fn reads_of(plan: RowPlan, covered: &[bool], blocks: &Blocks) -> Option<ReadList> {
    let none = || SmallVec::from_elem(false, covered.len());
    let usable = |parity: usize| blocks.parities.get(parity).is_some_and(|block| *block != Block::Lost);
    match plan {
        RowPlan::FullStripe | RowPlan::DataOnly => Some(ReadList { data: none(), p: false, q: false }),
        RowPlan::ReadModifyWrite => Some(ReadList { data: SmallVec::from_slice(covered), p: usable(0), q: usable(1) }),
        RowPlan::Reconstruct => {
            Some(ReadList { data: covered.iter().map(|is_covered| !is_covered).collect(), p: false, q: false })
        }
        RowPlan::Recover => recover_list(blocks),
        RowPlan::Impossible => None,
    }
}

/// What to read so that data block `data` is known.
fn reads_to_recover(blocks: &Blocks, data: usize) -> Option<ReadList> {
    if blocks.data[data] == Block::Whole {
        let only = (0..blocks.data.len()).map(|index| index == data).collect();
        return Some(ReadList { data: only, p: false, q: false });
    }
    recover_list(blocks)
}

/// Every readable data block, and as many parities as data blocks are unknown.
fn recover_list(blocks: &Blocks) -> Option<ReadList> {
    let unknown = blocks.unknown();
    if unknown > blocks.readable_parities() {
        return None;
    }
    let readable = |parity: usize| blocks.parities.get(parity) == Some(&Block::Whole);
    let p = readable(0) && unknown > 0;
    let q = readable(1) && unknown > usize::from(p);
    Some(ReadList { data: blocks.data.iter().map(|block| *block == Block::Whole).collect(), p, q })
}

fn lost_error(unreadable: SlotSet) -> IoError {
    if unreadable.is_empty() { ErrorKind::TooManyLost } else { ErrorKind::Media }.into()
}

/// Moves the old parity by what changes: read-modify-write.
fn modify(map: &RowMap, interval: &Interval, old: OldBytes) -> NewParity {
    let OldBytes { data, mut p, mut q } = old;
    for (index, new) in interval.new.iter().enumerate() {
        let Some(new) = new else { continue };
        let before = data[index].as_ref().expect("the old bytes of what is written were read");
        let exponent = map.exponents[index];
        let mut at = 0;
        for piece in new.iter() {
            let range = at..at + piece.len();
            match (&mut p, &mut q) {
                (Some(p), Some(q)) => {
                    update_pq(&mut p[range.clone()], &mut q[range.clone()], &before[range], piece, exponent);
                }
                (Some(p), None) => update_p(&mut p[range.clone()], &before[range], piece),
                (None, Some(q)) => update_q(&mut q[range.clone()], &before[range], piece, exponent),
                (None, None) => unreachable!("a row without parity is not modified"),
            }
            at += piece.len();
        }
    }
    let pieces = |lease: Lease| {
        let mut pieces = ReadPieces::new();
        pieces.push(lease);
        pieces
    };
    NewParity { p: p.map(pieces), q: q.map(pieces) }
}
