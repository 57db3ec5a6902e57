//! Rows: the unit of parity work, each with one shard that owns it.
//! Owns: the holder of each row, the writes that wait for it and are written by the holder, reads of lost members.
//! Not here: how a row is written or recovered (`row_plan`, `row_io`).
//! Invariant: a row has one holder. A request never holds two rows. The holder looks member states up after it got the
//! row.

use crate::array::{Array, Shape};
use crate::buffers;
use crate::mail::{Call, RowRead, RowWrite};
use crate::mark::{self, Mark};
use crate::recorded::Recorded;
use crate::row_io::FailedPart;
use crate::row_plan::{Interval, Overlay};
use crate::sabotage::{self, Sabotage};
use crate::{Pool, World};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Notify, Semaphore, join_all, join_each};
use uraid_block::{ArrayRange, Fua, IoError, ReadPieces, SECTOR_BYTES, Sectors, ShardIndex, SlotSet, WritePieces};
use uraid_layout::{Layout, ParityLayout, Row, RowMap, RowPart};

const ROWS_AT_ONCE: usize = 64;
/// The most writes of one row that are written together: a stripe of 4 MiB in writes of 4 KiB.
const ABSORBED_MAX: usize = 1024;
/// Zeroes are written in requests of at most this many sectors (4 MiB).
const ZEROES_MAX: u64 = 8192;

type Outcome = Rc<Cell<Option<Result<Recorded, IoError>>>>;

struct Waiting {
    write: RowWrite,
    /// Where the row's holder stores this write's outcome; `None` for the write of the holder itself.
    outcome: Option<Outcome>,
}

/// One write of a batch, while the batch is written.
struct Part {
    /// From the start of the row's data.
    start: Sectors,
    length: Sectors,
    outcome: Option<Outcome>,
}

/// The state of a row in use. It is reused for another row when its last user leaves.
struct RowState {
    row: Cell<Row>,
    /// Tasks that hold the row or wait for it.
    users: Cell<usize>,
    waiting: RefCell<Vec<Waiting>>,
    /// A task arrived. `Rows::visit` notifies it, after which the task queues its write before any woken task runs.
    changed: Notify,
}

impl RowState {
    fn new() -> Rc<RowState> {
        Rc::new(RowState {
            row: Cell::default(),
            users: Cell::new(0),
            waiting: RefCell::default(),
            changed: Notify::new(),
        })
    }
}

/// The number of lists in the table of rows, indexed by a hash of the row number.
const LISTS: usize = 64;

/// The rows of this shard that are in use.
pub(crate) struct Rows {
    table: [RefCell<Vec<Rc<RowState>>>; LISTS],
    /// States of rows that are no longer in use: at most the number that was in use at once.
    spare: RefCell<Vec<Rc<RowState>>>,
    /// Permits for blocks of the row arena: an interval takes all it can need before its first I/O.
    pub(crate) blocks: Rc<Semaphore>,
    /// The same for reads of lost bytes: they do not wait for writes, which a member that does not answer may keep.
    pub(crate) blocks_to_read: Rc<Semaphore>,
}

/// A task's use of a row. The table removes the row with the last one.
pub(crate) struct Visit<'a> {
    rows: &'a Rows,
    state: Rc<RowState>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let users = self.state.users.get() - 1;
        self.state.users.set(users);
        if users == 0 {
            // Tasks that were dropped before their turn have left their writes here.
            self.state.waiting.borrow_mut().clear();
            let mut list = self.rows.list(self.state.row.get()).borrow_mut();
            let at =
                list.iter().position(|state| Rc::ptr_eq(state, &self.state)).expect("a visited row is in its list");
            self.rows.spare.borrow_mut().push(list.swap_remove(at));
        }
    }
}

impl Rows {
    /// `blocks` of the row arena, of which an interval takes at most `interval`. A quarter is for reads, if there are
    /// enough for two intervals.
    pub(crate) fn new(blocks: usize, interval: usize) -> Rows {
        assert!(blocks >= interval, "the row arena holds one row");
        let to_read = (blocks / 4).max(interval);
        let (blocks, blocks_to_read) = if blocks - to_read >= interval {
            (Semaphore::new(blocks - to_read), Semaphore::new(to_read))
        } else {
            let one = Semaphore::new(blocks);
            (one.clone(), one)
        };
        Rows { table: std::array::from_fn(|_| RefCell::default()), spare: RefCell::default(), blocks, blocks_to_read }
    }

