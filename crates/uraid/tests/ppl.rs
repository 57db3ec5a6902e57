//! raid5 with a partial parity log, on the real binary: a crash costs no resync, and with a member lost nothing that was
//! not being written.
//! Owns: create, serve, kill -9, detail and examine of such arrays; refusals. Not here: which power cut finds which row
//! half written (the simulator), md itself (`xtask vm`).

use crate::common::{MIB, Scratch, Served, pattern, wait};
use serde_json::Value;
use std::path::PathBuf;

const SIZE: u64 = 32 * MIB;

fn create(scratch: &Scratch) -> Vec<PathBuf> {
    let members = scratch.members("m", 4, SIZE);
    scratch.create("log", "-l 5 -n 4 -c 64K -k ppl", &members);
    members
}

fn report(scratch: &Scratch) -> Value {
    serde_json::from_str(&scratch.uraid(["detail", "--json", "log"]).expect_done().stdout).expect("JSON")
}

/// The bytes that all members have read since the start.
fn bytes_read(scratch: &Scratch) -> u64 {
    let report = report(scratch);
    let members = report["members"].as_array().expect("a list").iter();
    members.map(|member| member["io"]["reads"]["bytes"].as_u64().unwrap_or_else(|| panic!("{member}"))).sum()
}

/// Fills the array, flushes, and kills it in the middle of writes into some of its rows. Returns what was there, and what
/// was not being written.
fn killed_in_writes(scratch: &Scratch, members: &[PathBuf]) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    let served = scratch.ready(&[], members);
    assert_eq!(report(scratch)["consistency_policy"], "ppl");
    let content = pattern(7, 6 * MIB as usize);
    served.write_all(0, &content);
    let mut client = served.client();
    assert_eq!(client.flush().expect("connected"), 0);
    // One chunk of 64 KiB of each row of 192 KiB; the answers are not waited for.
    let written: Vec<usize> = (0..32).map(|row| row * 192 * 1024 + (row % 3) * 65_536).collect();
    for at in &written {
        client.send_write(1, *at as u64, &pattern(9, 65_536)).expect("connected");
    }
    served.kill_unawaited();
    let mut kept = Vec::new();
    let mut from = 0;
    for at in written {
        kept.push(from..at);
        from = at + 65_536;
    }
    kept.push(from..content.len());
    (content, kept)
}

fn expect_kept(served: &Served, content: &[u8], kept: &[std::ops::Range<usize>]) {
    let mut client = served.client();
    for range in kept.iter().filter(|range| !range.is_empty()) {
        let found = client.read(range.start as u64, range.len()).expect("connected").expect("it can be read");
        assert!(found == content[range.clone()], "{range:?}");
    }
}

#[test]
fn a_killed_array_needs_no_resync_and_its_parity_is_right() {
    let scratch = Scratch::new();
    let members = create(&scratch);
    let (content, kept) = killed_in_writes(&scratch, &members);
    let served = scratch.ready(&[], &members);
    assert!(served.stderr().contains("no resync is needed"), "{}", served.stderr());
    let read = bytes_read(&scratch);
    assert!(read < 8 * MIB, "{read} bytes were read: a resync reads {}", 4 * SIZE);
    expect_kept(&served, &content, &kept);
    scratch.uraid(["check", "--wait", "log"]).expect_done();
    assert_eq!(report(&scratch)["last_check"]["mismatched"], 0, "{}", report(&scratch)["last_check"]);
    assert!(!served.stderr().contains("resync done"), "{}", served.stderr());
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_member_that_is_lost_with_the_crash_costs_nothing_that_was_not_being_written() {
    for lost in 0..4 {
        let scratch = Scratch::new();
        let members = create(&scratch);
        let (content, kept) = killed_in_writes(&scratch, &members);
        let left: Vec<PathBuf> = (0..4).filter(|at| *at != lost).map(|at| members[at].clone()).collect();
        let served = scratch.ready(&["--run"], &left);
        expect_kept(&served, &content, &kept);
        // A new member gets what it lacks, and a log.
        let spare = scratch.member("spare", SIZE);
        scratch.uraid([PathBuf::from("add"), "log".into(), spare.clone()]).expect_done();
        scratch.uraid(["wait", "log"]);
        // It is marked clean a moment after the last write.
        wait(|| report(&scratch)["state"] == serde_json::json!(["clean"])).expect("whole, and clean");
        assert_eq!(served.stop().code, Some(0));
        let shown = scratch.uraid([PathBuf::from("examine"), spare]).expect_done().stdout;
        assert!(shown.contains("PPL : 2048 sectors at offset 8 sectors"), "{shown}");
    }
}

#[test]
fn what_has_no_log_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, SIZE);
    let named = |words: &str| {
        let words = words.split(' ').map(PathBuf::from);
        scratch.uraid([PathBuf::from("create")].into_iter().chain(words).chain(members.iter().cloned()))
    };
    named("-l 6 -n 4 -k ppl").expect_refused(&["raid6 can have no partial parity log, expected raid5"]);
    let misused = [
        ("-l 5 -n 4 -k ppl -b internal", "--consistency-policy=ppl and --bitmap=internal contradict each other"),
        ("-l 5 -n 4 -k journal", "uraid makes no arrays with a journal"),
    ];
    for (words, text) in misused {
        let done = named(words);
        assert!(done.code == Some(2) && done.stderr.contains(text), "{done:?}");
    }
    let members = create(&scratch);
    let _served = scratch.ready(&[], &members);
    let bitmap = scratch.uraid(["bitmap", "log", "internal"]);
    bitmap.expect_refused(&["the array has a partial parity log: md allows no bitmap beside it"]);
}

/// What the logs name is made good in memory, and no member is written.
#[test]
fn a_dirty_array_that_lacks_a_member_is_only_read_as_if_its_logs_were_replayed() {
    for lost in 0..4 {
        let scratch = Scratch::new();
        let members = create(&scratch);
        let (content, kept) = killed_in_writes(&scratch, &members);
        let left: Vec<PathBuf> = (0..4).filter(|at| *at != lost).map(|at| members[at].clone()).collect();
        let images = || left.iter().map(|member| std::fs::read(member).expect("a member")).collect::<Vec<_>>();
        let before = images();
        let out = scratch.path("out");
        for force in ["--run", "--force"] {
            let words = ["copy", "--overwrite", force].map(PathBuf::from).into_iter();
            scratch.uraid(words.chain(left.iter().cloned()).chain([out.clone()])).expect_done();
            let copied = std::fs::read(&out).expect("a copy");
            for range in &kept {
                assert!(copied[range.clone()] == content[range.clone()], "{force}, without {lost}: {range:?}");
            }
        }
        let served = scratch.ready(&["--read-only", "--run"], &left);
        expect_kept(&served, &content, &kept);
        assert_eq!(served.stop().code, Some(0));
        assert!(before == images(), "a member was written");
    }
}
