//! Why the output of a copy is not written.
//! Owns: [`OutputError`] and its texts. Not here: when it applies (`output`, `occupied`).

use std::io;
use std::path::PathBuf;
use uraid_format::signature::Signature;

/// Why OUT is not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// It could not be opened, looked at or made as large as the array.
    #[error("{}: {action} failed", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    /// It is a member.
    #[error("{}: is the member {member}, which a copy must not change", path.display())]
    Member {
        path: PathBuf,
        /// Its name as a member.
        member: String,
    },
    /// It was, or is, a member of an array.
    #[error(
        "{member}: carries {mark}: it is, or was, a member of an array, and a copy never replaces one, not even with \
         --overwrite; was OUT forgotten? If nothing of that array is needed any more, `uraid zero-superblock {member}` \
         takes the mark away"
    )]
    Superblock {
        /// OUT, or its partition, as a member's name.
        member: String,
        /// What was found.
        mark: Signature,
    },
    /// It is a part of a member.
    #[error(
        "{}: lies in the data of {}, which carries md metadata: it is, or was, a member of an array, and a copy never \
         replaces one, not even with --overwrite; if nothing of that array is needed any more, `uraid zero-superblock {}` \
         takes the mark away",
        path.display(),
        member.display(),
        member.display()
    )]
    Data { path: PathBuf, member: PathBuf },
    /// It is locked or mounted.
    #[error("{}: is in use", path.display())]
    InUse { path: PathBuf },
    /// The system itself writes to it: it is swap space, or below a loop device in use.
    #[error("{}: is in use, because it {used_as}, then try again", path.display())]
    UsedBySystem {
        path: PathBuf,
        /// What it is used as, and how to end that.
        used_as: String,
    },
    /// It holds something.
    #[error("{}: is not empty and has no map of an earlier copy; --overwrite replaces what it holds", path.display())]
    NotEmpty { path: PathBuf },
    /// A block device holds something, or may.
    #[error("{}: is a block device; --overwrite replaces what it holds", path.display())]
    Device { path: PathBuf },
    /// A block device or an unfinished copy of another size.
    #[error("{}: has {found} bytes, expected {expected}", path.display())]
    Size {
        path: PathBuf,
        /// What it has.
        found: u64,
        /// What the array has, or at least that for a device.
        expected: u64,
    },
    /// OUT lacks what the map calls copied.
    #[error("{}: is not there or empty, but its map says that it is partly copied; --overwrite starts from the beginning", path.display())]
    Vanished { path: PathBuf },
    /// One path is OUT and the map.
    #[error("{}: is OUT, and cannot be its map too: name another file with --map", path.display())]
    IsMap { path: PathBuf },
    /// A directory or a socket.
    #[error("{}: is not a file, block device or pipe", path.display())]
    NoStorage { path: PathBuf },
    /// OUT is a terminal, which cannot show raw bytes.
    #[error("standard output is a terminal: give a file, or a pipe to a program")]
    Terminal,
    /// OUT is `-`, and this process has no standard output.
    #[error("standard output is closed: give a file, or a pipe to a program")]
    Closed,
}
