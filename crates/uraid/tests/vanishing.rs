//! Member files that are deleted, replaced or moved while an array runs on them: the array continues, and the user is told.
//! Owns: what is said on stderr, in `detail`, at the stop. Not here: members that shrink or fail (`errors`, `pulled`).

use crate::common::{MIB, Scratch, pattern, wait};
use serde_json::Value;
use std::fs::{self, File};

#[test]
fn files_that_their_path_no_longer_leads_to_are_said_once_and_shown_and_at_the_stop_again() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 8 * MIB);
    scratch.create("ghost", "-l 6 -n 4 -c 64K --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let data = pattern(1, MIB as usize);
    assert_eq!(served.client().write(0, &data).expect("connected"), 0);
    let state = |index: usize| -> Value {
        let shown = scratch.uraid(["detail", "--json", "ghost"]).expect_done().stdout;
        let report: Value = serde_json::from_str(&shown).expect("JSON");
        report["members"][index]["path_state"].clone()
    };
    for member in 0..4 {
        assert_eq!(state(member), Value::Null, "nothing has happened yet");
    }
    fs::remove_file(&members[0]).expect("there");
    let copy = scratch.path("copy");
    fs::copy(&members[1], &copy).expect("room");
    fs::rename(&copy, &members[1]).expect("renamed over it");
    fs::rename(&members[2], scratch.path("moved")).expect("moved");
    fs::rename(&members[3], scratch.path("elsewhere")).expect("moved");
    File::create(&members[3]).expect("another file");
    let said = [
        "m0 (slot 0): its file was deleted, or another one was renamed over it",
        "m1 (slot 1): its file was deleted, or another one was renamed over it",
        "m2 (slot 2): its path leads nowhere now",
        "m3 (slot 3): its path leads to another file now",
    ];
    said.iter().for_each(|text| served.wait_for(text));
    for (member, expected) in ["deleted", "deleted", "missing", "replaced"].into_iter().enumerate() {
        assert_eq!(state(member), expected);
    }
    let shown = scratch.uraid(["detail", "ghost"]).expect_done().stdout;
    assert_eq!(shown.matches(": deleted: gone when the array stops\n").count(), 2, "{shown}");
    assert!(shown.contains("m2: its path leads nowhere\n") && shown.contains("m3: its path leads to another file\n"));
    assert!(shown.contains("Slots : [4/4] [UUUU]\n"), "{shown}");
    let listed = scratch.uraid(["list"]).expect_done().stdout;
    let paths = [2, 3].map(|member: usize| members[member].display());
    let notes = format!(
        ", the files of 2 members are deleted, the path of {} leads to another file, the path of {} leads nowhere  \
         nbd+unix:",
        paths[1], paths[0]
    );
    assert!(listed.contains(&notes), "{listed}");
    // A file that is moved back counts as before.
    fs::rename(scratch.path("moved"), &members[2]).expect("moved back");
    wait(|| state(2) == Value::Null).expect("it is noticed");
    let again = "m2 (slot 2): its path leads to it again\n";
    served.wait_for(again);
    assert!(served.client().read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    let stopped = scratch.uraid(["stop", "ghost"]).expect_done();
    let warned = "is clean, but on files that vanish with this process: ";
    for text in ["ghost: was clean on files that vanished with it: ", "m0", "m1"] {
        assert!(stopped.stderr.contains(text), "{stopped:?}");
    }
    let done = served.end();
    assert!(done.code == Some(0) && done.stderr.contains(warned), "{done:?}");
    for text in said.into_iter().chain([again]) {
        assert_eq!(done.stderr.matches(text).count(), 1, "{text}: {}", done.stderr);
    }
}

#[test]
fn a_failed_member_and_one_that_is_no_file_are_nobodys_business() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("quiet", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    scratch.uraid(["fail", "quiet", "1"]).expect_done();
    fs::remove_file(&members[1]).expect("there");
    // Each report checks the files first.
    scratch.uraid(["detail", "quiet"]).expect_done();
    let stopped = scratch.uraid(["stop", "quiet"]).expect_done();
    assert_eq!(stopped.stderr, "");
    let done = served.end();
    assert!(done.code == Some(0) && !done.stderr.contains("deleted"), "{done:?}");
}
