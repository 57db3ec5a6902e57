//! What is durable, and in which order, when a device joins a running array, returns, replaces a member, or moves to another
//! array: the members are files whose server keeps what reached it, and holds back one answer after the other.
//! Owns: what a superblock names is on its member before it, no other superblock lists a member that has not answered, and
//! a spare is in no superblock of its former array, and has answered it, before it is written for the next one. Not here:
//! the same inside the engine, which every simulated run checks (`uraid-sim`), the commands that serve nothing (`durable`).

use crate::common::stubborn::{Event, Journal, StubbornFile};
use crate::common::{MIB, Scratch, Served, pattern, wait};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const SUPERBLOCK: u64 = 4096;

/// What a superblock says, by its bytes.
#[derive(Debug)]
struct Said {
    has_magic: bool,
    data_at: u64,
    /// Where its write-intent bitmap begins.
    bitmap_at: Option<u64>,
    /// The slot of its device, or a larger number.
    own_role: u16,
}

fn said(bytes: &[u8]) -> Said {
    let number = |at: usize, length: usize| {
        let mut eight = [0; 8];
        eight[..length].copy_from_slice(&bytes[at..at + length]);
        u64::from_le_bytes(eight)
    };
    let own_role = number(256 + 2 * number(160, 4) as usize, 2) as u16;
    // The internal bitmaps of these arrays lie behind the superblock.
    let bitmap_at = (number(8, 4) & 1 != 0).then(|| SUPERBLOCK + number(96, 4) * 512);
    Said { has_magic: number(0, 4) == 0xa92b_4efc, data_at: number(128, 8) * 512, bitmap_at, own_role }
}

/// What is listed for every device in a superblock of this file's bytes.
fn listed(superblock: &[u8]) -> Vec<u8> {
    let devices = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes"));
    superblock[256..256 + 2 * devices as usize].to_vec()
}

/// A server over recorded files, one of the arrays `home` and, if there is one, `other`.
struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a server whose request hangs.
    files: Vec<StubbornFile>,
    served: Served,
    journal: Journal,
    stored: Vec<PathBuf>,
    scratch: Scratch,
}

impl Rig {
    /// An array of the first files. The others are blank.
    fn new(options: &str, members: usize, blank: usize) -> Rig {
        let scratch = Scratch::new();
        let stored = scratch.members("m", members + blank, 16 * MIB);
        scratch.create("home", &format!("{options} --assume-clean"), &stored[..members]);
        let journal = Journal::default();
        let file = |(number, path): (usize, &PathBuf)| {
            StubbornFile::recorded(&path.with_extension("mount"), path, &journal, number)
        };
        let files: Vec<StubbornFile> = stored.iter().enumerate().map(file).collect();
        let paths: Vec<PathBuf> = files[..members].iter().map(StubbornFile::path).collect();
        let served = scratch.ready(&[], &paths);
        assert_eq!(served.client().write(0, &pattern(3, MIB as usize)).expect("connected"), 0);
        journal.take();
        Rig { served, files, journal, stored, scratch }
    }

    fn path(&self, file: usize) -> String {
        self.files[file].path().display().to_string()
    }

    fn run(&self, words: &[&str]) {
        self.scratch.uraid(words).expect_done();
    }

    fn wait_until_whole(&self, array: &str) {
        let is_whole = || self.scratch.uraid(["detail", "--test", array]).code == Some(0);
        wait(is_whole).unwrap_or_else(|()| panic!("{:?}", self.scratch.uraid(["detail", array])));
    }
}

/// What the superblock of each file lists, none for a file without one; and where the data of the first begins.
fn listed_now(stored: &[PathBuf]) -> (Vec<Vec<u8>>, Range<u64>) {
    let superblock = |path: &PathBuf| fs::read(path).expect("ours")[SUPERBLOCK as usize..][..4096].to_vec();
    let bytes: Vec<Vec<u8>> = stored.iter().map(superblock).collect();
    let lists = bytes.iter().map(|bytes| if said(bytes).has_magic { listed(bytes) } else { Vec::new() }).collect();
    (lists, 0..said(&bytes[0]).data_at)
}

