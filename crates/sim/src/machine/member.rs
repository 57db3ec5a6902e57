//! A simulated member as the engine drives it: latency, faults, and a watch on every access.
//! Owns: [`Disk`], [`SimMember`], lies. Not here: bytes and durability (`medium`), what is allowed (`judge`), which fault
//! hits which operation (`member::faulty`).
//! Invariant: every operation is answered once, by an event of the executor; its buffers stay with that event.

mod access;
mod faulty;
mod hung;
pub mod medium;

use crate::image::areas::SUPER_AT;
use crate::machine::event::Event;
use crate::machine::executor::{Executor, Purpose};
use crate::machine::fault_kind::FaultKind;
use crate::machine::member::medium::{CrashMode, Medium};
use crate::random::rng::Rng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::oneshot;
use uraid_block::{
    Allocation, Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, SECTOR_BYTES, Sector, Sectors,
    WritePieces,
};

pub use access::{Access, Op, Watch};
pub use faulty::{Effect, Fault, READ_ERRORS_MAX, Target};

/// A deliberate fault of the member, to test the checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Flushes are answered without effect.
    Flush,
    /// Superblock writes are answered without effect.
    SuperWrite,
    /// Some data writes are answered without effect.
    Write,
    /// Some reads return one wrong bit.
    ReadBit,
    /// Some data writes are performed one sector further.
    Misdirect,
}

/// How long operations take, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// At least.
    pub min: u64,
    /// At most, mostly.
    pub max: u64,
    /// 1 request in N takes 50 times as long; zero: none.
    pub slow_one_in: u64,
}

/// One simulated member, seen by all shards.
pub struct Disk {
    index: u16,
    executor: Executor,
    geometry: Geometry,
    data_start: u64,
    medium: RefCell<Medium>,
    latency: Latency,
    faults: RefCell<Vec<Fault>>,
    spots: faulty::BadSpots,
    lie: Cell<Option<Lie>>,
    is_gone: Cell<bool>,
    /// The error of every operation if the member's bus has failed.
    bus: Cell<Option<ErrorKind>>,
    /// Whether an array fails the member when it is full.
    is_failed_when_full: Cell<bool>,
    is_failfast: Cell<bool>,
    watch: RefCell<Option<Rc<dyn Watch>>>,
    hits: RefCell<[u64; FaultKind::COUNT]>,
    may_be_failed: Cell<bool>,
    read_errors: faulty::ReadErrors,
    has_no_space: Cell<bool>,
    lies_about_flushes: Cell<bool>,
    sectors_lost: Cell<u64>,
    in_flight: Cell<u64>,
    reads: Cell<u64>,
    hang: hung::Hang,
}

enum Fate {
    Fine,
    Error { kind: ErrorKind, has_effect: bool },
}

/// A disk as one shard accesses it.
#[derive(Clone)]
pub struct SimMember(pub Rc<Disk>);

impl Disk {
    /// A disk with these bytes; data starts at sector `data_start`.
    pub fn new(
        executor: &Executor,
        index: u16,
        geometry: Geometry,
        bytes: Vec<u8>,
        data_start: u64,
        latency: Latency,
    ) -> Rc<Disk> {
        assert_eq!(geometry.size.len_bytes(), bytes.len());
        Rc::new(Disk {
            index,
            executor: executor.clone(),
            geometry,
            data_start,
            medium: RefCell::new(Medium::new(bytes, data_start)),
            latency,
            faults: RefCell::default(),
            spots: faulty::BadSpots::default(),
            lie: Cell::new(None),
            is_gone: Cell::new(false),
            bus: Cell::new(None),
            is_failed_when_full: Cell::new(false),
            is_failfast: Cell::new(false),
            watch: RefCell::default(),
            hits: RefCell::default(),
            may_be_failed: Cell::new(false),
            read_errors: faulty::ReadErrors::default(),
            has_no_space: Cell::new(false),
            lies_about_flushes: Cell::new(false),
            sectors_lost: Cell::new(0),
            in_flight: Cell::new(0),
            reads: Cell::new(0),
            hang: hung::Hang::default(),
        })
    }

