//! `add`, `re-add` and `remove` on the real binary: members come and go while the array serves.
//! Owns: contents, reports and superblocks after each, and every refusal. Not here: crashes in between (`uraid-sim`),
//! spares that are given at the start (`spares`).

use crate::common::rig::Rig;
use crate::common::superblock::{EVENTS, Raw};
use crate::common::{MIB, Scratch, pattern, wait};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A level, and its slots.
const LEVELS: [(&str, usize); 4] = [("1", 2), ("5", 3), ("6", 4), ("10", 4)];

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Rig {
    /// All slots have a member that is in sync.
    #[track_caller]
    fn expect_whole(&self) {
        let is_whole = || {
            let shown = self.detail();
            !shown.contains("recovering") && shown.contains("UU") && !shown.contains("U_") && !shown.contains("[_")
        };
        wait(is_whole).unwrap_or_else(|()| panic!("{}\n{}", self.detail(), self.served.stderr()));
    }

    /// What every file holds.
    fn bytes(&self) -> Vec<Vec<u8>> {
        self.members.iter().map(|member| fs::read(member).expect("a member")).collect()
    }
}

#[test]
fn a_failed_member_is_removed_and_a_new_device_takes_its_slot() {
    for (level, slots) in LEVELS {
        let mut rig = Rig::new(level, slots, 0, 8 * MIB);
        rig.run("fail", &[&rig.path(1)]).expect_done();
        let removed = rig.run("remove", &[&rig.path(1)]).expect_done();
        assert_eq!(removed.stdout, format!("{}: removed from home, {}\n", rig.path(1), picture(slots, &[1])));
        rig.served.wait_for(&format!("home: member {} is removed {}\n", rig.path(1), picture(slots, &[1])));
        assert!(!rig.detail().contains(&rig.path(1)), "{}", rig.detail());
        rig.members.push(rig.scratch.member("new", 8 * MIB));
        let added = rig.run("add", &[&rig.path(slots)]).expect_done();
        assert!(added.stdout.starts_with(&format!("{}: added to home, ", rig.path(slots))), "{added:?}");
        rig.served.wait_for(&format!("home: member {} is added", rig.path(slots)));
        rig.expect_whole();
        rig.expect_data();
        // The new member is the neighbour or the copy of another one.
        rig.run("fail", &[&rig.path(0)]).expect_done();
        rig.expect_data();
        // Its superblock is that of a member: the array starts with it.
        rig.run("remove", &["failed"]).expect_done();
        rig.scratch.stop_when_left("home");
        let left: Vec<PathBuf> = (2..=slots).map(|at| rig.members[at].clone()).collect();
        rig.served = rig.scratch.ready(&[], &left);
        rig.expect_data();
        rig.stop();
    }
}

#[test]
fn a_member_that_was_removed_comes_back_and_is_recovered_from_the_beginning() {
    for (level, slots) in LEVELS {
        let mut rig = Rig::new(level, slots, 0, 8 * MIB);
        for _ in 0..3 {
            rig.run("fail", &["1"]).expect_done();
            rig.run("add", &[&rig.path(1)]).expect_refused(&["has failed and is still a member: `uraid remove home "]);
            rig.run("remove", &["1"]).expect_done();
            let mut client = rig.served.client();
            let more = pattern(62, MIB as usize);
            assert_eq!(client.write(0, &more).expect("connected"), 0);
            rig.data[..more.len()].copy_from_slice(&more);
            rig.run("re-add", &[&rig.path(1)]).expect_refused(&["has missed writes", "uraid add"]);
            rig.run("add", &[&rig.path(1)]).expect_done();
            rig.expect_whole();
        }
        rig.run("fail", &["0"]).expect_done();
        rig.expect_data();
        let shown = rig.detail();
        assert_eq!(shown.matches(&rig.path(1)).count(), 1, "{shown}");
        rig.stop();
    }
}

#[test]
fn a_spare_that_is_added_waits_and_takes_the_slot_of_the_next_member_that_fails() {
    let mut rig = Rig::new("5", 3, 0, 8 * MIB);
    for name in ["s0", "s1"] {
        rig.members.push(rig.scratch.member(name, 9 * MIB));
    }
    rig.run("add", &[&rig.path(3), &rig.path(4)]).expect_done();
    assert_eq!(rig.detail().matches(" spare ").count(), 2, "{}", rig.detail());
    rig.run("remove", &[&rig.path(4)]).expect_done();
    rig.run("remove", &[&rig.path(4)]).expect_refused(&["was removed already"]);
    rig.run("fail", &["2"]).expect_done();
    rig.expect_whole();
    rig.run("fail", &["0"]).expect_done();
    rig.expect_data();
    rig.stop();
}

#[test]
fn a_device_that_was_removed_is_free_and_a_failed_one_whose_file_is_gone_is_detached() {
    let rig = Rig::new("1", 2, 0, 8 * MIB);
    rig.run("fail", &["1"]).expect_done();
    rig.scratch.uraid(["zero-superblock", &rig.path(1)]).expect_refused(&["in use"]);
    let nothing = rig.run("remove", &["detached"]).expect_done();
    assert!(nothing.stdout.starts_with("home: no member is detached, "), "{nothing:?}");
    fs::remove_file(&rig.members[1]).expect("our file");
    rig.run("remove", &["detached"]).expect_done();
    let again = rig.scratch.member("m1", 8 * MIB);
    rig.run("add", &[&text(&again)]).expect_done();
    rig.expect_whole();
    rig.run("fail", &["0"]).expect_done();
    rig.run("remove", &["0"]).expect_done();
    rig.scratch.uraid(["zero-superblock", &rig.path(0)]).expect_done();
    rig.expect_data();
    rig.stop();
}

