//! A day in the life of an array: files are written to an XFS on a raid6 all the time, while members fail, leave and
//! come back.
//! Owns: which commands, in which order, what must hold after each. Not here: the files (`files`), mounting (`mount`),
//! whether the kernel accepts the members at the end (`xtask`). Called by `uraid-day`.
//! Invariant: after each step, and after a kill -9 in the middle of it, every file whose fsync was answered is there
//! with the content that was written, and the array can be made whole again.
//!
//! ```text
//!   serve ──► mount ──► files are written ──────────────────────────► unmount ──► xfs_repair, trees equal, stop
//!     ▲                   └─ a command: to its end, or killed in it ─┘
//!     └── after a kill: unmount, serve again, mount, compare, make whole, go on
//! ```
//!
//! A raid6 that lacks a member and is killed in the middle of a write is refused as dirty and degraded: what the member
//! held of that row cannot be known. So steps that take a member away are killed while the file system is unmounted and
//! the array is clean.

mod files;

use crate::filesystem::mount::{Loop, Mounted};
use crate::filesystem::tree;
use crate::members::scratch::{Scratch, Shape, create_with};
use crate::programs::binary::run;
use crate::programs::foreign;
use crate::programs::server::Server;
use crate::random::Random;
use files::Files;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// mkfs.xfs refuses less than 300 MB.
const ARRAY: Shape = Shape { level: "raid6", layout: "", members: 6, tolerates: 2, chunk: "64K", member_mib: 100 };
const TREE_BYTES: u64 = 16 << 20;
/// How fast passes are at least, in KiB a second. Files are written all the time; in a tenth of the time a pass takes
/// minutes.
const PASS_SPEED: &str = "200000";

/// The longest that a recovery or a check of members of this size may take.
const PASS_TIME_MAX: Duration = Duration::from_secs(120);
/// The server is killed within this time after a step begins; most steps take longer.
const KILL_WITHIN_MS: u64 = 600;
/// The kernel keeps the members of a killed process locked until its last request has ended.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(20);

/// What an operator does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A member fails, the spare takes its slot, and the failed member becomes the next spare.
    Fail,
    /// A member that works is copied to the spare, which takes its slot; the member becomes the next spare.
    Replace,
    /// The spare is removed and added again.
    RemoveAndAdd,
    /// The bitmap is removed, and another one is added, several times.
    Bitmap,
    /// A member leaves and comes back to its slot, by the bitmap.
    ReAdd,
    /// Everything is compared.
    Check,
    /// A spoiled sector is found, named and repaired.
    Repair,
    /// A recovery is frozen and goes on.
    Freeze,
}

impl Step {
    fn takes_a_member_away(self) -> bool {
        matches!(self, Step::Fail | Step::ReAdd | Step::Freeze)
    }
}

const STEPS: [Step; 8] =
    [Step::Fail, Step::Replace, Step::RemoveAndAdd, Step::Bitmap, Step::ReAdd, Step::Check, Step::Repair, Step::Freeze];

/// The counts of one day.
#[derive(Clone, Copy, Default, Debug)]
pub struct DayFigures {
    /// Steps that ran to their end.
    pub steps: u64,
    /// Steps in which the server was killed.
    pub kills: u64,
    /// Files compared at the end.
    pub files: u64,
}

/// What runs; the fields are dropped, and so stopped, in this order.
struct Running {
    mounted: Mounted,
    attached: Loop,
    server: Server,
}

struct Day {
    /// The members, and the spare.
    devices: Vec<PathBuf>,
    files: Files,
    random: Random,
    figures: DayFigures,
    // Removed last.
    scratch: Scratch,
}

/// The programs that a day needs beside `uraid`.
pub const PROGRAMS: [&str; 7] = ["nbdfuse", "losetup", "mount", "umount", "diff", "mkfs.xfs", "xfs_repair"];

/// Runs a day: each step once to its end, and `kills` times with the server killed in the middle. Afterwards the array
/// is stopped, and `look` gets its members. An error says what did not hold.
pub fn live(seed: u64, kills: u64, look: impl FnOnce(&[PathBuf]) -> Result<(), String>) -> Result<DayFigures, String> {
    let scratch = Scratch::new();
    let mut devices = create_with(&scratch, "day", &ARRAY, &["--bitmap", "internal"]);
    devices.push(scratch.sparse("spare", ARRAY.member_mib << 20));
    let mut day =
        Day { devices, files: Files::default(), random: Random(seed), figures: DayFigures::default(), scratch };
    tree::make(&day.scratch.file("tree"), TREE_BYTES).map_err(|error| error.to_string())?;
    let mut running = day.begin()?;
    for step in STEPS {
        running = day.step(running, step)?;
        for _ in 0..kills {
            running = day.killed(running, step)?;
        }
    }
    day.end(running)?;
    look(&day.devices)?;
    Ok(day.figures)
}

