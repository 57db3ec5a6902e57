//! Minutes of writing and verifying while one member hangs and returns, one fills up, one is pulled, and rude clients
//! come and go.
//! Owns: the plan of it, what must hold at its end. Not here: each of these alone (`hung`, `several`, `pulled`,
//! `rude_clients`).
//! Needs root, losetup, addpart, FUSE, and fio with its nbd engine; says SKIPPED where one is missing. `URAID_SECONDS` says how
//! long (25); figures: `URAID_SECONDS=600 cargo test --release -p uraid --test ten_minutes -- --nocapture`, and
//! `URAID_PLOT=FILE.svg` draws them.

mod common;
#[path = "ten_minutes/probe.rs"]
mod probe;
#[path = "ten_minutes/rude.rs"]
mod rude;

use common::loop_device::LoopDevice;
use common::stubborn::StubbornFile;
use common::tmpfs::Tmpfs;
use common::{MIB, Scratch, Served};
use probe::{Phase, Probes};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MEMBER_BYTES: u64 = 26 * MIB;
/// Where what writes and reads, in bytes of the array of about 96 MiB.
const FIO_BYTES: u64 = 32 * MIB;
/// What the server says of the full member.
const FULL: &str = "no space left under the member";
const PROBES_AT: u64 = 64 * MIB;
const RUDE_AT: u64 = 80 * MIB;
const HANG_MAX: Duration = Duration::from_secs(2);

/// Of the whole time, the share of each phase.
const PHASES: [(Phase, f64); 6] = [
    (Phase("healthy"), 0.15),
    (Phase("rude clients"), 0.15),
    (Phase("a member hangs for 2 s, again and again"), 0.15),
    (Phase("it answers again"), 0.1),
    (Phase("a member fills up"), 0.2),
    (Phase("a member is pulled"), 0.25),
];

/// A partition of a loop device. It can become smaller while it is open, as a disk that is pulled does, and unlike a
/// loop device whose file is cut, it gives no zeroes for what it has lost.
struct Partition {
    path: PathBuf,
    // The last field, so that the partition is removed first.
    disk: LoopDevice,
}

impl Partition {
    fn new(file: &Path) -> Option<Partition> {
        let disk = LoopDevice::with_options(file, &["--partscan"])?;
        let path = PathBuf::from(format!("{}p1", disk.path().display()));
        let sectors = (MEMBER_BYTES / 512 - 2048).to_string();
        let added = Command::new("addpart").arg(disk.path()).args(["1", "2048", &sectors]).status().ok()?;
        (added.success() && path.exists()).then_some(Partition { path, disk })
    }

    fn pull(&self) {
        let resized = Command::new("resizepart").arg(self.disk.path()).args(["1", "1"]).status().expect("resizepart");
        assert!(resized.success());
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _ = Command::new("delpart").arg(self.disk.path()).arg("1").status();
    }
}

/// fio, again and again, until it is told to end. It writes all of its part in random order, reads it back and compares.
fn fio(served: &Served, bytes: &AtomicU64, is_over: &AtomicBool) -> u64 {
    let uri = format!("--uri=nbd+unix:///?socket={}", served.socket().display());
    let mut runs = 0;
    while !is_over.load(Ordering::Relaxed) {
        let size = format!("--size={}", bytes.load(Ordering::Relaxed));
        let seed = format!("--randseed={}", runs + 1);
        let words = ["--name=verify", "--ioengine=nbd", &uri, "--rw=randwrite", "--bsrange=4k-64k", "--blockalign=4k"];
        let more = ["--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"];
        let done = Command::new("fio").args(words).args(more).args([&size, &seed]).output().expect("it is here");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "fio: {}\n{said}\n{}", String::from_utf8_lossy(&done.stdout), served.stderr());
        runs += 1;
    }
    runs
}

/// Kilobytes in memory, and open descriptors.
fn usage(pid: u32) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("each process has one");
    let kilobytes = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    (kilobytes, std::fs::read_dir(format!("/proc/{pid}/fd")).expect("ours").count())
}

struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    hangs: StubbornFile,
    served: Served,
    full: Tmpfs,
    pulled: Partition,
    scratch: Scratch,
}

