//! Reads a member without claiming it: it may be in use, by us or by others.
//! Owns: reading a member by name, whether it is in use, the errors of one that cannot be read or has no superblock.
//! Not here: members that are served or changed; those are claimed first (`uraid_host::Claimed`).
//! Invariant: nothing is written. A FIFO is refused, not opened; a member that hangs is given up (`asking`).

use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_control::asking::{self, NoAnswer};
use uraid_control::member_name::{self, NameError};
use uraid_format::bad_blocks::{self, BadBlockLog, BadBlocksError};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_format::ppl::PplLog;
use uraid_format::{Features, FindError, Found, SUPERBLOCK_BYTES, Superblock, SuperblockError, Version, find};
use uraid_host::{BadSectors, Holder, Target, Window, holder};
use uraid_serve::cautions;

/// Why a member has no superblock.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// Its name is not valid.
    #[error(transparent)]
    Name(NameError),
    /// It could not be opened or read.
    #[error("{}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is neither a file nor a block device.
    #[error("{}: is neither a file nor a block device", path.display())]
    Kind { path: PathBuf },
    /// The window is not inside the file or device.
    #[error("{}: the window has bytes {start} to {end}, the file {found} bytes", path.display())]
    Window {
        path: PathBuf,
        /// Its first byte.
        start: u64,
        /// The byte after its last one.
        end: u64,
        /// How many bytes there are.
        found: u64,
    },
    /// Its file server or drive hangs.
    #[error(transparent)]
    Silent(#[from] NoAnswer),
    /// It ends before a superblock would.
    #[error("{}: is too short for a superblock: {found} bytes, expected at least 12288", path.display())]
    Short { path: PathBuf, found: u64 },
    /// Its list of bad blocks is broken.
    #[error("{}", path.display())]
    BadBlocks {
        path: PathBuf,
        /// What is wrong with its list.
        source: BadBlocksError,
    },
    /// Its list of bad blocks could not be read.
    #[error("{}: reading the bad-block list failed", path.display())]
    BadBlocksRead { path: PathBuf, source: io::Error },
    /// There is no good superblock.
    #[error("{}", path.display())]
    Superblock {
        path: PathBuf,
        /// The place for a superblock that `source` is about.
        at: Sector,
        /// The version that belongs there.
        version: Version,
        /// What is there instead.
        source: SuperblockError,
    },
    /// There is no superblock, but the partition table of a disk.
    #[error("{}: no md superblock, but a partition table: its partitions are {partitions}", path.display())]
    Partitioned {
        path: PathBuf,
        /// The names of the partitions as members.
        partitions: String,
    },
}

/// The result for one member.
pub(crate) struct Probe {
    /// The member's size.
    pub size: Sectors,
    /// Its superblock.
    pub superblock: Superblock,
    /// Its list of bad blocks.
    pub bad_blocks: BadBlockLog,
    /// Its partial parity log, if its superblock says that there is one.
    pub ppl: Option<PplLog>,
    /// Its bitmap, if its superblock says that there is one.
    pub bitmap: Option<Result<BitmapImage, BitmapUnusable>>,
    /// Who has claimed it, if anyone.
    pub holder: Option<Holder>,
    /// What else lives on it.
    pub cautions: Vec<String>,
}

/// A member that is open for reading and not claimed.
pub(crate) struct Unclaimed {
    name: PathBuf,
    file: File,
    /// The place of its byte 0 in the file.
    base: u64,
    bytes: u64,
    target: Target,
}

/// Reads the superblock of a member without claiming it, within a time limit. Its list of bad blocks must be readable, as
/// for one that is claimed.
pub(crate) fn probe(name: &str, time_max: Option<Duration>) -> Result<Probe, ProbeError> {
    let path = PathBuf::from(name);
    asking::ask(name, time_max, move || probe_now(&path))?
}

/// The same without a time limit.
pub(crate) fn probe_now(name: &Path) -> Result<Probe, ProbeError> {
    let member = open(name)?;
    // If the system does not tell, treat the member as free.
    let holder = holder(&member.target).unwrap_or(None);
    let superblock = member.find_superblock()?.superblock;
    let bad_blocks = member.bad_blocks(&superblock)?.unwrap_or_default();
    let has_bitmap = superblock.features.contains(Features::BITMAP_OFFSET);
    let read = |at: u64, into: &mut [u8]| member.read_at(at, into).is_ok();
    let bitmap = has_bitmap.then(|| BitmapImage::read_beside(&superblock, read));
    let ppl = PplLog::read_beside(&superblock, read);
    let cautions = cautions::of(&name.to_string_lossy(), member.size(), &superblock, read);
    Ok(Probe { size: member.size(), superblock, bad_blocks, ppl, bitmap, holder, cautions })
}