impl Day {
    fn mount_point(&self) -> PathBuf {
        self.scratch.file("mnt")
    }

    fn begin(&self) -> Result<Running, String> {
        let members = &self.devices[..usize::from(ARRAY.members)];
        let server = Server::try_start(self.scratch.path(), members, &[]).map_err(|why| why.to_string())?;
        self.uraid(&server, "speed", &["--min", PASS_SPEED], 0)?;
        let attached = Loop::attach(server.uri(), &self.scratch.file("fuse"))?;
        program("mkfs.xfs", &["-q", "-f", attached.device()])?;
        let mounted = attached.mount(&self.mount_point(), "noatime");
        let from = self.scratch.file("tree").display().to_string();
        program("cp", &["--archive", &from, &self.mount_point().join("tree").display().to_string()])?;
        program("sync", &["--file-system", &self.mount_point().display().to_string()])?;
        let running = Running { mounted, attached, server };
        self.make_whole(&running.server)?;
        Ok(running)
    }

    /// Takes a step while files are written.
    fn step(&mut self, running: Running, step: Step) -> Result<Running, String> {
        let (folder, is_over) = (self.mount_point().join("files"), AtomicBool::new(false));
        let (written, done) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.files.write(&folder, &is_over));
            let done = self.take(step, &running.server);
            is_over.store(true, Ordering::Relaxed);
            (writer.join().expect("it answers with an error"), done)
        });
        let context = |why: String| format!("{step:?}: {why}\n{}", running.server.log());
        done.map_err(context)?;
        written.map_err(|error| context(format!("a client met an error: {error}")))?;
        self.make_whole(&running.server).map_err(context)?;
        self.compare().map_err(context)?;
        self.figures.steps += 1;
        Ok(running)
    }

    /// Kills the server in the middle of a step, and starts it again.
    fn killed(&mut self, running: Running, step: Step) -> Result<Running, String> {
        let delay = Duration::from_millis(self.random.below(KILL_WITHIN_MS));
        if step.takes_a_member_away() {
            self.kill_at_rest(running, step, delay)?;
        } else {
            self.kill_at_work(running, step, delay);
        }
        let again = self.serve_again()?;
        let context = |why: String| format!("{step:?}, killed after {delay:?}: {why}\n{}", again.server.log());
        self.compare().map_err(context)?;
        self.make_whole(&again.server).map_err(context)?;
        // A member may hold a spoiled sector, or a repair may have been interrupted.
        self.uraid(&again.server, "repair", &["--wait"], 0).map_err(context)?;
        self.uraid(&again.server, "check", &["--wait"], 0).map_err(context)?;
        self.compare().map_err(context)?;
        self.figures.kills += 1;
        Ok(again)
    }

    fn kill_at_work(&self, running: Running, step: Step, delay: Duration) {
        let (folder, is_over) = (self.mount_point().join("files"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| self.files.write(&folder, &is_over));
            scope.spawn(|| self.take(step, &running.server));
            std::thread::sleep(delay);
            running.server.end_at_once();
            is_over.store(true, Ordering::Relaxed);
        });
        let Running { mounted, attached, server } = running;
        mounted.abandon();
        drop(attached);
        drop(server);
    }

    fn kill_at_rest(&self, running: Running, step: Step, delay: Duration) -> Result<(), String> {
        let Running { mounted, attached, server } = running;
        mounted.unmount();
        drop(attached);
        wait_for(&server, |shown| state(shown).starts_with("clean"))?;
        std::thread::scope(|scope| {
            scope.spawn(|| self.take(step, &server));
            std::thread::sleep(delay);
            server.end_at_once();
        });
        Ok(())
    }

    fn serve_again(&self) -> Result<Running, String> {
        let deadline = Instant::now() + RELEASE_TIME_MAX;
        let server = loop {
            match Server::try_start(self.scratch.path(), &self.devices, &["--run"]) {
                Ok(server) => break server,
                Err(why) if !why.said.contains("in use") || Instant::now() > deadline => return Err(why.to_string()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        self.uraid(&server, "speed", &["--min", PASS_SPEED], 0)?;
        let attached = Loop::attach(server.uri(), &self.scratch.file("fuse"))?;
        let mounted = attached.mount(&self.mount_point(), "noatime");
        Ok(Running { mounted, attached, server })
    }

    fn compare(&self) -> Result<usize, String> {
        tree::assert_same(&self.scratch.file("tree"), &self.mount_point().join("tree"), "lost+found");
        self.files.check(&self.mount_point().join("files"))
    }

    fn end(&mut self, running: Running) -> Result<(), String> {
        self.figures.files = self.compare()? as u64;
        let Running { mounted, attached, server } = running;
        mounted.unmount();
        program("xfs_repair", &["-n", attached.device()])?;
        let mounted = attached.mount(&self.mount_point(), "ro");
        self.compare()?;
        mounted.unmount();
        drop(attached);
        self.uraid(&server, "check", &["--wait"], 0)?;
        server.stop();
        Ok(())
    }

    fn take(&self, step: Step, server: &Server) -> Result<(), String> {
        match step {
            Step::Fail => {
                let victim = self.device(server, "active sync")?;
                self.uraid(server, "fail", &[&victim], 0)?;
                wait_until_whole(server)?;
                self.uraid(server, "remove", &[&victim], 0)?;
                self.uraid(server, "add", &[&victim], 0)
            }
            Step::Replace => {
                let victim = self.device(server, "active sync")?;
                self.uraid(server, "replace", &[&victim], 0)?;
                wait_until_whole(server)?;
                self.uraid(server, "remove", &[&victim], 0)?;
                self.uraid(server, "add", &[&victim], 0)
            }
            Step::RemoveAndAdd => {
                let spare = self.device(server, "spare")?;
                self.uraid(server, "remove", &[&spare], 0)?;
                self.uraid(server, "add", &[&spare], 0)
            }
            Step::Bitmap => {
                // Until any kill comes.
                for chunk in ["64K", "1M", "64K"] {
                    self.uraid(server, "bitmap", &["none"], 0)?;
                    std::thread::sleep(Duration::from_millis(80));
                    self.uraid(server, "bitmap", &["internal", "--bitmap-chunk", chunk], 0)?;
                    std::thread::sleep(Duration::from_millis(80));
                }
                Ok(())
            }
            Step::ReAdd => {
                // A spare would take the slot before the member comes back.
                let spare = self.device(server, "spare")?;
                self.uraid(server, "remove", &[&spare], 0)?;
                let victim = self.device(server, "active sync")?;
                self.uraid(server, "fail", &[&victim], 0)?;
                self.uraid(server, "remove", &[&victim], 0)?;
                std::thread::sleep(Duration::from_millis(100));
                self.uraid(server, "re-add", &[&victim], 0)?;
                wait_until_whole(server)?;
                self.uraid(server, "add", &[&spare], 0)
            }
            Step::Check => self.uraid(server, "check", &["--wait"], 0),
            Step::Repair => self.spoil_and_repair(server),
            Step::Freeze => {
                let victim = self.device(server, "active sync")?;
                self.uraid(server, "fail", &[&victim], 0)?;
                self.uraid(server, "freeze", &[], 0)?;
                self.uraid(server, "unfreeze", &[], 0)?;
                wait_until_whole(server)
            }
        }
    }

    /// Spoils the end of a member, where no file is.
    fn spoil_and_repair(&self, server: &Server) -> Result<(), String> {
        let member = self.device(server, "active sync")?;
        let path = Path::new(&member);
        let at = end_of_data(path).map_err(|error| format!("{member}: {error}"))? - 512;
        let change = |to: Option<[u8; 512]>| -> std::io::Result<[u8; 512]> {
            let (file, mut bytes) = (File::options().read(true).write(true).open(path)?, [0; 512]);
            file.read_exact_at(&mut bytes, at)?;
            if let Some(to) = to {
                file.write_all_at(&to, at)?;
                file.sync_all()?;
            }
            Ok(bytes)
        };
        let io_error = |error: std::io::Error| format!("{member}: {error}");
        let good = change(None).map_err(io_error)?;
        change(Some(good.map(|byte| !byte))).map_err(io_error)?;
        let found = server.command("check", &["--wait"]);
        if found.code != Some(3) || !found.out.contains(&format!("{member} (slot ")) || !found.out.contains("is wrong")
        {
            return Err(format!("a check does not name {member}: {found:?}"));
        }
        self.uraid(server, "repair", &["--wait"], 0)?;
        self.uraid(server, "check", &["--wait"], 0)?;
        if change(None).map_err(io_error)? != good {
            return Err(format!("a repair has not restored the end of {member}"));
        }
        Ok(())
    }

    /// Waits until nothing is under way, adds every device that is missing, and waits until each slot has a member that is
    /// in sync. The array has a bitmap afterwards.
    fn make_whole(&self, server: &Server) -> Result<(), String> {
        // A start goes on with a copy that a kill has interrupted: the member that was copied is then to be removed.
        wait_until_idle(server)?;
        for device in &self.devices {
            let device = device.display().to_string();
            match state_of(&detail(server)?, &device) {
                Some("faulty") => {
                    self.uraid(server, "remove", &[&device], 0)?;
                    self.uraid(server, "add", &["--force", &device], 0)?;
                }
                Some(_) => {}
                None => self.uraid(server, "add", &["--force", &device], 0)?,
            }
        }
        wait_until_whole(server)?;
        if detail(server)?.contains("Intent Bitmap") {
            return Ok(());
        }
        self.uraid(server, "bitmap", &["internal"], 0)
    }

    /// Any device in this state.
    fn device(&self, server: &Server, state: &str) -> Result<String, String> {
        let shown = detail(server)?;
        let mut devices = self.devices.iter().map(|device| device.display().to_string());
        let found = devices.find(|device| state_of(&shown, device) == Some(state));
        found.ok_or_else(|| format!("no member is {state}: {shown}"))
    }

    fn uraid(&self, server: &Server, verb: &str, words: &[&str], code: i32) -> Result<(), String> {
        let done = server.command(verb, words);
        if done.code == Some(code) { Ok(()) } else { Err(format!("not exit code {code}: {done:?}")) }
    }
}

fn detail(server: &Server) -> Result<String, String> {
    let done = server.command("detail", &[]);
    if done.code == Some(0) { Ok(done.out) } else { Err(format!("{done:?}")) }
}

/// Waits until no pass runs and none is left to do.
fn wait_until_idle(server: &Server) -> Result<(), String> {
    let passes = ["recovering", "resyncing", "checking", "repairing"];
    wait_for(server, |shown| {
        // Between two passes, the state names none.
        passes.iter().all(|word| !state(shown).contains(word)) && !shown.contains(" spare rebuilding ")
    })
}

fn wait_until_whole(server: &Server) -> Result<(), String> {
    let lacks = ["degraded", "recovering", "resyncing"];
    wait_for(server, |shown| lacks.iter().all(|word| !state(shown).contains(word)))
}

fn wait_for(server: &Server, is_wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PASS_TIME_MAX;
    loop {
        let shown = detail(server)?;
        if is_wanted(&shown) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("the array does not get there: {shown}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The words of the line `State`.
fn state(shown: &str) -> &str {
    shown.lines().find_map(|line| line.trim().strip_prefix("State : ")).expect("detail shows a state")
}

/// The state in the device's row of the table of slots.
fn state_of(shown: &str, device: &str) -> Option<&'static str> {
    // After the path there may be an error.
    let mut rows = shown.lines().filter(|line| line.split_whitespace().any(|word| word == device));
    let states = ["active sync", "spare rebuilding", "spare", "faulty"];
    rows.find_map(|row| states.into_iter().find(|state| row.contains(&format!(" {state} "))))
}

/// Where a member's data ends, in bytes. Spec: docs/format/superblock-1.md.
fn end_of_data(member: &Path) -> std::io::Result<u64> {
    let mut superblock = [0; 256];
    File::open(member)?.read_exact_at(&mut superblock, 4096)?;
    let number = |at: usize| u64::from_le_bytes(superblock[at..at + 8].try_into().expect("eight bytes"));
    let (size, data_offset) = (number(80), number(128));
    Ok((data_offset + size) * 512)
}

fn program(name: &str, words: &[&str]) -> Result<(), String> {
    let done = run(&mut foreign::command(name, words));
    if done.code == Some(0) { Ok(()) } else { Err(format!("{done:?}")) }
}
