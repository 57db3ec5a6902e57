//! An array through the command line: created, served, examined, degraded, stopped, started again.
//! Owns: what a user sees when all goes well. Not here: what goes wrong (`errors`).

use crate::common::superblock::{Raw, UPDATED};
use crate::common::{MIB, Scratch, pattern, wait};
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// Serves, writes everything, stops cleanly, starts without `lost`, compares everything, writes degraded, compares.
fn fill_lose_compare(options: &str, count: usize, lost: &[usize]) {
    let scratch = Scratch::new();
    let members = scratch.members("m", count, 3 * MIB);
    scratch.create("life", options, &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let mut data = pattern(11, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0, "{options}");
    assert_eq!(client.flush().expect("connected"), 0);
    let shown = scratch.uraid(["detail", "life"]).expect_done().stdout;
    assert!(shown.contains("Requests : 0 reads, 1 write\n"), "{shown}");
    assert_eq!(served.stop().code, Some(0), "{options}");
    let rest: Vec<PathBuf> =
        members.iter().enumerate().filter(|(index, _)| !lost.contains(index)).map(|(_, path)| path.clone()).collect();
    for path in &rest {
        let shown = scratch.uraid(["examine", &text(path)]).expect_done().stdout;
        assert!(shown.contains("State : clean\n"), "{options}: {shown}");
    }
    let served = scratch.ready(if lost.is_empty() { &[] } else { &["--run"] }, &rest);
    let mut client = served.client();
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "{options}");
    let part = pattern(12, 300 * 512);
    for at in [0, 70_144, data.len() - part.len()] {
        assert_eq!(client.write(at as u64, &part).expect("connected"), 0, "{options}");
        data[at..at + part.len()].copy_from_slice(&part);
    }
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "{options}, degraded");
    assert_eq!(served.stop().code, Some(0), "{options}");
}

#[test]
fn arrays_without_redundancy_keep_what_they_are_given() {
    fill_lose_compare("-l linear -n 3", 3, &[]);
    fill_lose_compare("-l 0 -n 3 -c 64K", 3, &[]);
}

#[test]
fn superblocks_at_the_end_and_at_the_start_serve_like_the_others() {
    for version in ["1.0", "1.1"] {
        fill_lose_compare(&format!("-l linear -n 3 -e {version}"), 3, &[]);
        fill_lose_compare(&format!("-l 1 -n 2 -e {version}"), 2, &[0]);
        fill_lose_compare(&format!("-l 6 -n 5 -c 64K -e {version}"), 5, &[1, 4]);
    }
}

#[test]
fn mirrors_serve_from_what_is_left() {
    fill_lose_compare("-l 1 -n 3", 3, &[0, 2]);
    fill_lose_compare("-l 10 -n 4 -c 64K", 4, &[0, 3]);
    fill_lose_compare("-l 10 -n 3 -c 64K -p f2", 3, &[1]);
    fill_lose_compare("-l 10 -n 3 -c 64K -p o2", 3, &[2]);
}

#[test]
fn parity_stands_in_for_what_is_lost() {
    fill_lose_compare("-l 4 -n 3 -c 64K", 3, &[0]);
    fill_lose_compare("-l 5 -n 4 -c 64K", 4, &[2]);
    fill_lose_compare("-l 6 -n 5 -c 64K", 5, &[1, 4]);
}

#[test]
fn the_widest_arrays_are_resynced_and_served() {
    let scratch = Scratch::new();
    for (level, count) in [("1", 256), ("6", 255)] {
        let members = scratch.members(&format!("wide{level}-"), count, 3 * MIB);
        scratch.create("wide", &format!("-l {level} -n {count}"), &members);
        let served = scratch.ready(&[], &members);
        let mut client = served.client();
        let data = pattern(15, 300 * 512);
        assert_eq!(client.write(4096, &data).expect("connected"), 0, "level {level}");
        assert!(client.read(4096, data.len()).expect("connected").as_ref() == Ok(&data), "level {level}");
        assert_eq!(served.stop().code, Some(0), "level {level}");
    }
}

