//! The engine's machine for crash images: one shard, tasks in a fixed order, operations that end on demand.
//! Owns: [`Machine`] as the engine's `World` and `Device`, tasks, mail, timers, operations in flight.
//! Not here: the order in which operations end (`schedule`), what a crash leaves of them (`media`).
//! Invariant: nothing happens except in `step`, `complete` or `fire`; the same calls give the same run.
//! Not covered: several shards, mail that takes time, errors other than a member that is gone.

use super::content::{Content, Contents};
use super::media::{Mark, Medium};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use uraid_block::local::{Sender, oneshot};
use uraid_block::{
    Arena, Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, SECTOR_BYTES, Sector, Sectors, ShardIndex,
    Tick, WritePieces,
};
use uraid_engine::{Array, Mail, Pool, World};

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// A slot for one task. Its waker is made once and serves all tasks that use the slot.
struct TaskSlot {
    task: Option<Task>,
    is_taken: bool,
    woken: Arc<Woken>,
    waker: Waker,
}

enum Work {
    Read { into: ReadPieces, sender: Sender<Result<ReadPieces, IoError>> },
    Write { contents: Vec<Content>, number: u64, is_fua: bool, sender: Sender<Result<(), IoError>> },
    Flush { mark: Mark, sender: Sender<Result<(), IoError>> },
}

/// An operation of a member that has not ended.
struct InFlight {
    member: usize,
    cell: usize,
    work: Work,
}

struct Inner {
    contents: Rc<RefCell<Contents>>,
    geometry: Geometry,
    media: RefCell<Vec<Medium>>,
    flights: RefCell<Vec<InFlight>>,
    is_instant: Cell<bool>,
    seats: RefCell<Vec<TaskSlot>>,
    turn: Cell<usize>,
    mail: RefCell<VecDeque<Mail>>,
    array: RefCell<Option<Rc<Array<Machine>>>>,
    now: Cell<u64>,
    timers: RefCell<BTreeMap<(u64, u64), Sender<()>>>,
    timer_next: Cell<u64>,
    changes: Cell<u64>,
    arenas: [Arena; 5],
    violation: RefCell<Option<String>>,
}

/// One machine. Clones are handles of the same one.
#[derive(Clone)]
pub struct Machine(Rc<Inner>);

/// A member of the machine as the engine drives it.
#[derive(Clone)]
pub struct CrashMember {
    machine: Machine,
    index: usize,
}

const SMALL_BLOCKS: u32 = 96;
const LARGE_BLOCKS: u32 = 16;

impl Machine {
    /// A machine with this many members of this size, without contents yet.
    pub fn new(contents: Rc<RefCell<Contents>>, members: usize, size: Sectors) -> Machine {
        let geometry = Geometry {
            size,
            logical_block: Sectors(1),
            physical_block: Sectors(1),
            chunk: Sectors::ZERO,
            stripe: Sectors::ZERO,
            io_max: Sectors(2048),
            segments_max: 1024,
            discard_granularity: Sectors::ZERO,
            zeroes_after_discard: false,
            volatile_cache: true,
        };
        Machine(Rc::new(Inner {
            contents,
            geometry,
            media: RefCell::new(vec![Medium::default(); members]),
            flights: RefCell::default(),
            is_instant: Cell::new(false),
            seats: RefCell::default(),
            turn: Cell::new(0),
            mail: RefCell::default(),
            array: RefCell::default(),
            now: Cell::new(1_000_000_000),
            timers: RefCell::default(),
            timer_next: Cell::new(0),
            changes: Cell::new(0),
            arenas: std::array::from_fn(|_| Arena::new(SMALL_BLOCKS, LARGE_BLOCKS)),
            violation: RefCell::default(),
        }))
    }

    /// Sets whether operations end as soon as they are submitted.
    pub fn set_instant(&self, is_instant: bool) {
        self.0.is_instant.set(is_instant);
    }

    /// Whether operations end as soon as they are submitted.
    pub fn is_instant(&self) -> bool {
        self.0.is_instant.get()
    }

    /// The member of a slot, for the engine.
    pub fn member(&self, index: usize) -> CrashMember {
        CrashMember { machine: self.clone(), index }
    }

