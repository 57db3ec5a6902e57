//! One connection from its greeting to its end: the task that receives.
//! Owns: [`serve`], the handshake with the client, reading requests, starting them. Not here: how bytes are received
//! (`receiver`), what a request may do (`request`), answers (`connection`).
//! Invariant: a request is begun after it was checked, has its permits, and its payload has arrived completely.

pub(crate) mod inbox;
pub(crate) mod receiver;

use crate::connection::{Answer, Connection};
use crate::handshake::{Agreement, Form, Handshake, Outcome};
use crate::job::clears;
use crate::job::{Job, JobQueue, Operation};
use crate::machine::{Machine, Transport};
use crate::reader::receiver::Receiver;
use crate::request::clear_queue::{ClearQueue, ClearRequest, LANES};
use crate::request::{Refusal, Work, check};
use crate::shared::news::News;
use crate::shared::shares::{Direction, Hold};
use std::rc::Rc;
use uraid_block::buffer::SMALL_BLOCK_BYTES;
use uraid_block::local::yield_now;
use uraid_block::{Device, ReadPieces};
use uraid_nbd::Request;
use uraid_nbd::words::PAYLOAD_BYTES_MAX;

/// After a write of this size, the next one is expected to be as large. Then only its header is received ahead, so that
/// its payload needs no copy.
const LARGE_PAYLOAD_BYTES: u64 = 32 << 10;

/// After this many requests of one receive, the reader yields to the other connections. Otherwise, on a device that
/// answers at once, all 512 reads of 4 clients with 128 reads each would be answered before the one read of a fifth
/// client. The replies of one poll are sent together, so yielding makes sends smaller: the 4 clients lose 9 % of their
/// rate.
const REQUESTS_PER_YIELD: u32 = 8;

/// Why reading ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The client sent Disconnect.
    Disconnected,
    /// The connection ended between two requests.
    Clean,
    /// Invalid bytes, or the connection ended inside a message.
    Broken,
}

/// Where the requests for one export wait.
pub(crate) struct Queues<M: Machine, T: Transport, D: Device + 'static> {
    /// The jobs of the export's device.
    pub(crate) jobs: Rc<JobQueue<M, T, D>>,
    pub(crate) clears: Rc<ClearQueue<Connection<M, T, D>>>,
}

/// Serves the client until it leaves. `queues`: by export. Returns whether the connection broke.
pub(crate) async fn serve<M: Machine, T: Transport, D: Device + 'static>(
    connection: Rc<Connection<M, T, D>>,
    queues: &[Queues<M, T, D>],
) -> bool {
    let receiver = Receiver::new(connection.clone()).await;
    let end = match negotiate(&connection, receiver).await {
        Ok((agreement, receiver)) => {
            let Queues { jobs, clears } = &queues[agreement.export];
            connection.agree(agreement, clears.clone());
            let shared = connection.shared();
            shared.log(News::Connected { peer: connection.peer(), export: agreement.export });
            shared.machine().spawn(connection.clone().write_replies());
            let reader = Reader {
                connection: connection.clone(),
                receiver,
                jobs,
                clears,
                lanes_put: [false; LANES.len()],
                since_yield: 0,
            };
            let end = reader.read_requests().await;
            connection.end(end == End::Disconnected, end == End::Broken).await;
            end
        }
        Err(end) => end,
    };
    connection.transport().shutdown();
    end == End::Broken
}

