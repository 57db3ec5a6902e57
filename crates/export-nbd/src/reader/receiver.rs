//! Bytes from a connection's socket: request headers, and the payloads of writes.
//! Owns: [`Receiver`] of one connection: how much is received at a time, counting it. Not here: what requests mean
//! (`reader`), the block that holds what was received and not used (`inbox`).
//! Invariant: a payload is filled in the order of its bytes, by what the inbox has first.

use crate::connection::Connection;
use crate::handshake::Form;
use crate::machine::{Machine, Transport};
use crate::reader::inbox::{Inbox, Room};
use smallvec::SmallVec;
use std::io::IoSliceMut;
use std::rc::Rc;
use uraid_block::buffer::SMALL_BLOCK_BYTES;
use uraid_block::local::{Either, race, yield_now};
use uraid_block::{Device, Lease, ReadPieces};
use uraid_nbd::extended::EXTENDED_REQUEST_BYTES;
use uraid_nbd::transmission::REQUEST_BYTES;
use uraid_nbd::{Request, WireError};

/// If at least this much of a payload is missing, it is received straight into its buffers.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// The most bytes of a payload that one call takes from the socket without waiting.
const DIRECT_BYTES_MAX: usize = 4 << 20;
/// The fewest and the most bytes to wait for at once. Between these, the receiver waits for as many as had already
/// arrived, because a fast client sends as many again in the same time. Progress is counted only after each wait: a
/// wait for 4 MiB at 1 MB/s would be 4 s without progress.
const AWAITED_BYTES: [usize; 2] = [64 << 10, 256 << 10];
/// A client that had filled half of its socket's 208 KiB counts as fast. If no request waits for memory, the receiver
/// waits for more of a fast client's bytes at once: writes of 1 MiB are 5 % slower in parts of 256 KiB.
const FAST_BYTES_MIN: usize = 104 << 10;
const AWAITED_BYTES_IF_FAST: usize = 1 << 20;

/// The bytes that one client sends.
pub(crate) struct Receiver<M: Machine, T: Transport, D: Device + 'static> {
    connection: Rc<Connection<M, T, D>>,
    inbox: Inbox,
}

