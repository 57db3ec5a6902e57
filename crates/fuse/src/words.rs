//! The protocol's numbers.
//! Owns: opcodes, flags, [`Errno`], [`FileKind`]. Not here: messages (`request`, `reply`).
//! Invariant: the numbers are those of Linux's fuse.h and errno.h. Spec: include/uapi/linux/fuse.h.

/// The protocol's major number.
pub const MAJOR: u32 = 7;
/// The protocol's minor number that the server speaks at most.
pub const MINOR: u32 = 41;
/// The oldest minor number that the server understands (Linux 5.4).
pub const MINOR_MIN: u32 = 31;

pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const SYNCFS: u32 = 50;
}

/// Flags of INIT.
pub mod init {
    /// Several reads of a file at once.
    pub const ASYNC_READ: u32 = 1 << 0;
    /// Writes of more than a page.
    pub const BIG_WRITES: u32 = 1 << 5;
    /// Asynchronous direct I/O is sent as such.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// Look-ups and listings of one folder at once.
    pub const PARALLEL_DIROPS: u32 = 1 << 18;
    /// The answer says how many pages a request has at most.
    pub const MAX_PAGES: u32 = 1 << 22;
    /// There are 32 more flags.
    pub const INIT_EXT: u32 = 1 << 30;
}

/// Flags in the answer to OPEN.
pub mod open {
    /// The kernel caches no data of the file.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// FLUSH is not sent when the file is closed.
    pub const NO_FLUSH: u32 = 1 << 5;
    /// Several direct writes at once.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Modes of FALLOCATE.
pub mod fallocate {
    /// The size of the file stays.
    pub const KEEP_SIZE: u32 = 1;
    /// The range becomes a hole, which reads as zeroes.
    pub const PUNCH_HOLE: u32 = 2;
    /// The range becomes zeroes.
    pub const ZERO_RANGE: u32 = 16;
}

/// What LSEEK looks for.
pub mod seek {
    /// The next data.
    pub const DATA: u32 = 3;
    /// The next hole.
    pub const HOLE: u32 = 4;
}

/// Which attributes SETATTR changes.
pub mod change {
    /// The rights.
    pub const MODE: u32 = 1 << 0;
    /// The owner.
    pub const UID: u32 = 1 << 1;
    /// The group.
    pub const GID: u32 = 1 << 2;
    /// The size.
    pub const SIZE: u32 = 1 << 3;
    /// The request comes from an open file.
    pub const FILE: u32 = 1 << 6;
}

/// The access mode in the flags of OPEN.
pub const ACCESS_MODE: u32 = 3;
/// Open for reading only.
pub const READ_ONLY: u32 = 0;

/// Why a request failed: Linux's errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    /// Operation not permitted.
    Perm,
    /// No such file.
    NoEnt,
    /// No such address: nothing to seek there.
    NxIo,
    /// Input/output error.
    Io,
    /// Out of memory.
    NoMem,
    /// Not a folder.
    NotDir,
    /// A folder.
    IsDir,
    /// Invalid argument.
    Inval,
    /// No space left.
    NoSpc,
    /// Read-only.
    RoFs,
    /// The server does not know this request; the kernel does not send it again.
    NoSys,
    /// A protocol error.
    Proto,
    /// Not supported.
    OpNotSupp,
    /// The server ends.
    Shutdown,
}

impl Errno {
    /// Linux's number.
    pub fn code(self) -> i32 {
        match self {
            Errno::Perm => 1,
            Errno::NoEnt => 2,
            Errno::Io => 5,
            Errno::NxIo => 6,
            Errno::NoMem => 12,
            Errno::NotDir => 20,
            Errno::IsDir => 21,
            Errno::Inval => 22,
            Errno::NoSpc => 28,
            Errno::RoFs => 30,
            Errno::NoSys => 38,
            Errno::Proto => 71,
            Errno::OpNotSupp => 95,
            Errno::Shutdown => 108,
        }
    }
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A folder.
    Folder,
}

impl FileKind {
    /// The type as the upper bits of a mode.
    pub(crate) fn mode(self) -> u32 {
        match self {
            FileKind::File => 0o100_000,
            FileKind::Folder => 0o040_000,
        }
    }
}
