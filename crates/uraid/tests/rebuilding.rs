//! Arrays whose member md was rebuilding, on the real binary: no rebuild is given up without --run.
//! Owns: serve, detail and examine of such arrays. Not here: the decision (`engine::assemble`), md itself (`xtask vm`).

mod common;

use common::{MIB, Scratch, pattern};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RECOVERY_OFFSET: u32 = 1 << 1;
const REPLACEMENT: u32 = 1 << 4;
const REBUILT: u64 = 2048;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Changes the superblock 1.2 of a member, whose checksum is then right again.
fn edit(member: &Path, change: impl Fn(&mut [u8])) {
    let file = OpenOptions::new().read(true).write(true).open(member).expect("a member");
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 4096).expect("a superblock");
    change(&mut block);
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
    let covered = 256 + 2 * word(220) as usize;
    let sum: u64 = (0..covered).step_by(4).filter(|at| *at != 216).map(|at| u64::from(word(at))).sum();
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&block, 4096).expect("our file");
}

/// What md's superblock says of a member that it is rebuilding: in its slot, whole up to a sector.
fn mark_rebuilding(member: &Path, more_features: u32) {
    edit(member, |block| {
        block[8..12].copy_from_slice(&(RECOVERY_OFFSET | more_features).to_le_bytes());
        block[152..160].copy_from_slice(&REBUILT.to_le_bytes());
    });
}

fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("a member")).collect()
}

/// A full array whose last member is being rebuilt, and what it holds.
fn rebuilding(scratch: &Scratch, level: &str, count: usize) -> (Vec<PathBuf>, Vec<u8>) {
    let members = scratch.members(&format!("m{level}-"), count, 4 * MIB);
    scratch.create("half", &format!("-l {level} -n {count} --assume-clean"), &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let data = pattern(41, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    mark_rebuilding(&members[count - 1], 0);
    (members, data)
}

#[test]
fn an_array_whose_member_is_being_rebuilt_is_read_and_not_a_byte_of_it_changes() {
    for (level, count) in [("1", 3), ("10", 4), ("4", 3), ("5", 4), ("6", 4)] {
        let scratch = Scratch::new();
        let (members, data) = rebuilding(&scratch, level, count);
        let before = contents(&members);
        let served = scratch.ready(&[], &members);
        let slot = count - 1;
        let reason = format!("half: opened read-only: slot {slot} is being rebuilt by md, up to sector 2048 so far");
        served.wait_for(&reason);
        served.wait_for("left out: not in sync: 2048 of ");
        let mut client = served.client();
        assert!(client.is_read_only, "raid{level}: clients are told before they try");
        assert_eq!(client.write(0, &[1; 512]).expect("connected"), 1, "raid{level}: EPERM");
        assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "raid{level}");
        // It cannot be given up by a command either.
        scratch.uraid(["fail", "half", &text(&members[slot])]);
        assert_eq!(served.stop().code, Some(0));
        assert!(contents(&members) == before, "raid{level}: a member was written");
    }
}

#[test]
fn run_writes_without_the_member_that_is_being_rebuilt_and_gives_it_up() {
    let scratch = Scratch::new();
    let (members, mut data) = rebuilding(&scratch, "5", 4);
    let served = scratch.ready(&["--run"], &members);
    let part = pattern(42, 4096);
    assert!(!served.client().is_read_only);
    assert_eq!(served.client().write(0, &part).expect("connected"), 0);
    data[..4096].copy_from_slice(&part);
    assert_eq!(served.stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    served.wait_for("half: raid5 starts degraded, 3 of 4 slots, without slot 3");
    assert!(served.stderr().contains("left out: faulty") || served.stderr().contains("left out: stale"));
    let mut client = served.client();
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    assert_eq!(client.write(0, &part).expect("connected"), 0, "it is an ordinary degraded array now");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_replacement_in_the_making_is_not_given_up_when_it_is_given_or_forgotten() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 4 * MIB);
    scratch.create("half", "-l 1 -n 2 -x 1 --assume-clean", &members);
    for member in &members {
        // The third device is a second one of slot 1.
        edit(member, |block| block[260..262].copy_from_slice(&1u16.to_le_bytes()));
    }
    mark_rebuilding(&members[2], REPLACEMENT);
    let before = contents(&members);
    let served = scratch.ready(&[], &members);
    served.wait_for("opened read-only: a member is being replaced by md");
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 1, "EPERM");
    assert_eq!(served.stop().code, Some(0));
    scratch.serve(&[], &members[..2]).end().expect_refused(&["found 2 members, the superblocks count 3", "--run"]);
    assert!(contents(&members) == before, "a member was written");
    let served = scratch.ready(&["--run"], &members);
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn detail_and_examine_say_how_far_a_member_is_rebuilt_and_that_the_array_would_be_read_only() {
    let scratch = Scratch::new();
    let (members, _) = rebuilding(&scratch, "5", 4);
    let words = || ["detail".to_owned()].into_iter().chain(members.iter().map(|path| text(path)));
    let shown = scratch.uraid(words()).expect_done().stdout;
    assert!(shown.contains("not in sync: 2048 of "), "{shown}");
    assert!(shown.contains("Read-Only : slot 3 is being rebuilt by md, up to sector 2048"), "{shown}");
    let shown = scratch.uraid(words().chain(["--json".to_owned()])).expect_done().stdout;
    let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert!(json["read_only"].as_str().is_some_and(|text| text.contains("being rebuilt by md")), "{json}");
    let shown = scratch.uraid(["examine", &text(&members[3])]).expect_done().stdout;
    assert!(shown.contains("Recovery Offset : 2048 sectors"), "{shown}");
}

#[test]
fn an_array_over_one_that_opens_read_only_is_only_read_and_gives_up_no_member() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 2, 6 * MIB), scratch.members("r", 2, 6 * MIB));
    scratch.create("left", "-l 1 -n 2 --assume-clean", &left);
    scratch.create("right", "-l 1 -n 2 --assume-clean", &right);
    let groups = || {
        let members = |group: &[PathBuf]| group.iter().map(|path| text(path)).collect::<Vec<_>>();
        [vec!["--array".to_owned()], members(&left), vec!["--array".to_owned()], members(&right)].concat()
    };
    let words = ["create", "--homehost", "none", "--name", "over", "-l", "1", "-n", "2", "--assume-clean"];
    scratch.uraid(words.map(str::to_owned).into_iter().chain(groups())).expect_done();
    mark_rebuilding(&left[1], 0);
    let all = [&left[..], &right[..]].concat();
    let before = contents(&all);
    let options: Vec<String> = groups();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let served = scratch.ready(&options, &[]);
    served.wait_for("left: opened read-only: slot 1 is being rebuilt by md");
    served.wait_for("over: opened read-only: a member is an array that opens read-only itself");
    let mut client = served.client_of("over");
    assert_eq!(client.write(0, &[1; 512]).expect("connected"), 1, "EPERM");
    assert!(client.read(0, 65536).expect("connected").is_ok());
    assert_eq!(served.stop().code, Some(0));
    assert!(contents(&all) == before, "a member was written");
}

