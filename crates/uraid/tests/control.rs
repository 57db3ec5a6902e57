//! The control socket with malicious callers, and with long answers.
//! Owns: attacks on the control socket of the binary. Not here: what its methods do (`life.rs`, `detail.rs`).

use crate::common::{Done, MIB, Scratch, Served, wait};
use rustix::net;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const STATUS: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n";
const RAID1: &str = "--level 1 --raid-devices 2 --assume-clean";

#[test]
fn many_callers_that_neither_send_nor_receive() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("mute", RAID1, &members);
    let served = scratch.ready(&[], &members);
    let connect = || UnixStream::connect(scratch.path("mute.ctl")).expect("the server is ready");
    // They request more than a socket holds, 208 KiB, and receive none of it. An answer repeats the id of its request.
    let id = "x".repeat(64 << 10);
    let requests = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"status\"}}\n").repeat(5);
    let deaf: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = connect();
            stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout can be set");
            // The server stops to receive when it cannot send.
            let _ = stream.write_all(requests.as_bytes());
            stream
        })
        .collect();
    // A program that is not optimized may need longer than a caller waits for what the others have sent already.
    wait(|| scratch.uraid(["detail", "mute"]).code == Some(0))
        .expect("it is answered although the others receive nothing");
    let mute: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    scratch.uraid(["detail", "mute"]).expect_done();
    scratch.uraid(["stop", "mute"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    drop((deaf, mute));
}

#[test]
fn a_caller_that_does_not_end_its_line_is_told_the_longest_one_and_hung_up() {
    const LINE_BYTES_MAX: usize = 4 << 20;
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("mute", RAID1, &members);
    let served = scratch.ready(&[], &members);
    let mut stream = UnixStream::connect(scratch.path("mute.ctl")).expect("the server is ready");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    // Not a byte more: a socket that is closed with unread bytes takes the answer with it.
    stream.write_all(&vec![b' '; LINE_BYTES_MAX + 1]).expect("the server receives that much");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and the end");
    assert!(answer.contains(&format!("a line is longer than {LINE_BYTES_MAX}")), "{answer:?}");
    scratch.uraid(["detail", "mute"]).expect_done();
    assert_eq!(served.stop().code, Some(0));
}

/// A process that listens and never answers delays neither `list` nor calls of another array.
#[test]
fn a_process_that_hangs_is_named_and_the_others_answer() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("well", RAID1, &members);
    let served = scratch.ready(&[], &members);
    // Three of them: they are waited for at the same time.
    let names = ["a.ctl", "b.ctl", "z.ctl"];
    let hung: Vec<UnixListener> =
        names.iter().map(|name| UnixListener::bind(scratch.path(name)).expect("a socket")).collect();
    // And one that takes no connections: its queue of one is full.
    let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None).expect("a socket");
    let full = net::SocketAddrUnix::new(scratch.path("full.ctl")).expect("a short path");
    net::bind(&socket, &full).and_then(|()| net::listen(&socket, 0)).expect("a socket");
    let _first = UnixStream::connect(scratch.path("full.ctl")).expect("there is room for one");
    let listed = scratch.uraid(["list"]);
    assert_eq!(listed.code, Some(1), "not all are listed");
    assert!(listed.stderr.contains("full.ctl: it did not answer in time"), "{listed:?}");
    assert_eq!((listed.stdout.lines().count(), listed.stdout.contains("well ")), (1, true), "{listed:?}");
    for name in names {
        let said = format!("{name} of process {}: it did not answer in time", std::process::id());
        assert!(listed.stderr.contains(&said), "{said:?}: {listed:?}");
    }
    // By a member: the one that has it answers first.
    let shown = scratch.uraid([PathBuf::from("detail"), members[1].clone()]).expect_done();
    assert!(shown.stdout.starts_with("/dev/md/well:") && shown.stderr.is_empty(), "{shown:?}");
    let name = format!("of process {}", std::process::id());
    scratch.uraid(["detail", "z"]).expect_refused(&["z.ctl ", &name, "it did not answer in time"]);
    drop((hung, socket));
    // A program that another test starts just now holds them until it runs.
    wait(|| scratch.uraid(["list"]).stderr.is_empty()).expect("sockets without a process");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn answers_of_many_members_with_long_paths_are_read() {
    let scratch = Scratch::new();
    let folder = scratch.path(&format!("{}/{}", "d".repeat(200), "e".repeat(200)));
    fs::create_dir_all(&folder).expect("a folder");
    let members: Vec<PathBuf> =
        (0..250).map(|n| scratch.member(&folder.join(format!("m{n}")).to_string_lossy(), 4 * MIB)).collect();
    let names: Vec<PathBuf> = (0..250).map(|n| PathBuf::from(format!("m{n}"))).collect();
    let words = |fixed: &[&str]| -> Vec<PathBuf> { fixed.iter().map(PathBuf::from).chain(names.clone()).collect() };
    let create = ["create", "--homehost", "none", "--name", "many", "--level", "0", "--raid-devices", "250"];
    let made = scratch.command(words(&create)).current_dir(&folder).status().expect("it runs");
    assert!(made.success() && members.len() == 250);
    let served = crate::common::Served::start(scratch.command(words(&["serve", "--shards", "1"])).current_dir(&folder));
    served.wait_until_ready();
    let answer = scratch.uraid(["detail", "many", "--json"]).expect_done();
    assert!(answer.stdout.len() > 64 << 10, "{} bytes", answer.stdout.len());
    assert!(scratch.uraid(["list"]).expect_done().stdout.contains("many"));
    scratch.uraid(["stop", "many"]).expect_done();
    assert_eq!(served.end().code, Some(0));
}

