//! The rows of one shard that are in use, and the writes that wait in them.
//! Owns: [`RowTable`], [`Visit`], the writes that a row's holder performs for others. Not here: holding a row (`row`,
//! `range_lock`), how long it is held for writes that are due (`gather`).
//! Invariant: a row is in the table while a task holds it or waits for it.

use crate::shard::mail::RowWrite;
use crate::state::recorded::Recorded;
use smallvec::{SmallVec, smallvec};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::Notify;
use uraid_block::{Fua, IoError, Sectors};
use uraid_layout::Row;

/// The most writes of one row that are written together: a stripe of 4 MiB in writes of 4 KiB.
const ABSORBED_MAX: usize = 1024;

pub(crate) type Outcome = Rc<Cell<Option<Result<Recorded, IoError>>>>;

pub(crate) struct Waiting {
    pub(crate) write: RowWrite,
    /// Where the row's holder stores this write's outcome; `None` for the write of the holder itself.
    pub(crate) outcome: Option<Outcome>,
}

/// The state of a row in use. It is reused for another row when its last user leaves.
struct RowState {
    row: Cell<Row>,
    /// Tasks that hold the row or wait for it.
    users: Cell<usize>,
    waiting: RefCell<Vec<Waiting>>,
    /// A task arrived. `RowTable::visit` notifies this. The new task then queues its write before any woken task runs.
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
const _: () = assert!(LISTS.is_power_of_two(), "as `hash_index` needs it");

/// The rows of this shard that are in use.
pub(crate) struct RowTable {
    lists: [RefCell<Vec<Rc<RowState>>>; LISTS],
    /// States of rows that are no longer in use: at most the number that was in use at once.
    spare: RefCell<Vec<Rc<RowState>>>,
}

/// A task's use of a row. The table removes the row when its last use ends.
pub(crate) struct Visit<'a> {
    table: &'a RowTable,
    state: Rc<RowState>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        assert!(self.state.users.get() > 0, "a visit ends once");
        let users = self.state.users.get() - 1;
        self.state.users.set(users);
        if users == 0 {
            // Tasks that were dropped before their turn have left their writes here.
            self.state.waiting.borrow_mut().clear();
            let mut list = self.table.list(self.state.row.get()).borrow_mut();
            let at =
                list.iter().position(|state| Rc::ptr_eq(state, &self.state)).expect("a visited row is in its list");
            self.table.spare.borrow_mut().push(list.swap_remove(at));
        }
    }
}

impl RowTable {
    pub(crate) fn new() -> RowTable {
        RowTable { lists: std::array::from_fn(|_| RefCell::default()), spare: RefCell::default() }
    }

    fn list(&self, row: Row) -> &RefCell<Vec<Rc<RowState>>> {
        &self.lists[crate::shard::stream_ends::hash_index(row.0, LISTS)]
    }

    pub(crate) fn visit(&self, row: Row) -> Visit<'_> {
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
        Visit { table: self, state }
    }
}

impl Visit<'_> {
    pub(crate) fn wait_in_row(&self, write: RowWrite) -> Option<Outcome> {
        // Alone here: this task will hold the row before another task can arrive and write on its behalf.
        assert_eq!(write.row, self.state.row.get(), "a write waits in its own row");
        if self.state.users.get() == 1 {
            assert!(self.state.waiting.borrow().is_empty(), "a write waits while its task visits the row");
        }
        let outcome = (self.state.users.get() > 1).then(Outcome::default);
        self.state.waiting.borrow_mut().push(Waiting { write, outcome: outcome.clone() });
        outcome
    }

    /// Whether another task holds the row or waits for it.
    pub(crate) fn is_shared(&self) -> bool {
        self.state.users.get() > 1
    }

    /// How much of the row waits to be written.
    pub(crate) fn waiting_length(&self) -> Sectors {
        self.state.waiting.borrow().iter().fold(Sectors::ZERO, |sum, waiting| sum + waiting.write.from.length())
    }

    /// The length of the write that came first.
    pub(crate) fn first_waiting(&self) -> Sectors {
        self.state.waiting.borrow().first().map_or(Sectors::ZERO, |waiting| waiting.write.from.length())
    }

    pub(crate) fn longest_waiting(&self) -> Sectors {
        let lengths = self.state.waiting.borrow().iter().map(|waiting| waiting.write.from.length()).max();
        lengths.unwrap_or(Sectors::ZERO)
    }

    /// Whether a waiting write has FUA, a reader is waiting, or the batch is full.
    pub(crate) fn must_not_wait(&self) -> bool {
        let waiting = self.state.waiting.borrow();
        let is_full = self.state.users.get() > waiting.len() || waiting.len() >= ABSORBED_MAX;
        is_full || waiting.iter().any(|waiting| waiting.write.fua == Fua::Yes)
    }

    /// Whether to stop waiting for more writes: they reach the row's end, a waiting write has FUA, a reader is waiting,
    /// or the batch is full.
    pub(crate) fn is_done_gathering(&self, stripe: Sectors) -> bool {
        let is_last = |waiting: &Waiting| waiting.write.start + waiting.write.from.length() == stripe;
        self.must_not_wait() || self.state.waiting.borrow().iter().any(is_last)
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

    pub(crate) fn take_waiting(&self) -> SmallVec<[Waiting; 1]> {
        let mut waiting = self.state.waiting.borrow_mut();
        // Usually one write waits. It is moved without the iterator.
        match waiting.pop() {
            Some(only) if waiting.is_empty() => smallvec![only],
            last => {
                waiting.extend(last);
                let count = waiting.len().min(ABSORBED_MAX);
                waiting.drain(..count).collect()
            }
        }
    }
}
