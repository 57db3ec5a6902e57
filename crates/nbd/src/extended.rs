//! Requests and chunks with 64-bit lengths, as both ends write and read them once extended headers are agreed.
//! Owns: the extended request header, the extended chunk header. Not here: what the payloads mean
//! (`transmission`, `metadata`), whether extended headers are agreed.
//! Invariant: `parse(encode(x)) == x`; a length is the peer's word and never sizes anything here.
//! Spec: proto.md, "Extended headers", "Extended request message", "Extended reply chunk message".
//!
//! ```text
//!   request   magic 4 | flags 2 | command 2 | cookie 8 | offset 8 | length 8
//!   chunk     magic 4 | flags 2 | kind 2    | cookie 8 | offset 8 | length 8, then the payload
//! ```

use crate::cursor::Cursor;
use crate::transmission::FLAG_DONE;
use crate::words::{MAGIC_EXTENDED_CHUNK, MAGIC_EXTENDED_REQUEST};
use crate::{ChunkKind, Command, CommandFlags, Cookie, WireError};

/// Bytes of an extended request without its payload.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Bytes in front of an extended chunk's payload.
pub const EXTENDED_CHUNK_HEADER_BYTES: usize = 32;

/// What a client asks for, with a length of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedRequest {
    /// How.
    pub flags: CommandFlags,
    /// What.
    pub command: Command,
    /// Its name.
    pub cookie: Cookie,
    /// The first byte. The client's word: nothing is checked here.
    pub offset: u64,
    /// Bytes of the effect, or of the payload: see [`ExtendedRequest::payload_bytes`].
    pub length: u64,
}

impl ExtendedRequest {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; EXTENDED_REQUEST_BYTES] {
        let mut bytes = [0; EXTENDED_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_EXTENDED_REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header. Only the magic can be wrong: a stream without it cannot be followed any more.
    pub fn parse(bytes: &[u8; EXTENDED_REQUEST_BYTES]) -> Result<ExtendedRequest, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u32()?, MAGIC_EXTENDED_REQUEST)?;
        Ok(ExtendedRequest {
            flags: CommandFlags(cursor.u16()?),
            command: Command::from_code(cursor.u16()?),
            cookie: Cookie(cursor.u64()?),
            offset: cursor.u64()?,
            length: cursor.u64()?,
        })
    }

    /// How many bytes follow the header: the length where the flag says so, else none. Holds for every command,
    /// also for those that take no payload: they are answered with an error after it was skipped.
    pub fn payload_bytes(&self) -> u64 {
        if self.flags.contains(CommandFlags::PAYLOAD_LEN) { self.length } else { 0 }
    }
}

/// What stands in front of an extended chunk's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedChunkHeader {
    /// Whether the reply ends with this chunk.
    pub is_last: bool,
    /// What the payload is.
    pub kind: ChunkKind,
    /// The request's name.
    pub cookie: Cookie,
    /// The request's offset, given back.
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

fn expect(found: u32, expected: u32) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::Magic { found: found.into(), expected: expected.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: ExtendedRequest = ExtendedRequest {
        flags: CommandFlags::NO_HOLE,
        command: Command::WriteZeroes,
        cookie: Cookie(0x0102_0304_0506_0708),
        offset: 0x10_0000,
        length: 5 << 32,
    };

    #[test]
    fn an_extended_request_is_the_one_of_the_protocol() {
        let bytes = REQUEST.encode();
        let front = b"\x21\xe4\x1c\x71\x00\x02\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(&bytes[..16], front);
        assert_eq!(&bytes[16..], b"\0\0\0\0\0\x10\0\0\0\0\0\x05\0\0\0\0");
        assert_eq!(ExtendedRequest::parse(&bytes), Ok(REQUEST));
        assert!(matches!(ExtendedRequest::parse(&[0; 32]), Err(WireError::Magic { found: 0, .. })));
    }

    #[test]
    fn only_the_flag_says_that_a_payload_follows() {
        assert_eq!(REQUEST.payload_bytes(), 0);
        let flags = CommandFlags::PAYLOAD_LEN;
        assert_eq!(ExtendedRequest { flags, length: u64::MAX, ..REQUEST }.payload_bytes(), u64::MAX);
        assert_eq!(ExtendedRequest { command: Command::Write, ..REQUEST }.payload_bytes(), 0);
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
}
