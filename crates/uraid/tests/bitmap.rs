//! Arrays with a write-intent bitmap, on the real binary: what a crash leaves is resynced, and only that.
//! Owns: create, serve, kill -9, detail, mdstat and examine of such arrays. Not here: which power cut finds which bit
//! missing (the simulator), md itself (`xtask vm`).

use crate::common::stubborn::StubbornFile;
use crate::common::{MIB, Scratch, Served, pattern, wait};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const SIZE: u64 = 64 * MIB;
const LEVELS: [(&str, usize); 4] = [("1", 2), ("10", 4), ("5", 3), ("6", 4)];

/// How many bits are set, by `examine`.
fn dirty(scratch: &Scratch, member: &Path) -> u64 {
    let text = scratch.uraid([std::ffi::OsStr::new("examine"), member.as_os_str()]).expect_done().stdout;
    let line = text.lines().find(|line| line.contains("bits (chunks), ")).unwrap_or_else(|| panic!("{text}"));
    let after = line.split("bits (chunks), ").nth(1).expect("the line has it");
    after.split(' ').next().expect("a number").parse().expect("a number")
}

fn report(scratch: &Scratch) -> Value {
    let shown = scratch.uraid(["detail", "--json", "bits"]).expect_done().stdout;
    serde_json::from_str(&shown).expect("JSON")
}

fn create(scratch: &Scratch, level: &str, count: usize) -> Vec<PathBuf> {
    let members = scratch.members(&format!("m{level}-"), count, SIZE);
    let options = format!("-l {level} -n {count} --assume-clean --bitmap=internal --bitmap-chunk=64K");
    let options = if level == "1" { options } else { format!("{options} -c 64K") };
    scratch.create("bits", &options, &members);
    members
}

/// The bytes that all members have read since the start.
fn bytes_read(scratch: &Scratch) -> u64 {
    let report = report(scratch);
    let members = report["members"].as_array().expect("a list").iter();
    members.map(|member| member["io"]["reads"]["bytes"].as_u64().unwrap_or_else(|| panic!("{member}"))).sum()
}

fn expect_bytes(served: &Served, at: u64, data: &[u8]) {
    assert_eq!(served.client().read(at, data.len()).expect("connected").as_deref(), Ok(data));
}

/// `detail` of members says what `serve` would do, also where `serve` needs an option for it.
#[test]
fn a_stopped_array_that_lacks_a_member_is_not_called_read_only_for_its_bitmap() {
    let scratch = Scratch::new();
    let members = create(&scratch, "5", 3);
    let shown = |members: &[PathBuf]| {
        let words = [PathBuf::from("detail")].into_iter().chain(members.iter().cloned());
        scratch.uraid(words).stdout
    };
    let lacking = || {
        let shown = shown(&members[..2]);
        assert!(shown.contains("Not Started") && !shown.contains("Read-Only"), "{shown}");
        assert!(shown.contains("Would Not Start"), "{shown}");
    };
    lacking();
    assert_eq!(scratch.ready(&["--run"], &members[..2]).stop().code, Some(0));
    // Dirty: only --force starts it without a member.
    let members = create(&scratch, "5", 3);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &[7; 4096]).expect("connected"), 0);
    served.kill_unawaited();
    served.end();
    let shown = shown(&members[..2]);
    assert!(shown.contains("dirty and degraded") && !shown.contains("Read-Only"), "{shown}");
}

#[test]
fn a_clean_stop_leaves_no_bit_and_a_crash_only_those_of_what_was_written() {
    for (level, count) in LEVELS {
        let scratch = Scratch::new();
        let members = create(&scratch, level, count);
        assert!(dirty(&scratch, &members[0]) > 900, "raid{level}: all are set at first");
        let served = scratch.ready(&[], &members);
        assert_eq!(served.stop().code, Some(0));
        for member in &members {
            assert_eq!(dirty(&scratch, member), 0, "raid{level}");
        }
        let served = scratch.ready(&[], &members);
        let mut client = served.client();
        let places = [0, 5 * MIB + 512, 17 * MIB];
        for (seed, at) in (1..).zip(places) {
            assert_eq!(client.write(at, &pattern(seed, 4096)).expect("connected"), 0);
        }
        served.kill_unawaited();
        drop(served);
        let of_members: Vec<u64> = members.iter().map(|member| dirty(&scratch, member)).collect();
        assert!(of_members.iter().all(|bits| (3..=4).contains(bits)), "raid{level}: {of_members:?}");
        let served = scratch.ready(&[], &members);
        served.wait_until_consistent();
        let read = bytes_read(&scratch);
        assert!(read <= 4 * 65_536 * count as u64, "raid{level}: {read} bytes were read for 3 dirty chunks");
        for (seed, at) in (1..).zip(places) {
            expect_bytes(&served, at, &pattern(seed, 4096));
        }
        assert_eq!(served.stop().code, Some(0));
        assert_eq!(dirty(&scratch, &members[0]), 0, "raid{level}");
    }
}

