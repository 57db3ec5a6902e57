//! Arrays of files with direct I/O, compared with fio over io_uring on the same files.
//! Owns: the file system they are on, alternating rounds, the table. Not here: the loop that is measured (`uraid bench`).
//! Invariant: both read the same files directly, with the same size and as many requests in flight, within one round;
//! whatever happens, the file system is unmounted.
//!
//! The files are on XFS on a loop device in memory: with a disk both would mostly wait, which hides their own cost. The
//! loop device's work is done by kernel threads, for both alike, beside the measured thread. So this needs two otherwise
//! idle processors, and root for the device and the mount.

use super::nbd::spread;
use super::{Run, succeed};
use crate::programs::packages;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MEMBER_MIB: usize = 160;
const IMAGE_BYTES: u64 = 3 << 30;
const DEPTH: &str = "--iodepth=32";
/// Making the file system and filling the members.
const SETUP: Duration = Duration::from_secs(15);
/// `uraid bench` also measures `replay` and `ideal`, twice the array's time, which are not used here.
const SIDES: u32 = 4;
/// The start of a program, the assembly of an array.
const START: Duration = Duration::from_millis(500);

struct Job {
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    /// How fio goes from one file to the next.
    service: &'static str,
}

const JOBS: [Job; 2] = [
    Job { name: "4 KiB random reads", rw: "randread", block: "4k", service: "random" },
    Job { name: "128 KiB sequential reads", rw: "read", block: "128k", service: "roundrobin" },
];

struct Level {
    name: &'static str,
    members: usize,
}

const LEVELS: [Level; 2] = [Level { name: "raid0", members: 4 }, Level { name: "raid6", members: 8 }];

/// XFS on a loop device on a file on tmpfs; all of it is gone with the run.
struct Disk {
    directory: PathBuf,
    device: Option<String>,
    is_mounted: bool,
}

