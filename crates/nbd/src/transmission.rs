//! Requests and replies, as both ends write and read them.
//! Owns: the request header, simple replies, chunks of structured replies. Not here: what a request does.
//! Invariant: `parse(encode(x)) == x`. Headers are arrays by value: the hot path allocates nothing.
//! Spec: proto.md, "Transmission phase", "Structured reply chunk message".

use crate::cursor::{Cursor, cut, string};
use crate::words::{MAGIC_CHUNK, MAGIC_REQUEST, MAGIC_SIMPLE_REPLY};
use crate::{ChunkKind, Command, CommandFlags, ErrorCode, NAME_BYTES_MAX, WireError};

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply without its data.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes in front of a chunk's payload.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Bytes in front of the data of a data chunk: the chunk's header and the offset.
pub const DATA_CHUNK_BYTES: usize = 28;
/// The longest error text that is sent, in bytes. The protocol allows 4096, but users read less.
pub const ERROR_TEXT_BYTES_MAX: usize = 256;

pub(crate) const FLAG_DONE: u16 = 1;

/// The client's identifier of a request, repeated in its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cookie(pub u64);

/// A client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Options of the command.
    pub flags: CommandFlags,
    /// What the request does.
    pub command: Command,
    /// The client's identifier of the request.
    pub cookie: Cookie,
    /// The first byte, as sent by the client: nothing is checked here.
    pub offset: u64,
    /// How many bytes of the export, or of payload: see [`Request::payload_bytes`]. 32 bits on the wire, unless
    /// extended headers were agreed.
    pub length: u64,
}

impl Request {
    /// The header's bytes with a length of 32 bits. Panics if the length has more: it is the caller's own.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        let length = u32::try_from(self.length).expect("longer requests need extended headers");
        bytes[24..].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Reads a header. Only the magic can be wrong; after that the stream is out of sync.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Result<Request, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u32()?, MAGIC_REQUEST)?;
        Ok(Request {
            flags: CommandFlags(cursor.u16()?),
            command: Command::from_code(cursor.u16()?),
            cookie: Cookie(cursor.u64()?),
            offset: cursor.u64()?,
            length: cursor.u32()?.into(),
        })
    }

    /// Where a reply's content belongs in the request's buffer, in bytes. An error if the content lies outside of the
    /// request, whatever 64-bit numbers the server sends.
    pub fn place(&self, offset: u64, length: u32) -> Result<usize, WireError> {
        let outside = WireError::OutsideRequest { offset, length };
        let start = offset.checked_sub(self.offset).ok_or(outside)?;
        let end = start.checked_add(length.into()).ok_or(outside)?;
        if end > self.length {
            return Err(outside);
        }
        usize::try_from(start).map_err(|_| outside)
    }
}

/// The header of a simple reply. For a read that succeeded, the data follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimpleReply {
    /// The request's cookie.
    pub cookie: Cookie,
    /// The result.
    pub result: Result<(), ErrorCode>,
}

impl SimpleReply {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; SIMPLE_REPLY_BYTES] {
        let mut bytes = [0; SIMPLE_REPLY_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_SIMPLE_REPLY.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.result.err().map_or(0, ErrorCode::code).to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes
    }

    /// Reads a header.
    pub fn parse(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Result<SimpleReply, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u32()?, MAGIC_SIMPLE_REPLY)?;
        let result = match cursor.u32()? {
            0 => Ok(()),
            code => Err(ErrorCode::from_code(code)),
        };
        Ok(SimpleReply { cookie: Cookie(cursor.u64()?), result })
    }
}

/// The header of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// Whether the reply ends with this chunk.
    pub is_last: bool,
    /// The kind of the payload.
    pub kind: ChunkKind,
    /// The request's cookie.
    pub cookie: Cookie,
    /// Bytes of payload that follow.
    pub length: u32,
}

