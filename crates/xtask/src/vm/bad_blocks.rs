//! Arrays whose members have lists of bad blocks, from the kernel and from uraid.
//! Owns: which arrays, uraid's part, what must hold. Not here: how anything runs (`host`, `machine`), the kernel's part
//! (`tests/vm/bad_blocks.sh`).
//! Invariant: a check that did not run has failed.
//!
//! The kernel lists two ranges of member 1, and these sectors are spoiled. uraid must know the list and read none of them;
//! it writes over the first range, and to member 0, which cannot write eight of these sectors. Then the kernel must know
//! both lists as uraid left them, read what was written, and find nothing wrong in a check.

use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::recovery;
use super::{Lab, LabError, checked, lab_error, output_of, tally_of, twice};
use crate::programs::stage::Tally;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("../../../../tests/vm/bad_blocks.sh");

const MEMBER_BYTES: u64 = 4 << 20;

/// What member 0 cannot write: sectors of its data.
const BROKEN: (u64, u64) = (40, 8);

/// How long uraid may need to narrow its list down to these.
const NARROW_TIME_MAX: Duration = Duration::from_secs(10);

type Shape = (&'static str, &'static str, usize);

struct Case {
    name: String,
    shape: Shape,
    metadata: &'static str,
}

/// What uraid read first, what it then found on member 1's list, what it left.
struct Left {
    read: String,
    found: String,
    ours: String,
    theirs: String,
    wanted: String,
}

impl Case {
    fn argument(&self) -> String {
        let Case { name, shape: (level, layout, slots), metadata } = self;
        format!("{name}:{level}:{layout}:{slots}:{metadata}")
    }

    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.shape.2).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    fn title(&self, release: Release) -> String {
        let (level, layout, _) = self.shape;
        let layout = if layout.is_empty() { String::new() } else { format!(" {layout}") };
        format!("{}: raid{level}{layout} with bad blocks, {}", release.suite(), self.argument())
    }

    /// uraid's part.
    fn serve(&self, uraid: &Path, folder: &Path) -> Lab<Left> {
        let images = self.images(folder);
        let (found, _) = facts_of(uraid, &images[1])?;
        let (_, data) = facts_of(uraid, &images[0])?;
        let (start, length) = BROKEN;
        let mut given = images.clone();
        given[0] = PathBuf::from(format!("bad:{}+{length}:{}", data + start, images[0].display()));
        let served = Served::start(uraid, folder, &[], &given)?;
        let read = recovery::read_served(&served, folder)?;
        recovery::write(&served, folder)?;
        let wanted = recovery::pieces(folder)?;
        let expected = format!("{}+{length}", data + start);
        let began = Instant::now();
        while facts_of(uraid, &images[0])?.0 != expected && began.elapsed() < NARROW_TIME_MAX {
            std::thread::sleep(Duration::from_millis(50));
        }
        served.stop()?;
        let (ours, theirs) = (facts_of(uraid, &images[0])?.0, facts_of(uraid, &images[1])?.0);
        if ours != expected {
            return lab_error(format!("uraid lists {ours} of member 0, which cannot write {expected}"));
        }
        Ok(Left { read, found, ours, theirs, wanted })
    }
}

/// A member's list as `START+LENGTH,...`, and where its data begins.
fn facts_of(uraid: &Path, image: &Path) -> Lab<(String, u64)> {
    let text = output_of(Command::new(uraid).args(["examine", "--json"]).arg(image))?;
    let report: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| LabError::Trouble(format!("uraid examine gives no JSON: {error}: {text}")))?;
    let data = report[0]["data_offset"].as_u64();
    let list = report[0]["areas"]["bad_blocks"].as_array().cloned().unwrap_or_default();
    let ranges: Vec<String> = list.iter().map(|range| format!("{}+{}", range["sector"], range["sectors"])).collect();
    data.map_or_else(
        || lab_error(format!("uraid examine tells no data offset: {text}")),
        |data| Ok((ranges.join(","), data)),
    )
}

