//! The errno of a device's error.
//! Owns: [`errno`]. Not here: refusals of the frontend itself (`transfer`, `server`).
//! Invariant: the same errors as over NBD (`export-nbd/src/request/mod.rs`), but EROFS for a device that is not writable: a
//! file has that word.

use uraid_block::{ErrorKind, IoError};
use uraid_fuse::Errno;

/// What the caller of the file's function gets.
pub(crate) fn errno(error: IoError) -> Errno {
    match error.kind {
        ErrorKind::Media | ErrorKind::Gone | ErrorKind::TooManyLost | ErrorKind::Frozen | ErrorKind::Late => Errno::Io,
        ErrorKind::NoSpace => Errno::NoSpc,
        ErrorKind::ReadOnly => Errno::RoFs,
        ErrorKind::OutOfRange => Errno::Inval,
        ErrorKind::Unsupported => Errno::OpNotSupp,
        ErrorKind::NoMemory => Errno::NoMem,
        ErrorKind::Stopping => Errno::Shutdown,
    }
}