fn events(scratch: &Scratch, member: &Path) -> u64 {
    let shown = scratch.uraid(["examine", "--json", &text(member)]).expect_done().stdout;
    let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    json["events"].as_u64().or_else(|| json[0]["events"].as_u64()).expect("a number")
}

/// With --force, mdadm accepts a member that is one event behind.
#[test]
fn a_member_that_is_left_out_is_two_events_behind_before_the_first_write_is_answered() {
    let scratch = Scratch::new();
    let rebuilt = rebuilding(&scratch, "5", 4).0;
    let replacing = scratch.members("replacing", 3, 4 * MIB);
    scratch.create("replacing", "-l 1 -n 2 -x 1 --assume-clean", &replacing);
    for member in &replacing {
        edit(member, |block| block[260..262].copy_from_slice(&1u16.to_le_bytes()));
    }
    mark_rebuilding(&replacing[2], REPLACEMENT);
    // md's events can step back, so that a member which failed right before has as many as the others.
    let failed = scratch.members("failed", 3, 4 * MIB);
    scratch.create("failed", "-l 1 -n 3 --assume-clean", &failed);
    for member in &failed[..2] {
        edit(member, |block| block[260..262].copy_from_slice(&0xfffe_u16.to_le_bytes()));
    }
    for (options, members) in [(&["--run"][..], rebuilt), (&["--run"], replacing), (&[], failed)] {
        let (first, left_out) = (&members[0], members.last().expect("it has members"));
        assert_eq!(events(&scratch, first), events(&scratch, left_out));
        let served = scratch.ready(options, &members);
        assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
        served.kill_unawaited();
        drop(served);
        let ahead = events(&scratch, first) - events(&scratch, left_out);
        assert!(ahead >= 2, "{}: {ahead}", first.display());
    }
}
