//! `readonly` and `readwrite` of a running array, by the binary.
//! Owns: what clients, commands, reports and members see of it. Not here: the order of the steps (`sim`), arrays that are
//! started read-only (`md_cases`, `life`).

use crate::common::rig::Rig;
use crate::common::{MIB, Scratch, pattern, wait};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

fn bytes_of(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("a member")).collect()
}

const SHAPES: [(&str, usize); 7] =
    [("linear", 2), ("raid0", 2), ("raid1", 2), ("raid4", 3), ("raid5", 3), ("raid6", 4), ("raid10", 4)];

#[test]
fn every_level_becomes_read_only_and_writable_again_while_it_serves() {
    for (level, slots) in SHAPES {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots, 16 * MIB);
        let clean = if matches!(level, "linear" | "raid0") { "" } else { "--assume-clean" };
        scratch.create("home", &format!("-l {level} -n {slots} {clean}"), &members);
        let served = scratch.ready(&[], &members);
        let mut data = pattern(7, served.client().size as usize);
        served.write_all(0, &data);
        let mut client = served.client();
        assert!(!client.is_read_only && client.write(0, &data[..4096]).expect("connected") == 0, "{level}");

        let done = scratch.uraid(["readonly", "home"]).expect_done();
        assert_eq!(done.stdout, "home: read-only\n");
        served.wait_for("home: is read-only by command");
        let before = bytes_of(&members);
        assert_eq!(client.write(0, &[1; 4096]).expect("connected"), 1, "{level}: EPERM");
        assert!(client.read(0, 4096).expect("connected").is_ok_and(|found| found == data[..4096]), "{level}");
        assert_eq!(client.flush().expect("connected"), 0, "{level}");
        let mut late = served.client();
        assert!(late.is_read_only && late.write(0, &[1; 4096]).expect("connected") == 1, "{level}");
        let done = scratch.uraid(["readonly", "home"]).expect_done();
        assert_eq!(done.stdout, "home: is read-only already\n");
        let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
        assert!(
            shown.contains("State : readonly \n") && shown.contains(&format!("Slots : [{slots}/{slots}]")),
            "{shown}"
        );
        let shown = scratch.uraid(["mdstat"]).expect_done().stdout;
        assert!(shown.contains(&format!(" : active (read-only) {level}")), "{shown}");
        let shown = scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
        assert!(shown.contains("\"read_only\":true"), "{shown}");
        // Longer than an idle array takes to be marked clean.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(served.first_difference(&data), None, "{level}");
        assert!(bytes_of(&members) == before, "{level}: a member was written");

        let done = scratch.uraid(["readwrite", "home"]).expect_done();
        assert_eq!(done.stdout, "home: takes writes again\n");
        let done = scratch.uraid(["readwrite", "home"]).expect_done();
        assert_eq!(done.stdout, "home: takes writes already\n");
        data[..4096].fill(9);
        assert_eq!(client.write(0, &[9; 4096]).expect("connected"), 0, "{level}: on the old connection");
        assert_eq!(late.write(0, &[1; 4096]).expect("connected"), 1, "{level}: it was told so");
        assert!(!served.client().is_read_only, "{level}");
        assert_eq!(served.first_difference(&data), None, "{level}");
        drop((client, late));
        assert_eq!(served.stop().code, Some(0), "{level}");
    }
}

