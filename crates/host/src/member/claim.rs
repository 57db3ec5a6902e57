//! A claim on a member, and blocking reads and writes for metadata work.
//! Owns: [`Claimed`], the list of this process's claims, [`OpenError`]. Not here: opening (`open`), async I/O.
//! Invariant: each byte of an identity has at most one claim; the file is closed before its bytes may be claimed again.

use super::device::Member;
use super::memory::Memory;
use super::path::{self, PathState};
use super::target::{BadSectors, Target};
use super::trial::Completion;
use super::watch::Watch;
use super::{device_error, locks, open};
use crate::shard::Local;
use crate::sys::{self, DirectAlignment, Errno};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uraid_block::{ErrorKind, Geometry, IoError, Range, SECTOR_BYTES, Sector, Sectors};

/// The alignment of blocking direct I/O, in memory and on the file.
const BOUNCE_ALIGN: usize = 4096;
/// Bytes of one blocking direct I/O.
const BOUNCE_BYTES_MAX: usize = 1 << 20;

/// How a member is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Exclusive.
    ReadWrite,
    /// Other processes may claim it for reading, not for writing.
    ReadOnly,
}

/// The inode or device that a member is or lies in. Two names of one file are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// The device a file is on, or the block device itself.
    pub device: u64,
    /// The inode on it; 0 for a block device.
    pub inode: u64,
}

/// Why a member could not be claimed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("{}: not found", path.display())]
    NotFound {
        /// The name given.
        path: PathBuf,
    },
    /// The system does not let this user open it this way.
    #[error("{}: permission denied (errno {os})", path.display())]
    Permission {
        /// The name given.
        path: PathBuf,
        /// EACCES, EPERM or EROFS.
        os: i32,
    },
    /// Another process has claimed it, mounted it, or uses it in a kernel array.
    #[error("{}: in use by another process or the system", path.display())]
    InUse {
        /// The name given.
        path: PathBuf,
    },
    /// This process has already claimed the same file or device, or an overlapping part of it, perhaps by another name,
    /// or through a partition or loop device on it.
    #[error("{}: already claimed here as {claimed_as}", path.display())]
    ClaimedTwice {
        /// The name given.
        path: PathBuf,
        /// The name of the first claim.
        claimed_as: String,
    },
    /// It is a directory.
    #[error("{}: is a directory", path.display())]
    IsDirectory {
        /// The name given.
        path: PathBuf,
    },
    /// It is neither a file nor a block device.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotStorage {
        /// The name given.
        path: PathBuf,
    },
    /// It is smaller than one sector.
    #[error("{}: empty", path.display())]
    Empty {
        /// The name given.
        path: PathBuf,
    },
    /// The size in `mem:` or `null:` is invalid, or differs from that of the memory with this name.
    #[error("{}: a size like 64M or 2T was expected", path.display())]
    BadSize {
        /// The name given.
        path: PathBuf,
    },
    /// The system does not have this much memory.
    #[error("{}: so much memory cannot be had: {}; expected less, or null:SIZE, which holds nothing", path.display(),
        std::io::Error::from_raw_os_error(*os))]
    NoMemory {
        /// The name given.
        path: PathBuf,
        /// The system's errno.
        os: i32,
    },
    /// The text after the size and the comma does not say when requests complete.
    #[error("{}: found \"{found}\" where request=20us, bandwidth=500M or completion=deferred was expected", path.display())]
    BadCompletion {
        /// The name given.
        path: PathBuf,
        /// The invalid text.
        found: String,
    },
    /// The list after `bad:` is invalid.
    #[error("{}: expected bad:SECTOR[+COUNT][,SECTOR[+COUNT]...]:MEMBER", path.display())]
    BadList {
        /// The name given.
        path: PathBuf,
    },
    /// The window is not inside the file or device, or holds no whole sector.
    #[error("{}: the window has bytes {start} to {end}, the file {found} bytes", path.display())]
    Window {
        /// The name given.
        path: PathBuf,
        /// Its first byte.
        start: u64,
        /// The byte after its last one: as given, or one sector after the start if it should reach to the end.
        end: u64,
        /// The size of the file or device in bytes.
        found: u64,
    },
    /// A system call failed.
    #[error("{}: {call} failed: {}", path.display(), crate::sys::errno_text(*os))]
    Os {
        /// The name given.
        path: PathBuf,
        /// Which call.
        call: &'static str,
        /// Its errno.
        os: i32,
    },
}

