//! Trims and write-zeroes that wait, and which of them is next.
//! Owns: [`ClearQueue`] of one export, [`ClearRequests`] of one connection, how many run at a time.
//! Not here: the tasks that run them (`clears`), the length and the effect of a piece (`clear_pieces`).
//! Invariant: a waiting request costs its own bytes and no task. A connection is in the export's lane while its first
//! waiting request may run, and only then.
//!
//! ```text
//!   reader -> its connection's lane: | zeroes | zeroes | ...      64 bytes each, at most those that it may have in flight
//!                                        |
//!   export's lane: | connection | connection | ...   round robin -> task: one piece -> to the front of its connection's
//! ```
//! Requests of up to 64 KiB have a lane of their own, so that they do not wait for long ones.
//!
//! Trims that wait one behind the other and are neighbours on the device run as one [`Group`]. A parity level gives back
//! whole rows only: of ten trims of 64 KiB none may have one, and all together do.

use crate::request::Clear;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use uraid_block::local::Permit;
use uraid_block::{Fua, Range, Sector, Sectors};
use uraid_nbd::{Command, CommandFlags, Request};

/// The longest piece of zeroes, 4 MiB: a member that has to write them at 100 MB/s takes 40 ms.
pub(crate) const ZEROES_MAX: Sectors = Sectors(4 << 11);
/// A request up to this length takes no longer than a write.
const SHORT_MAX: Sectors = Sectors(64 << 1);
/// The most tasks of the lanes of an export, short and long. If no other client reads or writes, a read waits for at
/// most 32 x 64 KiB and 8 x 4 MiB of zeroes, 340 ms at 100 MB/s, whatever the number of clients that zero. A task costs
/// about 4.3 KiB, so both lanes cost 172 KiB (`uraid::memory` counts them).
const TASKS_MAX: [usize; 2] = [32, 8];
/// The most tasks that may run requests of one connection.
const TASKS_OF_ONE_MAX: usize = 16;
/// Bytes that one connection may have in flight in a lane. A request counts with its length, but at most with
/// [`ZEROES_MAX`]. So two long requests run at a time, and a device does not idle between the pieces of one.
const BYTES_OF_ONE_MAX: usize = 2 * ZEROES_MAX.len_bytes();
/// A queue grows by this many requests.
const ROOM_STEP: usize = 16;

/// The lanes: short requests and long ones wait separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Short,
    Long,
}

pub(crate) const LANES: [Lane; 2] = [Lane::Short, Lane::Long];

/// A trim or write-zeroes that is not done yet, or not all of it.
pub(crate) struct ClearRequest {
    request: Request,
    rest: Range,
    /// The permit of a request in flight on its connection.
    permit: Permit,
}

/// The most bytes of memory that one connection's waiting trims and write-zeroes take. Each of the two queues may have
/// room for 15 requests more than it holds: with 128 requests in flight, room for 158 of 64 bytes, 10 KiB.
pub(crate) fn queue_bytes(requests_max: usize) -> usize {
    (requests_max + LANES.len() * (ROOM_STEP - 1)) * size_of::<ClearRequest>()
}

const _: () = assert!(size_of::<ClearRequest>() == 64, "docs/operating/serving.md says how much memory they take");

impl ClearRequest {
    /// Panics if the request is neither a trim nor a write-zeroes, or `range` is not all of it.
    pub(crate) fn new(request: Request, range: Range, permit: Permit) -> ClearRequest {
        assert!(matches!(request.command, Command::Trim | Command::WriteZeroes));
        assert!(!range.length.is_zero(), "an empty request is refused");
        assert_eq!(range.length.bytes(), request.length);
        ClearRequest { request, rest: range, permit }
    }

    /// The lane, by the length of the whole request, however little of it is left.
    fn lane(&self) -> Lane {
        if self.request.length <= SHORT_MAX.bytes() { Lane::Short } else { Lane::Long }
    }

