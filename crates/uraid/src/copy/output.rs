//! The output of a copy: a file, a block device or a pipe.
//! Owns: opening it, what may be overwritten, how zeroes are written. Not here: the order of writes (`writer`).
//! Invariant: existing data is overwritten only with --overwrite, and a member never: neither a given one nor any other
//! that carries a superblock (`occupied`).

use super::map::byte;
use super::occupied::{self, Earlier};
use super::output_error::OutputError;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uraid_block::{Range, Sectors};
use uraid_control::member_name;
use uraid_host::used_by_system;

/// Zeroes that are shorter than this, or not aligned to it, are written like other bytes.
const HOLE_BYTES: usize = 4096;
static ZEROES: [u8; 1 << 16] = [0; 1 << 16];

/// The expected state of OUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// A map of this copy says that part of it is copied.
    Resumed,
    /// A map of this copy exists, but OUT is empty: the map is created first.
    Begun,
    /// OUT should be empty; existing data may not be lost.
    Nothing,
    /// Existing data may be lost.
    GivenUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Unwritten parts read as zeroes.
    File,
    /// Zeroes are written.
    BlockDevice,
    /// Bytes are written in order, including zeroes.
    Stream,
}

/// OUT, open.
pub(super) struct Output {
    file: File,
    kind: Kind,
    path: PathBuf,
    /// The size to set when the copy begins: until then the file stays as it was.
    begins_with: Option<Sectors>,
}

/// Whether OUT is a pipe or another stream, which has no default path for a map.
pub(super) fn is_stream(path: &Path) -> bool {
    let is_storage = |status: std::fs::Metadata| status.is_file() || status.file_type().is_block_device();
    path == Path::new("-") || std::fs::metadata(path).is_ok_and(|status| !is_storage(status))
}