    /// Sets the watch over every access.
    pub fn set_watch(&self, watch: Option<Rc<dyn Watch>>) {
        *self.watch.borrow_mut() = watch;
    }

    /// Starts a lie, or ends it.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.lie.set(lie);
    }

    /// How many faults of each kind have hit.
    pub fn hits(&self) -> [u64; FaultKind::COUNT] {
        *self.hits.borrow()
    }

    /// Whether it has answered in a way for which the array may fail it.
    pub fn may_be_failed(&self) -> bool {
        self.may_be_failed.get()
    }

    /// Whether it was out of space, so that the array may freeze.
    pub fn has_no_space(&self) -> bool {
        self.has_no_space.get()
    }

    /// Forgets all faults that have hit so far.
    pub fn reset_faults(&self) {
        self.hits.replace([0; FaultKind::COUNT]);
        self.may_be_failed.set(false);
        self.read_errors.forget();
        self.has_no_space.set(false);
    }

    fn count(&self, kind: FaultKind) {
        self.hits.borrow_mut()[kind as usize] += 1;
        self.executor.record(Event::Fault { disk: self.index, kind });
    }

    /// Makes later flushes and FUA writes succeed without effect.
    pub fn lie_about_flushes(&self) {
        self.lies_about_flushes.set(true);
        self.may_be_failed.set(true);
    }

    /// Whether it lies about flushes.
    pub fn is_liar(&self) -> bool {
        self.lies_about_flushes.get()
    }

    /// Ends the lying; all of its cache has become durable.
    pub fn stop_lying(&self) {
        if self.lies_about_flushes.replace(false) {
            self.medium.borrow_mut().settle_all();
        }
    }

    /// Its current size in sectors.
    pub fn size_now(&self) -> u64 {
        self.geometry.size.0 - self.sectors_lost.get()
    }

    /// Whether it became smaller.
    pub fn is_shrunk(&self) -> bool {
        self.sectors_lost.get() > 0
    }

    /// Replaces it by another device of the full size.
    pub fn restore_size(&self) {
        self.sectors_lost.set(0);
    }

    /// Flips a bit of a sector while the array is stopped.
    pub fn flip(&self, sector: u64, bit: usize) {
        let mut image = self.medium.borrow().current().to_vec();
        image[sector as usize * SECTOR_BYTES + bit / 8] ^= 1 << (bit % 8);
        self.replace(image);
    }

    /// The number of reads submitted to it.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// The number of operations in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// Whether it has vanished.
    pub fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    /// The bytes.
    pub fn medium(&self) -> std::cell::Ref<'_, Medium> {
        self.medium.borrow()
    }

    /// Its size and limits.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Cuts the member's power and restores it: its faults are over, and `mode` decides about its unflushed writes.
    pub fn power_cycle(&self, mode: CrashMode, rng: &mut Rng) {
        self.medium.borrow_mut().crash(mode, rng);
        self.forget_faults();
        self.is_gone.set(false);
        self.lies_about_flushes.set(false);
        self.in_flight.set(0);
        self.hang.forget();
    }

    /// Replaces the contents; all are durable.
    pub fn replace(&self, image: Vec<u8>) {
        self.medium.borrow_mut().replace(image);
    }

    /// Draws how long the operation takes and how it ends.
    fn begin(&self, op: Op, at: u64, length: u64) -> (Duration, Fate, Option<Effect>) {
        self.executor.record(Event::Submit { disk: self.index, op: op.letter(), at, length });
        self.in_flight.set(self.in_flight.get() + 1);
        let access = Access { disk: self.index, op, at, length };
        let watch = self.watch.borrow().clone();
        if let Some(watch) = watch
            && let Err(found) = watch.submitted(access)
        {
            self.executor.violate(found);
        }
        let latency = self.latency;
        let mut wait = Duration::from_nanos(self.executor.choose_for(Purpose::Latency, |rng| {
            let time = rng.between(latency.min, latency.max);
            if latency.slow_one_in > 0 && rng.chance(1, latency.slow_one_in) { time * 50 } else { time }
        }));
        let mut fate = Fate::Fine;
        let mut effect = None;
        if !self.is_gone.get() {
            effect = self.take_fault(op, at);
            match effect {
                None | Some(Effect::LoseWrite | Effect::Misdirect) => {}
                Some(Effect::Error(kind) | Effect::ErrorsFromNow(kind) | Effect::StillErrors(kind)) => {
                    fate = Fate::Error { kind, has_effect: false }
                }
                Some(Effect::ErrorAfter(kind)) => fate = Fate::Error { kind, has_effect: true },
                Some(Effect::Vanish) => self.is_gone.set(true),
                Some(Effect::Hang(time)) => wait += time,
                Some(Effect::NeverAnswer) => self.hang.begin(),
                Some(Effect::Shrink(sectors)) => {
                    let data = self.geometry.size.0 - self.data_start;
                    self.sectors_lost.set(sectors.min(data - 1));
                    self.may_be_failed.set(true);
                }
            }
            if self.is_bad_spot(op, at, length) {
                fate = Fate::Error { kind: ErrorKind::Media, has_effect: false };
            }
            if self.cut_off(op, at, length) {
                fate = Fate::Error { kind: ErrorKind::OutOfRange, has_effect: false };
            }
        }
        (wait, fate, effect)
    }

    /// The error of an operation that is refused as a whole, before anything is done.
    fn refuse(&self, op: Op, at: u64, length: u64, segments: usize) -> Option<ErrorKind> {
        if self.hang.refuses() {
            self.report_refusal(op, at, length);
            return Some(ErrorKind::Gone);
        }
        let (size, is_transfer) = (self.geometry.size.0, matches!(op, Op::Read | Op::Write { .. }));
        if at > size || length > size - at {
            return Some(ErrorKind::OutOfRange);
        }
        let block = self.geometry.logical_block.0;
        let is_bad = op != Op::Flush && (length == 0 || !at.is_multiple_of(block) || !length.is_multiple_of(block));
        let is_big = is_transfer && (length > self.geometry.io_max.0 || segments > self.geometry.segments_max);
        if is_bad || is_big {
            let (index, io_max) = (self.index, self.geometry.io_max.0);
            self.executor.violate(format!(
                "disk {index}: {op:?} {at}+{length} in {segments} segments; block {block}, at most {io_max}"
            ));
        }
        None
    }

    /// Ends an operation and counts its faults. A disk that has vanished fails everything.
    fn end(&self, op: Op, at: u64, length: u64, fate: Fate) -> Result<(), (IoError, bool)> {
        let fate = match fate {
            Fate::Fine if self.is_gone.get() => {
                Fate::Error { kind: ErrorKind::Gone, has_effect: self.executor.random(|rng| rng.chance(1, 2)) }
            }
            Fate::Fine | Fate::Error { .. } => match self.bus.get() {
                Some(kind) => Fate::Error { kind, has_effect: self.executor.random(|rng| rng.chance(1, 4)) },
                None => fate,
            },
        };
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        let is_ok = matches!(fate, Fate::Fine);
        self.executor.record(Event::Complete { disk: self.index, op: op.letter(), at, length, is_ok });
        match fate {
            Fate::Fine => Ok(()),
            Fate::Error { kind, has_effect } => {
                self.note_error(op, kind);
                let watch = self.watch.borrow().clone();
                if let Some(watch) = watch {
                    watch.failed(Access { disk: self.index, op, at, length }, kind);
                }
                Err((faulty::error(kind), has_effect))
            }
        }
    }

    fn finish_write(&self, op: Op, at: u64, length: u64, number: u64, fate: Fate) -> Result<(), IoError> {
        let result = self.end(op, at, length, fate);
        match result {
            Ok(()) => {
                self.medium.borrow_mut().complete(number);
                self.mend_latent(at, length);
            }
            Err((_, has_effect)) => self.medium.borrow_mut().abandon(number, has_effect),
        }
        if at == SUPER_AT && result.is_ok() {
            let watch = self.watch.borrow().clone();
            let bytes = self.medium.borrow().current()[8 * SECTOR_BYTES..16 * SECTOR_BYTES].to_vec();
            if let Some(watch) = watch
                && let Err(found) = watch.superblock(self.index, &bytes)
            {
                self.executor.violate(found);
            }
        }
        result.map_err(|(error, _)| error)
    }

    /// Takes the bytes of a write, and answers when it is done.
    async fn write_bytes(self: &Rc<Self>, op: Op, at: u64, bytes: Vec<u8>) -> Result<(), IoError> {
        let length = (bytes.len() / SECTOR_BYTES) as u64;
        let (wait, fate, effect) = self.begin(op, at, length);
        let watch = self.watch.borrow().clone().filter(|_| at == SUPER_AT);
        if let Some(Err(found)) = watch.map(|watch| watch.superblock_submitted(self.index, &bytes)) {
            self.executor.violate(found);
        }
        let diverted = self.divert(effect, at, &bytes);
        let is_super = at < self.data_start;
        let lies = self.lie.get().filter(|lie| match lie {
            Lie::SuperWrite => is_super,
            Lie::Write | Lie::Misdirect => !is_super && self.executor.random(|rng| rng.chance(1, 16)),
            Lie::Flush | Lie::ReadBit => false,
        });
        let mut target = diverted.unwrap_or(at);
        if lies == Some(Lie::Misdirect) && at + length < self.geometry.size.0 {
            target = at + 1;
        }
        let is_honest = self.lie.get() != Some(Lie::Flush) && !self.is_liar();
        let is_fua = (op == Op::Write { fua: true } || !self.geometry.volatile_cache) && is_honest;
        let number = self.medium.borrow_mut().submit(target, bytes, is_fua);
        if self.hang.is_under_way() {
            self.hang.note_unanswered(number);
            return Err(self.never_answer(op, at, length).await);
        }
        let is_seen_early =
            matches!(fate, Fate::Fine) && self.executor.choose_for(Purpose::Latency, |rng| rng.chance(1, 2));
        let (sender, receiver) = oneshot();
        let disk = self.clone();
        if diverted.is_none() || lies.is_some_and(|lie| lie == Lie::SuperWrite || lie == Lie::Write) {
            disk.medium.borrow_mut().abandon(number, false);
            self.executor.after(wait, move || sender.send(disk.end(op, at, length, fate).map_err(|(error, _)| error)));
        } else {
            if is_seen_early && !self.is_gone.get() {
                disk.medium.borrow_mut().show(number);
            }
            self.executor.after(wait, move || sender.send(disk.finish_write(op, at, length, number, fate)));
        }
        self.unless_dead(receiver).await
    }
}