/// The array `mine`; `None` without root, which is needed to act as another user.
fn served_by_root() -> Option<(Scratch, Served)> {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root can be another user");
        return None;
    }
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("mine", RAID1, &members);
    let served = scratch.ready(&[], &members);
    Some((scratch, served))
}

#[test]
fn another_user_gets_no_answer_of_the_control_socket() {
    let Some((scratch, served)) = served_by_root() else { return };
    let socket = scratch.path("mine.ctl");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("our file");
    let ask = |socket: &PathBuf| {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(STATUS)?;
        let mut answer = [0; 1];
        stream.read(&mut answer)
    };
    let stranger = std::thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            // Of this thread only.
            let user_nobody = rustix::thread::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(user_nobody).expect("root may");
            ask(&socket)
        });
        stranger.join().expect("it does not panic")
    });
    assert!(!matches!(stranger, Ok(1..)), "{stranger:?}");
    binary_for_all(&scratch);
    let done = of_another_user(&scratch, &["detail", "--control", socket.to_str().expect("UTF-8")]);
    done.expect_refused(&[&format!("{}{FOREIGN}", socket.display())]);
    assert_eq!(ask(&socket).expect("an answer"), 1);
    assert_eq!(served.stop().code, Some(0));
}

const FOREIGN: &str =
    ": permission denied: it belongs to user 0: only that user and root may use it, this is user 65534\n";

/// Puts the binary where another user can run it.
fn binary_for_all(scratch: &Scratch) {
    let binary = scratch.binary();
    for path in [&binary, &scratch.path("")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("our file");
    }
}

/// `uraid WORDS` of that binary, to its end.
fn of_another_user(scratch: &Scratch, words: &[&str]) -> Done {
    let mut command = Command::new(scratch.path("uraid"));
    let output = command.args(words).env("URAID_RUNTIME_DIR", scratch.path("")).uid(65_534).output();
    let output = output.expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

#[test]
fn a_user_who_may_not_connect_is_told_so_and_not_that_nothing_runs() {
    let Some((scratch, served)) = served_by_root() else { return };
    binary_for_all(&scratch);
    let refused = format!("{}{FOREIGN}", scratch.path("mine.ctl").display());
    for words in [
        &["list"][..],
        &["list", "--json"],
        &["mdstat"],
        &["detail", "mine"],
        &["stop", "mine"],
        &["fail", "mine", "0"],
    ] {
        let done = of_another_user(&scratch, words).expect_refused(&[&refused]);
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    }
    let all = of_another_user(&scratch, &["detail", "--scan"]);
    all.expect_refused(&[&refused, "uraid: not all running arrays are shown\n"]);
    assert_eq!(of_another_user(&scratch, &["detail", "--scan", "--test"]).code, Some(4));
    // A name that nothing is called: one of the arrays that cannot be asked may have it as a member.
    of_another_user(&scratch, &["detail", "m9"]).expect_refused(&[&refused, "no running array is called m9"]);
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o711)).expect("our folder");
    let refused = format!("user 65534 may not look for running arrays in {}", scratch.path("").display());
    for words in [&["list"][..], &["detail", "ghost"], &["stop", "ghost"], &["fail", "ghost", "0"]] {
        of_another_user(&scratch, words).expect_refused(&[&refused]);
    }
    assert_eq!(scratch.uraid(["list"]).expect_done().stdout.lines().count(), 1);
    assert_eq!(served.stop().code, Some(0));
}

