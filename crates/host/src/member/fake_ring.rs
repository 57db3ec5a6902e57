//! A fake ring over a disk with a cache, controlled by a test.
//! Owns: [`Disk`]: what is stable on it, its answers; [`drive`]. Not here: any expectation, merging (`ring`).
//! Invariant: a write that was not durable is stable only after a sync that began later.

use crate::Options;
use crate::ring::{Completion, Driver, Kind, Request, Ring, Wait};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::RawFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use uraid_block::{SECTOR_BYTES, Tick};

/// How a write ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    All,
    /// At most this many bytes were written.
    Bytes(usize),
    /// A signal interrupted it: EINTR.
    Interrupted,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Old,
    Cached,
    Stable,
}

type Event = Box<dyn FnOnce(RawFd)>;

/// The fake ring's disk. Reads leave the buffers as they are.
pub(super) struct Disk {
    sectors: RefCell<Vec<Content>>,
    answers: RefCell<VecDeque<Answer>>,
    writes: Cell<u32>,
    refused_from: Cell<u32>,
    refusals: Cell<u32>,
    syncs: Cell<u32>,
    sync_errno: Cell<i32>,
    /// Errnos of the next operations of any kind.
    failing: RefCell<VecDeque<i32>>,
    operations: Cell<u32>,
    at_next_end: RefCell<Option<(RawFd, Event)>>,
}

impl Disk {
    pub(super) fn new(bytes: usize) -> Rc<Disk> {
        Rc::new(Disk {
            sectors: RefCell::new(vec![Content::Old; bytes.div_ceil(SECTOR_BYTES)]),
            answers: RefCell::default(),
            writes: Cell::new(0),
            refused_from: Cell::new(u32::MAX),
            refusals: Cell::new(0),
            syncs: Cell::new(0),
            sync_errno: Cell::new(0),
            failing: RefCell::default(),
            operations: Cell::new(0),
            at_next_end: RefCell::default(),
        })
    }

    /// A driver whose ring works on this disk.
    pub(super) fn driver(self: &Rc<Self>) -> Rc<Driver> {
        let ring = FakeRing { disk: self.clone(), started: Vec::new() };
        Rc::new(Driver::with_ring(Box::new(ring), &Options::default()))
    }

    /// Sets the answers to the next writes; all later ones are written whole.
    pub(super) fn answer(&self, answers: &[Answer]) {
        *self.answers.borrow_mut() = answers.iter().copied().collect();
    }

    /// From the n-th write on, durable writes get EOPNOTSUPP.
    pub(super) fn refuse_durable_writes_from(&self, n: u32) {
        self.refused_from.set(n);
    }

    /// The next operations fail with these.
    pub(super) fn fail_next(&self, errnos: impl IntoIterator<Item = i32>) {
        self.failing.borrow_mut().extend(errnos);
    }

    /// The number of operations of any kind.
    pub(super) fn operations(&self) -> u32 {
        self.operations.get()
    }

    /// Later syncs get this errno; 0: they succeed.
    pub(super) fn fail_syncs(&self, errno: i32) {
        self.sync_errno.set(errno);
    }

    /// Runs `event` when an operation is in flight, before it ends.
    pub(super) fn at_next_end(&self, fd: RawFd, event: impl FnOnce(RawFd) + 'static) {
        *self.at_next_end.borrow_mut() = Some((fd, Box::new(event)));
    }

    /// The number of writes, including refused ones.
    pub(super) fn writes(&self) -> u32 {
        self.writes.get()
    }

    pub(super) fn syncs(&self) -> u32 {
        self.syncs.get()
    }

    pub(super) fn refusals(&self) -> u32 {
        self.refusals.get()
    }

    /// Whether every sector of these bytes was written and would survive a loss of power.
    pub(super) fn is_stable(&self, bytes: std::ops::Range<usize>) -> bool {
        let sectors = bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES);
        self.sectors.borrow()[sectors].iter().all(|content| *content == Content::Stable)
    }

    fn write(&self, at: u64, bytes: usize, sync: bool) -> i32 {
        let number = self.writes.replace(self.writes.get() + 1);
        if sync && number >= self.refused_from.get() {
            self.refusals.set(self.refusals.get() + 1);
            return -libc::EOPNOTSUPP;
        }
        let count = match self.answers.borrow_mut().pop_front().unwrap_or(Answer::All) {
            Answer::All => bytes,
            Answer::Bytes(most) => most.min(bytes),
            Answer::Interrupted => return -libc::EINTR,
        };
        let content = if sync { Content::Stable } else { Content::Cached };
        let first = at as usize / SECTOR_BYTES;
        self.sectors.borrow_mut()[first..first + count / SECTOR_BYTES].fill(content);
        count as i32
    }

    fn sync(&self) -> i32 {
        self.syncs.set(self.syncs.get() + 1);
        if self.sync_errno.get() != 0 {
            return -self.sync_errno.get();
        }
        let mut sectors = self.sectors.borrow_mut();
        sectors.iter_mut().filter(|content| **content == Content::Cached).for_each(|cached| *cached = Content::Stable);
        0
    }
}

struct FakeRing {
    disk: Rc<Disk>,
    started: Vec<(u32, *mut Request)>,
}

impl Ring for FakeRing {
    unsafe fn start(&mut self, token: u32, request: *mut Request) {
        self.started.push((token, request));
    }

    fn cancel(&mut self, _token: u32) {
        panic!("nothing of a member is cancelled");
    }

    fn wait(&mut self, _wait: Wait, completions: &mut Vec<Completion>) {
        if !self.started.is_empty()
            && let Some((fd, event)) = self.disk.at_next_end.take()
        {
            event(fd);
        }
        for (token, request) in self.started.drain(..) {
            // SAFETY: in flight, so it exists and belongs to the ring.
            let request = unsafe { &mut *request };
            let bytes = request.segments.iter().map(|segment| segment.iov_len).sum::<usize>();
            self.disk.operations.set(self.disk.operations.get() + 1);
            let failure = self.disk.failing.borrow_mut().pop_front();
            let result = match &mut request.kind {
                _ if failure.is_some() => -failure.expect("there is one"),
                Kind::Read { .. } => bytes as i32,
                Kind::Write { at, sync } => self.disk.write(*at, bytes, *sync),
                Kind::Sync => self.disk.sync(),
                Kind::Allocate { .. } => 0,
                Kind::Call(call) => call.take()(),
                Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } => panic!("a member has no socket"),
            };
            completions.push(Completion { token, result });
        }
    }

    fn name(&self) -> &'static str {
        "fake_ring"
    }
}

pub(super) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future of this driver to its end. Panics when that takes too many turns.
pub(super) fn drive<T>(driver: &Driver, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(value) = poll_once(future.as_mut()) {
            return value;
        }
        driver.wait(Wait::No);
        if let Some(due) = driver.timers().next() {
            let now = || Tick(crate::sys::monotonic_nanos());
            std::thread::sleep(due.since(now()));
            driver.timers().fire(now());
        }
    }
    panic!("the operation goes on for ever");
}