/// What holds a member's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A file, or a window in one.
    File,
    /// A block device, or a window in one.
    BlockDevice,
    /// Memory of this process.
    Memory,
    /// Nothing: reads give zeroes.
    Null,
}

/// How a member's bytes are reached.
pub(super) enum Backing {
    File {
        file: std::fs::File,
        is_block_device: bool,
        // The byte of the file at which the member starts.
        base: u64,
        // If all I/O is direct: the alignment it needs.
        direct: Option<DirectAlignment>,
    },
    Memory(Arc<Memory>),
    Null,
}

/// An entry in the list of claims, removed on drop.
pub(super) struct Registration {
    identity: Identity,
    start: u64,
}

/// From identity and first byte to the byte after the last one, and the claim's name.
type Claims = BTreeMap<(Identity, u64), (u64, String)>;

static CLAIMS: Mutex<Claims> = Mutex::new(BTreeMap::new());

impl Registration {
    /// Registers these bytes. Fails with the name of a claim that overlaps.
    pub(super) fn new(identity: Identity, bytes: std::ops::Range<u64>, name: &str) -> Result<Registration, String> {
        let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        let same_file = claims.range((identity, 0)..=(identity, u64::MAX));
        for (&(_, start), (end, claimed_as)) in same_file {
            // Two claims with the same start conflict, even if one of them is empty.
            if start == bytes.start || (start < bytes.end && bytes.start < *end) {
                return Err(claimed_as.clone());
            }
        }
        claims.insert((identity, bytes.start), (bytes.end, name.to_owned()));
        Ok(Registration { identity, start: bytes.start })
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&(self.identity, self.start));
    }
}

// The order of the fields matters for dropping: the file, which holds the locks, comes first.
pub(super) struct Claim {
    pub(super) backing: Backing,
    // The file below a loop device, held for its locks.
    pub(super) under: Option<std::fs::File>,
    pub(super) watch: Arc<Watch>,
    pub(super) name: String,
    // Without the window. For memory and null members, `mem:...` or `null:...`.
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) geometry: Geometry,
    /// Sectors that fail when read or written: those of `bad:`, and the listed ones.
    pub(super) bad: BadSectors,
    /// Sectors in the member's bad-block list.
    pub(super) listed: BadSectors,
    // Of memory and null members; files and devices take their time.
    pub(super) completion: Completion,
    // The file or device itself. (The list of claims records the origin of its bytes instead: see `origin`.)
    pub(super) identity: Identity,
    // For flushes: see `FlushHolder`.
    pub(super) reopened: Mutex<Vec<std::fs::File>>,
    #[expect(dead_code, reason = "it is held")]
    pub(super) registration: Registration,
}

/// A member that this process has claimed. Clones are handles of the same claim, which ends with the last of them and
/// of the [`Member`]s made from them.
#[derive(Clone)]
pub struct Claimed(pub(super) Arc<Claim>);

impl Claimed {
    /// Claims a member:
    /// - a regular file or a block device, by path;
    /// - `mem:SIZE`: new memory, all zero, gone with the claim; `mem:SIZE:NAME`: memory that stays until the process
    ///   ends, found again by its name;
    /// - `null:SIZE`: reads return arbitrary bytes at once, writes are dropped; it measures the cost of everything
    ///   above;
    /// - `mem:SIZE,request=TIME`, `null:SIZE,request=TIME`, such as `mem:1G,request=20us`: the same, but each request
    ///   takes this time, one after the other, as in a controller. `bandwidth=SIZE`, alone or with it, limits the bytes
    ///   per second. TIME has the unit ns, us, ms or s. Blocking I/O before serving ([`Claimed::read_at`]) costs
    ///   nothing;
    /// - `mem:SIZE,completion=deferred`, `null:SIZE,completion=deferred`: the same, but each read and write is pending
    ///   until its task runs again, after the other tasks of the shard that are ready. No clock is read;
    /// - `bad:SECTOR[+COUNT][,SECTOR[+COUNT]...]:NAME`: any of these, with sectors that fail when read or written.
    ///
    /// SIZE is a number of bytes, or one with K, M, G or T (powers of 1024).
    pub fn open(name: impl AsRef<Path>, access: Access) -> Result<Claimed, OpenError> {
        let name = name.as_ref();
        Claimed::open_target(&Target::whole(name).ok_or_else(|| OpenError::BadList { path: name.into() })?, access)
    }

