//! Arrays that uraid left in the middle of a recovery or a replacement, killed while it was written, and the kernel starts.
//! Owns: which arrays, what must hold. Not here: uraid's part (`leave`), what is written and read (`writers`), how anything
//! runs (`host`, `machine`), the kernel's part (`tests/vm/killed.sh`).
//! Invariant: a check that did not run has failed. An array whose recovery had ended says nothing, and counts for nothing.
//!
//! A member is failed and a spare added, or a spare is to replace a member. Five clients write all over the array, and uraid
//! is killed before the new member holds everything. The kernel must start what is left without `--force`, read every
//! answered write, also after it has recovered the member, `check` to 0, and read the same bytes without another member.
//! Only a dirty raid4, 5 or 6 without a log is refused while a member recovers, as md refuses its own: by `--force` it loses
//! nothing but what shares its parity with a write in flight.
//!
//! Where uraid was stopped, or killed while the array was clean, the kernel goes on from the recorded sector.

mod leave;

use super::host;
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::writers::{Content, Leeway, Patterns};
use super::{Lab, LabError, at, twice};
use crate::programs::stage::Tally;
use leave::Left;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const SCRIPT: &str = include_str!("../../../../tests/vm/killed.sh");

/// Arrays of each level on each kernel that are killed while they are dirty.
const DIRTY: usize = 20;

/// A boot's arrays, and the boots at the same time: a guest works on one array after the other.
const BATCH: usize = 6;
const MACHINES: usize = 3;

/// The first MiB is for metadata.
const MEMBER_BYTES: u64 = 8 << 20;
/// Large enough to see from where the kernel goes on.
const LARGE_BYTES: u64 = 32 << 20;

/// How far beyond the recorded sector the kernel may be when its position is first read, at its lowest speed.
const LATE_SECTORS_MAX: u64 = 8192;

/// Readings of the guest: at the start, at the end, and without each of two members.
const READINGS: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Raid1,
    Raid10,
    Raid4,
    Raid5,
    Raid6,
    Raid5WithLog,
}

const LEVELS: [Level; 6] = [Level::Raid1, Level::Raid10, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid5WithLog];

impl Level {
    /// Layouts and members, in turn.
    fn shapes(self) -> &'static [(&'static str, usize)] {
        match self {
            Level::Raid1 => &[("", 2), ("", 3)],
            Level::Raid10 => &[("n2", 4), ("o2", 4), ("f2", 4), ("f3", 5)],
            Level::Raid4 => &[("", 3)],
            Level::Raid5 => &[("left-symmetric", 3), ("left-symmetric", 4), ("right-asymmetric", 4)],
            Level::Raid6 => &[("left-symmetric", 4)],
            Level::Raid5WithLog => &[("left-symmetric", 3), ("right-asymmetric", 4)],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Raid1 => "1",
            Level::Raid10 => "10",
            Level::Raid4 => "4",
            Level::Raid5 | Level::Raid5WithLog => "5",
            Level::Raid6 => "6",
        }
    }
}

/// How a member comes to lack data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// A member fails, and a spare is recovered in its slot.
    Recovery,
    /// A member that works is copied to a spare.
    Replacement,
}

/// How uraid leaves the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Killed while clients write.
    Dirty,
    /// Killed while nobody writes, and the superblocks say clean.
    Idle,
    /// Stopped while clients write.
    Stopped,
}

/// How the kernel comes to start the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    Itself,
    /// mdadm refuses it, and starts it by force.
    Force,
    /// It lacks the member with all parity: mdadm finds nothing to force, and the kernel refuses, as it does with its own.
    /// No data can be wrong. `start_dirty_degraded` is said to the kernel.
    Parameter,
}

impl Start {
    /// What the guest tells of it: who refuses, what starts it.
    fn told(self) -> [&'static str; 2] {
        match self {
            Start::Itself => ["nothing", "itself"],
            Start::Force => ["mdadm", "force"],
            Start::Parameter => ["kernel", "parameter"],
        }
    }
}