/// The bitmap of a file that is a member: header and bits. Nothing if it has none.
fn bitmap_of(path: &PathBuf) -> Vec<u8> {
    let bytes = fs::read(path).expect("ours");
    let superblock = said(&bytes[SUPERBLOCK as usize..][..4096]);
    superblock.bitmap_at.map_or(Vec::new(), |at| bytes[at as usize..][..4096].to_vec())
}

/// While an answer of `file` is held back, no superblock of another file lists other devices than before: `lists` are those
/// of before the first event. Returns whether an answer was held back.
#[track_caller]
fn expect_same_lists_while_held(mut lists: Vec<Vec<u8>>, events: &[(usize, Event)], file: usize, case: &str) -> bool {
    let (mut is_held, mut has_held) = (false, false);
    for (at, (number, event)) in events.iter().enumerate() {
        match event {
            Event::Held => (is_held, has_held) = (true, true),
            Event::Answered => is_held = false,
            Event::Write { at: SUPERBLOCK, bytes } if *number != file && said(bytes).has_magic => {
                let list = listed(bytes);
                let before = std::mem::replace(&mut lists[*number], list.clone());
                assert!(!is_held || list == before, "{case}: file {number}: {before:?} -> {list:?}, event {at}");
            }
            Event::Write { .. } | Event::Flush => {}
        }
    }
    has_held
}

/// Whenever a superblock is written to a file, all that was written beside it before is flushed. Of what the first
/// superblock with a slot for the file's device names, the bitmap has been written. Returns how many writes beside
/// superblocks came before that one.
#[track_caller]
fn expect_flushed_before_superblocks(events: &[(usize, Event)], file: usize) -> usize {
    let (mut unflushed, mut beside, mut before_slot) = (Vec::new(), Vec::new(), None);
    let data_at = events.iter().find_map(|(number, event)| match event {
        Event::Write { at: SUPERBLOCK, bytes } if *number == file && said(bytes).has_magic => Some(said(bytes).data_at),
        Event::Write { .. } | Event::Flush | Event::Held | Event::Answered => None,
    });
    let data_at = data_at.expect("a superblock is written to it");
    for (_, event) in events.iter().filter(|(number, _)| *number == file) {
        match event {
            Event::Flush => unflushed.clear(),
            Event::Write { at: SUPERBLOCK, bytes } if said(bytes).has_magic => {
                assert!(unflushed.is_empty(), "file {file}: a superblock is written after {unflushed:?}");
                if said(bytes).own_role < 0xff00 && before_slot.is_none() {
                    let bitmap_at = said(bytes).bitmap_at;
                    assert!(bitmap_at.is_none_or(|at| beside.contains(&at)), "file {file}: no bitmap, {beside:x?}");
                    before_slot = Some(beside.len());
                }
            }
            Event::Write { at, bytes } if *at < data_at => {
                beside.push(*at);
                unflushed.push((*at, bytes.len()));
            }
            Event::Write { .. } | Event::Held | Event::Answered => {}
        }
    }
    before_slot.expect("it takes a slot")
}

#[test]
fn what_a_joining_member_gets_is_durable_before_a_superblock_names_it() {
    for (options, members) in [
        ("-l 1 -n 2 --bitmap=internal --bitmap-chunk=64K", 2),
        ("-l 1 -n 2", 2),
        ("-l 5 -n 3 --consistency-policy=ppl", 3),
        ("-l 6 -n 4 --bitmap=internal --bitmap-chunk=64K", 4),
    ] {
        let rig = Rig::new(options, members, 1);
        rig.run(&["fail", "home", "1"]);
        rig.run(&["remove", "home", "1"]);
        rig.journal.take();
        rig.run(&["add", "home", &rig.path(members)]);
        rig.wait_until_whole("home");
        let events = rig.journal.take();
        assert!(expect_flushed_before_superblocks(&events, members) > 0, "{options}: at least a list of bad blocks");
        assert_eq!(rig.served.stop().code, Some(0));
    }
}

