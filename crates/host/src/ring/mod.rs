//! Kernel operations as futures, and the ownership of their memory until the kernel is done with it.
//! Owns: [`Driver`], operation slots, the trait [`Ring`]. Not here: what an operation is made of (`request`), how a ring
//! works (`uring`, `threads`), what is merged for a member (`merge`, `dispatch`).
//! Invariant: the buffers, addresses and file of an operation stay where they are until its completion, even if the
//! future that started it was dropped. They are released on the shard's own thread.

mod answers;
mod dispatch;
mod lane;
mod merge;
mod pool;
mod registered;
mod request;
mod threads;
mod trace;
mod trials;
mod uring;

pub(crate) use lane::{Depth, Lane, Trial};
pub(crate) use merge::Limits;
pub(crate) use request::{Buffers, Kind, Request, SEGMENTS_MAX, cut};
pub use trace::{SIZE_CLASSES, Trace, TraceCounts, Traced, TracedKind};

use crate::executor::timers::Timers;
use crate::mail::door::Door;
use answers::{Answer, LaneState, Query};
use dispatch::{Merged, Spare, Which};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::future::Future;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use trials::Trials;
use uraid_block::{Arena, Tick};

const SLOTS_PER_CHUNK: usize = 64;

/// Keeps a descriptor open: a member's claim, a socket. Clones cost no atomic.
pub(crate) type Holder = Rc<dyn AsRawFd>;

/// The number of a lane of one driver. [`LaneNumber::NONE`] is for sockets and calls that concern no member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneNumber(pub(crate) u32);

impl LaneNumber {
    pub(crate) const NONE: LaneNumber = LaneNumber(0);
}

/// The end of an operation: a count of bytes or a negative errno.
pub(crate) struct Completion {
    pub(crate) token: u32,
    pub(crate) result: i32,
}

/// How long [`Ring::wait`] may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Until an operation completes, the bell rings, or this time has passed.
    For(Duration),
    /// As above, without a limit.
    Forever,
}

/// A backend that submits operations to the kernel.
pub(crate) trait Ring {
    /// Starts an operation, or queues it until the next [`Ring::wait`].
    ///
    /// # Safety
    /// `request` stays where it is, and nothing else touches it, until the completion with this token was returned.
    unsafe fn start(&mut self, token: u32, request: *mut Request);

    /// Asks an operation to end early. Its completion still arrives.
    fn cancel(&mut self, token: u32);

    /// Submits what is queued, waits, and returns completions.
    fn wait(&mut self, wait: Wait, completions: &mut Vec<Completion>);

    /// Registers memory that operations will often use: the shard's arenas. At most once.
    fn announce_memory(&mut self, _arenas: &[Arena]) {}

    /// Announces one more member, with up to `depth` requests in flight at once.
    fn announce_member(&mut self, _depth: Depth) {}

    /// How many bytes of the announced memory are registered with the kernel.
    fn registered_bytes(&self) -> usize {
        0
    }

    /// Registers an open file and returns its slot, which operations may use; `None` if it cannot be registered.
    fn add_file(&mut self, _fd: RawFd) -> Option<u32> {
        None
    }

    /// Unregisters the file; other descriptors of it stay open.
    fn remove_file(&mut self, _slot: u32) {
        panic!("no file has a slot here")
    }

    /// `io_uring` or `threads`.
    fn name(&self) -> &'static str;
}

enum State {
    Free,
    /// Started, with the waker of its future; `None` before the first poll.
    Started(Option<Waker>),
    /// Started, and its future was dropped.
    Abandoned,
    /// Carries several other operations; it has no future of its own.
    Merged(Merged),
    /// Its future has failed with this errno, but its completion has not arrived.
    Cut(i32),
    Done(i32),
}

struct Slot {
    state: RefCell<State>,
    /// The number of the operation in the slot, or of the last one if the slot is free.
    number: Cell<u64>,
    may_wait_forever: Cell<bool>,
    is_on_worker: Cell<bool>,
    lane: Cell<LaneNumber>,
    /// See `answers`.
    answer: Cell<Answer>,
    request: UnsafeCell<Option<Request>>,
}