impl Drop for Disk {
    fn drop(&mut self) {
        let best_effort = |command: &mut Command| {
            if let Err(what) = succeed(command) {
                eprintln!("bench: {what}");
            }
        };
        if self.is_mounted {
            best_effort(Command::new("umount").arg(self.mount()));
        }
        if let Some(device) = &self.device {
            best_effort(Command::new("losetup").args(["--detach", device]));
        }
        // It may be unmounted already.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Disk {
    fn new() -> Result<Disk, String> {
        let directory = PathBuf::from(format!("/dev/shm/uraid-direct-{}", std::process::id()));
        let mut disk = Disk { directory, device: None, is_mounted: false };
        let failed = |error: std::io::Error| format!("{}: {error}", disk.directory.display());
        std::fs::create_dir_all(disk.mount()).map_err(failed)?;
        let image = disk.directory.join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(failed)?;
        let device = succeed(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let device = disk.device.insert(device.trim().to_owned()).clone();
        succeed(Command::new("mkfs.xfs").args(["-q", "-f", &device]))?;
        succeed(Command::new("mount").arg(&device).arg(disk.mount()))?;
        disk.is_mounted = true;
        Ok(disk)
    }

    fn mount(&self) -> PathBuf {
        self.directory.join("mount")
    }

    /// Members of a new array, fully written: reading a hole would not access the disk.
    fn array(&self, uraid: &Path, level: &Level) -> Result<Vec<PathBuf>, String> {
        let mut random = 1u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        })
        .take(1 << 20)
        .collect();
        let fill = |path: &Path| {
            let mut file = std::fs::File::create(path)?;
            (0..MEMBER_MIB).try_for_each(|_| file.write_all(&bytes))?;
            file.sync_all()
        };
        let paths: Vec<PathBuf> =
            (0..level.members).map(|n| self.mount().join(format!("{}-{n}", level.name))).collect();
        for path in &paths {
            fill(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut create = Command::new(uraid);
        create.args(["create", "--level", level.name, "--raid-devices", &level.members.to_string()]);
        create.args(["--chunk", "64K", "--name", level.name, "--assume-clean"]).args(&paths);
        succeed(create.env("URAID_RUNTIME_DIR", &self.directory))?;
        Ok(paths)
    }
}

#[derive(Clone, Copy)]
struct Sample {
    requests_per_second: f64,
    /// CPU time of the measuring thread per request.
    cpu_nanos: f64,
}

fn array(uraid: &Path, paths: &[PathBuf], job: &Job, millis: u64) -> Result<Sample, String> {
    let mut command = Command::new(uraid);
    command.args(["bench", "--rw", job.rw, "--bs", job.block, DEPTH, "--rounds", "1", "--gtod-reduce", "--json"]);
    let text = succeed(command.args(["--runtime", &format!("{millis}ms")]).args(paths))?;
    let number = |key: &str| {
        let rest = text.split_once(&format!("\"{key}\": ")).map_or("", |(_, rest)| rest);
        let word = rest.split([',', '\n']).next().unwrap_or_default();
        word.parse::<f64>().map_err(|_| format!("uraid bench printed {word:?} as {key}, expected a number"))
    };
    Ok(Sample { requests_per_second: number("array")?, cpu_nanos: number("cpu_ns_per_io")? })
}

fn fio(paths: &[PathBuf], job: &Job, millis: u64) -> Result<Sample, String> {
    let names: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
    let mut command = Command::new("fio");
    command.args(["--name=bench", "--ioengine=io_uring", "--direct=1", "--norandommap", "--gtod_reduce=1", DEPTH]);
    command.args(["--time_based", "--output-format=terse", "--terse-version=3"]);
    command.arg(format!("--filename={}", names.join(":"))).arg(format!("--runtime={millis}ms"));
    command.arg(format!("--rw={}", job.rw)).arg(format!("--bs={}", job.block));
    let output = succeed(command.arg(format!("--file_service_type={}", job.service)))?;
    let line = output.lines().find(|line| line.starts_with("3;")).ok_or("fio printed no result")?;
    // Requests per second of reads; user and system time in percent.
    let field = |at: usize| {
        let text = line.split(';').nth(at).unwrap_or("nothing").trim_end_matches('%');
        text.parse::<f64>().map_err(|_| format!("fio printed {text:?}, expected a number"))
    };
    let requests_per_second = field(7)?;
    Ok(Sample { requests_per_second, cpu_nanos: (field(87)? + field(88)?) * 1e7 / requests_per_second })
}

/// How long [`measure`] takes, about.
pub(super) fn time(run: &Run) -> Duration {
    let each = Duration::from_millis(millis(run)) * SIDES + 2 * START;
    SETUP + each * (LEVELS.len() * JOBS.len()) as u32 * run.rounds as u32
}

fn millis(run: &Run) -> u64 {
    run.seconds * 1000 / 6
}

pub(super) fn measure(run: &Run) -> Result<(), String> {
    for program in ["fio", "losetup", "mkfs.xfs"] {
        packages::find(program).ok_or_else(|| format!("{program} is not installed: cargo xtask packages"))?;
    }
    let disk = Disk::new()?;
    println!(
        "| array | work | requests/s | fio's | of fio's, by round (min..max) | CPU ns | fio's | by CPU of fio's |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|");
    for level in &LEVELS {
        let paths = disk.array(&run.uraid, level)?;
        for job in &JOBS {
            let mut samples = Vec::new();
            for round in 0..run.rounds {
                let ours = || array(&run.uraid, &paths, job, millis(run));
                let theirs = || fio(&paths, job, millis(run));
                samples.push(if round % 2 == 0 {
                    let ours = ours()?;
                    (ours, theirs()?)
                } else {
                    let theirs = theirs()?;
                    (ours()?, theirs)
                });
            }
            print_line(level, job, &samples);
        }
    }
    Ok(())
}

fn print_line(level: &Level, job: &Job, samples: &[(Sample, Sample)]) {
    let of = |what: fn(&(Sample, Sample)) -> f64| spread(samples.iter().map(what));
    let ratio = of(|(ours, theirs)| ours.requests_per_second / theirs.requests_per_second);
    let by_cpu = of(|(ours, theirs)| theirs.cpu_nanos / ours.cpu_nanos);
    println!(
        "| {}, {} members | {} | {:.0} | {:.0} | {:.2} ({:.2}..{:.2}) | {:.0} | {:.0} | {:.2} ({:.2}..{:.2}) |",
        level.name,
        level.members,
        job.name,
        of(|(ours, _)| ours.requests_per_second).median,
        of(|(_, theirs)| theirs.requests_per_second).median,
        ratio.median,
        ratio.min,
        ratio.max,
        of(|(ours, _)| ours.cpu_nanos).median,
        of(|(_, theirs)| theirs.cpu_nanos).median,
        by_cpu.median,
        by_cpu.min,
        by_cpu.max,
    );
}
