//! What the binary refuses at its doors: files that the system uses, requests of the control socket that say too little or
//! two things, words in another order; and how it says what every command may meet.
//! Owns: these refusals, their words, and that nothing was changed. Not here: who may call (`control`), limits of the process
//! (`process_limits`), members changed at random (`mutated`).

use crate::common::loop_device::LoopDevice;
use crate::common::{Done, MIB, Scratch};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a command of the system. Whether it went well.
fn system(words: &[&str]) -> bool {
    let status = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// Undoes something when the test ends, however it ends.
struct Undo<'a>(&'a [&'a str]);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        assert!(system(self.0) || std::thread::panicking(), "{:?}", self.0);
    }
}

fn create(scratch: &Scratch, members: &[&Path]) -> Done {
    let words = "create --force --run --level 1 --raid-devices 2 --name taken".split(' ').map(PathBuf::from);
    scratch.uraid(words.chain(members.iter().map(|member| member.to_path_buf())))
}

/// The only member of a small array.
fn source(scratch: &Scratch) -> PathBuf {
    let member = scratch.path("source");
    if !member.exists() {
        scratch.member("source", 8 * MIB);
        scratch.create("source", "-l 1 -n 1 --force", std::slice::from_ref(&member));
    }
    member
}

fn copy_over(scratch: &Scratch, out: &Path) -> Done {
    scratch.uraid(["copy", "--overwrite", text(&source(scratch)), text(out)])
}

#[test]
fn a_file_that_is_swap_space_is_not_made_a_member() {
    // Swap space needs a file system that has blocks: not one in memory.
    let scratch = Scratch::on_disk();
    let (swap, other) = (scratch.path("swap"), scratch.member("other", 8 * MIB));
    File::create(&swap).and_then(|file| file.write_all_at(&vec![0; 8 << 20], 0)).expect("room");
    fs::set_permissions(&swap, fs::Permissions::from_mode(0o600)).expect("our file");
    if !system(&["mkswap", text(&swap)]) || !system(&["swapon", text(&swap)]) {
        println!("not run: no swap space can be made here");
        return;
    }
    let words = ["swapoff", text(&swap)];
    let _swapoff = Undo(&words);
    let before = fs::read(&swap).expect("a file");
    let wanted = format!("{0}: is swap space: swapoff {0}, then try again", swap.display());
    create(&scratch, &[&swap, &other]).expect_refused(&[&wanted]);
    create(&scratch, &[&other, &swap]).expect_refused(&[&wanted]);
    let wanted = format!("{0}: is in use, because it is swap space: swapoff {0}, then try again", swap.display());
    copy_over(&scratch, &swap).expect_refused(&["nothing was copied", &wanted]);
    assert!(fs::read(&swap).expect("a file") == before);
    scratch.uraid(["examine", text(&other)]).expect_refused(&["no md superblock"]);
}

#[test]
fn a_file_below_a_mounted_loop_device_is_not_written() {
    let scratch = Scratch::new();
    let (image, other, place) =
        (scratch.member("image", 32 * MIB), scratch.member("other", 32 * MIB), scratch.path("fs"));
    fs::create_dir(&place).expect("a folder");
    let Some(device) = LoopDevice::new(&image).filter(|_| system(&["mkfs.ext4", "-q", text(&image)])) else {
        println!("not run: no loop device or no mkfs.ext4 here");
        return;
    };
    // A loop device that nobody uses is in nobody's way.
    create(&scratch, &[&image, &other]).expect_done();
    assert!(system(&["mkfs.ext4", "-q", "-F", text(device.path())]));
    assert!(system(&["mount", text(device.path()), text(&place)]));
    {
        let words = ["umount", text(&place)];
        let _umount = Undo(&words);
        fs::write(place.join("kept"), "kept").expect("room");
        let wanted = format!(
            "{}: is what {} shows, which is mounted: umount {}, then try again",
            image.display(),
            device.path().display(),
            place.display()
        );
        create(&scratch, &[&image, &other]).expect_refused(&[&wanted]);
        scratch.uraid(["zero-superblock", text(&image)]).expect_refused(&[&wanted]);
        // Nor as the output of a copy, by any of its names, nor as one that the shell has opened.
        let link = scratch.path("link");
        fs::hard_link(&image, &link).expect("a link");
        for out in [&image, &link] {
            let wanted = format!("{}: is in use, because it is what {}", out.display(), device.path().display());
            copy_over(&scratch, out).expect_refused(&["nothing was copied", &wanted]);
        }
        copy_over(&scratch, device.path()).expect_refused(&["nothing was copied", ": is in use"]);
        let out = File::options().write(true).open(&image).expect("ours");
        let copied = scratch.command(["copy", text(&source(&scratch)), "-"]).stdout(out).output().expect("it runs");
        let said = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(said.contains("standard output: is in use, because it is what /dev/"), "{said}");
        assert!(said.contains("nothing was copied"), "{said}");
        // And not as its map.
        let map = [Path::new("copy"), "--map".as_ref(), &image, &source(&scratch), &scratch.path("out")];
        scratch.uraid(map).expect_refused(&["nothing was copied", "image: "]);
    }
    device.wait_until_free();
    assert!(system(&["mount", text(device.path()), text(&place)]));
    let words = ["umount", text(&place)];
    let _umount = Undo(&words);
    assert_eq!(fs::read_to_string(place.join("kept")).expect("it is there"), "kept");
}

