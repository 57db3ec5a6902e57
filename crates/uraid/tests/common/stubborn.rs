//! A file whose FUSE server hangs, delays or fails requests when a test says so, and records the order of writes and flushes.
//! Owns: [`StubbornFile`]: one file of a FUSE mount over a sparse file; [`Journal`]. Not here: what is served from it.
//! Invariant: the mount ends with the guard; dropping it first answers all waiting requests.

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "member";
/// The kernel asks for attributes each time, as on a network file system without attribute caching.
const TTL: Duration = Duration::ZERO;

/// Whether the server answers, and the waiters for that.
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

    fn is_held(&self) -> bool {
        *self.is_held.lock().expect("no holder panics")
    }

    fn set(&self, is_held: bool) {
        *self.is_held.lock().expect("no holder panics") = is_held;
        self.changed.notify_all();
    }
}

/// What reached a file, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes from this byte on.
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    Flush,
    /// The event before is not answered yet.
    Held,
    /// What was held is answered.
    Answered,
}

impl Event {
    /// Whether byte `at` is written, and to what.
    pub fn writes(&self, place: u64) -> Option<u8> {
        match self {
            Event::Write { at, bytes } => bytes.get(usize::try_from(place.checked_sub(*at)?).ok()?).copied(),
            Event::Flush | Event::Held | Event::Answered => None,
        }
    }
}

/// What reached the files that share it, each named by its number.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<(usize, Event)>>>);

impl Journal {
    /// All events since the last call.
    pub fn take(&self) -> Vec<(usize, Event)> {
        std::mem::take(&mut *self.0.lock().expect("no holder panics"))
    }

    fn push(&self, file: usize, event: Event) {
        self.0.lock().expect("no holder panics").push((file, event));
    }
}

/// Which answer is held back, once.
struct Hold {
    /// Of the events that count: writes of metadata beside a superblock, and flushes of such writes. A superblock may be
    /// on its way to all members together.
    after: usize,
    /// Where metadata is.
    part: Range<u64>,
    /// Something of it is not flushed.
    is_unflushed: bool,
}

/// How long an answer is held back. What does not wait for it comes at once.
const HOLD_TIME: Duration = Duration::from_millis(150);

impl Hold {
    /// Whether the answer of this event is the one.
    fn is_at(&mut self, event: &Event) -> bool {
        let counts = match event {
            Event::Write { at, bytes } => self.part.contains(at) && !bytes.starts_with(&0xa92b_4efc_u32.to_le_bytes()),
            Event::Flush | Event::Held | Event::Answered => std::mem::take(&mut self.is_unflushed),
        };
        self.is_unflushed |= counts && *event != Event::Flush;
        self.after -= usize::from(counts && self.after > 0);
        counts && self.after == 0
    }
}

/// What a server refuses with an I/O error, or for lack of space.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Fails {
    #[default]
    Nothing,
    Reads,
    /// Every write, because there is no room for it.
    Full,
    /// Every write that covers this byte.
    WritesOf(u64),
    Flushes,
    /// Flushes, after this many that succeed.
    FlushesAfter(usize),
}

/// What the next reads, writes and syncs end with.
#[derive(Clone, Copy)]
struct NextErrors {
    errno: Errno,
    /// How many of them.
    left: u32,
    /// A write of data comes first: superblocks and flushes do not meet the error before it.
    await_data: bool,
}

type Failing = Mutex<Option<NextErrors>>;

/// Longer than a superblock, which may be written at any moment: the array is marked clean 200 ms after its last write.
const DATA_MIN: usize = 4096 + 1;

struct Server {
    gate: Arc<Gate>,
    /// Only lookups of the name wait here.
    lookups: Arc<Gate>,
    /// The first read that starts here holds the gate.
    hangs_at: Arc<Mutex<Option<Range<u64>>>>,
    fails: Arc<Mutex<Fails>>,
    failing: Arc<Failing>,
    /// How long each write takes.
    write_time: Arc<Mutex<Duration>>,
    hold: Arc<Mutex<Option<Hold>>>,
    journal: Option<(Journal, usize)>,
    file: File,
}

