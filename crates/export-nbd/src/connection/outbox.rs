//! Replies that wait to be sent.
//! Owns: [`Outbox`], [`Reply`], the batch of one send. Not here: the socket.
//! Invariant: a reply is sent once and completely, or dropped when the connection broke. Its buffers and permits are
//! released then.

use crate::handshake::Form;
use crate::shared::shares::Hold;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use uraid_block::buffer::{Piece, SMALL_BLOCK_BYTES};
use uraid_block::local::Notify;
use uraid_block::{Lease, WritePieces};
use uraid_nbd::extended::{
    EXTENDED_CHUNK_HEADER_BYTES, EXTENDED_DATA_CHUNK_BYTES, extended_data_chunk, extended_done_chunk,
    push_extended_chunk, push_extended_error_chunk,
};
use uraid_nbd::transmission::{
    DATA_CHUNK_BYTES, ERROR_TEXT_BYTES_MAX, SIMPLE_REPLY_BYTES, data_chunk, push_chunk, push_error_chunk,
};
use uraid_nbd::{BlockStatus, ChunkKind, ErrorCode, Request, SimpleReply};

/// The most bytes of one send. The server notices between two sends that a client has stalled.
const SEND_BYTES_MAX: usize = 4 << 20;
/// The most bytes of one send with several replies: about what a socket buffer holds.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// Replies of this many bytes are sent at once, without waiting for more: the client receives them meanwhile, and their
/// buffers are reused while they are in the processor's cache. For fewer bytes, waking the client is not worth it.
const SEND_AT_ONCE_BYTES_MIN: usize = 256 << 10;
/// The most pieces of memory of one send without the ring.
const SLICES_MAX: usize = 128;
/// The most pieces of memory of one send: the limit of a vectored send.
const SEND_PIECES_MAX: usize = 1000;
const ERROR_CHUNK_BYTES_MAX: usize = EXTENDED_CHUNK_HEADER_BYTES + 6 + ERROR_TEXT_BYTES_MAX;
/// The most extents of one block status reply: as many as fit into a block of heads.
pub(crate) const EXTENTS_MAX: usize = 250;
const STATUS_CHUNK_BYTES_MAX: usize = EXTENDED_CHUNK_HEADER_BYTES + 8 + 16 * EXTENTS_MAX;

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

/// One reply: its header, the data of a read, and the request's permits.
pub(crate) struct Reply {
    head: Head,
    data: Option<WritePieces>,
    _hold: Hold,
}

impl Reply {
    /// Success without data. A simple reply is shorter. It is legal for all commands but reads, even if structured
    /// replies were agreed, but not with extended headers.
    pub(crate) fn done(form: Form, request: &Request, hold: Hold) -> Reply {
        let head = match form {
            Form::Simple | Form::Structured => simple(request, Ok(())),
            Form::Extended => Head::ExtendedDone(extended_done_chunk(request)),
        };
        Reply { head, data: None, _hold: hold }
    }

    /// The data of a read. Panics if their length differs from the request's.
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

    /// The extents of block status; requested only if replies have chunks.
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

    /// A failure, with its text if replies have chunks.
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
    /// Bytes of the first reply that have been sent already.
    sent_bytes: Cell<usize>,
    /// Bytes of all waiting replies, including those already sent.
    bytes: Cell<usize>,
    changed: Notify,
    is_ended: Cell<bool>,
    is_broken: Cell<bool>,
}

impl Outbox {
    /// Adds a reply; on a broken connection it is dropped.
    pub(crate) fn push(&self, reply: Reply) {
        assert!(!self.is_ended.get(), "a reply after the last one");
        if self.is_broken.get() {
            return;
        }
        self.bytes.set(self.bytes.get() + reply.bytes());
        self.waiting.borrow_mut().push_back(reply);
        self.changed.notify_all();
    }

    /// Whether enough is waiting for a send of its own.
    pub(crate) fn has_enough(&self) -> bool {
        self.bytes.get() >= SEND_AT_ONCE_BYTES_MIN
    }

