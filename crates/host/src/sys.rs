//! System calls that std does not wrap safely.
//! Owns: the thin wrappers, errno values as results. Not here: the meaning of a failure.
//! Invariant: no wrapper keeps a pointer after it returns.

use std::ffi::{CString, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().expect("a failed call sets errno"))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        // Errors that std creates itself have no errno. Those that can occur here are about an invalid argument.
        Errno(error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

/// The words for an errno, which are the same for every command: `not found`, `permission denied (errno 13)`.
pub(crate) fn errno_text(os: i32) -> String {
    if os == libc::ENOENT {
        return "not found".to_owned();
    }
    let text = std::io::Error::from_raw_os_error(os).to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    format!("{} (errno {os})", words.to_lowercase())
}

/// The same words for an error of the system.
pub fn io_text(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(os) => errno_text(os),
        None => error.to_string(),
    }
}

/// A call's result in io_uring's form: a count, or a negative errno.
pub(crate) fn as_result(count: isize) -> i32 {
    if count < 0 { -Errno::last().0 } else { i32::try_from(count).expect("a transfer is below 2 GiB") }
}

/// The monotonic clock in nanoseconds.
pub(crate) fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(result, 0, "Linux has a monotonic clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Makes this thread's sleeps end on time: by default Linux may prolong them by 50 us to save wake-ups.
pub(crate) fn sleep_precisely() {
    // SAFETY: no pointers. If it is refused, sleeps stay as they are.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn owned(fd: RawFd) -> Result<OwnedFd, Errno> {
    let fd = check(fd)?;
    // SAFETY: the system call has just created this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A counter that poll can wait for; reading and writing it does not block.
pub(crate) fn eventfd() -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// A pipe: the end to write to, then the end to read from.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    // SAFETY: writes two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(ends[1])?, owned(ends[0])?))
}

/// Whether a child of this process has ended. If so, its number means nothing any more.
pub(crate) fn has_child_ended(child: libc::pid_t) -> bool {
    // SAFETY: no pointer is given. 0: it still runs.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

/// Reads into the buffers, in order, from a file without positions.
pub(crate) fn read_vectored(fd: RawFd, into: &mut [std::io::IoSliceMut<'_>]) -> Result<usize, Errno> {
    let count = c_int::try_from(into.len()).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: an IoSliceMut is an iovec, as its documentation promises; the slices are this call's alone.
    let read = unsafe { libc::readv(fd, into.as_mut_ptr().cast(), count) };
    usize::try_from(read).map_err(|_| Errno::last())
}

/// Writes the buffers, in order, to a file without positions.
pub(crate) fn write_vectored(fd: RawFd, from: &[std::io::IoSlice<'_>]) -> Result<usize, Errno> {
    let count = c_int::try_from(from.len()).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: an IoSlice is an iovec, as its documentation promises; a write changes none of it.
    let written = unsafe { libc::writev(fd, from.as_ptr().cast(), count) };
    usize::try_from(written).map_err(|_| Errno::last())
}

/// Makes calls on this open file return EAGAIN instead of waiting.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Makes `new`, a fresh /dev/fuse, another device of the connection of `of`.
pub(crate) fn fuse_clone(new: BorrowedFd<'_>, of: BorrowedFd<'_>) -> Result<(), Errno> {
    // From linux/fuse.h: _IOR(229, 0, uint32_t).
    const FUSE_DEV_IOC_CLONE: libc::Ioctl = 0x8004_e500;
    let of = of.as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32.
    check(unsafe { libc::ioctl(new.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const of) }).map(drop)
}

/// mount(2) of a file system of kind `kind`, without set-user-id programs and device files.
pub(crate) fn mount(
    source: &std::ffi::CStr,
    path: &std::ffi::CStr,
    kind: &std::ffi::CStr,
    options: &std::ffi::CStr,
) -> Result<(), Errno> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: four C strings that live during the call.
    let result = unsafe { libc::mount(source.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    check(result).map(drop)
}

/// umount2(2), at once, whatever is open.
pub(crate) fn unmount(path: &std::ffi::CStr) -> Result<(), Errno> {
    // SAFETY: a C string that lives during the call.
    check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Another descriptor of the file, which programs that are started inherit.
pub(crate) fn duplicate_for_child(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    owned(unsafe { libc::dup(fd.as_raw_fd()) })
}

/// Marks this thread, and those that it starts, as a part of the path on which the kernel writes memory back: what they
/// allocate in the kernel never waits for their own I/O.
pub(crate) fn set_io_flusher() -> Result<(), Errno> {
    // From linux/prctl.h.
    const PR_SET_IO_FLUSHER: c_int = 57;
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) }).map(drop)
}

/// Keeps all memory of the process that was touched, or will be, from being swapped out.
pub(crate) fn lock_memory() -> Result<(), Errno> {
    // SAFETY: no pointers. Memory that is never touched is not filled.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) }).map(drop)
}

/// Adds one to an eventfd. Safe in a signal handler.
pub(crate) fn eventfd_add(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: reads 8 bytes. If the counter is full (EAGAIN), it is already readable, which is enough.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Reads and resets an eventfd's count: 0 if nothing was added.
pub(crate) fn eventfd_take(fd: RawFd) -> u64 {
    let mut count = [0; 8];
    // SAFETY: writes 8 bytes.
    let read = unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
    if read == 8 { u64::from_ne_bytes(count) } else { 0 }
}

/// A memory file without a name, of this many zero bytes.
pub(crate) fn memory_file(bytes: u64) -> Result<OwnedFd, Errno> {
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(c"uraid".as_ptr(), libc::MFD_CLOEXEC) })?;
    let length = i64::try_from(bytes).map_err(|_| Errno(libc::EFBIG))?;
    // SAFETY: no pointers.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), length) })?;
    Ok(fd)
}

/// Reserved address space, released on drop.
pub(crate) struct Mapping {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes (not zero), with memory that is never touched, or without memory.
    pub(crate) fn new(bytes: u64, has_memory: bool) -> Result<Mapping, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno(libc::ENOMEM))?;
        let rights = if has_memory { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new addresses, to which no pointer exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(Mapping { start, bytes }) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; no pointer to it exists.
        let result = unsafe { libc::munmap(self.start, self.bytes) };
        assert_eq!(result, 0, "what was mapped can be given back");
    }
}

/// fallocate on `length` bytes from `at`.
pub(crate) fn allocate(fd: RawFd, mode: i32, at: u64, length: u64) -> i32 {
    let (Ok(at), Ok(length)) = (i64::try_from(at), i64::try_from(length)) else { return -libc::EFBIG };
    // SAFETY: no pointers.
    as_result(unsafe { libc::fallocate(fd, mode, at, length) } as isize)
}

pub(crate) fn file_bytes(fd: RawFd) -> Result<u64, Errno> {
    // SAFETY: stat is plain data; all zeroes is a value of it.
    let mut status: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: writes one stat.
    check(unsafe { libc::fstat64(fd, &mut status) })?;
    Ok(u64::try_from(status.st_size).expect("no file is shorter than nothing"))
}

/// The first byte at or after `at` that is not in a hole; ENXIO: only holes follow. On a file system without holes, all
/// of the file is data. Moves the description's position, which is not used otherwise.
pub(crate) fn seek_data(fd: RawFd, at: u64) -> Result<u64, Errno> {
    seek(fd, at, libc::SEEK_DATA)
}

/// The first byte at or after `at` that is in a hole; the end of the file counts as one.
pub(crate) fn seek_hole(fd: RawFd, at: u64) -> Result<u64, Errno> {
    seek(fd, at, libc::SEEK_HOLE)
}

fn seek(fd: RawFd, at: u64, whence: c_int) -> Result<u64, Errno> {
    let at = i64::try_from(at).map_err(|_| Errno(libc::EFBIG))?;
    // SAFETY: no pointers.
    let found = unsafe { libc::lseek64(fd, at, whence) };
    u64::try_from(found).map_err(|_| Errno::last())
}

/// Locks bytes of a file for this open file description, for writing or reading; `None`: to the end, even if the end
/// moves. EAGAIN: another description has a conflicting lock.
pub(crate) fn lock_bytes(fd: BorrowedFd<'_>, is_write: bool, start: u64, length: Option<u64>) -> Result<(), Errno> {
    let lock = byte_lock(if is_write { libc::F_WRLCK } else { libc::F_RDLCK }, start, length)?;
    // SAFETY: reads one flock64.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &lock) }).map(drop)
}

/// Whether another description has a lock on any of these bytes, for writing or reading; `None`: to the end. Nothing is
/// locked.
pub(crate) fn are_bytes_locked(fd: BorrowedFd<'_>, start: u64, length: Option<u64>) -> Result<bool, Errno> {
    let mut lock = byte_lock(libc::F_WRLCK, start, length)?;
    // SAFETY: reads and writes one flock64.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) })?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

fn byte_lock(kind: c_int, start: u64, length: Option<u64>) -> Result<libc::flock64, Errno> {
    let offset = |bytes: u64| i64::try_from(bytes).map_err(|_| Errno(libc::EOVERFLOW));
    // SAFETY: flock64 is plain data; all zeroes is a value of it.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset(start)?;
    lock.l_len = length.map_or(Ok(0), offset)?;
    Ok(lock)
}

/// Releases all byte locks of this description.
pub(crate) fn unlock_bytes(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: flock64 is plain data; all zeroes is a value of it: from the start to the end.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_UNLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: reads one flock64.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &lock) }).map(drop)
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("Linux knows how large its pages are")
}

