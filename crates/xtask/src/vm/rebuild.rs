//! Arrays whose recovery one side begins and the other ends.
//! Owns: which arrays, what must hold. Not here: how anything runs (`host`, `machine`), what uraid does with such an array
//! (`recovery`), whole arrays (`matrix`).
//! Invariant: a check that did not run has failed.
//!
//! The kernel makes an array and fills it, and begins to rebuild a member: the last one of a new raid4 or raid5, a
//! spare after a failure, a disk that was added, or a replacement; or it begins the first resync. It is stopped, or loses
//! its power, half way.
//! `uraid serve --read-only` reads the same bytes and changes nothing. Then uraid, see [`Ours`]:
//!
//! - recovers the member to the end while a client writes: the kernel must find all members active;
//! - recovers a part, and is stopped: the kernel must go on from there;
//! - fails a member itself, and recovers the array's spare: the kernel must find all members active;
//! - copies a member itself to the array's spare, all of it or a part: the kernel must find the new one, or go on.
//!
//! In the end the kernel `check`s, and reads the same bytes, also without slot 0.

use super::host;
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::recovery::{self, Left, Work};
use super::{Lab, checked, tally_of, twice};
use crate::programs::stage::Tally;
use std::path::{Path, PathBuf};

/// What the guest does, in two boots: `begin` and `finish`.
const SCRIPT: &str = include_str!("../../../../tests/vm/rebuild.sh");

/// The first MiB is for metadata.
const MEMBER_BYTES: u64 = 2 << 20;
/// Large enough for uraid to be stopped in the middle.
const LARGE_BYTES: u64 = 128 << 20;

/// How far beyond the recorded sector the kernel's recovery may be when its position is first read. At its lowest speed
/// it comes no further if it went on from the recorded sector.
const LATE_SECTORS_MAX: u64 = 8192;

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
    /// uraid fails a member, and the spare takes its slot.
    Fail,
    /// uraid copies a member that works to the spare.
    Copy,
    /// The first resync of a new array.
    Resync,
}

/// How the kernel is interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stop,
    PowerCut,
}

/// What uraid does before the kernel gets the array again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ours {
    Recovered,
    Stopped,
}

type Shape = (&'static str, &'static str, usize);
type Way = (How, End, Ours);

struct Case {
    name: String,
    shape: Shape,
    metadata: &'static str,
    way: Way,
}

impl Case {
    fn argument(&self) -> String {
        let (how, end, ours) = self.way;
        let how = match how {
            How::Create => "create",
            How::Spare => "spare",
            How::Add => "add",
            How::Replace => "replace",
            How::Fail => "fail",
            How::Copy => "copy",
            How::Resync => "resync",
        };
        let end = match end {
            End::Stop => "stop",
            End::PowerCut => "cut",
        };
        let ours = match ours {
            Ours::Recovered => "recovered",
            Ours::Stopped => "stopped",
        };
        let Case { name, shape: (level, layout, slots), metadata, .. } = self;
        format!("{name}:{level}:{layout}:{slots}:{metadata}:{how}:{end}:{ours}")
    }

    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        let (_, _, slots) = self.shape;
        let count = if matches!(self.way.0, How::Create | How::Resync) { slots } else { slots + 1 };
        (0..count).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    /// The member that is recovered; of a resync, one that is written.
    fn new_member(&self, folder: &Path) -> PathBuf {
        self.images(folder).pop().expect("an array has members")
    }

    /// All that a user would give: a member that failed stays away.
    fn given(&self, folder: &Path) -> Vec<PathBuf> {
        let has_failed = matches!(self.way.0, How::Spare | How::Add);
        let images = self.images(folder).into_iter().enumerate();
        images.filter(|(at, _)| !(has_failed && *at == 1)).map(|(_, image)| image).collect()
    }

    /// The new member's image is random, so that it does not hold already what is to be recovered.
    fn make_images(&self, folder: &Path) -> Lab<()> {
        // The kernel resyncs small members before it can be told where to pause.
        let is_large = self.way.2 == Ours::Stopped || self.way.0 == How::Resync;
        let bytes = if is_large { LARGE_BYTES } else { MEMBER_BYTES };
        self.images(folder).iter().try_for_each(|image| host::empty_image(image, bytes))?;
        host::random_image(&self.new_member(folder), bytes)
    }

    fn title(&self, release: Release) -> String {
        let (level, layout, _) = self.shape;
        let layout = if layout.is_empty() { String::new() } else { format!(" {layout}") };
        format!("{}: raid{level}{layout}, {}", release.suite(), self.argument())
    }

    /// Reads the array, then does what is to be done before the kernel gets it again.
    fn serve(&self, uraid: &Path, folder: &Path) -> Lab<Left> {
        let (given, new) = (self.given(folder), self.new_member(folder));
        let read = recovery::read(uraid, folder, &["--read-only"], &given)?;
        match self.way {
            (How::Fail, ..) => recovery::recover(uraid, folder, &given, read, Some(("fail", &given[1]))),
            (How::Copy, _, Ours::Recovered) => {
                recovery::recover(uraid, folder, &given, read, Some(("replace", &given[1])))
            }
            (How::Copy, _, Ours::Stopped) => recovery::copy_a_part(uraid, folder, &given, &new, read),
            (_, _, Ours::Recovered) => recovery::recover(uraid, folder, &given, read, None),
            (how, _, Ours::Stopped) => {
                let work = match (how, self.shape.0) {
                    (How::Resync, "10") => Work::ResyncOfCopies,
                    (How::Resync, _) => Work::Resync,
                    _ => Work::Recovery,
                };
                recovery::recover_a_part(uraid, folder, &given, &new, (work, read))
            }
        }
    }
}