/// Opens a member for reading without claiming it.
pub(crate) fn open(name: &Path) -> Result<Unclaimed, ProbeError> {
    let unreadable = |source| ProbeError::Read { path: name.to_owned(), source };
    let target = match name.to_str() {
        Some(text) => member_name::resolve(text).map_err(ProbeError::Name)?,
        // Our own syntax is text; a name with other bytes is a file's.
        None => Target {
            name: name.to_string_lossy().into_owned(),
            path: name.to_owned(),
            window: None,
            bad: BadSectors::default(),
        },
    };
    let kind = std::fs::metadata(&target.path).map_err(unreadable)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(ProbeError::Kind { path: name.to_owned() });
    }
    let mut file = File::open(&target.path).map_err(unreadable)?;
    let found = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let Window { offset: start, length } = target.window.unwrap_or(Window { offset: 0, length: None });
    let end = length.map_or(found, |length| start.saturating_add(length));
    if end > found || start > end {
        return Err(ProbeError::Window { path: name.to_owned(), start, end: end.max(start), found });
    }
    Ok(Unclaimed { name: name.to_owned(), file, base: start, bytes: end - start, target })
}

impl Unclaimed {
    /// Its size, rounded down to whole sectors.
    pub(crate) fn size(&self) -> Sectors {
        Sectors::from_bytes_floor(self.bytes)
    }

    /// Fills `into` from the member's byte `at` on. Reads past its end are an error.
    pub(crate) fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let length = into.len() as u64;
        if at.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.target.bad.check_bytes(at, length).map_err(|error| io::Error::from_raw_os_error(error.os))?;
        self.file.read_exact_at(into, self.base + at)
    }

    /// As [`Unclaimed::read_at`], but leaves no more of the file in the page cache than before: there is no read-ahead,
    /// and the pages that were read are dropped. Cached pages would hide that a member hangs.
    pub(crate) fn read_once_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        // Only advice: if the system ignores it, more is cached.
        let _ = fadvise(&self.file, 0, None, Advice::Random);
        let read = self.read_at(at, into);
        let _ = fadvise(&self.file, self.base + at, NonZeroU64::new(into.len() as u64), Advice::DontNeed);
        read
    }

    /// The list of bad blocks in force; `None`: no sector is bad.
    pub(crate) fn bad_blocks(&self, superblock: &Superblock) -> Result<Option<BadBlockLog>, ProbeError> {
        let path = || self.name.clone();
        let broken = |source| ProbeError::BadBlocks { path: path(), source };
        let Some(list) = bad_blocks::counting_extent(superblock).map_err(broken)? else { return Ok(None) };
        let mut bytes = vec![0; list.length.len_bytes()];
        let read = self.read_at(list.start.0 * SECTOR_BYTES as u64, &mut bytes);
        read.map_err(|source| ProbeError::BadBlocksRead { path: path(), source })?;
        BadBlockLog::parse(&bytes, superblock.bad_blocks.shift).map(Some).map_err(broken)
    }

    fn partitions(&self) -> Option<String> {
        member_name::partitions(self.name.to_str()?, self.bytes, |at, into| self.read_at(at, into))
    }

    /// Checks every place where a superblock can be.
    pub(crate) fn find_superblock(&self) -> Result<Found, ProbeError> {
        let path = || self.name.clone();
        let read = |at: Sector, block: &mut [u8; SUPERBLOCK_BYTES]| self.read_at(at.0 * SECTOR_BYTES as u64, block);
        find(self.size(), read).map_err(|error| match error {
            FindError::DeviceTooSmall { .. } => ProbeError::Short { path: path(), found: self.bytes },
            FindError::Read { source, .. } => ProbeError::Read { path: path(), source },
            FindError::Superblock { version, at, source } => {
                let none = matches!(source, SuperblockError::Magic { .. }).then(|| self.partitions()).flatten();
                match none {
                    Some(partitions) => ProbeError::Partitioned { path: path(), partitions },
                    None => ProbeError::Superblock { path: path(), at, version, source },
                }
            }
        })
    }
}
