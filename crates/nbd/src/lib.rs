//! NBD's bytes on the wire, both ends: fixed newstyle handshake, requests, replies, extended headers, block status.
//! Owns: every number and every offset of the protocol. Not here: sockets, buffers, policy, sessions (`export-nbd`).
//! Invariant: pure and total: any bytes give a value or a [`WireError`], never a panic. Nothing is allocated for a
//! length that was only announced. Spec: the NBD project's doc/proto.md.
//!
//! ```text
//!   server                                   client
//!     | -- Greeting (18) ---------------------> |
//!     | <--------------------- ClientFlags (4) -|
//!     | <-- OptionHeader (16) + data ---------- |   as often as the client likes
//!     | -- OptionReplyHeader (20) + payload --> |   one or more per option
//!     |            (Go or ExportName ends the handshake)
//!     | <-- Request (28) + write payload ------ |
//!     | -- simple reply (16) + read data -----> |   or chunks (20 + payload), once structured replies are agreed
//! ```

mod cursor;
pub mod extended;
pub mod handshake;
pub mod metadata;
pub mod transmission;
pub mod words;

pub use extended::ExtendedChunkHeader;
pub use handshake::{
    BlockSizes, ExportInfo, ExportQuery, Info, ListEntry, OptionHeader, OptionReplyHeader, greeting, parse_greeting,
};
pub use metadata::{BlockStatus, MetaContext, MetaContextQuery, StatusExtent};
pub use transmission::{Chunk, ChunkHeader, Cookie, ReplyHeader, Request, SimpleReply};
pub use words::{
    ChunkKind, Command, CommandFlags, ErrorCode, HandshakeFlags, InfoKind, NAME_BYTES_MAX, OptionCode, OptionReply,
    TransmissionFlags,
};

/// Bytes that are not valid NBD, or not at this place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A message does not begin with its magic number.
    #[error("magic number is {found:#x}, expected {expected:#x}")]
    Magic {
        /// The number found.
        found: u64,
        /// The number that the protocol demands.
        expected: u64,
    },
    /// A message's data ends before its last field.
    #[error("{found} bytes are left, the next field needs {expected}")]
    Truncated {
        /// Bytes that are left.
        found: usize,
        /// Bytes that the field has.
        expected: usize,
    },
    /// A message has bytes after its last field.
    #[error("{found} bytes are left over, expected none")]
    Excess {
        /// How many bytes too many.
        found: usize,
    },
    /// A string is longer than the protocol allows.
    #[error("a string has {found} bytes, at most {} are allowed", NAME_BYTES_MAX)]
    StringTooLong {
        /// Its length in bytes.
        found: usize,
    },
    /// A string holds a zero byte or is not UTF-8.
    #[error("a string is not valid at byte {at}, expected UTF-8 without zero bytes")]
    StringInvalid {
        /// The first invalid byte.
        at: usize,
    },
    /// The other side did not offer the fixed newstyle handshake.
    #[error("handshake flags are {found:#06x}, expected fixed newstyle")]
    NotFixedNewstyle {
        /// Its flags.
        found: u16,
    },
    /// A field holds a number that is not allowed there.
    #[error("field {field} is {found}, which is not allowed there")]
    Field {
        /// The field's name.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// A reply's content lies outside of the requested range.
    #[error("content at byte {offset} + {length} lies outside of the request")]
    OutsideRequest {
        /// The content's first byte in the export.
        offset: u64,
        /// Its length in bytes.
        length: u32,
    },
}
