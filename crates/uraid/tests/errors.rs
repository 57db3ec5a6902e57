//! Every error of a user, a member or a client: exit code and text of each (docs/operating/errors.md).
//! Owns: these promises, on the real binary. Not here: errors inside one crate, which its own tests show.

use crate::common::tmpfs::Tmpfs;
use crate::common::{Client, MIB, Scratch, pattern};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const RAID1: &str = "-l 1 -n 2 --assume-clean";
const RAID5: &str = "-l 5 -n 3 -c 64K --assume-clean";

/// What NBD calls it, too.
const ENOSPC: u32 = 28;

fn overwrite(path: &PathBuf, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).and_then(|file| file.write_all_at(bytes, at)).expect("a member file");
}

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let scratch = Scratch::new();
    let lines = [
        "",
        "frobnicate",
        "create",
        "create -l 7 -n 2 a b",
        "create -l 5 -n 3 -p zigzag a b c",
        "create -l 5 -n 3 -c 1.5K a b c",
        "create -l 5 -n 3 --uuid 123 a b c",
        "create -l 5 -n 3 --homehost ../h a b c",
        "serve",
        "serve --nbd nowhere a",
        "serve --nbd tcp:127.0.0.1:99999 a",
        "fail home",
        "fail --control s.ctl",
        "stop",
    ];
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = scratch.uraid(&words);
        assert_eq!(done.code, Some(2), "{words:?}: {done:?}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty());
    }
    for (option, range) in [("max-read-errors", "0 to 4294967295"), ("shards", "1 to 64")] {
        let done = scratch.uraid(["serve", &format!("--{option}=abc"), "a"]);
        let expected = format!("error: invalid value 'abc' for '--{option} <N>': expected a number from {range}\n");
        assert!(done.code == Some(2) && done.stderr.starts_with(&expected), "{done:?}");
    }
    let usage = "Usage: uraid fail ARRAY MEMBER...";
    let done = scratch.uraid(["fail", "home"]);
    assert!(done.stderr.starts_with("error: fail takes ARRAY MEMBER") && done.stderr.contains(usage), "{done:?}");
}

#[test]
fn too_few_members() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("few", RAID5, &members);
    scratch.serve(&[], &members[..1]).end().expect_refused(&["cannot start the array"]);
    scratch.serve(&["--run"], &members[..1]).end().expect_refused(&["cannot start the array"]);
    scratch.serve(&[], &members[..2]).end().expect_refused(&["cannot start the array", "--run"]);
    let served = scratch.ready(&["--run"], &members[..2]);
    served.wait_for("starts degraded, 2 of 3 slots");
    assert_eq!(served.client().write(0, &pattern(1, 4096)).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    // Members are called by their paths; a number is a slot.
    let stale = format!("slots without a member: 1, 2; {}: left out: stale: has ", text(&members[2]));
    let end = "; give the missing members, or --force to take stale members and lose what they missed";
    let done = scratch.serve(&[], &[members[2].clone(), members[0].clone()]).end();
    let done = done.expect_refused(&["found 1 of 3 members, raid5 needs at least 2", &stale, end]);
    assert!(!done.stderr.contains("member 0"), "{done:?}");
    let two = scratch.members("t", 2, 8 * MIB);
    scratch.create("two", "-l 1 -n 2 --assume-clean", &two);
    scratch.serve(&[], &two[..1]).end().expect_refused(&["found 1 member, the superblocks count 2"]);
}

