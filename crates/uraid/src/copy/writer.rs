//! The half of a copy that writes: a thread of its own, so that a slow output never holds up reads or signals.
//! Owns: the order of writes, the map on disk. Not here: reading (`reader`), how bytes get to OUT (`output`).
//! Invariant: the map on disk calls no stretch copied that is not durable in OUT.

use super::map::{Map, MapError, State};
use super::output::Output;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uraid_block::{Range, Sectors};

/// Jobs that wait for the output: so many times the largest read.
const QUEUE_MAX: usize = 8;
/// Zeroes that are written at a time: 1 GiB.
const ZEROES_MAX: Sectors = Sectors(1 << 21);
/// How often the map is saved.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// What to do with the next stretch. Stretches come in order.
pub enum Job {
    /// These bytes.
    Data(Range, Vec<u8>),
    /// It is all zeroes.
    Zero(Range),
    /// It could not be read.
    Lost(Range),
}

/// Why the output took no more.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Writing failed.
    #[error("{}: writing failed", path.display())]
    Output {
        /// OUT.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The map could not be saved.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// Where the jobs go.
pub struct Queue {
    sender: SyncSender<Job>,
    waiting: Arc<Mutex<Option<Waker>>>,
}

/// The writer has ended before its time; [`Writer::end`] says why.
#[derive(Debug)]
pub struct Ended;

impl Queue {
    /// Hands a job over, as soon as there is room.
    pub async fn send(&self, job: Job) -> Result<(), Ended> {
        let mut job = Some(job);
        std::future::poll_fn(|context| {
            // Left before the attempt: a job that is taken in between wakes it.
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            match self.sender.try_send(job.take().expect("polled until it is gone")) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(TrySendError::Disconnected(_)) => Poll::Ready(Err(Ended)),
                Err(TrySendError::Full(back)) => {
                    job = Some(back);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// What the writer leaves.
pub struct Written {
    /// How far the copy is.
    pub map: Map,
    /// Whether it could write everything it was given.
    pub outcome: Result<(), WriteError>,
}

/// The thread that writes.
pub struct Writer(JoinHandle<Written>);

impl Writer {
    /// Starts it, with the map as it was before; `save_to` is where the map is saved, if at all.
    pub fn start(output: Output, map: Map, save_to: Option<PathBuf>) -> io::Result<(Writer, Queue)> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(None));
        let mut work = Work { output, map, save_to, waiting: waiting.clone(), saved: Instant::now() };
        let body = move || {
            let outcome = work.all(receiver);
            // Whatever went wrong: what was written stays written, and the map says what that is.
            let saved = work.save();
            work.wake();
            Written { outcome: outcome.and(saved), map: work.map }
        };
        let thread = std::thread::Builder::new().name("uraid-copy-out".to_owned()).spawn(body)?;
        Ok((Writer(thread), Queue { sender, waiting }))
    }

    /// Whether all is written, or nothing more will be.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until all is written; the queue must be gone. `None` when it takes longer than `patience`: a pipe that
    /// nobody reads from can hold it for ever.
    pub fn end(self, patience: Option<Duration>) -> Option<Written> {
        let deadline = patience.map(|time| Instant::now() + time);
        while !self.0.is_finished() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

struct Work {
    output: Output,
    map: Map,
    save_to: Option<PathBuf>,
    waiting: Arc<Mutex<Option<Waker>>>,
    saved: Instant,
}

impl Work {
    /// Does every job, until no more can come. The receiver goes first, so that nobody waits for room in vain.
    fn all(&mut self, jobs: Receiver<Job>) -> Result<(), WriteError> {
        while let Ok(job) = jobs.recv() {
            self.wake();
            self.one(job)?;
        }
        Ok(())
    }

    fn one(&mut self, job: Job) -> Result<(), WriteError> {
        let (range, state) = match job {
            Job::Data(range, bytes) => {
                self.output.write(range, &bytes).map_err(|source| self.failed(source))?;
                return self.wrote(range, State::Copied);
            }
            Job::Zero(range) => (range, State::Copied),
            Job::Lost(range) => (range, State::Lost),
        };
        // The map goes along with a stretch that may be the whole array.
        let mut at = range.start;
        while at < range.end() {
            let part = Range::between(at, (at + ZEROES_MAX).min(range.end()));
            self.output.write_zeroes(part).map_err(|source| self.failed(source))?;
            self.wrote(part, state)?;
            at = part.end();
        }
        Ok(())
    }

    fn wrote(&mut self, range: Range, state: State) -> Result<(), WriteError> {
        self.map.set(range, state);
        if self.saved.elapsed() >= SAVE_EVERY { self.save() } else { Ok(()) }
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Output { path: self.output.path().to_owned(), source }
    }

    fn save(&mut self) -> Result<(), WriteError> {
        let Some(path) = &self.save_to else { return Ok(()) };
        self.output.sync().map_err(|source| self.failed(source))?;
        self.map.save(path)?;
        self.saved = Instant::now();
        Ok(())
    }

    fn wake(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}