    /// Claims a member, or a window of one. Claims of windows that do not overlap may coexist, in one process or in
    /// several. [`OpenError::Window`] if the window is not inside. A window of a block device does not claim the device
    /// exclusively: the system may have mounted one of its partitions.
    pub fn open_target(target: &Target, access: Access) -> Result<Claimed, OpenError> {
        open::open(target, access).map(|claim| Claimed(Arc::new(claim)))
    }

    /// Adds sectors whose reads and writes fail with a medium error without an errno; the device is not asked for them.
    /// Panics if there is another handle or a [`Member`], which would not see the new list.
    pub fn add_bad(&mut self, more: BadSectors) {
        let claim = Arc::get_mut(&mut self.0).expect("the only handle of the claim");
        claim.bad = std::mem::take(&mut claim.bad).with(more.clone());
        claim.listed = std::mem::take(&mut claim.listed).with(more);
    }

    /// Makes the member larger than its device: sectors past the device's end fail like bad sectors. Panics like
    /// [`Claimed::add_bad`], and if the size is not larger.
    pub fn lengthen(&mut self, size: Sectors) {
        let end = self.size();
        assert!(size > end, "a member of {} cannot be lengthened to {}", end.0, size.0);
        self.add_bad(BadSectors::new([Range::new(Sector(end.0), size - end)]));
        Arc::get_mut(&mut self.0).expect("the only handle of the claim").geometry.size = size;
    }

    /// The name it was opened by, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its size in whole sectors, rounded down.
    pub fn size(&self) -> Sectors {
        self.0.geometry.size
    }

    /// Releases the locks while this process still has the member open. Do no more I/O on it afterwards. For a process
    /// that the kernel cannot end yet, because another member does not answer. A block device that was claimed whole
    /// stays claimed until the process is gone.
    pub fn release_locks(&self) {
        if let Backing::File { file, .. } = &self.0.backing {
            locks::release(file);
        }
        self.0.under.iter().for_each(locks::release);
    }

    /// The file or device itself, whatever it lies on.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// What holds its bytes.
    pub fn medium(&self) -> Medium {
        match &self.0.backing {
            Backing::File { is_block_device: false, .. } => Medium::File,
            Backing::File { is_block_device: true, .. } => Medium::BlockDevice,
            Backing::Memory(_) => Medium::Memory,
            Backing::Null => Medium::Null,
        }
    }

