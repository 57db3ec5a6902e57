//! A look at a member that is not claimed: it may be in use, by us or by others.
//! Owns: reading a superblock by path, the errors of a member that cannot be read or holds none.
//! Not here: members that are served or changed; those are claimed first (`uraid_host::Claimed`).
//! Invariant: nothing is written, and nothing waits (a FIFO is refused, not opened).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use uraid_block::Sectors;
use uraid_format::{SUPERBLOCK_BYTES, Superblock, SuperblockError, location_v12};

/// Why a member shows no superblock.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It could not be opened or read.
    #[error("{}", path.display())]
    Read {
        /// The member.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is neither a file nor a block device.
    #[error("{}: is neither a file nor a block device", path.display())]
    Kind {
        /// What was named.
        path: PathBuf,
    },
    /// It ends before a superblock would.
    #[error("{}: is too short for a superblock: {found} bytes, expected at least 8192", path.display())]
    Short {
        /// The member.
        path: PathBuf,
        /// Its size.
        found: u64,
    },
    /// There is no good superblock.
    #[error("{}", path.display())]
    Superblock {
        /// The member.
        path: PathBuf,
        /// What is there instead.
        source: SuperblockError,
    },
}

/// What a look at a member gave.
pub struct Probe {
    /// The member's size.
    pub size: Sectors,
    /// Its superblock.
    pub superblock: Superblock,
}

/// Reads the superblock of a file or block device without claiming it.
pub fn probe(path: &Path) -> Result<Probe, ProbeError> {
    let unreadable = |source| ProbeError::Read { path: path.to_owned(), source };
    let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(ProbeError::Kind { path: path.to_owned() });
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let size = Sectors::from_bytes_floor(bytes);
    let at = location_v12().0 * uraid_block::SECTOR_BYTES as u64;
    if bytes < at + SUPERBLOCK_BYTES as u64 {
        return Err(ProbeError::Short { path: path.to_owned(), found: bytes });
    }
    let mut block = [0; SUPERBLOCK_BYTES];
    file.read_exact_at(&mut block, at).map_err(unreadable)?;
    let superblock = Superblock::parse(&block, location_v12(), size)
        .map_err(|source| ProbeError::Superblock { path: path.to_owned(), source })?;
    Ok(Probe { size, superblock })
}
