//! `serve --uuid`: members that are looked for, as a unit needs it after a disk was exchanged or has died.
//! Owns: folders, patterns, foreign files, spares, members that are late or stay away. Not here: which members start an
//! array (`members`, `rebuilding`).

use crate::common::stubborn::StubbornFile;
use crate::common::{MIB, Scratch, Served, pattern};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder `disks` with the members of a raid5 of three, those of another array, and files that are no members.
fn folder(scratch: &Scratch, options: &str, count: usize) -> (PathBuf, Vec<PathBuf>, String) {
    let disks = scratch.path("disks");
    fs::create_dir(&disks).expect("room");
    let own = scratch.members("disks/m", count, 8 * MIB);
    scratch.create("home", options, &own);
    let other = scratch.members("disks/other", 2, 8 * MIB);
    scratch.create("other", "-l 1 -n 2 --assume-clean", &other);
    fs::write(disks.join("notes.txt"), "no disk").expect("room");
    fs::write(disks.join(".hidden"), fs::read(&own[0]).expect("ours")).expect("room");
    let shown = scratch.uraid([Path::new("examine"), Path::new("--json"), &own[0]]).expect_done().stdout;
    let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let uuid = json[0]["array_uuid"].as_str().expect("an id").to_owned();
    (disks, own, uuid)
}

fn serve(scratch: &Scratch, words: &[&str]) -> Served {
    Served::start(&mut scratch.command(["serve"].iter().chain(words)))
}

fn picture(scratch: &Scratch) -> String {
    let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
    shown.lines().find_map(|line| line.trim().strip_prefix("Slots : ")).expect("a picture").to_owned()
}