/// The short form: one array of each kind but the slow one, on one kernel. Prints one line for each check.
pub(crate) fn run_short(release: Release) -> Lab<Tally> {
    let cases = [
        (("5", "", 3), (How::Create, End::Stop, Ours::Recovered)),
        (("1", "", 2), (How::Spare, End::PowerCut, Ours::Recovered)),
        (("10", "n2", 4), (How::Fail, End::Stop, Ours::Recovered)),
        (("6", "", 4), (How::Replace, End::Stop, Ours::Recovered)),
        (("5", "", 3), (How::Copy, End::Stop, Ours::Recovered)),
    ];
    run_on(release, &numbered(&cases, 0))
}

/// Every redundant level, every way to be rebuilt, every end, on both kernels or the chosen one.
pub(crate) fn run_full(chosen: Option<Release>) -> Tally {
    const SHAPES: [Shape; 7] =
        [("1", "", 2), ("10", "n2", 4), ("10", "f2", 4), ("10", "o2", 4), ("4", "", 4), ("5", "", 4), ("6", "", 5)];
    let mut sum = Tally::default();
    for (release, end) in Release::both_or(chosen).into_iter().zip([End::Stop, End::PowerCut]) {
        for (turn, how) in [How::Spare, How::Replace, How::Copy, How::Resync].into_iter().enumerate() {
            let stopped = SHAPES.map(|shape| (shape, (how, end, Ours::Stopped)));
            sum.add(tally_of(run_on(release, &numbered(&stopped, turn))));
        }
        let others: Vec<(Shape, Way)> =
            SHAPES.iter().flat_map(|shape| ways(shape.0).into_iter().map(move |way| (*shape, way))).collect();
        // More disks than these make the guest's boot slow out of proportion.
        for batch in numbered(&others, end as usize).chunks(12) {
            sum.add(tally_of(run_on(release, batch)));
        }
    }
    sum
}

/// All but those that take large members.
fn ways(level: &str) -> Vec<Way> {
    let mut ways = vec![(How::Fail, End::Stop, Ours::Recovered), (How::Copy, End::Stop, Ours::Recovered)];
    for end in [End::Stop, End::PowerCut] {
        if matches!(level, "4" | "5") {
            ways.push((How::Create, end, Ours::Recovered));
        }
        ways.push((How::Spare, end, Ours::Recovered));
        ways.push((How::Add, end, Ours::Recovered));
        ways.push((How::Replace, end, Ours::Recovered));
        ways.push((How::Resync, end, Ours::Recovered));
    }
    ways
}

/// The metadata versions take turns.
fn numbered(cases: &[(Shape, Way)], turn: usize) -> Vec<Case> {
    let case = |(number, &(shape, way)): (usize, &(Shape, Way))| Case {
        name: format!("b{number}"),
        shape,
        metadata: ["1.2", "1.0", "1.1"][(number + turn) % 3],
        way,
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
    cases.iter().try_for_each(|case| case.make_images(folder))?;
    let began = boot(release, folder, "begin", cases)?;
    let mut sum = Tally::default();
    let mut left = Vec::new();
    for case in cases {
        let done = case.serve(uraid, folder);
        let title = format!("{}: served", case.title(release));
        let (read, done) = done.map_or_else(|error| (Err(error), None), |done| (Ok(done.read.clone()), Some(done)));
        sum.add(checked(&title, read, &fact(&began, case, "wrote")));
        left.push(done);
    }
    let finished = boot(release, folder, "finish", cases)?;
    for (case, left) in cases.iter().zip(&left) {
        let title = format!("{}: the kernel goes on", case.title(release));
        let bytes = left.as_ref().map_or("what uraid left", |left| &left.wanted);
        let wanted =
            [("state", "in_sync"), ("degraded", "0"), ("mismatches", "0"), ("read", bytes), ("rebuilt", bytes)];
        for (key, wanted) in wanted {
            sum.add(checked(&format!("{title}, {key}"), Ok(fact(&finished, case, key)), wanted));
        }
        if case.way.2 == Ours::Stopped {
            let recorded = left.as_ref().map_or(0, |left| left.stopped_at);
            let title = format!("{title}, from sector {recorded}");
            sum.add(checked(&title, Ok(goes_on(recorded, &fact(&finished, case, "from"))), "it does"));
        }
    }
    Ok(sum)
}

fn fact(facts: &Facts, case: &Case, key: &str) -> String {
    facts.get(&(case.name.clone(), key.to_string())).cloned().unwrap_or_else(|| format!("nothing about {key}"))
}

/// Whether a recovery that is now at `at` has begun at the recorded sector.
fn goes_on(recorded: u64, at: &str) -> String {
    match at.parse::<u64>() {
        Ok(at) if recorded > 0 && (recorded..=recorded + LATE_SECTORS_MAX).contains(&at) => "it does".to_string(),
        Ok(_) | Err(_) => format!("it was at {at}"),
    }
}

fn boot(release: Release, folder: &Path, task: &str, cases: &[Case]) -> Lab<Facts> {
    let mut arguments = vec![task.to_string()];
    arguments.extend(cases.iter().map(Case::argument));
    let disk = |image| Disk { image, is_read_only: false };
    let disks = cases.iter().flat_map(|case| case.images(folder)).map(disk).collect();
    Machine { release, disks, script: SCRIPT.to_string(), arguments, seconds_max: 400, programs: Vec::new() }.facts()
}
