//! The faults of one member, as they hit its operations.
//! Owns: [`Fault`], which operation it hits, what counts. Not here: what is planned (`scenario::plan`), latency and answers
//! (`member`).
//! Invariant: a fault counts if it changed a result or a byte, and then once.

use super::{Disk, Op};
use crate::machine::fault_kind::FaultKind;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uraid_block::{ErrorKind, IoError, SECTOR_BYTES};

/// The most unreadable sectors of one round. Seeds use the same number as the limit of read errors, so that a member
/// without other faults is never failed for them.
pub const READ_ERRORS_MAX: u32 = 6;

/// Which operations a fault affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Reads of data.
    Reads,
    /// Writes of data.
    Writes,
    /// Writes of superblocks.
    SuperWrites,
    /// Flushes.
    Flushes,
    /// Anything.
    Any,
}

/// What happens to the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// An error; the operation was not performed.
    Error(ErrorKind),
    /// An error although the operation was performed.
    ErrorAfter(ErrorKind),
    /// This and every later operation of the kind fails.
    ErrorsFromNow(ErrorKind),
    /// The member is gone for good.
    Vanish,
    /// The operation takes this long.
    Hang(Duration),
    /// Nothing is answered from this operation on, until power fails or an hour has passed.
    NeverAnswer,
    /// `ErrorsFromNow` after its first hit.
    StillErrors(ErrorKind),
    /// The member permanently loses this many sectors at its end.
    Shrink(u64),
    /// A write is answered and not performed.
    LoseWrite,
    /// A write is answered and performed one sector further.
    Misdirect,
}

/// A planned fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it hits.
    pub victim: Target,
    /// How many such operations succeed first.
    pub after: u64,
    /// What it does.
    pub effect: Effect,
}

/// Sectors that fail.
#[derive(Default)]
pub(super) struct BadSpots {
    /// Unreadable until they are written, and whether a read has failed on each.
    latent: RefCell<BTreeMap<u64, bool>>,
    /// Reads fail.
    unreadable: RefCell<BTreeSet<u64>>,
    /// Writes fail.
    broken: RefCell<BTreeSet<u64>>,
}

fn has_one(sectors: &RefCell<BTreeSet<u64>>, at: u64, length: u64) -> bool {
    sectors.borrow().range(at..at + length).next().is_some()
}

/// The failed reads of a member since its faults began.
#[derive(Default)]
pub(super) struct ReadErrors {
    all: Cell<u64>,
    /// Those caused by planned faults; the others are caused by unreadable sectors.
    planned: Cell<u64>,
}

impl ReadErrors {
    fn note(&self) {
        self.all.set(self.all.get() + 1);
    }

    fn note_planned(&self, op: Op) {
        if op == Op::Read {
            self.planned.set(self.planned.get() + 1);
        }
    }

    /// Whether the array may fail the member. A member without planned faults has at most [`READ_ERRORS_MAX`]
    /// unreadable sectors, each counted once, so it must stay.
    fn may_be_failed_for(&self) -> bool {
        self.planned.get() > 0 && self.all.get() > u64::from(READ_ERRORS_MAX)
    }

    pub(super) fn forget(&self) {
        self.all.set(0);
        self.planned.set(0);
    }
}

/// The error as a device returns it: a failed read or write has an errno.
pub(super) fn error(kind: ErrorKind) -> IoError {
    const EIO: i32 = 5;
    IoError { kind, os: if kind == ErrorKind::Media { EIO } else { 0 } }
}

impl Disk {
    /// The member's bus has failed: every operation ends with this error until power fails. The error does not count
    /// against the member.
    pub fn fail_bus(&self, kind: ErrorKind) {
        self.bus.set(Some(kind));
    }

    /// The bus has begun to fail: reads of the member do. These count against it.
    pub fn fail_bus_reads(&self) {
        if self.bus.get().is_none() {
            self.add_fault(Fault { victim: Target::Reads, after: 0, effect: Effect::ErrorsFromNow(ErrorKind::Media) });
        }
    }

    /// Sets whether an array fails the member when it is full.
    pub fn set_failed_when_full(&self, is_failed: bool) {
        self.is_failed_when_full.set(is_failed);
    }

