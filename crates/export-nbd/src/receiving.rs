//! Bytes from a connection's socket into its inbox and into the buffers of payloads.
//! Owns: how much is received at a time, and counting it. Not here: requests (`connection`), the block that holds what
//! was received and not used (`inbox`).
//! Invariant: a payload is filled in the order of its bytes, by what the inbox has first.

use crate::connection::Connection;
use crate::inbox::{Inbox, Room};
use crate::machine::{Machine, Transport};
use smallvec::SmallVec;
use std::io::IoSliceMut;
use uraid_block::local::{Either, race, yield_now};
use uraid_block::{Device, Lease, ReadPieces};

/// If at least this much of a payload is missing, it is received straight into its buffers.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// The most bytes of a payload that are taken without waiting for them.
const DIRECT_BYTES_MAX: usize = 4 << 20;
/// The fewest and the most bytes that are waited for at once: as many as were there already, which a fast client has sent
/// meanwhile. Progress is seen after each of them: 4 MiB at 1 MB/s looked as if the client stood still for 4 s.
const AWAITED_BYTES: [usize; 2] = [64 << 10, 256 << 10];
/// While no request waits for memory, a client that had filled half of its socket's 208 KiB is fast: so much is waited for
/// at once. Writes of 1 MiB are 5 % slower in parts of 256 KiB.
const FAST_BYTES_MIN: usize = 104 << 10;
const AWAITED_BYTES_IF_FAST: usize = 1 << 20;

impl<M: Machine, T: Transport, D: Device + 'static> Connection<M, T, D> {
    fn received(&self, bytes: usize) {
        self.moved();
        self.received_bytes.set(self.received_bytes.get() + bytes as u64);
        self.server.count(|counts| counts.receives += 1);
    }

    /// Receives into the lease; `None` if the connection ends.
    async fn recv(&self, into: Lease) -> Option<(Lease, usize)> {
        match race(self.closes(), self.transport.recv(into)).await {
            Either::Right(Ok((lease, received))) if received > 0 => {
                self.received(received);
                Some((lease, received))
            }
            Either::Right(Ok(_) | Err(_)) | Either::Left(()) => None,
        }
    }

    /// Receives until the buffers are full; `None` if the connection ends before.
    async fn recv_all(&self, into: ReadPieces) -> Option<ReadPieces> {
        match race(self.closes(), self.transport.recv_all(into)).await {
            Either::Right(Ok(pieces)) => {
                self.received(pieces.bytes());
                Some(pieces)
            }
            Either::Right(Err(_)) | Either::Left(()) => None,
        }
    }

    /// Receives what is there. Returns whether the connection continues, and how many bytes arrived.
    fn recv_now(&self, into: &mut [IoSliceMut<'_>]) -> (bool, usize) {
        match self.transport.try_recv(into) {
            Ok(None) => (true, 0),
            Ok(Some(0)) | Err(_) => (false, 0),
            Ok(Some(received)) => {
                self.received(received);
                (true, received)
            }
        }
    }

    /// Receives more into the inbox. Returns false at the end of the connection.
    pub(crate) async fn fill(&self, inbox: &mut Inbox, bytes_max: usize) -> bool {
        if self.is_closing() {
            return false;
        }
        let Some(room) = inbox.room(bytes_max) else { return false };
        match self.recv_now(&mut [IoSliceMut::new(room)]) {
            (false, _) => return false,
            (true, 0) => {}
            (true, received) => {
                inbox.received(received);
                return true;
            }
        }
        let Some(Room { front, room, rest }) = inbox.take_room(bytes_max) else { return false };
        match self.recv(room).await {
            Some((room, received)) => {
                inbox.give_back(front, room, rest, received);
                true
            }
            None => false,
        }
    }

    /// Receives this number of bytes and drops them. Returns false at the end of the connection.
    pub(crate) async fn skip(&self, bytes: usize, inbox: &mut Inbox) -> bool {
        let mut left = bytes;
        loop {
            let count = left.min(inbox.unread().len());
            inbox.consume(count);
            left -= count;
            if left == 0 {
                return true;
            }
            if !self.fill(inbox, usize::MAX).await {
                return false;
            }
            // Yield while discarding rejected payloads: a fast client would otherwise keep the shard busy.
            yield_now().await;
        }
    }

    /// Fills the buffers with the payload: copies what was received ahead, and receives the rest straight from the
    /// socket if it is long. `None` if the connection ends before.
    pub(crate) async fn payload(&self, mut empty: ReadPieces, inbox: &mut Inbox) -> Option<ReadPieces> {
        let mut filled = ReadPieces::new();
        loop {
            let mut copied = empty.split_to(inbox.unread().len().min(empty.bytes()));
            for piece in copied.iter_mut() {
                let count = inbox.copy_to(piece);
                assert_eq!(count, piece.len());
            }
            filled.append(copied);
            if empty.is_empty() {
                return Some(filled);
            }
            if empty.bytes() >= DIRECT_BYTES_MIN {
                let mut part = empty.split_to(empty.bytes().min(DIRECT_BYTES_MAX));
                // Receive the next header along with it, so that a stream of such writes costs one receive each.
                let ahead = if empty.is_empty() { self.header_bytes() } else { 0 };
                let received = self.recv_direct(&mut part, inbox, ahead)?;
                filled.append(part.split_to(received));
                if !part.is_empty() {
                    part.append(empty);
                    empty = part;
                    let awaited = self.awaited(received).min(empty.bytes());
                    let part = empty.split_to(awaited);
                    filled.append(self.recv_all(part).await?);
                }
            } else if !self.fill(inbox, usize::MAX).await {
                return None;
            }
        }
    }

    /// How many bytes of a payload to wait for at once, where `received` were there.
    fn awaited(&self, received: usize) -> usize {
        if received >= FAST_BYTES_MIN && !self.server.shares(self.export()).is_short() {
            return AWAITED_BYTES_IF_FAST;
        }
        let [least, most] = AWAITED_BYTES;
        received.clamp(least, most)
    }

    /// Receives what is there into the buffers, and `ahead` bytes of what follows them into the empty inbox. Returns
    /// how many bytes the buffers got; `None` if the connection ends.
    fn recv_direct(&self, into: &mut ReadPieces, inbox: &mut Inbox, ahead: usize) -> Option<usize> {
        assert!(inbox.unread().is_empty());
        let bytes = into.bytes();
        let mut slices: SmallVec<[IoSliceMut<'_>; 8]> = into.iter_mut().map(|piece| IoSliceMut::new(piece)).collect();
        slices.push(IoSliceMut::new(inbox.room(ahead)?));
        let (goes_on, received) = self.recv_now(&mut slices);
        drop(slices);
        if received > bytes {
            inbox.received(received - bytes);
        }
        goes_on.then_some(received.min(bytes))
    }
}