/// The handshake. Requests that the client sent after it are in the returned receiver. `Err`: no export was chosen.
async fn negotiate<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    mut receiver: Receiver<M, T, D>,
) -> Result<(Agreement, Receiver<M, T, D>), End> {
    let shared = connection.shared();
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    loop {
        let (used, outcome) = handshake.receive(&shared.offers_now(), receiver.unread(), &mut out);
        receiver.consume(used);
        for part in out.chunks(SMALL_BLOCK_BYTES) {
            let mut block = shared.memory().own_block(part.len()).await;
            block.copy_from_slice(part);
            let mut pieces = ReadPieces::new();
            pieces.push(block);
            // A client that only lists exports does not wait for the last answer.
            if !connection.send(pieces.freeze()).await {
                return Err(End::Clean);
            }
        }
        out.clear();
        match outcome {
            Outcome::More => assert!(receiver.unread().is_empty(), "a handshake that goes on takes all bytes"),
            Outcome::Agreed(agreement) => return Ok((agreement, receiver)),
            Outcome::Aborted => return Err(End::Clean),
            Outcome::Close => return Err(End::Broken),
        }
        if !receiver.fill(usize::MAX).await {
            return Err(End::Clean);
        }
    }
}

/// Reads and starts one client's requests.
struct Reader<'a, M: Machine, T: Transport, D: Device + 'static> {
    connection: Rc<Connection<M, T, D>>,
    receiver: Receiver<M, T, D>,
    jobs: &'a Rc<JobQueue<M, T, D>>,
    clears: &'a Rc<ClearQueue<Connection<M, T, D>>>,
    /// The lanes of the trims and write-zeroes that were put and not started. They start when all that has arrived is
    /// put, so that neighbours run together, or before the reader waits.
    lanes_put: [bool; LANES.len()],
    /// Requests since the reader last yielded.
    since_yield: u32,
}

impl<M: Machine, T: Transport, D: Device + 'static> Reader<'_, M, T, D> {
    async fn read_requests(mut self) -> End {
        let mut last_payload = 0;
        loop {
            self.connection.set_unread(true);
            let outcome = self.take_all().await;
            self.start_clears();
            match outcome {
                Ok(payload) => last_payload = payload.unwrap_or(last_payload),
                Err(end) => return end,
            }
            self.connection.set_unread(false);
            self.receiver.fit_inbox().await;
            // Start what has arrived before receiving more, and let other tasks run.
            yield_now().await;
            let is_between = self.receiver.unread().is_empty();
            let is_large = last_payload >= LARGE_PAYLOAD_BYTES;
            let ahead = if is_large { self.receiver.missing_header_bytes() } else { usize::MAX };
            if !self.receiver.fill(ahead).await {
                return if is_between || self.connection.is_closing() { End::Clean } else { End::Broken };
            }
        }
    }

    /// Takes the requests that have arrived. Returns the length of the last one's payload, if there is one.
    async fn take_all(&mut self) -> Result<Option<u64>, End> {
        let is_extended = self.connection.form() == Form::Extended;
        let mut last_payload = None;
        while let Some(next) = self.receiver.next_request() {
            // Skip requests once the connection is closing.
            if self.connection.is_closing() {
                return Err(End::Clean);
            }
            let request = next.map_err(|_| End::Broken)?;
            last_payload = Some(request.payload_bytes(is_extended));
            self.take(request).await?;
        }
        Ok(last_payload)
    }

    /// Takes one request with its payload, and starts or refuses it. `Err` if it was the last one.
    async fn take(&mut self, request: Request) -> Result<(), End> {
        let connection = self.connection.clone();
        let work = check(connection.offer(), connection.agreement(), &request);
        if !matches!(work, Ok(Work::Clear(..))) {
            self.start_clears();
        }
        match work {
            Err(refusal) => return self.refuse(request, refusal).await,
            Ok(Work::Disconnect) => return Err(End::Disconnected),
            Ok(Work::Read(range)) => {
                let hold = hold_memory(&connection, Direction::Read, range.length.len_bytes()).await;
                self.start_transfer(request, Operation::Read(range), hold).await;
            }
            Ok(Work::Write(range, fua)) => {
                let bytes = range.length.len_bytes();
                let hold = hold_memory(&connection, Direction::Write, bytes).await;
                let payload = self.payload(bytes).await?;
                self.start_transfer(request, Operation::Write(range.start, payload.freeze(), fua), hold).await;
            }
            Ok(Work::Flush) => self.start_other(request, Operation::Flush).await,
            Ok(Work::Status { range, one }) => self.start_other(request, Operation::Status { range, one }).await,
            Ok(Work::Clear(_, range, _)) => {
                let permit = match connection.in_flight().try_acquire(1) {
                    Some(permit) => permit,
                    None => {
                        // Those that were put give the permits back.
                        self.start_clears();
                        connection.in_flight().acquire(1).await
                    }
                };
                connection.shared().request_begins();
                let lane = self.clears.put(&connection, ClearRequest::new(request, range, permit));
                self.lanes_put[lane as usize] = true;
            }
            Ok(Work::Cache(_)) => {
                // The device has nothing to do for this request.
                let hold = Hold::new(connection.in_flight().acquire(1).await);
                connection.shared().request_begins();
                connection.answer(&request, Ok(Answer::Done), hold);
                self.count_for_yield().await;
            }
        }
        Ok(())
    }

