//! What is durable, and in which order, when a command ends: the members are files whose server keeps what reached it.
//! Owns: create, create over arrays, zero-superblock and copy as their members see them. Not here: arrays that are
//! served (`uraid-sim`), what a fake member sees of the steps of `create` (`create::steps`).

use crate::common::stubborn::{Event, Fails, Journal, StubbornFile};
use crate::common::{MIB, Scratch, pattern};
use std::path::PathBuf;

/// Where a superblock 1.2 has its magic.
const SUPERBLOCK: u64 = 4096;

/// Member files whose server records.
struct Recorded {
    files: Vec<StubbornFile>,
    journal: Journal,
}

impl Recorded {
    fn new(stored: &[PathBuf]) -> Recorded {
        let journal = Journal::default();
        let file = |(number, path): (usize, &PathBuf)| {
            StubbornFile::recorded(&path.with_extension("mount"), path, &journal, number)
        };
        Recorded { files: stored.iter().enumerate().map(file).collect(), journal }
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(StubbornFile::path).collect()
    }
}

/// The places of the events that write byte `at` of a file to zero, to something else, and that flush the file.
fn places(events: &[(usize, Event)], file: usize, at: u64) -> [Vec<usize>; 3] {
    let of = |wanted: &dyn Fn(&Event) -> bool| {
        let of_file = |(_, (number, event)): &(usize, &(usize, Event))| *number == file && wanted(event);
        events.iter().enumerate().filter(of_file).map(|(place, _)| place).collect()
    };
    [
        of(&|event| event.writes(at) == Some(0)),
        of(&|event| event.writes(at).is_some_and(|byte| byte != 0)),
        of(&|event| *event == Event::Flush),
    ]
}

/// Old signatures are durably wiped on every file before the first new superblock is written, and that is durable at
/// the end.
#[track_caller]
fn expect_wiped_then_written(events: &[(usize, Event)], files: usize, at: u64) {
    let places: Vec<[Vec<usize>; 3]> = (0..files).map(|file| places(events, file, at)).collect();
    let first_new = places.iter().filter_map(|[_, new, _]| new.first()).min().expect("something new is written");
    for (file, [wiped, new, flushed]) in places.iter().enumerate() {
        let (Some(wiped), Some(last_new)) = (wiped.last(), new.last()) else {
            panic!("file {file}: wiped at {wiped:?}, written at {new:?}");
        };
        let is_between = |flush: &&usize| wiped < *flush && *flush < first_new;
        assert!(flushed.iter().any(|flush| is_between(&flush)), "file {file}: {wiped} {flushed:?} {first_new}");
        assert!(flushed.iter().any(|flush| flush > last_new), "file {file}: {flushed:?} {last_new}");
    }
}

fn words(command: &str, members: &[PathBuf]) -> Vec<PathBuf> {
    command.split_whitespace().map(PathBuf::from).chain(members.iter().cloned()).collect()
}

#[test]
fn create_wipes_flushes_and_then_writes_and_flushes() {
    let scratch = Scratch::new();
    let stored = scratch.members("m", 3, 4 * MIB);
    scratch.create("old", "-l 5 -n 3 --assume-clean", &stored);
    let members = Recorded::new(&stored);
    scratch.uraid(words("create -l 1 -n 3 --assume-clean --run --name new", &members.paths())).expect_done();
    expect_wiped_then_written(&members.journal.take(), 3, SUPERBLOCK);
    // A flush that fails is no array.
    members.files[2].fail(Fails::Flushes);
    let done = scratch.uraid(words("create -l 1 -n 3 --assume-clean --run --name again", &members.paths()));
    done.expect_refused(&["no complete array was made", "member: wiping the old metadata failed"]);
    assert!(places(&members.journal.take(), 0, SUPERBLOCK)[1].is_empty(), "nothing new beside what is left of the old");
}

#[test]
fn zero_superblock_flushes_before_it_reports() {
    let scratch = Scratch::new();
    let stored = scratch.members("m", 2, 4 * MIB);
    scratch.create("old", "-l 1 -n 2 --assume-clean", &stored);
    let members = Recorded::new(&stored);
    let done = scratch.uraid(words("zero-superblock", &members.paths())).expect_done();
    assert_eq!(done.stdout.matches("superblock wiped").count(), 2, "{done:?}");
    let events = members.journal.take();
    for file in 0..2 {
        let [wiped, _, flushed] = places(&events, file, SUPERBLOCK);
        assert!(wiped.last().expect("it is wiped") < flushed.last().expect("it is flushed"), "{file}: {events:?}");
    }
    scratch.create("old", "-l 1 -n 2 --assume-clean", &stored);
    members.files[0].fail(Fails::Flushes);
    let done = scratch.uraid(words("zero-superblock", &members.paths()));
    let done = done.expect_refused(&["member: wiping the old metadata failed"]);
    assert!(done.stdout.is_empty(), "{done:?}");
}

