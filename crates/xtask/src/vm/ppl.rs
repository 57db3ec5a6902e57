//! raid5 arrays with a partial parity log that one side leaves in the middle of writes, and the other side starts.
//! Owns: which arrays, uraid's part, what must hold. Not here: what is written and read (`writers`), superblocks (`created`),
//! half-written rows (`torn`), how anything runs (`host`, `machine`), the kernel's part (`tests/vm/ppl.sh`).
//! Invariant: a check that did not run has failed.
//!
//! ```text
//!   kernel   writes, loses its power
//!   uraid    starts the array: what was answered is there; writes, is killed, starts, is killed once more
//!   kernel   the same; no mismatch; writes, loses its power
//!   uraid    the same; stops
//!   kernel   reads the same; no mismatch
//! ```
//!
//! The kernel's writes to one member are slow, so that its crashes leave rows half written. After uraid's the parity of rows
//! that its logs name is spoiled.
//!
//! In half of the arrays a member is lost with each crash, another one each time. The array starts without it, and it is
//! recovered while the array runs, before the next crash.

mod created;
pub(super) mod torn;

use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::writers::{CHUNK_BYTES, Content, Leeway, Load, Patterns, Writer, size_of};
use super::{Lab, at, checked, output_of, tally_of, twice};
use crate::programs::stage::Tally;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("../../../../tests/vm/ppl.sh");

/// 2 MiB of each are data: 32 chunks.
const MEMBER_BYTES: u64 = 4 << 20;

/// A start clears the log, which is 1 MiB, and moves what the logs name. A resync would read 2 MiB of each member besides.
const LITTLE_BYTES: u64 = 2 << 20;

/// The members that are lost with the first crash, the second and the third.
const LOST: [usize; 3] = [1, 0, 2];

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// All members are there after a crash.
    Whole,
    /// One member is lost with it.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    Kernel,
    Uraid,
}

struct Case {
    name: String,
    layout: &'static str,
    slots: usize,
    metadata: &'static str,
    how: How,
    maker: Maker,
}

impl Case {
    /// `crash`: which one it was that the guest's task comes after.
    fn argument(&self, crash: usize) -> String {
        let how = if self.how == How::Whole { "whole" } else { "lost" };
        let maker = if self.maker == Maker::Kernel { "kernel" } else { "uraid" };
        let writers: Vec<String> = Writer::all(self.array_bytes()).iter().map(Writer::argument).collect();
        let Case { name, layout, slots, metadata, .. } = self;
        let (away, writers) = (LOST[crash], writers.join(";"));
        format!("{name}:{layout}:{slots}:{metadata}:{how}:{maker}:{away}:{writers}")
    }

    /// Less than what the array has: the place of the data depends on the version.
    fn array_bytes(&self) -> usize {
        let sectors_used = match self.metadata {
            "1.0" => MEMBER_BYTES - (3 << 20) / 2,
            _ => MEMBER_BYTES / 2,
        };
        sectors_used as usize / CHUNK_BYTES * CHUNK_BYTES * (self.slots - 1)
    }