    /// Starts the trims and write-zeroes that were put.
    fn start_clears(&mut self) {
        for lane in LANES {
            if std::mem::take(&mut self.lanes_put[lane as usize]) {
                clears::start(self.clears, self.connection.shared().machine(), lane);
            }
        }
    }

    /// The payload of a write that has its permits.
    async fn payload(&mut self, bytes: usize) -> Result<ReadPieces, End> {
        let connection = self.connection.clone();
        let empty = connection.shared().memory().buffers(connection.device().shares(), bytes).await;
        connection.progress().payload_begins();
        let payload = self.receiver.payload(empty).await.ok_or(End::Broken)?;
        connection.progress().payload_ends();
        assert_eq!(payload.bytes(), bytes);
        Ok(payload)
    }

    async fn start_transfer(&mut self, request: Request, operation: Operation, hold: Hold) {
        self.connection.transfers().begin();
        self.start(request, operation, hold).await;
    }

    async fn start_other(&mut self, request: Request, operation: Operation) {
        let hold = Hold::new(self.connection.in_flight().acquire(1).await);
        self.start(request, operation, hold).await;
    }

    async fn start(&mut self, request: Request, operation: Operation, hold: Hold) {
        self.connection.shared().request_begins();
        self.jobs.put(Job { connection: self.connection.clone(), request, operation, hold });
        if self.connection.transfers().has_others() {
            self.count_for_yield().await;
        }
    }

    /// Counts a request of a receive that keeps other connections waiting, and yields after every few of them.
    async fn count_for_yield(&mut self) {
        self.since_yield = (self.since_yield + 1) % REQUESTS_PER_YIELD;
        if self.since_yield == 0 {
            yield_now().await;
        }
    }

    /// Answers with the protocol's error. The payload is skipped to find the next request. If it is longer than the
    /// maximum, the connection ends instead. After a write whose header does not say whether a payload follows, no
    /// request can be found.
    async fn refuse(&mut self, request: Request, refusal: Refusal) -> Result<(), End> {
        let payload = request.payload_bytes(self.connection.form() == Form::Extended);
        let is_last = payload > PAYLOAD_BYTES_MAX.into() || refusal == Refusal::NoPayload;
        if !is_last && !self.receiver.skip(payload as usize).await {
            return Err(End::Broken);
        }
        let hold = Hold::new(self.connection.in_flight().acquire(1).await);
        self.connection.refuse(&request, refusal, hold);
        self.count_for_yield().await;
        if is_last { Err(End::Broken) } else { Ok(()) }
    }
}

/// The permits of a read or write with this many bytes.
async fn hold_memory<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    direction: Direction,
    bytes: usize,
) -> Hold {
    let (shares, account, in_flight) = (connection.device().shares(), connection.account(), connection.in_flight());
    match shares.hold_now(in_flight, account, direction, bytes) {
        Some(hold) => hold,
        None => shares.hold(in_flight, account, direction, bytes).await,
    }
}
