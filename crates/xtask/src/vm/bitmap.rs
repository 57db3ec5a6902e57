//! Arrays with a write-intent bitmap that one side leaves dirty, or with a member away, and the other side makes right.
//! Owns: which arrays, uraid's part, what must hold. Not here: how anything runs (`host`, `machine`), the kernel's part
//! (`tests/vm/bitmap.sh`).
//! Invariant: a check that did not run has failed. The side that makes an array right moves little: the bits name four chunks of
//! 64 KiB of members of 32 MiB.

use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::recovery;
use super::{Lab, checked, lab_error, output_of, superblock, tally_of, twice};
use crate::programs::stage::Tally;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("../../../../tests/vm/bitmap.sh");

const MEMBER_BYTES: u64 = 32 << 20;
/// What one member may read and write while four chunks of it are made right: superblocks and bitmaps are in it.
const LITTLE_BYTES: u64 = 4 << 20;

/// Who leaves the array in need of its bitmap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The kernel loses its power; then uraid is killed. uraid adds the bitmap while it serves.
    Cut,
    /// uraid adds the bitmap while it serves and writes without a member, and the kernel re-adds it.
    Ours,
    /// The kernel writes without a member, and uraid re-adds it.
    Theirs,
}

type Shape = (&'static str, &'static str, usize);

struct Case {
    name: String,
    shape: Shape,
    metadata: &'static str,
    how: How,
    /// Otherwise the kernel makes it.
    is_made_by_uraid: bool,
}

impl Case {
    fn argument(&self) -> String {
        let how = match self.how {
            How::Cut => "cut",
            How::Ours => "ours",
            How::Theirs => "theirs",
        };
        let maker = if self.is_made_by_uraid { "uraid" } else { "kernel" };
        let Case { name, shape: (level, layout, slots), metadata, .. } = self;
        format!("{name}:{level}:{layout}:{slots}:{metadata}:{how}:{maker}")
    }

    fn make_images(&self, uraid: &Path, folder: &Path) -> Lab<()> {
        let images = self.images(folder);
        images.iter().try_for_each(|image| host::empty_image(image, MEMBER_BYTES))?;
        if !self.is_made_by_uraid {
            return Ok(());
        }
        let (level, layout, slots) = self.shape;
        let mut create = Command::new(uraid);
        create.args(["create", "--name", &self.name, "--assume-clean", "--bitmap=internal", "--bitmap-chunk=64K"]);
        create.args(["-l", level, "-n", &slots.to_string(), "-e", self.metadata]);
        if !layout.is_empty() {
            create.args(["-p", layout]);
        }
        if level != "1" {
            create.args(["-c", "64K"]);
        }
        output_of(create.args(&images)).map(|_| ())
    }

    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.shape.2).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    fn title(&self, release: Release) -> String {
        let (level, layout, _) = self.shape;
        let layout = if layout.is_empty() { String::new() } else { format!(" {layout}") };
        format!("{}: raid{level}{layout} with a bitmap, {}", release.suite(), self.argument())
    }

    /// uraid's part. Returns what it read first, and what the kernel must read afterwards.
    fn serve(&self, uraid: &Path, folder: &Path) -> Lab<(String, String)> {
        let images = self.images(folder);
        let others: Vec<PathBuf> =
            images.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, one)| one.clone()).collect();
        let given = if self.how == How::Theirs { &others } else { &images };
        let served = Served::start(uraid, folder, &[], given)?;
        // The resync of a dirty array is over.
        let resynced = served.bytes_moved(uraid, &given[given.len() - 1])?;
        let read = recovery::read_served(&served, folder)?;
        let moved = match self.how {
            How::Cut => {
                change_bitmap(uraid, &served)?;
                resynced
            }
            How::Ours => {
                change_bitmap(uraid, &served)?;
                served.fail(uraid, &images[1])?;
                0
            }
            How::Theirs => {
                served.change(uraid, "re-add", &images[1])?;
                served.wait_until_whole(uraid)?;
                served.bytes_moved(uraid, &images[1])?
            }
        };
        if moved > LITTLE_BYTES {
            return lab_error(format!("uraid moved {moved} bytes of member 1 for four dirty chunks"));
        }
        recovery::write(&served, folder)?;
        let wanted = recovery::pieces(folder)?;
        match self.how {
            How::Cut => served.kill(&images)?,
            How::Ours | How::Theirs => served.stop()?,
        }
        Ok((read, wanted))
    }
}

