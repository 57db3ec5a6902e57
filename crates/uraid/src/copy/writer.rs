//! The writing half of a copy: a separate thread, so that a slow output never delays reads or signals.
//! Owns: the order of writes, the map on disk. Not here: reading (`copy_reader`), writing to OUT itself (`output`).
//! Invariant: the map on disk lists a stretch as copied only if it is durable in OUT.

use super::map::{Map, MapError, State};
use super::output::Output;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uraid_block::{Range, Sectors};
use uraid_serve::copy_reader::queue::{Job, Jobs, Queue, queue};

/// The most jobs that wait for the output; each is at most the largest read.
const QUEUE_MAX: usize = 8;
/// Zeroes that are written at a time: 1 GiB.
const ZEROES_MAX: Sectors = Sectors(1 << 21);
/// How often the map is saved.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Why the output ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Writing failed.
    #[error("{}: writing failed", path.display())]
    Output { path: PathBuf, source: io::Error },
    /// The map could not be saved.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// The result of the writer.
pub(super) struct Written {
    /// The state of every sector after the run.
    pub map: Map,
    /// `Err` if it could not write everything that it was given.
    pub outcome: Result<(), WriteError>,
}

/// The thread that writes.
pub(super) struct Writer(JoinHandle<Written>);

impl Writer {
    /// Starts the writer. `map` is the state before this run; `save_to` is where the map is saved, if it is saved.
    pub(super) fn start(output: Output, map: Map, save_to: Option<PathBuf>) -> io::Result<(Writer, Queue)> {
        let (queue, jobs) = queue(QUEUE_MAX);
        let (save_every, saved) = (SAVE_EVERY, Instant::now());
        let work = Work { output, map, save_to, save_every, saved };
        let body = move || work.run(jobs);
        let thread = std::thread::Builder::new().name("uraid-copy-out".to_owned()).spawn(body)?;
        Ok((Writer(thread), queue))
    }