/// Whether a FUSE process serves the file.
pub(crate) fn is_fuse(fd: BorrowedFd<'_>) -> bool {
    file_system(fd) == Some(libc::FUSE_SUPER_MAGIC)
}

/// Connects to a Unix socket without waiting for room in its queue: EAGAIN if there is none.
pub(crate) fn connect_now(path: &Path) -> std::io::Result<()> {
    // SAFETY: sockaddr_un is plain data; all zeroes is a value of it.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(std::io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte.cast_signed();
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, owned by this function alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: a whole address, and its length.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Whether the file consists of memory pages only: its system calls wait for no device (except for swap).
pub(crate) fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    // From linux/magic.h.
    const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;
    matches!(file_system(fd), Some(libc::TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Whether fstat on the file may wait for a network server or for a process (FUSE). True for every file system that is
/// not listed here.
pub(crate) fn is_remote(fd: BorrowedFd<'_>) -> bool {
    // From linux/magic.h and from file systems outside the kernel tree.
    const LOCAL: [u32; 13] = [
        0x0000_ef53, // ext2 to ext4
        0x5846_5342, // XFS
        0x9123_683e, // btrfs
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x9584_58f6, // hugetlbfs
        0xf2f5_2010, // f2fs
        0xca45_1a4e, // bcachefs
        0x2fc1_2fc1, // ZFS
        0x794c_7630, // overlayfs
        0x0000_4d44, // FAT
        0x2011_bab0, // exFAT
        0x7366_746e, // ntfs3
    ];
    file_system(fd).is_none_or(|magic| !LOCAL.contains(&(magic as u32)))
}

/// The magic number of the file system that the file is on.
fn file_system(fd: BorrowedFd<'_>) -> Option<libc::__fsword_t> {
    // SAFETY: statfs is plain data; all zeroes is a value of it.
    let mut status: libc::statfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: writes one statfs.
    let result = unsafe { libc::fstatfs64(fd.as_raw_fd(), &mut status) };
    (result == 0).then_some(status.f_type)
}

/// Opens a descriptor's file again, for reading and writing, as a separate description. Fails if /proc is not mounted.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> std::io::Result<std::fs::File> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
}

/// The alignment for direct I/O, as statx reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectAlignment {
    /// The alignment of file offsets and lengths, in bytes.
    pub(crate) offset: u32,
    /// The alignment of memory, in bytes.
    pub(crate) memory: u32,
}

/// `None` if the file does not support direct I/O, or the kernel does not report the alignment.
pub(crate) fn direct_alignment(fd: BorrowedFd<'_>) -> Option<DirectAlignment> {
    // SAFETY: statx is plain data; all zeroes is a value of it.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty C string and a statx to fill, both live during the call.
    let result =
        unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut status) };
    let told = result == 0 && status.stx_mask & libc::STATX_DIOALIGN != 0 && status.stx_dio_offset_align > 0;
    told.then_some(DirectAlignment { offset: status.stx_dio_offset_align, memory: status.stx_dio_mem_align })
}