#[test]
fn copies_that_a_crash_left_different_agree_after_the_resync_of_the_dirty_chunks() {
    let scratch = Scratch::new();
    let members = create(&scratch, "1", 2);
    assert_eq!(scratch.ready(&[], &members).stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(3 * MIB, &pattern(5, 4096)).expect("connected"), 0);
    served.kill_unawaited();
    drop(served);
    let data = |member: &Path| fs::read(member).expect("a member")[MIB as usize..].to_vec();
    // A crash between the copies: one has the write, the other what was there before.
    let offset = report_offset(&scratch, &members[1]);
    crate::common::superblock::write_at(&members[1], offset + 3 * MIB, &[0; 4096]);
    let served = scratch.ready(&[], &members);
    served.wait_until_consistent();
    assert_eq!(served.stop().code, Some(0));
    let start = offset as usize - MIB as usize;
    assert!(data(&members[0])[start..] == data(&members[1])[start..], "the copies agree");
}

/// The first byte of the data of a member.
fn report_offset(scratch: &Scratch, member: &Path) -> u64 {
    let text = scratch.uraid([std::ffi::OsStr::new("examine"), member.as_os_str()]).expect_done().stdout;
    let line = text.lines().find(|line| line.contains("Data Offset : ")).unwrap_or_else(|| panic!("{text}"));
    let sectors = line.split(" : ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    sectors.parse::<u64>().expect("a number") * 512
}

#[test]
fn detail_and_mdstat_show_the_bitmap_in_mdadms_words() {
    let scratch = Scratch::new();
    let members = create(&scratch, "5", 3);
    let shown = scratch.uraid(["detail".into(), members[0].clone(), members[1].clone(), members[2].clone()]);
    let shown = shown.expect_done().stdout;
    assert!(shown.contains("     Intent Bitmap : Internal\n") && !shown.contains("Read-Only"), "{shown}");
    let served = scratch.ready(&[], &members);
    assert!(!served.client().is_read_only);
    let shown = scratch.uraid(["detail", "bits"]).expect_done().stdout;
    for line in ["     Intent Bitmap : Internal\n", "Consistency Policy : bitmap\n"] {
        assert!(shown.contains(line), "{shown}");
    }
    let stat = scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(stat.contains("      bitmap: 1/1 pages [4KB], 64KB chunk\n"), "{stat}");
    assert_eq!(report(&scratch)["bitmap"]["chunks"], 1008);
    wait(|| report(&scratch)["bitmap"]["dirty"] == 0).expect("an idle array clears its bits");
    let stat = scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(stat.contains("      bitmap: 0/1 pages [0KB], 64KB chunk\n"), "{stat}");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_bitmap_that_is_older_than_the_superblocks_is_not_believed() {
    let scratch = Scratch::new();
    let members = create(&scratch, "1", 2);
    assert_eq!(scratch.ready(&[], &members).stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &pattern(5, 4096)).expect("connected"), 0);
    served.kill_unawaited();
    drop(served);
    for member in &members {
        // The event count: byte 24 of the bitmap's header, which starts at sector 16.
        crate::common::superblock::write_at(member, 16 * 512 + 24, &0u64.to_le_bytes());
    }
    let served = scratch.ready(&[], &members);
    served.wait_for("the bitmap is out of date: all of its ");
    served.wait_until_consistent();
    assert!(bytes_read(&scratch) > SIZE, "everything was compared");
    assert_eq!(served.stop().code, Some(0));
}

/// `uraid bitmap`, with a line of its own about it.
fn change(scratch: &Scratch, words: &str) -> String {
    scratch.uraid(words.split(' ')).expect_done().stdout
}

#[test]
fn a_running_array_gets_a_bitmap_that_names_what_a_crash_leaves() {
    for (level, count) in LEVELS {
        let scratch = Scratch::new();
        let members = scratch.members("m", count, SIZE);
        scratch.create("bits", &format!("-l {level} -n {count} --assume-clean"), &members);
        let served = scratch.ready(&[], &members);
        assert_eq!(served.client().write(9 * MIB, &pattern(1, 4096)).expect("connected"), 0);
        let said = change(&scratch, "bitmap bits internal --bitmap-chunk 64K");
        assert_eq!(said, "bits: has a bitmap, a bit for each 64 KiB\n", "raid{level}");
        let shown = change(&scratch, "detail bits");
        assert!(shown.contains("Intent Bitmap : Internal\n") && shown.contains("Policy : bitmap\n"), "{shown}");
        assert!(
            members.iter().all(|member| dirty(&scratch, member) <= 1),
            "raid{level}: only what is written is named"
        );
        assert_eq!(served.client().write(5 * MIB, &pattern(2, 4096)).expect("connected"), 0);
        assert!(members.iter().all(|member| dirty(&scratch, member) >= 1), "raid{level}");
        served.kill_unawaited();
        drop(served);
        let served = scratch.ready(&[], &members);
        served.wait_until_consistent();
        let read = bytes_read(&scratch);
        // A row of 512 KiB chunks has eight bits.
        assert!(read <= 2 * 8 * 65_536 * count as u64, "raid{level}: {read} bytes were read for two writes");
        expect_bytes(&served, 9 * MIB, &pattern(1, 4096));
        expect_bytes(&served, 5 * MIB, &pattern(2, 4096));
        assert_eq!(change(&scratch, "--grow --bitmap=none bits"), "bits: has no bitmap any more\n", "raid{level}");
        assert_eq!(report(&scratch)["bitmap"], Value::Null);
        let shown = change(&scratch, "detail bits");
        assert!(!shown.contains("Intent Bitmap") && shown.contains("Policy : resync\n"), "{shown}");
        for member in &members {
            let text = scratch.uraid([std::ffi::OsStr::new("examine"), member.as_os_str()]).expect_done().stdout;
            assert!(!text.contains("Internal Bitmap"), "raid{level}: {text}");
        }
        assert_eq!(served.stop().code, Some(0));
        let served = scratch.ready(&[], &members);
        assert_eq!(report(&scratch)["bitmap"], Value::Null, "raid{level}: it stays away");
        expect_bytes(&served, 5 * MIB, &pattern(2, 4096));
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_change_of_the_bitmap_that_cannot_be_is_refused_and_changes_nothing() {
    let scratch = Scratch::new();
    let members = create(&scratch, "5", 3);
    let served = scratch.ready(&[], &members);
    let refused = |code: i32, words: &str, text: &str| {
        let done = scratch.uraid(words.split(' '));
        assert!(done.code == Some(code) && done.stderr.contains(text), "{text}: {done:?}");
        assert_eq!(report(&scratch)["bitmap"]["chunks"], 1008, "{words}");
    };
    refused(1, "bitmap bits internal", "bits: the array has a bitmap already; `uraid bitmap bits none` takes it away");
    refused(2, "bitmap bits clustered", "makes no clustered bitmaps");
    refused(2, "bitmap bits /some/file", "expected internal or none");
    refused(2, "bitmap bits", "bitmap takes ARRAY WHERE");
    refused(2, "bitmap bits none --bitmap-chunk 64K", "--bitmap-chunk is of a bitmap that is added");
    refused(1, "--grow --bitmap=internal --raid-devices=4 bits", "--grow: uraid does not change the geometry");
    refused(1, "bitmap other none", "other");
    change(&scratch, "bitmap bits none");
    let refused = |words: &str, text: &str| {
        let done = scratch.uraid(words.split(' '));
        assert!(done.code == Some(1) && done.stderr.contains(text), "{text}: {done:?}");
        assert_eq!(report(&scratch)["bitmap"], Value::Null, "{words}");
    };
    refused("bitmap bits none", "bits: the array has no bitmap");
    refused("bitmap bits internal --bitmap-chunk 3K", "bitmap chunk is 3 KiB, expected a power of two from 4 KiB");
    refused("bitmap bits internal --bitmap-chunk 4G", "bitmap chunk is 4 GiB, expected a power of two");
    assert_eq!(change(&scratch, "bitmap bits internal"), "bits: has a bitmap, a bit for each 64 MiB\n");
    assert_eq!(served.stop().code, Some(0));
    // Without redundancy there is nothing to make consistent.
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    scratch.create("bits", "-l 0 -n 2", &members);
    let served = scratch.ready(&[], &members);
    let done = scratch.uraid(["bitmap", "bits", "internal"]);
    assert!(done.code == Some(1) && done.stderr.contains("bits: raid0 has no redundancy"), "{done:?}");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn what_create_cannot_do_is_refused_by_name() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    let refused = |code: i32, options: &str, text: &str| {
        let words = format!("create {options} -n 2").split(' ').map(str::to_owned).collect::<Vec<_>>();
        let members = members.iter().map(|member| member.display().to_string());
        let done = scratch.uraid(words.into_iter().chain(members));
        assert!(done.code == Some(code) && done.stderr.contains(text), "{text}: {done:?}");
    };
    refused(2, "-l 1 -b clustered", "makes no clustered bitmaps");
    refused(2, "-l 1 -b lockless", "makes no lockless bitmaps");
    refused(1, "-l 0 -b internal", "raid0 has no redundancy");
    refused(1, "-l 1 -b internal --bitmap-chunk=3K", "bitmap chunk is 3 KiB, expected a power of two from 4 KiB");
    refused(2, "-l 1 -b /some/file", "expected internal or none");
}

#[test]
fn what_a_lost_member_had_in_a_dirty_stripe_is_an_error_and_force_computes_it() {
    let scratch = Scratch::new();
    let mut members = create(&scratch, "5", 3);
    let served = scratch.ready(&[], &members);
    // Data on members 0 and 1, parity on member 2.
    const ROW: u64 = 21;
    const CHUNK: u64 = 64 << 10;
    let at = ROW * 2 * CHUNK;
    let content = pattern(7, 4 * MIB as usize);
    let of = |at: u64, length: usize| &content[at as usize..][..length];
    assert_eq!(served.client().write(0, &content).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(at + 4096, of(at + 4096, 4096)).expect("connected"), 0);
    served.kill_unawaited();
    drop(served);
    // A crash that left old parity.
    let place = |member: &Path| report_offset(&scratch, member) + ROW * CHUNK;
    crate::common::superblock::write_at(&members[2], place(&members[2]), &[0x5a; 8192]);
    let start = place(&members[0]);
    let slow = StubbornFile::in_place_of(&mut members, 0);
    slow.hang_at_read_of(start..start + CHUNK);
    let served = scratch.serve(&[], &members);
    served.wait_until_ready();
    wait(|| slow.is_hung()).expect("the resync reads the stripe");
    let failed = scratch.uraid(["fail".into(), "bits".into(), members[0].clone()]);
    slow.go_on();
    failed.expect_done();
    served.wait_for("it lie in stripes that were being written at the crash");
    let mut client = served.client();
    assert!(client.read(at, 4096).expect("connected").is_err(), "it would be wrong");
    for other in [0, at - CHUNK, at + CHUNK, at + 2 * CHUNK] {
        let read = client.read(other, CHUNK as usize).expect("connected");
        assert!(read.as_deref() == Ok(of(other, CHUNK as usize)), "{other}");
    }
    // A write of it makes it known.
    assert_eq!(client.write(at, of(at, 4096)).expect("connected"), 0);
    assert!(client.read(at, 4096).expect("connected").as_deref() == Ok(of(at, 4096)));
    assert!(client.read(at + 4096, 4096).expect("connected").is_err());
    drop(client);
    served.stop();
    let rest = &members[1..];
    let words = ["serve".into()].into_iter().chain(rest.iter().cloned());
    scratch.uraid(words).expect_refused(&["dirty and degraded"]);
    let served = scratch.ready(&["--force"], rest);
    let read = served.client().read(at, 8192).expect("connected").expect("computed");
    assert!(read[..4096] == *of(at, 4096) && read[4096..] != *of(at + 4096, 4096));
    served.stop();
}