impl ChunkHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_CHUNK.to_be_bytes());
        bytes[4..6].copy_from_slice(&(if self.is_last { FLAG_DONE } else { 0 }).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header. Flags without a name are ignored, as the protocol demands.
    pub fn parse(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Result<ChunkHeader, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u32()?, MAGIC_CHUNK)?;
        let is_last = cursor.u16()? & FLAG_DONE != 0;
        let kind = ChunkKind::from_code(cursor.u16()?);
        let header = ChunkHeader { is_last, kind, cookie: Cookie(cursor.u64()?), length: cursor.u32()? };
        if kind == ChunkKind::None && !(is_last && header.length == 0) {
            return Err(WireError::Field { field: "chunk kind", found: 0 });
        }
        Ok(header)
    }
}

/// The last chunk of a reply without payload: success, unless an error chunk came before.
pub fn done_chunk(cookie: Cookie) -> [u8; CHUNK_HEADER_BYTES] {
    ChunkHeader { is_last: true, kind: ChunkKind::None, cookie, length: 0 }.encode()
}

/// The header before `length` bytes of a read, as the last chunk of its reply. Panics if there are none or too many:
/// the request was checked.
pub fn data_chunk(cookie: Cookie, offset: u64, length: u32) -> [u8; DATA_CHUNK_BYTES] {
    assert!(length > 0);
    let length = length.checked_add(8).expect("a read is far below 4 GiB");
    let mut bytes = [0; DATA_CHUNK_BYTES];
    let header = ChunkHeader { is_last: true, kind: ChunkKind::OffsetData, cookie, length };
    bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header.encode());
    bytes[CHUNK_HEADER_BYTES..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// Appends the last chunk of a reply, with this payload. Panics if its length exceeds 32 bits.
pub fn push_chunk(out: &mut Vec<u8>, cookie: Cookie, kind: ChunkKind, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a chunk is short");
    out.extend_from_slice(&ChunkHeader { is_last: true, kind, cookie, length }.encode());
    out.extend_from_slice(payload);
}

/// Appends the last chunk of a reply that failed, with a text that is cut at [`ERROR_TEXT_BYTES_MAX`].
pub fn push_error_chunk(out: &mut Vec<u8>, cookie: Cookie, error: ErrorCode, text: &str) {
    let mut payload = Vec::new();
    push_error_payload(&mut payload, error, text);
    push_chunk(out, cookie, ChunkKind::Error, &payload);
}

pub(crate) fn push_error_payload(out: &mut Vec<u8>, error: ErrorCode, text: &str) {
    assert_ne!(error.code(), 0);
    let text = cut(text, ERROR_TEXT_BYTES_MAX);
    out.extend_from_slice(&error.code().to_be_bytes());
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The payload of a chunk, as a client reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// Nothing.
    None,
    /// Bytes of a read.
    OffsetData {
        /// Their place in the export, to be checked with [`Request::place`].
        offset: u64,
        /// The bytes, at least one.
        data: &'a [u8],
    },
    /// Zero bytes of a read.
    OffsetHole {
        /// Their place in the export, to be checked with [`Request::place`].
        offset: u64,
        /// How many, at least one.
        length: u32,
    },
    /// The request failed; also for unknown error kinds.
    Error {
        /// The error code.
        error: ErrorCode,
        /// The server's text, possibly empty.
        text: &'a str,
        /// The byte of the export at which it failed.
        offset: Option<u64>,
    },
}

impl<'a> Chunk<'a> {
    /// Reads a whole payload of the kind that the header announced. Unknown kinds fail, unless they are errors
    /// themselves: the protocol tells the client to hang up. Block status is read by [`crate::BlockStatus`].
    pub fn parse(kind: ChunkKind, payload: &'a [u8]) -> Result<Chunk<'a>, WireError> {
        let mut cursor = Cursor::new(payload);
        let chunk = match kind {
            ChunkKind::None => Chunk::None,
            ChunkKind::OffsetData => {
                let offset = cursor.u64()?;
                let data = cursor.rest();
                if data.is_empty() {
                    return Err(WireError::Truncated { found: 0, expected: 1 });
                }
                Chunk::OffsetData { offset, data }
            }
            ChunkKind::OffsetHole => {
                let (offset, length) = (cursor.u64()?, cursor.u32()?);
                if length == 0 {
                    return Err(WireError::Field { field: "hole size", found: 0 });
                }
                Chunk::OffsetHole { offset, length }
            }
            ChunkKind::Error | ChunkKind::ErrorOffset => parse_error(kind, &mut cursor)?,
            ChunkKind::Unknown(_) if kind.is_error() => {
                let error = parse_error(kind, &mut cursor)?;
                cursor.rest();
                error
            }
            ChunkKind::BlockStatus | ChunkKind::BlockStatusExtended | ChunkKind::Unknown(_) => {
                return Err(WireError::Field { field: "chunk kind", found: kind.code().into() });
            }
        };
        cursor.end()?;
        Ok(chunk)
    }
}

fn parse_error<'a>(kind: ChunkKind, cursor: &mut Cursor<'a>) -> Result<Chunk<'a>, WireError> {
    let code = cursor.u32()?;
    if code == 0 {
        return Err(WireError::Field { field: "error", found: 0 });
    }
    let text_bytes = usize::from(cursor.u16()?);
    if text_bytes > NAME_BYTES_MAX {
        return Err(WireError::StringTooLong { found: text_bytes });
    }
    // An invalid text must not hide the error that it explains.
    let text = string(cursor.bytes(text_bytes)?).unwrap_or("");
    let offset = if kind == ChunkKind::ErrorOffset { Some(cursor.u64()?) } else { None };
    Ok(Chunk::Error { error: ErrorCode::from_code(code), text, offset })
}