/// `[UU_U]`.
fn picture(slots: usize, without: &[usize]) -> String {
    let letters: String = (0..slots).map(|slot| if without.contains(&slot) { '_' } else { 'U' }).collect();
    format!("[{letters}]")
}

#[test]
fn bad_input_gets_one_sentence_and_changes_nothing() {
    let mut rig = Rig::new("5", 3, 0, 8 * MIB);
    rig.run("fail", &["2"]).expect_done();
    let others = rig.scratch.members("o", 2, 8 * MIB);
    rig.scratch.create("other", "-l 1 -n 2 --assume-clean", &others);
    let (small, text_file) = (rig.scratch.member("small", 2 * MIB), rig.scratch.member("swap", 8 * MIB));
    let mut swap = fs::read(&text_file).expect("our file");
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    swap[1024] = 1;
    fs::write(&text_file, swap).expect("our file");
    let blank = rig.scratch.member("blank", 8 * MIB);
    rig.members.extend(others.iter().cloned().chain([small.clone(), text_file.clone(), blank.clone()]));
    // An idle array becomes clean by itself.
    wait(|| rig.detail().contains("State : clean")).expect("it is idle");
    let before = rig.bytes();
    let cases: &[(&str, Vec<String>, &str)] = &[
        ("add", vec![text(&small)], "has 2 MiB, at least "),
        ("add", vec![text(&others[0])], "--force goes on and overwrites it"),
        ("add", vec![text(&text_file)], "--force goes on and overwrites it"),
        ("add", vec![text(&blank), text(&small)], "has 2 MiB, at least "),
        ("add", vec![text(&blank), text(&blank)], "is a member already"),
        ("add", vec![rig.path(0)], "is a member already"),
        ("add", vec![rig.path(2)], "has failed and is still a member: `uraid remove home /"),
        ("add", vec!["/nowhere".to_owned()], "/nowhere: not found"),
        ("add", vec!["/".to_owned()], "directory"),
        ("add", vec!["null:1T".to_owned()], "is gone when the server ends"),
        ("re-add", vec![text(&blank)], "has no superblock"),
        ("re-add", vec![text(&others[0])], "belongs to array"),
        ("re-add", vec![rig.path(2)], "has failed and is still a member: `uraid remove home /"),
        ("remove", vec![rig.path(0)], "comes first"),
        ("remove", vec!["1".to_owned()], "comes first"),
        ("remove", vec!["7".to_owned()], "no such member or slot"),
        ("remove", vec![text(&blank)], "no such member or slot"),
        ("remove", vec!["2".to_owned(), "0".to_owned()], "comes first"),
    ];
    for (verb, words, expected) in cases {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done = rig.run(verb, &words).expect_refused(&[expected]);
        assert_eq!(done.stderr.lines().count(), 1, "{verb} {words:?}: {done:?}");
    }
    assert!(rig.bytes() == before, "{}", rig.served.stderr());
    assert!(rig.detail().contains(&rig.path(2)), "{}", rig.detail());
    rig.expect_data();
    rig.run("add", &["--force", &text(&text_file)]).expect_done();
    rig.expect_whole();
    rig.run("fail", &["0"]).expect_done();
    rig.expect_data();
    rig.stop();
}

#[test]
fn arrays_that_take_no_members_say_why() {
    let scratch = Scratch::new();
    let plain = scratch.members("p", 2, 8 * MIB);
    scratch.create("plain", "-l 0 -n 2", &plain);
    let served = scratch.ready(&[], &plain);
    let blank = text(&scratch.member("blank", 8 * MIB));
    scratch.uraid(["add", "plain", &blank]).expect_refused(&["raid0 has no redundancy"]);
    drop(served);
    let mirror = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &mirror);
    let served = scratch.ready(&["--read-only"], &mirror);
    scratch.uraid(["add", "home", &blank]).expect_refused(&["home: the array is read-only, it was started so"]);
    scratch.uraid(["remove", "home", "0"]).expect_refused(&["comes first"]);
    drop(served);
    assert!(File::open(&blank).is_ok() && fs::read(&blank).expect("our file").iter().all(|byte| *byte == 0));
}

#[test]
fn a_removed_member_that_ran_without_the_others_is_not_taken_for_an_old_one() {
    let rig = Rig::new("1", 2, 0, 8 * MIB);
    rig.run("fail", &["1"]).expect_done();
    rig.run("remove", &["1"]).expect_done();
    let mut ahead = Raw::read(&rig.members[1]);
    ahead.set(EVENTS, &1_000_000u64.to_le_bytes());
    ahead.write();
    let before = fs::read(&rig.members[1]).expect("our file");
    rig.run("add", &[&rig.path(1)]).expect_refused(&["both have run without the other", "--force"]);
    assert!(fs::read(&rig.members[1]).expect("our file") == before);
    rig.run("add", &["--force", &rig.path(1)]).expect_done();
    rig.expect_whole();
    rig.run("fail", &["0"]).expect_done();
    rig.expect_data();
    rig.stop();
}
