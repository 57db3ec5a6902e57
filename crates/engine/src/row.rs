//! Rows: the unit of parity work, each with one shard that owns it.
//! Owns: who works on a row now, writes that wait for it and are taken along, reads of lost members. Not here: how a
//! row is written or recovered (`row_plan`, `row_io`).
//! Invariant: one holder a row; a request never holds two rows; the holder looks member states up after it got the row.

use crate::array::Array;
use crate::mail::{Call, RowRead, RowWrite};
use crate::mark::{self, Mark};
use crate::row_plan::Overlay;
use crate::steward::Recorded;
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Notify, Permit, Semaphore, join_all};
use uraid_block::{ArrayRange, Fua, IoError, ReadPieces, SECTOR_BYTES, Sectors, ShardIndex, WritePieces};
use uraid_layout::Row;

/// Rows of one request that are worked on at the same time.
const ROWS_AT_ONCE: usize = 64;
/// Writes of one row that are taken together, at most: a stripe of 4 MiB in writes of 4 KiB.
const ABSORBED_MAX: usize = 1024;
/// Zeroes are written in requests of at most this many sectors (4 MiB).
const ZEROES_MAX: u64 = 8192;

type Outcome = Rc<Cell<Option<Result<Recorded, IoError>>>>;

struct Waiting {
    write: RowWrite,
    outcome: Outcome,
}

struct RowState {
    holder: Rc<Semaphore>,
    /// Tasks that hold the row or wait for it.
    users: usize,
    waiting: Vec<Waiting>,
    /// Somebody came. Told by `Rows::visit`: a write lies here before whoever was woken looks.
    changed: Rc<Notify>,
}

/// The rows of this shard that somebody works on.
pub(crate) struct Rows {
    table: RefCell<BTreeMap<Row, RowState>>,
    /// Blocks of the row arena: an interval takes all it can need before its first I/O.
    pub(crate) blocks: Rc<Semaphore>,
    /// Rows that a write left half done when it froze the array: nothing can be computed from them any more.
    torn: RefCell<BTreeSet<Row>>,
}

/// A task's interest in a row; the table forgets the row with the last one.
pub(crate) struct Visit<'a> {
    rows: &'a Rows,
    row: Row,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut table = self.rows.table.borrow_mut();
        let state = table.get_mut(&self.row).expect("a visited row is in the table");
        state.users -= 1;
        if state.users == 0 {
            table.remove(&self.row);
        }
    }
}

impl Rows {
    pub(crate) fn new(blocks: usize) -> Rows {
        Rows { table: RefCell::default(), blocks: Semaphore::new(blocks), torn: RefCell::default() }
    }

    fn visit(&self, row: Row) -> Visit<'_> {
        let mut table = self.table.borrow_mut();
        let new = || RowState { holder: Semaphore::new(1), users: 0, waiting: Vec::new(), changed: Rc::default() };
        let state = table.entry(row).or_insert_with(new);
        state.users += 1;
        state.changed.notify_all();
        Visit { rows: self, row }
    }

    pub(crate) fn mark_torn(&self, row: Row) {
        self.torn.borrow_mut().insert(row);
    }

    pub(crate) fn is_torn(&self, row: Row) -> bool {
        self.torn.borrow().contains(&row)
    }
}

impl Visit<'_> {
    async fn hold(&self) -> Permit {
        let holder = self.rows.table.borrow()[&self.row].holder.clone();
        holder.acquire(1).await
    }

    fn wait_in_row(&self, write: RowWrite) -> Outcome {
        let outcome = Outcome::default();
        let mut table = self.rows.table.borrow_mut();
        let state = table.get_mut(&self.row).expect("a visited row is in the table");
        state.waiting.push(Waiting { write, outcome: outcome.clone() });
        outcome
    }

    fn with_state<T>(&self, look: impl FnOnce(&RowState) -> T) -> T {
        look(self.rows.table.borrow().get(&self.row).expect("a visited row is in the table"))
    }

    /// Whether there is no use in waiting for more: the row's end has come, somebody wants his bytes on stable storage,
    /// somebody wants to read, or there are as many as are taken together.
    pub(crate) fn is_done_gathering(&self, stripe: Sectors) -> bool {
        self.with_state(|state| {
            let is_last = |write: &RowWrite| write.fua == Fua::Yes || write.start + write.from.length() == stripe;
            let is_full = state.users > state.waiting.len() || state.waiting.len() >= ABSORBED_MAX;
            is_full || state.waiting.iter().any(|waiting| is_last(&waiting.write))
        })
    }

    /// The longest that one of the waiting writes wants to wait for another.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.with_state(|state| state.waiting.iter().filter_map(|waiting| waiting.write.patience).max())
    }

    /// Waits until `is_done_gathering`.
    pub(crate) async fn gathered(&self, stripe: Sectors) {
        let changed = self.with_state(|state| state.changed.clone());
        changed.wait_for(|| self.is_done_gathering(stripe).then_some(())).await;
    }

    fn take_waiting(&self) -> Vec<Waiting> {
        let mut table = self.rows.table.borrow_mut();
        let state = table.get_mut(&self.row).expect("a visited row is in the table");
        let count = state.waiting.len().min(ABSORBED_MAX);
        state.waiting.drain(..count).collect()
    }
}

