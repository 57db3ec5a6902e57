//! `re-add` on the real binary: a member that comes back gets what the bitmap names, and no more.
//! Owns: bytes that are copied, contents, superblocks and refusals. Not here: crashes in between (`uraid-sim`), devices that
//! join as spares (`joining`).

use crate::common::{Done, MIB, Scratch, Served, pattern, wait};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SIZE: u64 = 40 * MIB;
const CHUNK: u64 = 64 * 1024;
/// A level, and its slots.
const LEVELS: [(&str, usize); 4] = [("1", 2), ("10", 4), ("5", 3), ("6", 4)];

/// An array with a bitmap and no bit that is set, full of data.
struct Rig {
    served: Served,
    members: Vec<PathBuf>,
    data: Vec<u8>,
    // Dropped after the server.
    scratch: Scratch,
}

impl Rig {
    fn new(level: &str, slots: usize) -> Rig {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots, SIZE);
        let chunk = if level == "1" { "" } else { "-c 64K" };
        let options = format!("-l {level} -n {slots} {chunk} --assume-clean --bitmap=internal --bitmap-chunk=64K");
        scratch.create("bits", &options, &members);
        let served = scratch.ready(&[], &members);
        let data = pattern(7, served.client().size as usize);
        let mut rig = Rig { served, members, data, scratch };
        rig.served.write_all(0, &rig.data);
        let all = rig.members.clone();
        rig.restart(&[], &all);
        rig
    }

    /// A clean stop clears all bits of an array that is whole.
    fn restart(&mut self, options: &[&str], members: &[PathBuf]) {
        self.scratch.stop_when_left("bits");
        self.served = self.scratch.ready(options, members);
    }

    fn run(&self, verb: &str, words: &[&str]) -> Done {
        self.scratch.uraid([verb, "bits"].into_iter().chain(words.iter().copied()))
    }

    fn path(&self, member: usize) -> String {
        self.members[member].display().to_string()
    }

    /// Writes at three places: four chunks at most.
    fn write_some(&mut self, seed: u64) {
        let mut client = self.served.client();
        for at in [0, 9 * MIB + 512, 17 * MIB] {
            let bytes = pattern(seed + at, 4096);
            assert_eq!(client.write(at, &bytes).expect("connected"), 0);
            self.data[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    #[track_caller]
    fn expect_data(&self) {
        let found = self.served.first_difference(&self.data);
        assert_eq!(found, None, "{}", self.served.stderr());
    }

    #[track_caller]
    fn expect_whole(&self) {
        let is_whole = || {
            let shown = self.run("detail", &[]).expect_done().stdout;
            !shown.contains("recovering") && shown.contains("UU") && !shown.contains("U_") && !shown.contains("[_")
        };
        wait(is_whole).unwrap_or_else(|()| panic!("it does not become whole: {}", self.served.stderr()));
    }

    /// The bytes that were written to a member since it joined.
    fn written_to(&self, member: usize) -> u64 {
        let shown = self.run("detail", &["--json"]).expect_done().stdout;
        let report: Value = serde_json::from_str(&shown).expect("JSON");
        let path = self.path(member);
        let members = report["members"].as_array().expect("a list");
        let found = members.iter().rfind(|one| one["path"] == path.as_str() || one["device"] == path.as_str());
        let found = found.unwrap_or_else(|| panic!("{path} is in none of {report}"));
        found["io"]["writes"]["bytes"].as_u64().expect("a count")
    }
}

#[test]
fn a_member_that_comes_back_gets_what_was_written_meanwhile_and_no_more() {
    for (level, slots) in LEVELS {
        let mut rig = Rig::new(level, slots);
        for (turn, verb) in [(1, "re-add"), (2, "add")] {
            rig.run("fail", &[&rig.path(1)]).expect_done();
            rig.run("remove", &[&rig.path(1)]).expect_done();
            rig.write_some(turn * 100);
            rig.run(verb, &[&rig.path(1)]).expect_done();
            rig.expect_whole();
            let written = rig.written_to(1);
            assert!(written <= 5 * CHUNK + MIB / 4, "raid{level}, {verb}: {written} bytes for four dirty chunks");
        }
        rig.run("fail", &[&rig.path(0)]).expect_done();
        rig.expect_data();
        assert_eq!(rig.served.stop().code, Some(0));
    }
}

#[test]
fn a_member_comes_back_to_an_array_that_was_stopped_and_started_without_it() {
    for (level, slots) in LEVELS {
        let mut rig = Rig::new(level, slots);
        rig.run("fail", &[&rig.path(1)]).expect_done();
        rig.write_some(1);
        let left: Vec<PathBuf> = (0..slots).filter(|at| *at != 1).map(|at| rig.members[at].clone()).collect();
        rig.restart(&[], &left);
        rig.write_some(2);
        rig.run("re-add", &[&rig.path(1)]).expect_done();
        rig.served.wait_for(&format!("bits: member {} is re-added in slot 1: only what changed", rig.path(1)));
        rig.expect_whole();
        assert!(rig.written_to(1) <= 5 * CHUNK + MIB / 4, "raid{level}: {} bytes", rig.written_to(1));
        // The clean stop of a whole array clears the bits: now it is as old as they are.
        let all = rig.members.clone();
        rig.restart(&[], &all);
        rig.expect_data();
        rig.run("fail", &[&rig.path(0)]).expect_done();
        rig.expect_data();
        assert_eq!(rig.served.stop().code, Some(0));
    }
}

#[test]
fn a_member_whose_bits_are_cleared_is_refused_and_changes_nothing() {
    let mut rig = Rig::new("1", 3);
    rig.run("fail", &[&rig.path(1)]).expect_done();
    rig.run("remove", &[&rig.path(1)]).expect_done();
    rig.members.push(rig.scratch.member("new", SIZE));
    rig.run("add", &[&rig.path(3)]).expect_done();
    rig.expect_whole();
    rig.write_some(5);
    rig.run("re-add", &[&rig.path(1)]).expect_refused(&["was in slot 1, which has another member", "uraid add"]);
    let all = [0, 2, 3].map(|at| rig.members[at].clone());
    rig.restart(&[], &all);
    rig.run("fail", &[&rig.path(3)]).expect_done();
    rig.run("remove", &[&rig.path(3)]).expect_done();
    let before = std::fs::read(&rig.members[1]).expect("a member");
    rig.run("re-add", &[&rig.path(1)]).expect_refused(&["it has missed more", "uraid add"]);
    assert!(std::fs::read(&rig.members[1]).expect("a member") == before);
    rig.run("add", &[&rig.path(1)]).expect_done();
    rig.expect_whole();
    rig.expect_data();
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn a_member_that_another_program_has_used_is_not_taken_back_without_force() {
    let mut rig = Rig::new("5", 3);
    rig.run("fail", &[&rig.path(1)]).expect_done();
    rig.run("remove", &[&rig.path(1)]).expect_done();
    rig.write_some(3);
    // The mark of ext4: its superblock is at 1 KiB, that of the member at 4 KiB.
    let file = std::fs::File::options().write(true).open(&rig.members[1]).expect("a member");
    file.write_all_at(&[0x53, 0xef], 1024 + 56).expect("there is room");
    rig.run("re-add", &[&rig.path(1)]).expect_refused(&["carries", "ext", "uraid add --force"]);
    rig.run("add", &[&rig.path(1)]).expect_refused(&["was a member, and carries", "--force"]);
    rig.run("add", &["--force", &rig.path(1)]).expect_done();
    rig.expect_whole();
    rig.run("fail", &[&rig.path(0)]).expect_done();
    rig.expect_data();
    assert_eq!(rig.served.stop().code, Some(0));
}
