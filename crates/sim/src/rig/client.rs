//! Clients: they send requests to the array and check every answer against the oracle.
//! Owns: [`Client`], [`Session`], the ranges of requests. Not here: injected faults (`scenario::plan`), legal errors (`legal_errors`).
//! Invariant: the oracle learns of every request before it is made, and again when it is answered, never in between.

use crate::judge::guard::Guard;
use crate::judge::legal_errors::{LegalErrors, Request};
use crate::machine::event::Event;
use crate::machine::executor::Executor;
use crate::machine::world::SimWorld;
use crate::random::rng::Rng;
use crate::reference::model::Model;
use crate::reference::oracle::{Oracle, Value};
use crate::rig::tally::Tally;
use crate::setup::mix::Mix;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::Notify;
use uraid_block::{Arena, Device, ErrorKind, Fua, IoError, Range, ReadPieces, Sector, Sectors, Slot, WritePieces};
use uraid_engine::Array;
use uraid_engine::view::Gate;

/// Scattered buffers use one small block per piece; larger requests would empty the pool.
const SCATTERED_BYTES_MAX: usize = 8 * 512;

/// Shared by the clients of one round.
pub struct Session {
    /// The executor.
    pub executor: Executor,
    /// The slow model of where each sector lies.
    pub model: Rc<Model>,
    /// The legal contents of every sector.
    pub oracle: Rc<RefCell<Oracle>>,
    /// The watch over every member access.
    pub guard: Rc<Guard>,
    /// The frequencies of requests.
    pub mix: Mix,
    /// The number of the next operation.
    pub op_next: Rc<Cell<u64>>,
    /// The rule for legal errors.
    pub legal_errors: LegalErrors,
    /// Judges the crash images that a power cut now could leave.
    pub cut_power: Rc<dyn Fn()>,
    /// 1 answer in N calls `cut_power`.
    pub cut_one_in: u64,
    /// Running operations, by their numbers.
    pub running: RefCell<BTreeMap<u64, Request>>,
    /// Counts.
    pub tally: Rc<RefCell<Tally>>,
    /// Notified whenever an operation has ended.
    pub ended: Notify,
    /// The array is being stopped: requests may be refused, and clients end.
    pub is_stopping: Cell<bool>,
}

/// One client on one shard.
pub struct Client {
    /// Shared with the other clients.
    pub session: Rc<Session>,
    /// The array as this shard drives it.
    pub array: Rc<Array<SimWorld>>,
    /// The shard.
    pub world: SimWorld,
    /// Its random choices.
    pub rng: Rng,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write { fua: bool },
    Flush,
    Discard,
    Zeroes,
    Pause,
}

impl Session {
    /// The running operations, for a report.
    pub fn describe_running(&self) -> String {
        let running = self.running.borrow();
        let list: Vec<String> =
            running.iter().map(|(op, one)| format!("op {op}: {} {}+{}", one.kind, one.at, one.length)).collect();
        list.join(", ")
    }

    fn answered(&self) {
        if self.executor.random(|rng| rng.chance(1, self.cut_one_in)) {
            (self.cut_power)();
        }
    }

    fn draw_range(&self, rng: &mut Rng) -> (u64, u64) {
        let size = self.model.array_size();
        let chunk = self.model.shape.chunk.max(1);
        let start = match rng.below(4) {
            0 => rng.below(size),
            1 => size.saturating_sub(rng.between(1, chunk + 2)),
            2 => (rng.below(size.div_ceil(chunk)) * chunk).min(size - 1),
            _ => (rng.below(size.div_ceil(chunk)) * chunk).saturating_sub(1).min(size - 1),
        };
        let length = if rng.chance(1, 2) { rng.between(1, 3) } else { rng.between(1, self.mix.length_max) };
        (start, length.min(size - start))
    }

    fn overlaps_running(&self, at: u64, length: u64) -> bool {
        let running = self.running.borrow();
        running.values().any(|one| one.writes && at < one.at + one.length && one.at < at + length)
    }
}

