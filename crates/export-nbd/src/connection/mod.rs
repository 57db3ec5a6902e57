//! One connection: its state, answering its requests, sending the replies, ending it.
//! Owns: [`Connection`], [`Phase`], the task that sends replies. Not here: replies that wait (`outbox`),
//! receiving, the handshake and the requests (`reader`), deadlines (`watchdog`).
//! Invariant: every request that was begun is answered once, unless the connection broke. Its buffers and permits are
//! held until its reply has left.

pub(crate) mod outbox;
pub(crate) mod progress;

use crate::connection::outbox::{Outbox, Reply, next_send};
use crate::connection::progress::{Awaited, ClientProgress};
use crate::handshake::export::Offer;
use crate::handshake::{ALLOCATION_ID, Agreement, Form};
use crate::machine::{Machine, Transport};
use crate::request::clear_queue::{ClearQueue, ClearRequest, ClearRequests, HasClears};
use crate::request::{Refusal, error_code};
use crate::shared::shares::{Account, Hold};
use crate::shared::transfers::Transfers;
use crate::shared::{Shared, SharedDevice};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use uraid_block::buffer::SMALL_BLOCK_BYTES;
use uraid_block::local::{Notify, Semaphore};
use uraid_block::{Device, ErrorKind, IoError, Sectors, Tick, WritePieces};
use uraid_host::Peer;
use uraid_nbd::{BlockStatus, Command, Request, StatusExtent};

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Handshake,
    Transmission,
    /// No more requests are read; replies are still sent.
    Ending,
}

/// What a request that succeeded returns to the client.
pub(crate) enum Answer {
    Done,
    Data(WritePieces),
    Status(Vec<StatusExtent>),
}

/// What the handshake decided.
struct Session<M: Machine, T: Transport, D: Device + 'static> {
    agreement: Agreement,
    offer: Offer,
    device: Rc<SharedDevice<D>>,
    /// How much the connection holds of the memory of the device's clients.
    account: Rc<Account>,
    /// Where the connection's trims and write-zeroes wait.
    clear_queue: Rc<ClearQueue<Connection<M, T, D>>>,
}

pub(crate) struct Connection<M: Machine, T: Transport, D: Device + 'static> {
    shared: Rc<Shared<M, D>>,
    transport: T,
    peer: Peer,
    session: OnceCell<Session<M, T, D>>,
    phase: Cell<Phase>,
    /// When the phase began.
    since: Cell<Tick>,
    outbox: Outbox,
    /// A permit for each request that the client may have in flight.
    in_flight: Rc<Semaphore>,
    clears: ClearRequests,
    transfers: Transfers,
    progress: ClientProgress,
    /// Whether the inbox may hold complete requests that were not begun.
    has_unread: Cell<bool>,
    /// The client has announced that it sends no more, and may close at once.
    is_disconnected: Cell<bool>,
    is_closing: Cell<bool>,
    closing: Notify,
}

impl<M: Machine, T: Transport, D: Device + 'static> HasClears for Connection<M, T, D> {
    fn clears(&self) -> &ClearRequests {
        &self.clears
    }
}