impl<M: Machine, T: Transport, D: Device + 'static> Receiver<M, T, D> {
    pub(crate) async fn new(connection: Rc<Connection<M, T, D>>) -> Receiver<M, T, D> {
        let inbox = Inbox::new(connection.shared().memory().own_block(SMALL_BLOCK_BYTES).await);
        Receiver { connection, inbox }
    }

    /// What was received and not used yet.
    pub(crate) fn unread(&self) -> &[u8] {
        self.inbox.unread()
    }

    /// Marks the first bytes as used. Panics if there are fewer.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.inbox.consume(bytes);
    }

    /// Takes the next request's header from the inbox if it is complete.
    pub(crate) fn next_request(&mut self) -> Option<Result<Request, WireError>> {
        let form = self.connection.form();
        let unread = self.inbox.unread();
        let request = match form {
            Form::Extended => Request::parse_extended(unread.first_chunk()?),
            Form::Simple | Form::Structured => Request::parse(unread.first_chunk()?),
        };
        self.inbox.consume(header_bytes(form));
        Some(request)
    }

    /// The room that the next header needs in the inbox.
    pub(crate) fn missing_header_bytes(&self) -> usize {
        let (header, unread) = (header_bytes(self.connection.form()), self.inbox.unread().len());
        assert!(unread < header, "a whole header was taken");
        header - unread
    }

    /// A client that sends more than a small block at a time gets a large inbox if one is free. A client that sends
    /// less gives it back, so an idle client holds a small block. A client that fell idle right after large sends may
    /// keep a large one; there are few of these.
    pub(crate) async fn fit_inbox(&mut self) {
        let memory = self.connection.shared().memory();
        match self.inbox.better_size() {
            Some(SMALL_BLOCK_BYTES) => self.inbox.move_to(memory.own_block(SMALL_BLOCK_BYTES).await),
            Some(_) => {
                if let Some(block) = memory.large_block() {
                    self.inbox.move_to(block);
                }
            }
            None => {}
        }
    }

    /// Receives more into the inbox. Returns false at the end of the connection.
    pub(crate) async fn fill(&mut self, bytes_max: usize) -> bool {
        if self.connection.is_closing() {
            return false;
        }
        let Some(room) = self.inbox.room(bytes_max) else { return false };
        match recv_now(&self.connection, &mut [IoSliceMut::new(room)]) {
            (false, _) => return false,
            (true, 0) => {}
            (true, received) => {
                self.inbox.received(received);
                return true;
            }
        }
        let Some(Room { front, room, rest }) = self.inbox.take_room(bytes_max) else { return false };
        match recv(&self.connection, room).await {
            Some((room, received)) => {
                self.inbox.give_back(front, room, rest, received);
                true
            }
            None => false,
        }
    }

    /// Receives this number of bytes and drops them. Returns false at the end of the connection.
    pub(crate) async fn skip(&mut self, bytes: usize) -> bool {
        let mut left = bytes;
        loop {
            let count = left.min(self.inbox.unread().len());
            self.inbox.consume(count);
            left -= count;
            if left == 0 {
                return true;
            }
            if !self.fill(usize::MAX).await {
                return false;
            }
            // Yield while discarding rejected payloads: a fast client would otherwise keep the shard busy.
            yield_now().await;
        }
    }

    /// Fills the buffers with the payload: copies what was received ahead, and receives the rest straight from the
    /// socket if it is long. `None` if the connection ends before.
    pub(crate) async fn payload(&mut self, mut empty: ReadPieces) -> Option<ReadPieces> {
        let bytes = empty.bytes();
        let mut filled = ReadPieces::new();
        loop {
            let mut copied = empty.split_to(self.inbox.unread().len().min(empty.bytes()));
            for piece in copied.iter_mut() {
                let count = self.inbox.copy_to(piece);
                assert_eq!(count, piece.len());
            }
            filled.append(copied);
            assert_eq!(filled.bytes() + empty.bytes(), bytes, "no byte is lost");
            if empty.is_empty() {
                return Some(filled);
            }
            if empty.bytes() >= DIRECT_BYTES_MIN {
                let mut part = empty.split_to(empty.bytes().min(DIRECT_BYTES_MAX));
                // Receive the next header along with it, so that a stream of such writes costs one receive each.
                let ahead = if empty.is_empty() { header_bytes(self.connection.form()) } else { 0 };
                let received = self.recv_direct(&mut part, ahead)?;
                filled.append(part.split_to(received));
                if !part.is_empty() {
                    part.append(empty);
                    empty = part;
                    let awaited = self.awaited(received).min(empty.bytes());
                    let part = empty.split_to(awaited);
                    filled.append(recv_all(&self.connection, part).await?);
                }
            } else if !self.fill(usize::MAX).await {
                return None;
            }
        }
    }

    /// How many bytes of a payload to wait for at once, if `received` bytes had already arrived.
    fn awaited(&self, received: usize) -> usize {
        if received >= FAST_BYTES_MIN && !self.connection.device().shares().is_short() {
            return AWAITED_BYTES_IF_FAST;
        }
        let [least, most] = AWAITED_BYTES;
        received.clamp(least, most)
    }

    /// Receives what has arrived into the buffers, and up to `ahead` bytes of what follows into the empty inbox.
    /// Returns how many bytes the buffers got; `None` if the connection ends.
    fn recv_direct(&mut self, into: &mut ReadPieces, ahead: usize) -> Option<usize> {
        assert!(self.inbox.unread().is_empty());
        let bytes = into.bytes();
        let mut slices: SmallVec<[IoSliceMut<'_>; 8]> = into.iter_mut().map(|piece| IoSliceMut::new(piece)).collect();
        slices.push(IoSliceMut::new(self.inbox.room(ahead)?));
        let (goes_on, received) = recv_now(&self.connection, &mut slices);
        drop(slices);
        assert!(received <= bytes + ahead);
        if received > bytes {
            self.inbox.received(received - bytes);
        }
        goes_on.then_some(received.min(bytes))
    }
}

fn header_bytes(form: Form) -> usize {
    match form {
        Form::Extended => EXTENDED_REQUEST_BYTES,
        Form::Simple | Form::Structured => REQUEST_BYTES,
    }
}

/// Receives into the lease; `None` if the connection ends.
async fn recv<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    into: Lease,
) -> Option<(Lease, usize)> {
    match race(connection.closes(), connection.transport().recv(into)).await {
        Either::Right(Ok((lease, received))) if received > 0 => {
            connection.received(received);
            Some((lease, received))
        }
        Either::Right(Ok(_) | Err(_)) | Either::Left(()) => None,
    }
}

/// Receives until the buffers are full; `None` if the connection ends before.
async fn recv_all<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    into: ReadPieces,
) -> Option<ReadPieces> {
    match race(connection.closes(), connection.transport().recv_all(into)).await {
        Either::Right(Ok(pieces)) => {
            connection.received(pieces.bytes());
            Some(pieces)
        }
        Either::Right(Err(_)) | Either::Left(()) => None,
    }
}

/// Receives what has arrived. Returns whether the connection continues, and the number of bytes.
fn recv_now<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    into: &mut [IoSliceMut<'_>],
) -> (bool, usize) {
    match connection.transport().try_recv(into) {
        Ok(None) => (true, 0),
        Ok(Some(0)) | Err(_) => (false, 0),
        Ok(Some(received)) => {
            connection.received(received);
            (true, received)
        }
    }
}
