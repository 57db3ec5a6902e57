//! Rows: the unit of parity work, each with one shard that owns it.
//! Owns: [`Rows`], the holder of each row, cutting a request by rows, reads of lost members. Not here: which writes wait
//! in a row (`row::table`), how a row is written or recovered (`row::plan`, `row::io`).
//! Invariant: a row has one holder. A request never holds two rows, but for zeroes of whole rows (`row::zeroes`), which
//! get all their rows of a shard at once. The holder looks up member states only after it has got the row.

pub(crate) mod gather;
pub(crate) mod io;
pub(crate) mod parity;
pub(crate) mod pieces;
pub(crate) mod plan;
pub(crate) mod table;
pub(crate) mod write_cost;
pub(crate) mod zeroed_parts;
pub(crate) mod zeroes;

use crate::row::gather::Streams;
use crate::row::io::{FailedPart, RowIo};
use crate::row::pieces::{Arrival, Pieces};
use crate::row::plan::{Interval, Overlay};
use crate::row::table::{Outcome, RowTable, Waiting};
use crate::row::zeroed_parts::ZeroedParts;
use crate::row::zeroes::WholeRows;
use crate::shard::buffers;
use crate::shard::mail::{Call, RowRead, RowWrite, ZeroedRows};
use crate::shard::member_io::Zeroing;
use crate::shard::shared::Shared;
use crate::state::recorded::Recorded;
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use smallvec::SmallVec;
use std::cell::Ref;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{join_all, join_each, join_pair};
use uraid_block::{ArrayRange, Fua, IoError, ReadPieces, SECTOR_BYTES, Sectors, Slot, SlotSet, WritePieces};
use uraid_layout::{ParityLayout, Row, RowMap, RowPart};

const ROWS_AT_ONCE: usize = 64;
/// Zeroes are written in requests of at most this many sectors (4 MiB).
const ZEROES_MAX: u64 = 8192;

/// One write of a batch, while the batch is written.
struct Part {
    /// From the start of the row's data.
    start: Sectors,
    length: Sectors,
    outcome: Option<Outcome>,
}

/// The rows of an array on one shard: those that it owns, and requests for others.
pub(crate) struct Rows<W: World> {
    shared: Rc<Shared<W>>,
    io: Rc<RowIo<W>>,
    table: RowTable,
    streams: Streams,
    pieces: Pieces,
    zeroed: ZeroedParts,
}