impl Output {
    /// Opens OUT for a copy of `size` sectors of an array. `members` are all given names, including members that are
    /// left out: a stale member must not be overwritten either. `earlier`: of an earlier run of this copy.
    pub(super) fn open(
        path: &Path,
        members: &[String],
        size: Sectors,
        before: Before,
        earlier: Option<&Earlier>,
    ) -> Result<Output, OutputError> {
        let path = path.to_owned();
        if path == Path::new("-") {
            return standard_output(members);
        }
        let failed = |action| {
            let path = path.clone();
            move |source| OutputError::Io { path, action, source }
        };
        let status = match std::fs::metadata(&path) {
            Ok(status) => Some(status),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("opening")(error)),
        };
        if let Some(status) = &status {
            refuse_member(&path, status, members)?;
        }
        let Some(status) = status else {
            if before == Before::Resumed {
                return Err(OutputError::Vanished { path });
            }
            let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed("making"))?;
            return new_file(path, file, size);
        };
        if status.is_file() || status.file_type().is_block_device() {
            occupied::refuse(&path, earlier)?;
        }
        if status.is_file() {
            let file = OpenOptions::new().write(true).open(&path).map_err(failed("opening"))?;
            return old_file(path, file, size, before);
        }
        if status.file_type().is_block_device() {
            return block_device(path, size, before);
        }
        if status.file_type().is_fifo() || status.file_type().is_char_device() {
            let file = OpenOptions::new().write(true).open(&path).map_err(failed("opening"))?;
            return Ok(Output { file, kind: Kind::Stream, path, begins_with: None });
        }
        Err(OutputError::NoStorage { path })
    }

    /// Empties a file for a new copy. Save the map before: without a map, an interrupted copy would look complete.
    pub(super) fn begin(&self) -> Result<(), OutputError> {
        let Some(size) = self.begins_with else { return Ok(()) };
        let failed = |action| move |source| OutputError::Io { path: self.path.clone(), action, source };
        self.file.set_len(0).map_err(failed("emptying"))?;
        self.file.set_len(size.bytes()).map_err(failed("making it as large as the array"))
    }

    /// Refuses a map path that is OUT or a member.
    pub(super) fn refuse_map(&self, path: &Path, members: &[String]) -> Result<(), OutputError> {
        let failed = |source| OutputError::Io { path: path.to_owned(), action: "opening", source };
        let status = match std::fs::metadata(path) {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        refuse_member(path, &status, members)?;
        refuse_used(path, path)?;
        let out = self.file.metadata().map_err(failed)?;
        if (out.dev(), out.ino()) == (status.dev(), status.ino()) {
            return Err(OutputError::IsMap { path: path.to_owned() });
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes at their place; on a stream, after all earlier ones.
    pub(super) fn write(&mut self, range: Range, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(range.length.bytes(), bytes.len() as u64);
        let at = byte(range.start);
        match self.kind {
            Kind::File => write_sparse(&self.file, at, bytes),
            Kind::BlockDevice => self.file.write_all_at(bytes, at),
            Kind::Stream => self.file.write_all(bytes),
        }
    }

    /// Makes a stretch zeroes.
    pub(super) fn write_zeroes(&mut self, range: Range) -> io::Result<()> {
        let (mut at, end) = (byte(range.start), byte(range.end()));
        while at < end && !self.is_zeroes() {
            let part = &ZEROES[..(end - at).min(ZEROES.len() as u64) as usize];
            match self.kind {
                Kind::File | Kind::BlockDevice => self.file.write_all_at(part, at)?,
                Kind::Stream => self.file.write_all(part)?,
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// A file is new, and holes where nothing was written.
    pub(super) fn is_zeroes(&self) -> bool {
        self.kind == Kind::File
    }

    /// Makes what was written durable; a stream cannot promise that.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self.kind {
            Kind::File | Kind::BlockDevice => self.file.sync_data(),
            Kind::Stream => Ok(()),
        }
    }
}

fn refuse_member(path: &Path, status: &Metadata, members: &[String]) -> Result<(), OutputError> {
    let place = |status: &Metadata| match status.file_type().is_block_device() {
        true => (status.rdev(), 0),
        false => (status.dev(), status.ino()),
    };
    let is_out = |member: &&String| {
        let target = member_name::resolve(member).ok();
        let found = target.and_then(|target| std::fs::metadata(target.path).ok());
        found.is_some_and(|found| place(&found) == place(status))
    };
    match members.iter().find(is_out) {
        Some(member) => Err(OutputError::Member { path: path.to_owned(), member: member.clone() }),
        None => Ok(()),
    }
}

/// Refuses the file or device at `found` if the system itself writes to it. The error calls it `path`.
fn refuse_used(path: &Path, found: &Path) -> Result<(), OutputError> {
    let error = |used_as| OutputError::UsedBySystem { path: path.to_owned(), used_as };
    used_by_system(found).map(error).map_or(Ok(()), Err)
}

fn standard_output(members: &[String]) -> Result<Output, OutputError> {
    let path = PathBuf::from("standard output");
    let failed = |source| OutputError::Io { path: path.clone(), action: "opening", source };
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(OutputError::Terminal);
    }
    let file = File::from(stdout.as_fd().try_clone_to_owned().map_err(failed)?);
    let status = file.metadata().map_err(failed)?;
    // Rust gives a process whose standard output is closed /dev/null, for reading and writing; a shell opens that for
    // writing only.
    let is_null = status.file_type().is_char_device() && status.rdev() == rustix::fs::makedev(1, 3);
    let flags = rustix::fs::fcntl_getfl(&file).map_err(|errno| failed(errno.into()))?;
    if is_null && flags & rustix::fs::OFlags::RWMODE == rustix::fs::OFlags::RDWR {
        return Err(OutputError::Closed);
    }
    refuse_member(&path, &status, members)?;
    // A shell opened it: nothing has asked whether it may be overwritten.
    if (status.is_file() || status.file_type().is_block_device())
        && let Ok(storage) = std::fs::read_link(format!("/proc/self/fd/{}", stdout.as_fd().as_raw_fd()))
    {
        occupied::refuse(&storage, None)?;
        refuse_used(&path, &storage)?;
    }
    Ok(Output { file, kind: Kind::Stream, path, begins_with: None })
}

/// Locks OUT, so that two copies cannot write one file at the same time. A member is locked, too, so OUT is also
/// refused here if it is a member under another name. The system takes no lock: what it uses is looked up.
fn lock(path: &Path, file: &File) -> Result<(), OutputError> {
    refuse_used(path, path)?;
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OutputError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OutputError::Io { path: path.to_owned(), action: "locking", source }),
    }
}