#[test]
fn read_only_never_writes_a_byte() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 6 * MIB);
    // Dirty: a resync is due, and needs a start that may write.
    scratch.create("still", "-l 5 -n 3 -c 64K", &members);
    let all = || -> Vec<Vec<u8>> { members.iter().map(|path| fs::read(path).expect("a member")).collect() };
    let before = all();
    let served = scratch.ready(&["--read-only"], &members);
    let mut client = served.client();
    assert!(client.read(0, 4096).expect("connected").is_ok());
    assert_eq!(client.write(0, &[1; 512]).expect("connected"), 1, "EPERM");
    let shown = scratch.uraid(["detail", "still"]).expect_done().stdout;
    assert!(shown.contains("read-only"), "{shown}");
    // A member that vanishes meanwhile is left out of reads; no superblock is changed.
    fs::File::options().write(true).open(&members[1]).and_then(|file| file.set_len(0)).expect("our file");
    assert!(client.read(0, MIB as usize).expect("connected").is_ok());
    assert_eq!(served.stop().code, Some(0));
    let after = all();
    assert!(after[0] == before[0] && after[1].is_empty() && after[2] == before[2]);
}

#[test]
fn after_kill_9_the_array_says_it_is_dirty_and_is_made_consistent() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 6 * MIB);
    scratch.create("killed", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let data = pattern(13, MIB as usize);
    assert_eq!(served.client().write(0, &data).expect("connected"), 0);
    // Not waited for: the kernel may still hold the members and the sockets when the next start comes.
    served.kill_unawaited();
    let shown = scratch.uraid(["examine", &text(&members[0])]).expect_done().stdout;
    assert!(shown.contains("State : active\n"), "{shown}");
    scratch.serve(&["--run"], &members[..2]).end().expect_refused(&["cannot start the array", "--force"]);
    let served = scratch.ready(&[], &members);
    served.wait_for("it is made consistent while it takes requests");
    assert!(served.client().read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_running_array_is_listed_shown_and_stopped_by_name_or_member() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 6 * MIB);
    scratch.create("name", "-l 1 -n 3 --assume-clean", &members);
    let not_running = scratch.uraid(["detail", &text(&members[0]), &text(&members[1])]).expect_done().stdout;
    assert!(not_running.contains("clean, degraded, Not Started \n"), "{not_running}");
    let served = scratch.ready(&[], &members);
    // A socket without a listener is not a running array.
    drop(UnixListener::bind(scratch.path("stale.ctl")).expect("a socket"));
    let listed = scratch.uraid(["list"]).expect_done().stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.starts_with("name ") && listed.contains("[3/3] [UUU]"), "{listed}");
    let by_name = scratch.uraid(["detail", "name"]).expect_done().stdout;
    let by_member = scratch.uraid(["detail", &text(&members[1])]).expect_done().stdout;
    assert_eq!(by_name, by_member);
    assert!(
        by_name.contains(&format!("       2       0        0        2      active sync   {}", text(&members[2]))),
        "{by_name}"
    );
    // Every name that mdadm and people have for it, in every verb.
    let json = scratch.uraid(["detail", "--json", "name"]).expect_done().stdout;
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let (device, uuid) = (report["device"].as_str().expect("a name"), report["uuid"].as_str().expect("an id"));
    let dev = format!("/dev/{device}");
    for word in ["/dev/md/name", device, &dev, uuid] {
        for verb in ["detail", "freeze", "unfreeze"] {
            scratch.uraid([verb, word]).expect_done();
        }
    }
    let scanned = scratch.uraid(["detail", "--scan"]).expect_done().stdout;
    assert_eq!(scanned.split(' ').nth(1), Some("/dev/md/name"), "{scanned}");
    let stat = scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(stat.contains(&format!("\n{device} : active raid1 m0[0] m1[1] m2[2]\n")), "{stat}");
    scratch.uraid(["fail", "/dev/md/name", "2"]).expect_done();
    scratch.uraid(["fail", "name", &text(&members[2])]).expect_refused(&["has failed already"]);
    scratch.uraid(["fail", &text(&members[0]), &text(&members[0])]).expect_done();
    scratch.uraid(["fail", "name", "1"]).expect_refused(&["cannot serve without"]);
    let json = scratch.uraid(["detail", "--json", "name"]).expect_done().stdout;
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["members"].as_array().map(Vec::len), Some(5), "two empty slots, one active, two faulty: {json}");
    assert_eq!(report["state"][1], "degraded", "{json}");
    assert_eq!(scratch.uraid(["stop", "name"]).expect_done().stdout, "name: stopped\n");
    assert_eq!(served.end().code, Some(0));
    assert!(!scratch.path("name.nbd").exists() && !scratch.path("name.ctl").exists(), "the sockets are gone");
    scratch.uraid(["zero-superblock", &text(&members[0])]).expect_done();
    scratch.uraid(["examine", &text(&members[0])]).expect_refused(&["m0"]);
    scratch.uraid(["zero-superblock", &text(&members[0])]).expect_refused(&["not wiped: ", "no md superblock"]);
}