/// The operations of one shard.
pub(crate) struct Driver {
    ring: RefCell<Box<dyn Ring>>,
    slots: RefCell<Vec<Box<[Slot; SLOTS_PER_CHUNK]>>>,
    free: RefCell<Vec<u32>>,
    in_flight: Cell<usize>,
    /// Those of them that a worker of the kernel runs.
    on_workers: Cell<usize>,
    turns: Cell<u64>,
    // The number of the next operation.
    numbers: Cell<u64>,
    completions: RefCell<Vec<Completion>>,
    // Lanes with waiting requests.
    busy: RefCell<Vec<Rc<Lane>>>,
    trials: Trials,
    spare: RefCell<Vec<Spare>>,
    /// The state of each lane, by its number less one.
    lane_states: RefCell<Vec<Rc<LaneState>>>,
    lanes: RefCell<Vec<Weak<Lane>>>,
    queries: RefCell<Vec<Query>>,
    merges: bool,
    traces: bool,
    timers: Rc<Timers>,
}

/// A file registered with the ring; unregistered on drop.
pub(crate) struct FileSlot {
    // Weak: lanes own this, and operations in flight own lanes.
    driver: Weak<Driver>,
    slot: u32,
}

impl Drop for FileSlot {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.upgrade() {
            driver.ring.borrow_mut().remove_file(self.slot);
        }
    }
}

pub(crate) struct Operation<'a> {
    driver: &'a Driver,
    token: u32,
    is_over: bool,
}

impl Driver {
    /// A driver with the ring that the options ask for. Panics if they demand io_uring and the system refuses it.
    pub(crate) fn new(options: &crate::Options, door: &Arc<Door>) -> Driver {
        use crate::RingChoice;
        let ring: Box<dyn Ring> = match options.ring {
            RingChoice::Threads => Box::new(threads::Threads::new(door.clone())),
            RingChoice::IoUring => match uring::Uring::new(door.clone()) {
                Ok(ring) => Box::new(ring),
                Err(error) => panic!("io_uring was demanded and is refused: {error}"),
            },
            RingChoice::Auto => match uring::Uring::new(door.clone()) {
                Ok(ring) => Box::new(ring),
                Err(_) => Box::new(threads::Threads::new(door.clone())),
            },
        };
        Driver::with_ring(ring, options)
    }

    /// Uses the given ring.
    pub(crate) fn with_ring(ring: Box<dyn Ring>, options: &crate::Options) -> Driver {
        Driver {
            ring: RefCell::new(ring),
            slots: RefCell::default(),
            free: RefCell::default(),
            in_flight: Cell::new(0),
            on_workers: Cell::new(0),
            turns: Cell::new(0),
            numbers: Cell::new(0),
            completions: RefCell::default(),
            busy: RefCell::default(),
            trials: Trials::default(),
            spare: RefCell::default(),
            lane_states: RefCell::default(),
            lanes: RefCell::default(),
            queries: RefCell::default(),
            merges: options.merging,
            traces: options.trace,
            timers: Rc::default(),
        }
    }

    /// The shard's timers; the shard fires them.
    pub(crate) fn timers(&self) -> &Rc<Timers> {
        &self.timers
    }

    /// Ends after `time` has passed.
    pub(crate) async fn sleep(&self, time: Duration) {
        let now = || Tick(crate::sys::monotonic_nanos());
        self.timers.sleep_until(now() + time, now).await;
    }

    /// Whether requests to members are traced.
    pub(crate) fn traces(&self) -> bool {
        self.traces
    }