    fn images(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.slots).map(|at| folder.join(format!("{}-{at}", self.name))).collect()
    }

    /// Where the guest puts what it reads.
    fn copy(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-out", self.name))
    }

    /// The members that are there after a crash.
    fn given(&self, folder: &Path, crash: usize) -> Vec<PathBuf> {
        let images = self.images(folder).into_iter().enumerate();
        let is_there = |at: usize| self.how == How::Whole || at != LOST[crash];
        images.filter(|(at, _)| is_there(*at)).map(|(_, image)| image).collect()
    }

    /// Without a member, `serve` asks for this; it must need no force.
    fn options(&self) -> &'static [&'static str] {
        if self.how == How::Lost { &["--run"] } else { &[] }
    }

    /// Without a member, what was in flight may be lost.
    fn leeway(&self) -> Leeway {
        if self.how == How::Lost { Leeway::Sectors } else { Leeway::OldOrNew }
    }

    fn title(&self, release: Release) -> String {
        let Case { layout, slots, metadata, .. } = self;
        let how = if self.how == How::Whole { "all members there" } else { "a member lost with each crash" };
        let maker = if self.maker == Maker::Kernel { "the kernel" } else { "uraid" };
        format!("{}: raid5 {layout} of {slots} with a log, {metadata}, made by {maker}, {how}", release.suite())
    }

    fn create(&self, uraid: &Path, members: &[PathBuf], options: &[&str]) -> Lab<()> {
        let mut create = Command::new(uraid);
        create.args(["create", "-l", "5", "-k", "ppl", "-c", "64K", "-p", self.layout, "-e", self.metadata]);
        create.args(["-n", &self.slots.to_string(), "--name", &self.name]).args(options);
        output_of(create.args(members)).map(|_| ())
    }

    /// The members as the guest gets them first.
    fn make_images(&self, uraid: &Path, folder: &Path, patterns: &Patterns) -> Lab<()> {
        let images = self.images(folder);
        host::empty_image(&self.copy(folder), MEMBER_BYTES * self.slots as u64)?;
        if self.maker == Maker::Kernel {
            return images.iter().try_for_each(|image| host::empty_image(image, MEMBER_BYTES));
        }
        images.iter().try_for_each(|image| host::random_image(image, MEMBER_BYTES))?;
        self.create(uraid, &images, &[])?;
        let served = Served::start(uraid, folder, &[], &images)?;
        let data = folder.join("data");
        at(&data, std::fs::write(&data, patterns.fill(size_of(&served)?)))?;
        host::nbdcopy(&data.display().to_string(), &served.uri)?;
        served.stop()
    }

    /// What uraid reads after the kernel's crash; then it recovers the lost member, is written, and is killed.
    fn take_over(&self, uraid: &Path, folder: &Path, patterns: &Patterns, content: &mut Content) -> Lab<String> {
        let images = self.images(folder);
        let served = Served::start(uraid, folder, self.options(), &self.given(folder, 0))?;
        let found = self.compare_served(&served, folder, content)?;
        if self.how == How::Lost {
            served.change(uraid, "add", &images[LOST[0]])?;
            served.wait_until_whole(uraid)?;
        }
        self.crash(uraid, folder, patterns, content, served).map(|own| own.unwrap_or(found))
    }

    /// Kills uraid while it is written, twice: it starts after its own crash, too. Returns what is wrong then.
    fn crash(
        &self,
        uraid: &Path,
        folder: &Path,
        patterns: &Patterns,
        content: &mut Content,
        served: Served,
    ) -> Lab<Option<String>> {
        let images = self.images(folder);
        self.kill(uraid, &images, (patterns, content), served, None)?;
        let served = Served::start(uraid, folder, &[], &images)?;
        let moved = served.bytes_moved(uraid, &images[0])?;
        let torn = torn::torn_sectors(uraid, &images)?;
        if moved > LITTLE_BYTES || torn > 0 {
            return Ok(Some(format!("its own crash cost {moved} bytes of member 0 and left {torn} sectors of parity")));
        }
        let found = content.compare(&read_served(&served, folder)?, Leeway::OldOrNew);
        if found != "right" {
            return Ok(Some(format!("after its own crash {found}")));
        }
        let lost = (self.how == How::Lost).then_some(LOST[1]);
        self.kill(uraid, &images, (patterns, content), served, lost)?;
        Ok(None)
    }

    /// Leaves rows that the logs name half written.
    fn kill(
        &self,
        uraid: &Path,
        images: &[PathBuf],
        (patterns, content): (&Patterns, &mut Content),
        served: Served,
        lost: Option<usize>,
    ) -> Lab<()> {
        let load = Load::start(patterns, &served, self.array_bytes())?;
        served.kill(images)?;
        load.end(content);
        torn::spoil(uraid, images, self.layout.ends_with("-symmetric"), lost).map(|_| ())
    }

    /// What uraid reads after the kernel's second crash; then it stops.
    fn take_over_again(&self, uraid: &Path, folder: &Path, content: &mut Content) -> Lab<String> {
        let served = Served::start(uraid, folder, self.options(), &self.given(folder, 2))?;
        let found = self.compare_served(&served, folder, content)?;
        served.stop()?;
        Ok(found)
    }

    fn compare_served(&self, served: &Served, folder: &Path, content: &mut Content) -> Lab<String> {
        Ok(content.compare(&read_served(served, folder)?, self.leeway()))
    }

    /// What the kernel has read.
    fn compare_copy(&self, folder: &Path, content: &mut Content) -> Lab<String> {
        let copy = self.copy(folder);
        let mut bytes = at(&copy, std::fs::read(&copy))?;
        bytes.truncate(content.bytes());
        Ok(content.compare(&bytes, self.leeway()))
    }
}

fn read_served(served: &Served, folder: &Path) -> Lab<Vec<u8>> {
    let whole = folder.join("whole");
    host::nbdcopy(&served.uri, &whole.display().to_string())?;
    at(&whole, std::fs::read(&whole))
}

