//! Takes one request from the device.
//! Owns: [`Inbox`], [`Message`]. Not here: what a request means (`server`), waiting for one.
//! Invariant: the data of a write lie in pieces of their own, aligned as the memory is: a request's first 80 bytes go
//! into a separate buffer, which is exactly what a write has in front of its data.

use crate::memory::Memory;
use smallvec::SmallVec;
use std::io::IoSliceMut;
use uraid_block::ReadPieces;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_fuse::request::{HEADER_BYTES, WRITE_BYTES};
use uraid_fuse::{RequestHeader, WireError};
use uraid_host::{FuseDevice, FuseError};

/// The longest read or write in bytes: the kernel's limit of 256 pages.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Data up to this length are copied into a small block, so that the large one is not kept for them.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// The most bytes of arguments that are looked at; names have at most 1024.
const ARGUMENTS_BYTES_MAX: usize = 4096;

/// Room for the next request.
pub(crate) struct Inbox {
    front: [u8; WRITE_BYTES],
    room: ReadPieces,
}

/// A request as it arrived.
pub(crate) struct Message {
    pub(crate) header: RequestHeader,
    /// The bytes behind the header; of a write only the first 40.
    pub(crate) arguments: SmallVec<[u8; 64]>,
    /// The data of a write.
    pub(crate) data: ReadPieces,
}

/// What the device had.
pub(crate) enum Received {
    Message(Message),
    /// Nothing now.
    Nothing,
    /// Bytes that are no request.
    Garbage,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { front: [0; WRITE_BYTES], room: ReadPieces::new() }
    }

    /// How much memory it needs before the next request.
    pub(crate) fn lacks(&self) -> usize {
        PAYLOAD_BYTES_MAX - self.room.bytes()
    }

    pub(crate) fn fill(&mut self, more: ReadPieces) {
        self.room.append(more);
        assert_eq!(self.room.bytes(), PAYLOAD_BYTES_MAX);
    }

    /// Takes a request, if there is one. The inbox must be full of memory.
    pub(crate) fn receive(&mut self, device: &FuseDevice, memory: &Memory) -> Result<Received, FuseError> {
        assert_eq!(self.lacks(), 0, "the kernel needs room for the longest request");
        let received = {
            let mut slices: SmallVec<[IoSliceMut<'_>; 20]> = SmallVec::new();
            slices.push(IoSliceMut::new(&mut self.front));
            slices.extend(self.room.iter_mut().map(|piece| IoSliceMut::new(piece)));
            device.try_receive(&mut slices)?
        };
        Ok(match received {
            None => Received::Nothing,
            Some(bytes) => self.message(bytes, memory).map_or(Received::Garbage, Received::Message),
        })
    }

    fn message(&mut self, bytes: usize, memory: &Memory) -> Result<Message, WireError> {
        let front = self.front.first_chunk().expect("long enough");
        let header = RequestHeader::parse(front, bytes)?;
        let in_front = bytes.min(WRITE_BYTES);
        let mut arguments: SmallVec<[u8; 64]> = SmallVec::from_slice(&self.front[HEADER_BYTES..in_front]);
        let behind = bytes - in_front;
        if header.is_write() {
            return Ok(Message { header, arguments, data: self.take(behind, memory) });
        }
        let mut rest = behind.min(ARGUMENTS_BYTES_MAX);
        for piece in self.room.iter() {
            let part = rest.min(piece.len());
            arguments.extend_from_slice(&piece[..part]);
            rest -= part;
            if rest == 0 {
                break;
            }
        }
        Ok(Message { header, arguments, data: ReadPieces::new() })
    }

    /// The first `bytes` bytes of the room.
    fn take(&mut self, bytes: usize, memory: &Memory) -> ReadPieces {
        if (1..=COPIED_BYTES_MAX).contains(&bytes)
            && let Some(mut copy) = memory.try_take(bytes)
        {
            let mut at = 0;
            for target in copy.iter_mut() {
                copy_out(&self.room, at, target);
                at += target.len();
            }
            return copy;
        }
        let data = self.room.split_to(bytes);
        // What is left of the last block goes with it, so that the next request begins at the front of a block.
        let mut left = ReadPieces::new();
        for piece in std::mem::take(&mut self.room) {
            if piece.len() == LARGE_BLOCK_BYTES {
                left.push(piece);
            }
        }
        self.room = left;
        data
    }
}

/// Copies the bytes from `at` on.
fn copy_out(from: &ReadPieces, at: usize, target: &mut [u8]) {
    let (mut skip, mut filled) = (at, 0);
    for piece in from.iter() {
        let part = piece.len().saturating_sub(skip).min(target.len() - filled);
        target[filled..filled + part].copy_from_slice(&piece[piece.len().min(skip)..][..part]);
        filled += part;
        skip = skip.saturating_sub(piece.len());
        if filled == target.len() {
            return;
        }
    }
    panic!("as many bytes as were received");
}
