//! Asks the system about a path that may not answer because its file server or drive hangs.
//! Owns: the waiting thread, the message on stderr, the time limit, and the list of paths that never answered (the
//! kernel does not end a process while one of its threads waits for a file server). Not here: the questions.
//! Invariant: the main thread waits only for a channel, so a signal still ends the process. A path that timed out is
//! not asked about again, because each question would occupy one more thread.

use crate::log::warn;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use uraid_host::Local;

/// After this time the path is named on stderr.
pub const NAMED_AFTER: Duration = Duration::from_secs(2);
/// The time limit for a path if no option sets one: the default of --member-timeout.
pub const TIME_MAX: Duration = Duration::from_secs(30);
/// How often a task that must not wait looks for its answer.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The stack of the waiting thread. It is enough to read a superblock: superblocks and bad-block lists are on the heap.
const STACK_BYTES: usize = 512 << 10;

/// The paths that timed out, each with the thread that still waits for it.
static GIVEN_UP: Mutex<BTreeMap<String, JoinHandle<()>>> = Mutex::new(BTreeMap::new());

/// A path did not answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: it did not answer within {after:?}: check its file server or drive, or leave it out")]
pub struct NoAnswer {
    /// The path.
    pub path: String,
    /// How long it was waited for.
    pub after: Duration,
}

/// Runs `question`, which accesses `path`, on a separate thread, and waits for at most `time_max`; `None`: without a
/// limit.
pub fn ask<T: Send + 'static>(
    path: &str,
    time_max: Option<Duration>,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    ask_advising(path, time_max, "", question)
}

/// As [`ask`]; the line on stderr ends with `advice`.
pub fn ask_advising<T: Send + 'static>(
    path: &str,
    time_max: Option<Duration>,
    advice: &str,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    let no_answer = || NoAnswer { path: path.to_owned(), after: time_max.unwrap_or_default() };
    if given_up(|paths| paths.contains_key(path)) {
        return Err(no_answer());
    }
    let question = Arc::new(Mutex::new(Some(question)));
    let (sender, answer) = mpsc::channel();
    let asked = question.clone();
    let body = move || {
        let question = asked.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it is asked once");
        // After the time limit the receiver is gone.
        let _ = sender.send(question());
    };
    let Ok(helper) = thread::Builder::new().name("uraid-open".to_owned()).stack_size(STACK_BYTES).spawn(body) else {
        // No thread could be started, so this one asks.
        let question =
            question.lock().unwrap_or_else(PoisonError::into_inner).take().expect("the thread was not started");
        return Ok(question());
    };
    let answer = match time_max {
        Some(time_max) if time_max <= NAMED_AFTER => answer.recv_timeout(time_max),
        Some(_) | None => answer.recv_timeout(NAMED_AFTER).or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(error),
            RecvTimeoutError::Timeout => {
                let bound = time_max.map_or("without a limit".to_owned(), |time| format!("for up to {time:?}"));
                warn(&format!("{path}: it does not answer; waiting {bound}{advice}"));
                match time_max {
                    Some(time_max) => answer.recv_timeout(time_max - NAMED_AFTER),
                    None => answer.recv().map_err(|_| RecvTimeoutError::Disconnected),
                }
            }
        }),
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(RecvTimeoutError::Timeout) => {
            given_up(|paths| paths.insert(path.to_owned(), helper));
            Err(no_answer())
        }
        Err(RecvTimeoutError::Disconnected) => resume_unwind(helper.join().expect_err("it ended without an answer")),
    }
}

/// As [`ask`], for a task that must not block its thread. The answer may be that of a path which has changed meanwhile.
pub async fn ask_beside<T: Send + 'static>(
    local: &Local,
    path: &str,
    time_max: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    let no_answer = || NoAnswer { path: path.to_owned(), after: time_max };
    let mut is_named = false;
    let (sender, answer) = mpsc::channel();
    let body = move || drop(sender.send(question()));
    let started = thread::Builder::new().name("uraid-open".to_owned()).stack_size(STACK_BYTES).spawn(body);
    let begun = local.now();
    while started.is_ok() && local.now().since(begun) < time_max {
        if !is_named && local.now().since(begun) >= NAMED_AFTER {
            is_named = true;
            warn(&format!("{path}: it does not answer; waiting for up to {time_max:?}"));
        }
        match answer.try_recv() {
            Ok(answer) => return Ok(answer),
            Err(TryRecvError::Empty) => local.sleep(LOOK_EVERY).await,
            Err(TryRecvError::Disconnected) => break,
        }
    }
    Err(no_answer())
}

