//! FUSE's messages: what the kernel asks a file server, and how the server answers.
//! Owns: every number and every offset of the protocol that a server of some plain files needs. Not here: the device
//! file, buffers, mounting, which files there are (`export-fuse`, `host`).
//! Invariant: pure and total: any bytes give a value or a [`WireError`], never a panic. Nothing is allocated for a
//! length that was only announced. Spec: Linux's include/uapi/linux/fuse.h, protocol 7.31 and later.
//!
//! ```text
//!   kernel                                     server
//!     | -- RequestHeader (40) + arguments -----> |   a write: arguments (40), then the data
//!     | <-- ReplyHeader (16) + answer ---------- |   a read: then the data; FORGET has no answer
//! ```
//! Numbers are in the byte order of the machine.

mod cursor;
pub mod reply;
pub mod request;
pub mod words;

pub use reply::{Attributes, FileSystem, InitReply, directory_entry, reply_header};
pub use request::{Init, NodeId, Operation, Range, RequestHeader, SetAttributes, Unique};
pub use words::{Errno, FileKind};

/// Bytes that are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A message ends before its last field.
    #[error("{found} bytes are left, the next field needs {expected}")]
    Truncated {
        /// Bytes that are left.
        found: usize,
        /// Bytes that the field has.
        expected: usize,
    },
    /// The length in a message's header is not the number of its bytes.
    #[error("a message of {found} bytes announces {announced}")]
    Length {
        /// The bytes received.
        found: usize,
        /// What the header says.
        announced: u32,
    },
    /// A write has less or more data than it announces.
    #[error("a write has {found} bytes of data, and announces {announced}")]
    Payload {
        /// The bytes behind its arguments.
        found: usize,
        /// What the arguments say.
        announced: u32,
    },
    /// A name does not end with a zero byte.
    #[error("a name of {found} bytes does not end with a zero byte")]
    Name {
        /// Its bytes.
        found: usize,
    },
}
