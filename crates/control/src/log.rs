//! The log of `serve`: lines on stderr that no server thread waits for.
//! Owns: the bounded queue of each output, the thread that writes it, the time or the journal's priority before a line,
//! reports of lost lines; an error as one line. Not here: what is logged.
//! Invariant: no lock is held during a system call, so no thread waits for a slow reader of the log. A line that does
//! not fit into the queue is lost and counted. Before [`begin`], and in all other subcommands, lines are written at
//! once.

use crate::words::dates;
use crate::words::names;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use uraid_host::drop_privileges;

/// Bytes that may wait to be written. A longer line fits only into an empty queue.
const QUEUE_BYTES_MAX: usize = 256 << 10;
/// How long a line on stdout waits for the lines on stderr that came before it.
const ORDER_TIME_MAX: Duration = Duration::from_millis(200);
/// How long the process waits at its end for pending lines.
const FINISH_TIME_MAX: Duration = Duration::from_secs(1);

/// Some output could not be printed.
static PRINT_FAILED: AtomicBool = AtomicBool::new(false);
static OUTPUTS: OnceLock<&'static Outputs> = OnceLock::new();
/// Whether lines begin with the time.
static HAS_TIME: AtomicBool = AtomicBool::new(false);
/// Whether stderr is the journal, which takes a line's priority from its beginning.
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(is_journal);

/// How much a line matters: a level of syslog(3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 5,
}

struct Outputs {
    stderr: Queue,
    stdout: Queue,
}

/// The pending lines of one output.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Lines lost since the last entry.
    lost: u64,
    is_writing: bool,
    /// The last write failed: lost lines are reported after one that succeeds.
    is_broken: bool,
}

#[derive(PartialEq, Eq, Debug)]
enum Entry {
    Text(String),
    /// The count of lines that were lost here.
    Lost(u64),
    /// Of stdout: nothing more is printed.
    Leave,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, text: String) {
        self.lock().push(text, QUEUE_BYTES_MAX);
        self.changed.notify_all();
    }

    /// Writes entries for ever.
    fn write_all(&self, mut write: impl FnMut(Entry) -> bool) {
        loop {
            let mut state =
                self.changed.wait_while(self.lock(), |state| !state.is_due()).unwrap_or_else(PoisonError::into_inner);
            let Some(entry) = state.take() else { continue };
            let lines = entry.lines();
            state.is_writing = true;
            drop(state);
            let is_written = write(entry);
            let mut state = self.lock();
            state.is_writing = false;
            state.is_broken = !is_written;
            state.lost += if is_written { 0 } else { lines };
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written, at most until `end`.
    fn finish(&self, end: Instant) {
        let time = end.saturating_duration_since(Instant::now());
        let has_more = |state: &mut State| state.is_writing || state.is_due();
        // Lines that are not written by then are lost.
        let _ = self.changed.wait_timeout_while(self.lock(), time, has_more);
    }
}

impl State {
    fn push(&mut self, text: String, bytes_max: usize) {
        if self.bytes > 0 && self.bytes + text.len() > bytes_max {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            self.entries.push_back(Entry::Lost(std::mem::take(&mut self.lost)));
        }
        self.bytes += text.len();
        self.entries.push_back(Entry::Text(text));
    }

    fn is_due(&self) -> bool {
        !self.entries.is_empty() || (self.lost > 0 && !self.is_broken)
    }

    fn take(&mut self) -> Option<Entry> {
        if let Some(entry) = self.entries.pop_front() {
            if let Entry::Text(text) = &entry {
                self.bytes -= text.len();
            }
            return Some(entry);
        }
        (self.lost > 0).then(|| Entry::Lost(std::mem::take(&mut self.lost)))
    }
}

impl Entry {
    fn lines(&self) -> u64 {
        match self {
            Entry::Text(_) => 1,
            Entry::Lost(lines) => *lines,
            Entry::Leave => 0,
        }
    }

    fn text(self) -> String {
        match self {
            Entry::Text(text) => text,
            Entry::Lost(1) => whole_line(Priority::Warning, "1 line was lost: the log did not take it"),
            Entry::Lost(lines) => {
                whole_line(Priority::Warning, &format!("{lines} lines were lost: the log did not take them"))
            }
            Entry::Leave => String::new(),
        }
    }
}

/// From here on no thread of this process waits for stderr or stdout, except in [`finish`]. If no thread can be
/// started, lines are written at once, as before.
pub fn begin() {
    // Leaked: the threads use it until the process ends.
    let outputs: &'static Outputs = Box::leak(Box::new(Outputs { stderr: Queue::default(), stdout: Queue::default() }));
    let start = |name: &str, body: fn(&'static Outputs)| {
        std::thread::Builder::new().name(name.to_owned()).spawn(move || body(outputs)).is_ok()
    };
    let to_stderr = |outputs: &'static Outputs| {
        // This thread needs no privileges. If they cannot be dropped, the main thread reports that.
        let _ = drop_privileges();
        outputs.stderr.write_all(|entry| write(io::stderr(), entry.text().as_bytes()).is_ok());
    };
    let to_stdout = |outputs: &'static Outputs| {
        let _ = drop_privileges();
        outputs.stdout.write_all(|entry| {
            // A program that reads an array's URI on stdout then finds the start messages in the log already.
            outputs.stderr.finish(Instant::now() + ORDER_TIME_MAX);
            match entry {
                Entry::Leave => stdout_to_null(),
                entry @ (Entry::Text(_) | Entry::Lost(_)) => print_now(&entry.text()),
            }
        });
    };
    if start("uraid-log", to_stderr) && start("uraid-stdout", to_stdout) {
        let is_first = OUTPUTS.set(outputs).is_ok();
        assert!(is_first, "the log begins once");
    }
}