#[test]
fn what_a_returning_member_gets_is_durable_before_a_superblock_gives_it_its_slot() {
    let rig = Rig::new("-l 1 -n 2 --bitmap=internal --bitmap-chunk=64K", 2, 0);
    rig.run(&["fail", "home", "1"]);
    rig.run(&["remove", "home", "1"]);
    assert_eq!(rig.served.client().write(4 * MIB, &pattern(4, MIB as usize)).expect("connected"), 0);
    rig.journal.take();
    rig.run(&["re-add", "home", &rig.path(1)]);
    rig.wait_until_whole("home");
    assert!(expect_flushed_before_superblocks(&rig.journal.take(), 1) > 0, "the bits of what it missed");
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn what_a_replacement_gets_is_durable_before_a_superblock_gives_it_the_slot() {
    for (options, members) in [("-l 1 -n 2 --bitmap=internal --bitmap-chunk=64K", 2), ("-l 5 -n 3", 3)] {
        let rig = Rig::new(options, members, 1);
        rig.run(&["add", "home", &rig.path(members)]);
        rig.run(&["replace", "home", "0"]);
        rig.run(&["wait", "home"]);
        assert!(expect_flushed_before_superblocks(&rig.journal.take(), members) > 0, "{options}");
        assert_eq!(rig.served.client().write(4 * MIB, &pattern(4, MIB as usize)).expect("connected"), 0);
        assert_eq!(rig.served.stop().code, Some(0));
        let [of_another, own] = [1, members].map(|file| bitmap_of(&rig.stored[file]));
        assert!(own == of_another, "{options}: the bitmaps differ");
    }
}

/// Holds back one answer of a file after the other, until there is none more, while `join` has the file become a member.
/// `join` is told how often it was called before, and returns the file.
fn hold_back_each(
    stored: &[PathBuf],
    files: &[StubbornFile],
    journal: &Journal,
    case: &str,
    prepare: impl Fn(usize) -> usize,
    join: impl Fn(usize),
) {
    for after in 0.. {
        let file = prepare(after);
        let (lists, metadata) = listed_now(stored);
        journal.take();
        files[file].hold_answer(metadata, after);
        join(after);
        if !expect_same_lists_while_held(lists, &journal.take(), file, &format!("{case}, {after}")) {
            assert!(after > 0, "{case}: at least one answer");
            return;
        }
    }
}

#[test]
fn no_superblock_lists_a_member_that_joins_or_returns_before_it_has_answered() {
    for (options, members, verb) in [
        ("-l 1 -n 2 --bitmap=internal --bitmap-chunk=64K", 2, "re-add"),
        ("-l 5 -n 3 --consistency-policy=ppl", 3, "add"),
        ("-l 6 -n 4", 4, "add"),
    ] {
        let rig = Rig::new(options, members, 0);
        let leave = |after: usize| {
            rig.run(&["fail", "home", "1"]);
            rig.run(&["remove", "home", "1"]);
            assert_eq!(rig.served.client().write(4 * MIB, &pattern(after as u64, MIB as usize)).expect("connected"), 0);
            1
        };
        hold_back_each(&rig.stored, &rig.files, &rig.journal, options, leave, |_| {
            rig.run(&[verb, "home", &rig.path(1)]);
            rig.wait_until_whole("home");
        });
        assert_eq!(rig.served.stop().code, Some(0));
    }
}

#[test]
fn no_superblock_gives_a_replacement_the_slot_before_it_has_answered() {
    let rig = Rig::new("-l 1 -n 2 --bitmap=internal --bitmap-chunk=64K", 2, 1);
    // The file that is replaced is the next replacement.
    let (old, new) = (|after: usize| 2 * (after % 2), |after: usize| 2 - 2 * (after % 2));
    hold_back_each(&rig.stored, &rig.files, &rig.journal, "replace", new, |after| {
        rig.run(&["add", "--force", "home", &rig.path(new(after))]);
        rig.run(&["replace", "home", "0"]);
        rig.run(&["wait", "home"]);
        rig.run(&["remove", "home", &rig.path(old(after))]);
    });
    assert_eq!(rig.served.stop().code, Some(0));
}

/// The file that is the spare of `give`.
const SPARE: usize = 2;

/// The arrays `give`, of files 0 and 1 and the spare, and `take`, of files 3 and 4, which share their spares.
fn rig_with_a_spare() -> Rig {
    let scratch = Scratch::new();
    let stored = scratch.members("m", 5, 16 * MIB);
    scratch.create("give", "-l 1 -n 2 -x 1 --size 4M --assume-clean", &stored[..3]);
    scratch.create("take", "-l 1 -n 2 --assume-clean", &stored[3..]);
    let journal = Journal::default();
    let file = |(number, path): (usize, &PathBuf)| {
        StubbornFile::recorded(&path.with_extension("mount"), path, &journal, number)
    };
    let files: Vec<StubbornFile> = stored.iter().enumerate().map(file).collect();
    let path = |file: usize| files[file].path().display().to_string();
    let mut words = vec!["--spare-group".to_owned(), "pool".to_owned(), "--array".to_owned()];
    words.extend((0..3).map(path));
    words.push("--array".to_owned());
    words.extend((3..5).map(path));
    let served = scratch.serve(&words.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    served.wait_until_ready();
    journal.take();
    Rig { served, files, journal, stored, scratch }
}

/// Whether this wipes the superblock of a file.
fn is_wipe((number, event): &(usize, Event), file: usize) -> bool {
    *number == file && event.writes(SUPERBLOCK) == Some(0)
}

/// The other members of its former array say that it is gone, durably, before the first byte is written to it for the next
/// one.
#[track_caller]
fn expect_unlisted_before_wiped(events: &[(usize, Event)], spare: usize) {
    let first = events.iter().position(|event| is_wipe(event, spare)).expect("its old superblock is wiped");
    for member in 0..2 {
        let of_member = || events[..first].iter().enumerate().filter(move |(_, (number, _))| *number == member);
        // Nothing else has changed in that array, so this is the one that says that the spare was removed.
        let place = of_member()
            .filter(|(_, (_, event))| event.writes(SUPERBLOCK).is_some())
            .map(|(place, _)| place)
            .next_back()
            .unwrap_or_else(|| panic!("member {member} of the former array still lists it: {events:?}"));
        let is_flushed = of_member().any(|(flush, (_, event))| flush > place && *event == Event::Flush);
        assert!(is_flushed, "member {member}: the superblock that does not list it is not durable");
    }
}

#[test]
fn a_spare_that_moves_is_listed_by_nobody_when_it_is_written_for_another_array() {
    let Rig { served, files: _files, journal, scratch, .. } = rig_with_a_spare();
    scratch.uraid(["fail", "take", "1"]).expect_done();
    wait(|| scratch.uraid(["detail", "--test", "take"]).code == Some(0)).expect("the spare comes and is recovered");
    let events = journal.take();
    expect_unlisted_before_wiped(&events, SPARE);
    assert!(expect_flushed_before_superblocks(&events, SPARE) > 0);
    assert_eq!(served.stop().code, Some(0));
}

/// Its former array checks the paths of its members, and such a check has the device until it is answered.
#[test]
fn a_spare_that_moves_is_written_when_its_former_array_has_every_answer() {
    let rig = rig_with_a_spare();
    let has_wiped = || rig.journal.take().iter().any(|event| is_wipe(event, SPARE));
    rig.files[SPARE].hang_lookups();
    // This begins a check, and waits for its end only a little.
    rig.run(&["detail", "give"]);
    rig.run(&["fail", "take", "1"]);
    rig.served.wait_for(&format!("give: member {} is removed", rig.path(SPARE)));
    std::thread::sleep(Duration::from_millis(150));
    assert!(!has_wiped(), "a late request would reach it in another array");
    rig.files[SPARE].go_on();
    rig.wait_until_whole("take");
    assert!(has_wiped(), "the spare comes");
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn no_superblock_lists_a_spare_that_moves_before_it_has_answered() {
    let rig = rig_with_a_spare();
    // The member that it replaces is the next spare.
    let (old, new) = (|after: usize| 4 - 2 * (after % 2), |after: usize| SPARE + 2 * (after % 2));
    hold_back_each(&rig.stored, &rig.files, &rig.journal, "spare", new, |after| {
        rig.run(&["fail", "take", &rig.path(old(after))]);
        rig.wait_until_whole("take");
        rig.run(&["remove", "take", &rig.path(old(after))]);
        rig.run(&["add", "--force", "give", &rig.path(old(after))]);
    });
    assert_eq!(rig.served.stop().code, Some(0));
}