struct Case {
    name: String,
    level: Level,
    layout: &'static str,
    slots: usize,
    metadata: &'static str,
    has_bitmap: bool,
    work: Work,
    end: End,
    drawn: Drawn,
}

/// What the seed decides.
struct Drawn {
    /// Whose member fails, or is replaced.
    slot: usize,
    /// mdadm is given the member that failed, too.
    gives_failed: bool,
    /// The first writes come when the superblocks have named a part as recovered.
    is_late: bool,
    /// How fast the new member is filled.
    kib_a_second: u64,
    /// How long the clients write.
    milliseconds: u64,
}

impl Case {
    /// Image `slots` is the new member; image N before it is in slot N.
    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        (0..=self.slots).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    /// Where the guest puts what it reads.
    fn copy(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-out", self.name))
    }

    fn member_bytes(&self) -> u64 {
        if self.end == End::Dirty { MEMBER_BYTES } else { LARGE_BYTES }
    }

    /// Chunks of data in a row of an array with parity.
    fn data_chunks(&self) -> Option<usize> {
        match self.level {
            Level::Raid1 | Level::Raid10 => None,
            Level::Raid4 | Level::Raid5 | Level::Raid5WithLog => Some(self.slots - 1),
            Level::Raid6 => Some(self.slots - 2),
        }
    }

    /// Whether the superblocks must show the new member as a spare.
    fn is_hidden(&self) -> bool {
        self.end == End::Dirty && (self.work == Work::Replacement || matches!(self.level, Level::Raid1 | Level::Raid10))
    }

    /// md starts no array whose parity may be wrong while a member is missing.
    fn start(&self) -> Start {
        let is_degraded = self.end == End::Dirty && self.work == Work::Recovery;
        match self.level {
            Level::Raid4 if is_degraded && self.drawn.slot + 1 == self.slots => Start::Parameter,
            Level::Raid4 | Level::Raid5 | Level::Raid6 if is_degraded => Start::Force,
            Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid5WithLog => {
                Start::Itself
            }
        }
    }

    /// What a write in flight may have become.
    fn leeway(&self) -> Leeway {
        let is_degraded = self.end == End::Dirty && self.work == Work::Recovery;
        match (self.start(), self.data_chunks()) {
            (Start::Force, Some(data_chunks)) => Leeway::Rows(data_chunks),
            (Start::Itself, Some(_)) if is_degraded => Leeway::Sectors,
            (Start::Itself | Start::Force | Start::Parameter, _) => Leeway::OldOrNew,
        }
    }

    /// Two slots beside the one that was recovered: among them is every other copy of what it has in a raid10.
    fn others(&self) -> Vec<usize> {
        let mut others = vec![(self.drawn.slot + 1) % self.slots, (self.drawn.slot + self.slots - 1) % self.slots];
        others.dedup();
        others
    }

    fn argument(&self) -> String {
        let is_given = |at: &usize| self.work == Work::Replacement || self.drawn.gives_failed || *at != self.drawn.slot;
        let given: Vec<usize> = (0..=self.slots).filter(is_given).collect();
        let end = if self.end == End::Dirty { "dirty" } else { "clean" };
        let (name, slot, new) = (&self.name, self.drawn.slot, self.slots);
        format!("{name}:{slot}:{new}:{}:{}:{end}", joined(&given), joined(&self.others()))
    }

    fn title(&self, release: Release) -> String {
        let Case { name, level, layout, slots, metadata, work, end, drawn, .. } = self;
        let layout = if layout.is_empty() { String::new() } else { format!(" {layout}") };
        let bitmap = match (self.level, self.has_bitmap) {
            (Level::Raid5WithLog, _) => ", a log",
            (_, true) => ", a bitmap",
            (_, false) => "",
        };
        let end = match end {
            End::Dirty => "killed while written",
            End::Idle => "killed while clean",
            End::Stopped => "stopped",
        };
        let failed = if drawn.gives_failed && *work == Work::Recovery { ", failed member given" } else { "" };
        let level = level.name();
        format!(
            "{}: {name}: raid{level}{layout} of {slots}, {metadata}{bitmap}, {work:?} of slot {}, {end}{failed}",
            release.suite(),
            drawn.slot
        )
    }
}