/// From here on lines begin with the time, unless the journal adds its own.
pub fn add_time() {
    HAS_TIME.store(!*IS_JOURNAL, Ordering::Relaxed);
}

/// Waits briefly for the pending lines.
pub fn finish() {
    if let Some(outputs) = OUTPUTS.get() {
        let end = Instant::now() + FINISH_TIME_MAX;
        // Report failures of stdout here.
        outputs.stdout.finish(end);
        outputs.stderr.finish(end);
    }
}

/// Prints an error and its causes in one line: `uraid: cannot claim a.img: no such file`.
pub fn complain(error: &dyn Error) {
    line(Priority::Error, &names::printable(&with_causes(error)));
}

/// `cannot claim a.img: not found`
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.downcast_ref::<std::io::Error>().map_or_else(|| error.to_string(), uraid_host::io_text);
        text = format!("{text}: {words}");
        cause = error.source();
    }
    text
}

/// Prints a line to stderr, with unprintable characters in names replaced. While `serve` runs it goes to the log, which
/// no thread waits for.
pub fn warn(text: &str) {
    line(Priority::Notice, &names::printable(text));
}

/// The same for what somebody should look at, as a member that fails: the journal keeps it as a warning.
pub fn alert(text: &str) {
    line(Priority::Warning, &names::printable(text));
}

/// A line on stderr.
fn line(priority: Priority, text: &str) {
    raw(whole_line(priority, text));
}