    /// The members' sectors.
    pub fn media(&self) -> std::cell::Ref<'_, Vec<Medium>> {
        self.0.media.borrow()
    }

    /// The members' sectors, for changes from outside.
    pub fn media_mut(&self) -> std::cell::RefMut<'_, Vec<Medium>> {
        self.0.media.borrow_mut()
    }

    /// Sets the receiver of mail.
    pub fn set_array(&self, array: Rc<Array<Machine>>) {
        *self.0.array.borrow_mut() = Some(array);
    }

    /// The clients' buffers.
    pub fn client_arena(&self) -> &Arena {
        &self.0.arenas[4]
    }

    /// Counts events that may change the possible crash images.
    pub fn changes(&self) -> u64 {
        self.0.changes.get()
    }

    /// Something outside the members has changed that a crash is judged by.
    pub fn note_change(&self) {
        self.0.changes.set(self.0.changes.get() + 1);
    }

    /// Reports a violation; the first one is kept.
    pub fn violate(&self, what: String) {
        self.0.violation.borrow_mut().get_or_insert(what);
    }

    /// The first violation.
    pub fn violation(&self) -> Option<String> {
        self.0.violation.borrow().clone()
    }

    /// The members of the operations in flight, oldest first.
    pub fn in_flight(&self) -> Vec<usize> {
        self.0.flights.borrow().iter().map(|flight| flight.member).collect()
    }

    /// Delivers one message or polls one task; false if every task waits.
    pub fn step(&self) -> bool {
        let mail = self.0.mail.borrow_mut().pop_front();
        if let Some(mail) = mail {
            let array = self.0.array.borrow().clone();
            if let Some(array) = array {
                array.deliver(mail);
            }
            return true;
        }
        let Some((at, mut task, waker)) = self.next_task() else { return false };
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.0.seats.borrow_mut()[at].is_taken = false;
        } else {
            self.0.seats.borrow_mut()[at].task = Some(task);
        }
        true
    }

    fn next_task(&self) -> Option<(usize, Task, Waker)> {
        let mut seats = self.0.seats.borrow_mut();
        let count = seats.len();
        let first = self.0.turn.get();
        for step in 0..count {
            let at = (first + step) % count;
            let seat = &mut seats[at];
            if seat.task.is_some() && seat.woken.0.swap(false, Ordering::Relaxed) {
                self.0.turn.set(at + 1);
                return Some((at, seat.task.take()?, seat.waker.clone()));
            }
        }
        None
    }

    /// Ends the operation at index `at` of `in_flight`.
    pub fn complete(&self, at: usize) {
        let flight = self.0.flights.borrow_mut().remove(at);
        self.note_change();
        let mut media = self.0.media.borrow_mut();
        let medium = &mut media[flight.member];
        let outcome = if medium.is_gone { Err(IoError::new(ErrorKind::Gone)) } else { Ok(()) };
        match flight.work {
            Work::Read { mut into, sender } => {
                if outcome.is_ok() {
                    fill(&self.0.contents.borrow(), medium, flight.cell, &mut into);
                }
                drop(media);
                sender.send(outcome.map(|()| into));
            }
            Work::Write { contents, number, is_fua, sender } => {
                if outcome.is_ok() {
                    medium.complete(flight.cell, &contents, number, is_fua);
                }
                drop(media);
                sender.send(outcome);
            }
            Work::Flush { mark, sender } => {
                if outcome.is_ok() {
                    medium.flush(mark);
                }
                drop(media);
                sender.send(outcome);
            }
        }
    }

    /// Advances time to the next timer; false if there is none.
    pub fn fire(&self) -> bool {
        let Some(((at, _), sender)) = self.0.timers.borrow_mut().pop_first() else { return false };
        self.0.now.set(self.0.now.get().max(at));
        sender.send(());
        true
    }

    /// Power fails: all tasks and operations are dropped. The members keep their contents.
    pub fn reset(&self) {
        loop {
            let tasks: Vec<Task> = self.0.seats.borrow_mut().iter_mut().filter_map(|seat| seat.task.take()).collect();
            let flights = std::mem::take(&mut *self.0.flights.borrow_mut());
            let timers = std::mem::take(&mut *self.0.timers.borrow_mut());
            let mail = std::mem::take(&mut *self.0.mail.borrow_mut());
            let array = self.0.array.borrow_mut().take();
            if tasks.is_empty() && flights.is_empty() && timers.is_empty() && mail.is_empty() && array.is_none() {
                break;
            }
        }
        self.0.seats.borrow_mut().iter_mut().for_each(|seat| seat.is_taken = false);
        self.0.turn.set(0);
        self.0.now.set(1_000_000_000);
        self.0.timer_next.set(0);
        *self.0.violation.borrow_mut() = None;
    }

    /// Whether all buffers have been returned.
    pub fn is_empty(&self) -> bool {
        self.0.arenas.iter().all(|arena| arena.blocks_in_use() == 0)
    }

    fn numbers(&self, from: &WritePieces) -> Vec<Content> {
        let mut contents = self.0.contents.borrow_mut();
        let mut numbers = Vec::with_capacity(from.length().0 as usize);
        if from.iter().all(|piece| piece.len().is_multiple_of(SECTOR_BYTES)) {
            for piece in from.iter() {
                let sectors = piece.chunks_exact(SECTOR_BYTES);
                numbers.extend(sectors.map(|bytes| contents.number(bytes.try_into().expect("a sector"))));
            }
        } else {
            let bytes = from.to_vec();
            let sectors = bytes.chunks_exact(SECTOR_BYTES);
            numbers.extend(sectors.map(|bytes| contents.number(bytes.try_into().expect("a sector"))));
        }
        numbers
    }
}