/// How long the next path waits for the answer of the one before. One that answers mostly does so sooner.
const PATIENCE: Duration = Duration::from_millis(100);

/// Questions about several paths, of which those that do not answer delay no other one.
pub struct Questions<T>(BTreeMap<String, Pending<T>>);

struct Pending<T> {
    answer: Receiver<T>,
    helper: JoinHandle<()>,
    since: Instant,
    is_named: bool,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Questions(BTreeMap::new())
    }
}

impl<T: Send + 'static> Questions<T> {
    /// The answer about this path, if it comes soon. A path whose last question is not answered yet is not asked again:
    /// the answer to that counts.
    pub fn ask(&mut self, path: &str, question: impl FnOnce() -> T + Send + 'static) -> io::Result<Option<T>> {
        let pending = match self.0.entry(path.to_owned()) {
            Entry::Occupied(pending) => pending,
            Entry::Vacant(place) => {
                let (sender, answer) = mpsc::channel();
                let body = move || drop(sender.send(question()));
                let helper =
                    thread::Builder::new().name("uraid-open".to_owned()).stack_size(STACK_BYTES).spawn(body)?;
                place.insert_entry(Pending { answer, helper, since: Instant::now(), is_named: false })
            }
        };
        // Only a new question is waited for: the others have had their time.
        let patience = PATIENCE.saturating_sub(pending.get().since.elapsed());
        match pending.get().answer.recv_timeout(patience) {
            Ok(answer) => {
                pending.remove();
                Ok(Some(answer))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                resume_unwind(pending.remove().helper.join().expect_err("it ended without an answer"))
            }
        }
    }

    /// Names each path on stderr that has not answered for a while, once. `bound`: how long it is waited for.
    pub fn name_late(&mut self, bound: &str) {
        for (path, pending) in &mut self.0 {
            if !pending.is_named && pending.since.elapsed() >= NAMED_AFTER {
                pending.is_named = true;
                warn(&format!("{path}: it does not answer; waiting {bound}"));
            }
        }
    }

    /// How long the path waits that was asked last; `None`: all have answered.
    pub fn waits(&self) -> Option<Duration> {
        self.0.values().map(|pending| pending.since.elapsed()).min()
    }

    /// Asks no more: the paths that have not answered, each with the time that it was waited for.
    pub fn give_up(self) -> Vec<NoAnswer> {
        let no_answer = |(path, Pending { helper, since, .. }): (String, Pending<T>)| {
            given_up(|paths| paths.insert(path.clone(), helper));
            NoAnswer { path, after: Duration::from_secs(since.elapsed().as_secs()) }
        };
        self.0.into_iter().map(no_answer).collect()
    }
}

/// The paths that were given up and have not answered since.
pub fn unanswered() -> Vec<String> {
    let is_silent = |(path, helper): (&String, &JoinHandle<()>)| (!helper.is_finished()).then(|| path.clone());
    given_up(|paths| paths.iter().filter_map(is_silent).collect())
}

fn given_up<T>(look: impl FnOnce(&mut BTreeMap<String, JoinHandle<()>>) -> T) -> T {
    look(&mut GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_given_up_once_and_not_asked_again() {
        assert_eq!(ask("answers", Some(TIME_MAX), || 7), Ok(7));
        let (release, held) = mpsc::channel::<()>();
        let after = Duration::from_millis(20);
        let outcome = ask("hangs", Some(after), move || {
            let _ = held.recv();
        });
        assert_eq!(outcome, Err(NoAnswer { path: "hangs".to_owned(), after }));
        let outcome = ask("hangs", Some(TIME_MAX), || panic!("it is not asked again"));
        assert!(
            outcome.is_err_and(|error: NoAnswer| error.to_string().starts_with("hangs: it did not answer within "))
        );
        drop(release);
    }

    #[test]
    fn a_question_that_panics_panics_here() {
        let outcome = std::panic::catch_unwind(|| ask("panics", None, || panic!("on purpose")));
        assert!(outcome.is_err());
    }
}
