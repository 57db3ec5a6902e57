//! What the kernel asks.
//! Owns: [`RequestHeader`], [`Operation`]. Not here: the answers (`reply`), whether a request may be done (`export-fuse`).
//! Invariant: a write that was parsed has exactly the data that it announces. Spec: fuse.h, `struct fuse_*_in`.

use crate::WireError;
use crate::cursor::Cursor;
use crate::words::{change, opcode};

/// Bytes in front of every request's arguments.
pub const HEADER_BYTES: usize = 40;
/// Bytes of a write in front of its data: the header and the arguments.
pub const WRITE_BYTES: usize = 80;

/// The kernel's number of a request, repeated in the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unique(pub u64);

/// The server's number of a file or folder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u64);

/// The front of every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Bytes of the whole request.
    pub length: u32,
    /// What is asked.
    pub opcode: u32,
    /// The kernel's number of the request.
    pub unique: Unique,
    /// The file or folder.
    pub node: NodeId,
}

/// Bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first byte, as sent: nothing is checked here.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// The kernel's side of the first exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init {
    /// The protocol's major number.
    pub major: u32,
    /// The protocol's minor number.
    pub minor: u32,
    /// How far the kernel reads ahead, in bytes.
    pub readahead_max: u32,
    /// What it can do: [`crate::words::init`].
    pub flags: u32,
}

/// Attributes to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetAttributes {
    /// Which: [`crate::words::change`].
    pub which: u32,
    /// The new size in bytes, if it is one of them.
    pub size: u64,
}

impl SetAttributes {
    /// The new size, if there is one.
    pub fn new_size(&self) -> Option<u64> {
        (self.which & change::SIZE != 0).then_some(self.size)
    }
}

/// A request with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// The first one.
    Init(Init),
    /// Find a name in a folder.
    Lookup {
        /// The name.
        name: &'a [u8],
    },
    /// The kernel forgets nodes. There is no answer.
    Forget,
    /// The attributes of a node.
    GetAttributes,
    /// Change attributes.
    SetAttributes(SetAttributes),
    /// Open a file.
    Open {
        /// As of open(2).
        flags: u32,
    },
    /// Open a folder.
    OpenFolder,
    /// Read a file.
    Read(Range),
    /// Write a file; the data follow the first [`WRITE_BYTES`] bytes.
    Write(Range),
    /// The numbers of the file system.
    StatFs,
    /// A file is not open any more.
    Release,
    /// A folder is not open any more.
    ReleaseFolder,
    /// Make a file durable.
    Sync,
    /// Make a folder durable.
    SyncFolder,
    /// Make the file system durable.
    SyncAll,
    /// A descriptor of a file was closed.
    Flush,
    /// List a folder.
    ReadFolder {
        /// How many entries the kernel has already.
        offset: u64,
        /// The most bytes of the answer.
        size: u32,
    },
    /// May the caller use the node?
    Access,
    /// The caller of another request was interrupted.
    Interrupt,
    /// The connection ends.
    Destroy,
    /// Punch a hole, write zeroes, or allocate room.
    Allocate {
        /// Where.
        range: Range,
        /// [`crate::words::fallocate`].
        mode: u32,
    },
    /// The next data, or the next hole.
    Seek {
        /// From this byte.
        offset: u64,
        /// [`crate::words::seek`].
        whence: u32,
    },
    /// A request that this server does not know.
    Unknown,
}

impl RequestHeader {
    /// Reads the header of a request of `received` bytes.
    pub fn parse(bytes: &[u8; HEADER_BYTES], received: usize) -> Result<RequestHeader, WireError> {
        let mut cursor = Cursor::new(bytes);
        let header = RequestHeader {
            length: cursor.u32()?,
            opcode: cursor.u32()?,
            unique: Unique(cursor.u64()?),
            node: NodeId(cursor.u64()?),
        };
        if header.length as usize != received || received < HEADER_BYTES {
            return Err(WireError::Length { found: received, announced: header.length });
        }
        Ok(header)
    }

    /// Whether the request is a write, whose data follow its first [`WRITE_BYTES`] bytes.
    pub fn is_write(&self) -> bool {
        self.opcode == opcode::WRITE
    }

    /// Whether the kernel waits for an answer.
    pub fn is_answered(&self) -> bool {
        !matches!(self.opcode, opcode::FORGET | opcode::BATCH_FORGET)
    }

    /// Reads the arguments: the bytes behind the header, of a write only the first 40.
    pub fn operation<'a>(&self, arguments: &'a [u8]) -> Result<Operation<'a>, WireError> {
        let mut cursor = Cursor::new(arguments);
        Ok(match self.opcode {
            opcode::LOOKUP => Operation::Lookup { name: cursor.name()? },
            opcode::FORGET | opcode::BATCH_FORGET => Operation::Forget,
            opcode::GETATTR => Operation::GetAttributes,
            opcode::SETATTR => {
                let (which, _padding, _handle) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
                Operation::SetAttributes(SetAttributes { which, size: cursor.u64()? })
            }
            opcode::OPEN => Operation::Open { flags: cursor.u32()? },
            opcode::OPENDIR => Operation::OpenFolder,
            opcode::READ => Operation::Read(range(&mut cursor)?),
            opcode::WRITE => {
                let range = range(&mut cursor)?;
                let found = (self.length as usize).saturating_sub(WRITE_BYTES);
                if found as u64 != range.length {
                    return Err(WireError::Payload { found, announced: range.length as u32 });
                }
                Operation::Write(range)
            }
            opcode::STATFS => Operation::StatFs,
            opcode::RELEASE => Operation::Release,
            opcode::FSYNC => Operation::Sync,
            opcode::FLUSH => Operation::Flush,
            opcode::INIT => Operation::Init(Init {
                major: cursor.u32()?,
                minor: cursor.u32()?,
                readahead_max: cursor.u32()?,
                flags: cursor.u32()?,
            }),
            opcode::READDIR => {
                let Range { offset, length } = range(&mut cursor)?;
                Operation::ReadFolder { offset, size: length as u32 }
            }
            opcode::RELEASEDIR => Operation::ReleaseFolder,
            opcode::FSYNCDIR => Operation::SyncFolder,
            opcode::ACCESS => Operation::Access,
            opcode::INTERRUPT => Operation::Interrupt,
            opcode::DESTROY => Operation::Destroy,
            opcode::FALLOCATE => {
                let (_handle, offset, length) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
                Operation::Allocate { range: Range { offset, length }, mode: cursor.u32()? }
            }
            opcode::LSEEK => {
                let (_handle, offset) = (cursor.u64()?, cursor.u64()?);
                Operation::Seek { offset, whence: cursor.u32()? }
            }
            opcode::SYNCFS => Operation::SyncAll,
            _ => Operation::Unknown,
        })
    }
}

/// The front of READ, WRITE and READDIR: handle, offset, size.
fn range(cursor: &mut Cursor<'_>) -> Result<Range, WireError> {
    let (_handle, offset, size) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
    // Flags, the owner of locks, flags of open(2), padding: all of them must be there.
    let (_flags, _owner, _open, _padding) = (cursor.u32()?, cursor.u64()?, cursor.u32()?, cursor.u32()?);
    Ok(Range { offset, length: size.into() })
}