/// Writes text to stderr unchanged: a progress line on a terminal.
pub fn raw(text: String) {
    match OUTPUTS.get() {
        Some(outputs) => outputs.stderr.push(text),
        // If stderr is closed, only the exit code is left.
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// Text on stdout. A reader that has closed the pipe (`| head`) is no failure; a full disk makes the exit code 1.
pub fn print(text: &str) {
    match OUTPUTS.get() {
        Some(outputs) => outputs.stdout.push(text.to_owned()),
        None => drop(print_now(text)),
    }
}

/// Text on stdout about what is done and stays. A command that cannot print it has not failed: it says so on stderr, with
/// the text.
pub fn print_or_warn(text: &str) {
    match write(io::stdout(), text.as_bytes()) {
        Ok(()) => {}
        Err(error) => {
            let lines: Vec<&str> = text.lines().collect();
            let error = uraid_host::io_text(&io::Error::from(error));
            warn(&format!(
                "cannot write to stdout: {error}; all is done, and this is missing there: {}",
                lines.join(", ")
            ));
        }
    }
}

/// Whether some text could not be printed.
pub fn print_failed() -> bool {
    PRINT_FAILED.load(Ordering::Relaxed)
}

/// Closes what stdout was, after everything that was printed until now: what waits for the end of a pipe gets it.
pub fn leave_stdout() {
    match OUTPUTS.get() {
        Some(outputs) => {
            outputs.stdout.lock().entries.push_back(Entry::Leave);
            outputs.stdout.changed.notify_all();
        }
        None => drop(stdout_to_null()),
    }
}

/// Where stderr is a file in memory, which the caller has read until here, what follows is lost: it would fill the memory.
pub fn leave_memory() {
    let is_in_memory = |path: PathBuf| path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
    if !std::fs::read_link("/proc/self/fd/2").is_ok_and(is_in_memory) {
        return;
    }
    if let Some(outputs) = OUTPUTS.get() {
        outputs.stderr.finish(Instant::now() + FINISH_TIME_MAX);
    }
    // If it fails, the log goes on in memory.
    let _ = File::options().write(true).open("/dev/null").map(rustix::stdio::dup2_stderr);
}

fn stdout_to_null() -> bool {
    File::options().write(true).open("/dev/null").is_ok_and(|null| rustix::stdio::dup2_stdout(null).is_ok())
}

/// The file that has the log; `None`: it goes elsewhere, or the file is removed.
pub fn file() -> Option<PathBuf> {
    let status = rustix::fs::fstat(io::stderr()).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file() && status.st_nlink > 0;
    is_file.then(|| std::fs::read_link("/proc/self/fd/2").ok()).flatten()
}

/// Returns whether it was written.
fn print_now(text: &str) -> bool {
    let outcome = write(io::stdout(), text.as_bytes());
    if let Err(error) = outcome
        && error != Errno::PIPE
        && !PRINT_FAILED.swap(true, Ordering::Relaxed)
    {
        line(Priority::Error, &format!("cannot write to stdout: {}", io::Error::from(error)));
    }
    outcome.is_ok()
}

fn whole_line(priority: Priority, text: &str) -> String {
    if *IS_JOURNAL {
        format!("<{}>uraid: {text}\n", priority as u8)
    } else if HAS_TIME.load(Ordering::Relaxed) {
        format!("uraid: {} {text}\n", dates::stamp(dates::now()))
    } else {
        format!("uraid: {text}\n")
    }
}

/// Writes all bytes, however long that takes. It does not use std, because other threads would wait for std's lock.
fn write(output: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&output, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process has made the shared description nonblocking.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&output, PollFlags::OUT)], None)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether stderr is systemd's journal, which notes the time of a line itself (systemd.exec(5), JOURNAL_STREAM).
fn is_journal() -> bool {
    let Some(named) = std::env::var_os("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr()).is_ok_and(|status| *named == *format!("{}:{}", status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(state: &mut State) -> Vec<String> {
        std::iter::from_fn(|| state.take()).map(Entry::text).collect()
    }

    #[test]
    fn lines_without_room_are_counted_where_they_are_missing() {
        let mut state = State::default();
        for n in 0..5 {
            state.push(format!("line {n}\n"), 14);
        }
        assert_eq!(state.take().map(Entry::text).as_deref(), Some("line 0\n"));
        state.push("line 5\n".to_owned(), 14);
        assert_eq!(
            texts(&mut state),
            ["line 1\n", "uraid: 3 lines were lost: the log did not take them\n", "line 5\n"]
        );
        assert!(!state.is_due() && state.bytes == 0);
    }

    #[test]
    fn what_was_lost_last_is_said_too_and_a_line_above_the_bound_is_not_lost() {
        let mut state = State::default();
        state.push("a long line\n".to_owned(), 4);
        state.push("b\n".to_owned(), 4);
        assert_eq!(texts(&mut state), ["a long line\n", "uraid: 1 line was lost: the log did not take it\n"]);
    }

    #[test]
    fn a_log_that_fails_is_tried_again_only_with_the_next_line() {
        let mut state = State { lost: 2, is_broken: true, ..State::default() };
        assert!(!state.is_due());
        state.push("a\n".to_owned(), 4);
        assert!(state.is_due());
    }

    #[test]
    fn what_comes_is_written_in_order_and_a_failed_write_counts_as_lost() {
        let queue: &'static Queue = Box::leak(Box::default());
        let (sender, written) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut is_taken = [false, true, true].into_iter();
            queue.write_all(|entry| {
                sender.send(entry.text()).expect("the test listens");
                is_taken.next().unwrap_or(true)
            });
        });
        queue.push("a\n".to_owned());
        assert_eq!(written.recv().expect("a write"), "a\n");
        queue.finish(Instant::now() + Duration::from_secs(20));
        queue.push("b\n".to_owned());
        assert_eq!(written.recv().expect("a write"), "uraid: 1 line was lost: the log did not take it\n");
        assert_eq!(written.recv().expect("a write"), "b\n");
    }
}