/// Makes all I/O of this open file direct.
pub(crate) fn set_direct(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT) }).map(drop)
}

// From linux/fs.h: _IO(0x12, n), and _IOR(0x12, 114, size_t).
const BLKROGET: libc::Ioctl = 0x125e;
const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKPBSZGET: libc::Ioctl = 0x127b;
const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;

/// A block device's size in bytes.
pub(crate) fn block_size_bytes(fd: RawFd) -> Result<u64, Errno> {
    let mut bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64.
    check(unsafe { libc::ioctl(fd, BLKGETSIZE64, &mut bytes) })?;
    Ok(bytes)
}

/// Whether the system refuses writes to a block device.
pub(crate) fn is_block_read_only(fd: RawFd) -> Result<bool, Errno> {
    let mut is_read_only: c_int = 0;
    // SAFETY: BLKROGET writes one int.
    check(unsafe { libc::ioctl(fd, BLKROGET, &mut is_read_only) })?;
    Ok(is_read_only != 0)
}

/// A block device's logical and physical block in bytes.
pub(crate) fn block_sizes(fd: BorrowedFd<'_>) -> Result<(u32, u32), Errno> {
    let (mut logical, mut physical): (c_int, libc::c_uint) = (0, 0);
    // SAFETY: BLKSSZGET writes one int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKSSZGET, &mut logical) })?;
    // SAFETY: BLKPBSZGET writes one unsigned int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKPBSZGET, &mut physical) })?;
    Ok((logical.unsigned_abs(), physical))
}

