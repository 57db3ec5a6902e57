//! Why an I/O failed.
//! Owns: [`IoError`], [`ErrorKind`]. Not here: what to do about it (`engine::verdict`).

/// Why an I/O failed. `engine::verdict` decides what follows from each kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The medium could not read or write these sectors (EIO).
    Media,
    /// The member is gone: unplugged, closed, or shorter than the range (ENODEV, ENXIO, a short transfer).
    Gone,
    /// No room to store new sectors, as on a sparse file of a full file system (ENOSPC, EDQUOT).
    NoSpace,
    /// The device, or the array, may not be written (EROFS, EPERM).
    ReadOnly,
    /// The range reaches past the end of the device.
    OutOfRange,
    /// The device does not support this operation (EOPNOTSUPP).
    Unsupported,
    /// No memory or no buffer: the request failed, the medium is fine (ENOMEM).
    NoMemory,
    /// More members are lost than the level tolerates: these sectors cannot be served.
    TooManyLost,
    /// The array has stopped taking writes after an error that it could not record or survive.
    Frozen,
    /// The array is being stopped.
    Stopping,
    /// The device is slow, and the read was cut: see `Device::cut_reads`.
    Late,
}

/// A failed I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}{}", OsSuffix(*os))]
// Aligned so that the buffers beside it in a `Result` are moved by whole words (see `Pieces`). Without the alignment a
// read takes 1.5 times as long.
#[repr(align(8))]
pub struct IoError {
    /// The kind; `engine::verdict` decides by it.
    pub kind: ErrorKind,
    /// The system's errno, for messages; 0 if there was none.
    pub os: i32,
}

impl ErrorKind {
    /// Whether the error concerns only the sectors of the request, so that others may be readable.
    pub fn is_of_sectors(self) -> bool {
        match self {
            ErrorKind::Media => true,
            ErrorKind::Gone
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfRange
            | ErrorKind::Unsupported
            | ErrorKind::NoMemory
            | ErrorKind::TooManyLost
            | ErrorKind::Frozen
            | ErrorKind::Stopping
            | ErrorKind::Late => false,
        }
    }
}

impl IoError {
    /// An error that no system call reported.
    pub const fn new(kind: ErrorKind) -> IoError {
        IoError { kind, os: 0 }
    }

    /// Whether the system reported it from a device. False for requests that were refused without asking a device.
    pub const fn is_of_device(self) -> bool {
        self.os != 0
    }
}

impl From<ErrorKind> for IoError {
    fn from(kind: ErrorKind) -> IoError {
        IoError::new(kind)
    }
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            ErrorKind::Media => "the medium failed",
            ErrorKind::Gone => "the member is gone or shrank",
            ErrorKind::NoSpace => "no space left under the member",
            ErrorKind::ReadOnly => "not writable",
            ErrorKind::OutOfRange => "past the end of the device",
            ErrorKind::Unsupported => "not supported by the device",
            ErrorKind::NoMemory => "out of buffers",
            ErrorKind::TooManyLost => "more members are lost than the level tolerates",
            ErrorKind::Frozen => "the array is frozen after an error it could not survive",
            ErrorKind::Stopping => "the array is being stopped",
            ErrorKind::Late => "not answered yet",
        })
    }
}

struct OsSuffix(i32);

impl std::fmt::Display for OsSuffix {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(out, " (errno {})", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a copy from a member that is gone would continue to its end and give up every sector.
    #[test]
    fn only_a_medium_error_concerns_its_sectors_so_a_copy_continues() {
        let others = [
            ErrorKind::Gone,
            ErrorKind::NoSpace,
            ErrorKind::ReadOnly,
            ErrorKind::OutOfRange,
            ErrorKind::Unsupported,
            ErrorKind::NoMemory,
            ErrorKind::TooManyLost,
            ErrorKind::Frozen,
            ErrorKind::Stopping,
            ErrorKind::Late,
        ];
        assert!(ErrorKind::Media.is_of_sectors());
        for kind in others {
            assert!(!kind.is_of_sectors(), "{kind:?}");
        }
    }
}