impl<W: World> Array<W> {
    /// The shard that works on a row.
    pub(crate) fn owner_of(&self, row: Row) -> ShardIndex {
        ShardIndex((row.0 % u64::from(self.world.shards())) as u16)
    }

    /// Writes a range of a parity level: cut by row, each part to its owner.
    pub(crate) async fn write_rows(
        &self,
        range: ArrayRange,
        from: &WritePieces,
        fua: Fua,
        patience: Option<Duration>,
    ) -> Result<Recorded, IoError> {
        let mut parts = self.shape.layout.rows(range);
        let mut result = None;
        loop {
            let some = parts.by_ref().take(ROWS_AT_ONCE).map(|part| {
                let from = from.slice(part.offset.len_bytes(), part.length.len_bytes());
                self.ask_owner_to_write(RowWrite { row: part.row, start: part.start, from, fua, patience })
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

    async fn ask_owner_to_write(&self, write: RowWrite) -> Result<Recorded, IoError> {
        let owner = self.owner_of(write.row);
        if owner == self.world.shard() {
            return self.write_row_owned(write).await;
        }
        self.call(owner, Call::WriteRow(write)).await.settled()
    }

    /// Zeroes on a parity level are data like any other.
    pub(crate) async fn zero_rows(&self, range: ArrayRange) -> Result<Recorded, IoError> {
        let block = self.take_buffers(Pool::Request, Sectors(ZEROES_MAX.min(range.length.0).min(128))).await;
        let mut block = block;
        block.fill(0);
        let block = block.freeze();
        let mut at = range.start;
        let mut result = None;
        while at < range.end() {
            let length = Sectors(ZEROES_MAX.min((range.end() - at).0));
            let mut zeroes = WritePieces::new();
            while zeroes.bytes() < length.len_bytes() {
                let bytes = block.bytes().min(length.len_bytes() - zeroes.bytes());
                zeroes.append(block.slice(0, bytes));
            }
            result = Some(self.write_rows(ArrayRange::new(at, length), &zeroes, Fua::No, None).await?);
            at = at + length;
        }
        Ok(result.expect("the range is not empty"))
    }

    /// Writes into a row that this shard owns. Whoever gets the row takes every write along that waits for it: a
    /// stream of small writes becomes one row write, and answers all of them.
    pub(crate) async fn write_row_owned(&self, write: RowWrite) -> Result<Recorded, IoError> {
        let row = write.row;
        assert_eq!(self.owner_of(row), self.world.shard());
        let visit = self.rows.visit(row);
        let outcome = visit.wait_in_row(write);
        let _holder = visit.hold().await;
        if let Some(done) = outcome.take() {
            return done;
        }
        self.gather(&visit).await;
        let batch = visit.take_waiting();
        if batch.len() > 1 {
            mark::hit(Mark::RowShared);
        }
        self.count(|counters| counters.writes_absorbed += batch.len() as u64 - 1);
        let mut overlay = Overlay::default();
        let mut fua = Fua::No;
        for waiting in &batch {
            overlay.add(self.shape.layout.chunk(), waiting.write.start, &waiting.write.from);
            if waiting.write.fua == Fua::Yes {
                fua = Fua::Yes;
            }
        }
        let result = self.write_overlay(row, &overlay, fua).await;
        for waiting in batch {
            waiting.outcome.set(Some(result.clone()));
        }
        outcome.take().expect("the holder's own write is the first of its batch")
    }

    async fn write_overlay(&self, row: Row, overlay: &Overlay, fua: Fua) -> Result<Recorded, IoError> {
        let map = self.shape.layout.row(row);
        let intervals = overlay.intervals(map.data.len(), self.partial_max(), self.full_max());
        let outcomes = join_all(intervals.into_iter().map(|interval| self.write_interval(&map, interval, fua))).await;
        let mut result = None;
        for outcome in outcomes {
            match outcome {
                Ok(recorded) => result = Some(recorded),
                Err(error) => return Err(error),
            }
        }
        Ok(result.expect("a write has an interval"))
    }

    /// Reads from a row that this shard owns what some member cannot give.
    pub(crate) async fn read_row_owned(&self, read: RowRead) -> Result<ReadPieces, IoError> {
        assert_eq!(self.owner_of(read.row), self.world.shard());
        let visit = self.rows.visit(read.row);
        let _holder = visit.hold().await;
        let map = self.shape.layout.row(read.row);
        let chunk = self.shape.layout.chunk();
        let mut into = read.into;
        let mut whole = ReadPieces::new();
        let mut at = read.start;
        while !into.is_empty() {
            let in_chunk = Sectors(at.0 % chunk.0);
            let longest = self.partial_max().0.min((chunk - in_chunk).0);
            let length = Sectors(longest.min((into.bytes() / SECTOR_BYTES) as u64));
            let data = (at.0 / chunk.0) as usize;
            let pieces = into.split_to(length.len_bytes());
            whole.append(self.recover_interval(&map, data, in_chunk, pieces, read.avoid).await?);
            at += length;
        }
        Ok(whole)
    }
}