/// Two arrays, one with a member lost.
pub(crate) fn run_short(release: Release) -> Lab<Tally> {
    let case = |number, layout, slots, metadata, how, maker| Case {
        name: format!("p{number}"),
        layout,
        slots,
        metadata,
        how,
        maker,
    };
    run_on(
        release,
        &[
            case(0, "left-symmetric", 3, "1.2", How::Whole, Maker::Kernel),
            case(1, "right-asymmetric", 4, "1.0", How::Lost, Maker::Uraid),
        ],
    )
}

/// Every version with 3 and 4 members, by both makers; on the older kernel every fifth array. Or all on the chosen one.
pub(crate) fn run_full(chosen: Option<Release>) -> Tally {
    let mut sum = Tally::default();
    // More arrays than these are written too slowly before they are cut off.
    for batch in all().chunks(4) {
        sum.add(tally_of(run_on(chosen.unwrap_or(Release::USUAL), batch)));
    }
    if chosen.is_none() {
        let some: Vec<Case> = all().into_iter().step_by(5).collect();
        sum.add(tally_of(run_on(Release::Bookworm, &some)));
    }
    sum
}

fn all() -> Vec<Case> {
    const LAYOUTS: [&str; 5] =
        ["left-symmetric", "right-asymmetric", "left-asymmetric", "right-symmetric", "parity-first"];
    const WAYS: [(How, Maker); 4] = [
        (How::Whole, Maker::Kernel),
        (How::Whole, Maker::Uraid),
        (How::Lost, Maker::Kernel),
        (How::Lost, Maker::Uraid),
    ];
    let mut cases = Vec::new();
    for metadata in ["1.0", "1.1", "1.2"] {
        for slots in [3, 4] {
            for (how, maker) in WAYS {
                let number = cases.len();
                let layout = LAYOUTS[number % LAYOUTS.len()];
                cases.push(Case { name: format!("p{number}"), layout, slots, metadata, how, maker });
            }
        }
    }
    cases
}

fn run_on(release: Release, cases: &[Case]) -> Lab<Tally> {
    let uraid = host::uraid()?;
    twice(&format!("{} arrays with a partial parity log", cases.len()), || run_once(&uraid, release, cases))
}

fn run_once(uraid: &Path, release: Release, cases: &[Case]) -> Lab<Tally> {
    let scratch = Scratch::new("uraid-ppl")?;
    let folder = scratch.path.as_path();
    let patterns = Patterns::new(folder)?;
    let mut sum = Tally::default();
    let mut torn = Torn::default();
    for case in cases {
        case.make_images(uraid, folder, &patterns)?;
        if case.maker == Maker::Uraid {
            let title = format!("{}: examined", case.title(release));
            sum.add(checked(&title, created::examine(uraid, &case.images(folder)), "equal"));
        }
    }
    let begun = Run { release, folder, cases, facts: boot(release, folder, "first", cases)? };
    sum.add(begun.made(uraid));
    let mut contents: Vec<Content> = Vec::new();
    for case in cases {
        let size = begun.fact(case, "size").parse().unwrap_or(case.array_bytes());
        let mut content = Content::new(patterns.fill(size));
        sum.add(checked(&begun.title(case, "read"), case.compare_copy(folder, &mut content), "right"));
        begun.add_writes(case, &patterns, &mut content);
        torn.by_kernel += torn::torn_sectors(uraid, &case.images(folder))?;
        let found = case.take_over(uraid, folder, &patterns, &mut content);
        torn.by_uraid += torn::torn_sectors(uraid, &case.images(folder))?;
        sum.add(checked(&format!("{}: uraid takes over", case.title(release)), found, "right"));
        contents.push(content);
    }
    let went_on = Run { release, folder, cases, facts: boot(release, folder, "second", cases)? };
    for (case, content) in cases.iter().zip(&mut contents) {
        sum.add(went_on.read(case, content));
        sum.add(went_on.told(case, &[("degraded", "0"), ("mismatches", "0")]));
        went_on.add_writes(case, &patterns, content);
        torn.by_kernel += torn::torn_sectors(uraid, &case.images(folder))?;
        let found = case.take_over_again(uraid, folder, content);
        sum.add(checked(&format!("{}: uraid takes over again", case.title(release)), found, "right"));
    }
    let ended = Run { release, folder, cases, facts: boot(release, folder, "third", cases)? };
    for (case, content) in cases.iter().zip(&mut contents) {
        sum.add(ended.read(case, content));
        if case.how == How::Whole {
            sum.add(ended.told(case, &[("degraded", "0"), ("mismatches", "0")]));
        }
    }
    let Torn { by_kernel, by_uraid } = torn;
    println!(
        "sectors whose parity was wrong after the kernel's crashes: {by_kernel}, after uraid's second: {by_uraid}"
    );
    Ok(sum)
}