    /// Whether the writer has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until all is written; the queue must have been dropped. `None` if it takes longer than `time_max`: a pipe
    /// without a reader can block for ever.
    pub(super) fn end(self, time_max: Option<Duration>) -> Option<Written> {
        let deadline = time_max.map(|time| Instant::now() + time);
        while !self.0.is_finished() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// Where the bytes go.
trait Sink {
    fn path(&self) -> &Path;
    fn write(&mut self, range: Range, bytes: &[u8]) -> io::Result<()>;
    fn write_zeroes(&mut self, range: Range) -> io::Result<()>;
    /// Whether what is not written reads as zeroes, so that zeroes are no work.
    fn is_zeroes(&self) -> bool {
        false
    }
    fn sync(&self) -> io::Result<()>;
}

impl Sink for Output {
    fn path(&self) -> &Path {
        Output::path(self)
    }

    fn write(&mut self, range: Range, bytes: &[u8]) -> io::Result<()> {
        Output::write(self, range, bytes)
    }

    fn write_zeroes(&mut self, range: Range) -> io::Result<()> {
        Output::write_zeroes(self, range)
    }

    fn is_zeroes(&self) -> bool {
        Output::is_zeroes(self)
    }

    fn sync(&self) -> io::Result<()> {
        Output::sync(self)
    }
}

struct Work<S> {
    output: S,
    map: Map,
    save_to: Option<PathBuf>,
    save_every: Duration,
    saved: Instant,
}

impl<S: Sink> Work<S> {
    /// Runs the writer, from the first job to the last save.
    fn run(mut self, jobs: Jobs) -> Written {
        let outcome = self.all(jobs);
        // Save the map even after a failure, because what was written stays written.
        let saved = self.save();
        Written { outcome: outcome.and(saved), map: self.map }
    }

    /// Runs every job until the queue is closed. The queue ends with this, so that no sender waits for room.
    fn all(&mut self, jobs: Jobs) -> Result<(), WriteError> {
        while let Some(job) = jobs.next() {
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
        if self.output.is_zeroes() {
            return self.wrote(range, state);
        }
        // Save the map also within a stretch, which may be the whole array.
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
        if self.saved.elapsed() >= self.save_every { self.save() } else { Ok(()) }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::{Context, Waker};
    use uraid_block::Sector;

    const SIZE: Sectors = Sectors(64);
    const IDENTITY: &str = "of a test";

    /// Checks the map on disk at every call: what it lists as copied or lost must have been synced before.
    struct Watched {
        map: PathBuf,
        /// What was written, and whether it is synced.
        written: Mutex<Vec<(Range, bool)>>,
        calls: Mutex<Vec<&'static str>>,
        /// The call that fails, counted from 0.
        fail_at: usize,
    }

    impl Watched {
        fn new(name: &str, fail_at: usize) -> Watched {
            let map = std::env::temp_dir().join(format!("uraid-map-{name}-{fail_at}-{}", std::process::id()));
            Map::new(IDENTITY, SIZE).save(&map).expect("room");
            Watched { map, written: Mutex::default(), calls: Mutex::default(), fail_at }
        }

        fn call(&self, what: &'static str) -> io::Result<()> {
            self.look();
            let mut calls = self.calls.lock().expect("one thread");
            calls.push(what);
            if calls.len() - 1 == self.fail_at { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn wrote(&self, range: Range) {
            self.written.lock().expect("one thread").push((range, false));
        }

        /// The sectors that the map on disk lists as done. Checks that all of them are durable.
        fn look(&self) -> Sectors {
            let map = Map::load(&self.map, IDENTITY, SIZE).expect("a map").expect("it is there");
            let done = [State::Copied, State::Lost].into_iter().flat_map(|state| map.of(state));
            let written = self.written.lock().expect("one thread");
            let is_durable = |at| {
                let at = Range::new(Sector(at), Sectors(1));
                written.iter().any(|(range, is_synced)| *is_synced && range.overlaps(at))
            };
            for range in done {
                assert!((range.start.0..range.end().0).all(is_durable), "{range:?} is not synced, and the map has it");
            }
            Sectors(SIZE.0 - map.count(State::Untried).0)
        }
    }

    impl Sink for &Watched {
        fn path(&self) -> &Path {
            Path::new("OUT")
        }

        fn write(&mut self, range: Range, _: &[u8]) -> io::Result<()> {
            self.call("write")?;
            self.wrote(range);
            Ok(())
        }

        fn write_zeroes(&mut self, range: Range) -> io::Result<()> {
            self.call("zeroes")?;
            self.wrote(range);
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            self.call("sync")?;
            self.written.lock().expect("one thread").iter_mut().for_each(|(_, is_synced)| *is_synced = true);
            Ok(())
        }
    }

    fn write_all(watched: &Watched, save_every: Duration) -> Written {
        let (queue, jobs) = queue(QUEUE_MAX);
        let mut context = Context::from_waker(Waker::noop());
        let range = |start, length| Range::new(Sector(start), Sectors(length));
        for job in [
            Job::Data(range(0, 16), vec![1; 16 * 512]),
            Job::Zero(range(16, 8)),
            Job::Lost(range(24, 8)),
            Job::Data(range(32, 32), vec![1; 32 * 512]),
        ] {
            assert!(pin!(queue.send(job)).poll(&mut context).is_ready(), "there is room");
        }
        drop(queue);
        let (map, save_to) = (Map::new(IDENTITY, SIZE), Some(watched.map.clone()));
        Work { output: watched, map, save_to, save_every, saved: Instant::now() }.run(jobs)
    }

    #[test]
    fn the_map_on_disk_never_has_a_sector_that_is_not_synced() {
        let always = Watched::new("always", usize::MAX);
        assert!(write_all(&always, Duration::ZERO).outcome.is_ok());
        let calls = ["write", "sync", "zeroes", "sync", "zeroes", "sync", "write", "sync", "sync"];
        assert_eq!((always.look(), &always.calls.lock().expect("one thread")[..]), (SIZE, &calls[..]));
        let at_the_end = Watched::new("end", usize::MAX);
        assert!(write_all(&at_the_end, Duration::MAX).outcome.is_ok());
        let calls = ["write", "zeroes", "zeroes", "write", "sync"];
        assert_eq!((at_the_end.look(), &at_the_end.calls.lock().expect("one thread")[..]), (SIZE, &calls[..]));
        for watched in [always, at_the_end] {
            std::fs::remove_file(&watched.map).expect("it is there");
        }
    }

    #[test]
    fn whichever_call_fails_the_map_on_disk_has_what_is_synced_and_the_failure_is_told() {
        for fail_at in 0..9 {
            let watched = Watched::new("fail", fail_at);
            let written = write_all(&watched, Duration::ZERO);
            assert!(matches!(written.outcome, Err(WriteError::Output { .. })), "{fail_at}");
            // The last sync is tried even after a failure: it makes what came before durable.
            let whole = [0, 0, 16, 16, 24, 24, 32, 32, 64];
            let saved = if fail_at % 2 == 1 { [16, 24, 32, 64][fail_at / 2] } else { whole[fail_at] };
            assert_eq!(watched.look(), Sectors(saved), "{fail_at}");
            std::fs::remove_file(&watched.map).expect("it is there");
        }
    }
}
