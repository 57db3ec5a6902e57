//! The thread of a server that writes the history.
//! Owns: the bounded queue, the thread, what is done when the disk is full, the place of each array's record of checks.
//! Not here: the files (`file`).
//! Invariant: no lock is held during a system call on a file, so nobody who notes an entry waits for a disk. What cannot be
//! written is tried again, and what has no room in the queue is counted. Without [`begin`], nothing is written.

use super::file::{self, append, read_checks};
use super::{Actor, Entry, Event};
use crate::log::{warn, with_causes};
use crate::protocol::CheckRecord;
use crate::state;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use uraid_host::drop_privileges;

/// Entries that may wait to be written.
const ENTRIES_MAX: usize = 1024;
/// How long after a failure the next try is.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long the process waits at its end for pending entries.
const FINISH_TIME_MAX: Duration = Duration::from_secs(1);

static WRITER: OnceLock<&'static Writer> = OnceLock::new();

/// The record of the checks of one array; `None` until it is read.
pub type CheckPlace = Arc<Mutex<Option<CheckRecord>>>;

#[derive(Default)]
struct Writer {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    entries: VecDeque<Entry>,
    /// Entries of each array that had no room, by UUID, with its name.
    lost: BTreeMap<String, (String, u64)>,
    /// By UUID.
    checks: BTreeMap<String, CheckRecord>,
    to_load: Vec<(String, CheckPlace)>,
    is_writing: bool,
    /// Why the last try failed.
    error: Option<String>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lost.is_empty() && self.checks.is_empty() && self.to_load.is_empty()
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push_back(entry);
        } else {
            self.lost.entry(entry.uuid).or_insert((entry.array, 0)).1 += 1;
        }
    }
}

impl Writer {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_for_ever(&self) {
        loop {
            let mut pending = self
                .changed
                .wait_while(self.lock(), |pending| pending.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            let mut work = Pending {
                entries: std::mem::take(&mut pending.entries),
                lost: std::mem::take(&mut pending.lost),
                checks: std::mem::take(&mut pending.checks),
                to_load: std::mem::take(&mut pending.to_load),
                ..Pending::default()
            };
            pending.is_writing = true;
            drop(pending);
            let outcome = work.write();
            let mut pending = self.lock();
            pending.is_writing = false;
            let before = pending.error.take();
            pending.error = outcome.err();
            let (is_new, is_over) = (before.is_none(), before.is_some() && pending.error.is_none());
            let error = pending.error.clone();
            pending.put_back(work);
            drop(pending);
            self.changed.notify_all();
            match error {
                Some(error) => {
                    if is_new {
                        warn(&format!("the history is not written: {error}; arrays go on, and it is tried again"));
                    }
                    std::thread::sleep(RETRY_AFTER);
                }
                None if is_over => warn("the history is written again"),
                None => {}
            }
        }
    }

    /// Waits until everything is written, at most until `end`; not for a disk that took nothing before.
    fn finish(&self, end: Instant) {
        let time = end.saturating_duration_since(Instant::now());
        let has_more = |pending: &mut Pending| pending.error.is_none() && (pending.is_writing || !pending.is_empty());
        let _ = self.changed.wait_timeout_while(self.lock(), time, has_more);
    }
}

impl Pending {
    /// Writes what it can; what is left stays in it.
    fn write(&mut self) -> Result<(), String> {
        for (uuid, place) in self.to_load.drain(..) {
            let record = read_checks(&uuid).unwrap_or_else(|error| {
                warn(&format!("the record of checks is begun anew: {}", with_causes(&error)));
                CheckRecord::default()
            });
            place.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(after_start(record));
        }
        if self.is_empty() {
            return Ok(());
        }
        let directory = state::make().map_err(|error| with_causes(&error))?;
        self.write_entries(&directory)?;
        while let Some((uuid, record)) = self.checks.pop_first() {
            if let Err(error) = file::write_checks(&directory, &uuid, &record) {
                self.checks.insert(uuid, record);
                return Err(in_directory(&directory, &error));
            }
        }
        Ok(())
    }

    fn write_entries(&mut self, directory: &Path) -> Result<(), String> {
        while let Some(first) = self.entries.front() {
            let uuid = first.uuid.clone();
            let count = self.entries.iter().take_while(|entry| entry.uuid == uuid).count();
            let batch: Vec<Entry> = self.entries.iter().take(count).cloned().collect();
            append(directory, &uuid, &batch).map_err(|error| in_directory(directory, &error))?;
            self.entries.drain(..count);
        }
        while let Some((uuid, (array, count))) = self.lost.pop_first() {
            let text = format!("{count} entries are missing here: they could not be written in time");
            let entry = Entry::new(&array, &uuid, Event::Lost, Actor::Engine, text).with("count", count);
            if let Err(error) = append(directory, &uuid, &[entry]) {
                self.lost.insert(uuid, (array, count));
                return Err(in_directory(directory, &error));
            }
        }
        Ok(())
    }

