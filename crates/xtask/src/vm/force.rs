//! mdadm assembles arrays by force, from all members, after uraid was killed with one member failed.
//! Owns: which arrays and ways to die, the expected content. Not here: how anything runs (`host`, `load`, `machine`).
//! Invariant: a check that did not run has failed.
//!
//! mdadm trusts every member that is at most one event behind, even one that the others call faulty. The failed one must
//! be further behind, whatever happens after the failure was answered; otherwise flushed bytes are lost.

use super::host::{self, Served};
use super::kernel::Release;
use super::load::{BLOCK_BYTES, Load};
use super::machine::{Disk, Machine, Scratch};
use super::{Lab, at, checked, lab_error, output_of, tally_of, twice};
use crate::programs::stage::Tally;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The guest's script.
const SCRIPT: &str = include_str!("../../../../tests/vm/force.sh");

/// The first MiB is for metadata; what remains is eight chunks.
const MEMBER_BYTES: u64 = 3 * (1 << 20) / 2;

/// Longer than uraid waits before it marks an idle array clean.
const IDLE: Duration = Duration::from_millis(450);

/// The event between the failure and the end of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    /// Nothing.
    AtOnce,
    /// The array is overwritten and flushed.
    AfterWrites,
    /// The same, repeatedly, and the array is marked clean in between.
    AfterPauses,
    /// A client writes before, during and after the failure.
    UnderLoad,
    /// The same, and the part that the client does not use is overwritten and flushed.
    UnderLoadAfterWrites,
}

const DEATHS: [Death; 5] =
    [Death::AtOnce, Death::AfterWrites, Death::AfterPauses, Death::UnderLoad, Death::UnderLoadAfterWrites];

/// Level, layout, members, and those that fail, one after the other.
type Shape = (&'static str, &'static str, usize, &'static [usize]);

const SHAPES: [Shape; 10] = [
    ("1", "", 2, &[0]),
    ("1", "", 3, &[2, 0]),
    ("10", "n2", 4, &[0]),
    ("10", "n2", 4, &[1, 2]),
    ("10", "f2", 4, &[2]),
    ("10", "o2", 4, &[3]),
    ("4", "", 4, &[1]),
    ("5", "", 4, &[2]),
    ("6", "", 5, &[3]),
    ("6", "", 5, &[0, 4]),
];

struct Case {
    name: String,
    shape: Shape,
    death: Death,
}

impl Case {
    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.shape.2).map(|slot| folder.join(format!("{}-{slot}", self.name))).collect()
    }

    /// Where the guest puts the array's content.
    fn copy(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-out", self.name))
    }

    /// The number of blocks whose parity, or copy, is written together.
    fn row_blocks(&self) -> usize {
        let (level, _, members, _) = self.shape;
        match level {
            "4" | "5" => members - 1,
            "6" => members - 2,
            _ => 1,
        }
    }

    fn title(&self, release: Release) -> String {
        let (level, layout, members, failed) = self.shape;
        format!("{}: raid{level} {layout} of {members}, failed {failed:?}, {:?}", release.suite(), self.death)
    }
}

/// The expected content; `None` where a write was in flight.
type Expected = Vec<Option<u8>>;

/// The short form: every level, every death, on one kernel.
pub(crate) fn run_short(release: Release) -> Lab<Tally> {
    let picked = [
        (SHAPES[0], Death::AfterWrites),
        (SHAPES[3], Death::UnderLoadAfterWrites),
        (SHAPES[6], Death::AtOnce),
        (SHAPES[7], Death::UnderLoad),
        (SHAPES[9], Death::AfterWrites),
    ];
    run_on(release, &numbered(&picked))
}

/// Every shape with every way for members to fail, on both kernels or the chosen one.
pub(crate) fn run_full(chosen: Option<Release>) -> Tally {
    let all: Vec<(Shape, Death)> =
        SHAPES.iter().flat_map(|shape| DEATHS.iter().map(move |death| (*shape, *death))).collect();
    let mut sum = Tally::default();
    for release in Release::both_or(chosen) {
        // More disks than these make the guest's boot slow out of proportion.
        for batch in numbered(&all).chunks(14) {
            sum.add(tally_of(run_on(release, batch)));
        }
    }
    sum
}

fn numbered(cases: &[(Shape, Death)]) -> Vec<Case> {
    let case = |(number, (shape, death)): (usize, &(Shape, Death))| Case {
        name: format!("f{number}"),
        shape: *shape,
        death: *death,
    };
    cases.iter().enumerate().map(case).collect()
}