/// ```text
///   image <- first <- second, which is swap space or mounted
/// ```
#[test]
fn a_file_or_device_below_loop_devices_that_the_system_uses_is_not_written() {
    let scratch = Scratch::new();
    let (image, other, place) =
        (scratch.member("image", 40 * MIB), scratch.member("other", 40 * MIB), scratch.path("fs"));
    fs::create_dir(&place).expect("a folder");
    let Some(first) = LoopDevice::new(&image) else {
        println!("not run: no loop device here");
        return;
    };
    let Some(second) = LoopDevice::new(first.path()) else { panic!("losetup made one") };
    let part = PathBuf::from(format!("{}@20M+10M", image.display()));
    let device = text(second.path());
    for (make, begin, end) in [
        (vec!["mkswap", device], vec!["swapon", device], vec!["swapoff", device]),
        (vec!["mkfs.ext4", "-q", "-F", device], vec!["mount", device, text(&place)], vec!["umount", text(&place)]),
    ] {
        if !system(&make) || !system(&begin) {
            println!("not run: {begin:?}");
            continue;
        }
        let _end = Undo(&end);
        for member in [&image, &first.path().to_owned(), &part] {
            let done =
                create(&scratch, &[member, &other]).expect_refused(&[&format!("is what {device} shows, which is ")]);
            assert!(done.stderr.contains(&format!(": {}, then try again", end.join(" "))), "{done:?}");
        }
        for out in [&image, first.path()] {
            let wanted = format!("{}: is in use, because it is what {device} shows", out.display());
            copy_over(&scratch, out).expect_refused(&["nothing was copied", &wanted]);
        }
    }
    second.wait_until_free();
}

/// One line to the control socket, and the line that comes back.
fn ask(scratch: &Scratch, line: &str) -> String {
    let mut stream = UnixStream::connect(scratch.path("asked.ctl")).expect("the server is ready");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    // The server may have refused the line before its end.
    let _ = stream.write_all(line.as_bytes()).and_then(|()| stream.write_all(b"\n"));
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("each request gets an answer");
    answer
}