    /// Sets whether an array may fail the member for one read error.
    pub fn set_failfast(&self, is_failfast: bool) {
        self.is_failfast.set(is_failfast);
    }

    /// Whether an array may fail the member for one read error.
    pub fn is_failfast(&self) -> bool {
        self.is_failfast.get()
    }

    /// Plans a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// Drops all planned faults.
    pub fn forget_faults(&self) {
        self.bus.set(None);
        self.faults.borrow_mut().clear();
        self.spots.latent.borrow_mut().clear();
    }

    /// Makes sectors unreadable until they are written.
    pub fn add_latent(&self, sectors: impl IntoIterator<Item = u64>) {
        self.spots.latent.borrow_mut().extend(sectors.into_iter().map(|sector| (sector, false)));
    }

    /// Whether a sector cannot be read until it is written.
    pub fn has_latent(&self, sector: u64) -> bool {
        self.spots.latent.borrow().contains_key(&sector)
    }

    /// Makes sectors unreadable, whatever is written to them, until [`Disk::mend`].
    pub fn add_unreadable(&self, sectors: impl IntoIterator<Item = u64>) {
        self.spots.unreadable.borrow_mut().extend(sectors);
    }

    /// Makes every write of these sectors fail until [`Disk::mend`]. Reads return the bytes from before.
    pub fn add_broken(&self, sectors: impl IntoIterator<Item = u64>) {
        self.spots.broken.borrow_mut().extend(sectors);
    }

    /// Ends what [`Disk::add_broken`] and [`Disk::add_unreadable`] began.
    pub fn mend(&self) {
        self.spots.broken.borrow_mut().clear();
        self.spots.unreadable.borrow_mut().clear();
    }

    /// Whether an operation fails because of where it is.
    pub(super) fn is_bad_spot(&self, op: Op, at: u64, length: u64) -> bool {
        match op {
            Op::Read => self.is_latent(at, length) || has_one(&self.spots.unreadable, at, length),
            Op::Write { .. } | Op::Zeroes => has_one(&self.spots.broken, at, length),
            Op::Flush | Op::Discard => false,
        }
    }

    /// A write of these sectors has succeeded.
    pub(super) fn mend_latent(&self, at: u64, length: u64) {
        self.spots.latent.borrow_mut().retain(|sector, _| !(at..at + length).contains(sector));
    }

