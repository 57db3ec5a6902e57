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
    mdadm("--examine", member)
}

fn mdadm(option: &str, member: &Path) -> Option<String> {
    let Ok(done) = Command::new("mdadm").arg(option).arg(member).output() else {
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
    let refused = "the array's name has 32 bytes";
    update(&scratch, &format!("homehost --homehost {}", "h".repeat(30)), &members).expect_refused(&[refused]);
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
        ("policy", "expected ppl, no-ppl, resync, name, homehost, no-bbl, bbl, uuid, devicesize, logical-block-size"),
        ("metadata", "uraid does not change that: use mdadm"),
        ("name --name x --uuid 1234abcd123412341234567890abcdef", "--uuid is for update uuid"),
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
    update(&scratch, "ppl", &members).expect_refused(&["nothing was changed", "in use by process", "`uraid stop "]);
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

const UUID: &str = "12345678:9abcdef0:11223344:55667788";
/// Where `create` puts a bitmap, in bytes.
const BITMAP_AT: usize = 8192;

/// A line of `uraid examine`, which mdadm prints as well.
#[track_caller]
fn expect_line(scratch: &Scratch, member: &Path, line: &str) {
    let ours = scratch.uraid([Path::new("examine"), member]).expect_done().stdout;
    assert!(ours.contains(line), "{line:?} is not in:\n{ours}");
    if let Some(theirs) = examined(member) {
        assert!(theirs.contains(line) && theirs.contains("- correct"), "{line:?} is not in:\n{theirs}");
    }
}

#[test]
fn an_array_gets_another_id_with_its_bitmap_and_its_log() {
    for (options, kept) in [("-l 5 -n 3 -x 1 -c 64K --assume-clean -k ppl", "ppl"), ("-l 1 -n 4 -b internal", "bitmap")]
    {
        let scratch = Scratch::new();
        let content = pattern(6, 2 * MIB as usize);
        let members = array(&scratch, options, 4, &content);
        let done = update(&scratch, &format!("uuid --uuid {UUID}"), &members).expect_done();
        assert_eq!(done.stdout, format!("a: its UUID becomes {UUID}\na: UUID: {UUID}\n"));
        for member in &members {
            expect_line(&scratch, member, &format!("Array UUID : {UUID}"));
            let shown = scratch.uraid([Path::new("examine"), member]).expect_done().stdout;
            assert!(!shown.contains("signature"), "{kept}: {shown}");
            if kept == "bitmap" {
                assert_eq!(shown.matches(UUID).count(), 2, "{shown}");
                // mdadm takes a file for a bitmap that is nothing else.
                let bits = scratch.path("bits");
                fs::write(&bits, &fs::read(member).expect("a member")[BITMAP_AT..]).expect("room");
                let theirs = mdadm("--examine-bitmap", &bits).unwrap_or_else(|| format!("UUID : {UUID}"));
                assert!(theirs.contains(&format!("UUID : {UUID}")), "{theirs}");
            }
        }
        assert_eq!(policy(&scratch, &members, &content), kept);
        let again = update(&scratch, &format!("uuid --uuid {UUID}"), &members).expect_done();
        assert!(again.stdout.ends_with(&format!("a: UUID: {UUID} already\n")), "{again:?}");
        update(&scratch, "uuid", &members).expect_done();
        let shown = scratch.uraid([Path::new("examine"), &members[0]]).expect_done().stdout;
        assert!(!shown.contains(UUID), "a random one: {shown}");
        assert_eq!(policy(&scratch, &members, &content), kept);
    }
}

#[test]
fn a_damaged_bitmap_is_written_again_before_the_id_is_changed() {
    let scratch = Scratch::new();
    let content = pattern(9, MIB as usize);
    let members = array(&scratch, "-l 1 -n 2 -b internal", 2, &content);
    crate::common::superblock::write_at(&members[1], BITMAP_AT as u64, &[0; 512]);
    let before = all_bytes(&members);
    update(&scratch, "uuid", &members).expect_refused(&["m1: its bitmap cannot be used", "nothing was changed"]);
    assert!(all_bytes(&members) == before);
    // What does not depend on it goes on.
    update(&scratch, "name --name a", &members).expect_done();
    assert_eq!(policy(&scratch, &members, &content), "bitmap");
    update(&scratch, &format!("uuid --uuid {UUID}"), &members).expect_done();
    assert_eq!(policy(&scratch, &members, &content), "bitmap");
}

/// The superblocks of the others are those from before.
#[test]
fn an_interrupted_change_of_the_id_is_refused_until_it_goes_on() {
    for reached in 1..3 {
        let scratch = Scratch::new();
        let content = pattern(7, MIB as usize);
        let members = array(&scratch, "-l 5 -n 3 -c 64K --assume-clean", 3, &content);
        let before = all_bytes(&members);
        update(&scratch, &format!("uuid --uuid {UUID}"), &members).expect_done();
        for (member, before) in members.iter().zip(before).skip(reached) {
            crate::common::superblock::write_at(member, 4096, &before[4096..8192]);
        }
        let interrupted = all_bytes(&members);
        let refused = scratch.serve(&[], &members).end();
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for words in ["uuid", "uuid --uuid 00000000000000000000000000000001"] {
            update(&scratch, words, &members).expect_refused(&["as an interrupted update leaves them", UUID]);
        }
        assert!(all_bytes(&members) == interrupted, "nothing was changed");
        update(&scratch, &format!("uuid --uuid {UUID}"), &members).expect_done();
        members.iter().for_each(|member| expect_line(&scratch, member, &format!("Array UUID : {UUID}")));
        assert_eq!(policy(&scratch, &members, &content), "resync");
    }
}

#[test]
fn members_without_lists_get_them_and_larger_devices_are_counted_whole() {
    for version in ["1.1", "1.2"] {
        let scratch = Scratch::new();
        let content = pattern(8, MIB as usize);
        let members = array(&scratch, &format!("-e {version} -l 1 -n 2"), 2, &content);
        update(&scratch, "no-bbl", &members).expect_done();
        assert_eq!(update(&scratch, "bbl", &members).expect_done().stdout, "a: bad-block lists: on every member\n");
        let offset = if version == "1.2" { 2032 } else { 2040 };
        for member in &members {
            expect_line(&scratch, member, &format!("Bad Block Log : 512 entries available at offset {offset} sectors"));
        }
        assert!(update(&scratch, "bbl", &members).expect_done().stdout.ends_with(" already\n"));
        for member in &members {
            fs::OpenOptions::new().write(true).open(member).and_then(|file| file.set_len(40 * MIB)).expect("room");
        }
        let done = update(&scratch, "devicesize", &members).expect_done();
        assert_eq!(done.stdout, "a: room for data: up to the end of every device\n");
        let line = format!("Avail Dev Size : {} sectors (39.00 MiB", 40 * 2048 - 2048);
        members.iter().for_each(|member| expect_line(&scratch, member, &line));
        assert!(update(&scratch, "devicesize", &members).expect_done().stdout.ends_with(" already\n"));
        assert_eq!(policy(&scratch, &members, &content), "resync");
    }
    let scratch = Scratch::new();
    let stripes = scratch.members("s", 2, 8 * MIB);
    scratch.create("stripe", "-l 0 -n 2", &stripes);
    update(&scratch, "devicesize", &stripes).expect_refused(&["layout follows from the sizes", "nothing was changed"]);
    let ends = scratch.members("e", 2, 8 * MIB);
    scratch.create("ends", "-e 1.0 -l 1 -n 2 --assume-clean", &ends);
    update(&scratch, "devicesize", &ends).expect_refused(&["superblock behind the data", "nothing was changed"]);
}