fn fill(contents: &Contents, medium: &Medium, cell: usize, into: &mut ReadPieces) {
    let sectors = into.length().0 as usize;
    let mut cells = medium.current[cell..cell + sectors].iter();
    if into.iter().all(|piece| piece.len().is_multiple_of(SECTOR_BYTES)) {
        for (target, content) in into.iter_mut().flat_map(|piece| piece.chunks_exact_mut(SECTOR_BYTES)).zip(cells) {
            target.copy_from_slice(contents.bytes(*content));
        }
        return;
    }
    let bytes: Vec<u8> = cells.by_ref().flat_map(|content| *contents.bytes(*content)).collect();
    into.copy_from(&bytes);
}

impl World for Machine {
    type Member = CrashMember;

    fn now(&self) -> Tick {
        Tick(self.0.now.get())
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        let number = self.0.timer_next.get();
        self.0.timer_next.set(number + 1);
        let (sender, receiver) = oneshot();
        self.0.timers.borrow_mut().insert((self.0.now.get() + time.as_nanos() as u64, number), sender);
        async move {
            receiver.await;
        }
    }

    fn shard(&self) -> ShardIndex {
        ShardIndex(0)
    }

    fn shards(&self) -> u16 {
        1
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut seats = self.0.seats.borrow_mut();
        let at = seats.iter().position(|seat| !seat.is_taken).unwrap_or_else(|| {
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            seats.push(TaskSlot { task: None, is_taken: false, waker: Waker::from(woken.clone()), woken });
            seats.len() - 1
        });
        seats[at].task = Some(Box::pin(task));
        seats[at].is_taken = true;
        seats[at].woken.0.store(true, Ordering::Relaxed);
    }

    fn post(&self, _to: ShardIndex, mail: Mail) {
        self.0.mail.borrow_mut().push_back(mail);
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.0.arenas[pool.index()]
    }
}

impl CrashMember {
    /// The first cell of a range. A range outside of all cells is a violation.
    fn cells(&self, at: Sector, length: Sectors) -> Result<usize, IoError> {
        let media = self.machine.0.media.borrow();
        let medium = &media[self.index];
        match medium.cell(at.0) {
            Some(cell) if medium.cell(at.0 + length.0 - 1) == Some(cell + length.0 as usize - 1) => Ok(cell),
            Some(_) | None => {
                drop(media);
                let found = format!("I8: member {} is asked for sectors {}+{}", self.index, at.0, length.0);
                self.machine.violate(found);
                Err(ErrorKind::OutOfRange.into())
            }
        }
    }

    fn submit(&self, cell: usize, work: Work) {
        self.machine.note_change();
        self.machine.0.flights.borrow_mut().push(InFlight { member: self.index, cell, work });
    }
}

impl Device for CrashMember {
    fn geometry(&self) -> &Geometry {
        &self.machine.0.geometry
    }

    async fn read(&self, at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        let cell = self.cells(at, into.length())?;
        let inner = &self.machine.0;
        if inner.is_instant.get() {
            fill(&inner.contents.borrow(), &inner.media.borrow()[self.index], cell, &mut into);
            return Ok(into);
        }
        let (sender, receiver) = oneshot();
        self.submit(cell, Work::Read { into, sender });
        receiver.await.unwrap_or(Err(IoError::new(ErrorKind::Gone)))
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let cell = self.cells(at, from.length())?;
        let contents = self.machine.numbers(&from);
        let number = {
            let mut media = self.machine.0.media.borrow_mut();
            let medium = &mut media[self.index];
            if medium.is_gone {
                return Err(ErrorKind::Gone.into());
            }
            if self.machine.0.is_instant.get() {
                medium.current[cell..cell + contents.len()].copy_from_slice(&contents);
                return Ok(());
            }
            if cell > 0 && medium.writes_left == Some(0) {
                medium.is_gone = true;
            }
            if cell > 0 {
                medium.writes_left = medium.writes_left.map(|left| left.saturating_sub(1));
            }
            medium.submit(cell, &contents)
        };
        let (sender, receiver) = oneshot();
        self.submit(cell, Work::Write { contents, number, is_fua: fua == Fua::Yes, sender });
        receiver.await.unwrap_or(Err(IoError::new(ErrorKind::Gone)))
    }

    async fn flush(&self) -> Result<(), IoError> {
        if self.machine.0.is_instant.get() {
            return Ok(());
        }
        let mark = self.machine.0.media.borrow()[self.index].mark();
        let (sender, receiver) = oneshot();
        self.submit(0, Work::Flush { mark, sender });
        receiver.await.unwrap_or(Err(IoError::new(ErrorKind::Gone)))
    }

    async fn discard(&self, _range: Range) -> Result<(), IoError> {
        Err(ErrorKind::Unsupported.into())
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        // Like a device without the command: the engine's caller writes zeroes from a buffer.
        let zeroes = self.machine.client_arena().take_zeroed(range.length.len_bytes());
        let zeroes = zeroes.map_err(|_full| IoError::new(ErrorKind::Unsupported))?;
        self.write(range.start, zeroes.freeze(), Fua::No).await
    }
}