    fn what(&self) -> Clear {
        Clear::of(&self.request)
    }

    fn fua(&self) -> Fua {
        if self.request.flags.contains(CommandFlags::FUA) { Fua::Yes } else { Fua::No }
    }

    /// The client's request, to answer it, and the permit to give back.
    pub(crate) fn into_parts(self) -> (Request, Permit) {
        (self.request, self.permit)
    }

    /// How much of [`BYTES_OF_ONE_MAX`] it takes.
    fn cost(&self) -> usize {
        self.request.length.min(ZEROES_MAX.bytes()) as usize
    }
}

/// What a task runs: one request, or trims of one connection that are neighbours. Each is answered by itself.
pub(crate) struct Group {
    /// By their place on the device, without a gap. Not empty.
    requests: Vec<ClearRequest>,
    lane: Lane,
    /// How much of [`BYTES_OF_ONE_MAX`] it takes. Trims move no data: a group takes as much as its first one.
    cost: usize,
}

impl Group {
    fn new(first: ClearRequest) -> Group {
        Group { lane: first.lane(), cost: first.cost(), requests: vec![first] }
    }

    /// Whether this request can run with the group.
    fn continues_with(&self, next: &ClearRequest) -> bool {
        let is_trim = self.what() == Clear::Trim && next.what() == Clear::Trim;
        is_trim && self.rest().end() == next.rest.start
    }

    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    pub(crate) fn what(&self) -> Clear {
        self.requests[0].what()
    }

    /// What is not cleared yet.
    pub(crate) fn rest(&self) -> Range {
        let [first, .., last] = &self.requests[..] else { return self.requests[0].rest };
        Range::between(first.rest.start, last.rest.end())
    }

    /// Whether the answer to one of the requests that end at `end` or before has to wait for a flush.
    pub(crate) fn is_flushed_at(&self, end: Sector) -> bool {
        self.requests.iter().any(|request| request.rest.end() <= end && request.fua() == Fua::Yes)
    }

    /// The range is cleared up to `end`. Returns the requests that are done.
    pub(crate) fn advance_to(&mut self, end: Sector) -> Vec<ClearRequest> {
        assert!(end > self.rest().start, "a piece is not empty");
        assert!(end <= self.rest().end(), "a piece lies inside the group");
        let done = self.requests.partition_point(|request| request.rest.end() <= end);
        let done = self.requests.drain(..done).collect();
        if let Some(next) = self.requests.first_mut() {
            next.rest = Range::between(end.max(next.rest.start), next.rest.end());
        }
        done
    }

    /// The range could not be cleared up to `end`. Returns the requests that begin before that.
    pub(crate) fn give_up_to(&mut self, end: Sector) -> Vec<ClearRequest> {
        let touched = self.requests.partition_point(|request| request.rest.start < end);
        self.requests.drain(..touched).collect()
    }
}

/// One connection's trims and write-zeroes.
#[derive(Default)]
pub(crate) struct ClearRequests {
    lanes: [OwnLane; 2],
}

impl ClearRequests {
    /// Whether none waits or runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.running.get() == 0 && lane.waiting.borrow().is_empty())
    }
}

/// The requests of one connection in one lane.
#[derive(Default)]
struct OwnLane {
    waiting: RefCell<VecDeque<ClearRequest>>,
    /// How many groups run.
    running: Cell<usize>,
    /// Their cost.
    bytes: Cell<usize>,
    /// The connection is in the export's lane.
    is_queued: Cell<bool>,
}

impl OwnLane {
    fn push_back(&self, request: ClearRequest) {
        self.with_room().push_back(request);
    }

    fn push_front(&self, request: ClearRequest) {
        self.with_room().push_front(request);
    }

