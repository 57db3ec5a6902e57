//! The events of a run, as one hash and as a short log of the last events.
//! Owns: [`Trace`], [`Event`]. Not here: what the events mean.
//! Invariant: the hash covers every poll, wake, I/O and decision, so equal hashes mean equal runs.

use crate::faults::FaultKind;
use crate::rng::mix;
use std::collections::VecDeque;
use std::fmt;

/// How many events are kept for reading.
const TAIL_MAX: usize = 400;
/// How many lines of a log are printed, from its start and from its end.
const LOG_LINES: (usize, usize) = (60, 30);

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
    fn words(self) -> [u64; 4] {
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

/// The running hash and the last events.
pub struct Trace {
    hash: u64,
    events: u64,
    tail: VecDeque<(u64, Event)>,
    is_verbose: bool,
    log: Option<Vec<(u64, Event)>>,
}

impl Trace {
    /// An empty trace. A verbose one prints every event as it occurs, except polls, wakes and firings.
    pub fn new(is_verbose: bool) -> Trace {
        Trace { hash: 0, events: 0, tail: VecDeque::with_capacity(TAIL_MAX), is_verbose, log: None }
    }

    /// Starts to keep the events that matter to a reader: requests, answers, errors and decisions.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// Adds an event.
    pub fn add(&mut self, now: u64, event: Event) {
        let [a, b, c, d] = event.words();
        let folded = a ^ b.rotate_left(17) ^ c.rotate_left(34) ^ d.rotate_left(51) ^ now.rotate_left(7);
        self.hash = mix(self.hash ^ folded);
        self.events += 1;
        if matches!(event, Event::Poll { .. } | Event::Wake { .. } | Event::Fire { .. }) {
            return;
        }
        if self.is_verbose {
            println!("{:>12} {event}", now / 1000);
        }
        if let Some(log) = &mut self.log {
            match event {
                Event::Request { .. } | Event::Answer { .. } | Event::Note { .. } | Event::Fault { .. } => {
                    log.push((now, event))
                }
                Event::Complete { is_ok: false, .. } => log.push((now, event)),
                Event::Complete { .. } | Event::Poll { .. } | Event::Wake { .. } | Event::Fire { .. } => {}
                Event::Spawn { .. } | Event::Mail { .. } | Event::Submit { .. } => {}
            }
        }
        if self.tail.len() == TAIL_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back((now, event));
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The kept log, one event per line, with the time in microseconds. The middle of a long log is left out.
    pub fn log(&self) -> String {
        let log = self.log.as_deref().unwrap_or_default();
        let (first, last) = LOG_LINES;
        let line = |(now, event): &(u64, Event)| format!("{:>10} {event}\n", now / 1000);
        if log.len() <= first + last {
            return log.iter().map(line).collect();
        }
        let (head, tail) = (&log[..first], &log[log.len() - last..]);
        let left_out = format!("           ... {} more ...\n", log.len() - first - last);
        head.iter().map(line).chain([left_out]).chain(tail.iter().map(line)).collect()
    }

    /// The last events, one per line, with the time in microseconds.
    pub fn tail(&self) -> String {
        self.tail.iter().map(|(now, event)| format!("{:>12} {event}\n", now / 1000)).collect()
    }
}