#[test]
fn only_the_superblock_is_wiped_and_no_other_mark() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    scratch.create("marked", "-l 1 -n 2 -e 1.0", &members);
    // Of a mirror with its superblock at the end, the file system begins where the member does.
    let member = std::fs::File::options().read(true).write(true).open(&members[0]).expect("ours");
    let marks: [(u64, &[u8]); 3] = [(510, b"\x55\xaa"), (1080, b"\x53\xef"), (0x1_0040, b"_BHRfS_M")];
    marks.iter().for_each(|(at, bytes)| member.write_all_at(bytes, *at).expect("ours"));
    scratch.uraid(["zero-superblock", &text(&members[0])]).expect_done();
    scratch.uraid(["examine", &text(&members[0])]).expect_refused(&["m0"]);
    for (at, bytes) in marks {
        let mut found = vec![0; bytes.len()];
        member.read_exact_at(&mut found, at).expect("ours");
        assert_eq!(found, bytes, "at {at}");
    }
}

#[test]
fn a_second_signal_does_no_harm() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    scratch.create("twice", "-l 1 -n 2", &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &pattern(14, MIB as usize)).expect("connected"), 0);
    for _ in 0..3 {
        served.signal(rustix::process::Signal::INT);
    }
    assert_eq!(served.stop().code, Some(0));
    let shown = scratch.uraid(["examine", &text(&members[0])]).expect_done().stdout;
    assert!(shown.contains("State : clean\n"), "{shown}");
}

