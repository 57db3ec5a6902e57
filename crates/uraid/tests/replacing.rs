//! `replace` on the real binary: a member is copied to a spare, which takes its slot while the array serves.
//! Owns: contents, reports and lines of it, a failure and a kill in the middle, every refusal. Not here: crashes at each
//! step (`uraid-sim`), replacements that md began (`rebuilding`).

use crate::common::rig::Rig;
use crate::common::{MIB, Scratch, pattern, wait};
use std::path::Path;

/// A level, and its slots.
const LEVELS: [(&str, usize); 5] = [("1", 2), ("4", 3), ("5", 3), ("6", 4), ("10", 4)];

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Rig {
    /// Passes of the array take seconds.
    fn slow_down(&self) {
        self.run("speed", &["--max", "2000"]).expect_done();
    }

    fn hurry(&self) {
        self.run("speed", &["--max", "0"]).expect_done();
    }
}

#[test]
fn a_member_is_replaced_while_a_client_writes_and_the_array_never_lacks_one() {
    for (level, slots) in LEVELS {
        let mut rig = Rig::new(level, slots, 1, 8 * MIB);
        rig.slow_down();
        let (old, new) = (rig.path(1), rig.path(slots));
        let begun = rig.run("replace", &[&old, "--with", &new]).expect_done();
        assert_eq!(begun.stdout, format!("{old}: is copied to {new}; `uraid wait home` waits for the end\n"));
        let shown = rig.detail();
        assert!(shown.contains("recovering") && shown.contains("Rebuild Status : "), "{shown}");
        let row = format!("      spare rebuilding replacement   {new}");
        assert!(shown.contains(&row) && !shown.contains("degraded"), "{shown}");
        let shown = rig.scratch.uraid(["mdstat"]).expect_done().stdout;
        assert!(shown.contains("(R)") && shown.contains("recovery = "), "{shown}");
        // Before and behind where the copy is.
        for at in [0, rig.data.len() - 65536] {
            let bytes = pattern(at as u64 + 9, 65536);
            rig.served.write_all(at as u64, &bytes);
            rig.data[at..at + 65536].copy_from_slice(&bytes);
        }
        rig.hurry();
        rig.served.wait_for(&format!("home: member {old} (slot 1) was replaced, and may be removed"));
        rig.served.wait_for(&format!("home: member {new} holds all of slot 1, and has taken it"));
        rig.run("remove", &[&old]).expect_done();
        rig.expect_data();
        rig.run("fail", &[&rig.path(0)]).expect_done();
        rig.expect_data();
        rig.stop();
    }
}

#[test]
fn a_member_that_fails_while_it_is_copied_is_recovered_from_the_others() {
    for (level, slots) in [("1", 3), ("5", 3), ("10", 4)] {
        let rig = Rig::new(level, slots, 1, 8 * MIB);
        rig.slow_down();
        rig.run("replace", &["1"]).expect_done();
        rig.run("fail", &["1"]).expect_done();
        rig.served.wait_for(&format!("home: member {} takes slot 1 now, and is being recovered", rig.path(slots)));
        rig.hurry();
        rig.served.wait_for("(slot 1) is recovered");
        rig.expect_data();
        rig.stop();
    }
}

#[test]
fn fail_of_the_new_member_ends_the_replacement_and_the_old_one_stays() {
    let rig = Rig::new("6", 4, 1, 8 * MIB);
    rig.slow_down();
    rig.run("replace", &[&rig.path(1)]).expect_done();
    rig.run("fail", &[&rig.path(4)]).expect_done();
    let shown = rig.detail();
    assert!(shown.contains("[4/4] [UUUU]") && !shown.contains("recovering"), "{shown}");
    rig.run("remove", &[&rig.path(4)]).expect_done();
    // It can join again, and replace another one.
    rig.hurry();
    rig.run("add", &[&rig.path(4)]).expect_done();
    rig.run("replace", &[&rig.path(2)]).expect_done();
    rig.served.wait_for(&format!("home: member {} holds all of slot 2, and has taken it", rig.path(4)));
    rig.expect_data();
    rig.stop();
}

