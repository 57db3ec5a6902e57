//! Arrays whose member md is rebuilding: cut off in the middle, served by uraid as they are, finished by the kernel.
//! Owns: which arrays, what must hold. Not here: how anything runs (`host`, `machine`), whole arrays (`matrix`).
//! Invariant: a check that did not run has failed.
//!
//! The kernel makes an array and fills it, and begins to rebuild a member: of a new raid4 or raid5 the last one, else a
//! spare after a failure, a disk that was added, or a replacement. It is stopped, or loses its power, half way.
//! `uraid serve` without options reads the same bytes and changes nothing. The kernel then goes on to the end, `check`s,
//! and reads the same bytes, also without slot 0.

use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::{Lab, checked, tally_of, twice};
use crate::stage::Tally;
use std::path::{Path, PathBuf};

/// What the guest does, in two boots: `begin` and `finish`.
const SCRIPT: &str = include_str!("../../../../tests/vm/rebuild.sh");

/// The first MiB is for metadata.
const MEMBER_BYTES: u64 = 2 << 20;

/// How the rebuilding comes about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// mdadm makes a raid4 or raid5 with its last member missing and a spare.
    Create,
    /// A member fails, and a spare takes its slot.
    Spare,
    /// A member fails and is removed, and another disk is added.
    Add,
    /// A spare replaces a member that still works.
    Replace,
}

/// How the kernel is interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stop,
    PowerCut,
}

struct Case {
    name: String,
    level: &'static str,
    layout: &'static str,
    slots: usize,
    how: How,
    end: End,
}

impl Case {
    fn argument(&self) -> String {
        let how = match self.how {
            How::Create => "create",
            How::Spare => "spare",
            How::Add => "add",
            How::Replace => "replace",
        };
        let end = match self.end {
            End::Stop => "stop",
            End::PowerCut => "cut",
        };
        let Case { name, level, layout, slots, .. } = self;
        format!("{name}:{level}:{layout}:{slots}:{how}:{end}")
    }

    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        let count = if self.how == How::Create { self.slots } else { self.slots + 1 };
        (0..count).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    /// All that a user would give: a member that failed stays away.
    fn given(&self, folder: &Path) -> Vec<PathBuf> {
        let has_failed = matches!(self.how, How::Spare | How::Add);
        let images = self.images(folder).into_iter().enumerate();
        images.filter(|(at, _)| !(has_failed && *at == 1)).map(|(_, image)| image).collect()
    }

    fn title(&self, release: Release) -> String {
        let layout = if self.layout.is_empty() { String::new() } else { format!(" {}", self.layout) };
        format!("{}: raid{}{layout}, {}", release.suite(), self.level, self.argument())
    }
}

/// The short form: one array of each kind, on one kernel. Tells its own tale line by line.
pub(crate) fn run_short() -> Lab<Tally> {
    let cases = [
        ("5", "", 3, How::Create, End::Stop),
        ("1", "", 2, How::Spare, End::PowerCut),
        ("10", "n2", 4, How::Add, End::Stop),
        ("6", "", 4, How::Replace, End::Stop),
    ];
    run_on(Release::Trixie, &numbered(&cases))
}

/// Every redundant level, every way to be rebuilt, every end, on both kernels.
pub(crate) fn run_full() -> Tally {
    let levels =
        [("1", "", 2), ("10", "n2", 4), ("10", "f2", 4), ("10", "o2", 4), ("4", "", 4), ("5", "", 4), ("6", "", 5)];
    let mut sum = Tally::default();
    for release in [Release::Trixie, Release::Bookworm] {
        for end in [End::Stop, End::PowerCut] {
            let mut cases = Vec::new();
            for (level, layout, slots) in levels {
                let ways: &[How] = match level {
                    "4" | "5" => &[How::Create, How::Spare, How::Add, How::Replace],
                    _ => &[How::Spare, How::Add, How::Replace],
                };
                cases.extend(ways.iter().map(|how| (level, layout, slots, *how, end)));
            }
            // More disks than these make the guest's boot slow out of proportion.
            for batch in numbered(&cases).chunks(12) {
                sum.add(tally_of(run_on(release, batch)));
            }
        }
    }
    sum
}

fn numbered(cases: &[(&'static str, &'static str, usize, How, End)]) -> Vec<Case> {
    let case =
        |(number, &(level, layout, slots, how, end)): (usize, &(&'static str, &'static str, usize, How, End))| Case {
            name: format!("b{number}"),
            level,
            layout,
            slots,
            how,
            end,
        };
    cases.iter().enumerate().map(case).collect()
}

fn run_on(release: Release, cases: &[Case]) -> Lab<Tally> {
    let uraid = host::uraid()?;
    twice(&format!("{} arrays being rebuilt", cases.len()), || run_once(&uraid, release, cases))
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Tally> {
    let scratch = Scratch::new("uraid-rebuild")?;
    let folder = scratch.path.as_path();
    for image in cases.iter().flat_map(|case| case.images(folder)) {
        host::empty_image(&image, MEMBER_BYTES)?;
    }
    let began = boot(release, folder, "begin", cases)?;
    let mut sum = Tally::default();
    let fact = |facts: &Facts, case: &Case, key: &str| {
        facts.get(&(case.name.clone(), key.to_string())).cloned().unwrap_or_else(|| format!("nothing about {key}"))
    };
    for case in cases {
        let wrote = fact(&began, case, "wrote");
        sum.add(checked(&format!("{}: served", case.title(release)), serve(uraid, folder, case), &wrote));
    }
    let finished = boot(release, folder, "finish", cases)?;
    for case in cases {
        let wrote = fact(&began, case, "wrote");
        let wanted =
            [("state", "in_sync"), ("degraded", "0"), ("mismatches", "0"), ("read", &wrote), ("rebuilt", &wrote)];
        for (key, wanted) in wanted {
            let title = format!("{}: the kernel goes on, {key}", case.title(release));
            sum.add(checked(&title, Ok(fact(&finished, case, key)), wanted));
        }
    }
    Ok(sum)
}

/// The sha256 of the array as `uraid serve` without options gives it; the members must stay as they are.
fn serve(uraid: &Path, folder: &Path, case: &Case) -> Lab<String> {
    let members = case.given(folder);
    let sums = || members.iter().map(|image| host::sha256(image)).collect::<Lab<Vec<String>>>();
    let before = sums()?;
    let whole = folder.join("whole");
    let served = Served::start(uraid, folder, &[], &members)?;
    host::nbdcopy(&served.uri, &whole.display().to_string())?;
    served.stop()?;
    if sums()? == before { host::sha256(&whole) } else { Ok("a member was changed".to_string()) }
}

fn boot(release: Release, folder: &Path, task: &str, cases: &[Case]) -> Lab<Facts> {
    let mut arguments = vec![task.to_string()];
    arguments.extend(cases.iter().map(Case::argument));
    let disk = |image| Disk { image, is_read_only: false };
    let disks = cases.iter().flat_map(|case| case.images(folder)).map(disk).collect();
    Machine { release, disks, script: SCRIPT.to_string(), arguments, seconds_max: 400 }.facts()
}
