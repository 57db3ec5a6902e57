//! Trims and write-zeroes that wait, and the few tasks that run them.
//! Owns: [`Clears`] of one export, [`Clearing`] of one connection: who is next, how many run.
//! Not here: the length and the effect of a piece (`pieces`), replies (`connection`).
//! Invariant: a request that waits costs its own bytes and no task. While one could run, a task takes it.
//!
//! ```text
//!   reader -> its connection's lane: | zeroes | zeroes | ...      64 bytes each, as many as it may have in flight
//!                                        |
//!   export's lane: | connection | connection | ...   in turn -> task: one piece -> to the front of its connection's
//! ```
//! Requests of up to 64 KiB have a lane of their own, so that they wait for no long ones.

use crate::connection::Connection;
use crate::machine::{Machine, Transport};
use crate::pieces::{SHORT_MAX, ZEROES_MAX, clear_piece};
use crate::request::Clear;
use crate::server::Server;
use crate::shares::Hold;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use uraid_block::local::{Permit, yield_now};
use uraid_block::{Device, ErrorKind, Fua, Range, Tick};
use uraid_nbd::{Command, CommandFlags, Request};

/// Tasks of the lanes of an export, short and long: a read that comes while no other client reads or writes waits for no
/// more than 32 x 64 KiB and 8 x 4 MiB of zeroes, 340 ms at 100 MB/s, whatever the number of clients that zero. A task
/// costs about 4.3 KiB, 172 KiB for both lanes (`uraid::memory` counts them).
const TASKS_MAX: [usize; 2] = [32, 8];
/// How many of them may be of one connection.
const TASKS_OF_ONE_MAX: usize = 16;
/// Bytes that one connection may have in flight in a lane. A request counts with its length, at most [`ZEROES_MAX`]: two
/// long requests run at a time, so that a device does not idle between the pieces of one.
const BYTES_OF_ONE_MAX: usize = 2 * ZEROES_MAX.len_bytes();
/// A queue grows by this many requests.
const ROOM_STEP: usize = 16;

/// Short requests and long ones wait apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Short,
    Long,
}

const LANES: [Lane; 2] = [Lane::Short, Lane::Long];

/// A trim or write-zeroes, as far as it is not done.
pub(crate) struct ClearRequest {
    pub(crate) request: Request,
    pub(crate) rest: Range,
    /// Of the requests that its connection may have in flight.
    pub(crate) permit: Permit,
}

/// The most bytes of memory that one connection's waiting trims and write-zeroes take. With 128 requests in flight 158 of
/// 64 bytes, 10 KiB: each of the two queues has room for up to 15 more than it holds.
pub(crate) fn queue_bytes(requests_max: usize) -> usize {
    (requests_max + LANES.len() * (ROOM_STEP - 1)) * size_of::<ClearRequest>()
}

const _: () = assert!(size_of::<ClearRequest>() == 64, "docs/operating/serving.md says how much memory they take");

impl ClearRequest {
    /// By the length of the whole request, however little is left.
    pub(crate) fn lane(&self) -> Lane {
        if self.request.length <= SHORT_MAX.bytes() { Lane::Short } else { Lane::Long }
    }

    fn what(&self) -> Clear {
        if self.request.command == Command::Trim { Clear::Trim } else { Clear::Zeroes }
    }

    pub(crate) fn fua(&self) -> Fua {
        if self.request.flags.contains(CommandFlags::FUA) { Fua::Yes } else { Fua::No }
    }

    /// What it counts for in [`BYTES_OF_ONE_MAX`].
    fn cost(&self) -> usize {
        self.request.length.min(ZEROES_MAX.bytes()) as usize
    }
}

/// One connection's trims and write-zeroes, and its reads and writes beside those of others.
#[derive(Default)]
pub(crate) struct Clearing {
    lines: [Line; 2],
    /// Reads and writes of this connection that were answered.
    pub(crate) transfers: Cell<u64>,
    /// Those that the device has.
    pub(crate) transfers_running: Cell<usize>,
    /// The reads and writes of all others at the last call of `is_contended`, and when that found more of them.
    pub(crate) seen_of_others: Cell<u64>,
    pub(crate) others_seen_at: Cell<Option<Tick>>,
}

/// The requests of one connection in one lane.
#[derive(Default)]
struct Line {
    waiting: RefCell<VecDeque<ClearRequest>>,
    running: Cell<usize>,
    bytes: Cell<usize>,
    /// The connection is in the export's lane.
    is_in_turn: Cell<bool>,
}

impl Line {
    fn push_back(&self, request: ClearRequest) {
        self.with_room().push_back(request);
    }

    fn push_front(&self, request: ClearRequest) {
        self.with_room().push_front(request);
    }

    /// Room for one more. A queue grows by steps, not to twice its size: thousands of connections may have a full one.
    fn with_room(&self) -> RefMut<'_, VecDeque<ClearRequest>> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() == waiting.capacity() {
            waiting.reserve_exact(ROOM_STEP);
        }
        waiting
    }

    /// Whether the first one that waits may run beside the connection's others.
    fn has_next(&self) -> bool {
        let bytes = self.waiting.borrow().front().map(|first| first.cost() + self.bytes.get());
        bytes.is_some_and(|bytes| bytes <= BYTES_OF_ONE_MAX) && self.running.get() < TASKS_OF_ONE_MAX
    }

    fn take(&self) -> Option<ClearRequest> {
        let request = self.waiting.borrow_mut().pop_front()?;
        self.running.set(self.running.get() + 1);
        self.bytes.set(self.bytes.get() + request.cost());
        Some(request)
    }

    /// A piece of it has ended.
    fn ran(&self, request: &ClearRequest) {
        self.running.set(self.running.get() - 1);
        self.bytes.set(self.bytes.get() - request.cost());
    }

    /// An idle client keeps no memory.
    fn tidy(&self) {
        if self.running.get() == 0 && self.waiting.borrow().is_empty() {
            self.waiting.take();
        }
    }
}