fn rig() -> Option<Rig> {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 6, MEMBER_BYTES);
    let hangs = StubbornFile::in_place_of(&mut members, 0);
    // A sparse file, with room for all of it.
    let full = Tmpfs::mount(&scratch, &format!("size={}", MEMBER_BYTES + 4 * MIB))?;
    members[1] = full.0.join("m1");
    File::create(&members[1]).and_then(|file| file.set_len(MEMBER_BYTES)).expect("a sparse file");
    let pulled = Partition::new(&members[2])?;
    members[2].clone_from(&pulled.path);
    scratch.create("ten", "-l 6 -n 6 -c 64K --assume-clean", &members);
    let served = scratch.ready(&["--member-timeout", "20s", "--on-full", "fail"], &members);
    Some(Rig { hangs, served, full, pulled, scratch })
}

fn can_run() -> bool {
    let engines = Command::new("fio").arg("--enghelp").output();
    let has_fio =
        engines.is_ok_and(|done| String::from_utf8_lossy(&done.stdout).split_whitespace().any(|one| one == "nbd"));
    if !has_fio {
        eprintln!("SKIPPED ten_minutes: fio with its nbd engine is needed");
    }
    has_fio
}

impl Rig {
    /// What happens in a phase, for so long.
    fn play(&self, phase: usize, fio_bytes: &AtomicU64, time: Duration) {
        let end = Instant::now() + time;
        match phase {
            2 => {
                let hang = HANG_MAX.min(time / 5);
                while Instant::now() + 2 * hang < end {
                    self.hangs.hang();
                    std::thread::sleep(hang);
                    self.hangs.go_on();
                    std::thread::sleep(hang);
                }
            }
            4 => {
                self.full.fill();
                // From here on also much that was never written, for which there is no room.
                fio_bytes.store(2 * FIO_BYTES, Ordering::Relaxed);
                // The run of fio that is under way ends first.
                let limit = Instant::now() + Duration::from_secs(300);
                while !self.served.stderr().contains(FULL) {
                    assert!(Instant::now() < limit, "no write has met the full member: {}", self.served.stderr());
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            5 => self.pulled.pull(),
            _ => {}
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
}

#[test]
fn fio_finds_what_it_wrote_while_members_hang_are_failed_and_pulled_among_rude_clients() {
    if !can_run() {
        return;
    }
    let Some(rig) = rig() else {
        eprintln!(
            "SKIPPED ten_minutes: a tmpfs or a partition of a loop device cannot be made here (needs root, losetup, addpart)"
        );
        return;
    };
    let seconds = std::env::var("URAID_SECONDS").map_or(25.0, |text| text.parse().expect("URAID_SECONDS is a number"));
    let (is_over, is_rude, fio_bytes) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(FIO_BYTES));
    let probes = Probes::new(PROBES_AT);
    let mut used = Vec::new();
    let runs = std::thread::scope(|scope| {
        let fio = scope.spawn(|| fio(&rig.served, &fio_bytes, &is_over));
        probes.start(scope, &rig.served, &is_over);
        rude::start(scope, &rig.served, RUDE_AT, &is_rude, &is_over);
        for (phase, (_, share)) in PHASES.iter().enumerate() {
            probes.enter(phase);
            is_rude.store(phase > 0, Ordering::Relaxed);
            rig.play(phase, &fio_bytes, Duration::from_secs_f64(seconds * share));
            used.push(usage(rig.served.pid()));
        }
        is_over.store(true, Ordering::Relaxed);
        fio.join().expect("fio finds what it wrote")
    });
    assert!(runs > 0);
    println!("fio wrote and verified {runs} times; 0 errors");
    println!("{}", probes.table(&PHASES.map(|(phase, _)| phase), &used));
    if let Some(path) = std::env::var_os("URAID_PLOT") {
        std::fs::write(path, probes.plot(&PHASES)).expect("the plot's file");
    }
    let said = rig.served.stderr();
    assert!(!said.contains("frozen"), "{said}");
    assert_eq!(said.matches(" is faulty: ").count(), 2, "the full one and the pulled one, no other: {said}");
    assert!(said.contains(FULL), "{said}");
    // Buffers take memory when they are first used, as they all are while a member hangs; then it is flat. Rude clients
    // have up to 100 descriptors at a time.
    let (settled, last) = (used[3], used[PHASES.len() - 1]);
    assert!(last.0 < settled.0 + (64 << 10), "memory grew, in KiB: {used:?}");
    assert!(last.1 < 256, "descriptors grew: {used:?}");
    let Rig { served, scratch: _scratch, hangs: _hangs, full: _full, pulled: _pulled } = rig;
    let done = served.stop();
    assert_eq!(done.code, Some(0), "{done:?}");
}