    /// The queue, with room for one more request. It grows by steps and does not double: thousands of connections may
    /// have a full queue.
    fn with_room(&self) -> RefMut<'_, VecDeque<ClearRequest>> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() == waiting.capacity() {
            waiting.reserve_exact(ROOM_STEP);
        }
        waiting
    }

    /// Whether the first waiting request may run beside the connection's other requests.
    fn has_next(&self) -> bool {
        let bytes = self.waiting.borrow().front().map(|first| first.cost() + self.bytes.get());
        bytes.is_some_and(|bytes| bytes <= BYTES_OF_ONE_MAX) && self.running.get() < TASKS_OF_ONE_MAX
    }

    fn take(&self) -> Option<Group> {
        let mut waiting = self.waiting.borrow_mut();
        let mut group = Group::new(waiting.pop_front()?);
        while let Some(next) = waiting.pop_front_if(|next| group.continues_with(next)) {
            group.requests.push(next);
        }
        self.running.update(|running| running + 1);
        self.bytes.update(|bytes| bytes + group.cost);
        assert!(self.running.get() <= TASKS_OF_ONE_MAX && self.bytes.get() <= BYTES_OF_ONE_MAX);
        Some(group)
    }

    /// A piece of the group has ended.
    fn ended(&self, group: &Group) {
        assert!(self.running.get() > 0 && self.bytes.get() >= group.cost, "what ends has begun");
        self.running.update(|running| running - 1);
        self.bytes.update(|bytes| bytes - group.cost);
    }

    /// Frees the memory of the queue if the client is idle.
    fn free_if_idle(&self) {
        if self.running.get() == 0 && self.waiting.borrow().is_empty() {
            assert_eq!(self.bytes.get(), 0);
            self.waiting.take();
        }
    }
}

/// A connection, as the queue sees it.
pub(crate) trait HasClears {
    /// Its trims and write-zeroes.
    fn clears(&self) -> &ClearRequests;
}

fn lane_of<C: HasClears>(connection: &C, lane: Lane) -> &OwnLane {
    &connection.clears().lanes[lane as usize]
}

/// One lane of an export.
struct ExportLane<C> {
    /// The connections of which a request may run.
    ready: RefCell<VecDeque<Rc<C>>>,
    tasks: Cell<usize>,
}

/// A group to run a piece of, and its connection.
pub(crate) type Next<C> = (Rc<C>, Group);

/// The waiting trims and write-zeroes of one export, of all its connections.
pub(crate) struct ClearQueue<C> {
    lanes: [ExportLane<C>; 2],
}

impl<C> Default for ClearQueue<C> {
    fn default() -> ClearQueue<C> {
        ClearQueue { lanes: LANES.map(|_| ExportLane { ready: RefCell::default(), tasks: Cell::new(0) }) }
    }
}

impl<C: HasClears> ClearQueue<C> {
    /// Adds a request, and returns its lane. The caller starts the tasks that [`ClearQueue::start_task`] then allows:
    /// after all requests that have arrived, so that neighbours meet.
    pub(crate) fn put(&self, connection: &Rc<C>, request: ClearRequest) -> Lane {
        let lane = request.lane();
        lane_of(&**connection, lane).push_back(request);
        self.queue_if_ready(connection, lane);
        lane
    }

    /// The group of a new task, which is counted. `None`: nothing may run, or enough tasks run.
    pub(crate) fn start_task(&self, lane: Lane) -> Option<Next<C>> {
        let tasks = &self.lanes[lane as usize].tasks;
        if tasks.get() >= TASKS_MAX[lane as usize] {
            return None;
        }
        let next = self.take(lane)?;
        tasks.update(|tasks| tasks + 1);
        Some(next)
    }

    /// The next group of a task that has run a piece. `None`: nothing may run, and the task ends.
    pub(crate) fn next(&self, lane: Lane) -> Option<Next<C>> {
        let next = self.take(lane);
        if next.is_none() {
            let tasks = &self.lanes[lane as usize].tasks;
            assert!(tasks.get() > 0, "the caller is one");
            tasks.update(|tasks| tasks - 1);
        }
        next
    }

