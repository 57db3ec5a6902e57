//! Several clients that write at once, each with many requests in flight, and a reader that checks every sector.
//! Owns: the mix of requests. Not here: what is right (`model`).
//! Invariant: the model learns of a write before its first byte is sent, and of its answer after it came.

use crate::nbd::{Address, ClientError, Connection, Negotiate, Options, Request};
use crate::random::{Random, SECTOR};
use crate::sectors::model::{Model, Span, Survey, Wrong, ZEROES, content};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The model, shared by the clients of one array.
pub type SharedModel = Arc<Mutex<Model>>;

/// Takes the model; a panic elsewhere must not hide the first failure behind a second one.
pub fn lock(model: &SharedModel) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many clients, and how busy.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Connections, one thread each.
    pub writers: u64,
    /// Requests in flight per connection.
    pub depth: usize,
    /// The seed of all choices.
    pub seed: u64,
}

/// Why a writer ended before it was told to.
#[derive(Debug, Error)]
pub enum WriterError {
    /// The connection or the server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A read found an illegal content.
    #[error("{0}")]
    Wrong(Wrong),
}

/// Writers at work.
pub struct Writers {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), WriterError>>>,
}

impl Writers {
    /// Connects all writers and starts them. Their writes overlap: it is undefined which of two concurrent writes is
    /// the last one, but all later reads must agree.
    #[track_caller]
    pub fn start(address: &Address, model: &SharedModel, workload: Workload) -> Writers {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..workload.writers)
            .map(|index| {
                // One client of each kind, in turn.
                let options = match index % 3 {
                    0 => Options::default(),
                    1 => Options { negotiate: Negotiate::InfoThenGo, structured: false, allocation: false },
                    _ => Options { negotiate: Negotiate::ExportName, structured: false, allocation: false },
                };
                let connection = Connection::open(address, &options).unwrap_or_else(|error| panic!("{error}"));
                let mut writer = Writer {
                    connection,
                    model: model.clone(),
                    random: Random(workload.seed ^ index << 56),
                    in_flight: BTreeMap::new(),
                    answered: answered.clone(),
                };
                let stop = stop.clone();
                std::thread::spawn(move || writer.run(&stop, workload.depth))
            })
            .collect();
        Writers { stop, answered, threads }
    }

    /// Requests answered so far, by all.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until `count` more requests are answered or all writers have ended. `end` gives the reason why they ended.
    /// Panics after a minute without either.
    #[track_caller]
    pub fn wait_for(&self, count: u64) {
        let (target, deadline) = (self.answered() + count, Instant::now() + Duration::from_secs(60));
        while self.answered() < target && self.threads.iter().any(|thread| !thread.is_finished()) {
            assert!(Instant::now() < deadline, "{} of {target} requests were answered", self.answered());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Tells the writers to end and waits for their last answers. Returns how many there were, or the first error.
    /// After the server was killed, a broken connection is no error.
    pub fn end(self, is_killed: bool) -> Result<u64, WriterError> {
        self.stop.store(true, Ordering::Relaxed);
        // Wait for all before reporting the first error.
        let results: Vec<_> =
            self.threads.into_iter().map(|thread| thread.join().expect("a writer does not panic")).collect();
        for result in results {
            match result {
                Ok(()) => {}
                Err(WriterError::Client(ClientError::Broken(_))) if is_killed => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.answered.load(Ordering::Relaxed))
    }

    /// As `end`; panics if any met an error.
    #[track_caller]
    pub fn finish(self) -> u64 {
        self.end(false).unwrap_or_else(|error| panic!("a writer met an error: {error}"))
    }

    /// As `end` after the server was killed; panics if any met something else than a broken connection.
    #[track_caller]
    pub fn finish_after_kill(self) -> u64 {
        self.end(true).unwrap_or_else(|error| panic!("a writer met an error: {error}"))
    }
}

enum Doing {
    Write(Span, u64),
    Read(Span, u64),
    Flush(u64),
}

struct Writer {
    connection: Connection,
    model: SharedModel,
    random: Random,
    in_flight: BTreeMap<u64, Doing>,
    answered: Arc<AtomicU64>,
}

impl Writer {
    fn run(&mut self, stop: &AtomicBool, depth: usize) -> Result<(), WriterError> {
        while !stop.load(Ordering::Relaxed) {
            while self.in_flight.len() < depth {
                self.submit()?;
            }
            self.complete()?;
        }
        while !self.in_flight.is_empty() {
            self.complete()?;
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<(), ClientError> {
        let span = self.span();
        let (request, doing) = match self.random.below(16) {
            0 => (Request::Flush, Doing::Flush(lock(&self.model).begin_flush())),
            1..=3 => {
                let begun = lock(&self.model).begin_read();
                (Request::Read { at: span.byte(), length: span.bytes() }, Doing::Read(span, begun))
            }
            4 => {
                let operation = lock(&self.model).begin(span, true);
                let no_hole = self.random.one_in(2);
                (Request::WriteZeroes { at: span.byte(), length: span.bytes(), no_hole }, Doing::Write(span, operation))
            }
            choice => {
                let operation = lock(&self.model).begin(span, false);
                assert_eq!(operation & ZEROES, 0);
                let data = content(span, operation);
                (Request::Write { at: span.byte(), data, fua: choice == 5 }, Doing::Write(span, operation))
            }
        };
        let cookie = self.connection.submit(&request)?;
        self.in_flight.insert(cookie, doing);
        Ok(())
    }

    fn complete(&mut self) -> Result<(), WriterError> {
        let reply = self.connection.receive()?;
        let bytes = reply.result.map_err(ClientError::Refused)?;
        match self.in_flight.remove(&reply.cookie).expect("the connection checks the cookie") {
            Doing::Write(span, operation) => lock(&self.model).answer(span, operation),
            Doing::Read(span, begun) => {
                let checked = lock(&self.model).end_read(begun, span.first, &bytes);
                checked.map_err(WriterError::Wrong)?;
            }
            Doing::Flush(mark) => lock(&self.model).answer_flush(mark),
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Mostly small and anywhere; often in a few hot places, where writers meet; sometimes whole stripes.
    fn span(&mut self) -> Span {
        let sectors = lock(&self.model).sectors();
        let longest = match self.random.below(8) {
            0..=3 => 16,
            4 | 5 => 128,
            6 => 8,
            _ => {
                let count = (128 * (1 + self.random.below(4))).min(sectors);
                let first = self.random.below((sectors - count) / 128 + 1) * 128;
                return Span { first, count };
            }
        };
        let count = (1 + self.random.below(longest)).min(sectors);
        let area = if self.random.one_in(4) { sectors.min(512) } else { sectors };
        Span { first: self.random.below(area).min(sectors - count), count }
    }
}

/// Bytes per read of a verification.
const PIECE: u64 = 256 * 1024;
const PIECES_IN_FLIGHT: u64 = 8;

/// Reads the whole export and gives each piece's first sector and bytes, ascending.
pub fn read_all(address: &Address, mut piece: impl FnMut(u64, &[u8])) -> Result<(), ClientError> {
    let mut connection = Connection::open(address, &Options::default())?;
    let bytes = connection.export().bytes;
    let count = bytes.div_ceil(PIECE);
    let (mut ready, mut asked, mut given) = (BTreeMap::new(), 0, 0);
    while given < count {
        while asked < count.min(given + PIECES_IN_FLIGHT) {
            let at = asked * PIECE;
            let length = u32::try_from(PIECE.min(bytes - at)).expect("a piece is small");
            // Cookies count from 1 in the order of the requests.
            connection.submit(&Request::Read { at, length })?;
            asked += 1;
        }
        let reply = connection.receive()?;
        ready.insert(reply.cookie - 1, reply.result.map_err(ClientError::Refused)?);
        while let Some(bytes) = ready.remove(&given) {
            piece(given * PIECE / SECTOR as u64, &bytes);
            given += 1;
        }
    }
    connection.disconnect()
}

/// Checks every sector; panics at the first with an illegal content.
#[track_caller]
pub fn verify(address: &Address, model: &SharedModel, when: &str) {
    all_right(inspect(address, model), when);
}

#[track_caller]
fn all_right(survey: Result<Survey, ClientError>, when: &str) -> Survey {
    let survey = survey.unwrap_or_else(|error| panic!("{when}: {error}"));
    if let Some(wrong) = survey.first_wrong {
        panic!("{when}: {wrong}");
    }
    survey
}

/// After a crash, or after writes that overlapped: reads everything. The values found are then the only legal
/// ones.
pub fn survey(address: &Address, model: &SharedModel) -> Result<Survey, ClientError> {
    lock(model).crash();
    let mut sum = Survey::default();
    read_all(address, |first, bytes| sum.add(lock(model).survey(first, bytes)))?;
    Ok(sum)
}

/// Like `survey`, but the values found do not become final: one that was read from a copy may disappear with that copy.
pub fn inspect(address: &Address, model: &SharedModel) -> Result<Survey, ClientError> {
    let mut sum = Survey::default();
    read_all(address, |first, bytes| sum.add(lock(model).inspect(first, bytes)))?;
    Ok(sum)
}

/// Like `survey`, but panics at a sector with an illegal value. Returns the number of sectors that had several legal
/// values.
#[track_caller]
pub fn settle(address: &Address, model: &SharedModel, when: &str) -> u64 {
    all_right(survey(address, model), when).open
}
