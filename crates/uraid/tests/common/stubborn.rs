//! A file whose server answers when a test says so.
//! Owns: [`StubbornFile`]: one file of a FUSE mount over a sparse file. Not here: what is served from it.
//! Invariant: the mount is gone when the guard is; dropping it lets everything that waits go first.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "member";
/// Attributes are asked for again each time, as a careful network file system does.
const TTL: Duration = Duration::ZERO;

/// Whether the server answers; who waits for that.
#[derive(Default)]
struct Gate {
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_held = self.is_held.lock().expect("no holder panics");
        while *is_held {
            is_held = self.changed.wait(is_held).expect("no holder panics");
        }
    }

    fn set(&self, is_held: bool) {
        *self.is_held.lock().expect("no holder panics") = is_held;
        self.changed.notify_all();
    }
}

struct Server {
    gate: Arc<Gate>,
    file: File,
}

impl Server {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let size = self.file.metadata().expect("ours").len();
        let is_file = inode == FILE;
        FileAttr {
            ino: inode,
            size: if is_file { size } else { 0 },
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.gate.pass();
        if name == NAME {
            reply.entry(&TTL, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.gate.pass();
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.gate.pass();
        let mut bytes = vec![0; size as usize];
        match self.file.read_at(&mut bytes, offset) {
            Ok(count) => reply.data(&bytes[..count]),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.gate.pass();
        match self.file.write_all_at(data, offset) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.gate.pass();
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// A file on a mount of its own.
pub struct StubbornFile {
    gate: Arc<Gate>,
    folder: PathBuf,
    session: Option<BackgroundSession>,
}

impl StubbornFile {
    /// Serves `stored` in `folder`, which is made. Needs /dev/fuse, and fusermount3 for all but root.
    pub fn new(folder: &Path, stored: &Path) -> StubbornFile {
        std::fs::create_dir_all(folder).expect("the scratch folder is ours");
        let gate = Arc::<Gate>::default();
        let file = File::options().read(true).write(true).open(stored).expect("ours");
        let server = Server { gate: gate.clone(), file };
        let session = fuser::spawn_mount(server, folder, &Config::default())
            .unwrap_or_else(|error| panic!("FUSE is needed for this test (/dev/fuse, package fuse3): {error}"));
        StubbornFile { gate, folder: folder.to_owned(), session: Some(session) }
    }

    /// Its name.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Stops answering.
    pub fn hang(&self) {
        self.gate.set(true);
    }

    /// Answers everything.
    pub fn go_on(&self) {
        self.gate.set(false);
    }
}

impl Drop for StubbornFile {
    fn drop(&mut self) {
        self.go_on();
        if let Some(session) = self.session.take() {
            // The folder is removed with the scratch folder; a mount that stays would show there.
            let _ = session.umount_and_join();
        }
    }
}