impl<M: Machine, T: Transport, D: Device + 'static> Connection<M, T, D> {
    pub(crate) fn new(shared: Rc<Shared<M, D>>, transport: T) -> Connection<M, T, D> {
        Connection {
            peer: transport.peer(),
            transport,
            session: OnceCell::new(),
            phase: Cell::new(Phase::Handshake),
            since: Cell::new(shared.machine().now()),
            outbox: Outbox::default(),
            in_flight: Semaphore::new(shared.limits().requests_max),
            clears: ClearRequests::default(),
            transfers: Transfers::new(shared.transfers().clone()),
            progress: ClientProgress::default(),
            has_unread: Cell::new(false),
            is_disconnected: Cell::new(false),
            is_closing: Cell::new(false),
            closing: Notify::new(),
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Rc<Shared<M, D>> {
        &self.shared
    }

    pub(crate) fn transport(&self) -> &T {
        &self.transport
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// When its phase began.
    pub(crate) fn since(&self) -> Tick {
        self.since.get()
    }

    pub(crate) fn progress(&self) -> &ClientProgress {
        &self.progress
    }

    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    pub(crate) fn in_flight(&self) -> &Rc<Semaphore> {
        &self.in_flight
    }

    fn enter(&self, phase: Phase) {
        let is_next = match (self.phase.get(), phase) {
            (Phase::Handshake, Phase::Transmission) | (Phase::Transmission, Phase::Ending) => true,
            (Phase::Handshake | Phase::Transmission | Phase::Ending, _) => false,
        };
        assert!(is_next, "from {:?} to {phase:?}", self.phase.get());
        self.phase.set(phase);
        self.since.set(self.shared.machine().now());
    }

    /// The handshake ended with an export, whose trims and write-zeroes wait in `clear_queue`.
    pub(crate) fn agree(&self, agreement: Agreement, clear_queue: Rc<ClearQueue<Connection<M, T, D>>>) {
        let device = self.shared.device_of(agreement.export).clone();
        let account = device.shares().open();
        let offer = self.shared.offers()[agreement.export].clone().with_size(Sectors::from_bytes_floor(agreement.size));
        let session = Session { agreement, offer, device, account, clear_queue };
        assert!(self.session.set(session).is_ok(), "a client chooses its export once");
        self.enter(Phase::Transmission);
    }

    fn session(&self) -> &Session<M, T, D> {
        self.session.get().expect("requests come after the export is chosen")
    }

    pub(crate) fn agreement(&self) -> Agreement {
        self.session().agreement
    }

    pub(crate) fn form(&self) -> Form {
        self.session().agreement.form
    }

    /// What the client was told.
    pub(crate) fn offer(&self) -> &Offer {
        &self.session().offer
    }

    /// The device of its export, and what it shares with other clients of that device.
    pub(crate) fn device(&self) -> &SharedDevice<D> {
        &self.session().device
    }

    pub(crate) fn account(&self) -> &Rc<Account> {
        &self.session().account
    }

    /// Bytes that the connection holds of the memory for clients' requests (`shares`).
    pub(crate) fn held(&self) -> usize {
        self.session.get().map_or(0, |session| session.account.held())
    }

    /// Whether the connection holds more than its share while others wait.
    pub(crate) fn exceeds_share(&self) -> bool {
        self.device().shares().exceeds_share(self.account())
    }

    /// Whether the client has chosen an export that it may write.
    pub(crate) fn may_write(&self) -> bool {
        self.phase.get() == Phase::Transmission && !self.agreement().read_only
    }

    /// Sets whether complete requests may be in the inbox.
    pub(crate) fn set_unread(&self, has_unread: bool) {
        self.has_unread.set(has_unread);
    }

    fn requests_in_flight(&self) -> usize {
        let (max, free) = (self.shared.limits().requests_max, self.in_flight.free());
        assert!(free <= max);
        max - free
    }

    /// Whether no request and no reply is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let is_awaited = self.progress.is_payload_due() || self.progress.is_sending();
        self.requests_in_flight() == 0 && !self.has_unread.get() && !is_awaited
    }

    /// Whether the only request in flight is a write whose payload has not arrived.
    pub(crate) fn has_only_a_due_payload(&self) -> bool {
        self.requests_in_flight() == 1 && self.progress.is_payload_due() && !self.progress.is_sending()
    }

    /// Bytes arrived from its client.
    pub(crate) fn received(&self, bytes: usize) {
        self.progress.received(bytes, self.shared.next_activity());
        self.shared.count(|counts| counts.receives += 1);
    }

    /// What the server waits for its client to do.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        self.progress.awaited(|| self.transport.unsent())
    }

    /// Whether other clients read or write.
    pub(crate) fn is_contended(&self) -> bool {
        self.transfers.is_contended(self.shared.transfers_answered(), self.shared.machine().now())
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    pub(crate) async fn closes(&self) {
        self.closing.wait_for(|| self.is_closing.get().then_some(())).await;
    }

    /// Whether a long request should end early, because the server stops or the client has gone. A client that sent the
    /// protocol's disconnect has not gone: its requests run on until the watchdog cuts the connection.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_closing.get() || (!self.is_disconnected.get() && self.transport.is_hung_up())
    }

    /// Reads no more requests; those in flight end and are answered, long ones at their next piece.
    pub(crate) fn close(&self) {
        self.is_closing.set(true);
        self.closing.notify_all();
        self.abandon_clears();
    }

    /// Ends the connection now; requests in flight run to their end unanswered.
    pub(crate) fn kill(&self) {
        self.close();
        self.outbox.break_off();
        self.transport.shutdown();
    }

    /// Answers the trims and write-zeroes that wait; those that run end at their next piece.
    fn abandon_clears(&self) {
        let Some(session) = self.session.get() else { return };
        for request in session.clear_queue.remove(self) {
            self.answer_clear(request, Err(ErrorKind::Stopping.into()));
        }
    }

    /// Ends the connection after its last request. `is_disconnected`: the client has announced that it sends no more.
    /// Returns when all requests that were begun are answered, and their replies have left or can no longer leave.
    pub(crate) async fn end(&self, is_disconnected: bool, is_broken: bool) {
        assert!(!(is_disconnected && is_broken));
        self.is_disconnected.set(is_disconnected);
        self.enter(Phase::Ending);
        if is_broken {
            self.close();
        } else if self.is_given_up() {
            self.abandon_clears();
        }
        // Each request releases its permit when its reply has left, or can no longer leave.
        let all = self.in_flight.acquire(self.shared.limits().requests_max).await;
        assert!(self.clears.is_empty(), "each of them held a permit");
        self.outbox.end();
        drop(all);
    }

    /// A trim or write-zeroes has ended.
    pub(crate) fn answer_clear(&self, request: ClearRequest, result: Result<(), IoError>) {
        let (request, permit) = request.into_parts();
        self.answer(&request, result.map(|()| Answer::Done), Hold::new(permit));
    }

    /// Answers a request that was begun. The reply waits for the connection's writer.
    pub(crate) fn answer(&self, request: &Request, result: Result<Answer, IoError>, hold: Hold) {
        if matches!(request.command, Command::Read | Command::Write) {
            self.transfers.end();
        }
        self.shared.count(|counts| counts.answered(request.command, request.length, result.is_ok()));
        self.shared.request_ends();
        let form = self.form();
        self.outbox.push(match result {
            Ok(Answer::Done) => Reply::done(form, request, hold),
            Ok(Answer::Data(data)) => Reply::data(form, request, data, hold),
            Ok(Answer::Status(extents)) => {
                Reply::status(form, request, &BlockStatus { context: ALLOCATION_ID, extents }, hold)
            }
            Err(error) => Reply::error(form, request, error_code(error.kind), &error.to_string(), hold),
        });
    }

    /// Answers a request that was not begun.
    pub(crate) fn refuse(&self, request: &Request, refusal: Refusal, hold: Hold) {
        self.shared.count(|counts| counts.refused += 1);
        self.outbox.push(Reply::error(self.form(), request, refusal.code(), &refusal.to_string(), hold));
    }

    /// Sends at once if enough is waiting: the writer runs only after all ready tasks.
    pub(crate) fn send_if_enough(&self) {
        if self.outbox.has_enough() {
            self.send_now();
        }
    }

    /// Sends what the socket takes without blocking, unless a send is waiting already.
    fn send_now(&self) {
        if self.progress.is_sending() {
            return;
        }
        match self.outbox.send_now(|slices| self.transport.try_send(slices)) {
            Ok(0) => {}
            Ok(sends) => self.sent(sends),
            Err(_) => self.kill(),
        }
    }

    /// Sends all bytes. Returns whether that succeeded; if not, the connection is broken off.
    pub(crate) async fn send(&self, mut all: WritePieces) -> bool {
        self.progress.send_begins();
        while !all.is_empty() {
            let part = next_send(&mut all);
            assert!(!part.is_empty(), "each send makes it shorter");
            if self.transport.send(part).await.is_err() {
                self.kill();
                return false;
            }
            self.sent(1);
        }
        self.progress.send_ends();
        true
    }

    fn sent(&self, sends: u64) {
        self.progress.sent(sends, self.shared.next_activity());
        self.shared.count(|counts| counts.sends += sends);
    }

    /// The connection's writer, a task: sends what is ready, and waits if the socket is full.
    pub(crate) async fn write_replies(self: Rc<Self>) {
        while self.outbox.wait().await {
            self.send_now();
            let mut batch = self.outbox.take_batch();
            if batch.is_empty() {
                continue;
            }
            // From here on no other send may overtake the batch.
            self.progress.send_begins();
            let block = self.shared.memory().own_block(SMALL_BLOCK_BYTES).await;
            if !self.send(batch.gather(block)).await {
                return;
            }
        }
    }
}