impl Server {
    /// Whether this event succeeds; if so, it is in the journal.
    fn take(&self, event: Event) -> bool {
        let fails = match &mut *self.fails.lock().expect("no holder panics") {
            Fails::Nothing | Fails::Reads => false,
            Fails::Full => event != Event::Flush,
            Fails::WritesOf(place) => event.writes(*place).is_some(),
            Fails::Flushes | Fails::FlushesAfter(0) => event == Event::Flush,
            Fails::FlushesAfter(left) => {
                *left -= usize::from(event == Event::Flush);
                false
            }
        };
        if let Some((journal, number)) = self.journal.as_ref().filter(|_| !fails) {
            let is_held = self.hold.lock().expect("no holder panics").take_if(|hold| hold.is_at(&event)).is_some();
            journal.push(*number, event);
            if is_held {
                journal.push(*number, Event::Held);
                std::thread::sleep(HOLD_TIME);
                journal.push(*number, Event::Answered);
            }
        }
        !fails
    }

    /// The same of a flush. One that fails fails the member, whatever the error: what passes is of reads and writes only.
    fn pass_flush(&self) -> Result<(), Errno> {
        let passes = (*self.failing.lock().expect("no holder panics"))
            .is_some_and(|next| matches!(next.errno, Errno::EAGAIN | Errno::ENOMEM));
        if passes {
            self.gate.pass();
            return Ok(());
        }
        self.pass(None)
    }

    /// Waits until it may answer; then, whether with an error. A full file system fails writes only, of `written` bytes.
    fn pass(&self, written: Option<usize>) -> Result<(), Errno> {
        self.gate.pass();
        let mut failing = self.failing.lock().expect("no holder panics");
        let Some(next) = &mut *failing else { return Ok(()) };
        next.await_data &= written.is_none_or(|length| length < DATA_MIN);
        let is_hit = written.is_some() || next.errno != Errno::ENOSPC;
        if next.left == 0 || next.await_data || !is_hit {
            return Ok(());
        }
        next.left -= 1;
        Err(next.errno)
    }

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
        if name != NAME {
            return reply.error(Errno::ENOENT);
        }
        let (lookups, attributes) = (self.lookups.clone(), self.attributes(FILE));
        let is_held = lookups.is_held();
        let answer = move || {
            lookups.pass();
            reply.entry(&TTL, &attributes, Generation(0));
        };
        if is_held {
            // This thread serves everything else.
            std::thread::spawn(answer);
        } else {
            answer();
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.gate.pass();
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.gate.pass();
        match size.map_or(Ok(()), |size| self.file.set_len(size)) {
            Ok(()) => reply.attr(&TTL, &self.attributes(inode)),
            Err(_) => reply.error(Errno::EIO),
        }
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
        if self.hangs_at.lock().expect("no holder panics").take_if(|part| part.contains(&offset)).is_some() {
            self.gate.set(true);
        }
        if let Err(errno) = self.pass(None) {
            return reply.error(errno);
        }
        if *self.fails.lock().expect("no holder panics") == Fails::Reads {
            reply.error(Errno::EIO);
            return;
        }
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
        if let Err(errno) = self.pass(Some(data.len())) {
            return reply.error(errno);
        }
        let write_time = *self.write_time.lock().expect("no holder panics");
        std::thread::sleep(write_time);
        if !self.take(Event::Write { at: offset, bytes: data.to_vec() }) {
            let is_full = *self.fails.lock().expect("no holder panics") == Fails::Full;
            return reply.error(if is_full { Errno::ENOSPC } else { Errno::EIO });
        }
        match self.file.write_all_at(data, offset) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if let Err(errno) = self.pass_flush() {
            return reply.error(errno);
        }
        if self.take(Event::Flush) { reply.ok() } else { reply.error(Errno::EIO) }
    }

    /// A close, which waits as on a network file system.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.gate.pass();
        reply.ok();
    }
}

/// A file on a mount of its own.
pub struct StubbornFile {
    gate: Arc<Gate>,
    lookups: Arc<Gate>,
    hangs_at: Arc<Mutex<Option<Range<u64>>>>,
    fails: Arc<Mutex<Fails>>,
    failing: Arc<Failing>,
    write_time: Arc<Mutex<Duration>>,
    hold: Arc<Mutex<Option<Hold>>>,
    folder: PathBuf,
    session: Option<BackgroundSession>,
}

impl StubbornFile {
    /// Serves `stored` in `folder`, which is made. Needs /dev/fuse, and fusermount3 for all but root.
    pub fn new(folder: &Path, stored: &Path) -> StubbornFile {
        StubbornFile::mount(folder, stored, None)
    }