/// As the kernel writes it in a path; JSON has its own form.
#[test]
fn a_line_end_in_the_path_of_a_member_breaks_no_table() {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 2, 8 * MIB);
    let odd = scratch.path("one\ntwo");
    std::fs::rename(&members[1], &odd).expect("ours");
    members[1] = odd.clone();
    scratch.create("odd", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    // `list` names a member whose path leads nowhere.
    std::fs::rename(&odd, scratch.path("away")).expect("ours");
    let written = format!("{}/one\\012two", scratch.path("").display()).replace("//", "/");
    for words in [&["detail", "odd"][..], &["status"], &["list"], &["mdstat"], &["detail", "--verbose", "odd"]] {
        let done = scratch.uraid(words);
        assert!(!done.stdout.lines().any(|line| line.trim_start().starts_with("two")), "{words:?}: {done:?}");
        assert!(words == ["mdstat"] || words == ["status"] || done.stdout.contains(&written), "{words:?}: {done:?}");
    }
    let json = scratch.uraid(["detail", "--json", "odd"]).expect_done().stdout;
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let paths: Vec<&str> =
        report["members"].as_array().expect("members").iter().filter_map(|m| m["path"].as_str()).collect();
    assert!(paths.contains(&odd.to_str().expect("UTF-8")), "{paths:?}");
    assert_eq!(served.stop().code, Some(0));
}

/// What a command says, and how long it takes.
fn timed(scratch: &Scratch, words: &[&str]) -> (Done, Duration) {
    let begun = std::time::Instant::now();
    (scratch.uraid(words), begun.elapsed())
}

#[test]
fn a_server_that_hangs_delays_no_command_on_another_array() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.members("a", 2, 8 * MIB), scratch.members("b", 2, 8 * MIB));
    scratch.create("hangs", "-l 1 -n 2 --assume-clean", &one);
    scratch.create("works", "-l 1 -n 2 --assume-clean", &two);
    let (hangs, works) = (scratch.ready(&[], &one), scratch.ready(&[], &two));
    let shown = scratch.uraid(["detail", "works", "--json"]).expect_done().stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let text = |of: &serde_json::Value| of.as_str().expect("a text").to_owned();
    let device = format!("/dev/{}", text(&shown["device"]));
    let member = two[1].to_str().expect("ASCII").to_owned();
    let words = ["works".to_owned(), member, text(&shown["uuid"]), device, "/dev/md/works".to_owned()];
    hangs.signal(rustix::process::Signal::STOP);
    let of_others = words.map(|word| (timed(&scratch, &["detail", &word]), word));
    let of_hung = timed(&scratch, &["detail", "hangs"]);
    // Before any check, so that it ends with the test.
    hangs.signal(rustix::process::Signal::CONT);
    for ((done, took), word) in of_others {
        done.expect_done();
        assert!(took < Duration::from_millis(2500), "{word}: {took:?}");
    }
    let (done, took) = of_hung;
    // 3 s, and not one more call; a slow machine has some time besides.
    assert!(took < Duration::from_secs(6), "{took:?}");
    let done = done.expect_refused(&["hangs.ctl", &format!("of process {}", hangs.pid()), "did not answer in time"]);
    assert_eq!(done.stderr.matches("did not answer").count(), 1, "{done:?}");
    assert_eq!(hangs.stop().code, Some(0));
    assert_eq!(works.stop().code, Some(0));
}