/// Two stripes of one file each, which make up an array of their own, and where its superblock is in the files.
struct Stack {
    members: Recorded,
    superblock: u64,
    // Dropped after the mounts.
    scratch: Scratch,
}

impl Stack {
    fn new() -> Stack {
        let scratch = Scratch::new();
        let stored = scratch.members("m", 2, 8 * MIB);
        for (name, member) in ["left", "right"].into_iter().zip(&stored) {
            scratch.create(name, "-l linear -n 1 --force --data-offset 1M", std::slice::from_ref(member));
        }
        let members = Recorded::new(&stored);
        let stack = Stack { members, superblock: MIB + SUPERBLOCK, scratch };
        stack.create("-l 0 -n 2").expect_done();
        stack.members.journal.take();
        stack
    }

    fn create(&self, options: &str) -> crate::common::Done {
        let groups = self.members.paths().into_iter().flat_map(|path| [PathBuf::from("--array"), path]);
        self.scratch.uraid(words(&format!("create --run --name wide {options}"), &groups.collect::<Vec<_>>()))
    }
}

#[test]
fn create_over_arrays_wipes_flushes_and_then_writes_and_flushes() {
    let stack = Stack::new();
    stack.create("-l 1 -n 2 --assume-clean").expect_done();
    expect_wiped_then_written(&stack.members.journal.take(), 2, stack.superblock);
}

#[test]
fn create_over_arrays_ends_at_the_first_step_that_fails() {
    let stack = Stack::new();
    for (number, name, other) in [(0, "left", 1), (1, "right", 0)] {
        stack.members.files[number].fail(Fails::WritesOf(stack.superblock));
        let done = stack.create("-l 1 -n 2 --assume-clean");
        done.expect_refused(&["no complete array was made", &format!("{name}: wiping the old metadata failed")]);
        let events = stack.members.journal.take();
        assert!(places(&events, other, stack.superblock)[1].is_empty(), "{name} still carries the old array");
        stack.members.files[number].fail(Fails::Nothing);
        stack.create("-l 0 -n 2").expect_done();
        stack.members.journal.take();
    }
}

/// The arrays that it is made of are flushed once more when they are stopped.
#[test]
fn an_array_over_arrays_that_could_not_be_stopped_well_is_not_reported() {
    let stack = Stack::new();
    stack.create("-l 1 -n 2 --assume-clean").expect_done();
    let events = stack.members.journal.take();
    let flushes = places(&events, 0, 0)[2].len();
    stack.members.files[0].fail(Fails::FlushesAfter(flushes - 1));
    let done = stack.create("-l 1 -n 2 --assume-clean");
    let done = done.expect_refused(&[
        "the array cannot be relied on: left: the array was stopped: its last flush failed (",
        "m0.mount/member: the medium failed (errno 5)): what was written since the one before may be lost",
    ]);
    assert!(done.stdout.is_empty(), "{done:?}");
}

#[test]
fn a_copy_is_durable_when_it_ends() {
    let scratch = Scratch::new();
    let arrays = scratch.members("m", 2, 4 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &arrays);
    let served = scratch.ready(&[], &arrays);
    assert_eq!(served.client().write(0, &pattern(3, MIB as usize)).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    let stored = scratch.member("out", 0);
    let out = Recorded::new(std::slice::from_ref(&stored));
    let map = scratch.path("map").display().to_string();
    let copy = |options: &str| {
        let members = [&arrays[..], &out.paths()].concat();
        scratch.uraid(words(&format!("copy --map {map} {options}"), &members))
    };
    copy("").expect_done();
    let events = out.journal.take();
    let is_write = |(_, event): &(usize, Event)| matches!(event, Event::Write { .. });
    let last = events.iter().rposition(is_write).expect("it is written");
    assert!(events[last..].iter().any(|(_, event)| *event == Event::Flush), "{} events", events.len());
    out.files[0].fail(Fails::Flushes);
    copy("--overwrite").expect_refused(&["member: writing failed"]);
    assert!(std::fs::read_to_string(&map).expect("a map").ends_with("?\n"), "the map calls nothing copied");
}