#[test]
fn create_refuses_before_it_changes_anything() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("first", RAID1, &members);
    let before = fs::read(&members[0]).expect("a member");
    let words = |extra: &str, last: &str| -> Vec<String> {
        let fixed = format!("create -l 1 -n 2 {extra} {} {last}", text(&members[0]));
        fixed.split_whitespace().map(str::to_owned).collect()
    };
    let fresh = text(&scratch.member("fresh", 8 * MIB));
    scratch.uraid(words("", &fresh)).expect_refused(&["carries", "nothing was changed", "--run"]);
    scratch.uraid(words("--run", "/nowhere/at/all")).expect_refused(&["/nowhere/at/all", "not found"]);
    // mdadm's first word is the name of the array.
    for (first, name) in [("/dev/md0", "md0"), ("home", "home")] {
        let words = ["create", first, "-l", "1", "-n", "2", &fresh, &fresh];
        scratch.uraid(words).expect_refused(&[&format!(
            "{first}: not found; if it is to be the array's name, give it as --name {name}"
        )]);
    }
    let small = text(&scratch.member("small", 4096));
    scratch.uraid(words("--run", &small)).expect_refused(&[&format!("{small}: has 4 KiB, at least ")]);
    assert!(fs::read(&members[0]).expect("a member") == before);
    scratch.uraid(words("--run", &fresh)).expect_done();
}

/// By its path, not by its place in the list, and sizes as they were given, not in sectors.
#[test]
fn the_member_that_an_array_cannot_have_is_named_with_sizes_in_its_own_units() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    let small = scratch.member("small", 4 * MIB);
    let list: Vec<String> = [&members[0], &small, &members[1]].into_iter().map(|path| text(path)).collect();
    let words = |verb: &str, options: &str| {
        let words = format!("{verb} {options} {}", list.join(" "));
        words.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    let refused = |options: &str, expected: &str| {
        let done = scratch.uraid(words("create", options)).expect_refused(&[expected]);
        assert!(!done.stderr.contains("sector") && !done.stderr.contains("member 1"), "{done:?}");
    };
    refused(
        "-l 5 -n 3 -c 64K --data-offset 1M -z 6M",
        &format!("{}: has 3 MiB for data, --size asks for 6 MiB", list[1]),
    );
    refused("-l 0 -n 3 -c 4M --data-offset 1M", &format!("{}: ", list[1]));
    refused("-l 5 -n 3 -c 12K", "chunk of 12 KiB, raid5 needs a power of two");
    refused("-l 5 -n 3 -c 2K", "chunk is 2 KiB, expected a multiple of ");
    refused("-l 5 -n 3 --data-offset 4K", "data offset is 4 KiB, expected at least ");
    let out = text(&scratch.path("out"));
    let assume = "--assume -l 5 -n 3 -c 64K --data-offset 1M -z 6M";
    let done = scratch.uraid(words("copy", assume).into_iter().chain([out]));
    done.expect_refused(&[&format!("on these members: {}: has 3 MiB for data, --size asks for 6 MiB", list[1])]);
}

#[test]
fn a_partition_table_or_a_file_system_is_not_overwritten_unasked() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    overwrite(&members[1], 1080, &[0x53, 0xef]);
    overwrite(&members[0], 512, b"EFI PART");
    let words = ["create", "-l", "1", "-n", "2", &text(&members[0]), &text(&members[1])].map(str::to_owned);
    scratch.uraid(&words).expect_refused(&["m0: carries", "m1: carries", "2 of the members"]);
    scratch.uraid(words.iter().cloned().chain(["--force".to_owned()])).expect_done();
    let mut mark = [0; 8];
    File::open(&members[0]).and_then(|file| file.read_exact_at(&mut mark, 512)).expect("a member");
    assert_eq!(mark, [0; 8], "the old mark is gone");
}

#[test]
fn wrong_checksum() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("sums", RAID1, &members);
    overwrite(&members[1], 4096 + 200, &[0x55]);
    let texts = ["m1: superblock checksum is 0x", "computed 0x"];
    scratch.uraid(["examine", &text(&members[1])]).expect_refused(&texts);
    scratch.serve(&[], &members).end().expect_refused(&texts);
    let served = scratch.ready(&["--run"], &members);
    served.wait_for("starts degraded, 1 of 2 slots");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn truncated_member() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("cut", RAID1, &members);
    let file = OpenOptions::new().write(true).open(&members[1]).expect("a member");
    file.set_len(4 * MIB).expect("a file");
    scratch.serve(&[], &members).end().expect_refused(&["m1: left out: "]);
    file.set_len(4096).expect("a file");
    scratch.serve(&[], &members).end().expect_refused(&["m1: is too short for a superblock"]);
    file.set_len(0).expect("a file");
    scratch.serve(&[], &members).end().expect_refused(&["m1"]);
}