    fn list(&self, row: Row) -> &RefCell<Vec<Rc<RowState>>> {
        &self.table[crate::trail::spread(row.0, LISTS)]
    }

    fn visit(&self, row: Row) -> Visit<'_> {
        let mut list = self.list(row).borrow_mut();
        let found = list.iter().find(|state| state.row.get() == row).cloned();
        let state = found.unwrap_or_else(|| {
            let state = self.spare.borrow_mut().pop().unwrap_or_else(RowState::new);
            assert!(state.users.get() == 0 && state.waiting.borrow().is_empty());
            state.row.set(row);
            list.push(state.clone());
            state
        });
        state.users.set(state.users.get() + 1);
        state.changed.notify_all();
        Visit { rows: self, state }
    }
}

impl Visit<'_> {
    fn wait_in_row(&self, write: RowWrite) -> Option<Outcome> {
        // Alone here: this task will hold the row before another task can arrive and write on its behalf.
        let outcome = (self.state.users.get() > 1).then(Outcome::default);
        self.state.waiting.borrow_mut().push(Waiting { write, outcome: outcome.clone() });
        outcome
    }

    /// Whether to stop waiting for more writes: they reach the row's end, a waiting write has FUA, a reader is waiting,
    /// or the batch is full.
    pub(crate) fn is_done_gathering(&self, stripe: Sectors) -> bool {
        let waiting = self.state.waiting.borrow();
        let is_last = |write: &RowWrite| write.fua == Fua::Yes || write.start + write.from.length() == stripe;
        let is_full = self.state.users.get() > waiting.len() || waiting.len() >= ABSORBED_MAX;
        is_full || waiting.iter().any(|waiting| is_last(&waiting.write))
    }

    /// The longest time that one of the waiting writes wants to wait for the next one.
    pub(crate) fn hold_time(&self) -> Option<Duration> {
        self.state.waiting.borrow().iter().filter_map(|waiting| waiting.write.hold_time).max()
    }

    /// Waits until one more task arrives.
    pub(crate) async fn another_arrives(&self) {
        let users = self.state.users.get();
        self.state.changed.wait_for(|| (self.state.users.get() > users).then_some(())).await;
    }

    fn take_waiting(&self) -> SmallVec<[Waiting; 1]> {
        let mut waiting = self.state.waiting.borrow_mut();
        let count = waiting.len().min(ABSORBED_MAX);
        waiting.drain(..count).collect()
    }
}

impl Shape {
    /// For the paths of rows: panics for levels without parity.
    pub(crate) fn parity(&self) -> &ParityLayout {
        match &self.layout {
            Layout::Parity(layout) => layout,
            Layout::Copies(_) => panic!("only parity levels have rows"),
        }
    }
}

impl<W: World> Array<W> {
    /// The shard that works on a row.
    pub(crate) fn owner_of(&self, row: Row) -> ShardIndex {
        ShardIndex((row.0 % u64::from(self.world.shards())) as u16)
    }

    /// The row that holds all of a range, if this shard owns it: the fast path for small writes.
    pub(crate) fn only_own_row(&self, range: ArrayRange) -> Option<RowPart> {
        let first = self.shape.parity().rows(range).next();
        first.filter(|part| part.length == range.length && self.owner_of(part.row) == self.world.shard())
    }