    /// What is left of the last work comes before what has come since.
    fn put_back(&mut self, left: Pending) {
        let newer = std::mem::replace(&mut self.entries, left.entries);
        newer.into_iter().for_each(|entry| self.push(entry));
        for (uuid, (array, count)) in left.lost {
            self.lost.entry(uuid).or_insert((array, 0)).1 += count;
        }
        for (uuid, record) in left.checks {
            self.checks.entry(uuid).or_insert(record);
        }
    }
}

/// A check that ran when the record was kept last has not ended by itself.
fn after_start(mut record: CheckRecord) -> CheckRecord {
    if let Some(partial) = record.partial.as_mut().filter(|partial| partial.result.end == "running") {
        "interrupted".clone_into(&mut partial.result.end);
    }
    record
}

fn in_directory(directory: &Path, error: &std::io::Error) -> String {
    format!("{}: {}", directory.display(), uraid_host::io_text(error))
}

/// Starts the thread. If none can be started, there is no history, which is said.
pub fn begin() {
    // Leaked: the thread uses it until the process ends.
    let writer: &'static Writer = Box::leak(Box::default());
    let started = std::thread::Builder::new().name("uraid-history".to_owned()).spawn(move || {
        // This thread needs no privileges. If they cannot be dropped, the main thread reports that.
        let _ = drop_privileges();
        writer.write_for_ever();
    });
    match started {
        Ok(_) => {
            let is_first = WRITER.set(writer).is_ok();
            assert!(is_first, "the history begins once");
        }
        Err(error) => warn(&format!("the history is not written: no thread: {}", uraid_host::io_text(&error))),
    }
}

/// Notes an entry; returns at once.
pub fn note(entry: Entry) {
    let Some(writer) = WRITER.get() else { return };
    writer.lock().push(entry);
    writer.changed.notify_all();
}

/// The record of checks of an array, which is read by the thread.
pub fn checks_of(uuid: &str) -> CheckPlace {
    let place = CheckPlace::default();
    match WRITER.get() {
        Some(writer) => {
            writer.lock().to_load.push((uuid.to_owned(), place.clone()));
            writer.changed.notify_all();
        }
        // Nothing is kept: it is empty.
        None => *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(CheckRecord::default()),
    }
    place
}

/// Keeps the record of checks of an array; returns at once.
pub fn save_checks(uuid: &str, record: CheckRecord) {
    let Some(writer) = WRITER.get() else { return };
    writer.lock().checks.insert(uuid.to_owned(), record);
    writer.changed.notify_all();
}

/// Why the history is not written now; `None`: it is.
pub fn error() -> Option<String> {
    WRITER.get().and_then(|writer| writer.lock().error.clone())
}

/// Waits briefly for pending entries.
pub fn finish() {
    if let Some(writer) = WRITER.get() {
        writer.finish(Instant::now() + FINISH_TIME_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(uuid: &str, n: usize) -> Entry {
        Entry::new(uuid, uuid, Event::Command, Actor::Engine, n.to_string())
    }

    #[test]
    fn what_has_no_room_is_counted_and_what_was_left_comes_first() {
        let mut pending = Pending::default();
        (0..ENTRIES_MAX + 3).for_each(|n| pending.push(entry("a", n)));
        pending.push(entry("b", 0));
        assert_eq!(pending.entries.len(), ENTRIES_MAX);
        assert_eq!(
            pending.lost.iter().map(|(uuid, (_, count))| (uuid.as_str(), *count)).collect::<Vec<_>>(),
            [("a", 3), ("b", 1)]
        );
        // A disk took nothing of two entries, and one has come meanwhile.
        let mut left = Pending::default();
        (0..2).for_each(|n| left.push(entry("a", n)));
        let mut now = Pending::default();
        now.push(entry("a", 2));
        now.put_back(left);
        assert_eq!(now.entries.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
    }

    #[test]
    fn a_check_that_was_cut_off_is_called_so() {
        let text = r#"{"partial":{"began":1,"ended":2,"seconds":1,"result":{"array":"a","kind":"check","end":"running","done":8,
            "total":16,"mismatched":0,"corrected":0,"healed":0,"skipped":0,"unreadable":0}}}"#;
        let record: CheckRecord = serde_json::from_str(text).expect("a record");
        let partial = after_start(record).partial.expect("kept");
        assert_eq!((partial.result.end.as_str(), partial.result.done), ("interrupted", 8));
    }
}