impl<W: World> Rows<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, io: Rc<RowIo<W>>) -> Rows<W> {
        let (table, streams, pieces, zeroed) = (RowTable::new(), Streams::new(), Pieces::new(), ZeroedParts::new());
        Rows { shared, io, table, streams, pieces, zeroed }
    }

    fn layout(&self) -> Ref<'_, ParityLayout> {
        self.shared.rows()
    }

    /// Writes a range. It is answered when the superblocks record the members that it missed.
    pub(crate) async fn write(&self, range: ArrayRange, from: WritePieces, fua: Fua) -> Result<Recorded, IoError> {
        assert_eq!(from.length(), range.length, "each sector of the range has its bytes");
        let hold_time = self.hold_time_after(range);
        let outcome = match self.only_own_row(range) {
            Some(RowPart { row, start, .. }) => {
                // Pin the future where it is made: awaiting it by value first moves 1.7 KiB.
                pin!(self.write_row_owned(RowWrite { row, start, from, fua, hold_time, is_hole: false })).await
            }
            None => Box::pin(self.write_rows(range, from, fua, hold_time, false)).await,
        };
        self.streams.note_answered(range);
        match outcome {
            // Cold path, so boxed.
            Ok(recorded) if fua == Fua::Yes => {
                let usable = self.shared.with_view(|view| view.readable());
                Box::pin(self.flush_missing_data(range, usable, recorded)).await
            }
            Ok(_) | Err(_) => outcome,
        }
    }

    /// How long to wait for the next write of the same stream. `None` for the first two writes of a stream, and if the
    /// client may be waiting for an answer. Call it once for each write of a client.
    fn hold_time_after(&self, range: ArrayRange) -> Option<Duration> {
        let next = self.streams.come(range, || self.shared.world.now())?;
        (next.is_of_burst || self.shared.epochs.in_flight() > 1).then(|| next.gap * 2)
    }

    /// The row that holds all of a range, if this shard owns it: the fast path for small writes.
    fn only_own_row(&self, range: ArrayRange) -> Option<RowPart> {
        let first = self.layout().rows(range).next();
        first.filter(|part| part.length == range.length && self.shared.owner_of(part.row) == self.shared.world.shard())
    }

    /// Writes a range of a parity level, cut by rows: each part goes to its row's owner.
    async fn write_rows(
        &self,
        range: ArrayRange,
        from: WritePieces,
        fua: Fua,
        hold_time: Option<Duration>,
        is_hole: bool,
    ) -> Result<Recorded, IoError> {
        assert!(!range.length.is_zero());
        assert_eq!(from.length(), range.length);
        let mut parts = self.layout().rows(range);
        let mut result = None;
        loop {
            let some = parts.by_ref().take(ROWS_AT_ONCE).map(|part| {
                let from = from.slice(part.offset.len_bytes(), part.length.len_bytes());
                self.ask_owner_to_write(RowWrite { row: part.row, start: part.start, from, fua, hold_time, is_hole })
            });
            let outcomes = join_all(some).await;
            if outcomes.is_empty() {
                break;
            }
            for outcome in outcomes {
                let recorded = outcome?;
                result = Some(recorded);
            }
        }
        Ok(result.expect("a range has a row"))
    }

    /// The last step of a FUA write: if a row of the range lacks a data member, flush all members. The missing member's
    /// bytes are computed from all the others, so earlier writes in their caches count, too.
    ///
    /// `usable` is the set after the write, when its failures are recorded: a member may have failed in this very
    /// write, or in another one meanwhile. If the set from before the write were used, a sector answered with FUA could
    /// be lost:
    ///
    /// ```text
    ///   write D1, no FUA   in the cache of member 1, and in P
    ///   write D0, FUA      member 0 fails, P is durable        power fails: D0 = P xor the old D1
    /// ```
    async fn flush_missing_data(
        &self,
        range: ArrayRange,
        usable: SlotSet,
        recorded: Recorded,
    ) -> Result<Recorded, IoError> {
        assert!(usable.is_within(SlotSet::first(self.layout().slots())));
        // A block with a listed sector is computed from the others, too.
        let (has_all, has_lists) = self
            .shared
            .with_view(|view| (usable.count() == usize::from(self.layout().slots()), !view.bad_blocks.is_empty()));
        let lacks_data = |part: RowPart| {
            let map = self.layout().row(part.row);
            let is_listed = |slot: Slot| has_lists && self.shared.lists_some(slot, map.start, self.layout().chunk());
            map.data.iter().any(|slot| !usable.contains(*slot) || is_listed(*slot))
        };
        if has_all && !has_lists || !self.layout().rows(range).any(lacks_data) {
            return Ok(recorded);
        }
        mark::hit(Mark::FuaFlushed);
        self.shared.flush_members().await
    }

    async fn ask_owner_to_write(&self, write: RowWrite) -> Result<Recorded, IoError> {
        let owner = self.shared.owner_of(write.row);
        if owner == self.shared.world.shard() {
            return self.write_row_owned(write).await;
        }
        self.shared.calls.call(owner, Call::WriteRow(write)).await.settled()
    }

    /// Makes the range read as zeroes: whole rows on every member at once, the rest as data.
    pub(crate) async fn zero(&self, range: ArrayRange, how: Zeroing) -> Result<Recorded, IoError> {
        if self.shared.has_log {
            return self.write_zeroes_as_data(range, how).await;
        }
        let cut = WholeRows::of(range, self.layout().stripe());
        // All at once: the parts of rows are at other shards, or wait for reads, while the members make the whole rows zeroes.
        let part = async |part: Option<ArrayRange>| match part {
            Some(part) => self.write_zeroes_as_data(part, how).await.map(Some),
            None => Ok(None),
        };
        let (edges, rows) = join_pair(
            pin!(join_pair(pin!(part(cut.before)), pin!(part(cut.behind)))),
            pin!(self.zero_whole(&cut, how)),
        )
        .await;
        let done = [edges.0?, edges.1?, rows?];
        Ok(done.into_iter().flatten().next_back().expect("the range is not empty"))
    }

    /// `None`: there is no whole row.
    async fn zero_whole(&self, cut: &WholeRows, how: Zeroing) -> Result<Option<Recorded>, IoError> {
        let mut result = None;
        for rows in cut.steps() {
            result = Some(self.io.zero_rows(rows, how).await?);
        }
        Ok(result)
    }

    /// Gives back the space of the whole rows of a range, which read as zeroes then; the rest stays as it is. `None`: it
    /// has no whole row. An array with a partial parity log offers no discards.
    pub(crate) async fn discard(&self, range: ArrayRange) -> Result<Option<Recorded>, IoError> {
        let cut = WholeRows::of(range, self.layout().stripe());
        self.zero_whole(&cut, Zeroing::Punch).await
    }

    pub(crate) fn note_zeroed(&self, zeroed: &ZeroedRows) {
        self.shared.note_zeroed(zeroed);
    }

    /// Parts of rows: the old data and parity may be read, and the parity is computed.
    async fn write_zeroes_as_data(&self, range: ArrayRange, how: Zeroing) -> Result<Recorded, IoError> {
        let block =
            buffers::take(&self.shared.world, Pool::Request, Sectors(ZEROES_MAX.min(range.length.0).min(128))).await;
        let mut block = block;
        block.fill(0);
        let block = block.freeze();
        let is_hole = how == Zeroing::Punch;
        let mut at = range.start;
        let mut result = None;
        while at < range.end() {
            let length = Sectors(ZEROES_MAX.min((range.end() - at).0));
            let mut zeroes = WritePieces::new();
            while zeroes.bytes() < length.len_bytes() {
                let bytes = block.bytes().min(length.len_bytes() - zeroes.bytes());
                zeroes.append(block.slice(0, bytes));
            }
            assert_eq!(zeroes.length(), length);
            result = Some(self.write_rows(ArrayRange::new(at, length), zeroes, Fua::No, None, is_hole).await?);
            at = at + length;
        }
        Ok(result.expect("the range is not empty"))
    }

    /// Writes into a row that this shard owns. The task that gets the row writes all waiting writes of it together, and
    /// answers them: a stream of small writes becomes one row write.
    pub(crate) async fn write_row_owned(&self, write: RowWrite) -> Result<Recorded, IoError> {
        let row = write.row;
        assert_eq!(self.shared.owner_of(row), self.shared.world.shard());
        let (visit, stripe) = (self.table.visit(row), self.layout().stripe());
        let arrival = if visit.is_shared() { Arrival::Joined } else { Arrival::Alone };
        let may_be_piece = !write.is_hole && self.pieces.concern(write.from.length(), stripe);
        let outcome = visit.wait_in_row(write);
        let _holder = self.shared.locks.guard(row.0..row.0 + 1).await;
        if let Some(done) = outcome.as_ref().and_then(|outcome| outcome.take()) {
            return done;
        }
        gather::hold(&self.shared.world, &visit, stripe).await;
        if may_be_piece {
            self.pieces.hold(&self.shared.world, row, arrival, &visit, stripe).await;
        }
        let mut batch = visit.take_waiting();
        assert!(!batch.is_empty(), "the holder's own write waits in the row until a holder takes it");
        let update = match &batch[..] {
            [only] if only.write.is_hole => return Box::pin(self.write_hole(row, batch, outcome)).await,
            [only] => self.io.plan_update(row, only.write.start, only.write.from.length()),
            _ => None,
        };
        self.zeroed.forget(row);
        match update {
            Some(update) => {
                let RowWrite { start, from, fua, .. } = batch.pop().expect("there is one").write;
                let part = Part { start, length: from.length(), outcome: None };
                match pin!(self.io.update(update, from, fua)).await {
                    Ok(recorded) => Ok(recorded),
                    Err(failed) => {
                        let map = self.layout().row(row);
                        Box::pin(self.answer_parts(&map, &[part], &failed)).await
                    }
                }
            }
            // Boxed to keep the future of a small write small.
            None => Box::pin(self.write_batch(row, batch, outcome)).await,
        }
    }

    /// Makes a part of a row that this task holds a hole: with its whole row, if the rest is zeroes already.
    async fn write_hole(
        &self,
        row: Row,
        batch: SmallVec<[Waiting; 1]>,
        outcome: Option<Outcome>,
    ) -> Result<Recorded, IoError> {
        let (start, length) = (batch[0].write.start, batch[0].write.from.length());
        if self.shared.has_log {
            return self.write_batch(row, batch, outcome).await;
        }
        let zeroed = self.zeroed.with(row, start..start + length);
        let is_rest = zeroed == (Sectors::ZERO..self.layout().stripe());
        let done = match self.io.punch_blank(row, start..start + length, is_rest).await {
            Some(done) => done,
            None => self.write_batch(row, batch, outcome).await,
        };
        if done.is_ok() {
            self.zeroed.note(row, zeroed);
        }
        done
    }

    /// Writes the waiting writes of a row that this task holds. `outcome` receives the outcome of the holder's own
    /// write, unless that write is the first of the batch.
    async fn write_batch(
        &self,
        row: Row,
        batch: SmallVec<[Waiting; 1]>,
        outcome: Option<Outcome>,
    ) -> Result<Recorded, IoError> {
        if batch.len() > 1 {
            mark::hit(Mark::RowShared);
        }
        self.shared.count(|counters| counters.writes_absorbed += batch.len() as u64 - 1);
        let mut overlay = Overlay::default();
        let mut fua = Fua::No;
        let is_hole = batch.iter().all(|waiting| waiting.write.is_hole);
        let mut writes: SmallVec<[Part; 1]> = SmallVec::new();
        for Waiting { write, outcome } in batch {
            assert_eq!(write.row, row, "a write waits in its own row");
            assert!(write.start + write.from.length() <= self.layout().stripe(), "a write stays in its row");
            if write.fua == Fua::Yes {
                fua = Fua::Yes;
            }
            writes.push(Part { start: write.start, length: write.from.length(), outcome });
            overlay.add(self.layout().chunk(), write.start, write.from);
        }
        let map = self.layout().row(row);
        let mut intervals = overlay.into_intervals(map.data.len(), self.io.partial_max(), self.io.full_max(), is_hole);
        let result = if intervals.len() == 1 {
            let only = intervals.pop().expect("there is one");
            pin!(self.io.write_interval(&map, only, fua)).await
        } else {
            self.write_intervals(&map, intervals, fua).await
        };
        match result {
            Ok(recorded) => {
                writes
                    .iter()
                    .filter_map(|part| part.outcome.as_ref())
                    .for_each(|one| one.set(Some(Ok(recorded.clone()))));
                Ok(recorded)
            }
            Err(failed) => {
                assert!(outcome.is_some() || writes[0].outcome.is_none(), "the first write of a batch is its holder's");
                let first = Box::pin(self.answer_parts(&map, &writes, &failed)).await;
                // A write without an outcome found no other task, so it is the first of its batch.
                outcome.map_or(first, |own| own.take().expect("the holder's own write is in its batch"))
            }
        }
    }

    /// Answers each write of a batch after some parts of it failed. Only writes that touch a failed part get an error.
    /// Returns the outcome of the first write.
    async fn answer_parts(&self, map: &RowMap, writes: &[Part], failed: &[FailedPart]) -> Result<Recorded, IoError> {
        assert!(!writes.is_empty() && !failed.is_empty());
        let chunk = self.layout().chunk();
        // The failures of all written parts are recorded. This returns the proof, or why the array froze since.
        let recorded = self.shared.settle(&self.shared.view(), &[]).await;
        let outcome_of = |write: &Part| {
            let of_write = failed.iter().find(|part| part.touches(map, chunk, write.start, write.length));
            of_write.map_or_else(|| recorded.clone(), |part| Err(part.error))
        };
        for write in writes {
            if let Some(outcome) = &write.outcome {
                outcome.set(Some(outcome_of(write)));
            }
        }
        outcome_of(&writes[0])
    }

    async fn write_intervals(
        &self,
        map: &RowMap,
        intervals: SmallVec<[Interval; 1]>,
        fua: Fua,
    ) -> Result<Recorded, Vec<FailedPart>> {
        assert!(intervals.len() > 1, "a single interval is written without a list");
        let mut recorded = None;
        let mut failed = Vec::new();
        for outcome in join_each(intervals.into_iter().map(|interval| self.io.write_interval(map, interval, fua))).await
        {
            match outcome {
                Ok(of_interval) => recorded = Some(of_interval),
                Err(of_interval) => failed.extend(of_interval),
            }
        }
        if failed.is_empty() { Ok(recorded.expect("a write has an interval")) } else { Err(failed) }
    }

    /// The bytes of a lost data member, computed by the owners of their rows, one row after the other.
    pub(crate) async fn read_lost(
        &self,
        range: ArrayRange,
        mut into: ReadPieces,
        avoid: SlotSet,
    ) -> Result<ReadPieces, IoError> {
        assert_eq!(into.length(), range.length, "each sector of the range has its buffer");
        let mut parts = self.layout().rows(range).peekable();
        if let Some(&RowPart { row, start, length, .. }) = parts.peek()
            && length == range.length
        {
            return self.ask_owner_to_read(RowRead { row, start, into, avoid }).await;
        }
        let mut whole = ReadPieces::new();
        for part in parts {
            let read =
                RowRead { row: part.row, start: part.start, into: into.split_to(part.length.len_bytes()), avoid };
            whole.append(self.ask_owner_to_read(read).await?);
        }
        assert_eq!(whole.length(), range.length, "the rows cover the range");
        Ok(whole)
    }

    async fn ask_owner_to_read(&self, read: RowRead) -> Result<ReadPieces, IoError> {
        let owner = self.shared.owner_of(read.row);
        if owner == self.shared.world.shard() {
            return self.read_row_owned(read).await;
        }
        self.shared.calls.call(owner, Call::ReadRow(read)).await.read()
    }

    /// Computes bytes that a member cannot supply, in a row that this shard owns.
    pub(crate) async fn read_row_owned(&self, read: RowRead) -> Result<ReadPieces, IoError> {
        assert_eq!(self.shared.owner_of(read.row), self.shared.world.shard());
        // A writer that gathers sees from this visit that a reader waits.
        let _visit = self.table.visit(read.row);
        let _holder = self.shared.locks.guard(read.row.0..read.row.0 + 1).await;
        let one_lost =
            if read.avoid.is_empty() { self.io.plan_one_lost(read.row, read.start, read.into.length()) } else { None };
        match one_lost {
            Some(lost) => self.io.recover_one(lost, read.into).await,
            // Boxed to keep the future of a small read small.
            None => Box::pin(self.recover_stretches(read)).await,
        }
    }

    /// Computes bytes of a row that this task holds, one stretch of one chunk after the other.
    async fn recover_stretches(&self, read: RowRead) -> Result<ReadPieces, IoError> {
        let map = self.layout().row(read.row);
        let chunk = self.layout().chunk();
        let mut into = read.into;
        let wanted = into.length();
        assert!(read.start + wanted <= self.layout().stripe(), "a read stays in its row");
        let mut whole = ReadPieces::new();
        let mut at = read.start;
        while !into.is_empty() {
            let in_chunk = Sectors(at.0 % chunk.0);
            let longest = self.io.partial_max().0.min((chunk - in_chunk).0);
            let length = Sectors(longest.min((into.bytes() / SECTOR_BYTES) as u64));
            let data = (at.0 / chunk.0) as usize;
            let pieces = into.split_to(length.len_bytes());
            whole.append(self.io.recover_interval(&map, data, in_chunk, pieces, read.avoid, Vec::new()).await?);
            at += length;
        }
        assert_eq!(whole.length(), wanted);
        Ok(whole)
    }
}