/// A start after the server was killed has nothing to make consistent, and a stop writes nothing.
#[test]
fn a_read_only_array_is_clean_whichever_way_its_server_ends() {
    for is_killed in [true, false] {
        let rig = Rig::new("5", 3, 0, 16 * MIB);
        rig.run("readonly", &[]).expect_done();
        let before = bytes_of(&rig.members);
        let Rig { served, members, data, scratch } = rig;
        if is_killed {
            served.signal(rustix::process::Signal::KILL);
            served.end();
        } else {
            assert_eq!(served.stop().code, Some(0));
        }
        assert!(bytes_of(&members) == before, "killed: {is_killed}");
        let shown = scratch.uraid(["examine", &members[0].display().to_string()]).expect_done().stdout;
        assert!(shown.contains("State : clean"), "{shown}");
        let served = scratch.ready(&[], &members);
        assert!(!served.stderr().contains("resync"), "{}", served.stderr());
        assert!(!served.client().is_read_only);
        assert_eq!(served.first_difference(&data), None);
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_resync_waits_while_the_array_is_read_only() {
    let scratch = Scratch::new();
    // Long enough that the resync does not end before the next two commands arrive.
    let members = scratch.members_to_pass("m", 3, 1024 * MIB);
    scratch.create("home", "-l 5 -n 3", &members);
    let served = scratch.serve(&[], &members);
    served.wait_until_ready();
    scratch.uraid(["speed", "home", "--max", "1000"]).expect_done();
    scratch.uraid(["readonly", "home"]).expect_done();
    let written = || -> Vec<SystemTime> {
        let time = |member| fs::metadata(member).and_then(|metadata| metadata.modified()).expect("a time");
        members.iter().map(time).collect()
    };
    let before = written();
    let shown = || scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(shown().contains("resync=PENDING"), "{}", shown());
    scratch.uraid(["speed", "home", "--max", "0"]).expect_done();
    std::thread::sleep(Duration::from_millis(500));
    assert!(shown().contains("resync=PENDING") && written() == before, "{}", shown());
    scratch.uraid(["readwrite", "home"]).expect_done();
    wait(|| !shown().contains("resync")).expect("it continues");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn what_an_array_refuses_about_its_access_is_one_sentence() {
    let rig = Rig::new("1", 2, 0, 16 * MIB);
    rig.scratch.uraid(["readonly", "nowhere"]).expect_refused(&["nowhere"]);
    rig.run("readonly", &[]).expect_done();
    for (verb, words, expected) in [
        ("fail", &["0"][..], "home: the array is read-only: `uraid readwrite home` lets it take writes again"),
        ("check", &[], "uraid: home: the array is read-only: `uraid readwrite home` lets it"),
        ("bitmap", &["internal"], "uraid: home: the array is read-only: `uraid readwrite home` lets it"),
        ("write-mostly", &["0"], "uraid: home: the array is read-only: `uraid readwrite home` lets it"),
        ("add", &["/nowhere"], "uraid: home: the array is read-only: `uraid readwrite home` lets it"),
        ("replace", &["0"], "uraid: home: the array is read-only: `uraid readwrite home` lets it"),
    ] {
        let done = rig.run(verb, words).expect_refused(&[expected]);
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    }
    // The methods of the control socket.
    let mut stream = UnixStream::connect(rig.scratch.path("home.ctl")).expect("it is there");
    let mut answers = BufReader::new(stream.try_clone().expect("a handle"));
    for (method, expected) in [
        ("readonly", r#""result":{"array":"home","changed":false,"read_only":true}"#),
        ("readwrite", r#""result":{"array":"home","changed":true,"read_only":false}"#),
        ("read-only", "no such method"),
    ] {
        writeln!(stream, r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#).expect("connected");
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        assert!(line.contains(expected), "{line}");
    }
    drop((stream, answers));
    let Rig { served, members, scratch, .. } = rig;
    assert_eq!(served.stop().code, Some(0));
    scratch.uraid(["readwrite", "home"]).expect_refused(&["home"]);

    let served = scratch.ready(&["--read-only"], &members);
    let done = scratch.uraid(["readonly", "home"]).expect_done();
    assert_eq!(done.stdout, "home: is read-only already\n");
    let expected = "home: it was started read-only; stop it, and serve it again without --read-only";
    let done = scratch.uraid(["readwrite", "home"]).expect_refused(&[expected]);
    assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    assert_eq!(served.stop().code, Some(0));
}