impl Disk {
    async fn read(self: &Rc<Self>, at: u64, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        let (disk, length) = (self, into.length().0);
        if let Some(kind) = disk.refuse(Op::Read, at, length, into.count()) {
            return Err(kind.into());
        }
        disk.reads.set(disk.reads.get() + 1);
        let (wait, fate, _) = disk.begin(Op::Read, at, length);
        if disk.hang.is_under_way() {
            return Err(disk.never_answer(Op::Read, at, length).await);
        }
        let bytes_of = move |disk: &Disk| {
            let start = at as usize * SECTOR_BYTES;
            disk.medium.borrow().current()[start..start + length as usize * SECTOR_BYTES].to_vec()
        };
        let early = disk.executor.choose_for(Purpose::Latency, |rng| rng.chance(1, 2)).then(|| bytes_of(disk));
        let (sender, receiver) = oneshot();
        let inside = disk.clone();
        disk.executor.after(wait, move || {
            let result = inside.end(Op::Read, at, length, fate).map_err(|(error, _)| error).map(|()| {
                let mut bytes = early.unwrap_or_else(|| bytes_of(&inside));
                if inside.lie.get() == Some(Lie::ReadBit) && inside.executor.random(|rng| rng.chance(1, 16)) {
                    bytes[100] ^= 4;
                }
                into.copy_from(&bytes);
                into
            });
            sender.send(result);
        });
        disk.unless_dead(receiver).await
    }
}

