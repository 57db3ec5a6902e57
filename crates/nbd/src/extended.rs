//! Requests and chunks with 64-bit lengths, as both ends write and read them once extended headers are agreed.
//! Owns: the extended form of a request, the extended chunk header. Not here: what the payloads mean
//! (`transmission`, `metadata`), whether extended headers are agreed.
//! Invariant: `parse(encode(x)) == x`. Lengths come from the peer, and nothing is allocated by them.
//! Spec: proto.md, "Extended headers", "Extended request message", "Extended reply chunk message".
//!
//! ```text
//!   request   magic 4 | flags 2 | command 2 | cookie 8 | offset 8 | length 8
//!   chunk     magic 4 | flags 2 | kind 2    | cookie 8 | offset 8 | length 8, then the payload
//! ```

use crate::cursor::Cursor;
use crate::transmission::{FLAG_DONE, push_error_payload};
use crate::words::{MAGIC_EXTENDED_CHUNK, MAGIC_EXTENDED_REQUEST};
use crate::{ChunkKind, Command, CommandFlags, Cookie, ErrorCode, Request, WireError};

/// Bytes of an extended request without its payload.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Bytes in front of an extended chunk's payload.
pub const EXTENDED_CHUNK_HEADER_BYTES: usize = 32;
/// Bytes in front of the data of an extended data chunk: the chunk's header and the offset.
pub const EXTENDED_DATA_CHUNK_BYTES: usize = 40;

impl Request {
    /// The header's bytes with a length of 64 bits.
    pub fn encode_extended(&self) -> [u8; EXTENDED_REQUEST_BYTES] {
        let mut bytes = [0; EXTENDED_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_EXTENDED_REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header with a length of 64 bits. Only the magic can be wrong; after that the stream is out of sync.
    pub fn parse_extended(bytes: &[u8; EXTENDED_REQUEST_BYTES]) -> Result<Request, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u32()?, MAGIC_EXTENDED_REQUEST)?;
        Ok(Request {
            flags: CommandFlags(cursor.u16()?),
            command: Command::from_code(cursor.u16()?),
            cookie: Cookie(cursor.u64()?),
            offset: cursor.u64()?,
            length: cursor.u64()?,
        })
    }

    /// How many bytes follow the header. Without extended headers: the length of a write. With them: the length, if the
    /// flag PAYLOAD_LEN is set. That holds for every command, even for commands that normally have no payload.
    pub fn payload_bytes(&self, is_extended: bool) -> u64 {
        let has_payload =
            if is_extended { self.flags.contains(CommandFlags::PAYLOAD_LEN) } else { self.command == Command::Write };
        if has_payload { self.length } else { 0 }
    }
}

/// The header of an extended chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedChunkHeader {
    /// Whether the reply ends with this chunk.
    pub is_last: bool,
    /// The kind of the payload.
    pub kind: ChunkKind,
    /// The request's cookie.
    pub cookie: Cookie,
    /// The request's offset, repeated.
    pub offset: u64,
    /// Bytes of payload that follow.
    pub length: u64,
}

impl ExtendedChunkHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; EXTENDED_CHUNK_HEADER_BYTES] {
        let mut bytes = [0; EXTENDED_CHUNK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_EXTENDED_CHUNK.to_be_bytes());
        bytes[4..6].copy_from_slice(&(if self.is_last { FLAG_DONE } else { 0 }).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header. Flags without a name are ignored, as the protocol demands.
    pub fn parse(bytes: &[u8; EXTENDED_CHUNK_HEADER_BYTES]) -> Result<ExtendedChunkHeader, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u32()?, MAGIC_EXTENDED_CHUNK)?;
        let is_last = cursor.u16()? & FLAG_DONE != 0;
        let kind = ChunkKind::from_code(cursor.u16()?);
        let cookie = Cookie(cursor.u64()?);
        let header = ExtendedChunkHeader { is_last, kind, cookie, offset: cursor.u64()?, length: cursor.u64()? };
        if kind == ChunkKind::None && !(is_last && header.length == 0) {
            return Err(WireError::Field { field: "chunk kind", found: 0 });
        }
        Ok(header)
    }
}

/// The last extended chunk of a reply without payload: success, unless an error chunk came before.
pub fn extended_done_chunk(request: &Request) -> [u8; EXTENDED_CHUNK_HEADER_BYTES] {
    last(request, ChunkKind::None, 0).encode()
}

/// The header before the data of a whole read, as the last chunk of its reply. Panics if the read is empty or
/// unreasonably long: the request was checked.
pub fn extended_data_chunk(request: &Request) -> [u8; EXTENDED_DATA_CHUNK_BYTES] {
    assert!(request.length > 0);
    let length = request.length.checked_add(8).expect("a read is far below 4 GiB");
    let mut bytes = [0; EXTENDED_DATA_CHUNK_BYTES];
    let (header, offset) = bytes.split_at_mut(EXTENDED_CHUNK_HEADER_BYTES);
    header.copy_from_slice(&last(request, ChunkKind::OffsetData, length).encode());
    offset.copy_from_slice(&request.offset.to_be_bytes());
    bytes
}

/// Appends the last extended chunk of a reply, with this payload.
pub fn push_extended_chunk(out: &mut Vec<u8>, request: &Request, kind: ChunkKind, payload: &[u8]) {
    out.extend_from_slice(&last(request, kind, payload.len() as u64).encode());
    out.extend_from_slice(payload);
}

