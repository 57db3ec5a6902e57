//! The engine's machine for crash images: one shard, tasks in a fixed order, operations that end on demand.
//! Owns: [`CrashMachine`], its members as the engine's `Device`, operations in flight. Not here: tasks, mail and timers
//! (`machine::executor`, `machine::world`), the order in which operations end (`script`), what a crash leaves of them (`media`).
//! Invariant: nothing happens except in `step`, `complete` or `fire`; the same calls give the same run.
//! Not covered: several shards, mail that takes time, errors other than a member that is gone.

use super::content::{Content, Contents};
use super::media::{CrashMedium, Mark};
use crate::machine::executor::Executor;
use crate::machine::world::{Machine, PoolSize, SimWorld, WallClock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::{Sender, oneshot};
use uraid_block::{
    Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, SECTOR_BYTES, Sector, Sectors, WritePieces,
};
use uraid_engine::Array;

/// The engine's world on the machine's only shard.
pub type CrashWorld = SimWorld<CrashMember>;

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
    executor: Executor,
    world: CrashWorld,
    contents: Rc<RefCell<Contents>>,
    geometry: Geometry,
    media: RefCell<Vec<CrashMedium>>,
    flights: RefCell<Vec<InFlight>>,
    is_instant: Cell<bool>,
    changes: Cell<u64>,
}

/// One machine. Clones are handles of the same one.
#[derive(Clone)]
pub struct CrashMachine(Rc<Inner>);

/// A member of the machine as the engine drives it.
#[derive(Clone)]
pub struct CrashMember {
    machine: CrashMachine,
    index: usize,
}

const MACHINE: Machine =
    Machine { shards: 1, pool: PoolSize { small: 96, large: 16 }, mail_delay_max: 0, wall_clock: WallClock::Stands };

impl CrashMachine {
    /// A machine with this many members of this size, without contents yet.
    pub fn new(contents: Rc<RefCell<Contents>>, members: usize, size: Sectors) -> CrashMachine {
        let geometry = Geometry {
            size,
            logical_block: Sectors(1),
            physical_block: Sectors(1),
            chunk: Sectors::ZERO,
            stripe: Sectors::ZERO,
            io_max: Sectors(2048),
            segments_max: 1024,
            discard_granularity: Sectors::ZERO,
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        };
        let executor = Executor::in_order();
        let world = SimWorld::boot(&executor, MACHINE).remove(0);
        CrashMachine(Rc::new(Inner {
            executor,
            world,
            contents,
            geometry,
            media: RefCell::new(vec![CrashMedium::default(); members]),
            flights: RefCell::default(),
            is_instant: Cell::new(false),
            changes: Cell::new(0),
        }))
    }

    /// The engine's world.
    pub fn world(&self) -> &CrashWorld {
        &self.0.world
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
    pub fn media(&self) -> std::cell::Ref<'_, Vec<CrashMedium>> {
        self.0.media.borrow()
    }

    /// The members' sectors, for changes from outside.
    pub fn media_mut(&self) -> std::cell::RefMut<'_, Vec<CrashMedium>> {
        self.0.media.borrow_mut()
    }

    /// Sets the receiver of mail.
    pub fn set_array(&self, array: Rc<Array<CrashWorld>>) {
        self.0.world.on_mail(move |mail| array.deliver(mail));
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
        self.0.executor.violate(what);
    }

    /// The first violation.
    pub fn violation(&self) -> Option<String> {
        self.0.executor.violation()
    }

    /// The members of the operations in flight, oldest first.
    pub fn in_flight(&self) -> Vec<usize> {
        self.0.flights.borrow().iter().map(|flight| flight.member).collect()
    }

    /// Delivers one message or polls one task; false if every task waits.
    pub fn step(&self) -> bool {
        self.0.executor.step_now()
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
        self.0.executor.fire_next()
    }

    /// Power fails: all tasks and operations are dropped. The members keep their contents.
    pub fn reset(&self) {
        // Their ends wake tasks, which must not be those of the next array.
        drop(self.0.flights.take());
        self.0.world.shut_down();
        self.0.executor.restart();
        assert!(self.0.flights.borrow().is_empty() && self.0.executor.tasks() == 0, "work of an array that is gone");
    }

    /// Whether all buffers have been returned.
    pub fn is_empty(&self) -> bool {
        self.0.world.blocks_in_use() == [0; 5]
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

fn fill(contents: &Contents, medium: &CrashMedium, cell: usize, into: &mut ReadPieces) {
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
    fn geometry(&self) -> Geometry {
        self.machine.0.geometry
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
            if medium.is_data(cell) && medium.writes_left == Some(0) {
                medium.is_gone = true;
            }
            if medium.is_data(cell) {
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
        let zeroes = self.machine.world().client_arena().take_zeroed(range.length.len_bytes());
        let zeroes = zeroes.map_err(|_full| IoError::new(ErrorKind::Unsupported))?;
        self.write(range.start, zeroes.freeze(), Fua::No).await
    }
}