/// One array with copies and one with parity, on one kernel.
pub(crate) fn run_short(release: Release) -> Lab<Tally> {
    run_on(release, &numbered(&[("1", "", 2), ("5", "", 3)], 0))
}

/// Every redundant level, on both kernels or the chosen one.
pub(crate) fn run_full(chosen: Option<Release>) -> Tally {
    const SHAPES: [Shape; 7] =
        [("1", "", 2), ("10", "n2", 4), ("10", "f2", 4), ("10", "o2", 4), ("4", "", 4), ("5", "", 4), ("6", "", 5)];
    let mut sum = Tally::default();
    for (turn, release) in Release::both_or(chosen).into_iter().enumerate() {
        sum.add(tally_of(run_on(release, &numbered(&SHAPES, turn))));
    }
    sum
}

/// The metadata versions take turns.
fn numbered(shapes: &[Shape], turn: usize) -> Vec<Case> {
    let case = |(number, &shape): (usize, &Shape)| Case {
        name: format!("l{number}"),
        shape,
        metadata: ["1.2", "1.0", "1.1"][(number + turn) % 3],
    };
    shapes.iter().enumerate().map(case).collect()
}

fn run_on(release: Release, cases: &[Case]) -> Lab<Tally> {
    let uraid = host::uraid()?;
    twice(&format!("{} arrays with bad blocks", cases.len()), || run_once(&uraid, release, cases))
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Tally> {
    let scratch = Scratch::new("uraid-bad-blocks")?;
    let folder = scratch.path.as_path();
    for image in cases.iter().flat_map(|case| case.images(folder)) {
        host::empty_image(&image, MEMBER_BYTES)?;
    }
    let began = boot(release, folder, "begin", cases)?;
    let mut sum = Tally::default();
    let mut all = Vec::new();
    for case in cases {
        let left = case.serve(uraid, folder);
        let title = case.title(release);
        let of = |part: fn(&Left) -> &String| match &left {
            Ok(left) => Ok(part(left).clone()),
            Err(error) => Err(LabError::Trouble(error.to_string())),
        };
        sum.add(checked(&format!("{title}: served"), of(|left| &left.read), &fact(&began, case, "wrote")));
        sum.add(checked(&format!("{title}: the list"), of(|left| &left.found), &fact(&began, case, "listed")));
        all.push(left.ok());
    }
    let finished = boot(release, folder, "finish", cases)?;
    for (case, left) in cases.iter().zip(&all) {
        let nothing = "what uraid left".to_owned();
        let part = |part: fn(&Left) -> &String| left.as_ref().map_or(&nothing, part);
        let wanted = [
            ("ours", part(|left| &left.ours)),
            ("left", part(|left| &left.theirs)),
            ("read", part(|left| &left.wanted)),
            ("mismatches", &"0".to_owned()),
            ("degraded", &"0".to_owned()),
        ];
        for (key, wanted) in wanted {
            let title = format!("{}: the kernel goes on, {key}", case.title(release));
            sum.add(checked(&title, Ok(fact(&finished, case, key)), wanted));
        }
    }
    Ok(sum)
}

fn fact(facts: &Facts, case: &Case, key: &str) -> String {
    facts.get(&(case.name.clone(), key.to_string())).cloned().unwrap_or_else(|| format!("nothing about {key}"))
}

fn boot(release: Release, folder: &Path, task: &str, cases: &[Case]) -> Lab<Facts> {
    let mut arguments = vec![task.to_string()];
    arguments.extend(cases.iter().map(Case::argument));
    let disk = |image| Disk { image, is_read_only: false };
    let disks = cases.iter().flat_map(|case| case.images(folder)).map(disk).collect();
    Machine { release, disks, script: SCRIPT.to_string(), arguments, seconds_max: 400, programs: Vec::new() }.facts()
}
