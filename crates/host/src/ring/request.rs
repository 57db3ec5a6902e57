//! What one kernel operation is made of.
//! Owns: [`Kind`], [`Buffers`], [`Request`] with its addresses. Not here: operations in flight (`super`), how a ring runs
//! them (`uring`, `threads`).
//! Invariant: `segments` are the addresses of `buffers`, at most [`SEGMENTS_MAX`] of them.

use super::{Holder, LaneNumber, pool};
use smallvec::SmallVec;
use std::os::fd::RawFd;
use uraid_block::buffer::Piece;
use uraid_block::{Lease, Pieces, ReadPieces, Shared, WritePieces};

/// The most pieces of memory in one system call (IOV_MAX).
pub(crate) const SEGMENTS_MAX: usize = 1024;

/// Buffers of an operation.
pub(crate) enum Buffers {
    None,
    Read(ReadPieces),
    Write(WritePieces),
    Lease(Lease),
}

/// An operation. Addresses are in bytes.
pub(crate) enum Kind {
    /// Reads into the buffers, from byte `at` of the file.
    Read { at: u64 },
    /// Writes the buffers, to byte `at` of the file. If `sync`, the write is durable when it completes.
    Write { at: u64, sync: bool },
    /// fdatasync.
    Sync,
    /// fallocate.
    Allocate { mode: i32, at: u64, length: u64 },
    /// Receives into the buffers from the socket. If `whole`: until all are full or the stream ends.
    Receive { whole: bool },
    /// Sends the buffers to the socket.
    Send,
    /// Waits until the file is readable. If `is_shared`, other shards wait for the same file, and one of them is woken.
    Poll { is_shared: bool },
    /// Runs a blocking function on a helper thread. Its return value is the result.
    Call(pool::Call),
}

/// Splits off the first [`SEGMENTS_MAX`] pieces.
pub(crate) fn cut<P: Piece>(pieces: &mut Pieces<P>) -> Pieces<P> {
    if pieces.count() <= SEGMENTS_MAX {
        return std::mem::take(pieces);
    }
    let bytes = pieces.iter().take(SEGMENTS_MAX).map(|piece| piece.len()).sum();
    pieces.split_to(bytes)
}

impl Kind {
    /// Whether a worker of the kernel runs it, at once and for a short time: io_uring never runs fallocate itself.
    pub(super) fn needs_worker(&self) -> bool {
        match self {
            Kind::Allocate { .. } => true,
            Kind::Read { .. } | Kind::Write { .. } | Kind::Sync => false,
            Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } | Kind::Call(_) => false,
        }
    }

    /// Whether the operation may wait for a peer for ever. It is then cancelled when its future is dropped.
    pub(super) fn may_wait_forever(&self) -> bool {
        match self {
            Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } => true,
            Kind::Read { .. } | Kind::Write { .. } | Kind::Sync | Kind::Allocate { .. } | Kind::Call(_) => false,
        }
    }
}

/// Everything of an operation that the kernel or a helper thread uses. While in flight, it belongs to the ring.
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) fd: RawFd,
    pub(crate) buffers: Buffers,
    pub(crate) segments: SmallVec<[libc::iovec; 4]>,
    pub(crate) header: libc::msghdr,
    /// The file's slot in the ring, if it has one; the file is then used with direct I/O.
    pub(crate) slot: Option<u32>,
    /// The lane of its member: each lane has its own helper threads.
    pub(crate) lane: LaneNumber,
    /// See `Lane::remote`.
    pub(crate) is_remote: bool,
    _holder: Option<Holder>,
}

impl Request {
    pub(super) fn new(kind: Kind, buffers: Buffers, holder: Option<Holder>) -> Request {
        let fd = holder.as_ref().map_or(-1, |holder| holder.as_raw_fd());
        // SAFETY: msghdr is plain data; all zeroes is an empty one.
        let header = unsafe { std::mem::zeroed() };
        let (segments, lane) = (SmallVec::new(), LaneNumber::NONE);
        let mut request =
            Request { kind, fd, buffers, segments, header, slot: None, lane, is_remote: false, _holder: holder };
        request.find_segments();
        request
    }

    /// Fills in the addresses of the buffers.
    pub(super) fn find_segments(&mut self) {
        // By its address: a piece of foreign memory cannot be borrowed.
        fn segment(piece: &Shared) -> libc::iovec {
            libc::iovec { iov_base: piece.address().cast_mut().cast(), iov_len: piece.len() }
        }
        match &mut self.buffers {
            Buffers::None => {}
            Buffers::Read(pieces) => self.segments.extend(
                pieces
                    .iter_mut()
                    .map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }),
            ),
            Buffers::Write(pieces) => self.segments.extend(pieces.iter().map(segment)),
            Buffers::Lease(lease) => {
                let length = lease.len();
                self.segments.push(libc::iovec { iov_base: lease.as_mut_ptr().cast(), iov_len: length });
            }
        }
        assert!(self.segments.len() <= SEGMENTS_MAX, "longer lists are cut before they come here");
    }

    /// The message header of the segments. `self` must not move afterwards.
    pub(super) fn message(&mut self) -> &mut libc::msghdr {
        self.header.msg_iov = self.segments.as_mut_ptr();
        self.header.msg_iovlen = self.segments.len() as _;
        &mut self.header
    }
}
