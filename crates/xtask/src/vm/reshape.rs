//! Arrays on which md was stopped in the middle of a reshape, copied by uraid.
//! Owns: which reshapes, what must hold. Not here: how anything runs (`host`, `machine`).
//! Invariant: a check that did not run has failed.
//!
//! The kernel makes an array, fills it, and begins to reshape it: more or fewer members, another chunk, level or layout.
//! Half-way it is written on both sides of the position, read, and stopped, or it loses its power. `uraid copy`
//! reads the same bytes and changes no member.

use super::host;
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::{Lab, checked, output_of, tally_of, twice};
use crate::programs::stage::Tally;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest does.
const SCRIPT: &str = include_str!("../../../../tests/vm/reshape.sh");

/// The first 2 MiB are for metadata, and room into which the data can move.
const MEMBER_BYTES: u64 = 24 << 20;

struct Case {
    name: String,
    level: &'static str,
    layout: &'static str,
    slots: usize,
    spares: usize,
    /// As `mdadm --grow` takes it, with `,` for a space.
    grow: &'static str,
    is_cut: bool,
}

impl Case {
    fn argument(&self) -> String {
        let Case { name, level, layout, slots, spares, grow, is_cut } = self;
        let end = if *is_cut { "cut" } else { "stop" };
        format!("{name}:{level}:{layout}:{slots}:{spares}:{end}:{grow}")
    }

    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.slots + self.spares).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    fn title(&self, release: Release) -> String {
        format!("{}: reshape, {}", release.suite(), self.argument())
    }
}

const FEWER_OF_5: &str = "--array-size=32768,--raid-devices=3";

/// Each kind of reshape, on both kernels, stopped and cut off.
pub(crate) fn run_full(chosen: Option<Release>) -> Tally {
    let kinds = [
        ("5", "", 3, 1, "--raid-devices=4"),
        ("5", "", 4, 0, FEWER_OF_5),
        ("5", "", 4, 0, "--chunk=128"),
        ("5", "", 4, 0, "--layout=ra"),
        ("5", "", 3, 1, "--level=6,--raid-devices=4"),
        ("6", "", 4, 2, "--raid-devices=6"),
        ("4", "", 3, 1, "--raid-devices=4"),
        ("10", "n2", 4, 2, "--raid-devices=6"),
    ];
    let mut sum = Tally::default();
    for release in Release::both_or(chosen) {
        for is_cut in [false, true] {
            let cases = kinds.iter().enumerate().map(|(number, &(level, layout, slots, spares, grow))| Case {
                name: format!("g{number}"),
                level,
                layout,
                slots,
                spares,
                grow,
                is_cut,
            });
            // Few at a time: each is caught half-way while it is slowed down.
            for batch in cases.collect::<Vec<Case>>().chunks(4) {
                sum.add(tally_of(run_on(release, batch)));
            }
        }
    }
    sum
}

fn run_on(release: Release, cases: &[Case]) -> Lab<Tally> {
    let uraid = host::uraid()?;
    twice(&format!("{} arrays being reshaped", cases.len()), || run_once(&uraid, release, cases))
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Tally> {
    let scratch = Scratch::new("uraid-reshape")?;
    let folder = scratch.path.as_path();
    for image in cases.iter().flat_map(|case| case.images(folder)) {
        host::empty_image(&image, MEMBER_BYTES)?;
    }
    let facts = boot(release, folder, cases)?;
    let mut sum = Tally::default();
    for case in cases {
        let fact = |key: &str| {
            let found = facts.get(&(case.name.clone(), key.to_string()));
            found.cloned().unwrap_or_else(|| format!("nothing about {key}"))
        };
        let title = case.title(release);
        sum.add(checked(&format!("{title}: half-way"), Ok(fact("position")), "inside"));
        sum.add(checked(&format!("{title}: copied"), copy(uraid, folder, case), &fact("read")));
    }
    Ok(sum)
}

/// The sha256 of `uraid copy`; the members must stay as they are.
fn copy(uraid: &Path, folder: &Path, case: &Case) -> Lab<String> {
    let members = case.images(folder);
    let sums = || members.iter().map(|image| host::sha256(image)).collect::<Lab<Vec<String>>>();
    let before = sums()?;
    let whole = folder.join(format!("{}.copy", case.name));
    output_of(Command::new(uraid).arg("copy").args(&members).arg(&whole))?;
    if sums()? == before { host::sha256(&whole) } else { Ok("a member was changed".to_string()) }
}

fn boot(release: Release, folder: &Path, cases: &[Case]) -> Lab<Facts> {
    let arguments = cases.iter().map(Case::argument).collect();
    let disk = |image| Disk { image, is_read_only: false };
    let disks = cases.iter().flat_map(|case| case.images(folder)).map(disk).collect();
    Machine { release, disks, script: SCRIPT.to_string(), arguments, seconds_max: 600, programs: Vec::new() }.facts()
}