#[test]
fn folders_patterns_and_lists_lead_to_the_members_and_to_nothing_else() {
    let scratch = Scratch::new();
    let (disks, members, uuid) = folder(&scratch, "-l 5 -n 3 -x 1 --assume-clean", 4);
    let (disks, data) = (disks.to_str().expect("text"), pattern(3, MIB as usize));
    let all = format!("{disks}/*");
    let some = format!("{disks}/[mn]*");
    let list: Vec<&str> = members.iter().map(|path| path.to_str().expect("text")).collect();
    let list: Vec<&str> = list.into_iter().chain(["/nowhere/disk9", "/dev/null"]).collect();
    let words = [vec![disks], vec![&all], vec![&some], list];
    for (nth, places) in words.into_iter().enumerate() {
        let words: Vec<&str> = ["--uuid", &uuid].into_iter().chain(places).collect();
        let served = serve(&scratch, &words);
        served.wait_until_ready();
        assert_eq!(picture(&scratch), "[3/3] [UUU]", "{words:?}");
        assert!(!served.stderr().contains("other") && !served.stderr().contains("notes"), "{}", served.stderr());
        let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
        assert!(shown.contains("Spare Devices : 1\n"), "{shown}");
        if nth == 0 {
            served.write_all(0, &data);
        }
        assert_eq!(served.first_difference(&data), None, "{words:?}");
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn an_exchanged_disk_and_a_dead_one_need_no_other_command_line() {
    let scratch = Scratch::new();
    let (disks, members, uuid) = folder(&scratch, "-l 5 -n 3 --assume-clean", 3);
    let words = ["--uuid", &uuid, "--run-after", "1s", disks.to_str().expect("text")];
    let data = pattern(5, MIB as usize);
    let served = serve(&scratch, &words);
    served.wait_until_ready();
    served.write_all(0, &data);
    // Another disk takes the place of one that fails.
    let fresh = scratch.member("disks/fresh", 8 * MIB);
    scratch.uraid(["fail", "home", members[1].to_str().expect("text")]).expect_done();
    scratch.uraid(["add", "home", fresh.to_str().expect("text")]).expect_done();
    served.wait_for("is recovered [UUU]");
    assert_eq!(served.stop().code, Some(0));
    let served = serve(&scratch, &words);
    served.wait_until_ready();
    assert_eq!((picture(&scratch).as_str(), served.first_difference(&data)), ("[3/3] [UUU]", None));
    assert_eq!(served.stop().code, Some(0));
    // One is gone for good: it is waited for, and then started without.
    fs::remove_file(&members[2]).expect("ours");
    // Without --run-after it is refused, as with a list.
    let refused = scratch.uraid(["serve", "--uuid", &uuid, disks.to_str().expect("text")]);
    refused.expect_refused(&["cannot start the array: ", "--run to start degraded"]);
    let began = Instant::now();
    let served = serve(&scratch, &words);
    served.wait_until_ready();
    assert!(began.elapsed() >= Duration::from_secs(1), "it may still come");
    served.wait_for("2 members are there yet, not slot 2; it is started without the others in 1s (--run-after)");
    assert_eq!((picture(&scratch).as_str(), served.first_difference(&data)), ("[3/2] [UU_]", None));
    assert_eq!(served.stop().code, Some(0));
    // Now the superblocks say that it is gone: nothing is waited for.
    let served = serve(&scratch, &["--uuid", &uuid, "--run-after", "600s", disks.to_str().expect("text")]);
    served.wait_until_ready();
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_member_that_comes_late_is_waited_for() {
    let scratch = Scratch::new();
    let (disks, members, uuid) = folder(&scratch, "-l 1 -n 2 --assume-clean", 2);
    let away = scratch.path("away");
    fs::rename(&members[1], &away).expect("ours");
    let served = serve(&scratch, &["--uuid", &uuid, "--run-after", "60s", disks.to_str().expect("text")]);
    served.wait_for("one member is there yet, not slot 1; it is started without the others in 60s");
    fs::rename(&away, &members[1]).expect("ours");
    served.wait_until_ready();
    assert_eq!(picture(&scratch), "[2/2] [UU]");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_copy_of_a_member_is_refused_at_once_and_a_stale_member_does_not_count() {
    let scratch = Scratch::new();
    let (disks, members, uuid) = folder(&scratch, "-l 1 -n 3 --assume-clean", 3);
    let folder = disks.to_str().expect("text");
    let copy = disks.join("copy");
    fs::copy(&members[0], &copy).expect("room");
    let refused = scratch.uraid(["serve", "--uuid", &uuid, "--run-after", "600s", folder]);
    refused.expect_refused(&["disks/copy and ", "disks/m0"]);
    fs::remove_file(&copy).expect("ours");

    let away = scratch.path("away");
    fs::rename(&members[0], &away).expect("ours");
    let served = serve(&scratch, &["--uuid", &uuid, "--run-after", "0s", folder]);
    served.wait_until_ready();
    served.write_all(0, &pattern(3, MIB as usize));
    assert_eq!(served.stop().code, Some(0));
    fs::rename(&away, &members[0]).expect("ours");
    fs::rename(&members[1], &away).expect("ours");
    let served = serve(&scratch, &["--uuid", &uuid, "--run-after", "60s", folder]);
    served.wait_for("one member is there yet, not slot 1; it is started without the others in 60s");
    fs::rename(&away, &members[1]).expect("ours");
    fs::remove_file(&members[0]).expect("ours");
    served.signal(rustix::process::Signal::KILL);
    served.end();
}

/// `/dev/disk/by-id` has a link for the model and one for the number of each disk.
#[test]
fn a_device_with_several_names_is_one_member() {
    let scratch = Scratch::new();
    let (_, members, uuid) = folder(&scratch, "-l 5 -n 3 --assume-clean", 3);
    let links = scratch.path("by-id");
    fs::create_dir(&links).expect("room");
    for (nth, member) in members.iter().enumerate() {
        for kind in ["ata", "wwn"] {
            std::os::unix::fs::symlink(member, links.join(format!("{kind}-{nth}"))).expect("room");
        }
    }
    let (links, pattern) = (links.to_str().expect("text").to_owned(), format!("{}/*", links.display()));
    for places in [vec![links.as_str()], vec![&pattern], vec![&links, &pattern]] {
        let words: Vec<&str> = ["--uuid", &uuid].into_iter().chain(places).collect();
        let served = serve(&scratch, &words);
        served.wait_until_ready();
        assert_eq!(picture(&scratch), "[3/3] [UUU]", "{words:?}");
        served.stop().expect_done();
    }
}

#[test]
fn what_is_not_found_is_said_with_the_places() {
    let scratch = Scratch::new();
    let nobody = "11111111:22222222:33333333:44444444";
    let folder = scratch.path("");
    let folder = folder.to_str().expect("text");
    let none = format!("no member of the array {nobody} among {folder}");
    scratch.uraid(["serve", "--uuid", nobody, folder]).expect_refused(&[&none]);
    scratch.uraid(["serve", "--uuid", nobody]).expect_refused(&["among all block devices of this system"]);
    scratch.uraid(["serve", "--uuid", nobody, "/tmp/[z"]).expect_refused(&["/tmp/[z: "]);
    assert_eq!(scratch.uraid(["serve", "--run-after", "1s", "m0"]).code, Some(2));
    assert_eq!(scratch.uraid(["serve", "--uuid", "home", "m0"]).code, Some(2));
}

/// A damaged member, one whose bad-block list is damaged, a place that is not there, and a folder that is none.
#[test]
fn a_member_that_is_left_out_and_a_place_that_is_not_there_are_said() {
    let scratch = Scratch::new();
    let (disks, members, uuid) = folder(&scratch, "-l 1 -n 3 --assume-clean", 3);
    let file = File::options().write(true).open(&members[1]).expect("ours");
    // The count of events: the checksum is wrong now.
    file.write_all_at(&[7], 4096 + 200).expect("room");
    // A member of another array is nobody's business.
    let file = File::options().write(true).open(disks.join("other1")).expect("ours");
    file.write_all_at(&[7], 4096 + 200).expect("room");
    let (nowhere, inside) = (scratch.path("nowhere"), disks.join("notes.txt/inside"));
    let places = [&disks, &nowhere, &inside].map(|path| path.to_str().expect("text"));
    let words: Vec<&str> = ["--uuid", &uuid, "--run-after", "0s"].into_iter().chain(places).collect();
    let served = serve(&scratch, &words);
    served.wait_until_ready();
    assert_eq!(picture(&scratch), "[3/2] [U_U]");
    let said = served.stderr();
    let damaged = format!("{}: superblock checksum is 0x", members[1].display());
    let lines = [
        (damaged, ": it is a member of this array, and is left out"),
        (format!("{}: not found", nowhere.display()), ": whether it is a member is not known"),
        (format!("{}: not a directory", inside.display()), ": whether it is a member is not known"),
    ];
    for (begin, end) in lines {
        let fits = |line: &&str| line.contains(&begin) && line.contains(end);
        assert_eq!(said.lines().filter(fits).count(), 1, "{begin}: {said}");
    }
    assert!(!said.contains("other"), "{said}");
    assert_eq!(served.stop().code, Some(0));
}

/// A member of an array whose server hangs, and the server that looks for it.
struct Hung {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    served: Served,
    scratch: Scratch,
}

/// The last of three members hangs. `is_folder`: its folder is given.
fn hung(options: &[&str], is_folder: bool) -> Hung {
    let scratch = Scratch::new();
    let (disks, members, uuid) = folder(&scratch, "-l 1 -n 3 --assume-clean", 3);
    let away = scratch.path("away");
    fs::create_dir(&away).expect("room");
    let stored = away.join("stored");
    fs::rename(&members[2], &stored).expect("ours");
    let member = StubbornFile::new(&scratch.path("mount"), &stored);
    let path = member.path();
    let place = if is_folder { path.parent().expect("it has one") } else { &path };
    member.hang();
    let places = [place.to_str().expect("text"), disks.to_str().expect("text")];
    let words: Vec<&str> = [&["--uuid", &uuid], options, &places].concat();
    let served = serve(&scratch, &words);
    Hung { member, served, scratch }
}

#[test]
fn a_place_that_does_not_answer_is_named_and_then_left_out() {
    for is_folder in [false, true] {
        let hung = hung(&["--run-after", "4s"], is_folder);
        let place = if is_folder { "mount" } else { "mount/member" };
        hung.served.wait_for(&format!("{place}: it does not answer; waiting for up to 4s"));
        hung.served.wait_for(&format!("{place}: it did not answer within "));
        hung.served.wait_for("the search goes on without it");
        hung.served.wait_until_ready();
        assert_eq!(picture(&hung.scratch), "[3/2] [UU_]");
        hung.member.go_on();
        assert_eq!(hung.served.stop().code, Some(0));
    }
    // Without --run-after it is the limit for members; the array is not started degraded, as ever.
    let Hung { member, served, scratch } = hung(&["--member-timeout", "3s"], false);
    served.wait_for("mount/member: it did not answer within 3s");
    served.wait_for("--run to start degraded");
    member.go_on();
    served.end().expect_refused(&["cannot start the array: "]);
    drop(member);
    drop(scratch);
}

#[test]
fn a_place_that_answers_late_is_not_left_out() {
    let hung = hung(&["--run-after", "600s"], false);
    hung.served.wait_for("mount/member: it does not answer; waiting for up to 600s");
    hung.member.go_on();
    hung.served.wait_until_ready();
    assert_eq!(picture(&hung.scratch), "[3/3] [UUU]");
    assert_eq!(hung.served.stop().code, Some(0));
}

#[test]
fn a_search_that_waits_for_a_place_ends_with_sigterm() {
    let hung = hung(&["--detached", "--run-after", "600s"], false);
    hung.served.wait_for("mount/member: it does not answer; waiting for up to 600s");
    hung.served.signal(rustix::process::Signal::TERM);
    // What the server has taken, the kernel lets nobody give up before it answers or is gone.
    drop(hung.member);
    assert_eq!(hung.served.end().code, None, "the signal ends it");
}
