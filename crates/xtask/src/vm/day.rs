//! The members that a day in the life of an array has left (`uraid-day`), seen by the kernel.
//! Owns: what must hold of them. Not here: the day (`uraid_blackbox::day`), how anything runs (`machine`).
//! Invariant: a check that did not run has failed.

use super::kernel::Release;
use super::machine::{Disk, Machine, Scratch};
use super::{Lab, checked, host, output_of, twice};
use crate::programs::stage::Tally;
use crate::project;
use std::process::Command;

const SCRIPT: &str = include_str!("../../../../tests/vm/day.sh");

/// The members and the spare, as `uraid-day` names them.
const DEVICES: [&str; 7] = ["m0", "m1", "m2", "m3", "m4", "m5", "spare"];

/// Lives through a day, and gives its members to the kernel: it has nothing to resync or recover, and its `check` counts 0.
pub(crate) fn run(release: Release) -> Lab<Tally> {
    let uraid = host::uraid()?;
    let build = ["build", "--quiet", "--release", "--package", "uraid-blackbox", "--bin", "uraid-day"];
    output_of(&mut project::cargo(&build))?;
    let scratch = Scratch::new("uraid-day")?;
    let mut day = Command::new(project::target().join("release/uraid-day"));
    println!("{}", output_of(day.arg("--keep").arg(&scratch.path).env("URAID_BIN", uraid))?.trim());
    let facts = twice("the members of a day", || {
        let disk = |name: &str| Disk { image: scratch.path.join(name), is_read_only: false };
        let disks = DEVICES.map(disk).into();
        Machine { release, disks, script: SCRIPT.into(), arguments: Vec::new(), seconds_max: 400, programs: Vec::new() }
            .facts()
    })?;
    let mut sum = Tally::one(true);
    for (key, wanted) in [("began", "idle"), ("degraded", "0"), ("bitmap", "internal"), ("mismatches", "0")] {
        let found = facts.get(&("day".to_string(), key.to_string())).cloned();
        let title = format!("a day in the life: the kernel goes on, {key}");
        sum.add(checked(&title, Ok(found.unwrap_or_else(|| format!("nothing about {key}"))), wanted));
    }
    Ok(sum)
}