    pub(super) fn take_fault(&self, op: Op, at: u64) -> Option<Effect> {
        let is_super = at < self.data_start;
        let mut faults = self.faults.borrow_mut();
        let mut hit = None;
        for (index, fault) in faults.iter_mut().enumerate() {
            let is_match = match (fault.victim, op) {
                (Target::Any, Op::Read | Op::Write { .. } | Op::Flush | Op::Discard | Op::Zeroes) => true,
                (Target::Reads, Op::Read) => !is_super,
                (Target::Writes, Op::Write { .. } | Op::Zeroes) => !is_super,
                (Target::SuperWrites, Op::Write { .. } | Op::Zeroes) => is_super,
                (Target::Flushes, Op::Flush) => true,
                (Target::Reads | Target::Writes | Target::SuperWrites | Target::Flushes, _) => false,
            };
            if !is_match || hit.is_some() {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            hit = Some((index, fault.effect));
        }
        let (index, effect) = hit?;
        match effect {
            Effect::ErrorsFromNow(kind) => faults[index].effect = Effect::StillErrors(kind),
            Effect::StillErrors(_) => {
                self.read_errors.note_planned(op);
                return Some(effect);
            }
            Effect::Error(_) | Effect::ErrorAfter(_) | Effect::Vanish | Effect::Hang(_) | Effect::NeverAnswer => {
                faults.remove(index);
            }
            Effect::Shrink(_) | Effect::LoseWrite | Effect::Misdirect => {
                faults.remove(index);
            }
        }
        drop(faults);
        if let Effect::Error(_) | Effect::ErrorAfter(_) | Effect::ErrorsFromNow(_) = effect {
            self.read_errors.note_planned(op);
        }
        self.count_effect(op, is_super, effect);
        Some(effect)
    }

    fn count_effect(&self, op: Op, is_super: bool, effect: Effect) {
        let of_error = match op {
            Op::Read => FaultKind::ReadError,
            Op::Write { .. } | Op::Zeroes | Op::Discard if is_super => FaultKind::SuperError,
            Op::Write { .. } | Op::Zeroes | Op::Discard => FaultKind::WriteError,
            Op::Flush => FaultKind::FlushError,
        };
        match effect {
            Effect::Error(kind) | Effect::ErrorAfter(kind) | Effect::ErrorsFromNow(kind) => {
                self.count(if kind == ErrorKind::NoSpace { FaultKind::NoSpace } else { of_error });
            }
            Effect::Vanish => self.count(FaultKind::Vanish),
            Effect::NeverAnswer => self.count(FaultKind::NeverAnswers),
            // A lost or misdirected write counts when it changes a byte. A smaller member counts when a lost sector is
            // accessed. A delay never counts.
            Effect::Hang(_) | Effect::StillErrors(_) | Effect::LoseWrite | Effect::Misdirect | Effect::Shrink(_) => {}
        }
    }

    /// Whether the operation exceeds the end of a member that became smaller.
    pub(super) fn cut_off(&self, op: Op, at: u64, length: u64) -> bool {
        let is_beyond = op != Op::Flush && at + length > self.size_now();
        if is_beyond && self.hits.borrow()[FaultKind::Shrink as usize] == 0 {
            self.count(FaultKind::Shrink);
        }
        is_beyond
    }

    /// Where a write is performed under this effect, if anywhere.
    pub(super) fn divert(&self, effect: Option<Effect>, at: u64, bytes: &[u8]) -> Option<u64> {
        let length = (bytes.len() / SECTOR_BYTES) as u64;
        let corrupt = |from: u64| {
            if let Some(watch) = &*self.watch.borrow() {
                watch.corrupted(self.index, from, length);
            }
        };
        if effect == Some(Effect::LoseWrite) {
            corrupt(at);
            let range = at as usize * SECTOR_BYTES..(at + length) as usize * SECTOR_BYTES;
            if self.medium.borrow().current()[range] != *bytes {
                self.count(FaultKind::LostWrite);
            }
            return None;
        }
        if effect == Some(Effect::Misdirect) && at + length < self.size_now() {
            corrupt(at);
            corrupt(at + 1);
            self.count(FaultKind::Misdirected);
            return Some(at + 1);
        }
        Some(at)
    }

    /// Whether a sector of the range is unreadable; each one counts once.
    fn is_latent(&self, at: u64, length: u64) -> bool {
        let fresh: Vec<u64> = (self.spots.latent.borrow().range(at..at + length)).map(|(sector, _)| *sector).collect();
        for sector in &fresh {
            if !self.spots.latent.borrow_mut().insert(*sector, true).unwrap_or(true) {
                self.count(FaultKind::Unreadable);
            }
        }
        !fresh.is_empty()
    }

    /// Records an error of the member, unless the error does not count against the member.
    pub(super) fn note_error(&self, op: Op, kind: ErrorKind) {
        if self.bus.get().is_some() {
            if self.hits.borrow()[FaultKind::Bus as usize] == 0 {
                self.count(FaultKind::Bus);
            }
            return;
        }
        if op == Op::Read && kind == ErrorKind::Media {
            self.read_errors.note();
            if self.read_errors.may_be_failed_for() {
                self.may_be_failed.set(true);
            }
        }
        let is_mild = match op {
            Op::Read => kind != ErrorKind::Gone && !self.is_failfast.get(),
            Op::Discard => kind != ErrorKind::Gone,
            Op::Write { .. } | Op::Zeroes => kind == ErrorKind::NoSpace && !self.is_failed_when_full.get(),
            Op::Flush => false,
        };
        if !is_mild {
            self.may_be_failed.set(true);
        }
        // A flush that found no space freezes the array, whatever is done with members that are full. A read is answered
        // with what the last member that could give it said, also one with failfast.
        if kind == ErrorKind::NoSpace && (is_mild || matches!(op, Op::Flush | Op::Read)) {
            self.has_no_space.set(true);
        }
    }
}