#[test]
fn a_request_that_has_no_id_or_says_two_things_is_answered_and_not_done() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("asked", "--level 1 --raid-devices 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    for (line, wanted) in [
        (r#"{"jsonrpc":"2.0","method":"stop","params":{"force":true}}"#, "no id"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"stop","params":{"force":true}}"#, "an id is a number, a text or null"),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"stop"}"#, r#"\"id\" occurs twice"#),
        (r#"{"jsonrpc":"2.0","id":1,"method":"status","method":"stop"}"#, r#"\"method\" occurs twice"#),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"stop","params":{"force":false,"force":true}}"#,
            r#"\"force\" occurs twice"#,
        ),
    ] {
        let answer = ask(&scratch, line);
        assert!(answer.contains("\"error\"") && answer.contains(wanted), "{line}: {answer}");
    }
    // 100 paths of 1,000 bytes: more than 64 KiB. None of them is there, so none is added.
    let paths: Vec<String> = (0..100).map(|n| format!("\"/{}/{n}\"", "long".repeat(250))).collect();
    let add = format!(r#"{{"jsonrpc":"2.0","id":"add","method":"add","params":{{"members":[{}]}}}}"#, paths.join(","));
    assert!(add.len() > 65_536);
    let answer = ask(&scratch, &add);
    assert!(
        answer.contains("\"id\":\"add\"") && answer.contains("\"error\"") && !answer.contains("longer than"),
        "{answer}"
    );
    // One that never ends is cut off.
    let answer = ask(&scratch, &" ".repeat(5 << 20));
    assert!(answer.contains("a line is longer than 4194304"), "{answer}");
    let picture = scratch.uraid(["detail", "asked"]).expect_done().stdout;
    assert!(picture.contains("active sync"), "{picture}");
    served.stop().expect_done();
}

#[test]
fn what_is_not_there_or_not_allowed_has_the_same_words_in_every_command() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("asked", "--level 1 --raid-devices 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let (other, out) = (scratch.member("other", 8 * MIB), scratch.path("out"));
    let lines = |word: &str| {
        let commands = [
            "examine WORD",
            "serve WORD",
            "copy WORD OUT",
            "create --level 1 --raid-devices 2 --name x WORD OTHER",
            "zero-superblock WORD",
            "update uuid WORD",
            "doctor --file WORD",
            "add asked WORD",
            "re-add asked WORD",
        ];
        commands.map(|line| {
            let words = line.split(' ').map(|part| match part {
                "WORD" => word.to_owned(),
                "OTHER" => text(&other).to_owned(),
                "OUT" => text(&out).to_owned(),
                part => part.to_owned(),
            });
            words.collect::<Vec<String>>()
        })
    };
    for words in lines(text(&scratch.path("nothing"))) {
        let done = scratch.uraid(&words).expect_refused(&["nothing: not found"]);
        assert!(!done.stderr.contains("os error") && !done.stderr.contains("No such file"), "{words:?}: {done:?}");
    }
    // Nor where a file or folder is to be made.
    let (nowhere, unserved) = (scratch.path("nothing/x"), scratch.members("unserved", 2, 8 * MIB));
    scratch.create("unserved", "--level 1 --raid-devices 2 --assume-clean", &unserved);
    let nbd = format!("unix:{}", nowhere.display());
    for (option, place) in [("--nbd", nbd.as_str()), ("--control", text(&nowhere)), ("--fuse", text(&nowhere))] {
        let done = scratch.uraid(["serve", option, place, text(&unserved[0]), text(&unserved[1])]);
        let done = done.expect_refused(&["not found"]);
        assert!(!done.stderr.contains("os error") && !done.stderr.contains("o such file"), "{option}: {done:?}");
    }
    // Where root may do everything, a file without permission cannot be made.
    if !rustix::process::geteuid().is_root() {
        let secret = scratch.member("secret", 8 * MIB);
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("our file");
        for words in lines(text(&secret)) {
            scratch.uraid(&words).expect_refused(&["secret: permission denied (errno 13)"]);
        }
    }
    served.stop().expect_done();
}

#[test]
fn words_in_another_order_and_words_of_mdadm_are_answered_with_the_command() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let spare = scratch.member("spare", 8 * MIB);
    scratch.create("asked", "--level 1 --raid-devices 2 --assume-clean --bitmap internal", &members);
    let served = scratch.ready(&[], &members);
    let (m0, m1) = (text(&members[0]), text(&members[1]));
    for verb in ["fail", "remove", "replace", "re-add"] {
        let wanted = format!("asked: is a running array, which comes first: `uraid {verb} asked {m0}`");
        scratch.uraid([verb, m0, "asked"]).expect_refused(&[&wanted]);
    }
    let wanted = format!("asked: is a running array, which comes first: `uraid add asked {}`", text(&spare));
    scratch.uraid(["add", text(&spare), "asked"]).expect_refused(&[&wanted]);
    for (line, wanted) in [
        (["bitmap", "internal", "asked"], "internal: the array comes first: `uraid bitmap asked internal`"),
        (["speed", "5M", "asked"], "`uraid speed asked --max 5M`"),
        (["speed", "asked", "5M"], "`uraid speed asked --max 5M`"),
    ] {
        let done = scratch.uraid(line);
        assert!(done.code == Some(2) && done.stderr.contains(wanted), "{done:?}");
    }
    for (verb, word, wanted) in [
        ("fail", "failed", "`uraid remove ARRAY failed`"),
        ("add", "missing", "`uraid re-add ARRAY missing`"),
        ("remove", "missing", "`uraid re-add ARRAY missing`"),
        ("replace", "detached", "`uraid fail ARRAY detached`"),
    ] {
        scratch.uraid([verb, "asked", word]).expect_refused(&[wanted]);
    }
    for (verb, word) in [("fail", "detached"), ("remove", "failed"), ("remove", "detached"), ("re-add", "missing")] {
        let done = scratch.uraid([verb, "asked", word]).expect_done();
        assert_eq!(done.stdout, format!("asked: no member is {word}, [UU]\n"), "{verb}");
    }
    // A member whose file has gone: failed, removed, and taken back when it is there again.
    let away = scratch.path("away");
    fs::rename(&members[1], &away).expect("our file");
    let done = scratch.uraid(["fail", "asked", "detached"]).expect_done();
    assert_eq!(done.stdout, format!("{m1} (slot 1): set faulty in asked, [U_]\n"));
    scratch.uraid(["remove", "asked", "detached"]).expect_done();
    fs::rename(&away, &members[1]).expect("our file");
    let done = scratch.uraid(["re-add", "asked", "missing"]).expect_done();
    assert!(done.stdout.starts_with(&format!("{m1}: re-added to asked, ")), "{done:?}");
    served.stop().expect_done();
}