/// How many sectors the crashes have left with wrong parity: with none, a run says nothing about the logs.
#[derive(Default)]
struct Torn {
    by_kernel: usize,
    by_uraid: usize,
}

/// What a boot of the guest has told.
struct Run<'a> {
    release: Release,
    folder: &'a Path,
    cases: &'a [Case],
    facts: Facts,
}

impl Run<'_> {
    fn fact(&self, case: &Case, key: &str) -> String {
        let fact = self.facts.get(&(case.name.clone(), key.to_owned()));
        fact.cloned().unwrap_or_else(|| format!("nothing about {key}"))
    }

    fn title(&self, case: &Case, what: &str) -> String {
        format!("{}: the kernel's {what}", case.title(self.release))
    }

    fn told(&self, case: &Case, wanted: &[(&str, &str)]) -> Tally {
        let mut sum = Tally::default();
        for (key, wanted) in wanted {
            sum.add(checked(&self.title(case, key), Ok(self.fact(case, key)), wanted));
        }
        sum
    }

    fn read(&self, case: &Case, content: &mut Content) -> Tally {
        let mut sum = self.told(case, &[("policy", "ppl"), ("detail", "ppl")]);
        sum.add(checked(&self.title(case, "read"), case.compare_copy(self.folder, content), "right"));
        sum
    }

    /// The arrays after they were made, and cut off: uraid's words about the kernel's members are mdadm's, and the
    /// superblocks are those that uraid makes.
    fn made(&self, uraid: &Path) -> Tally {
        let mut sum = Tally::default();
        for case in self.cases {
            let images = case.images(self.folder);
            let told = [("policy", "ppl"), ("detail", "ppl")];
            sum.add(self.told(case, &told));
            if case.maker == Maker::Kernel {
                let title = format!("{}: examined", case.title(self.release));
                sum.add(checked(&title, created::examine(uraid, &images), "equal"));
                let title = format!("{}: the superblocks of both makers", case.title(self.release));
                sum.add(checked(&title, self.twins(uraid, case, &images), "equal"));
            }
        }
        sum
    }

    fn twins(&self, uraid: &Path, case: &Case, images: &[PathBuf]) -> Lab<String> {
        let twins: Vec<PathBuf> = images.iter().map(|image| image.with_extension("twin")).collect();
        twins.iter().try_for_each(|image| host::empty_image(image, MEMBER_BYTES))?;
        case.create(uraid, &twins, &["--assume-clean"])?;
        created::compare(self.release, case.metadata, images, &twins)
    }

    fn add_writes(&self, case: &Case, patterns: &Patterns, content: &mut Content) {
        for writer in Writer::all(case.array_bytes()) {
            // One that was cut off in its first turn has told nothing.
            let turns = self.fact(case, &writer.name()).parse().unwrap_or(0);
            content.add_theirs(patterns, writer, turns);
        }
    }
}

fn boot(release: Release, folder: &Path, task: &str, cases: &[Case]) -> Lab<Facts> {
    // The crash before the task, and the one that ends it.
    let (before, at_end) = match task {
        "first" => (0, Some(0)),
        "second" => (1, Some(2)),
        _ => (2, None),
    };
    let mut arguments = vec![task.to_string()];
    arguments.extend(cases.iter().map(|case| case.argument(before)));
    let images = cases.iter().flat_map(|case| case.images(folder).into_iter().chain([case.copy(folder)]));
    let mut disks: Vec<Disk> = images.map(|image| Disk { image, is_read_only: false }).collect();
    disks.push(Disk { image: folder.join("patterns"), is_read_only: true });
    // Not the one that is lost: rows that the slow one has in part are what the log is for.
    let slow = |crash: usize| cases.iter().map(|case| case.images(folder).remove((LOST[crash] + 1) % 3)).collect();
    let slow: Vec<PathBuf> = at_end.map(slow).unwrap_or_default();
    Machine { release, disks, script: SCRIPT.to_string(), arguments, seconds_max: 400, programs: Vec::new() }
        .facts_until_cut(&slow)
}
