//! Degraded arrays that are taken over: one side writes while a member is missing, the other continues.
//! Owns: which arrays, what must hold. Not here: how anything runs (`host`, `machine`), arrays in other states (`matrix`).
//! Invariant: a check that did not run has failed.
//!
//! From us: `uraid serve --run` writes without slot 1. The kernel takes the array over, gets an empty disk for the slot,
//! rebuilds it, `check`s, and then reads the array without slot 0: the rebuilt data must be what uraid had written.
//! From the kernel: it writes without slot 1, we read it and write on without slot 1, and the kernel rebuilds and `check`s.

use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::{Lab, output_of};
use crate::programs::stage::Tally;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest does, in two boots: `write` and `take-over`.
const SCRIPT: &str = include_str!("../../../../tests/vm/handover.sh");

const MEMBER_BYTES: u64 = 3 << 20;

/// Level and members; their metadata versions take turns.
const ARRAYS: &[(&str, usize, &str)] = &[("1", 2, "1.0"), ("5", 4, "1.1"), ("6", 5, "1.2"), ("10", 4, "1.0")];

/// Runs both directions; prints a line for each array and direction.
pub(crate) fn run(release: Release) -> Lab<Tally> {
    let uraid = host::uraid()?;
    let scratch = Scratch::new("uraid-handover")?;
    let folder = scratch.path.as_path();
    let mut wanted = BTreeMap::new();
    for (level, members, metadata) in ARRAYS {
        let ours = images(folder, "u", level, *members);
        for image in &ours {
            host::random_image(image, MEMBER_BYTES)?;
        }
        let mut create = Command::new(&uraid);
        create.args(["create", "--level", level, "--raid-devices", &members.to_string(), "--metadata", metadata]);
        output_of(create.args(&ours))?;
        // The first resync needs all of them.
        Served::start(&uraid, folder, &[], &ours)?.stop()?;
        wanted.insert(format!("u-{level}"), write_degraded(&uraid, folder, &ours, 512 * 2047)?);
        for image in images(folder, "k", level, *members) {
            host::empty_image(&image, MEMBER_BYTES)?;
        }
    }
    let wrote = boot(release, folder, "write", "k")?;
    let mut sum = Tally::default();
    for (level, members, _) in ARRAYS {
        let theirs = images(folder, "k", level, *members);
        let left = wrote.get(&(format!("k-{level}"), "left".to_string()));
        let found = read_degraded(&uraid, folder, &theirs)?;
        tell(&mut sum, &format!("raid{level}: we read what the kernel wrote degraded"), left == Some(&found));
        wanted.insert(format!("k-{level}"), write_degraded(&uraid, folder, &theirs, 512 * 999)?);
    }
    let took = boot(release, folder, "take-over", "uk")?;
    for (name, sha) in &wanted {
        for (key, wanted) in [("read", sha.as_str()), ("missing", "0"), ("mismatches", "0"), ("rebuilt", sha.as_str())]
        {
            let found = took.get(&(name.clone(), key.to_string())).map(String::as_str);
            let words = format!("{name}: the kernel takes over, {key}: {}", found.unwrap_or("nothing"));
            tell(&mut sum, &words, found == Some(wanted));
        }
    }
    Ok(sum)
}

fn tell(sum: &mut Tally, words: &str, holds: bool) {
    println!("{}{words}", if holds { "" } else { "FAILED " });
    sum.passed += u64::from(holds);
    sum.failed += u64::from(!holds);
}

fn images(folder: &Path, maker: &str, level: &str, members: usize) -> Vec<PathBuf> {
    (0..members).map(|slot| folder.join(format!("{maker}-{level}-{slot}"))).collect()
}

/// All but slot 1, which counts as lost.
fn staying(members: &[PathBuf]) -> Vec<PathBuf> {
    members.iter().enumerate().filter(|(slot, _)| *slot != 1).map(|(_, path)| path.clone()).collect()
}

/// Writes this many random bytes without slot 1; returns the sha256 of the whole content. Slot 1 becomes an empty disk.
fn write_degraded(uraid: &Path, folder: &Path, members: &[PathBuf], bytes: u64) -> Lab<String> {
    let served = Served::start(uraid, folder, &["--run"], &staying(members))?;
    let sum = served.fill_and_stop(folder, bytes)?;
    host::empty_image(&members[1], MEMBER_BYTES)?;
    Ok(sum)
}

fn read_degraded(uraid: &Path, folder: &Path, members: &[PathBuf]) -> Lab<String> {
    let whole = folder.join("whole");
    let served = Served::start(uraid, folder, &["--read-only", "--run"], &staying(members))?;
    host::nbdcopy(&served.uri, &whole.display().to_string())?;
    served.stop()?;
    host::sha256(&whole)
}

fn boot(release: Release, folder: &Path, task: &str, makers: &str) -> Lab<Facts> {
    let mut machine = Machine {
        release,
        disks: Vec::new(),
        script: SCRIPT.to_string(),
        arguments: vec![task.to_string()],
        seconds_max: 400,
        programs: Vec::new(),
    };
    for maker in makers.chars() {
        for (level, members, metadata) in ARRAYS {
            machine.arguments.push(format!("{maker}-{level}:{level}:{members}:{metadata}"));
            for image in images(folder, &maker.to_string(), level, *members) {
                machine.disks.push(Disk { image, is_read_only: false });
            }
        }
    }
    machine.facts()
}
