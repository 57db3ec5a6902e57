//! The events of a run, as one hash and as a short log of the last events.
//! Owns: [`Trace`]. Not here: the events (`event`).
//! Invariant: the hash covers every poll, wake, I/O and decision, so equal hashes mean equal runs.

use crate::machine::event::Event;
use crate::random::rng::mix;
use std::collections::VecDeque;

/// How many events are kept for reading.
const TAIL_MAX: usize = 400;
/// How many lines of a log are printed, from its start and from its end.
const LOG_LINES: (usize, usize) = (60, 30);

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
