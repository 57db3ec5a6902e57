//! `uraid update`: superblocks of stopped arrays, on the real binary.
//! Owns: the policy, the name, a resync; an update that was cut short; refusals that change nothing. Not here: which
//! write comes before which (`crate::update`), the place of a log (`uraid_format::update`).

use crate::common::superblock::{EVENTS, Raw};
use crate::common::{Done, MIB, Scratch, pattern};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn update(scratch: &Scratch, words: &str, members: &[PathBuf]) -> Done {
    let words = words.split(' ').map(PathBuf::from);
    scratch.uraid([PathBuf::from("update")].into_iter().chain(words).chain(members.iter().cloned()))
}

fn report(scratch: &Scratch) -> Value {
    serde_json::from_str(&scratch.uraid(["detail", "--json", "a"]).expect_done().stdout).expect("JSON")
}

/// Serves the array, and returns its policy.
fn policy(scratch: &Scratch, members: &[PathBuf], content: &[u8]) -> String {
    let served = scratch.ready(&[], members);
    let policy = report(scratch)["consistency_policy"].as_str().expect("a word").to_owned();
    assert_eq!(served.first_difference(content), None);
    served.write_all(0, content);
    scratch.uraid(["check", "--wait", "a"]).expect_done();
    assert_eq!(served.stop().code, Some(0));
    policy
}

/// An array that holds `content`, stopped.
fn array(scratch: &Scratch, options: &str, count: usize, content: &[u8]) -> Vec<PathBuf> {
    let members = scratch.members("m", count, 24 * MIB);
    scratch.create("a", options, &members);
    let served = scratch.ready(&[], &members);
    served.write_all(0, content);
    assert_eq!(served.stop().code, Some(0));
    members
}

/// What mdadm reads on a member, if it is installed.
fn examined(member: &Path) -> Option<String> {
    let Ok(done) = Command::new("mdadm").arg("--examine").arg(member).output() else {
        println!("not compared: mdadm is not installed");
        return None;
    };
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn all_bytes(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|member| fs::read(member).expect("a member")).collect()
}

#[test]
fn an_array_gets_a_log_and_loses_it_again() {
    let scratch = Scratch::new();
    let content = pattern(3, 2 * MIB as usize);
    let members = array(&scratch, "-l 5 -n 3 -x 1 -c 64K --assume-clean", 4, &content);
    let done = update(&scratch, "ppl", &members).expect_done();
    assert_eq!(done.stdout, "a: consistency policy: ppl\n");
    for member in &members {
        let shown = scratch.uraid([Path::new("examine"), member]).expect_done().stdout;
        assert!(shown.contains("PPL : 2016 sectors at offset 24 sectors"), "{shown}");
        if let Some(theirs) = examined(member) {
            assert!(theirs.contains("PPL : 2016 sectors at offset 24 sectors"), "{theirs}");
            assert!(theirs.contains("Feature Map : 0x400") && theirs.contains("- correct"), "{theirs}");
        }
    }
    assert_eq!(update(&scratch, "ppl", &members).expect_done().stdout, "a: consistency policy: ppl already\n");
    assert_eq!(policy(&scratch, &members, &content), "ppl");
    update(&scratch, "no-ppl", &members).expect_done();
    for member in &members {
        if let Some(theirs) = examined(member) {
            assert!(theirs.contains("Feature Map : 0x0") && !theirs.contains("PPL"), "{theirs}");
        }
    }
    assert_eq!(policy(&scratch, &members, &content), "resync");
}

/// The superblocks are written one after the other: the first ones of `after`, the rest as before.
#[test]
fn an_update_that_was_cut_short_holds_or_does_not_and_the_same_command_goes_on() {
    let content = pattern(4, MIB as usize);
    for (options, word, old, new) in [
        ("-l 5 -n 3 -c 64K --assume-clean", "ppl", "resync", "ppl"),
        ("-l 5 -n 3 -c 64K --assume-clean -k ppl", "no-ppl", "ppl", "resync"),
    ] {
        for reached in 0..3 {
            for goes_on in [false, true] {
                let scratch = Scratch::new();
                let members = array(&scratch, options, 3, &content);
                let before = all_bytes(&members);
                update(&scratch, word, &members).expect_done();
                for (member, before) in members.iter().zip(before).skip(reached) {
                    crate::common::superblock::write_at(member, 4096, &before[4096..8192]);
                }
                if goes_on {
                    update(&scratch, word, &members).expect_done();
                }
                let expected = if reached > 0 || goes_on { new } else { old };
                assert_eq!(policy(&scratch, &members, &content), expected, "{word}, {reached}, {goes_on}");
                let events: Vec<u64> = members.iter().map(|member| Raw::read(member).u64(EVENTS)).collect();
                assert!(events.iter().all(|count| *count == events[0]), "{events:?}");
            }
        }
    }
}

