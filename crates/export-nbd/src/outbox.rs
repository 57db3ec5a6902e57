//! Replies on their way to the client.
//! Owns: [`Outbox`], [`Reply`], the batch that goes in one send. Not here: the socket.
//! Invariant: a reply goes out once and whole, or not at all after the connection broke; what it holds (buffers,
//! permits) is given back then.

use crate::handshake::Form;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use uraid_block::buffer::{Piece, SMALL_BLOCK_BYTES};
use uraid_block::local::{Notify, Permit};
use uraid_block::{Lease, WritePieces};
use uraid_nbd::extended::{
    EXTENDED_CHUNK_HEADER_BYTES, EXTENDED_DATA_CHUNK_BYTES, extended_data_chunk, extended_done_chunk,
    push_extended_chunk, push_extended_error_chunk,
};
use uraid_nbd::transmission::{
    DATA_CHUNK_BYTES, ERROR_TEXT_BYTES_MAX, SIMPLE_REPLY_BYTES, data_chunk, push_chunk, push_error_chunk,
};
use uraid_nbd::{BlockStatus, ChunkKind, ErrorCode, Request, SimpleReply};

/// Bytes that one send carries at most, if it carries more than one reply: a stalled client is noticed per send.
const SEND_BYTES_MAX: usize = 4 << 20;
/// Pieces of memory that one send has at most: what one vectored send takes.
const SEND_PIECES_MAX: usize = 1000;
const ERROR_CHUNK_BYTES_MAX: usize = EXTENDED_CHUNK_HEADER_BYTES + 6 + ERROR_TEXT_BYTES_MAX;
/// Extents that one block status reply has at most: what fits a block of heads.
pub(crate) const EXTENTS_MAX: usize = 250;
const STATUS_CHUNK_BYTES_MAX: usize = EXTENDED_CHUNK_HEADER_BYTES + 8 + 16 * EXTENTS_MAX;

/// What a request holds until its reply has left: it is given back by dropping this.
#[derive(Default)]
#[allow(dead_code, reason = "permits are held, not read")]
pub(crate) struct Hold {
    pub(crate) in_flight: Option<Permit>,
    pub(crate) credit: Option<Permit>,
    pub(crate) budget: Option<Permit>,
}

enum Head {
    Simple([u8; SIMPLE_REPLY_BYTES]),
    Data([u8; DATA_CHUNK_BYTES]),
    ExtendedDone([u8; EXTENDED_CHUNK_HEADER_BYTES]),
    ExtendedData([u8; EXTENDED_DATA_CHUNK_BYTES]),
    /// An error, or block status.
    Long(Vec<u8>),
}

impl Head {
    fn bytes(&self) -> &[u8] {
        match self {
            Head::Simple(bytes) => bytes,
            Head::Data(bytes) => bytes,
            Head::ExtendedDone(bytes) => bytes,
            Head::ExtendedData(bytes) => bytes,
            Head::Long(bytes) => bytes,
        }
    }
}

/// One reply: its head, the data of a read, and what the request holds.
pub(crate) struct Reply {
    head: Head,
    data: Option<WritePieces>,
    _hold: Hold,
}

impl Reply {
    /// Success without data. A simple reply is legal for all but reads also where structured replies were agreed, and
    /// shorter; with extended headers it is not.
    pub(crate) fn done(form: Form, request: &Request, hold: Hold) -> Reply {
        let head = match form {
            Form::Simple | Form::Structured => simple(request, Ok(())),
            Form::Extended => Head::ExtendedDone(extended_done_chunk(request)),
        };
        Reply { head, data: None, _hold: hold }
    }

    /// The data of a read. Panics when they are not as many as were asked for.
    pub(crate) fn data(form: Form, request: &Request, data: WritePieces, hold: Hold) -> Reply {
        assert_eq!(data.bytes() as u64, request.length);
        let head = match form {
            Form::Simple => simple(request, Ok(())),
            Form::Structured => {
                let length = u32::try_from(request.length).expect("a read is far below 4 GiB");
                Head::Data(data_chunk(request.cookie, request.offset, length))
            }
            Form::Extended => Head::ExtendedData(extended_data_chunk(request)),
        };
        Reply { head, data: Some(data), _hold: hold }
    }

    /// The extents of block status, which is asked for only where replies have chunks.
    pub(crate) fn status(form: Form, request: &Request, status: &BlockStatus, hold: Hold) -> Reply {
        assert!(status.extents.len() <= EXTENTS_MAX && form != Form::Simple);
        let mut bytes = Vec::new();
        match form {
            Form::Extended => {
                push_extended_chunk(&mut bytes, request, ChunkKind::BlockStatusExtended, &status.encode_extended());
            }
            Form::Simple | Form::Structured => {
                push_chunk(&mut bytes, request.cookie, ChunkKind::BlockStatus, &status.encode());
            }
        }
        Reply { head: Head::Long(bytes), data: None, _hold: hold }
    }

    /// A failure, with its text where replies have chunks.
    pub(crate) fn error(form: Form, request: &Request, error: ErrorCode, text: &str, hold: Hold) -> Reply {
        let mut bytes = Vec::new();
        let head = match form {
            Form::Simple => simple(request, Err(error)),
            Form::Structured => {
                push_error_chunk(&mut bytes, request.cookie, error, text);
                Head::Long(bytes)
            }
            Form::Extended => {
                push_extended_error_chunk(&mut bytes, request, error, text);
                Head::Long(bytes)
            }
        };
        Reply { head, data: None, _hold: hold }
    }