#[test]
fn a_stop_or_a_kill_in_the_middle_goes_on_at_the_next_start() {
    for (level, slots) in LEVELS {
        for is_killed in [false, true] {
            let mut rig = Rig::new(level, slots, 1, 8 * MIB);
            rig.slow_down();
            rig.run("replace", &["1"]).expect_done();
            wait(|| rig.detail().contains("State : clean")).expect("it is marked clean");
            let Rig { served, members, data, scratch } = rig;
            if is_killed {
                served.kill_unawaited();
                drop(served);
            } else {
                assert_eq!(served.stop().code, Some(0));
            }
            let shown = scratch.uraid(["examine", &text(&members[slots])]).expect_done().stdout;
            assert!(shown.contains("Device Role : Replacement device 1"), "{shown}");
            let served = scratch.ready(&[], &members);
            rig = Rig { served, members, data, scratch };
            rig.served.wait_for("(slot 1) was replaced, and may be removed");
            // As soon as the superblocks say so.
            wait(|| rig.run("remove", &[&rig.path(1)]).code == Some(0)).expect("it may be removed");
            rig.run("fail", &[&rig.path(0)]).expect_done();
            rig.expect_data();
            rig.stop();
        }
    }
}

/// Linux md would never copy the rest of it: docs/compat.md.
#[test]
fn a_member_that_replaces_another_one_is_a_spare_on_disk_while_the_array_is_dirty() {
    for (level, slots) in LEVELS {
        let mut rig = Rig::new(level, slots, 1, 8 * MIB);
        rig.slow_down();
        rig.run("replace", &["1"]).expect_done();
        let bytes = pattern(3, 65536);
        rig.served.write_all(0, &bytes);
        rig.data[..65536].copy_from_slice(&bytes);
        let Rig { served, members, data, scratch } = rig;
        served.kill_unawaited();
        drop(served);
        let shown = scratch.uraid(["examine", &text(&members[slots])]).expect_done().stdout;
        assert!(shown.contains("Device Role : spare"), "{shown}");
        let served = scratch.ready(&[], &members);
        rig = Rig { served, members, data, scratch };
        rig.expect_data();
        rig.run("replace", &["1"]).expect_done();
        rig.served.wait_for("(slot 1) was replaced, and may be removed");
        rig.expect_data();
        rig.stop();
    }
}

#[test]
fn what_cannot_be_replaced_is_refused_in_one_sentence_and_nothing_changes() {
    let rig = Rig::new("5", 3, 1, 8 * MIB);
    // After the first writes the array is marked clean once, which is an event.
    wait(|| rig.detail().contains("State : clean")).expect("it is marked clean");
    let shown = rig.detail();
    let events = |shown: &str| shown.lines().find(|line| line.contains("Events : ")).map(str::to_owned);
    for (words, expected) in [
        (&["1", "--with", &rig.path(0)][..], "works in the array, and is no spare"),
        (&["1", "--with", "/nowhere"], "/nowhere: is no spare of the array: `uraid add home /nowhere` comes first"),
        (&["7"], "7: no such member or slot"),
        (&[&rig.path(3)], "is a spare"),
        (&["1", "--with", &rig.path(3), &rig.path(2)], "2 spares are given for 1 members"),
    ] {
        let done = rig.run("replace", words).expect_refused(&[expected]);
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    }
    assert_eq!(events(&rig.detail()), events(&shown));
    rig.slow_down();
    rig.run("replace", &["1"]).expect_done();
    rig.run("replace", &["1"]).expect_refused(&["is being replaced already"]);
    rig.run("replace", &["2"]).expect_refused(&["there is no spare", "`uraid add home DEVICE`"]);
    rig.run("remove", &[&rig.path(3)]).expect_refused(&["works in the array"]);
    rig.hurry();
    rig.served.wait_for("was replaced, and may be removed");
    rig.run("replace", &[&rig.path(1)]).expect_refused(&["has failed already"]);
    wait(|| !rig.detail().contains("recovering")).expect("it ends");
    rig.stop();
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 4 * MIB);
    scratch.create("plain", "-l 0 -n 2", &members);
    let served = scratch.ready(&[], &members);
    scratch.uraid(["replace", "plain", "1"]).expect_refused(&["raid0 has no redundancy"]);
    assert_eq!(served.stop().code, Some(0));
}
