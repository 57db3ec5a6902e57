//! How the server answers.
//! Owns: [`reply_header`] and the answers behind it. Not here: what is answered (`export-fuse`).
//! Invariant: every answer has the length of its struct, so the kernel accepts it. Spec: fuse.h, `struct fuse_*_out`.

use crate::cursor::Fields;
use crate::request::{NodeId, Unique};
use crate::words::{Errno, FileKind, MAJOR, MINOR};
use std::time::Duration;

/// Bytes in front of every answer.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a folder's entry in front of its name.
const ENTRY_BYTES: usize = 24;

/// The front of an answer: of one with `bytes` bytes behind it, or of an error, which has none.
pub fn reply_header(unique: Unique, result: Result<usize, Errno>) -> [u8; HEADER_BYTES] {
    let (bytes, error) = match result {
        Ok(bytes) => (bytes, 0),
        Err(error) => (0, -error.code()),
    };
    let length = u32::try_from(HEADER_BYTES + bytes).expect("answers are some MiB at most");
    Fields::new().u32(length).u32(error.cast_unsigned()).u64(unique.0).done()
}

/// The server's side of the first exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitReply {
    /// The protocol's minor number, at most the kernel's.
    pub minor: u32,
    /// How far the kernel may read ahead, in bytes.
    pub readahead_max: u32,
    /// [`crate::words::init`].
    pub flags: u32,
    /// Asynchronous requests in flight.
    pub background_max: u16,
    /// From how many of them on the kernel counts the server as congested.
    pub congestion: u16,
    /// The longest write in bytes.
    pub write_max: u32,
    /// Pages of a request.
    pub pages_max: u16,
}

impl InitReply {
    /// The bytes.
    pub fn encode(&self) -> [u8; 64] {
        assert!(self.minor <= MINOR);
        let fields = Fields::new().u32(MAJOR).u32(self.minor).u32(self.readahead_max).u32(self.flags);
        let fields = fields.u16(self.background_max).u16(self.congestion).u32(self.write_max);
        // The granularity of times is a nanosecond.
        fields.u32(1).u16(self.pages_max).zeroes(34).done()
    }
}

/// The attributes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The node, also its inode number.
    pub node: NodeId,
    /// What it is.
    pub kind: FileKind,
    /// The rights, without the kind: 0o600.
    pub rights: u32,
    /// In bytes.
    pub size: u64,
    /// The unit for I/O, in bytes: a power of two.
    pub block_bytes: u32,
    /// Names that it has.
    pub links: u32,
    /// The owner and the group.
    pub owner: (u32, u32),
    /// Seconds since 1970: all three times.
    pub time: u64,
}

impl Attributes {
    fn encode_alone(&self) -> [u8; 88] {
        let fields = Fields::new().u64(self.node.0).u64(self.size).u64(self.size.div_ceil(512));
        let fields = fields.u64(self.time).u64(self.time).u64(self.time).zeroes(12);
        let fields = fields.u32(self.kind.mode() | self.rights).u32(self.links);
        // No device number behind the owner, no flags at the end.
        fields.u32(self.owner.0).u32(self.owner.1).u32(0).u32(self.block_bytes).u32(0).done()
    }

    /// The answer to GETATTR and SETATTR; the kernel may use it for `valid`.
    pub fn encode(&self, valid: Duration) -> [u8; 104] {
        let fields = Fields::new().u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
        fields.put_all(&self.encode_alone()).done()
    }

    /// The answer to LOOKUP; the kernel may use it for `valid`.
    pub fn encode_entry(&self, valid: Duration) -> [u8; 128] {
        // Node numbers are not used again, so their generation stays 0.
        let fields = Fields::new().u64(self.node.0).u64(0).u64(valid.as_secs()).u64(valid.as_secs());
        let fields = fields.u32(valid.subsec_nanos()).u32(valid.subsec_nanos());
        fields.put_all(&self.encode_alone()).done()
    }
}

/// The answer to OPEN and OPENDIR. `flags`: [`crate::words::open`].
pub fn opened(flags: u32) -> [u8; 16] {
    Fields::new().u64(0).u32(flags).u32(0).done()
}

/// The answer to WRITE: how many bytes were written.
pub fn written(bytes: u32) -> [u8; 8] {
    Fields::new().u32(bytes).u32(0).done()
}

/// The answer to LSEEK.
pub fn sought(offset: u64) -> [u8; 8] {
    Fields::new().u64(offset).done()
}

/// The numbers of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Its size in bytes.
    pub bytes: u64,
    /// Its block in bytes. A loop device takes it for the granularity of discards.
    pub block_bytes: u32,
    /// How many files it has.
    pub files: u64,
}

impl FileSystem {
    /// The answer to STATFS: no room is free.
    pub fn encode(&self) -> [u8; 80] {
        let blocks = self.bytes / u64::from(self.block_bytes);
        let fields = Fields::new().u64(blocks).u64(0).u64(0).u64(self.files).u64(0);
        fields.u32(self.block_bytes).u32(255).u32(self.block_bytes).zeroes(28).done()
    }
}

/// Appends an entry to the answer to READDIR if that has at most `bytes_max` bytes then; returns whether it has.
/// `next`: where the kernel goes on behind this entry.
pub fn directory_entry(
    into: &mut Vec<u8>,
    bytes_max: usize,
    node: NodeId,
    kind: FileKind,
    name: &[u8],
    next: u64,
) -> bool {
    let bytes = (ENTRY_BYTES + name.len()).next_multiple_of(8);
    if into.len() + bytes > bytes_max {
        return false;
    }
    let length = u32::try_from(name.len()).expect("names are short");
    let head: [u8; ENTRY_BYTES] = Fields::new().u64(node.0).u64(next).u32(length).u32(kind.mode() >> 12).done();
    let end = into.len() + bytes;
    into.extend(head);
    into.extend(name);
    into.resize(end, 0);
    true
}
