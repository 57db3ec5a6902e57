//! `write-mostly` and `failfast` on the real binary: which members are read, what the superblocks and reports say.
//! Owns: flags of members that change while the array serves. Not here: flags that md has set (`md_cases`), read balancing
//! (`engine::balance`).

use crate::common::{MIB, Scratch, Served, pattern};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The bytes that each member has read since the start, by slot.
fn bytes_read(scratch: &Scratch) -> Vec<u64> {
    let shown = scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    let members = report["members"].as_array().expect("a list").iter();
    members.map(|member| member["io"]["reads"]["bytes"].as_u64().unwrap_or(0)).collect()
}

/// Reads all of the array; how much each member has given.
fn read_all(scratch: &Scratch, served: &Served) -> Vec<u64> {
    let before = bytes_read(scratch);
    let mut client = served.client();
    for at in (0..client.size).step_by(MIB as usize) {
        client.read(at, 65536).expect("connected").expect("it can be read");
    }
    bytes_read(scratch).iter().zip(before).map(|(now, before)| now - before).collect()
}

fn array(level: &str, slots: usize, spares: usize) -> (Scratch, Served, Vec<PathBuf>) {
    let scratch = Scratch::new();
    let members = scratch.members("m", slots + spares, 16 * MIB);
    scratch.create("home", &format!("-l {level} -n {slots} -x {spares} --assume-clean"), &members);
    let served = scratch.ready(&[], &members);
    served.write_all(0, &pattern(5, served.client().size as usize));
    (scratch, served, members)
}

#[test]
fn a_write_mostly_member_is_read_only_where_no_other_is_left() {
    for (level, slots) in [("1", 2), ("10", 4)] {
        let (scratch, served, members) = array(level, slots, 0);
        let done = scratch.uraid(["write-mostly", "home", &text(&members[0])]).expect_done();
        assert!(done.stdout.starts_with(&format!("{}: write-mostly in home, ", text(&members[0]))), "{done:?}");
        let read = read_all(&scratch, &served);
        assert!(read[0] == 0 && read[1] > 0, "raid{level}: {read:?}");
        let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
        assert!(shown.contains(&format!("active sync writemostly   {}", text(&members[0]))), "{shown}");
        assert!(scratch.uraid(["mdstat"]).expect_done().stdout.contains("m0[0](W)"));
        let shown = scratch.uraid(["examine", &text(&members[0])]).expect_done().stdout;
        assert!(shown.contains("Flags : write-mostly"), "{shown}");
        assert_eq!(served.stop().code, Some(0));
        // The next start does the same, until it is cleared.
        let served = scratch.ready(&[], &members);
        assert_eq!(read_all(&scratch, &served)[0], 0, "raid{level}");
        scratch.uraid(["write-mostly", "home", "0", "--clear"]).expect_done();
        assert!(read_all(&scratch, &served)[0] > 0, "raid{level}");
        scratch.uraid(["write-mostly", "home", "1"]).expect_done();
        scratch.uraid(["fail", "home", "0"]).expect_done();
        assert!(read_all(&scratch, &served)[1] > 0, "raid{level}: no other is left");
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_write_mostly_spare_stays_so_in_its_slot() {
    let (scratch, served, members) = array("1", 2, 1);
    scratch.uraid(["write-mostly", "home", &text(&members[2])]).expect_done();
    scratch.uraid(["replace", "home", "0"]).expect_done();
    served.wait_for("holds all of slot 0, and has taken it");
    let read = read_all(&scratch, &served);
    assert!(read[0] == 0 && read[1] > 0, "{read:?}");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_failfast_member_is_shown_as_one_until_it_is_cleared_also_after_a_start() {
    let (scratch, served, members) = array("10", 4, 0);
    let done = scratch.uraid(["failfast", "home", &text(&members[1]), "3"]).expect_done();
    assert!(done.stdout.starts_with(&format!("{}, 3: failfast in home, ", text(&members[1]))), "{done:?}");
    scratch.uraid(["write-mostly", "home", "3"]).expect_done();
    let states = || {
        let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
        let state = |member: &PathBuf| {
            let line = shown.lines().find(|line| line.ends_with(&text(member))).expect("a line for each member");
            line.split_once("active sync").expect("it works").1.trim_end_matches(&text(member)).trim().to_owned()
        };
        members.iter().map(state).collect::<Vec<String>>()
    };
    let flags = |member: &Path| {
        let shown = scratch.uraid(["examine", &text(member)]).expect_done().stdout;
        let line = shown.lines().find_map(|line| line.trim().strip_prefix("Flags : "));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(states(), ["", "failfast", "", "writemostly failfast"]);
    assert_eq!((flags(&members[1]), flags(&members[3])), ("failfast".to_owned(), "write-mostly failfast".to_owned()));
    assert_eq!(served.stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    assert_eq!(states(), ["", "failfast", "", "writemostly failfast"], "the next start");
    scratch.uraid(["failfast", "home", "1", "3", "--clear"]).expect_done();
    assert_eq!(states(), ["", "", "", "writemostly"]);
    assert_eq!((flags(&members[1]), flags(&members[3])), (String::new(), "write-mostly".to_owned()));
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn what_cannot_be_write_mostly_is_refused_in_one_sentence() {
    let (scratch, served, members) = array("1", 3, 0);
    scratch.uraid(["fail", "home", "2"]).expect_done();
    for (member, expected) in [
        ("7", "7: no such member or slot"),
        ("/nowhere", "/nowhere: no such member or slot"),
        (&text(&members[2])[..], "has failed or was removed"),
    ] {
        let done = scratch.uraid(["write-mostly", "home", member]).expect_refused(&[expected]);
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    }
    assert_eq!(served.stop().code, Some(0));
    let (scratch, served, _) = array("5", 3, 0);
    for flag in ["write-mostly", "failfast"] {
        scratch.uraid([flag, "home", "0"]).expect_refused(&["raid5 has no copies", flag, "only raid1 and raid10"]);
    }
    assert_eq!(served.stop().code, Some(0));
}