/// One lane of an export: the connections of which a request may run.
struct Turns<M: Machine, T: Transport, D: Device + 'static> {
    connections: RefCell<VecDeque<Rc<Connection<M, T, D>>>>,
    tasks: Cell<usize>,
}

/// A request whose turn it is, and its connection.
type Next<M, T, D> = (Rc<Connection<M, T, D>>, ClearRequest);

/// The waiting trims and write-zeroes of one export.
pub(crate) struct Clears<M: Machine, T: Transport, D: Device + 'static>([Turns<M, T, D>; 2]);

impl<M: Machine, T: Transport, D: Device + 'static> Default for Clears<M, T, D> {
    fn default() -> Clears<M, T, D> {
        Clears(LANES.map(|_| Turns { connections: RefCell::default(), tasks: Cell::new(0) }))
    }
}

impl<M: Machine, T: Transport, D: Device + 'static> Clears<M, T, D> {
    /// Puts the connection into the lane, if a request of it may run and it is not there already.
    fn line_up(&self, connection: &Rc<Connection<M, T, D>>, lane: Lane) {
        let line = &connection.clearing.lines[lane as usize];
        if line.has_next() && !line.is_in_turn.replace(true) {
            self.0[lane as usize].connections.borrow_mut().push_back(connection.clone());
        }
    }

    /// The request whose turn it is.
    fn take(&self, lane: Lane) -> Option<Next<M, T, D>> {
        let connection = self.0[lane as usize].connections.borrow_mut().pop_front()?;
        let line = &connection.clearing.lines[lane as usize];
        line.is_in_turn.set(false);
        let request = line.take().expect("a connection without a request has left the lane");
        self.line_up(&connection, lane);
        Some((connection, request))
    }
}

impl<M: Machine, T: Transport, D: Device + 'static> Server<M, T, D> {
    fn clears_of(&self, connection: &Connection<M, T, D>) -> &Clears<M, T, D> {
        &self.clears[connection.agreement.get().export]
    }

    /// Begins a trim or write-zeroes, or lets it wait. Among the workers' jobs, hundreds that wait for their turn would hold
    /// up the reads behind them.
    pub(crate) fn put_clear(self: &Rc<Self>, connection: &Rc<Connection<M, T, D>>, request: ClearRequest) {
        let lane = request.lane();
        connection.clearing.lines[lane as usize].push_back(request);
        self.clears_of(connection).line_up(connection, lane);
        self.start_clears(connection.agreement.get().export, lane);
    }

    /// A read or write of the connection goes to the device.
    pub(crate) fn transfer_begins(&self, connection: &Connection<M, T, D>) {
        connection.clearing.transfers_running.update(|count| count + 1);
        self.transfers_running.update(|count| count + 1);
    }

    /// It was answered.
    pub(crate) fn transfer_ends(&self, connection: &Connection<M, T, D>) {
        connection.clearing.transfers.update(|count| count + 1);
        connection.clearing.transfers_running.update(|count| count - 1);
        self.transfers_running.update(|count| count - 1);
    }

    /// Whether the device has reads or writes of other connections.
    pub(crate) fn has_transfers_of_others(&self, connection: &Connection<M, T, D>) -> bool {
        self.transfers_running.get() > connection.clearing.transfers_running.get()
    }

    /// Starts a task for each request that may run, as far as there may be tasks.
    fn start_clears(self: &Rc<Self>, export: usize, lane: Lane) {
        let (clears, tasks) = (&self.clears[export], &self.clears[export].0[lane as usize].tasks);
        while tasks.get() < TASKS_MAX[lane as usize] {
            let Some(first) = clears.take(lane) else { return };
            tasks.set(tasks.get() + 1);
            self.machine.spawn(self.clone().run_clears(export, lane, first));
        }
    }

    /// A task: runs one piece after the other, of the connections in turn, until none may run.
    async fn run_clears(self: Rc<Self>, export: usize, lane: Lane, first: Next<M, T, D>) {
        let mut next = Some(first);
        while let Some((connection, mut request)) = next {
            let (result, pause) = clear_piece(&connection, request.what(), &mut request).await;
            let line = &connection.clearing.lines[lane as usize];
            line.ran(&request);
            match result {
                Ok(None) => line.push_front(request),
                Ok(Some(())) => connection.finish(&request.request, Ok(()), Hold::new(request.permit)),
                Err(error) => connection.finish(&request.request, Err(error), Hold::new(request.permit)),
            }
            line.tidy();
            self.clears[export].line_up(&connection, lane);
            drop(connection);
            if let Some(pause) = pause {
                pause.pass(&self.machine).await;
            }
            // If the device answers at once, let other tasks of the shard run.
            yield_now().await;
            next = self.clears[export].take(lane);
            self.start_clears(export, lane);
        }
        let tasks = &self.clears[export].0[lane as usize].tasks;
        tasks.set(tasks.get() - 1);
    }

    /// Ends the waiting requests of a connection that is given up; those that run end at their next piece.
    pub(crate) fn drop_clears(&self, connection: &Connection<M, T, D>) {
        for lane in LANES {
            let line = &connection.clearing.lines[lane as usize];
            for request in line.waiting.take() {
                connection.finish(&request.request, Err(ErrorKind::Stopping.into()), Hold::new(request.permit));
            }
            if line.is_in_turn.replace(false) {
                let turns = &self.clears_of(connection).0[lane as usize];
                turns.connections.borrow_mut().retain(|other| !std::ptr::eq(Rc::as_ptr(other), connection));
            }
        }
    }
}