#[test]
fn foreign_member() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    let others = scratch.members("other", 2, 8 * MIB);
    scratch.create("mine", RAID5, &members);
    scratch.create("other", RAID1, &others);
    let all = [members.as_slice(), &others[..1]].concat();
    let served = scratch.ready(&[], &all);
    served.wait_for("other0: left out: ");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn stale_member() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("old", RAID1, &members);
    let served = scratch.ready(&[], &members);
    scratch.uraid(["fail", "old", &text(&members[1])]).expect_done();
    served.wait_for("is faulty: by command; the array goes on [U_]");
    assert_eq!(served.client().write(0, &pattern(1, 4096)).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    served.wait_for("m1: left out: ");
    assert_eq!(served.client().read(0, 4096).expect("connected"), Ok(pattern(1, 4096)));
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn duplicate_member() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("twin", RAID1, &members);
    let copy = scratch.path("copy");
    fs::copy(&members[0], &copy).expect("a copy");
    let all = [members.as_slice(), &[copy]].concat();
    scratch.serve(&[], &all).end().expect_refused(&["m0", "copy", "are both for the same place in the array"]);
}

#[test]
fn one_inode_named_twice() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let link = scratch.path("link");
    fs::hard_link(&members[0], &link).expect("a hard link");
    let symlink = scratch.path("symlink");
    std::os::unix::fs::symlink(&members[0], &symlink).expect("a symlink");
    for second in [&members[0], &link, &symlink] {
        let words = ["create", "-l", "1", "-n", "2", &text(&members[0]), &text(second)].map(str::to_owned);
        scratch.uraid(words).expect_refused(&["no array was made", "twice"]);
    }
    scratch.create("one", RAID1, &members);
    let served = scratch.serve(&[], &[members[0].clone(), link, members[1].clone()]);
    served.end().expect_refused(&["not started", "twice"]);
}

#[test]
fn a_member_that_another_process_serves() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("busy", RAID1, &members);
    let served = scratch.ready(&[], &members);
    let sockets = [format!("unix:{}", text(&scratch.path("b.nbd"))), text(&scratch.path("b.ctl"))];
    let second = scratch.serve(&["--run", "--nbd", &sockets[0], "--control", &sockets[1]], &members[..1]);
    // Whose it is, and what ends that.
    let whose = format!("m0: in use by process {}, which serves the array busy with it: stop that", served.pid());
    second.end().expect_refused(&[&whose, "(`uraid stop busy`)"]);
    scratch.uraid(["zero-superblock", &text(&members[0])]).expect_refused(&[&whose]);
    let words = ["create", "--run", "-l", "1", "-n", "2", &text(&members[0]), "missing"].map(str::to_owned);
    scratch.uraid(words).expect_refused(&[&whose]);
    // A server, too, says it of a device that is added to it.
    let others = scratch.members("o", 2, 8 * MIB);
    scratch.create("other", RAID1, &others);
    let other = scratch.ready(&[], &others);
    scratch.uraid(["add", "other", &text(&members[0])]).expect_refused(&[&whose]);
    assert_eq!(other.stop().code, Some(0));
    // One that hangs is named by its lock alone.
    served.signal(rustix::process::Signal::STOP);
    let done = scratch.uraid(["zero-superblock", &text(&members[0])]);
    served.signal(rustix::process::Signal::CONT);
    let done = done.expect_refused(&[&format!("m0: in use by process {}", served.pid())]);
    assert!(!done.stderr.contains("which serves"), "{done:?}");
    scratch.uraid(["examine", &text(&members[0])]).expect_done();
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_member_that_shrinks_under_load() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("shrink", RAID5, &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let data = pattern(3, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    let file = OpenOptions::new().write(true).open(&members[1]).expect("a member");
    file.set_len(3 * MIB).expect("a file");
    assert_eq!(client.read(0, data.len()).expect("connected").map(|read| read == data), Ok(true));
    // A read meets it, or the mark that the array is clean, 200 ms after the last write.
    served.wait_for("m1 (slot 1) is faulty: ");
    assert!(served.stderr().contains("the member is gone or shrank; the array goes on"), "{}", served.stderr());
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    let done = served.stop();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stderr.matches("is faulty").count(), 1, "once: {}", done.stderr);
}