    /// The member's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// The access that was asked for when it was claimed.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// Whether its I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        matches!(self.0.backing, Backing::File { direct: Some(_), .. })
    }

    /// Reads bytes from byte `at`, at any alignment. Blocks the thread: for metadata work before serving.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.check(at, into.len())?;
        match &self.0.backing {
            Backing::Null => into.fill(0),
            Backing::Memory(memory) => memory.read(at, into),
            Backing::File { file, base, direct: None, .. } => self.read_exact(file, base + at, into)?,
            Backing::File { file, base, direct: Some(_), .. } => {
                self.for_bounced(at, into.len(), |bounce, part, done| {
                    self.read_exact(file, base + part.start, bounce)?;
                    into[done..done + part.wanted].copy_from_slice(&bounce[part.skip..part.skip + part.wanted]);
                    Ok(())
                })?
            }
        }
        Ok(())
    }

    /// Writes bytes from byte `at`, at any alignment. Blocks the thread. Durable after [`Claimed::sync`]. On a direct
    /// file the sectors at both ends are read and written back, so no other writer may use them meanwhile.
    pub fn write_at(&self, at: u64, from: &[u8]) -> Result<(), IoError> {
        if self.0.access == Access::ReadOnly {
            return Err(ErrorKind::ReadOnly.into());
        }
        self.check(at, from.len())?;
        match &self.0.backing {
            Backing::Null => {}
            Backing::Memory(memory) => memory.write(at, from),
            Backing::File { file, base, direct: None, .. } => self.write_all(file, base + at, from)?,
            Backing::File { file, base, direct: Some(_), .. } => {
                self.for_bounced(at, from.len(), |bounce, part, done| {
                    if part.wanted < bounce.len() {
                        self.read_exact(file, base + part.start, bounce)?;
                    }
                    bounce[part.skip..part.skip + part.wanted].copy_from_slice(&from[done..done + part.wanted]);
                    self.write_all(file, base + part.start, bounce)
                })?
            }
        }
        Ok(())
    }

    /// Makes all earlier writes durable. Blocks the thread.
    pub fn sync(&self) -> Result<(), IoError> {
        match &self.0.backing {
            Backing::Null | Backing::Memory(_) => Ok(()),
            Backing::File { file, .. } => self.0.watch.flushed(file.sync_data().map_err(Errno::from)),
        }
    }

    /// Opens the flush descriptors of `shards` shards now; [`Claimed::on_shard`] would open them later. Call it before
    /// dropping privileges that opening may need.
    pub fn open_for(&self, shards: u16) {
        let files = (0..shards).map_while(|_| FlushHolder::reopen(&self.0));
        self.0.lock_reopened().extend(files);
    }

    /// The member as a device of one shard. A `&Shard<M>` derefs to the argument.
    pub fn on_shard(&self, shard: &Local) -> Member {
        Member::new(self.0.clone(), shard.driver().clone())
    }

    /// Whether its path still leads to it; `None` if that cannot be found out now. Runs on a helper thread of the
    /// shard.
    pub async fn path_state(&self, shard: &Local) -> Option<PathState> {
        path::state(self.0.clone(), shard.driver()).await
    }

    fn os_error(&self, file: &std::fs::File, error: &std::io::Error) -> IoError {
        if error.kind() == std::io::ErrorKind::UnexpectedEof || error.kind() == std::io::ErrorKind::WriteZero {
            return self.0.watch.lost();
        }
        self.0.watch.error(file.as_raw_fd(), error.raw_os_error().unwrap_or(libc::EIO))
    }

    fn read_exact(&self, file: &std::fs::File, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.watch.check()?;
        file.read_exact_at(into, at).map_err(|error| self.os_error(file, &error))
    }

    fn write_all(&self, file: &std::fs::File, at: u64, from: &[u8]) -> Result<(), IoError> {
        let write = || file.write_all_at(from, at).map_err(|error| self.os_error(file, &error));
        self.0.watch.around(file.as_raw_fd(), write)
    }

    fn check(&self, at: u64, length: usize) -> Result<(), IoError> {
        let end = at.checked_add(length as u64).ok_or(ErrorKind::OutOfRange)?;
        if end > self.size().bytes() {
            return Err(ErrorKind::OutOfRange.into());
        }
        self.0.bad.check_bytes(at, length as u64)
    }

    /// Cuts a range of bytes into aligned parts. Calls `work` for each, with a buffer for direct I/O and the number of
    /// bytes of the range that precede the part.
    fn for_bounced(
        &self,
        at: u64,
        length: usize,
        mut work: impl FnMut(&mut [u8], Part, usize) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let mut memory = vec![0; BOUNCE_BYTES_MAX.min(length + 2 * BOUNCE_ALIGN) + BOUNCE_ALIGN];
        let first = memory.as_ptr().align_offset(BOUNCE_ALIGN);
        let bounce = &mut memory[first..];
        // Round down to whole blocks, but never past the end of the member: its size is in sectors, not in pages.
        let align = if self.0.geometry.logical_block.0 > 1 { BOUNCE_ALIGN } else { SECTOR_BYTES } as u64;
        let mut done = 0;
        while done < length {
            let from = at + done as u64;
            let start = from - from % align;
            let end =
                (at + length as u64).next_multiple_of(align).min(start + (BOUNCE_BYTES_MAX - BOUNCE_ALIGN) as u64);
            let skip = (from - start) as usize;
            let wanted = ((end - from) as usize).min(length - done);
            work(&mut bounce[..(end - start) as usize], Part { start, skip, wanted }, done)?;
            done += wanted;
        }
        Ok(())
    }
}