    /// The same, in the place of member `at`, which it serves.
    pub fn in_place_of(members: &mut [PathBuf], at: usize) -> StubbornFile {
        let file = StubbornFile::new(&members[at].with_extension("mount"), &members[at]);
        members[at] = file.path();
        file
    }

    /// As `new`, and what reaches it is in `journal` by its number.
    pub fn recorded(folder: &Path, stored: &Path, journal: &Journal, number: usize) -> StubbornFile {
        StubbornFile::mount(folder, stored, Some((journal.clone(), number)))
    }

    fn mount(folder: &Path, stored: &Path, journal: Option<(Journal, usize)>) -> StubbornFile {
        std::fs::create_dir_all(folder).expect("the scratch folder is ours");
        let gate = Arc::<Gate>::default();
        let lookups = Arc::<Gate>::default();
        let file = File::options().read(true).write(true).open(stored).expect("ours");
        let fails = Arc::<Mutex<Fails>>::default();
        let hangs_at = Arc::<Mutex<Option<Range<u64>>>>::default();
        let failing = Arc::<Failing>::default();
        let write_time = Arc::<Mutex<Duration>>::default();
        let hold = Arc::<Mutex<Option<Hold>>>::default();
        let server = Server {
            gate: gate.clone(),
            lookups: lookups.clone(),
            hangs_at: hangs_at.clone(),
            fails: fails.clone(),
            failing: failing.clone(),
            write_time: write_time.clone(),
            hold: hold.clone(),
            journal,
            file,
        };
        let session = fuser::spawn_mount(server, folder, &Config::default())
            .unwrap_or_else(|error| panic!("FUSE is needed for this test (/dev/fuse, package fuse3): {error}"));
        let folder = folder.to_owned();
        StubbornFile { gate, lookups, hangs_at, fails, failing, write_time, hold, folder, session: Some(session) }
    }

    /// Its name.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Sets what fails.
    pub fn fail(&self, what: Fails) {
        *self.fails.lock().expect("no holder panics") = what;
    }

    /// Answers the next `count` reads, writes and syncs with this error; with ENOSPC, the next writes.
    pub fn fail_next(&self, errno: Errno, count: u32) {
        *self.failing.lock().expect("no holder panics") = Some(NextErrors { errno, left: count, await_data: false });
    }

    /// The same from the next write of data on: it is what meets the first error.
    pub fn fail_from_data(&self, errno: Errno, count: u32) {
        *self.failing.lock().expect("no holder panics") = Some(NextErrors { errno, left: count, await_data: true });
    }

    /// Lets each write take this long. They are performed one after the other.
    pub fn slow_writes(&self, time: Duration) {
        *self.write_time.lock().expect("no holder panics") = time;
    }

    /// Of the writes of metadata in `part` but superblocks, and of the flushes of such writes, holds back the answer of the
    /// one after this many.
    pub fn hold_answer(&self, part: Range<u64>, after: usize) {
        *self.hold.lock().expect("no holder panics") = Some(Hold { after: after + 1, part, is_unflushed: false });
    }

    /// Stops answering.
    pub fn hang(&self) {
        self.gate.set(true);
    }

    /// Stops answering lookups of its name, and answers everything else.
    pub fn hang_lookups(&self) {
        self.lookups.set(true);
    }

    /// Stops answering with the first read that starts at one of these bytes.
    pub fn hang_at_read_of(&self, part: Range<u64>) {
        *self.hangs_at.lock().expect("no holder panics") = Some(part);
    }

    /// Whether it does not answer now.
    pub fn is_hung(&self) -> bool {
        self.gate.is_held()
    }

    /// Fails every read with EIO, or nothing. What the page cache has is read all the same.
    pub fn fail_reads(&self, fails: bool) {
        *self.fails.lock().expect("no holder panics") = if fails { Fails::Reads } else { Fails::Nothing };
    }

    /// Answers everything.
    pub fn go_on(&self) {
        self.gate.set(false);
        self.lookups.set(false);
    }
}

impl Drop for StubbornFile {
    fn drop(&mut self) {
        self.go_on();
        if let Some(session) = self.session.take() {
            // A server that was killed may have it open for a moment longer: the mount goes when that has ended.
            if session.umount_and_join().is_err() {
                let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
            }
        }
    }
}