fn joined(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

/// `numbers`: of the arrays of this level that are to be killed while they are dirty.
fn dirty(level: Level, seed: u64, numbers: std::ops::Range<usize>) -> Vec<Case> {
    numbers.map(|number| case(level, seed, number, End::Dirty)).collect()
}

fn case(level: Level, seed: u64, number: usize, end: End) -> Case {
    let shapes = level.shapes();
    let (layout, slots) = shapes[number % shapes.len()];
    let turn = number / shapes.len();
    let letter = match end {
        End::Dirty => "k",
        End::Idle => "i",
        End::Stopped => "s",
    };
    let name =
        format!("{letter}{}-{number}", LEVELS.iter().position(|one| *one == level).expect("a level of the list"));
    let mut draw = Draw(seed << 32 | (end as u64) << 24 | (level as u64) << 16 | number as u64);
    let drawn = Drawn {
        slot: draw.below(slots as u64) as usize,
        gives_failed: draw.below(2) == 0,
        is_late: draw.below(2) == 0,
        kib_a_second: if end == End::Dirty { 500 + draw.below(5000) } else { 9000 },
        milliseconds: draw.below(700),
    };
    Case {
        name,
        level,
        layout,
        slots,
        metadata: ["1.2", "1.0", "1.1"][number % 3],
        has_bitmap: level != Level::Raid5WithLog && turn / 2 % 2 == 1,
        work: if turn.is_multiple_of(2) { Work::Recovery } else { Work::Replacement },
        end,
        drawn,
    }
}

/// Every level, and for each how the array is left in good order.
fn all(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for level in LEVELS {
        cases.extend(dirty(level, seed, 0..DIRTY));
        for turn in 0..4 {
            let number = turn * level.shapes().len() + turn % level.shapes().len();
            cases.extend([End::Idle, End::Stopped].map(|end| case(level, seed, number, end)));
        }
    }
    cases
}

/// Two arrays of each level, on one kernel.
pub(crate) fn run_short(release: Release) -> Lab<Tally> {
    let cases = LEVELS.into_iter().flat_map(|level| {
        let turn = level.shapes().len();
        [case(level, 0, 0, End::Dirty), case(level, 0, turn, End::Dirty)]
    });
    run_on(release, cases.collect())
}

/// All arrays, or those of these names or groups, such as `k1`, on every kernel or the chosen one.
pub(crate) fn run_full(chosen: Option<Release>, seed: u64, names: &[&str]) -> Tally {
    let is_named = |case: &Case, name: &str| case.name == name || case.name.starts_with(&format!("{name}-"));
    let is_chosen = |case: &Case| names.is_empty() || names.iter().any(|name| is_named(case, name));
    let mut sum = Tally::default();
    let kernels = [Release::Trixie, Release::Bookworm, Release::Sid];
    for release in chosen.map_or(kernels.to_vec(), |release| vec![release]) {
        let cases = all(seed).into_iter().filter(|case| is_chosen(case)).collect();
        sum.add(super::tally_of(run_on(release, cases)));
    }
    sum
}

fn run_on(release: Release, cases: Vec<Case>) -> Lab<Tally> {
    let uraid = host::uraid()?;
    let batches = Mutex::new(cases.chunks(BATCH));
    let counts = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..MACHINES {
            scope.spawn(|| {
                loop {
                    let next = batches.lock().expect("no thread panics while it holds the lock").next();
                    let Some(batch) = next else { break };
                    let what = format!("{} arrays that were killed", batch.len());
                    let done = twice(&what, || run_once(&uraid, release, batch)).unwrap_or_else(|error| {
                        println!("vm: {error}");
                        Counts { failed: batch.len() as u64, ..Counts::default() }
                    });
                    counts.lock().expect("no thread panics while it holds the lock").add(&done);
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no thread panics while it holds the lock");
    println!("{}: {counts}", release.suite());
    Ok(Tally { passed: counts.right, failed: counts.failed })
}

/// Arrays by how they came out.
#[derive(Default)]
struct Counts {
    right: u64,
    failed: u64,
    /// Those that the kernel refused, and started by force.
    forced: u64,
    /// Where the kernel went on.
    gone_on: u64,
    /// Sectors that a crash had left with wrong parity, by md's count.
    mismatches: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.right += other.right;
        self.failed += other.failed;
        self.forced += other.forced;
        self.gone_on += other.gone_on;
        self.mismatches += other.mismatches;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { right, failed, forced, gone_on, mismatches } = self;
        write!(
            out,
            "{} arrays left in a recovery or a replacement: {right} right, {failed} wrong; {forced} started by force, with \
             {mismatches} sectors of rows in flight that disagreed; {gone_on} continued",
            right + failed
        )
    }
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Counts> {
    let scratch = Scratch::new("uraid-killed")?;
    let folder = scratch.path.as_path();
    let patterns = Patterns::new(folder)?;
    let left: Vec<Lab<Left>> = cases.iter().map(|case| leave::leave(uraid, folder, &patterns, case)).collect();
    let facts = boot(release, folder, cases)?;
    let mut counts = Counts::default();
    for (case, left) in cases.iter().zip(left) {
        let title = case.title(release);
        let run = Run { folder, case, facts: &facts };
        match left.and_then(|left| run.judge(left, &mut counts)) {
            Ok(told) => {
                counts.right += 1;
                println!("{title}: {told}");
            }
            Err(LabError::Trouble(why) | LabError::Hung(why)) => {
                counts.failed += 1;
                println!("FAILED {title}: {why}");
            }
        }
    }
    Ok(counts)
}

/// What a reading has on the guest's disk. Of a large array it is no more than that.
fn room(cases: &[Case]) -> u64 {
    cases.iter().map(|case| case.member_bytes() * case.slots as u64).max().unwrap_or(0)
}

fn boot(release: Release, folder: &Path, cases: &[Case]) -> Lab<Facts> {
    let room = room(cases);
    let mut arguments = vec![room.to_string()];
    let mut disks = Vec::new();
    for case in cases {
        host::empty_image(&case.copy(folder), READINGS * room)?;
        let images: Vec<PathBuf> = case.images(folder);
        // Where uraid could not leave the array, nothing is asked of the kernel.
        if images.iter().all(|image| image.is_file()) {
            arguments.push(case.argument());
            let disk = |image| Disk { image, is_read_only: false };
            disks.extend(images.into_iter().chain([case.copy(folder)]).map(disk));
        }
    }
    Machine { release, disks, script: SCRIPT.to_string(), arguments, seconds_max: 600, programs: Vec::new() }.facts()
}

/// What a boot of the guest has told of one array.
struct Run<'a> {
    folder: &'a Path,
    case: &'a Case,
    facts: &'a Facts,
}

impl Run<'_> {
    fn fact(&self, key: &str) -> String {
        let fact = self.facts.get(&(self.case.name.clone(), key.to_owned()));
        fact.cloned().unwrap_or_else(|| "nothing".to_owned())
    }

    /// Says what was seen, or everything that is wrong.
    fn judge(&self, left: Left, counts: &mut Counts) -> Lab<String> {
        let case = self.case;
        let mut wrong = Vec::new();
        let mut expect = |what: &str, found: String, wanted: &str| {
            if found != wanted {
                wrong.push(format!("{what} is {found}, not {wanted}"));
            }
        };
        let superblocks = if left.is_right { "right" } else { "wrong" };
        expect("what the superblocks said of the new member", superblocks.to_owned(), "right");
        for (key, wanted) in ["refused-by", "started-by"].into_iter().zip(case.start().told()) {
            expect(key, self.fact(key), wanted);
        }
        let size = left.content.bytes();
        expect("size", self.fact("size"), &size.to_string());
        expect("read at the start", self.compare(0, &mut left.content.clone())?, "right");
        let mut content = left.content.clone();
        expect("read at the end", self.compare(1, &mut content)?, "right");
        for (lost, place) in case.others().into_iter().zip(2..) {
            expect(&format!("started without slot {lost}"), self.fact(&format!("without-{lost}")), "1");
            // What it holds is known by now: it has read it.
            expect(&format!("read without slot {lost}"), self.compare(place, &mut content)?, "right");
        }
        expect("degraded", self.fact("degraded"), "0");
        // md takes a replacement for a spare, and does not begin it anew by itself.
        let stays_spare = case.is_hidden() && case.work == Work::Replacement;
        expect("the new member", self.fact("new"), if stays_spare { "spare" } else { "in_sync" });
        self.judge_mismatches(&left.content, counts, &mut expect);
        if case.end != End::Dirty {
            expect("where it goes on", goes_on(left.recorded, &self.fact("from")), "right");
        }
        if !wrong.is_empty() {
            let left = format!("left: {}\n{}", left.summary, left.examined);
            return Err(LabError::Trouble(format!("{}; {left}", wrong.join("; "))));
        }
        counts.forced += u64::from(case.start() != Start::Itself);
        counts.gone_on += u64::from(case.end != End::Dirty);
        Ok(left.summary)
    }

    /// By force, md takes rows in flight as they are.
    fn judge_mismatches(&self, content: &Content, counts: &mut Counts, expect: &mut impl FnMut(&str, String, &str)) {
        let found = self.fact("mismatches");
        match (self.case.leeway(), found.parse::<usize>()) {
            (Leeway::Rows(data_chunks), Ok(count @ 1..)) if count <= content.mismatches_max(data_chunks) => {
                counts.mismatches += count as u64;
                expect("mismatches after a repair", self.fact("mismatches-repaired"), "0");
            }
            (Leeway::Rows(_) | Leeway::OldOrNew | Leeway::Sectors, _) => expect("mismatches", found, "0"),
        }
    }

    /// Compares one reading of the guest.
    fn compare(&self, place: u64, content: &mut Content) -> Lab<String> {
        let copy = self.case.copy(self.folder);
        let mut bytes = vec![0; content.bytes()];
        let room = at(&copy, std::fs::metadata(&copy))?.len() / READINGS;
        at(&copy, at(&copy, std::fs::File::open(&copy))?.read_exact_at(&mut bytes, place * room))?;
        Ok(content.compare(&bytes, self.case.leeway()))
    }
}

/// Whether a recovery that is now at `from` has begun at the recorded sector.
fn goes_on(recorded: u64, from: &str) -> String {
    match from.parse::<u64>() {
        Ok(from) if (recorded..=recorded + LATE_SECTORS_MAX).contains(&from) => "right".to_owned(),
        Ok(_) | Err(_) => format!("at {from}, recorded was {recorded}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_level_is_killed_in_each_work_with_and_without_a_bitmap() {
        let cases = all(0);
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.iter().all(|name| format!("{name}-out").len() <= 20));
        for level in LEVELS {
            let dirty = || cases.iter().filter(move |case| case.level == level && case.end == End::Dirty);
            assert_eq!(dirty().count(), DIRTY);
            for (layout, slots) in level.shapes() {
                for work in [Work::Recovery, Work::Replacement] {
                    for has_bitmap in [false, true] {
                        let is_there = dirty().any(|case| {
                            (case.layout, case.slots, case.work) == (*layout, *slots, work)
                                && case.has_bitmap == has_bitmap
                        });
                        assert_eq!(
                            is_there,
                            level != Level::Raid5WithLog || !has_bitmap,
                            "{level:?} {layout} {work:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn one_slot_of_two_has_one_other() {
        let with = |slots, slot| {
            let mut case = case(Level::Raid1, 0, 0, End::Dirty);
            (case.slots, case.drawn.slot) = (slots, slot);
            case.others()
        };
        assert_eq!((with(2, 0), with(2, 1), with(3, 0), with(4, 3)), (vec![1], vec![0], vec![1, 2], vec![0, 2]));
    }
}