fn run_on(release: Release, cases: &[Case]) -> Lab<Tally> {
    let uraid = host::uraid()?;
    twice(&format!("{} arrays for mdadm --force", cases.len()), || run_once(&uraid, release, cases))
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Tally> {
    let scratch = Scratch::new("uraid-force")?;
    let folder = scratch.path.as_path();
    let mut machine = Machine {
        release,
        disks: Vec::new(),
        script: SCRIPT.to_string(),
        arguments: Vec::new(),
        seconds_max: 400,
        programs: Vec::new(),
    };
    let mut left = Vec::new();
    for case in cases {
        let expected = leave(uraid, folder, case);
        host::empty_image(&case.copy(folder), MEMBER_BYTES * case.shape.2 as u64)?;
        machine.arguments.push(format!("{}:{}", case.name, case.shape.2));
        let images = case.images(folder).into_iter().chain([case.copy(folder)]);
        machine.disks.extend(images.map(|image| Disk { image, is_read_only: false }));
        left.push(expected);
    }
    let facts = machine.facts()?;
    let mut sum = Tally::default();
    for (case, expected) in cases.iter().zip(left) {
        let title = case.title(release);
        let degraded = facts.get(&(case.name.clone(), "degraded".to_string())).cloned();
        let degraded = degraded.unwrap_or_else(|| "not assembled".to_string());
        let failed = case.shape.3.len().to_string();
        sum.add(checked(&format!("{title}: members that mdadm leaves out"), Ok(degraded), &failed));
        let found = expected.and_then(|expected| compare(&expected, &case.copy(folder)));
        sum.add(checked(&format!("{title}: bytes lost"), found, "none"));
    }
    Ok(sum)
}

/// Creates and fills an array, fails its members, and kills its server. Returns the expected content.
fn leave(uraid: &Path, folder: &Path, case: &Case) -> Lab<Expected> {
    let (level, layout, members, failed) = case.shape;
    let images = case.images(folder);
    for image in &images {
        host::empty_image(image, MEMBER_BYTES)?;
    }
    let mut create = Command::new(uraid);
    create.args(["create", "--assume-clean", "--level", level, "--raid-devices", &members.to_string()]);
    create.args(["--name", &case.name]);
    if !layout.is_empty() {
        create.args(["--layout", layout]);
    }
    if level != "1" {
        create.args(["--chunk", "64K"]);
    }
    output_of(create.args(&images))?;
    let served = Served::start(uraid, folder, &[], &images)?;
    let size = size_of(&served)?;
    let mut expected = write_over(&served, folder, 0, size)?;
    let fail = || failed.iter().try_for_each(|slot| served.fail(uraid, &images[*slot]));
    // The client of the load has the first half.
    let blocks = size / 2 / BLOCK_BYTES;
    let half = blocks * BLOCK_BYTES;
    match case.death {
        Death::AtOnce => fail()?,
        Death::AfterWrites => {
            fail()?;
            expected = write_over(&served, folder, 0, size)?;
        }
        Death::AfterPauses => {
            fail()?;
            for _ in 0..3 {
                std::thread::sleep(IDLE);
                expected = write_over(&served, folder, 0, size)?;
            }
        }
        Death::UnderLoad | Death::UnderLoadAfterWrites => {
            let load = Load::start(&served.uri, blocks)?;
            fail()?;
            if case.death == Death::UnderLoadAfterWrites {
                let rest = write_over(&served, folder, half, size)?;
                expected.truncate(half);
                expected.extend(rest);
            }
            served.kill(&images)?;
            let written = load.end()?;
            for (block, fill) in written.blocks.iter().enumerate() {
                let fill = fill.expect("the load went round before the failure");
                expected[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].fill(Some(fill));
            }
            // The failed member's part of this row is computed from all others, which may not agree after the kill.
            let row = written.undecided / case.row_blocks() * case.row_blocks() * BLOCK_BYTES;
            let end = expected.len().min(row + case.row_blocks() * BLOCK_BYTES);
            expected[row..end].fill(None);
            return Ok(expected);
        }
    }
    served.kill(&images)?;
    Ok(expected)
}

fn size_of(served: &Served) -> Lab<usize> {
    let text = output_of(Command::new("nbdinfo").args(["--size", &served.uri]))?;
    text.trim().parse().or_else(|_| lab_error(format!("nbdinfo --size says {text:?}")))
}

/// Writes random bytes from `start` to `end`, with a flush, and returns them.
fn write_over(served: &Served, folder: &Path, start: usize, end: usize) -> Lab<Expected> {
    let data = folder.join("data");
    host::random_image(&data, (end - start) as u64)?;
    let command = format!("write -s {} {start} {}", data.display(), end - start);
    let said = output_of(Command::new("qemu-io").args(["-f", "raw", "-c", &command, "-c", "flush", &served.uri]))?;
    if !said.contains("wrote ") {
        return lab_error(format!("qemu-io could not write: {}", said.trim()));
    }
    Ok(at(&data, std::fs::read(&data))?.into_iter().map(Some).collect())
}

/// "none", or where the first lost byte is and how many there are.
fn compare(expected: &Expected, copy: &Path) -> Lab<String> {
    let found = at(copy, std::fs::read(copy))?;
    let is_lost = |(at, byte): &(usize, &Option<u8>)| byte.is_some_and(|byte| found.get(*at) != Some(&byte));
    let mut lost = expected.iter().enumerate().filter(is_lost).map(|(at, _)| at);
    Ok(match lost.next() {
        None => "none".to_string(),
        Some(first) => format!("{} of {}, the first at {first}", 1 + lost.count(), expected.len()),
    })
}
