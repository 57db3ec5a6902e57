//! One connection from its greeting to its end.
//! Owns: reading requests, starting work on the device, sending replies.
//! Not here: accepting, deadlines, cutting slow clients (`server`); the bytes of a receive, payloads (`receiving`); what a
//! request may do (`request`).
//! Invariant: every request that was started is answered once, unless the connection broke. Its buffers and permits are
//! held until its reply has left.

use crate::clears::{ClearRequest, Clearing};
use crate::export::Offer;
use crate::handshake::{ALLOCATION_ID, Agreement, Form, Handshake, Progress};
use crate::inbox::Inbox;
use crate::machine::{Machine, Transport};
use crate::news::News;
use crate::outbox::{Outbox, Reply, next_send};
use crate::request::{Refusal, Work, check, error_code};
use crate::server::Server;
use crate::shares::{Account, Direction, Hold};
use crate::status;
use crate::watchdog::Debt;
use crate::workers::Job;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use uraid_block::buffer::SMALL_BLOCK_BYTES;
use uraid_block::local::{Notify, Semaphore, yield_now};
use uraid_block::{Device, IoError, ReadPieces, Tick, WritePieces};
use uraid_host::Peer;
use uraid_nbd::extended::EXTENDED_REQUEST_BYTES;
use uraid_nbd::transmission::REQUEST_BYTES;
use uraid_nbd::words::PAYLOAD_BYTES_MAX;
use uraid_nbd::{BlockStatus, Command, Request, StatusExtent, WireError};

/// After a write of this size the next one is expected to be as large. Only its header is received ahead, so that its
/// payload needs no copy.
const LARGE_PAYLOAD_BYTES: u64 = 32 << 10;

/// After this many requests of one receive the other connections have their turn. On a device that answers at once, 4 clients
/// with 128 reads each would otherwise have all 512 answered before the one read of a fifth. The replies of one turn are
/// sent together: the 4 lose 9% of their rate to smaller sends.
const REQUESTS_AT_ONCE_MAX: u32 = 8;

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Handshake,
    Transmission,
    /// No more requests are read; replies leave.
    Ending,
}

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

pub(crate) struct Connection<M: Machine, T: Transport, D: Device + 'static> {
    pub(crate) server: Rc<Server<M, T, D>>,
    pub(crate) transport: T,
    pub(crate) peer: Peer,
    outbox: Outbox,
    in_flight: Rc<Semaphore>,
    account: OnceCell<Rc<Account>>,
    pub(crate) clearing: Clearing,
    /// Meaningless before the handshake's end.
    pub(crate) agreement: Cell<Agreement>,
    pub(crate) phase: Cell<Phase>,
    /// When the phase began.
    pub(crate) since: Cell<Tick>,
    /// The server's move counter when this connection last received or sent bytes.
    pub(crate) moves: Cell<u64>,
    /// Sends that the client's socket took. Where it is to take replies, bytes that it sends are no progress.
    pub(crate) sends: Cell<u64>,
    pub(crate) received_bytes: Cell<u64>,
    /// Payloads that arrived completely.
    pub(crate) payloads: Cell<u64>,
    /// What the client owes, as the watchdog last saw it: the rest of a payload, or taking its replies.
    pub(crate) debt: Cell<Option<Debt>>,
    pub(crate) payload_is_due: Cell<bool>,
    pub(crate) is_sending: Cell<bool>,
    /// The client has announced that it sends no more, and may close at once.
    is_disconnected: Cell<bool>,
    is_closing: Cell<bool>,
    closing: Notify,
    taken_at_once: Cell<u32>,
    /// Whole requests may have been received and not begun.
    has_unread: Cell<bool>,
}