impl Client {
    /// Makes `requests` requests, one after the other.
    pub async fn run(mut self, requests: u64) {
        for _ in 0..requests {
            if self.session.is_stopping.get() || !self.rng.goes_on() {
                return;
            }
            let mix = self.session.mix;
            let kinds = [
                (mix.read, Kind::Read),
                (mix.write, Kind::Write { fua: false }),
                (mix.fua, Kind::Write { fua: true }),
                (mix.flush, Kind::Flush),
                (mix.discard, Kind::Discard),
                (mix.zeroes, Kind::Zeroes),
                (mix.pause, Kind::Pause),
            ];
            let mut draw = self.rng.below(kinds.iter().map(|(weight, _)| weight).sum());
            let kind = kinds.iter().find(|(weight, _)| {
                let is_it = draw < *weight;
                draw = draw.saturating_sub(*weight);
                is_it
            });
            let (_, kind) = kind.expect("draw is below the sum of the weights");
            let (at, length) = self.session.draw_range(&mut self.rng);
            self.session.tally.borrow_mut().operations += u64::from(*kind != Kind::Pause);
            match *kind {
                Kind::Read => self.read(at, length).await,
                Kind::Flush => self.flush().await,
                Kind::Pause => {
                    let time = Duration::from_millis(self.rng.between(1, 600));
                    self.session.executor.sleep(time).await;
                }
                Kind::Write { .. } | Kind::Discard | Kind::Zeroes => {
                    let session = self.session.clone();
                    let is_free = || (mix.may_overlap || !session.overlaps_running(at, length)).then_some(());
                    session.ended.wait_for(is_free).await;
                    self.change(*kind, at, length).await;
                }
            }
        }
    }

    fn begin(&self, letter: char, at: u64, length: u64, writes: bool) -> u64 {
        let session = &self.session;
        let op = session.op_next.get();
        session.op_next.set(op + 1);
        session.executor.record(Event::Request { op, kind: letter, at, length });
        let (failures_before, view) = (session.legal_errors.failures(), self.array.view());
        let (listed, read_only_before) = (session.legal_errors.listed(), session.legal_errors.read_only_before());
        let request = Request { kind: letter, at, length, writes, failures_before, view, listed, read_only_before };
        session.running.borrow_mut().insert(op, request);
        op
    }

    fn end(&self, op: u64, outcome: Result<(), IoError>) {
        let session = &self.session;
        session.executor.record(Event::Answer { op, is_ok: outcome.is_ok() });
        let request = session.running.borrow_mut().remove(&op).expect("an operation ends once");
        session.ended.notify_all();
        match outcome {
            Ok(()) => session.tally.borrow_mut().done += 1,
            Err(error) if session.is_stopping.get() && error.kind == ErrorKind::Stopping => {}
            Err(error) => {
                session.tally.borrow_mut().failed += 1;
                if let Err(found) = session.legal_errors.check(&request, error, &self.array.view()) {
                    let Request { kind, at, length, .. } = request;
                    session
                        .executor
                        .violate(format!("I7: op {op} ({kind} {at}+{length}) failed with '{error}': {found}"));
                }
                if error.kind != ErrorKind::ReadOnly {
                    session.oracle.borrow_mut().lose_unflushed();
                }
            }
        }
    }

    /// Leases buffers from the clients' pool, in one piece or in many of odd sizes.
    async fn take(&mut self, bytes: usize) -> ReadPieces {
        let is_scattered = bytes <= SCATTERED_BYTES_MAX && self.rng.chance(1, 2);
        let began = self.session.executor.now();
        loop {
            let mut pieces = ReadPieces::new();
            while pieces.bytes() < bytes {
                let left = bytes - pieces.bytes();
                // The simplest choice is a large piece: in single bytes a request may need more blocks than exist.
                let next = match is_scattered.then(|| self.rng.below(1500) as usize) {
                    Some(0) => 1500.min(left),
                    Some(more) => (1 + more).min(left),
                    None => left,
                };
                match self.world.client_arena().take(next) {
                    Ok(more) => pieces.append(more),
                    Err(_) => break,
                }
            }
            if pieces.bytes() == bytes {
                return pieces;
            }
            drop(pieces);
            if self.session.executor.now().since(began) >= Duration::from_secs(1) {
                // As the server does: a device that does not answer keeps the buffers that it was given.
                return Arena::for_one(bytes).take(bytes).expect("it was made for this");
            }
            self.session.executor.sleep(Duration::from_micros(100)).await;
        }
    }

