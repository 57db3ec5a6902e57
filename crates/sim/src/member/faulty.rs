//! Faults of one member as they come true.
//! Owns: [`Fault`], which operation it hits, what counts. Not here: what is planned (`faults`), latency and answers
//! (`member`).
//! Invariant: a fault counts when it changed a result or a byte, and once.

use super::{Disk, Op};
use crate::faults::{FaultKind, READ_ERRORS_MAX};
use std::cell::Cell;
use std::time::Duration;
use uraid_block::{ErrorKind, IoError, SECTOR_BYTES};

/// Which operations a fault is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
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

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// An error, nothing done.
    Error(ErrorKind),
    /// An error although it was done.
    ErrorAfter(ErrorKind),
    /// This and every later operation of the kind fails.
    ErrorsFromNow(ErrorKind),
    /// The member is gone for good.
    Vanish,
    /// It takes this long.
    Hang(Duration),
    /// Nothing is answered from this operation on, until power fails or an hour has passed.
    NeverAnswer,
    /// As `ErrorsFromNow`, which it becomes after its first hit.
    StillErrors(ErrorKind),
    /// The member loses this many sectors at its end, for good.
    Shrink(u64),
    /// A write is answered and not done.
    LoseWrite,
    /// A write is answered and lands one sector further.
    Misdirect,
}

/// A planned fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it hits.
    pub victim: Victim,
    /// How many such operations succeed first.
    pub after: u64,
    /// What it does.
    pub effect: Effect,
}

/// Failed reads of a member since its faults began.
#[derive(Default)]
pub(super) struct ReadErrors {
    all: Cell<u64>,
    /// Those of planned faults; the others are of unreadable sectors.
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

    /// A member without planned faults has at most [`READ_ERRORS_MAX`] unreadable sectors, each of which counts once, so it
    /// must stay.
    fn may_cost_the_place(&self) -> bool {
        self.planned.get() > 0 && self.all.get() > u64::from(READ_ERRORS_MAX)
    }

    pub(super) fn forget(&self) {
        self.all.set(0);
        self.planned.set(0);
    }
}

/// The error as a device gives it: what it could not read or write has an errno.
pub(super) fn error(kind: ErrorKind) -> IoError {
    const EIO: i32 = 5;
    IoError { kind, os: if kind == ErrorKind::Media { EIO } else { 0 } }
}

impl Disk {
    /// What it hangs on has failed: everything ends with this error, until power fails. It is not the member's fault.
    pub fn take_bus_away(&self, kind: ErrorKind) {
        self.bus.set(Some(kind));
    }

    /// An array fails it when it is full.
    pub fn set_failed_when_full(&self, is_failed: bool) {
        self.is_failed_when_full.set(is_failed);
    }

    /// Plans a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// No planned fault is left.
    pub fn forget_faults(&self) {
        self.bus.set(None);
        self.faults.borrow_mut().clear();
        self.latent.borrow_mut().clear();
    }

    pub(super) fn take_fault(&self, op: Op, at: u64) -> Option<Effect> {
        let is_super = at < self.data_start;
        let mut faults = self.faults.borrow_mut();
        let mut hit = None;
        for (index, fault) in faults.iter_mut().enumerate() {
            let is_match = match (fault.victim, op) {
                (Victim::Any, Op::Read | Op::Write { .. } | Op::Flush | Op::Discard | Op::Zeroes) => true,
                (Victim::Reads, Op::Read) => !is_super,
                (Victim::Writes, Op::Write { .. } | Op::Zeroes) => !is_super,
                (Victim::SuperWrites, Op::Write { .. } | Op::Zeroes) => is_super,
                (Victim::Flushes, Op::Flush) => true,
                (Victim::Reads | Victim::Writes | Victim::SuperWrites | Victim::Flushes, _) => false,
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
            // A write that is lost or lands elsewhere counts when that changes a byte; a smaller member, when it is
            // asked for what it has lost; a delay, never.
            Effect::Hang(_) | Effect::StillErrors(_) | Effect::LoseWrite | Effect::Misdirect | Effect::Shrink(_) => {}
        }
    }

    /// What lies beyond the end of a member that became smaller fails.
    pub(super) fn cut_off(&self, op: Op, at: u64, length: u64) -> bool {
        let is_beyond = op != Op::Flush && at + length > self.size_now();
        if is_beyond && self.hits.borrow()[FaultKind::Shrink as usize] == 0 {
            self.count(FaultKind::Shrink);
        }
        is_beyond
    }

    /// Where a write lands with this fault, if anywhere.
    pub(super) fn divert(&self, effect: Option<Effect>, at: u64, bytes: &[u8]) -> Option<u64> {
        let length = (bytes.len() / SECTOR_BYTES) as u64;
        let spoil = |from: u64| {
            if let Some(watch) = &*self.watch.borrow() {
                watch.spoilt(self.index, from, length);
            }
        };
        if effect == Some(Effect::LoseWrite) {
            spoil(at);
            let range = at as usize * SECTOR_BYTES..(at + length) as usize * SECTOR_BYTES;
            if self.medium.borrow().current()[range] != *bytes {
                self.count(FaultKind::LostWrite);
            }
            return None;
        }
        if effect == Some(Effect::Misdirect) && at + length < self.size_now() {
            spoil(at);
            spoil(at + 1);
            self.count(FaultKind::Misdirected);
            return Some(at + 1);
        }
        Some(at)
    }

    /// Whether a sector of the range is unreadable; each counts once.
    pub(super) fn is_latent(&self, at: u64, length: u64) -> bool {
        let fresh: Vec<u64> = (self.latent.borrow().range(at..at + length)).map(|(sector, _)| *sector).collect();
        for sector in &fresh {
            if !self.latent.borrow_mut().insert(*sector, true).unwrap_or(true) {
                self.count(FaultKind::Unreadable);
            }
        }
        !fresh.is_empty()
    }

    /// The consequence of an error for the member: some errors do not count against it.
    pub(super) fn note_error(&self, op: Op, kind: ErrorKind) {
        if self.bus.get().is_some() {
            if self.hits.borrow()[FaultKind::Bus as usize] == 0 {
                self.count(FaultKind::Bus);
            }
            return;
        }
        if op == Op::Read && kind == ErrorKind::Media {
            self.read_errors.note();
            if self.read_errors.may_cost_the_place() {
                self.is_hurt.set(true);
            }
        }
        let is_mild = match op {
            Op::Read | Op::Discard => kind != ErrorKind::Gone,
            Op::Write { .. } | Op::Zeroes => kind == ErrorKind::NoSpace && !self.is_failed_when_full.get(),
            Op::Flush => false,
        };
        if !is_mild {
            self.is_hurt.set(true);
        } else if kind == ErrorKind::NoSpace {
            self.has_no_space.set(true);
        }
    }
}