impl<M: Machine, T: Transport, D: Device + 'static> Connection<M, T, D> {
    pub(crate) fn new(server: Rc<Server<M, T, D>>, transport: T) -> Connection<M, T, D> {
        Connection {
            peer: transport.peer(),
            transport,
            outbox: Outbox::default(),
            in_flight: Semaphore::new(server.limits.requests_max),
            account: OnceCell::new(),
            clearing: Clearing::default(),
            agreement: Cell::new(Agreement { form: Form::Simple, allocation: false, export: 0 }),
            phase: Cell::new(Phase::Handshake),
            since: Cell::new(server.machine.now()),
            moves: Cell::new(0),
            sends: Cell::new(0),
            received_bytes: Cell::new(0),
            payloads: Cell::new(0),
            debt: Cell::new(None),
            payload_is_due: Cell::new(false),
            is_sending: Cell::new(false),
            is_disconnected: Cell::new(false),
            is_closing: Cell::new(false),
            closing: Notify::new(),
            taken_at_once: Cell::new(0),
            has_unread: Cell::new(false),
            server,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Whether no request and no reply is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let is_done = self.in_flight.free() == self.server.limits.requests_max;
        is_done && !self.has_unread.get() && !self.payload_is_due.get() && !self.is_sending.get()
    }

    /// Whether a write whose payload has not arrived is all that is in flight.
    pub(crate) fn owes_only_a_payload(&self) -> bool {
        let in_flight = self.server.limits.requests_max - self.in_flight.free();
        in_flight == 1 && self.payload_is_due.get() && !self.is_sending.get()
    }

    /// Whether a long request should end early: the server stops, or the client has gone. After the protocol's
    /// disconnect, requests in flight are completed until the watchdog cuts the connection.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_closing.get() || (!self.is_disconnected.get() && self.transport.is_hung_up())
    }

    pub(crate) async fn closes(&self) {
        self.closing.wait_for(|| self.is_closing.get().then_some(())).await;
    }

    /// Reads no more requests; those in flight end and are answered, long ones at their next piece.
    pub(crate) fn close(&self) {
        self.is_closing.set(true);
        self.closing.notify_all();
        self.server.drop_clears(self);
    }

    /// Ends the connection now; requests in flight run to their end unanswered.
    pub(crate) fn kill(&self) {
        self.close();
        self.outbox.break_off();
        self.transport.shutdown();
    }

    /// Serves the client until it leaves. Returns whether the connection broke.
    pub(crate) async fn run(self: Rc<Self>) -> bool {
        let end = match self.shake_hands().await {
            Ok(inbox) => {
                self.enter(Phase::Transmission);
                self.server.tell(News::Connected { peer: self.peer, export: self.agreement.get().export });
                self.server.machine.spawn(self.clone().write_replies());
                let end = self.read_requests(inbox).await;
                self.is_disconnected.set(end == End::Disconnected);
                self.enter(Phase::Ending);
                if end == End::Broken {
                    self.close();
                } else if self.is_given_up() {
                    self.server.drop_clears(&self);
                }
                // Each request releases its permit when its reply has left, or can no longer leave.
                let all = self.in_flight.acquire(self.server.limits.requests_max).await;
                self.outbox.end();
                drop(all);
                end
            }
            Err(end) => end,
        };
        self.transport.shutdown();
        end == End::Broken
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.server.machine.now());
    }

    /// Whether its client has chosen an export that it may write.
    pub(crate) fn may_write(&self) -> bool {
        self.phase.get() == Phase::Transmission && !self.offer().is_read_only()
    }

    /// The number of the export that its client has chosen.
    pub(crate) fn export(&self) -> usize {
        self.agreement.get().export
    }

    fn account(&self) -> &Rc<Account> {
        self.account.get().expect("requests come after the export is chosen")
    }

    /// Bytes of the clients' memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.account.get().map_or(0, |account| account.held())
    }

    /// Whether it holds more than its share while others wait.
    pub(crate) fn is_over(&self) -> bool {
        self.account.get().is_some_and(|account| self.server.shares(self.export()).is_over(account))
    }

    fn offer(&self) -> &Offer {
        &self.server.offers[self.agreement.get().export]
    }

    pub(crate) fn device(&self) -> &D {
        &self.server.devices[self.agreement.get().export]
    }

    /// Bytes that were sent to the socket and that the client has not received.
    pub(crate) fn unsent(&self) -> usize {
        self.transport.unsent()
    }

    pub(crate) fn moved(&self) {
        self.moves.set(self.server.next_move());
    }

    fn sent(&self, sends: u64) {
        self.moved();
        self.sends.set(self.sends.get() + sends);
        self.server.count(|counts| counts.sends += sends);
    }

    /// Sends all of it. Returns whether that succeeded; if not, the connection is broken off.
    async fn send(&self, mut all: WritePieces) -> bool {
        self.is_sending.set(true);
        while !all.is_empty() {
            let part = next_send(&mut all);
            if self.transport.send(part).await.is_err() {
                self.kill();
                return false;
            }
            self.sent(1);
        }
        self.is_sending.set(false);
        true
    }

    /// The handshake. Requests that the client sent after it are in the returned inbox. `Err`: no export was chosen.
    async fn shake_hands(&self) -> Result<Inbox, End> {
        let mut inbox = Inbox::new(self.server.own_block(SMALL_BLOCK_BYTES).await);
        let mut out = Vec::new();
        let mut handshake = Handshake::new(&mut out);
        loop {
            let (used, progress) = handshake.receive(&self.server.offers, inbox.unread(), &mut out);
            inbox.consume(used);
            for part in out.chunks(SMALL_BLOCK_BYTES) {
                let mut block = self.server.own_block(part.len()).await;
                block.copy_from_slice(part);
                let mut pieces = ReadPieces::new();
                pieces.push(block);
                // A client that only lists exports does not wait for the last answer.
                if !self.send(pieces.freeze()).await {
                    return Err(End::Clean);
                }
            }
            out.clear();
            match progress {
                Progress::More => {}
                Progress::Agreed(agreement) => {
                    self.agreement.set(agreement);
                    self.account.get_or_init(|| self.server.shares(agreement.export).open());
                    return Ok(inbox);
                }
                Progress::Aborted => return Err(End::Clean),
                Progress::Close => return Err(End::Broken),
            }
            if !self.fill(&mut inbox, usize::MAX).await {
                return Err(End::Clean);
            }
        }
    }

    /// A client that sends more than a small block at a time gets a large inbox if one is free; a client that sends
    /// less gives it back. So an idle client holds a small block. One that fell idle after large sends may keep a large
    /// one, of which there are few.
    async fn fit(&self, inbox: &mut Inbox) {
        match inbox.better_size() {
            Some(SMALL_BLOCK_BYTES) => inbox.move_to(self.server.own_block(SMALL_BLOCK_BYTES).await),
            Some(_) => {
                if let Some(block) = self.server.large_block() {
                    inbox.move_to(block);
                }
            }
            None => {}
        }
    }

    async fn read_requests(self: &Rc<Self>, mut inbox: Inbox) -> End {
        let mut last_payload = 0;
        loop {
            self.has_unread.set(true);
            while let Some(next) = self.next_request(&mut inbox) {
                // Skip requests once the connection is closing.
                if self.is_closing.get() {
                    return End::Clean;
                }
                let Ok(request) = next else { return End::Broken };
                last_payload = request.payload_bytes(self.is_extended());
                if let Err(end) = self.take(request, &mut inbox).await {
                    return end;
                }
            }
            self.has_unread.set(false);
            self.fit(&mut inbox).await;
            // Start what has arrived before receiving more, and let other tasks run.
            yield_now().await;
            let unread = inbox.unread().len();
            let ahead = if last_payload >= LARGE_PAYLOAD_BYTES { self.header_bytes() - unread } else { usize::MAX };
            if !self.fill(&mut inbox, ahead).await {
                return if unread == 0 || self.is_closing.get() { End::Clean } else { End::Broken };
            }
        }
    }

    fn form(&self) -> Form {
        self.agreement.get().form
    }

    fn is_extended(&self) -> bool {
        self.form() == Form::Extended
    }

    pub(crate) fn header_bytes(&self) -> usize {
        if self.is_extended() { EXTENDED_REQUEST_BYTES } else { REQUEST_BYTES }
    }

    /// Takes the next request's header from the inbox if it is complete.
    fn next_request(&self, inbox: &mut Inbox) -> Option<Result<Request, WireError>> {
        let request = if self.is_extended() {
            Request::parse_extended(inbox.unread().first_chunk()?)
        } else {
            Request::parse(inbox.unread().first_chunk()?)
        };
        inbox.consume(self.header_bytes());
        Some(request)
    }

    /// Takes one request with its payload and starts or refuses it. `Err` if it was the last one.
    async fn take(self: &Rc<Self>, request: Request, inbox: &mut Inbox) -> Result<(), End> {
        let work = match check(self.offer(), self.agreement.get(), &request) {
            Ok(Work::Disconnect) => return Err(End::Disconnected),
            Ok(work) => work,
            Err(refusal) => return self.refuse(request, refusal, inbox).await,
        };
        let transfer = match work {
            Work::Read(range) => Some((Direction::Read, range.length.len_bytes())),
            Work::Write(range, _) => Some((Direction::Write, range.length.len_bytes())),
            Work::Flush | Work::Clear(..) | Work::Cache(_) | Work::Status { .. } | Work::Disconnect => None,
        };
        if let Work::Clear(_, range, _) = work {
            let permit = self.in_flight.acquire(1).await;
            self.server.running.set(self.server.running.get() + 1);
            self.server.put_clear(self, ClearRequest { request, rest: range, permit });
            return Ok(());
        }
        let (shares, account) = (self.server.shares(self.export()), self.account());
        let hold = match transfer {
            None => Hold::new(self.in_flight.acquire(1).await),
            Some((direction, bytes)) => match shares.hold_now(&self.in_flight, account, direction, bytes) {
                Some(hold) => hold,
                None => shares.hold(&self.in_flight, account, direction, bytes).await,
            },
        };
        let mut payload = None;
        if let Work::Write(range, _) = work {
            let empty = self.server.buffers(self.export(), range.length.len_bytes()).await;
            self.payload_is_due.set(true);
            payload = Some(self.payload(empty, inbox).await.ok_or(End::Broken)?);
            self.payload_is_due.set(false);
            self.payloads.set(self.payloads.get() + 1);
        }
        self.server.running.set(self.server.running.get() + 1);
        if let Work::Cache(_) = work {
            // The device has nothing to do for it.
            self.finish(&request, Ok(()), hold);
            self.give_way().await;
            return Ok(());
        }
        if transfer.is_some() {
            self.server.transfer_begins(self);
        }
        self.server.put(Job { connection: self.clone(), request, work, payload, hold });
        if self.server.has_transfers_of_others(self) {
            self.give_way().await;
        }
        Ok(())
    }

    /// Call it after each request of a receive that keeps others from their turn.
    async fn give_way(&self) {
        self.taken_at_once.set((self.taken_at_once.get() + 1) % REQUESTS_AT_ONCE_MAX);
        if self.taken_at_once.get() == 0 {
            yield_now().await;
        }
    }

    /// Answers with the protocol's error. The payload is skipped to find the next request. A payload above the maximum
    /// is not waited for. After a write whose header does not say whether a payload follows, no request can be found.
    async fn refuse(&self, request: Request, refusal: Refusal, inbox: &mut Inbox) -> Result<(), End> {
        let payload = request.payload_bytes(self.is_extended());
        let is_last = payload > PAYLOAD_BYTES_MAX.into() || refusal == Refusal::NoPayload;
        if !is_last && !self.skip(payload as usize, inbox).await {
            return Err(End::Broken);
        }
        let hold = Hold::new(self.in_flight.acquire(1).await);
        self.server.count(|counts| counts.refused += 1);
        let text = refusal.to_string();
        self.outbox.push(Reply::error(self.form(), &request, refusal.code(), &text, hold));
        self.give_way().await;
        if is_last { Err(End::Broken) } else { Ok(()) }
    }

    /// Runs a request to its end, even if the client leaves meanwhile, and answers.
    pub(crate) async fn work(&self, request: &Request, work: Work, payload: Option<ReadPieces>, hold: Hold) {
        let device = self.device();
        match work {
            Work::Read(range) => {
                // Take buffers only now: if the device answers at once, the next read gets the buffers of this one,
                // which are still in the processor's cache.
                let into = self.server.buffers(self.export(), range.length.len_bytes()).await;
                let result = device.read(range.start, into).await;
                self.finish_read(request, result, hold);
            }
            Work::Write(range, fua) => {
                let from = payload.expect("a write has a payload").freeze();
                let result = device.write(range.start, from, fua).await;
                self.finish(request, result, hold);
            }
            Work::Flush => {
                let result = device.flush().await;
                self.finish(request, result, hold);
            }
            Work::Status { range, one } => {
                let result = status::extents(device, range, self.offer().sizes.minimum, one).await;
                self.finish_status(request, result, hold);
            }
            Work::Clear(..) => unreachable!("they have a queue of their own"),
            Work::Cache(_) => unreachable!("it is answered at once"),
            Work::Disconnect => unreachable!("it ends the reading"),
        }
        // The writer runs after all ready tasks. Send now if enough is waiting.
        if self.outbox.is_worth_a_send() {
            self.send_now();
        }
    }

    fn finish_status(&self, request: &Request, result: Result<Vec<StatusExtent>, IoError>, hold: Hold) {
        match result {
            Ok(extents) => {
                self.count(request, true);
                let status = BlockStatus { context: ALLOCATION_ID, extents };
                self.outbox.push(Reply::status(self.form(), request, &status, hold));
            }
            Err(error) => self.finish(request, Err(error), hold),
        }
    }

    fn finish_read(&self, request: &Request, result: Result<ReadPieces, IoError>, hold: Hold) {
        match result {
            Ok(data) => {
                self.count(request, true);
                self.outbox.push(Reply::data(self.form(), request, data.freeze(), hold));
            }
            Err(error) => self.finish(request, Err(error), hold),
        }
    }

    pub(crate) fn finish(&self, request: &Request, result: Result<(), IoError>, hold: Hold) {
        self.count(request, result.is_ok());
        let reply = match result {
            Ok(()) => Reply::done(self.form(), request, hold),
            Err(error) => Reply::error(self.form(), request, error_code(error.kind), &error.to_string(), hold),
        };
        self.outbox.push(reply);
    }

    fn count(&self, request: &Request, is_ok: bool) {
        let bytes = if is_ok { request.length } else { 0 };
        if matches!(request.command, Command::Read | Command::Write) {
            self.server.transfer_ends(self);
        }
        self.server.finished(|counts| {
            counts.failed += u64::from(!is_ok);
            match request.command {
                Command::Read => (counts.reads, counts.read_bytes) = (counts.reads + 1, counts.read_bytes + bytes),
                Command::Write => {
                    (counts.writes, counts.written_bytes) = (counts.writes + 1, counts.written_bytes + bytes)
                }
                Command::Flush => counts.flushes += 1,
                Command::Trim => counts.trims += 1,
                Command::WriteZeroes => counts.write_zeroes += 1,
                Command::Cache => counts.caches += 1,
                Command::BlockStatus => counts.statuses += 1,
                Command::Disconnect | Command::Resize | Command::Unknown(_) => {
                    unreachable!("these are never started")
                }
            }
        });
    }

    /// Sends what the socket takes without blocking, unless a send is waiting already.
    fn send_now(&self) {
        if self.is_sending.get() {
            return;
        }
        match self.outbox.send_now(|slices| self.transport.try_send(slices)) {
            Ok(0) => {}
            Ok(sends) => self.sent(sends),
            Err(_) => self.kill(),
        }
    }

    /// The connection's writer: sends what is ready, and waits if the socket is full.
    async fn write_replies(self: Rc<Self>) {
        while self.outbox.wait().await {
            self.send_now();
            let mut batch = self.outbox.take_batch();
            if batch.is_empty() {
                continue;
            }
            // From here on no other send may overtake the batch.
            self.is_sending.set(true);
            let block = self.server.own_block(SMALL_BLOCK_BYTES).await;
            if !self.send(batch.gather(block)).await {
                return;
            }
        }
    }
}