    /// Calls `try_send`, which returns how many bytes it took, until it takes only a part or nothing is left. Returns
    /// the number of sends.
    pub(crate) fn send_now<E>(&self, try_send: impl Fn(&[IoSlice<'_>]) -> Result<usize, E>) -> Result<u64, E> {
        let mut sends = 0;
        loop {
            let mut waiting = self.waiting.borrow_mut();
            if waiting.is_empty() {
                return Ok(sends);
            }
            let (wanted, sent) = {
                let mut slices = SmallVec::<[IoSlice<'_>; SLICES_MAX]>::new();
                let wanted = slices_of(&waiting, self.sent_bytes.get(), &mut slices);
                (wanted, try_send(&slices)?)
            };
            assert!(sent <= wanted);
            sends += u64::from(sent > 0);
            // Counted from the start of the first reply, of which some bytes were sent before.
            let mut left = self.sent_bytes.get() + sent;
            let mut whole = 0;
            while let Some(reply) = waiting.get(whole).filter(|reply| reply.bytes() <= left) {
                left -= reply.bytes();
                self.bytes.set(self.bytes.get() - reply.bytes());
                whole += 1;
            }
            self.sent_bytes.set(left);
            waiting.drain(..whole);
            if sent < wanted {
                return Ok(sends);
            }
        }
    }

    /// No more replies follow.
    pub(crate) fn end(&self) {
        assert!(self.is_broken.get() || self.waiting.borrow().is_empty(), "each request has its reply sent");
        self.is_ended.set(true);
        self.changed.notify_all();
    }

    /// Nothing can be sent any more: drops waiting and later replies.
    pub(crate) fn break_off(&self) {
        self.is_broken.set(true);
        self.bytes.set(0);
        self.sent_bytes.set(0);
        let dropped = self.waiting.take();
        drop(dropped);
        self.changed.notify_all();
    }

    /// Waits for replies; false: no more follow.
    pub(crate) async fn wait(&self) -> bool {
        self.changed
            .wait_for(|| match self.waiting.borrow().is_empty() {
                false => Some(true),
                true => (self.is_ended.get() || self.is_broken.get()).then_some(false),
            })
            .await
    }

    /// Takes the replies for one send, possibly none.
    pub(crate) fn take_batch(&self) -> Batch {
        let mut waiting = self.waiting.borrow_mut();
        let (mut heads, mut bytes, mut pieces) = (0, 0, 0);
        let count = waiting
            .iter()
            .take_while(|reply| {
                let is_first = bytes == 0;
                heads += reply.head.bytes().len();
                bytes += reply.bytes();
                pieces += reply.pieces();
                is_first || (heads <= SMALL_BLOCK_BYTES && bytes <= BATCH_BYTES_MAX && pieces <= SEND_PIECES_MAX)
            })
            .count();
        let replies: Vec<Reply> = waiting.drain(..count).collect();
        self.bytes.set(self.bytes.get() - replies.iter().map(Reply::bytes).sum::<usize>());
        Batch { replies, sent_bytes: self.sent_bytes.take() }
    }
}

/// The pieces of memory of the first replies, without the bytes already sent; returns their total length.
fn slices_of<'a>(
    replies: &'a VecDeque<Reply>,
    sent_bytes: usize,
    slices: &mut SmallVec<[IoSlice<'a>; SLICES_MAX]>,
) -> usize {
    let (mut sent_bytes, mut bytes) = (sent_bytes, 0);
    let data = |reply: &'a Reply| reply.data.iter().flat_map(|data| data.iter().map(|piece| &**piece));
    let pieces = replies.iter().flat_map(|reply| std::iter::once(reply.head.bytes()).chain(data(reply)));
    for piece in pieces {
        let skipped = sent_bytes.min(piece.len());
        sent_bytes -= skipped;
        if skipped < piece.len() {
            slices.push(IoSlice::new(&piece[skipped..]));
            bytes += piece.len() - skipped;
        }
        if slices.len() == SLICES_MAX || bytes >= BATCH_BYTES_MAX {
            break;
        }
    }
    bytes
}

/// The replies of one send of the ring.
pub(crate) struct Batch {
    replies: Vec<Reply>,
    sent_bytes: usize,
}

impl Batch {
    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// The bytes as pieces for one or more sends, with the headers written into `block`, a small block. The permits
    /// stay here until this is dropped.
    pub(crate) fn gather(&mut self, mut block: Lease) -> WritePieces {
        let mut at = 0;
        for reply in &self.replies {
            let head = reply.head.bytes();
            block[at..at + head.len()].copy_from_slice(head);
            at += head.len();
        }
        let mut heads = block.freeze();
        let mut all = WritePieces::new();
        for reply in &mut self.replies {
            all.push(heads.split_to(reply.head.bytes().len()));
            if let Some(data) = reply.data.take() {
                all.append(data);
            }
        }
        drop(all.split_to(self.sent_bytes));
        all
    }
}

/// Takes the front of `all` that fits one send.
pub(crate) fn next_send(all: &mut WritePieces) -> WritePieces {
    let bytes = all.iter().take(SEND_PIECES_MAX).map(|piece| piece.len()).sum::<usize>().min(SEND_BYTES_MAX);
    assert!(bytes > 0 || all.is_empty());
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

    fn head_block(arena: &Arena) -> Lease {
        arena.take(SMALL_BLOCK_BYTES).expect("room").into_iter().next().expect("one piece")
    }

    #[test]
    fn a_batch_is_bounded_in_heads_bytes_and_pieces() {
        let arena = Arena::new(64, 32);
        let outbox = Outbox::default();
        for n in 0..100 {
            let (request, text) = (request(n, 512), "x".repeat(1000));
            outbox.push(Reply::error(Form::Extended, &request, ErrorCode::Io, &text, Hold::default()));
        }
        let mut sent = 0;
        while !outbox.waiting.borrow().is_empty() {
            let mut batch = outbox.take_batch();
            assert!(!batch.is_empty());
            sent += batch.replies.len();
            assert_eq!(batch.gather(head_block(&arena)).bytes(), batch.replies.len() * ERROR_CHUNK_BYTES_MAX);
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
        let mut batch = outbox.take_batch();
        assert_eq!(batch.replies.len(), 1, "more than a send's bytes");
        let mut all = batch.gather(head_block(&arena));
        let sends: Vec<usize> = std::iter::from_fn(|| (!all.is_empty()).then(|| next_send(&mut all).bytes())).collect();
        assert_eq!(sends, [4 << 20, 4 << 20, (1 << 20) + DATA_CHUNK_BYTES]);
        drop((data, large, batch, all));
        outbox.break_off();
        assert_eq!(arena.blocks_in_use(), 0);
    }

    #[test]
    fn a_reply_leaves_whole_and_in_order_however_little_is_taken_at_a_time() {
        let arena = Arena::new(64, 0);
        for step in [1, 7, 16, 28, 4096, 5000, 1 << 20] {
            let (outbox, mut expected) = (Outbox::default(), Vec::new());
            for n in 0..9u64 {
                let mut data = arena.take(4096).expect("room");
                data.fill(n as u8);
                let request = request(n, 4096);
                expected.extend(SimpleReply { cookie: Cookie(n), result: Ok(()) }.encode());
                expected.extend([n as u8; 4096]);
                outbox.push(Reply::data(Form::Simple, &request, data.freeze(), Hold::default()));
                expected.extend(SimpleReply { cookie: Cookie(n), result: Ok(()) }.encode());
                outbox.push(Reply::done(Form::Simple, &request, Hold::default()));
            }
            let got = RefCell::new(Vec::new());
            let mut is_by_ring = false;
            while !outbox.waiting.borrow().is_empty() {
                // The ring sends the bytes that the socket does not take.
                if std::mem::replace(&mut is_by_ring, step < 4096 && got.borrow().len() % 3 == 1) {
                    let mut batch = outbox.take_batch();
                    got.borrow_mut().extend(batch.gather(head_block(&arena)).to_vec());
                    continue;
                }
                let take = |slices: &[IoSlice<'_>]| {
                    let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                    let count = all.len().min(step);
                    got.borrow_mut().extend(&all[..count]);
                    Ok::<usize, ()>(count)
                };
                assert!(outbox.send_now(take).expect("it takes some") > 0);
            }
            assert!(got.into_inner() == expected, "{step} bytes at a time");
            assert_eq!((outbox.bytes.get(), outbox.sent_bytes.get(), arena.blocks_in_use()), (0, 0, 0));
        }
    }
}
