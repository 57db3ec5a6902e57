//! The thread that asks the arrays, and those that tell them something.
//! Owns: samples at an interval, commands and what became of them. Not here: what is shown (`model`).
//! Invariant: the screen never waits for an array.

use super::mode::Action;
use super::model::Sample;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use uraid_control::client::{self, AllAsked, ClientError};
use uraid_control::{dates, history, log};

/// How long arrays may take to answer. A server waits at most two seconds for slow members.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Entries of the history of each array that are shown.
const EVENTS_MAX: usize = 50;

/// What a thread tells the screen.
pub(super) enum News {
    Sample(Sample),
    /// The arrays could not be asked.
    Failed(String),
    /// A command has ended: what became of it.
    Ended(String),
}

/// Asks all arrays.
pub(super) fn sample(begun: Instant) -> Result<Sample, ClientError> {
    let AllAsked { reports, silent } = client::ask_all(TIME_MAX)?;
    let events = reports.iter().map(|report| (report.uuid.clone(), events(&report.uuid)));
    Ok(Sample {
        at: begun.elapsed(),
        now: dates::now(),
        events: events.collect::<BTreeMap<String, Vec<String>>>(),
        silent: silent.into_iter().map(|unasked| (unasked.name, log::with_causes(&unasked.error))).collect(),
        reports,
    })
}

/// Lines about what happened to an array, the newest last. None, if its history cannot be read: the verb `history` says
/// why.
fn events(uuid: &str) -> Vec<String> {
    let entries = history::read(uuid).unwrap_or_default();
    let last = entries.iter().rev().take(EVENTS_MAX).rev();
    last.map(|entry| format!("{} {}: {}", dates::stamp(entry.time), entry.event, entry.text)).collect()
}

/// Sends a sample at each interval, and at once when `wake` is called; until the screen has gone.
pub(super) fn collect(interval: Duration, wake: &Receiver<()>, news: &Sender<News>) {
    let begun = Instant::now();
    loop {
        let told = match sample(begun) {
            Ok(sample) => News::Sample(sample),
            Err(error) => News::Failed(log::with_causes(&error)),
        };
        if news.send(told).is_err() {
            return;
        }
        match wake.recv_timeout(interval) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Tells an array something; returns what became of it.
pub(super) fn perform(action: &Action) -> String {
    let told = client::find(Some(&action.array), None).and_then(|mut client| client.call(&action.method));
    match told {
        Ok(_) => format!("done: {}", action.words),
        Err(error) => format!("{}: {}", action.words, log::with_causes(&error)),
    }
}