    pub(crate) fn ring_name(&self) -> &'static str {
        self.ring.borrow().name()
    }

    /// Registers memory that operations will often use. Call it at most once.
    pub(crate) fn announce_memory(&self, arenas: &[Arena]) {
        self.ring.borrow_mut().announce_memory(arenas);
    }

    /// How much of that memory is registered with the kernel, in bytes.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.ring.borrow().registered_bytes()
    }

    /// Registers an open file with the ring, if the ring supports it.
    pub(crate) fn add_file(self: &Rc<Self>, fd: RawFd) -> Option<FileSlot> {
        let slot = self.ring.borrow_mut().add_file(fd)?;
        Some(FileSlot { driver: Rc::downgrade(self), slot })
    }

    /// How often completions were processed. An operation that has visibly ended did so before the last increment.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Operations whose completion has not arrived.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Whether an operation in flight needs a worker of the kernel, and that a processor: who waits for it should not spin.
    pub(crate) fn waits_for_workers(&self) -> bool {
        self.on_workers.get() > 0
    }

    /// Reads or writes on this thread, bypassing the ring: for files that never block.
    pub(crate) fn at_once(kind: Kind, buffers: Buffers, holder: Holder) -> (Buffers, i32) {
        let mut request = Request::new(kind, buffers, Some(holder));
        let result = pool::run_here(&mut request);
        (request.buffers, result)
    }

    /// Starts an operation at once, on a file that `holder` keeps open. Operations on members start in their lane.
    pub(crate) fn start(&self, kind: Kind, buffers: Buffers, holder: Option<Holder>) -> Operation<'_> {
        let token = self.put(Request::new(kind, buffers, holder));
        self.start_ring(token);
        self.operation(token)
    }

    /// Submits what was started, waits, and wakes the futures of completed operations.
    pub(crate) fn wait(&self, wait: Wait) {
        self.send_waiting(Which::Due);
        let wait = self.until_trials(wait);
        self.turns.set(self.turns.get() + 1);
        let mut completions = self.completions.borrow_mut();
        self.ring.borrow_mut().wait(wait, &mut completions);
        for Completion { token, result } in completions.drain(..) {
            self.complete(token, result);
        }
        self.end_trials();
    }

    /// An operation has ended.
    fn complete(&self, token: u32, result: i32) {
        self.in_flight.set(self.in_flight.get() - 1);
        let (before, lane) = self.with_slot(token, |slot| {
            self.on_workers.set(self.on_workers.get() - usize::from(slot.is_on_worker.get()));
            (slot.state.replace(State::Done(result)), slot.lane.get())
        });
        if lane != LaneNumber::NONE {
            self.answered(lane, token);
        }
        match before {
            State::Started(Some(waker)) => waker.wake(),
            // Its future was woken when it was cut.
            State::Started(None) | State::Cut(_) => {}
            State::Abandoned => drop(self.take_request(token)),
            State::Merged(merged) => self.end_merged(token, merged, result),
            State::Free | State::Done(_) => panic!("an operation completed twice"),
        }
    }

    fn operation(&self, token: u32) -> Operation<'_> {
        Operation { driver: self, token, is_over: false }
    }

    /// Puts an operation's `Request` into a slot: it is in flight from here on.
    fn put(&self, request: Request) -> u32 {
        let token = self.take_slot();
        self.with_slot(token, |slot| {
            assert!(matches!(*slot.state.borrow(), State::Free));
            *slot.state.borrow_mut() = State::Started(None);
            slot.number.set(self.numbers.replace(self.numbers.get() + 1));
            slot.may_wait_forever.set(request.kind.may_wait_forever());
            slot.is_on_worker.set(request.kind.needs_worker());
            self.on_workers.set(self.on_workers.get() + usize::from(slot.is_on_worker.get()));
            slot.lane.set(request.lane);
            slot.answer.set(Answer::new(&request.kind));
            // SAFETY: the slot was free, so nothing uses its content.
            unsafe { *slot.request.get() = Some(request) };
        });
        self.in_flight.set(self.in_flight.get() + 1);
        token
    }

    /// Reads the contents of a slot that the ring does not have: the request waits in a lane, or is on a trial device.
    #[inline]
    fn with_request<T>(&self, token: u32, work: impl FnOnce(&Request) -> T) -> T {
        self.with_slot(token, |slot| {
            // SAFETY: in flight and not with the ring, so only the driver uses the content; the borrow ends here.
            let request = unsafe { (*slot.request.get()).as_ref() };
            work(request.expect("what is in flight has a request"))
        })
    }

    /// Submits the contents of a slot to the ring.
    fn start_ring(&self, token: u32) {
        let place = self.with_slot(token, |slot| {
            // SAFETY: in flight and not with the ring, so only the driver uses the content.
            unsafe { (*slot.request.get()).as_mut() }.map(|request| request as *mut Request)
        });
        let place = place.expect("what is in flight has a request");
        // SAFETY: slots are boxed, so the request stays where it is; `Operation` and `take_request` leave it alone until
        // the state is Done, which only a completion sets.
        unsafe { self.ring.borrow_mut().start(token, place) };
    }

    /// Cancels operations that may wait for ever, then waits until nothing is in flight, so that the kernel does not
    /// write into freed memory. Returns false if an operation did not end in time, or was cut and has not completed:
    /// its memory must never be freed.
    pub(crate) fn close(&self, time_max: Duration) -> bool {
        let deadline = crate::sys::monotonic_nanos() + time_max.as_nanos() as u64;
        let count = self.slots.borrow().len() * SLOTS_PER_CHUNK;
        for token in 0..count as u32 {
            self.cancel(token);
        }
        self.send_waiting(Which::All);
        while self.in_flight() > self.unanswered_count() && crate::sys::monotonic_nanos() < deadline {
            self.wait(Wait::For(Duration::from_millis(20)));
        }
        self.in_flight() == 0
    }

    /// Cancels an operation in flight if it could last for ever. Reads and writes of files run to their end.
    fn cancel(&self, token: u32) {
        let wanted = self.with_slot(token, |slot| match *slot.state.borrow() {
            State::Started(_) | State::Abandoned => slot.may_wait_forever.get(),
            State::Free | State::Merged(_) | State::Cut(_) | State::Done(_) => false,
        });
        if wanted {
            self.ring.borrow_mut().cancel(token);
        }
    }

    /// The future was dropped: the slot is emptied when the operation ends.
    fn abandon(&self, token: u32) {
        let is_done = self.with_slot(token, |slot| match &mut *slot.state.borrow_mut() {
            State::Done(_) => true,
            state @ (State::Started(_) | State::Cut(_)) => {
                *state = State::Abandoned;
                false
            }
            State::Free | State::Abandoned | State::Merged(_) => panic!("an operation was dropped twice"),
        });
        if is_done {
            drop(self.take_request(token));
        } else {
            self.cancel(token);
        }
    }

    fn with_slot<T>(&self, token: u32, work: impl FnOnce(&Slot) -> T) -> T {
        let slots = self.slots.borrow();
        work(&slots[token as usize / SLOTS_PER_CHUNK][token as usize % SLOTS_PER_CHUNK])
    }

    fn take_slot(&self) -> u32 {
        if let Some(token) = self.free.borrow_mut().pop() {
            return token;
        }
        let mut slots = self.slots.borrow_mut();
        let first = (slots.len() * SLOTS_PER_CHUNK) as u32;
        slots.push(Box::new(std::array::from_fn(|_| Slot {
            state: RefCell::new(State::Free),
            number: Cell::new(0),
            may_wait_forever: Cell::new(false),
            is_on_worker: Cell::new(false),
            lane: Cell::new(LaneNumber::NONE),
            answer: Cell::default(),
            request: UnsafeCell::new(None),
        })));
        self.free.borrow_mut().extend((first + 1..first + SLOTS_PER_CHUNK as u32).rev());
        first
    }

    /// Empties a slot whose operation is done.
    fn take_request(&self, token: u32) -> (Request, i32) {
        let (request, result) = self.with_slot(token, |slot| {
            let State::Done(result) = slot.state.replace(State::Free) else {
                panic!("an operation's buffers were asked for before its completion")
            };
            // SAFETY: it is done, so the ring no longer uses the request; the borrow ends right here.
            let request = unsafe { (*slot.request.get()).take() };
            (request.expect("an operation has a request"), result)
        });
        self.free.borrow_mut().push(token);
        (request, result)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            // The kernel may still write into these buffers: leak them rather than reuse them.
            std::mem::forget(self.slots.take());
        }
    }
}