#[test]
fn a_member_truncated_under_writes_does_not_come_back_as_zeroes() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("gone", RAID5, &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let mut data = pattern(8, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    OpenOptions::new().write(true).open(&members[1]).and_then(|file| file.set_len(0)).expect("a file");
    // Small writes first: they read old data and parity, and would make the file long again.
    for at in (0..data.len() - 512).step_by(200 * 512).rev() {
        let part = pattern(9 + at as u64, 512);
        assert_eq!(client.write(at as u64, &part).expect("connected"), 0);
        data[at..at + 512].copy_from_slice(&part);
    }
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    served.wait_for("m1 (slot 1) is faulty: ");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn no_space_under_a_sparse_member() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 32 * MIB);
    let Some(small) = Tmpfs::mount(&scratch, "size=8m") else {
        eprintln!("SKIPPED no_space_under_a_sparse_member: a tmpfs cannot be mounted here (needs root)");
        return;
    };
    let sparse = small.0.join("sparse");
    File::create(&sparse).and_then(|file| file.set_len(32 * MIB)).expect("a sparse file");
    let all = [members.as_slice(), std::slice::from_ref(&sparse)].concat();
    scratch.create("space", RAID5, &all);
    let served = scratch.ready(&[], &all);
    let mut client = served.client();
    let data = pattern(4, 4 * MIB as usize);
    let outcomes: Vec<u32> = (0..8).map(|n| client.write(n * 4 * MIB, &data).expect("connected")).collect();
    let written = outcomes.iter().position(|&error| error != 0).expect("8 MiB do not hold 16");
    assert!(written > 0 && outcomes[written..].iter().all(|&error| error == ENOSPC), "{outcomes:?}");
    let full = format!("{}: no space left under the member (errno 28)", text(&sparse));
    served.wait_for(&format!("takes no more writes: {full}; reads are served"));
    // Sparse members often share one file system: no member is failed for an error that may hit all of them next.
    for n in 0..written as u64 {
        assert!(client.read(n * 4 * MIB, data.len()).expect("connected").as_ref() == Ok(&data), "part {n}");
    }
    let shown = scratch.uraid(["detail", "space"]).expect_done().stdout;
    assert!(shown.contains("State : broken \n") && shown.contains(&format!("Frozen : {full}\n")), "{shown}");
    served.stop().expect_refused(&["stays marked dirty"]);
    // With room again, the next start makes it consistent and goes on.
    Command::new("mount").args(["-o", "remount,size=64m"]).arg(&small.0).status().expect("mount is there");
    let served = scratch.ready(&[], &all);
    served.wait_for("it is made consistent while it takes requests");
    let mut client = served.client();
    for n in 0..written as u64 {
        assert!(client.read(n * 4 * MIB, data.len()).expect("connected").as_ref() == Ok(&data), "part {n}");
    }
    assert_eq!(client.write(28 * MIB, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn create_without_room_names_what_may_have_changed_and_the_ways_on() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 1, 8 * MIB);
    let Some(small) = Tmpfs::mount(&scratch, "size=1m") else {
        eprintln!("SKIPPED create_without_room_...: a tmpfs cannot be mounted here (needs root)");
        return;
    };
    let sparse = small.0.join("sparse");
    File::create(&sparse).and_then(|file| file.set_len(8 * MIB)).expect("a sparse file");
    small.fill();
    let words = ["create", "--homehost", "none", "-l", "1", "-n", "2"].map(PathBuf::from);
    let done = scratch.uraid(words.into_iter().chain([members[0].clone(), sparse.clone()]));
    let expected = format!(
        "no complete array was made: members that may have been changed: {}, {}; repeat the command with --run when \
         the cause is gone, or `uraid zero-superblock` them: {}: writing the superblock failed: no space left under the \
         member (errno 28)\n",
        text(&members[0]),
        text(&sparse),
        text(&sparse)
    );
    done.expect_refused(&[&expected]);
}

#[test]
fn socket_in_use() {
    let scratch = Scratch::new();
    let (members, others) = (scratch.members("m", 2, 8 * MIB), scratch.members("o", 2, 8 * MIB));
    scratch.create("same", RAID1, &members);
    scratch.create("same", RAID1, &others);
    let served = scratch.ready(&[], &members);
    scratch.serve(&[], &others).end().expect_refused(&["same.nbd: a running server listens on it", "`uraid list`"]);
    assert_eq!(served.client().size % 512, 0, "the first one was not disturbed");
    assert_eq!(served.stop().code, Some(0));
    let file = scratch.member("file.nbd", 1);
    let at = format!("unix:{}", text(&file));
    scratch.serve(&["--nbd", &at], &others).end().expect_refused(&["file.nbd", "not a socket"]);
    // Leftovers of a killed server do not block a start.
    drop(UnixListener::bind(scratch.path("same.nbd")).expect("a socket"));
    assert_eq!(scratch.ready(&[], &others).stop().code, Some(0));
}

#[test]
fn tcp_needs_to_be_asked_for_on_loopback_too() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("net", RAID1, &members);
    scratch.serve(&["--nbd", "tcp:0.0.0.0:0"], &members).end().expect_refused(&["everyone who reaches", "--insecure"]);
    let local = ["--nbd", "tcp:127.0.0.1:0"];
    scratch.serve(&local, &members).end().expect_refused(&["every user of this machine", "--insecure"]);
    let served = scratch.ready(&[&local[..], &["--insecure"]].concat(), &members);
    assert!(served.stop().stdout.starts_with("nbd://127.0.0.1:"));
}