/// The file or block device below a loop device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoopFile {
    /// The device that the file is on.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The device number if it is a device; 0 for a file.
    pub(crate) special: u64,
}

/// Queries the driver of a loop device, also through a partition of the device. ENOTTY, EINVAL: not a loop device;
/// ENXIO: no file is attached.
pub(crate) fn loop_file(fd: BorrowedFd<'_>) -> Result<LoopFile, Errno> {
    // From linux/loop.h: struct loop_info64 has 232 bytes and begins with lo_device, lo_inode, lo_rdevice.
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    let mut info = [0u64; 29];
    // SAFETY: LOOP_GET_STATUS64 writes one struct loop_info64.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) })?;
    let [device, inode, special, ..] = info;
    Ok(LoopFile { device, inode, special })
}

/// Up to `count` extents of a file from byte `start` on, its data flushed before: start in the file, start on the
/// device, length, flags. From linux/fiemap.h: a head of 32 bytes, then 56 bytes for each extent.
pub(crate) fn fiemap(fd: RawFd, start: u64, count: usize) -> Result<Vec<[u64; 4]>, Errno> {
    const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
    const SYNC: u64 = 1;
    const HEAD_WORDS: usize = 4;
    const EXTENT_WORDS: usize = 7;
    let mut words = vec![0u64; HEAD_WORDS + count * EXTENT_WORDS];
    // fm_start, fm_length, fm_flags and fm_mapped_extents, fm_extent_count and a reserved word.
    let (low, high) = if cfg!(target_endian = "little") { (0, 32) } else { (32, 0) };
    words[..HEAD_WORDS].copy_from_slice(&[start, u64::MAX - start, SYNC << low, (count as u64) << low]);
    // SAFETY: FS_IOC_FIEMAP writes the head and at most fm_extent_count extents, for which there is room.
    check(unsafe { libc::ioctl(fd, FS_IOC_FIEMAP, words.as_mut_ptr()) })?;
    let mapped = ((words[2] >> high) as u32 as usize).min(count);
    let extents = words[HEAD_WORDS..].chunks_exact(EXTENT_WORDS).take(mapped);
    // fe_logical, fe_physical, fe_length, two reserved, fe_flags and a reserved word.
    Ok(extents.map(|extent| [extent[0], extent[1], extent[2], extent[5] >> low & 0xffff_ffff]).collect())
}

/// Discards `length` bytes of a block device from `at`: 0 or a negative errno.
pub(crate) fn block_discard(fd: RawFd, at: u64, length: u64) -> i32 {
    let range = [at, length];
    // SAFETY: BLKDISCARD reads two u64.
    as_result(unsafe { libc::ioctl(fd, BLKDISCARD, range.as_ptr()) } as isize)
}

/// Renames a file if nothing has the new name yet (else EEXIST).
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno(libc::EINVAL));
    let (from, to) = (name(from)?, name(to)?);
    // SAFETY: two C strings that live during the call.
    let result =
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE) };
    check(result).map(drop)
}

/// Waits until a file is ready or the timeout has passed; returns how many are ready. 0 if interrupted.
pub(crate) fn poll(files: &mut [libc::pollfd], timeout: Option<Duration>) -> usize {
    let time = timeout.map(|time| libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a slice of pollfd with its length, a timespec or null, no signal mask.
    let ready = unsafe { libc::ppoll(files.as_mut_ptr(), files.len() as libc::nfds_t, time, std::ptr::null()) };
    match check(ready) {
        Ok(ready) => ready as usize,
        Err(Errno(libc::EINTR | libc::EAGAIN | libc::ENOMEM)) => {
            files.iter_mut().for_each(|file| file.revents = 0);
            0
        }
        Err(Errno(os)) => panic!("poll refused its arguments, errno {os}"),
    }
}

/// Writes to standard error without blocking for long, because the reader may be stuck and the process must end.
pub(crate) fn write_stderr(text: &str) {
    const WAIT_MILLISECONDS_MAX: c_int = 200;
    for part in text.as_bytes().chunks(libc::PIPE_BUF) {
        let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd. A writable pipe takes PIPE_BUF bytes without blocking.
        if unsafe { libc::poll(&raw mut stderr, 1, WAIT_MILLISECONDS_MAX) } <= 0 {
            return;
        }
        // SAFETY: reads the text's bytes. A failure is ignored.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}