#[test]
fn an_array_is_stopped_clean_when_its_terminal_goes_unless_that_is_ignored() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    scratch.create("hup", "-l 1 -n 2", &members);
    // As SIGTERM does, also while a client is connected that may write, which only `uraid stop` refuses.
    use rustix::process::Signal;
    let signals = [(Signal::HUP, "SIGHUP"), (Signal::TERM, "SIGTERM"), (Signal::QUIT, "SIGQUIT")];
    let others = [(Signal::USR1, "SIGUSR1"), (Signal::ALARM, "SIGALRM"), (Signal::POWER, "SIGPWR")];
    let rare = [(Signal::VTALARM, "a timer's signal"), (Signal::IO, "SIGIO")];
    for (signal, name) in signals.into_iter().chain(others).chain(rare) {
        let served = scratch.ready(&[], &members);
        let mut client = served.client();
        assert_eq!(client.write(0, &pattern(15, MIB as usize)).expect("connected"), 0);
        served.signal(signal);
        let done = served.end();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stderr.contains(&format!("hup: stops: {name}\n")), "{done:?}");
        let shown = scratch.uraid(["examine", &text(&members[0])]).expect_done().stdout;
        assert!(shown.contains("State : clean\n"), "{shown}");
    }
    let served = scratch.ready(&[], &members);
    let sent = std::process::Command::new("kill").args(["-37", &served.pid().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let done = served.end();
    assert!(done.code == Some(0) && done.stderr.contains("hup: stops: a real-time signal\n"), "{done:?}");
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_uraid")).arg("serve").args(&members).env("URAID_RUNTIME_DIR", scratch.path(""));
    let served = crate::common::Served::start(&mut nohup);
    served.wait_until_ready();
    served.signal(rustix::process::Signal::HUP);
    assert_eq!(served.client().write(0, &pattern(16, MIB as usize)).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn an_array_is_served_during_its_first_resync_which_goes_on_at_the_next_start() {
    let scratch = Scratch::new();
    // Large enough not to be done before the signal comes.
    let members = scratch.members_to_pass("m", 2, 256 << 30);
    scratch.create("early", "-l 1 -n 2", &members);
    let left_after_a_stop = |from: u64| {
        let served = scratch.serve(&[], &members);
        served.wait_until_ready();
        let mut client = served.client();
        let data = pattern(17, MIB as usize);
        assert_eq!(client.write(8 << 30, &data).expect("connected"), 0);
        assert!(client.read(8 << 30, data.len()).expect("connected").as_ref() == Ok(&data));
        served.wait_for("resync [");
        let shown = scratch.uraid(["detail", "early"]).expect_done().stdout;
        assert!(shown.contains(", resyncing") && shown.contains("% complete"), "{shown}");
        let has_speed = || {
            let shown = scratch.uraid(["detail", "early"]).expect_done().stdout;
            shown.lines().any(|line| line.contains(" Resync Speed : ") && line.ends_with(" left"))
        };
        wait(has_speed).expect("a pass that moves has a speed and an end");
        let done = served.stop();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stderr.contains(" of its resync left; the next start continues it"), "{done:?}");
        let shown = scratch.uraid(["examine", "--json", &text(&members[0])]).expect_done().stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let reached = shown.pointer("/0/resync_offset").or(shown.pointer("/resync_offset"));
        let reached = reached.and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{shown}"));
        assert!(reached > from, "{reached} after {from}");
        reached
    };
    let reached = left_after_a_stop(0);
    left_after_a_stop(reached);
}

const FIELDS: [&str; 17] = [
    "Magic :",
    "Version :",
    "Array UUID :",
    "Name :",
    "Raid Level :",
    "Raid Devices :",
    "Avail Dev Size :",
    "Array Size :",
    "Data Offset :",
    "Super Offset :",
    " State :",
    "Device UUID :",
    "Checksum :",
    "Events :",
    "Layout :",
    "Chunk Size :",
    "Device Role :",
];

#[test]
fn mdadm_finds_our_members_correct() {
    let scratch = Scratch::new();
    for (level, count) in [("linear", 2), ("0", 2), ("1", 2), ("4", 3), ("5", 3), ("6", 4), ("10", 2)] {
        let members = scratch.members(&format!("l{level}-"), count, 8 * MIB);
        scratch.create("check", &format!("-l {level} -n {count}"), &members);
        for member in &members {
            let Ok(theirs) = Command::new("mdadm").arg("--examine").arg(member).env("TZ", "UTC").output() else {
                eprintln!("SKIPPED mdadm_finds_our_members_correct: mdadm is not installed");
                return;
            };
            let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
            let ours = scratch.uraid(["examine", &text(member)]).expect_done().stdout;
            assert!(theirs.contains(" - correct\n"), "{theirs}");
            // Versions of mdadm differ in some lines, and its times have no zone; these are what scripts read.
            for line in ours.lines().filter(|line| FIELDS.iter().any(|name| line.contains(name))) {
                assert!(theirs.lines().any(|theirs| theirs == line), "level {level}: {line:?} is not in:\n{theirs}");
            }
        }
    }
}

#[test]
fn superblocks_tell_when_they_were_last_written() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("when", "-l 1 -n 2 --assume-clean", &members);
    for member in &members {
        let mut raw = Raw::read(member);
        raw.set(UPDATED, &1_000_000_000_u64.to_le_bytes());
        raw.write();
    }
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
    let on_disk = |member: &PathBuf| Raw::read(member).u64(UPDATED) & 0xff_ffff_ffff;
    // The same while it runs, when the array is clean again at the latest.
    let is_shown = || {
        let json = scratch.uraid(["detail", "--json", "when"]).expect_done().stdout;
        let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        report["updated"].as_u64().is_some_and(|time| time > 1_700_000_000 && time == on_disk(&members[0]))
    };
    wait(is_shown).unwrap_or_else(|()| panic!("{:?}", scratch.uraid(["detail", "when"])));
    served.stop().expect_done();
    for member in &members {
        assert!(on_disk(member) > 1_700_000_000, "{}", member.display());
    }
}

/// A client may have a file system of the array mounted: a stop takes its disk away only if that is meant.
#[test]
fn a_stop_waits_for_no_client_and_is_refused_while_one_may_write() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 4 * MIB);
    scratch.create("used", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let client = served.client();
    let refused = ["used: 1 client with write access is connected", "unmount", "stop --force"];
    scratch.uraid(["stop", "used"]).expect_refused(&refused);
    assert_eq!(served.client().read(0, 512).expect("connected"), Ok(vec![0; 512]));
    drop(client);
    wait(|| scratch.uraid(["stop", "used"]).code == Some(0)).expect("it has left");
    assert_eq!(served.end().code, Some(0));

    for (options, words) in [(&[][..], &["stop", "--force", "used"][..]), (&["--read-only"], &["stop", "used"])] {
        let served = scratch.ready(options, &members);
        let _client = served.client();
        scratch.uraid(words).expect_done();
        assert_eq!(served.end().code, Some(0), "{options:?}");
    }
}