    fn bytes(&self) -> usize {
        self.head.bytes().len() + self.data.as_ref().map_or(0, WritePieces::bytes)
    }

    fn pieces(&self) -> usize {
        1 + self.data.as_ref().map_or(0, WritePieces::count)
    }
}

fn simple(request: &Request, result: Result<(), ErrorCode>) -> Head {
    Head::Simple(SimpleReply { cookie: request.cookie, result }.encode())
}

/// The replies of one connection that wait for its writer.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: RefCell<VecDeque<Reply>>,
    changed: Notify,
    is_ended: Cell<bool>,
    is_broken: Cell<bool>,
}

impl Outbox {
    /// Adds a reply; on a broken connection it is dropped.
    pub(crate) fn push(&self, reply: Reply) {
        if self.is_broken.get() {
            return;
        }
        self.waiting.borrow_mut().push_back(reply);
        self.changed.notify_all();
    }

    /// No reply comes any more.
    pub(crate) fn end(&self) {
        self.is_ended.set(true);
        self.changed.notify_all();
    }

    /// Nothing can be sent any more: what waits is dropped, what comes, too.
    pub(crate) fn break_off(&self) {
        self.is_broken.set(true);
        let dropped = self.waiting.take();
        drop(dropped);
        self.changed.notify_all();
    }

    /// Waits for replies and takes as many as go in one send; `None` at the end.
    pub(crate) async fn take_batch(&self) -> Option<Vec<Reply>> {
        self.changed
            .wait_for(|| match self.waiting.borrow().is_empty() {
                false => Some(true),
                true => (self.is_ended.get() || self.is_broken.get()).then_some(false),
            })
            .await
            .then(|| self.next_batch())
    }

    fn next_batch(&self) -> Vec<Reply> {
        let mut waiting = self.waiting.borrow_mut();
        let (mut heads, mut bytes, mut pieces) = (0, 0, 0);
        let count = waiting
            .iter()
            .take_while(|reply| {
                let is_first = bytes == 0;
                heads += reply.head.bytes().len();
                bytes += reply.bytes();
                pieces += reply.pieces();
                is_first || (heads <= SMALL_BLOCK_BYTES && bytes <= SEND_BYTES_MAX && pieces <= SEND_PIECES_MAX)
            })
            .count();
        waiting.drain(..count).collect()
    }
}

/// The bytes of a batch as pieces for one or more sends, with the heads written into `block`, a small block. The data
/// stay in the replies, too, until the batch is dropped.
pub(crate) fn gather(batch: &mut [Reply], mut block: Lease) -> WritePieces {
    let mut at = 0;
    for reply in &*batch {
        let head = reply.head.bytes();
        block[at..at + head.len()].copy_from_slice(head);
        at += head.len();
    }
    let mut heads = block.freeze();
    let mut all = WritePieces::new();
    for reply in batch {
        all.push(heads.split_to(reply.head.bytes().len()));
        if let Some(data) = reply.data.take() {
            all.append(data);
        }
    }
    all
}

/// Takes the front of `all` that fits one send.
pub(crate) fn next_send(all: &mut WritePieces) -> WritePieces {
    let bytes = all.iter().take(SEND_PIECES_MAX).map(|piece| piece.len()).sum::<usize>().min(SEND_BYTES_MAX);
    all.split_to(bytes)
}

const _: () = assert!(ERROR_CHUNK_BYTES_MAX <= SMALL_BLOCK_BYTES, "a batch of one fits the block of heads");
const _: () = assert!(STATUS_CHUNK_BYTES_MAX <= SMALL_BLOCK_BYTES, "a batch of one fits the block of heads");

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Arena;
    use uraid_nbd::{Command, CommandFlags, Cookie};

    fn request(n: u64, length: u64) -> Request {
        Request { flags: CommandFlags::NONE, command: Command::Read, cookie: Cookie(n), offset: 0, length }
    }

    #[test]
    fn a_batch_is_bounded_in_heads_bytes_and_pieces() {
        let arena = Arena::new(64, 32);
        let outbox = Outbox::default();
        let head_block = || arena.take(SMALL_BLOCK_BYTES).expect("room").into_iter().next().expect("one piece");
        for n in 0..100 {
            outbox.push(Reply::error(
                Form::Extended,
                &request(n, 512),
                ErrorCode::Io,
                &"x".repeat(1000),
                Hold::default(),
            ));
        }
        let mut sent = 0;
        while !outbox.waiting.borrow().is_empty() {
            let mut batch = outbox.next_batch();
            assert!(!batch.is_empty());
            sent += batch.len();
            let all = gather(&mut batch, head_block());
            assert_eq!(all.bytes(), batch.len() * ERROR_CHUNK_BYTES_MAX);
        }
        assert_eq!(sent, 100);
        let data = arena.take(1 << 20).expect("room").freeze();
        let mut large = WritePieces::new();
        for _ in 0..9 {
            large.append(data.clone());
        }
        for n in 0..3 {
            outbox.push(Reply::data(Form::Structured, &request(n, 9 << 20), large.clone(), Hold::default()));
        }
        let mut batch = outbox.next_batch();
        assert_eq!(batch.len(), 1, "more than a send's bytes");
        let mut all = gather(&mut batch, head_block());
        let sends: Vec<usize> = std::iter::from_fn(|| (!all.is_empty()).then(|| next_send(&mut all).bytes())).collect();
        assert_eq!(sends, [4 << 20, 4 << 20, (1 << 20) + DATA_CHUNK_BYTES]);
        drop((data, large, batch, all));
        outbox.break_off();
        assert_eq!(arena.blocks_in_use(), 0);
    }
}