    /// Checks a range that is reported as zero as if zeroes had been read from it.
    async fn check_allocation(&self, op: u64, at: u64, length: u64) {
        let claim = u64::MAX - op;
        self.session.oracle.borrow_mut().begin_read(claim, at, length);
        match self.array.allocation(Range::new(Sector(at), Sectors(length))).await {
            Ok(known) if known.is_zero && known.length == Sectors(length) => {
                let zeroes = vec![0; Sectors(length).len_bytes()];
                self.session.tally.borrow_mut().zero_claims += 1;
                let checked = self.session.oracle.borrow_mut().end_read(claim, &zeroes);
                if let Err(found) = checked {
                    self.session.executor.violate(format!("I1-I3: said to be zero: {found}"));
                }
            }
            Ok(_) | Err(_) => self.session.oracle.borrow_mut().drop_read(claim),
        }
    }

    /// Reads and checks a range.
    pub async fn read(&mut self, at: u64, length: u64) {
        let into = self.take(Sectors(length).len_bytes()).await;
        let op = self.begin('r', at, length, false);
        self.check_allocation(op, at, length).await;
        self.session.oracle.borrow_mut().begin_read(op, at, length);
        let outcome = self.array.read(Sector(at), into).await;
        match &outcome {
            Ok(pieces) => {
                let checked = self.session.oracle.borrow_mut().end_read(op, &pieces.to_vec());
                if let Err(found) = checked {
                    self.session.executor.violate(format!("I1-I3: {found}"));
                }
            }
            Err(_) => self.session.oracle.borrow_mut().drop_read(op),
        }
        self.end(op, outcome.map(|_| ()));
    }

    async fn flush(&mut self) {
        let op = self.begin('f', 0, 0, false);
        self.session.oracle.borrow_mut().begin_flush(op);
        let outcome = self.array.flush().await;
        self.session.oracle.borrow_mut().end_flush(op, outcome.is_ok());
        self.end(op, outcome);
        self.session.answered();
    }

    async fn payload(&mut self, bytes: &[u8]) -> WritePieces {
        let mut pieces = self.take(bytes.len()).await;
        pieces.copy_from(bytes);
        pieces.freeze()
    }

    async fn change(&mut self, kind: Kind, at: u64, length: u64) {
        let letter = match kind {
            Kind::Write { fua: false } => 'w',
            Kind::Write { fua: true } => 'W',
            Kind::Discard => 'd',
            Kind::Zeroes | Kind::Read | Kind::Flush | Kind::Pause => 'z',
        };
        let is_write = matches!(kind, Kind::Write { .. });
        let op = self.begin(letter, at, length, true);
        let value = match kind {
            Kind::Write { .. } => Value::Op(op),
            Kind::Discard => Value::Any,
            Kind::Zeroes | Kind::Read | Kind::Flush | Kind::Pause => Value::Zero,
        };
        let bytes = if is_write { self.session.oracle.borrow().payload(op, at, length) } else { Vec::new() };
        let from = if is_write { self.payload(&bytes).await } else { WritePieces::new() };
        self.session.guard.open_range(at, length);
        self.session.oracle.borrow_mut().begin_write(op, at, length, value);
        let range = Range::new(Sector(at), Sectors(length));
        let fua = if kind == (Kind::Write { fua: true }) { Fua::Yes } else { Fua::No };
        let outcome = match kind {
            Kind::Write { .. } => self.array.write(Sector(at), from, fua).await,
            Kind::Discard => self.array.discard(range).await,
            Kind::Zeroes if op.is_multiple_of(2) => self.array.punch_hole(range).await,
            Kind::Zeroes | Kind::Read | Kind::Flush | Kind::Pause => self.array.write_zeroes(range).await,
        };
        let began = self.session.oracle.borrow_mut().end_write(op, at, length, outcome.is_ok(), fua == Fua::Yes);
        if outcome.is_ok() && fua == Fua::Yes {
            let usable = self.array.view().readable();
            let missing = |slot: u16| !usable.contains(Slot(slot));
            let rows = self.session.model.row_sectors_without_data(at..at + length, &missing);
            self.session.oracle.borrow_mut().settle_rows_before(&rows, began);
        }
        self.session.guard.close_range(at, length);
        if outcome.is_err() && matches!(self.array.view().gate, Gate::Frozen(_) | Gate::Closed) {
            self.session.guard.leave_torn(at, length);
        }
        self.end(op, outcome);
        self.session.answered();
    }
}