#[test]
fn a_resync_is_made_at_the_next_start_even_with_a_log() {
    for options in
        ["-l 5 -n 3 -c 64K --assume-clean -k ppl", "-l 1 -n 3 --assume-clean", "-l 1 -n 3 --assume-clean -b internal"]
    {
        let scratch = Scratch::new();
        let members = array(&scratch, options, 3, &[]);
        // Bytes that disagree, and that nothing names.
        Raw::read(&members[1]).spoil(&[(4096, 8)]);
        update(&scratch, "resync", &members).expect_done();
        if let Some(theirs) = examined(&members[2]) {
            assert!(theirs.contains("State : active") && theirs.contains("- correct"), "{theirs}");
        }
        update(&scratch, "resync", &members).expect_refused(&["a: is dirty: serve it until it is consistent"]);
        let served = scratch.ready(&[], &members);
        assert!(served.stderr().contains("it is made consistent"), "{options}: {}", served.stderr());
        scratch.uraid(["check", "--wait", "a"]).expect_done();
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn an_array_gets_another_name_and_host_and_loses_its_empty_lists() {
    let scratch = Scratch::new();
    let content = pattern(5, MIB as usize);
    let members = array(&scratch, "-l 1 -n 2", 2, &content);
    let names = |expected: &str| {
        for member in &members {
            let shown = scratch.uraid([Path::new("examine"), member]).expect_done().stdout;
            assert!(shown.contains(&format!("Name : {expected}")), "{shown}");
            if let Some(theirs) = examined(member) {
                assert!(theirs.contains(&format!("Name : {expected}")) && theirs.contains("- correct"), "{theirs}");
            }
        }
    };
    assert_eq!(update(&scratch, "homehost --homehost here", &members).expect_done().stdout, "a: name: here:a\n");
    names("here:a");
    update(&scratch, "name --name b", &members).expect_done();
    names("here:b");
    update(&scratch, "name --name a --homehost none", &members).expect_done();
    names("a");
    update(&scratch, "no-bbl", &members).expect_done();
    for theirs in members.iter().filter_map(|member| examined(member)) {
        assert!(!theirs.contains("Bad Block Log"), "{theirs}");
    }
    assert_eq!(policy(&scratch, &members, &content), "resync");
}

#[test]
fn what_cannot_be_updated_is_refused_and_stays_as_it_was() {
    let scratch = Scratch::new();
    let members = array(&scratch, "-l 5 -n 3 -c 64K --assume-clean", 3, &[]);
    let mirrors = scratch.members("r", 2, 8 * MIB);
    scratch.create("mirror", "-l 1 -n 2 --assume-clean", &mirrors);
    let stripes = scratch.members("s", 2, 8 * MIB);
    scratch.create("stripe", "-l 0 -n 2", &stripes);
    let new = scratch.members("n", 3, 8 * MIB);
    scratch.create("new", "-l 5 -n 3", &new);
    let with_bitmap = scratch.members("b", 3, 8 * MIB);
    scratch.create("bits", "-l 5 -n 3 --assume-clean -b internal", &with_bitmap);
    let everything = [&members[..], &mirrors, &stripes, &new, &with_bitmap].concat();
    let before = all_bytes(&everything);
    let refused = |words: &str, members: &[PathBuf], text: &str| {
        update(&scratch, words, members).expect_refused(&[text, "nothing was changed"]);
    };
    refused("ppl", &members[1..], "a: 1 of its 3 slots have no member in sync");
    refused("ppl", &[&members[..], &mirrors[..1]].concat(), "1 of the members cannot be used");
    refused("ppl", &[&members[..], &[scratch.path("absent")]].concat(), "1 of the members cannot be used");
    refused("ppl", &mirrors, "belongs to a raid1, which can have no partial parity log, expected raid5");
    refused("ppl", &with_bitmap, "belongs to an array with a bitmap");
    refused("resync", &stripes, "belongs to a raid0, which has no redundancy to resync");
    refused("no-ppl", &new, "new: is dirty");
    refused("ppl", &[&members[..], &members[..1]].concat(), "a member is named twice");
    let misused = [
        ("policy", "expected ppl, no-ppl, resync, name, homehost or no-bbl"),
        ("uuid", "uraid does not change that: use mdadm"),
        ("force-no-bbl", "they would be read as if they were good"),
        ("name", "update name takes --name NAME"),
        ("ppl --name x", "--name and --homehost are for update name"),
    ];
    for (words, text) in misused {
        let done = update(&scratch, words, &members);
        assert!(done.code == Some(2) && done.stderr.contains(text), "{done:?}");
    }
    assert!(all_bytes(&everything) == before, "nothing was changed");
    let served = scratch.ready(&[], &members);
    update(&scratch, "ppl", &members).expect_refused(&["nothing was changed", "in use by another process"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn members_that_list_bad_blocks_keep_their_lists() {
    let scratch = Scratch::new();
    let members = array(&scratch, "-l 1 -n 2 --assume-clean", 2, &[]);
    Raw::read(&members[1]).list_bad(&[(64, 8)]);
    let before = all_bytes(&members);
    update(&scratch, "no-bbl", &members).expect_refused(&["m1: lists bad blocks", "nothing was changed"]);
    assert!(all_bytes(&members) == before);
}