    /// A piece of the group has ended. What is left of it is the next of its connection.
    pub(crate) fn put_back(&self, connection: &Rc<C>, group: Group) {
        let own = lane_of(&**connection, group.lane);
        own.ended(&group);
        let lane = group.lane;
        group.requests.into_iter().rev().for_each(|request| own.push_front(request));
        own.free_if_idle();
        self.queue_if_ready(connection, lane);
    }

    /// Removes the connection, and returns its waiting requests. Those that run end at their next piece.
    pub(crate) fn remove(&self, connection: &C) -> impl Iterator<Item = ClearRequest> + use<C> {
        let waiting = LANES.map(|lane| {
            let own = lane_of(connection, lane);
            if own.is_queued.replace(false) {
                let mut ready = self.lanes[lane as usize].ready.borrow_mut();
                let before = ready.len();
                ready.retain(|other| !std::ptr::eq(Rc::as_ptr(other), connection));
                assert_eq!(ready.len() + 1, before, "a connection is in a lane once");
            }
            own.waiting.take()
        });
        waiting.into_iter().flatten()
    }

    /// Puts the connection at the end of the lane, if a request of it may run and it is not there already.
    fn queue_if_ready(&self, connection: &Rc<C>, lane: Lane) {
        let own = lane_of(&**connection, lane);
        if own.has_next() && !own.is_queued.replace(true) {
            self.lanes[lane as usize].ready.borrow_mut().push_back(connection.clone());
        }
    }

    /// Takes a group of the connection that is next. That connection then goes behind the others.
    fn take(&self, lane: Lane) -> Option<Next<C>> {
        let connection = self.lanes[lane as usize].ready.borrow_mut().pop_front()?;
        let own = lane_of(&*connection, lane);
        assert!(own.is_queued.replace(false));
        let group = own.take().expect("a connection without a request has left the lane");
        self.queue_if_ready(&connection, lane);
        Some((connection, group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::local::Semaphore;
    use uraid_nbd::Cookie;

    /// Trims of eight sectors each, one behind the other; the second has FUA.
    fn group() -> Group {
        let permits = Semaphore::new(4);
        let mut requests = (0..4).map(|n| {
            let flags = if n == 1 { CommandFlags::FUA } else { CommandFlags::NONE };
            let range = Range::new(Sector(8 * n), Sectors(8));
            let (offset, length) = (range.start.0 * 512, range.length.bytes());
            let request = Request { flags, command: Command::Trim, cookie: Cookie(n), offset, length };
            ClearRequest::new(request, range, permits.try_acquire(1).expect("free"))
        });
        let mut group = Group::new(requests.next().expect("four"));
        for next in requests {
            assert!(group.continues_with(&next));
            group.requests.push(next);
        }
        group
    }

    fn cookies(requests: Vec<ClearRequest>) -> Vec<u64> {
        requests.into_iter().map(|request| request.into_parts().0.cookie.0).collect()
    }

    #[test]
    fn a_piece_of_a_group_ends_the_requests_that_end_with_it() {
        let mut group = group();
        assert_eq!([7, 8, 15, 16, 32].map(|end| group.is_flushed_at(Sector(end))), [false, false, false, true, true]);
        assert_eq!(cookies(group.advance_to(Sector(12))), [0]);
        assert_eq!(group.rest(), Range::new(Sector(12), Sectors(20)));
        assert_eq!(cookies(group.advance_to(Sector(24))), [1, 2]);
        assert_eq!(cookies(group.advance_to(Sector(32))), [3]);
    }

    #[test]
    fn a_piece_that_fails_ends_the_requests_that_it_touches_and_no_others() {
        let mut group = group();
        assert_eq!(cookies(group.give_up_to(Sector(12))), [0, 1]);
        assert_eq!(group.rest(), Range::new(Sector(16), Sectors(16)));
        assert_eq!(cookies(group.give_up_to(Sector(24))), [2]);
        assert_eq!(cookies(group.give_up_to(Sector(32))), [3]);
    }
}