#[test]
fn stop_scan_stops_every_array_and_says_which_it_could_not() {
    let scratch = Scratch::new();
    scratch.uraid(["stop", "--scan"]).expect_done();
    let mut served = Vec::new();
    for name in ["first", "second"] {
        let members = scratch.members(name, 2, 8 * MIB);
        scratch.create(name, "--level 1 --raid-devices 2 --assume-clean", &members);
        served.push(scratch.ready(&[], &members));
    }
    let client = served[1].client();
    let done =
        scratch.uraid(["stop", "--scan"]).expect_refused(&["second: is not stopped: ", "not all arrays are stopped"]);
    assert_eq!(done.stdout, "first: stopped\n");
    drop(client);
    let done = scratch.uraid(["stop", "-s"]).expect_done();
    assert_eq!(done.stdout, "second: stopped\n");
    // Two arrays of one process.
    let words = ["--array", "first0", "first1", "--array", "second0", "second1"];
    let words = words.map(|word| if word.starts_with('-') { word.into() } else { scratch.path(word) });
    let both = scratch.ready(&[], &words);
    let done = scratch.uraid(["stop", "--scan"]).expect_done();
    assert_eq!(done.stdout, "first: stopped\nsecond: stopped\n");
    served.push(both);
    served.into_iter().for_each(|served| assert_eq!(served.end().code, Some(0)));
}

/// Such a device can be opened for writing; only the writes fail.
#[test]
fn a_block_device_that_is_read_only_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let Some(device) = LoopDevice::with_options(&members[1], &["--read-only"]) else {
        eprintln!("SKIPPED a_block_device_that_is_read_only...: a loop device cannot be made here (needs root)");
        return;
    };
    let (first, second) = (text(&members[0]), text(device.path()));
    let before = fs::read(&members[0]).expect("ours");
    let text = format!("{second}: the block device is read-only (blockdev --getro)");
    let created = scratch.uraid(["create", "-l", "1", "-n", "2", "--force", first, second]);
    created.expect_refused(&[&format!("no array was made: {text}")]);
    assert!(fs::read(&members[0]).expect("ours") == before);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    scratch.uraid(["serve", first, second]).expect_refused(&[&text]);
    let served = scratch.ready(&["-o"], &[members[0].clone(), device.path().to_owned()]);
    assert_eq!(served.stop().code, Some(0));
}