/// Appends the last extended chunk of a reply that failed, with a text that is cut at
/// [`crate::transmission::ERROR_TEXT_BYTES_MAX`].
pub fn push_extended_error_chunk(out: &mut Vec<u8>, request: &Request, error: ErrorCode, text: &str) {
    let mut payload = Vec::new();
    push_error_payload(&mut payload, error, text);
    push_extended_chunk(out, request, ChunkKind::Error, &payload);
}

fn last(request: &Request, kind: ChunkKind, length: u64) -> ExtendedChunkHeader {
    ExtendedChunkHeader { is_last: true, kind, cookie: request.cookie, offset: request.offset, length }
}

fn expect(found: u32, expected: u32) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::Magic { found: found.into(), expected: expected.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        flags: CommandFlags::NO_HOLE,
        command: Command::WriteZeroes,
        cookie: Cookie(0x0102_0304_0506_0708),
        offset: 0x10_0000,
        length: 5 << 32,
    };

    #[test]
    fn an_extended_request_is_the_one_of_the_protocol() {
        let bytes = REQUEST.encode_extended();
        let front = b"\x21\xe4\x1c\x71\x00\x02\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(&bytes[..16], front);
        assert_eq!(&bytes[16..], b"\0\0\0\0\0\x10\0\0\0\0\0\x05\0\0\0\0");
        assert_eq!(Request::parse_extended(&bytes), Ok(REQUEST));
        assert!(matches!(Request::parse_extended(&[0; 32]), Err(WireError::Magic { found: 0, .. })));
    }

    #[test]
    fn only_the_flag_says_that_a_payload_follows_an_extended_request() {
        assert_eq!(REQUEST.payload_bytes(true), 0);
        let with_payload = Request { flags: CommandFlags::PAYLOAD_LEN, length: u64::MAX, ..REQUEST };
        assert_eq!((with_payload.payload_bytes(true), with_payload.payload_bytes(false)), (u64::MAX, 0));
        let write = Request { command: Command::Write, ..REQUEST };
        assert_eq!((write.payload_bytes(true), write.payload_bytes(false)), (0, 5 << 32));
    }

    #[test]
    fn an_extended_chunk_reads_as_it_was_written() {
        let kind = ChunkKind::BlockStatusExtended;
        let header = ExtendedChunkHeader { is_last: true, kind, cookie: Cookie(7), offset: 1 << 40, length: 24 };
        let bytes = header.encode();
        assert_eq!(&bytes[..8], b"\x6e\x8a\x27\x8c\x00\x01\x00\x06");
        assert_eq!(ExtendedChunkHeader::parse(&bytes), Ok(header));
        let empty = ExtendedChunkHeader { kind: ChunkKind::None, length: 0, ..header };
        assert_eq!(ExtendedChunkHeader::parse(&empty.encode()), Ok(empty));
        for bad in [ExtendedChunkHeader { is_last: false, ..empty }, ExtendedChunkHeader { length: 1, ..empty }] {
            assert!(ExtendedChunkHeader::parse(&bad.encode()).is_err());
        }
    }

    #[test]
    fn the_chunks_of_a_reply_name_the_request_and_its_offset() {
        let header = |bytes: &[u8]| ExtendedChunkHeader::parse(bytes.first_chunk().expect("a header")).expect("good");
        let expected = ExtendedChunkHeader {
            is_last: true,
            kind: ChunkKind::None,
            cookie: REQUEST.cookie,
            offset: REQUEST.offset,
            length: 0,
        };
        assert_eq!(header(&extended_done_chunk(&REQUEST)), expected);
        let read = Request { length: 4096, ..REQUEST };
        let data = extended_data_chunk(&read);
        assert_eq!(header(&data), ExtendedChunkHeader { kind: ChunkKind::OffsetData, length: 4104, ..expected });
        assert_eq!(data[EXTENDED_CHUNK_HEADER_BYTES..], REQUEST.offset.to_be_bytes());
        let mut error = Vec::new();
        push_extended_error_chunk(&mut error, &REQUEST, ErrorCode::Io, "no");
        assert_eq!(header(&error), ExtendedChunkHeader { kind: ChunkKind::Error, length: 8, ..expected });
        assert_eq!(&error[EXTENDED_CHUNK_HEADER_BYTES..], b"\0\0\0\x05\0\x02no");
    }

    #[test]
    fn every_bit_of_a_cookie_an_offset_and_a_length_comes_back() {
        for bit in 0..64 {
            let (cookie, offset) = (Cookie(1 << bit), 1 << (63 - bit));
            let request = Request { cookie, offset, length: 1 << (bit ^ 7), ..REQUEST };
            assert_eq!(Request::parse_extended(&request.encode_extended()), Ok(request));
            let read = Request { length: 512, ..request };
            let data = extended_data_chunk(&read);
            assert_eq!(data[EXTENDED_CHUNK_HEADER_BYTES..], offset.to_be_bytes());
            for bytes in [&data[..], &extended_done_chunk(&read)] {
                let header = ExtendedChunkHeader::parse(bytes.first_chunk().expect("a header")).expect("good");
                assert_eq!((header.cookie, header.offset, header.is_last), (cookie, offset, true));
            }
        }
    }
}
