//! A claimed member, and blocking reads and writes for metadata work.
//! Owns: [`Claimed`]. Not here: opening (`open`), what a claim consists of (`claim`), async I/O (`device`).
//! Invariant: nothing is read or written outside of the claimed bytes.

use super::claim::{Backing, Claim, FlushHolder};
use super::device::Member;
use super::error::{Access, OpenError};
use super::overlay::Overlay;
use super::path::{self, PathState};
use super::registration::Identity;
use super::target::{BadSectors, Target};
use super::{locks, open};
use crate::shard::Local;
use crate::sys::Errno;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use uraid_block::{ErrorKind, Geometry, IoError, Range, SECTOR_BYTES, Sector, Sectors};

/// The alignment of blocking direct I/O, in memory and on the file.
const BOUNCE_ALIGN: usize = 4096;
/// Bytes of one blocking direct I/O.
const BOUNCE_BYTES_MAX: usize = 1 << 20;

/// What holds a member's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A file, or a window in one.
    File,
    /// A block device, or a window in one.
    BlockDevice,
    /// Memory of this process.
    Memory,
    /// Nothing. Reads return arbitrary bytes; blocking reads return zeroes.
    Null,
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
    /// - `null:SIZE`: reads return arbitrary bytes at once, writes are dropped; such a member shows what the rest of
    ///   the program costs;
    /// - `mem:SIZE,request=TIME`, `null:SIZE,request=TIME`, such as `mem:1G,request=20us`: the same, but each request
    ///   takes this time, one after the other, as in a controller. `bandwidth=SIZE`, alone or with `request`, limits
    ///   the bytes per second. TIME has the unit ns, us, ms or s. Blocking I/O before serving ([`Claimed::read_at`])
    ///   costs nothing;
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

    /// Where its last sector ends that may be readable, by its list of bad ones: 0 if there is none.
    pub fn good_end(&self) -> Sector {
        self.0.bad.good_below(Sector(self.size().0))
    }

    /// Makes the member larger than its device: sectors past the device's end fail like bad sectors. Panics like
    /// [`Claimed::add_bad`], and if the size is not larger.
    pub fn lengthen(&mut self, size: Sectors) {
        let end = self.size();
        assert!(size > end, "a member of {} cannot be lengthened to {}", end.0, size.0);
        self.add_bad(BadSectors::new([Range::new(Sector(end.0), size - end)]));
        Arc::get_mut(&mut self.0).expect("the only handle of the claim").geometry.size = size;
    }

    /// From now on, and by devices that are made from now on, these bytes are read instead of the member's own. Panics if
    /// it was claimed to be written, or if something was laid over before.
    pub fn lay_over(&self, overlay: Overlay) {
        assert_eq!(self.access(), Access::ReadOnly, "what is written would not be what is read");
        assert!(self.0.overlay.set(Arc::new(overlay)).is_ok(), "a member has one overlay");
    }

    /// The name it was opened by, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its size in whole sectors, rounded down.
    pub fn size(&self) -> Sectors {
        self.0.geometry.size
    }

    /// Releases the locks while this process still has the member open, because the kernel cannot end the process while
    /// another member does not answer. Do no more I/O on the member afterwards. A block device that was claimed whole
    /// stays claimed until the process is gone.
    pub fn release_locks(&self) {
        if let Backing::File { file, .. } = &self.0.backing {
            locks::release(file);
        }
        self.0.under.iter().for_each(locks::release);
    }

    /// Whether no [`Member`] and no other handle of the claim is left: every request to the member has been answered.
    pub fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The identity of the file or device itself, not of what is below a partition or loop device.
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
    pub fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    /// The access that was asked for when it was claimed.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// How many bytes of its file take space on the file system, and how many it has; `None` for anything but a file.
    pub fn allocated(&self) -> Option<(u64, u64)> {
        let Backing::File { file, is_block_device: false, .. } = &self.0.backing else { return None };
        let status = file.metadata().ok()?;
        Some(((status.blocks() * 512).min(status.len()), status.len()))
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
        if let Some(overlay) = self.0.overlay.get() {
            overlay.apply(at, into);
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

    /// Opens the flush descriptors of `shards` shards now; otherwise [`Claimed::on_shard`] opens them later. Call this
    /// before dropping privileges that opening may need.
    pub fn open_for(&self, shards: u16) {
        let mut reopened = self.0.lock_reopened();
        let missing = usize::from(shards).saturating_sub(reopened.len());
        reopened.extend((0..missing).map_while(|_| FlushHolder::reopen(&self.0)));
    }

    /// The member as a device of one shard. A `&Shard<M>` derefs to the argument.
    pub fn on_shard(&self, shard: &Local) -> Member {
        Member::new(self.0.clone(), shard.driver().clone())
    }

    /// Whether the path still leads to the member; `None` if that cannot be found out now. Runs on a helper thread of
    /// the shard.
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

    /// Cuts a range of bytes into aligned parts. Calls `work` for each part, with a buffer for direct I/O and the
    /// number of bytes of the range before the part.
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