/// The result of a poll.
enum Seen {
    UnderWay,
    Done,
    Cut(i32),
}

impl Future for Operation<'_> {
    /// The buffers, and the system's result: a count or a negative errno. If the member did not answer, there are no
    /// buffers: the device still has them.
    type Output = (Buffers, i32);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(Buffers, i32)> {
        assert!(!self.is_over);
        let seen = self.driver.with_slot(self.token, |slot| {
            let state = &mut *slot.state.borrow_mut();
            match state {
                State::Done(_) => Seen::Done,
                State::Started(Some(waker)) => {
                    waker.clone_from(context.waker());
                    Seen::UnderWay
                }
                State::Started(waker) => {
                    *waker = Some(context.waker().clone());
                    Seen::UnderWay
                }
                State::Cut(os) => {
                    let os = *os;
                    *state = State::Abandoned;
                    Seen::Cut(os)
                }
                State::Free | State::Abandoned | State::Merged(_) => panic!("an operation lost its slot"),
            }
        });
        match seen {
            Seen::UnderWay => return Poll::Pending,
            Seen::Cut(os) => {
                self.is_over = true;
                return Poll::Ready((Buffers::None, -os));
            }
            Seen::Done => self.is_over = true,
        }
        let (request, result) = self.driver.take_request(self.token);
        Poll::Ready((request.buffers, result))
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.driver.abandon(self.token);
    }
}