fn new_file(path: PathBuf, file: File, size: Sectors) -> Result<Output, OutputError> {
    lock(&path, &file)?;
    Ok(Output { file, kind: Kind::File, path, begins_with: Some(size) })
}

fn old_file(path: PathBuf, file: File, size: Sectors, before: Before) -> Result<Output, OutputError> {
    lock(&path, &file)?;
    let failed = |source| OutputError::Io { path: path.clone(), action: "opening", source };
    let found = file.metadata().map_err(failed)?.len();
    match before {
        Before::Nothing if found > 0 => Err(OutputError::NotEmpty { path }),
        Before::Nothing | Before::GivenUp => new_file(path, file, size),
        Before::Begun if found == 0 => new_file(path, file, size),
        Before::Resumed if found == 0 => Err(OutputError::Vanished { path }),
        Before::Resumed | Before::Begun if found != size.bytes() => {
            Err(OutputError::Size { path, found, expected: size.bytes() })
        }
        Before::Resumed | Before::Begun => Ok(Output { file, kind: Kind::File, path, begins_with: None }),
    }
}

fn block_device(path: PathBuf, size: Sectors, before: Before) -> Result<Output, OutputError> {
    let failed = |source| OutputError::Io { path: path.clone(), action: "opening", source };
    match before {
        Before::Nothing => return Err(OutputError::Device { path }),
        Before::Resumed | Before::Begun | Before::GivenUp => (),
    }
    // On a block device O_EXCL fails if it is mounted or part of something.
    const O_EXCL: i32 = rustix::fs::OFlags::EXCL.bits() as i32;
    let mut file = match OpenOptions::new().write(true).custom_flags(O_EXCL).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(OutputError::InUse { path }),
        Err(error) => return Err(failed(error)),
    };
    lock(&path, &file)?;
    let found = io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(failed)?;
    if found < size.bytes() {
        return Err(OutputError::Size { path, found, expected: size.bytes() });
    }
    Ok(Output { file, kind: Kind::BlockDevice, path, begins_with: None })
}

/// Writes all but whole blocks of zeroes: unwritten parts of a file read as zeroes.
fn write_sparse(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    // Blocks are aligned in the file, wherever the stretch begins.
    let first = (HOLE_BYTES - at as usize % HOLE_BYTES) % HOLE_BYTES;
    let mut from = 0;
    let mut block_start = 0;
    let mut block_end = if first == 0 { HOLE_BYTES } else { first }.min(bytes.len());
    while block_start < bytes.len() {
        // One memcmp, which is as fast in every build.
        if bytes[block_start..block_end] == ZEROES[..block_end - block_start] {
            file.write_all_at(&bytes[from..block_start], at + from as u64)?;
            from = block_end;
        }
        block_start = block_end;
        block_end = (block_end + HOLE_BYTES).min(bytes.len());
    }
    file.write_all_at(&bytes[from..], at + from as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_write_leaves_the_bytes_there_that_were_given() {
        let path = std::env::temp_dir().join(format!("uraid-sparse-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        let mut bytes = vec![0; 9 * HOLE_BYTES + 512];
        for at in [0, 4095, 4096 + 511, 3 * 4096, 5 * 4096 + 100, 9 * 4096 + 511] {
            bytes[at] = 0x5a;
        }
        for skew in [0, 512, 4096 - 512, 4096] {
            file.set_len(0).and_then(|()| file.set_len(1 << 20)).expect("a file");
            for part in [0..bytes.len(), 512..4096, 4096..8192, 4096..4096] {
                file.set_len(0).and_then(|()| file.set_len(1 << 20)).expect("a file");
                write_sparse(&file, skew, &bytes[part.clone()]).expect("room");
                let mut back = vec![1; part.len()];
                file.read_exact_at(&mut back, skew).expect("a file");
                assert!(back == bytes[part]);
            }
        }
        std::fs::remove_file(path).expect("it is there");
    }
}