/// Takes the bitmap away while the array serves, and adds another one.
fn change_bitmap(uraid: &Path, served: &Served) -> Lab<()> {
    served.bitmap(uraid, &["none"])?;
    served.bitmap(uraid, &["internal", "--bitmap-chunk=64K"])
}

/// One array of each kind, on one kernel.
pub(crate) fn run_short(release: Release) -> Lab<Tally> {
    run_on(
        release,
        &numbered(&[(("5", "", 3), How::Cut), (("1", "", 2), How::Ours), (("10", "n2", 4), How::Theirs)], 0),
    )
}

/// Every redundant level, every way, on both kernels or the chosen one.
pub(crate) fn run_full(chosen: Option<Release>) -> Tally {
    const SHAPES: [Shape; 7] =
        [("1", "", 2), ("10", "n2", 4), ("10", "f2", 4), ("10", "o2", 4), ("4", "", 4), ("5", "", 4), ("6", "", 5)];
    let mut sum = Tally::default();
    for (turn, release) in Release::both_or(chosen).into_iter().enumerate() {
        for (add, how) in [How::Cut, How::Ours, How::Theirs].into_iter().enumerate() {
            let cases = numbered(&SHAPES.map(|shape| (shape, how)), turn + add);
            // More disks than these make the guest's boot slow out of proportion.
            for batch in cases.chunks(4) {
                sum.add(tally_of(run_on(release, batch)));
            }
        }
    }
    sum
}

/// The metadata versions take turns.
fn numbered(cases: &[(Shape, How)], turn: usize) -> Vec<Case> {
    let case = |(number, &(shape, how)): (usize, &(Shape, How))| Case {
        name: format!("i{number}"),
        shape,
        metadata: ["1.2", "1.0", "1.1"][(number + turn) % 3],
        how,
        is_made_by_uraid: (number + turn) % 2 == 1,
    };
    cases.iter().enumerate().map(case).collect()
}

fn run_on(release: Release, cases: &[Case]) -> Lab<Tally> {
    let uraid = host::uraid()?;
    twice(&format!("{} arrays with a bitmap", cases.len()), || run_once(&uraid, release, cases))
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Tally> {
    let scratch = Scratch::new("uraid-bitmap")?;
    let folder = scratch.path.as_path();
    for case in cases {
        case.make_images(uraid, folder)?;
    }
    let began = boot(release, folder, "begin", cases)?;
    let mut sum = Tally::default();
    let mut left = Vec::new();
    for case in cases {
        let done = case.serve(uraid, folder);
        let (read, wanted) = done.map_or_else(|error| (Err(error), None), |(read, wanted)| (Ok(read), Some(wanted)));
        sum.add(checked(&format!("{}: served", case.title(release)), read, &fact(&began, case, "wrote")));
        left.push(wanted);
        // The kernel was the first one to start it, and recorded what it does; uraid keeps that.
        let images = case.images(folder);
        let sizes = superblock::logical_block_sizes(case.metadata, images.iter().map(PathBuf::as_path));
        let recorded = superblock::recorded_by(release).to_string();
        sum.add(checked(&format!("{}: logical block size", case.title(release)), sizes, &recorded));
    }
    let finished = boot(release, folder, "finish", cases)?;
    for (case, left) in cases.iter().zip(&left) {
        let bytes = left.as_deref().unwrap_or("what uraid left");
        for (key, wanted) in
            [("degraded", "0"), ("moved", "little"), ("mismatches", "0"), ("read", bytes), ("without", bytes)]
        {
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