#[test]
fn no_permission() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("mine", RAID1, &members);
    fs::set_permissions(&members[0], fs::Permissions::from_mode(0o000)).expect("our file");
    let mut command = scratch.command(["serve", &text(&members[0]), &text(&members[1])]);
    if rustix::process::geteuid().is_root() {
        // Root may open everything: run the binary as another user, from a directory that this user can reach.
        command = Command::new(scratch.binary());
        command.args(["serve", &text(&members[0]), &text(&members[1])]).uid(65_534).gid(65_534);
    }
    crate::common::Served::start(&mut command).end().expect_refused(&["not started", "m0", "permission"]);
}

#[test]
fn garbage_on_the_sockets() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("noise", RAID1, &members);
    let served = scratch.ready(&[], &members);
    let noise = pattern(5, 100_000);
    for socket in [served.socket(), scratch.path("noise.ctl")] {
        let mut stream = UnixStream::connect(&socket).expect("the server is ready");
        // The server may close the connection before all is sent.
        let _ = stream.write_all(&noise);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut control = UnixStream::connect(scratch.path("noise.ctl")).expect("the server is ready");
    control.write_all(b"GET / HTTP/1.1\r\n").expect("connected");
    let mut answer = [0; 400];
    let length = control.read(&mut answer).expect("connected");
    assert!(String::from_utf8_lossy(&answer[..length]).contains("-32700"), "the protocol's error");
    assert_eq!(served.client().write(0, &noise[..4096]).expect("connected"), 0);
    scratch.uraid(["detail", "noise"]).expect_done();
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn clients_that_say_nothing_do_not_lock_the_control_socket() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("mute", RAID1, &members);
    let served = scratch.ready(&[], &members);
    let connect = |_| UnixStream::connect(scratch.path("mute.ctl")).expect("the server is ready");
    let mute: Vec<UnixStream> = (0..40).map(connect).collect();
    scratch.uraid(["detail", "mute"]).expect_done();
    drop(mute);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_client_that_disconnects_in_mid_write() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("half", RAID5, &members);
    let served = scratch.ready(&[], &members);
    let mut witness = served.client();
    let data = pattern(6, MIB as usize);
    assert_eq!(witness.write(0, &data).expect("connected"), 0);
    for sent in [0, 1, 512, 70_000, data.len() - 1] {
        served.client().write_half_and_leave(0, data.len() as u32, &pattern(7, sent));
    }
    let read = witness.read(0, data.len()).expect("connected");
    assert!(read == Ok(data), "a write that did not arrive whole is none");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn requests_past_the_end_get_the_protocol_s_error() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("end", RAID1, &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let size = client.size;
    assert_ne!(client.write(size, &[0; 512]).expect("connected"), 0);
    assert_ne!(client.write(u64::MAX - 511, &[0; 512]).expect("connected"), 0);
    assert!(client.read(size - 512, 1024).expect("connected").is_err());
    assert_eq!(client.write(size - 512, &[1; 512]).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn nobody_is_called_that() {
    let scratch = Scratch::new();
    for words in [&["detail", "ghost"][..], &["stop", "ghost"], &["fail", "ghost", "0"]] {
        scratch.uraid(words).expect_refused(&["no running array is called ghost"]);
    }
    let control = text(&scratch.path("none.ctl"));
    scratch.uraid(["stop", "--control", &control]).expect_refused(&["cannot reach the control socket", "none.ctl"]);
    assert_eq!(scratch.uraid(["list"]).expect_done().stdout, "");
    assert!(Client::connect(&scratch.path("none.nbd")).is_err());
}

#[test]
fn create_refuses_what_cannot_last_and_what_it_does_not_make_yet() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 << 20);
    let (a, b) = (members[0].display().to_string(), members[1].display().to_string());
    let create = |words: &[&str]| scratch.uraid([&["create", "--name", "no", "-n", "2"], words].concat());
    let done = create(&["-l", "1", "mem:64M", "mem:64M"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("mem:64M: is gone when create ends"), "{}", done.stderr);
    let done = create(&["-l", "0", "-c", "3", &a, &b]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("from 4 KiB"), "{}", done.stderr);
    let done = create(&["-l", "1", "-e", "0.90", &a, &b]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("superblocks of version 0.90 are read, not written"), "{}", done.stderr);
    let done = create(&["-l", "1", "-e", "1.0", "--data-offset", "1M", &a, &b]);
    assert_eq!(done.code, Some(1));
    assert_eq!(create(&["-l", "0", "--metadata=1.2", "-c", "5", &a, &b]).code, Some(0));
}

#[test]
fn names_give_no_orders_to_a_terminal_wherever_they_are_shown() {
    let scratch = Scratch::new();
    let members = scratch.members("m\u{1b}[2J\u{202e}", 2, 8 * MIB);
    scratch.create("plain", RAID1, &members);
    let other = scratch.members("o", 2, 8 * MIB);
    scratch.create("other", RAID1, &other);
    let is_plain = |text: &str| !text.contains(['\u{1b}', '\u{202e}']) && !text.is_empty();
    let words = |verb: &str, members: &[PathBuf]| {
        scratch.uraid([PathBuf::from(verb)].into_iter().chain(members.iter().cloned()))
    };
    for verb in ["examine", "detail"] {
        let done = words(verb, &members);
        assert!(done.code == Some(0) && is_plain(&done.stdout), "{done:?}");
    }
    let done = words("serve", &[members[0].clone(), other[0].clone()]);
    assert!(done.code == Some(1) && is_plain(&done.stderr), "{done:?}");
    let drawn = scratch.uraid(["detail", "--draw"].map(PathBuf::from).into_iter().chain(members.clone()));
    assert!(drawn.code == Some(0) && is_plain(&drawn.stdout), "{drawn:?}");
}
