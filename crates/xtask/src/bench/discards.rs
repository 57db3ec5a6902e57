//! `cargo xtask bench discards`: mkfs.xfs with its discards on parity arrays, beside raid0 of as many members.
//! Owns: sparse members of 1900 GiB in memory, the server and the loop device on it, the table. Not here: what an array
//! does with a discard. Invariant: each round measures every array once; whatever happens, device and server are gone.
//!
//! mkfs.xfs discards 2 GiB at a time and waits for each. Where the stripe does not divide that, every discard begins and
//! ends within a row: 1.5 MiB, for raid5 of 4 with chunks of 512 KiB.

use super::nbd::spread;
use super::{Run, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MEMBER_BYTES: u64 = 1900 << 30;
const MEMBERS: [usize; 4] = [3, 4, 5, 6];
/// Making and serving an array, the file system, the end of it.
const ONE: Duration = Duration::from_millis(1500);

/// Levels that such a number of members can have. The first one is what the others are compared with.
fn levels(members: usize) -> impl Iterator<Item = &'static str> {
    ["raid0", "raid4", "raid5", "raid6"].into_iter().filter(move |level| *level != "raid6" || members > 3)
}

/// The approximate duration.
pub(super) fn time(run: &Run) -> Duration {
    ONE * (MEMBERS.iter().map(|members| levels(*members).count()).sum::<usize>() as u64 * run.rounds) as u32
}

/// A served array of sparse files in memory, as a loop device.
struct Served<'a> {
    uraid: &'a Path,
    directory: PathBuf,
    is_served: bool,
    device: Option<String>,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let best_effort = |command: &mut Command| {
            if let Err(what) = succeed(command) {
                eprintln!("bench: {what}");
            }
        };
        if let Some(device) = &self.device {
            best_effort(Command::new("losetup").args(["--detach", device]));
        }
        if self.is_served {
            best_effort(self.uraid("stop").arg("discards"));
        }
        // If it cannot be removed, its name says whose it is.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl<'a> Served<'a> {
    fn new(uraid: &'a Path, level: &str, members: usize) -> Result<Served<'a>, String> {
        let directory = PathBuf::from(format!("/dev/shm/uraid-discards-{}", std::process::id()));
        let mut served = Served { uraid, directory, is_served: false, device: None };
        let failed = |error: std::io::Error| format!("/dev/shm: {error}");
        let files = served.directory.join("files");
        std::fs::create_dir_all(&files).map_err(failed)?;
        let paths: Vec<PathBuf> = (0..members).map(|n| served.directory.join(format!("member-{n}"))).collect();
        for path in &paths {
            std::fs::File::create(path).and_then(|file| file.set_len(MEMBER_BYTES)).map_err(failed)?;
        }
        let mut create = served.uraid("create");
        create.args(["--level", level, "--raid-devices", &members.to_string(), "--name", "discards"]);
        if level != "raid0" {
            create.arg("--assume-clean");
        }
        succeed(create.args(&paths))?;
        succeed(served.uraid("serve").arg("--fuse").arg(&files).arg("--background").args(&paths))?;
        served.is_served = true;
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(files.join("discards"));
        served.device = Some(succeed(&mut attach)?.trim().to_owned());
        Ok(served)
    }

    fn uraid(&self, verb: &str) -> Command {
        let mut command = Command::new(self.uraid);
        command.arg(verb).env("XDG_RUNTIME_DIR", &self.directory).env_remove("URAID_RUNTIME_DIR");
        command
    }

    /// The seconds of mkfs.xfs.
    fn measure(&self) -> Result<f64, String> {
        let device = self.device.as_deref().expect("a served array has a device");
        let began = Instant::now();
        succeed(Command::new("mkfs.xfs").args(["-q", "-f", device]))?;
        Ok(began.elapsed().as_secs_f64())
    }
}

/// Measures all levels, in turn.
pub(super) fn measure(run: &Run) -> Result<(), String> {
    println!("| members of 1900 GiB | level | seconds of mkfs.xfs (min..max) | of raid0's |");
    println!("|--:|---|--:|--:|");
    for members in MEMBERS {
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); levels(members).count()];
        for _ in 0..run.rounds {
            for (level, of_level) in levels(members).zip(&mut seconds) {
                of_level.push(Served::new(&run.uraid, level, members)?.measure()?);
            }
        }
        let spreads: Vec<_> = seconds.into_iter().map(|of_level| spread(of_level.into_iter())).collect();
        for (level, own) in levels(members).zip(&spreads) {
            let ratio = own.median / spreads[0].median;
            println!("| {members} | {level} | {:.2} ({:.2}..{:.2}) | {ratio:.2} |", own.median, own.min, own.max);
        }
    }
    Ok(())
}