    /// Writes a range of a parity level, cut by rows: each part goes to its row's owner.
    pub(crate) async fn write_rows(
        &self,
        range: ArrayRange,
        from: WritePieces,
        fua: Fua,
        hold_time: Option<Duration>,
    ) -> Result<Recorded, IoError> {
        let mut parts = self.shape.parity().rows(range);
        let mut result = None;
        loop {
            let some = parts.by_ref().take(ROWS_AT_ONCE).map(|part| {
                let from = from.slice(part.offset.len_bytes(), part.length.len_bytes());
                self.ask_owner_to_write(RowWrite { row: part.row, start: part.start, from, fua, hold_time })
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
    pub(crate) async fn flush_missing_data(
        &self,
        range: ArrayRange,
        usable: SlotSet,
        recorded: Recorded,
    ) -> Result<Recorded, IoError> {
        let lacks_data =
            |part: RowPart| self.shape.parity().row(part.row).data.iter().any(|slot| !usable.contains(*slot));
        if usable.count() == usize::from(self.shape.layout.slots()) || !self.shape.parity().rows(range).any(lacks_data)
        {
            return Ok(recorded);
        }
        if sabotage::is(Sabotage::SkipRowFlush) {
            return Ok(recorded);
        }
        mark::hit(Mark::FuaFlushed);
        self.flush_members().await
    }

    async fn ask_owner_to_write(&self, write: RowWrite) -> Result<Recorded, IoError> {
        let owner = self.owner_of(write.row);
        if owner == self.world.shard() {
            return self.write_row_owned(write).await;
        }
        self.calls.call(owner, Call::WriteRow(write)).await.settled()
    }

    /// Zeroes on a parity level are written like any other data.
    pub(crate) async fn zero_rows(&self, range: ArrayRange) -> Result<Recorded, IoError> {
        let block = buffers::take(&self.world, Pool::Request, Sectors(ZEROES_MAX.min(range.length.0).min(128))).await;
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
            result = Some(self.write_rows(ArrayRange::new(at, length), zeroes, Fua::No, None).await?);
            at = at + length;
        }
        Ok(result.expect("the range is not empty"))
    }

    /// Writes into a row that this shard owns. The task that gets the row writes all waiting writes of it together, and
    /// answers them: a stream of small writes becomes one row write.
    pub(crate) async fn write_row_owned(&self, write: RowWrite) -> Result<Recorded, IoError> {
        let row = write.row;
        assert_eq!(self.owner_of(row), self.world.shard());
        let visit = self.rows.visit(row);
        let outcome = visit.wait_in_row(write);
        let _holder = self.locks.guard(row.0..row.0 + 1).await;
        if let Some(done) = outcome.as_ref().and_then(|outcome| outcome.take()) {
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
        let mut writes: SmallVec<[Part; 1]> = SmallVec::new();
        for Waiting { write, outcome } in batch {
            if write.fua == Fua::Yes {
                fua = Fua::Yes;
            }
            writes.push(Part { start: write.start, length: write.from.length(), outcome });
            overlay.add(self.shape.layout.chunk(), write.start, write.from);
        }
        let map = self.shape.parity().row(row);
        let mut intervals = overlay.into_intervals(map.data.len(), self.partial_max(), self.full_max());
        let result = if intervals.len() == 1 {
            let only = intervals.pop().expect("there is one");
            pin!(self.write_interval(&map, only, fua)).await
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
                let first = Box::pin(self.answer_parts(&map, &writes, &failed)).await;
                // A write without an outcome found no other task, so it is the first of its batch.
                outcome.map_or(first, |own| own.take().expect("the holder's own write is in its batch"))
            }
        }
    }

    /// Answers each write of a batch of which some parts failed: an error only for writes that touch a failed part.
    /// Returns the outcome of the first one.
    async fn answer_parts(&self, map: &RowMap, writes: &[Part], failed: &[FailedPart]) -> Result<Recorded, IoError> {
        let chunk = self.shape.layout.chunk();
        // The failures of all written parts are recorded. This returns the proof, or why the array froze since.
        let recorded = self.settle(&self.view(), &[]).await;
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
        let mut recorded = None;
        let mut failed = Vec::new();
        for outcome in join_each(intervals.into_iter().map(|interval| self.write_interval(map, interval, fua))).await {
            match outcome {
                Ok(of_interval) => recorded = Some(of_interval),
                Err(of_interval) => failed.extend(of_interval),
            }
        }
        if failed.is_empty() { Ok(recorded.expect("a write has an interval")) } else { Err(failed) }
    }

    /// Computes bytes of a row that this shard owns, which a member cannot supply.
    pub(crate) async fn read_row_owned(&self, read: RowRead) -> Result<ReadPieces, IoError> {
        assert_eq!(self.owner_of(read.row), self.world.shard());
        // A writer that gathers sees that a reader waits.
        let _visit = self.rows.visit(read.row);
        let _holder = self.locks.guard(read.row.0..read.row.0 + 1).await;
        let map = self.shape.parity().row(read.row);
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