/// The header of any reply, as a client reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyHeader {
    /// A simple reply.
    Simple(SimpleReply),
    /// A chunk of a structured reply.
    Chunk(ChunkHeader),
}

impl ReplyHeader {
    /// Reads a header from the front of `bytes`. Returns it with its length in bytes; `None` if more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<(ReplyHeader, usize)>, WireError> {
        let Some(magic) = bytes.first_chunk::<4>() else { return Ok(None) };
        match u32::from_be_bytes(*magic) {
            MAGIC_SIMPLE_REPLY => match bytes.first_chunk() {
                Some(header) => Ok(Some((ReplyHeader::Simple(SimpleReply::parse(header)?), SIMPLE_REPLY_BYTES))),
                None => Ok(None),
            },
            MAGIC_CHUNK => match bytes.first_chunk() {
                Some(header) => Ok(Some((ReplyHeader::Chunk(ChunkHeader::parse(header)?), CHUNK_HEADER_BYTES))),
                None => Ok(None),
            },
            found => Err(WireError::Magic { found: found.into(), expected: MAGIC_SIMPLE_REPLY.into() }),
        }
    }
}

fn expect(found: u32, expected: u32) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::Magic { found: found.into(), expected: expected.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        flags: CommandFlags::FUA,
        command: Command::Write,
        cookie: Cookie(0x0102_0304_0506_0708),
        offset: 0x10_0000,
        length: 4096,
    };

    #[test]
    fn a_request_is_the_one_of_the_protocol() {
        let bytes = REQUEST.encode();
        assert_eq!(
            &bytes,
            b"\x25\x60\x95\x13\x00\x01\x00\x01\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x10\x00"
        );
        assert_eq!(Request::parse(&bytes), Ok(REQUEST));
        assert!(matches!(Request::parse(&[0; 28]), Err(WireError::Magic { found: 0, .. })));
    }

    #[test]
    fn simple_replies_read_as_they_were_written() {
        for result in [Ok(()), Err(ErrorCode::Io), Err(ErrorCode::Unknown(999))] {
            let reply = SimpleReply { cookie: Cookie(7), result };
            assert_eq!(SimpleReply::parse(&reply.encode()), Ok(reply));
            let header = ReplyHeader::parse(&reply.encode());
            assert_eq!(header, Ok(Some((ReplyHeader::Simple(reply), SIMPLE_REPLY_BYTES))));
            assert_eq!(ReplyHeader::parse(&reply.encode()[..15]), Ok(None));
        }
        assert_eq!(ReplyHeader::parse(&[]), Ok(None));
        assert!(ReplyHeader::parse(&[1, 2, 3, 4]).is_err());
    }

    #[test]
    fn chunks_read_as_they_were_written() {
        let bytes = data_chunk(Cookie(7), 1 << 40, 4096);
        let (header, used) = ReplyHeader::parse(&bytes).expect("good").expect("whole");
        let expected = ChunkHeader { is_last: true, kind: ChunkKind::OffsetData, cookie: Cookie(7), length: 4104 };
        assert_eq!((header, used), (ReplyHeader::Chunk(expected), CHUNK_HEADER_BYTES));
        let payload = [&bytes[CHUNK_HEADER_BYTES..], &[9; 4096]].concat();
        let chunk = Chunk::parse(ChunkKind::OffsetData, &payload);
        assert_eq!(chunk, Ok(Chunk::OffsetData { offset: 1 << 40, data: &[9; 4096] }));
        assert!(Chunk::parse(ChunkKind::OffsetData, &payload[..8]).is_err(), "a data chunk without data");

        let done = ChunkHeader::parse(&done_chunk(Cookie(8))).expect("good");
        assert_eq!((done.kind, done.is_last, done.length), (ChunkKind::None, true, 0));
        assert!(ChunkHeader::parse(&ChunkHeader { is_last: false, ..done }.encode()).is_err());
    }

    #[test]
    fn every_bit_of_a_cookie_and_an_offset_comes_back() {
        for bit in 0..64 {
            let (cookie, offset) = (Cookie(1 << bit), 1 << (63 - bit));
            let request = Request { cookie, offset, ..REQUEST };
            assert_eq!(Request::parse(&request.encode()), Ok(request));
            let reply = SimpleReply { cookie, result: Ok(()) };
            assert_eq!(SimpleReply::parse(&reply.encode()), Ok(reply));
            let data = data_chunk(cookie, offset, 512);
            assert_eq!(data[CHUNK_HEADER_BYTES..], offset.to_be_bytes());
            let mut error = Vec::new();
            push_error_chunk(&mut error, cookie, ErrorCode::Io, "");
            for bytes in [&data[..], &done_chunk(cookie), &error] {
                let header = ChunkHeader::parse(bytes.first_chunk().expect("a header")).expect("good");
                assert_eq!((header.cookie, header.is_last), (cookie, true));
            }
        }
    }

    #[test]
    fn an_error_chunk_carries_its_text_up_to_the_bound() {
        for text in ["", "past the end", &"long ".repeat(5000)] {
            let mut bytes = Vec::new();
            push_error_chunk(&mut bytes, Cookie(1), ErrorCode::Invalid, text);
            let header = ChunkHeader::parse(bytes.first_chunk().expect("a header")).expect("good");
            assert_eq!(header.length as usize, bytes.len() - CHUNK_HEADER_BYTES);
            let chunk = Chunk::parse(header.kind, &bytes[CHUNK_HEADER_BYTES..]);
            let text = &text[..text.len().min(ERROR_TEXT_BYTES_MAX)];
            assert_eq!(chunk, Ok(Chunk::Error { error: ErrorCode::Invalid, text, offset: None }));
        }
    }

    #[test]
    fn error_chunks_of_unknown_kind_are_errors_and_no_more() {
        let payload = b"\x00\x00\x00\x05\x00\x02no\xff\xff\xff";
        let error = Chunk::parse(ChunkKind::from_code(0x8077), payload);
        assert_eq!(error, Ok(Chunk::Error { error: ErrorCode::Io, text: "no", offset: None }));
        assert!(Chunk::parse(ChunkKind::from_code(0x0077), payload).is_err());
        assert!(Chunk::parse(ChunkKind::Error, b"\x00\x00\x00\x05\xff\xff").is_err(), "a text longer than its chunk");
        let at = Chunk::parse(ChunkKind::ErrorOffset, b"\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00");
        assert_eq!(at, Ok(Chunk::Error { error: ErrorCode::Io, text: "", offset: Some(512) }));
    }

    #[test]
    fn content_outside_of_the_request_has_no_place() {
        let request = Request { command: Command::Read, ..REQUEST };
        assert_eq!(request.place(0x10_0000, 4096), Ok(0));
        assert_eq!(request.place(0x10_0200, 512), Ok(512));
        for (offset, length) in [(0x0f_ffff, 512), (0x10_0e01, 512), (u64::MAX, 1), (0x10_0000, u32::MAX), (0, 1)] {
            assert!(request.place(offset, length).is_err(), "{offset:#x} + {length}");
        }
    }
}