/// An aligned stretch of a file from `start`; the caller wants the `wanted` bytes after the first `skip`.
struct Part {
    start: u64,
    skip: usize,
    wanted: usize,
}

/// Keeps the claim while the ring works on the member.
pub(super) struct ClaimHolder(pub(super) Arc<Claim>);

/// Keeps the claim during a flush, and the flush's own open file description if there is one.
///
/// Flushes use a description of their own, one per shard, because Linux reports a lost write-back once per open file
/// description. A durable write (RWF_DSYNC) waits for write-back and receives every loss since the last report on its
/// description, also of sectors that it did not write. A later flush on the same description would succeed, and lost
/// data would be answered as stable. One description per shard keeps one shard's flush from consuming another's report.
/// The claim's locks belong to the first description; opening and closing others does not affect them (unlike fcntl
/// locks of the process).
///
/// The order of the fields matters for dropping: this file comes before the claim's.
pub(super) struct FlushHolder {
    own: Option<std::fs::File>,
    claim: Arc<Claim>,
}

impl FlushHolder {
    /// Falls back to the claim's description if no separate one can be opened: without /proc, on FUSE, or for a
    /// read-only claim.
    pub(super) fn new(claim: Arc<Claim>) -> FlushHolder {
        let before = claim.lock_reopened().pop();
        FlushHolder { own: before.or_else(|| FlushHolder::reopen(&claim)), claim }
    }

    fn reopen(claim: &Claim) -> Option<std::fs::File> {
        match (&claim.backing, claim.access) {
            // A FUSE file system may cache writes per handle: a flush must use the handle that wrote.
            (Backing::File { file, .. }, Access::ReadWrite) if !sys::is_fuse(file.as_fd()) => {
                sys::reopen(file.as_fd()).ok()
            }
            (Backing::File { .. } | Backing::Memory(_) | Backing::Null, _) => None,
        }
    }
}

impl Claim {
    fn lock_reopened(&self) -> MutexGuard<'_, Vec<std::fs::File>> {
        self.reopened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for FlushHolder {
    fn as_raw_fd(&self) -> i32 {
        match (&self.own, &self.claim.backing) {
            (Some(own), _) => own.as_raw_fd(),
            (None, Backing::File { file, .. }) => file.as_raw_fd(),
            (None, Backing::Memory(_) | Backing::Null) => -1,
        }
    }
}

impl AsRawFd for ClaimHolder {
    fn as_raw_fd(&self) -> i32 {
        match &self.0.backing {
            Backing::File { file, .. } => file.as_raw_fd(),
            Backing::Memory(memory) => memory.file().as_raw_fd(),
            Backing::Null => -1,
        }
    }
}

impl From<sys::Errno> for IoError {
    fn from(sys::Errno(os): sys::Errno) -> IoError {
        device_error(os)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All nonempty ranges within the bytes 0..5.
    fn ranges() -> Vec<std::ops::Range<u64>> {
        (0..5).flat_map(|start| (start + 1..=5).map(move |end| start..end)).collect()
    }

    #[test]
    fn overlapping_claims_of_one_identity_are_refused_for_every_pair_of_ranges() {
        let identity = |inode| Identity { device: u64::MAX - 7, inode };
        let overlap = |a: &std::ops::Range<u64>, b: &std::ops::Range<u64>| a.start < b.end && b.start < a.end;
        for first in ranges() {
            for second in ranges() {
                let one = Registration::new(identity(1), first.clone(), "one").expect("nothing is claimed");
                let two = Registration::new(identity(1), second.clone(), "two");
                assert_eq!(two.as_ref().err(), overlap(&first, &second).then(|| "one".to_owned()).as_ref());
                for third in ranges() {
                    let expected = overlap(&first, &third) || (two.is_ok() && overlap(&second, &third));
                    let three = Registration::new(identity(1), third.clone(), "three");
                    assert_eq!(three.is_err(), expected, "{first:?}, {second:?}, then {third:?}");
                    assert!(Registration::new(identity(2), third, "another file").is_ok());
                }
                drop(one);
                let again = Registration::new(identity(1), first.clone(), "again");
                assert_eq!(again.is_err(), two.is_ok() && overlap(&first, &second), "what was given up is free");
            }
        }
    }
}
