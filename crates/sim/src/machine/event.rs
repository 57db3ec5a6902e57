//! One event of a run.
//! Owns: [`Event`], its text, its words in the hash. Not here: the hash and the log (`trace`), what an event means.

use crate::machine::fault_kind::FaultKind;
use std::fmt;

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A task was polled.
    Poll {
        /// Its number.
        task: u64,
    },
    /// A task was woken.
    Wake {
        /// Its number.
        task: u64,
    },
    /// A task was started.
    Spawn {
        /// Its number.
        task: u64,
        /// Where.
        shard: u16,
    },
    /// A timer or completion fired.
    Fire {
        /// Its number.
        event: u64,
    },
    /// Mail arrived.
    Mail {
        /// From this shard.
        from: u16,
        /// At this shard.
        to: u16,
    },
    /// A member I/O was submitted.
    Submit {
        /// The member.
        disk: u16,
        /// The operation: r, w, W (FUA), f, d, z.
        op: char,
        /// First sector.
        at: u64,
        /// Sectors.
        length: u64,
    },
    /// A member I/O was completed.
    Complete {
        /// The member.
        disk: u16,
        /// The operation: r, w, W (FUA), f, d, z.
        op: char,
        /// First sector.
        at: u64,
        /// Sectors.
        length: u64,
        /// Whether it went well.
        is_ok: bool,
    },
    /// A client sent a request.
    Request {
        /// The operation's number.
        op: u64,
        /// The operation, as the client names it.
        kind: char,
        /// First sector.
        at: u64,
        /// Sectors.
        length: u64,
    },
    /// A client was answered.
    Answer {
        /// The operation's number.
        op: u64,
        /// Whether it went well.
        is_ok: bool,
    },
    /// A fault has hit a member.
    Fault {
        /// The member.
        disk: u16,
        /// What.
        kind: FaultKind,
    },
    /// Any other decision, by name.
    Note {
        /// The decision.
        what: &'static str,
        /// A number that belongs to it.
        value: u64,
    },
}

impl Event {
    pub(crate) fn words(self) -> [u64; 4] {
        match self {
            Event::Poll { task } => [1, task, 0, 0],
            Event::Wake { task } => [2, task, 0, 0],
            Event::Spawn { task, shard } => [3, task, u64::from(shard), 0],
            Event::Fire { event } => [4, event, 0, 0],
            Event::Mail { from, to } => [5, u64::from(from), u64::from(to), 0],
            Event::Submit { disk, op, at, length } => [6 | (u64::from(disk) << 8), op as u64, at, length],
            Event::Complete { disk, op, at, length, is_ok } => {
                [7 | (u64::from(disk) << 8) | (u64::from(is_ok) << 32), op as u64, at, length]
            }
            Event::Request { op, kind, at, length } => [8 | ((kind as u64) << 8), op, at, length],
            Event::Answer { op, is_ok } => [9, op, u64::from(is_ok), 0],
            Event::Fault { disk, kind } => [11, u64::from(disk), kind as u64, 0],
            Event::Note { what, value } => {
                let name = what.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
                [10, name, value, 0]
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Poll { task } => write!(out, "poll task {task}"),
            Event::Wake { task } => write!(out, "wake task {task}"),
            Event::Spawn { task, shard } => write!(out, "spawn task {task} on shard {shard}"),
            Event::Fire { event } => write!(out, "fire {event}"),
            Event::Mail { from, to } => write!(out, "mail {from} -> {to}"),
            Event::Submit { disk, op, at, length } => write!(out, "disk {disk} <- {op} {at}+{length}"),
            Event::Complete { disk, op, at, length, is_ok } => {
                write!(out, "disk {disk} -> {op} {at}+{length} {}", if *is_ok { "ok" } else { "ERROR" })
            }
            Event::Request { op, kind, at, length } => write!(out, "CLIENT op {op}: {kind} {at}+{length}"),
            Event::Answer { op, is_ok } => {
                write!(out, "CLIENT op {op} answered {}", if *is_ok { "ok" } else { "ERROR" })
            }
            Event::Fault { disk, kind } => write!(out, "-- disk {disk}: {kind:?}"),
            Event::Note { what, value } => write!(out, "-- {what} {value}"),
        }
    }
}