impl Device for SimMember {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.0.unless_cut(self.0.read(at.0, into)).await
    }

    fn cut_reads(&self) {
        self.0.hang.cut_reads();
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let op = Op::Write { fua: fua == Fua::Yes };
        if let Some(kind) = self.0.refuse(op, at.0, from.length().0, from.count()) {
            return Err(kind.into());
        }
        self.0.write_bytes(op, at.0, from.to_vec()).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        if self.0.hang.refuses() {
            self.0.report_refusal(Op::Flush, 0, 0);
            return Err(ErrorKind::Gone.into());
        }
        let (wait, fate, _) = self.0.begin(Op::Flush, 0, 0);
        if self.0.hang.is_under_way() {
            return Err(self.0.never_answer(Op::Flush, 0, 0).await);
        }
        let mark = self.0.medium.borrow().flush_mark();
        let (sender, receiver) = oneshot();
        let disk = self.0.clone();
        self.0.executor.after(wait, move || {
            let result = disk.end(Op::Flush, 0, 0, fate);
            if disk.is_liar() {
                // Its cache keeps its state, even if the flush reports an error for once: the cache knows what is not
                // durable.
            } else if result.is_err() {
                disk.executor.random(|rng| disk.medium.borrow_mut().flush_failed(&mark, rng));
            } else if disk.lie.get() != Some(Lie::Flush) {
                disk.medium.borrow_mut().flush(&mark);
            }
            sender.send(result.map_err(|(error, _)| error));
        });
        self.0.unless_dead(receiver).await
    }

    fn mark_dead(&self) {
        self.0.hang.mark_dead();
        if let Some(watch) = &*self.0.watch.borrow() {
            watch.given_up(self.0.index);
        }
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        if let Some(kind) = self.0.refuse(Op::Discard, range.start.0, range.length.0, 0) {
            return Err(kind.into());
        }
        if self.0.geometry.discard_granularity.is_zero() {
            return Err(ErrorKind::Unsupported.into());
        }
        let mut bytes = vec![0; range.length.len_bytes()];
        if !self.0.geometry.fast_holes {
            // Each sector then holds its old bytes, zeroes or garbage.
            let start = range.start.0 as usize * SECTOR_BYTES;
            for (index, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
                match self.0.executor.random(|rng| rng.below(3)) {
                    0 => sector.fill(0xdd),
                    1 => sector.copy_from_slice(
                        &self.0.medium.borrow().current()[start + index * SECTOR_BYTES..][..SECTOR_BYTES],
                    ),
                    _ => {}
                }
            }
        }
        self.0.write_bytes(Op::Discard, range.start.0, bytes).await
    }

    /// Members without fast holes are like disks: they cannot tell.
    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        if !self.0.geometry.fast_holes {
            return Ok(Allocation { length: range.length, is_zero: false });
        }
        let medium = self.0.medium.borrow();
        let stored = &medium.current()[range.start.0 as usize * SECTOR_BYTES..][..range.length.len_bytes()];
        let mut kinds = stored.chunks(SECTOR_BYTES).map(|sector| sector.iter().all(|byte| *byte == 0));
        let first = kinds.next().unwrap_or(false);
        let more = kinds.take_while(|kind| *kind == first).count() as u64;
        Ok(Allocation { length: range.length.min(Sectors(1 + more)), is_zero: first })
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        if let Some(kind) = self.0.refuse(Op::Zeroes, range.start.0, range.length.0, 0) {
            return Err(kind.into());
        }
        self.0.write_bytes(Op::Zeroes, range.start.0, vec![0; range.length.len_bytes()]).await
    }
}
