//! What the tests of the binary share.
//! Owns: scratch folders, member files, running the binary, a small NBD client. Not here: any test.
//! Invariant: no process, mount or file outlives its test; nothing of the project's own code is used.

#![allow(unsafe_code, reason = "it resets signals of a child before that runs the binary")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it, and no other target uses it")]

pub mod golden;
pub mod loop_device;
pub mod mutation;
pub mod printed;
pub mod rig;
pub mod stubborn;
pub mod superblock;
pub mod tmpfs;
pub mod xfs_bmap;

use printed::Printed;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
const WAIT_MAX: Duration = Duration::from_secs(90);
/// All tests of a program that run at once fit.
const MEMORY_MIN: u64 = 4 << 30;

/// A folder that goes with the test; sockets of the binary are in it too.
pub struct Scratch(PathBuf);

impl Scratch {
    /// In memory, if there is room: what a test waits for is then no other test's writes.
    pub fn new() -> Scratch {
        let memory = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(memory).map_or(0, |space| space.f_bavail * space.f_frsize);
        Scratch::below(&if room < MEMORY_MIN { std::env::temp_dir() } else { memory.to_owned() })
    }

    /// Where a test needs extents, or space that zeroes keep.
    pub fn on_disk() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    fn below(base: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Short, because the path of a unix socket has at most 107 bytes.
        let name = format!("uraid-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = base.join(name);
        fs::create_dir_all(&path).expect("the temporary folder is writable");
        // As a runtime directory has to be, whatever the umask is.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our folder");
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Sparse files `NAME0`, `NAME1`, ...
    pub fn members(&self, name: &str, count: usize, bytes: u64) -> Vec<PathBuf> {
        (0..count).map(|n| self.member(&format!("{name}{n}"), bytes)).collect()
    }

    /// Members for a pass that takes a while: almost sparse, with a byte in every 32 MiB. What is a hole on all members
    /// for 64 MiB and more is not passed over.
    pub fn members_to_pass(&self, name: &str, count: usize, bytes: u64) -> Vec<PathBuf> {
        let members = self.members(name, count, bytes);
        for member in &members {
            let file = File::options().write(true).open(member).expect("it was made");
            (0..bytes).step_by(32 << 20).for_each(|at| file.write_all_at(&[1], at + 9999).expect("room for a block"));
        }
        members
    }

    pub fn member(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        path
    }

    /// `uraid WORDS`, to its end.
    pub fn uraid<S: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Done {
        let output = self.command(words).output().expect("the binary runs");
        Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uraid"));
        command.args(words).env("URAID_RUNTIME_DIR", &self.0).stdin(Stdio::null());
        // Neither what this machine keeps nor what it is configured to do counts in a test.
        command.env("URAID_STATE_DIR", self.path("state")).env("URAID_CONFIG", "none");
        command
    }

    /// A copy of the binary in this folder. Another process writes it: what this one has open for writing, a child of
    /// another test may hold for a moment, and the copy could not be run then.
    pub fn binary(&self) -> PathBuf {
        let copy = self.path("uraid");
        let done = Command::new("cp").arg(env!("CARGO_BIN_EXE_uraid")).arg(&copy).status().expect("cp");
        assert!(done.success(), "room for {}", copy.display());
        copy
    }

    /// `uraid create OPTIONS --name NAME MEMBERS`, which must succeed.
    #[track_caller]
    pub fn create(&self, name: &str, options: &str, members: &[PathBuf]) {
        let words = options.split_whitespace().map(PathBuf::from);
        let fixed = ["create", "--homehost", "none", "--name", name].map(PathBuf::from);
        self.uraid(fixed.into_iter().chain(words).chain(members.iter().cloned())).expect_done();
    }

    /// `uraid serve`, started; it may still refuse.
    pub fn serve(&self, options: &[&str], members: &[PathBuf]) -> Served {
        let words = ["serve"].into_iter().chain(options.iter().copied()).map(PathBuf::from);
        let mut command = self.command(words.chain(members.iter().cloned()));
        Served::start(&mut command)
    }

    /// A server that has said that it is ready.
    #[track_caller]
    pub fn ready(&self, options: &[&str], members: &[PathBuf]) -> Served {
        let served = self.serve(options, members);
        served.wait_until_ready();
        served.wait_until_consistent();
        served
    }

    /// Stops an array whose clients have left, by its name. The server refuses while it has not seen that yet.
    #[track_caller]
    pub fn stop_when_left(&self, name: &str) {
        let is_stopped = || self.uraid(["stop", name]).code == Some(0);
        wait(is_stopped).unwrap_or_else(|()| panic!("{:?}", self.uraid(["stop", name])));
        let control = self.path(&format!("{name}.ctl"));
        wait(|| !control.exists()).expect("it ends");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    #[track_caller]
    pub fn expect_done(self) -> Done {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Exit code 1, and every one of these texts on stderr.
    #[track_caller]
    pub fn expect_refused(self, texts: &[&str]) -> Done {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.expect_said(texts)
    }

    #[track_caller]
    pub fn expect_said(self, texts: &[&str]) -> Done {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        }
        assert!(self.stderr.lines().all(|line| line.starts_with("uraid: ")), "{}", self.stderr);
        self
    }
}

/// A server; killed when dropped.
pub struct Served {
    child: Child,
    stdout: Printed,
    /// `None`: it goes elsewhere.
    stderr: Option<Printed>,
    collectors: Vec<JoinHandle<()>>,
}

impl Served {
    pub fn start(command: &mut Command) -> Served {
        with_default_signals(command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let (stdout, out) = Printed::collect(child.stdout.take().expect("piped"));
        let (stderr, err) = Printed::collect(child.stderr.take().expect("piped"));
        Served { child, stdout, stderr: Some(stderr), collectors: vec![out, err] }
    }

    /// A server whose stderr goes elsewhere: [`Served::stderr`] stays empty.
    pub fn start_with_stderr(command: &mut Command, stderr: impl Into<Stdio>) -> Served {
        with_default_signals(command);
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary runs");
        let (stdout, out) = Printed::collect(child.stdout.take().expect("piped"));
        Served { child, stdout, stderr: None, collectors: vec![out] }
    }

    pub fn stderr(&self) -> String {
        self.stderr.as_ref().map_or_else(String::new, Printed::text)
    }

    fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to stdout.
    pub fn printed(&self) -> String {
        self.stdout.text()
    }

    /// Waits for `text` on stderr.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        wait(|| self.stderr().contains(text)).unwrap_or_else(|()| panic!("{text:?} was not said:\n{}", self.stderr()));
    }

    #[track_caller]
    pub fn wait_until_ready(&self) {
        wait(|| self.stdout().ends_with('\n')).unwrap_or_else(|()| panic!("not ready:\n{}", self.stderr()));
    }

    /// Waits until the resyncs that it began with have ended, or an array froze.
    #[track_caller]
    pub fn wait_until_consistent(&self) {
        let is_over = |said: &str| {
            let count = |text| said.matches(text).count();
            count(": it is made consistent") <= count("resync done: ") || said.contains("takes no more writes")
        };
        wait(|| is_over(&self.stderr())).unwrap_or_else(|()| panic!("the resync does not end:\n{}", self.stderr()));
    }

    /// Whether the server has not printed yet that it is ready.
    pub fn is_silent(&self) -> bool {
        !self.stdout().ends_with('\n')
    }

    /// The socket in the line with the URI; all exports of a process have one.
    pub fn socket(&self) -> PathBuf {
        let lines = self.stdout();
        let (_, socket) = lines.lines().next().and_then(|line| line.split_once("?socket=")).expect("a unix URI");
        PathBuf::from(socket)
    }

    /// A client of the export with this name.
    pub fn client_of(&self, export: &str) -> Client {
        Client::connect_to(&self.socket(), export).expect("the server is ready")
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("the server is ready")
    }

    /// Writes from this byte on, a MiB at a time.
    #[track_caller]
    pub fn write_all(&self, at: u64, bytes: &[u8]) {
        let mut client = self.client();
        for (place, part) in (at..).step_by(MIB as usize).zip(bytes.chunks(MIB as usize)) {
            assert_eq!(client.write(place, part).expect("connected"), 0, "{}", self.stderr());
        }
    }

    /// The start of the first MiB that cannot be read, or does not hold what it should; `None`: all is right.
    pub fn first_difference(&self, data: &[u8]) -> Option<u64> {
        let mut client = self.client();
        let mut parts = (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize));
        let differs =
            |(at, part): &(u64, &[u8])| client.read(*at, part.len()).expect("connected").as_deref() != Ok(*part);
        parts.find(differs).map(|(at, _)| at)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        // The process may have ended already; the caller checks whether it should have.
        let _ = rustix::process::kill_process(process, signal);
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// SIGTERM, and how it ended.
    pub fn stop(self) -> Done {
        self.signal(rustix::process::Signal::TERM);
        self.end()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Done {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                // The pipes close with the process, and the collectors with the pipes.
                for collector in self.collectors.drain(..) {
                    collector.join().expect("a collector only reads");
                }
                return Done { code: status.code(), stdout: self.stdout(), stderr: self.stderr() };
            }
            assert!(began.elapsed() < WAIT_MAX, "does not end:\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it without waiting: the next command meets it while it ends.
    pub fn kill_unawaited(&self) {
        self.signal(rustix::process::Signal::KILL);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The signals that tests send to a server.
const SENT: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// A child inherits ignored signals: under nohup, or in the background of a script, it would not see those a test sends.
/// Only then: with something to do before exec, each child begins as a copy of this process and all of its memory.
fn with_default_signals(command: &mut Command) {
    static ARE_IGNORED: LazyLock<bool> = LazyLock::new(|| SENT.into_iter().any(is_ignored));
    if !*ARE_IGNORED {
        return;
    }
    let reset = || {
        for signal in SENT {
            // SAFETY: it installs no handler.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `reset` only makes system calls, which are allowed between fork and exec.
    unsafe { command.pre_exec(reset) };
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action it only writes the present one to `found`, which is of its type.
    let status = unsafe { libc::sigaction(signal, std::ptr::null(), found.as_mut_ptr()) };
    assert_eq!(status, 0, "signal {signal} exists");
    // SAFETY: it was zeroed, and written.
    unsafe { found.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Runs the same for each of these at the same time: for what mostly waits. Panics if one of them does.
pub fn side_by_side<T: Send>(each: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for one in each {
            scope.spawn(|| run(one));
        }
    });
}

/// Polls until `ready`, for a limited time. The longer it takes, the rarer: most polls start a process, and those of many
/// tests would leave no processor to what is waited for.
pub fn wait(ready: impl Fn() -> bool) -> Result<(), ()> {
    let began = Instant::now();
    while began.elapsed() < WAIT_MAX {
        if ready() {
            return Ok(());
        }
        std::thread::sleep((began.elapsed() / 10).clamp(Duration::from_millis(10), Duration::from_millis(200)));
    }
    Err(())
}

/// An NBD client: one request at a time, simple replies.
pub struct Client {
    stream: UnixStream,
    pub size: u64,
    /// What the export is called: NBD_FLAG_READ_ONLY.
    pub is_read_only: bool,
}

impl Client {
    pub fn connect(socket: &Path) -> io::Result<Client> {
        Client::connect_to(socket, "")
    }

    pub fn connect_to(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, no zeroes; then EXPORT_NAME: the empty one is the default export.
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01")?;
        stream.write_all(&(export.len() as u32).to_be_bytes())?;
        stream.write_all(export.as_bytes())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let size = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        let is_read_only = export[9] & 2 != 0;
        Ok(Client { stream, size, is_read_only })
    }

    /// Sends a request without payload, and does not receive the answer.
    pub fn send_request(&mut self, command: u16, offset: u64, length: u32) -> io::Result<()> {
        self.send_flagged(0, command, offset, length)
    }

    fn send_flagged(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> io::Result<()> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend_from_slice(&flags.to_be_bytes());
        request.extend_from_slice(&command.to_be_bytes());
        request.extend_from_slice(&7u64.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&length.to_be_bytes());
        self.stream.write_all(&request)
    }

    /// Sends a write, and does not receive the answer.
    pub fn send_write(&mut self, command: u16, offset: u64, data: &[u8]) -> io::Result<()> {
        self.send_request(command, if data.is_empty() { 0 } else { offset }, data.len() as u32)?;
        self.stream.write_all(data)
    }

    /// The protocol's error number; 0 for none.
    fn answer(&mut self) -> io::Result<u32> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        Ok(u32::from_be_bytes(reply[4..8].try_into().expect("four bytes")))
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<u32> {
        self.send_request(1, offset, data.len() as u32)?;
        self.stream.write_all(data)?;
        self.answer()
    }

    /// Announces `length` bytes, sends fewer and hangs up.
    pub fn write_half_and_leave(mut self, offset: u64, length: u32, sent: &[u8]) {
        self.send_request(1, offset, length).expect("the server is there");
        self.stream.write_all(sent).expect("the server is there");
        self.stream.shutdown(Shutdown::Both).expect("connected");
    }

    pub fn read(&mut self, offset: u64, length: usize) -> io::Result<Result<Vec<u8>, u32>> {
        self.send_request(0, offset, length as u32)?;
        let error = self.answer()?;
        if error != 0 {
            return Ok(Err(error));
        }
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    /// NBD_CMD_CACHE of these bytes.
    pub fn cache(&mut self, offset: u64, length: u32) -> io::Result<u32> {
        self.send_request(5, offset, length)?;
        self.answer()
    }

    /// NBD_CMD_TRIM, or NBD_CMD_WRITE_ZEROES with or without NO_HOLE.
    pub fn clear(&mut self, command: Clear, offset: u64, length: u32) -> io::Result<u32> {
        let (flags, command) = match command {
            Clear::Trim => (0, 4),
            Clear::Zeroes => (0, 6),
            Clear::ZeroesWithoutHole => (2, 6),
        };
        self.send_flagged(flags, command, offset, length)?;
        self.answer()
    }

    pub fn flush(&mut self) -> io::Result<u32> {
        self.send_request(3, 0, 0)?;
        self.answer()
    }
}

/// What makes zeroes over NBD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    Trim,
    Zeroes,
    ZeroesWithoutHole,
}

/// The next number of a pseudorandom sequence; use the high bits.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state
}

/// Bytes that tell their place.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| ((n / 512 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 8 * 8)) as u8).collect()
}
