//! `create` and `add` with `--write-mostly` and `--failfast` by position, on the real binary and beside mdadm.
//! Owns: which members get which flags, what the superblocks say, refusals. Not here: flags of running members
//! (`write_mostly`), the words of the command line (`crate::arguments::member_flags`).

use crate::common::{MIB, Scratch};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The value of a line `name : value`; empty if there is none.
fn field(shown: &str, name: &str) -> String {
    let lines = shown.lines().filter_map(|line| line.split_once(" : "));
    let value = lines.into_iter().find(|(field, _)| field.trim() == name);
    value.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// The flags in a member's superblock, as uraid shows them, and as mdadm does if it is installed.
fn flags(scratch: &Scratch, member: &Path) -> String {
    let ours = scratch.uraid([Path::new("examine"), member]).expect_done().stdout;
    match Command::new("mdadm").arg("--examine").arg(member).output() {
        Err(_) => println!("not compared: mdadm is not installed"),
        Ok(done) => {
            let theirs = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(theirs.contains(" - correct\n"), "{theirs}");
            for name in ["Flags", "Device Role", "Array State", "Raid Level", "Raid Devices", "Data Offset"] {
                assert_eq!(field(&theirs, name), field(&ours, name), "{name} in:\n{theirs}\n{ours}");
            }
        }
    }
    field(&ours, "Flags")
}

/// The words, with `mN` for a member.
fn words(line: &str, members: &[PathBuf]) -> Vec<OsString> {
    let word = |word: &str| match word.strip_prefix('m').and_then(|number| number.parse::<usize>().ok()) {
        Some(at) => members[at].clone().into_os_string(),
        None => word.into(),
    };
    line.split(' ').map(word).collect()
}

#[test]
fn create_gives_flags_to_the_members_behind_the_option() {
    for (line, expected, said) in [
        ("-l 1 -n 2 m0 --write-mostly m1", &["", "write-mostly"][..], &["  write-mostly: {m1}\n"][..]),
        ("-l 1 -W -n 3 m0 missing m1", &["write-mostly"; 2], &["  write-mostly: {m0}, {m1}\n"]),
        (
            "-l 10 -n 4 -x 1 --failfast m0 m1 -W m2 m3 m4",
            &["failfast", "failfast", "write-mostly failfast", "write-mostly failfast", "write-mostly failfast"],
            &["  write-mostly: {m2}, {m3}, {m4}\n", "  failfast: {m0}, {m1}, {m2}, {m3}, {m4}\n"],
        ),
    ] {
        let scratch = Scratch::new();
        let members = scratch.members("m", expected.len(), 8 * MIB);
        let line = words(&format!("create --name home {line}"), &members);
        let done = scratch.uraid(line).expect_done();
        for text in said {
            let named = members.iter().enumerate().fold((*text).to_owned(), |text, (at, member)| {
                text.replace(&format!("{{m{at}}}"), &member.display().to_string())
            });
            assert!(done.stdout.contains(&named), "{named:?} is not in:\n{}", done.stdout);
        }
        let found: Vec<String> = members.iter().map(|member| flags(&scratch, member)).collect();
        assert_eq!(found, expected);
    }
}

/// Apart from the flags, a member is the one that `create` makes without them.
#[test]
fn a_flag_changes_one_byte_of_the_superblock_and_its_checksum() {
    let superblocks = ["-l 1 -n 2 m0 m1", "-l 1 -n 2 m0 -W --failfast m1"].map(|line| {
        let scratch = Scratch::new();
        let members = scratch.members("m", 2, 8 * MIB);
        let common = "create --name home --uuid 00000000-0000-0000-0000-000000000001 --assume-clean";
        scratch.uraid(words(&format!("{common} {line}"), &members)).expect_done();
        let mut bytes = fs::read(&members[1]).expect("a member")[4096..8192].to_vec();
        // The times of creation and update, the random id of the device, the checksum.
        for range in [64..72, 168..184, 192..200, 216..220] {
            bytes[range].fill(0);
        }
        bytes
    });
    let [plain, flagged] = superblocks;
    let differ: Vec<usize> = (0..4096).filter(|&at| plain[at] != flagged[at]).collect();
    assert_eq!((differ, flagged[184]), (vec![184], 3));
}

#[test]
fn arrays_as_members_get_flags_as_well() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 16 * MIB);
    for (name, pair) in [("left", "m0 m1"), ("right", "m2 m3")] {
        scratch.uraid(words(&format!("create -l 0 -n 2 --name {name} {pair}"), &members)).expect_done();
    }
    let line = "create -l 1 -n 2 --name wide --assume-clean --array m0 m1 -W --array m2 m3";
    let done = scratch.uraid(words(line, &members)).expect_done();
    assert!(done.stdout.contains("  write-mostly: --array "), "{}", done.stdout);
    let mut serve = words("--array m0 m1 --array m2 m3", &members);
    let options: Vec<String> = serve.drain(..).map(|word| word.into_string().expect("UTF-8")).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let served = scratch.ready(&options, &[]);
    let shown = scratch.uraid(["detail", "wide"]).expect_done().stdout;
    let state = |name: &str| shown.lines().find(|line| line.trim_end().ends_with(name)).map(str::to_owned);
    assert!(state("right").is_some_and(|line| line.contains("writemostly")), "{shown}");
    assert!(state("left").is_some_and(|line| !line.contains("writemostly")), "{shown}");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_spare_that_is_added_with_a_flag_keeps_it_in_its_slot() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 5, 16 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members[..2]);
    let served = scratch.ready(&[], &members[..2]);
    scratch.uraid(words("add home m2 --write-mostly --failfast m3 --nofailfast m4", &members)).expect_done();
    let on_disk = || members[2..].iter().map(|member| flags(&scratch, member)).collect::<Vec<String>>();
    assert_eq!(on_disk(), ["", "write-mostly failfast", "write-mostly"]);
    scratch.uraid(words("replace home 1 --with m3", &members)).expect_done();
    served.wait_for("holds all of slot 1, and has taken it");
    assert_eq!(on_disk(), ["", "write-mostly failfast", "write-mostly"]);
    let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
    let line = format!("active sync writemostly failfast   {}", members[3].display());
    assert!(shown.contains(&line), "{shown}");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_former_member_that_returns_keeps_the_flags_that_no_option_names() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    let line = "create -l 1 -n 2 --name home --assume-clean -b internal m0 --failfast m1";
    scratch.uraid(words(line, &members)).expect_done();
    let served = scratch.ready(&[], &members);
    let goes_and_returns = |options: &str| {
        scratch.uraid(words("fail home m1", &members)).expect_done();
        served.write_all(MIB, &[7; 4096]);
        scratch.uraid(words("remove home m1", &members)).expect_done();
        scratch.uraid(words(&format!("add home {options}m1"), &members)).expect_done();
        crate::common::wait(|| scratch.uraid(["detail", "--test", "home"]).code == Some(0)).expect("it is whole again");
        flags(&scratch, &members[1])
    };
    assert_eq!(goes_and_returns(""), "failfast");
    assert_eq!(goes_and_returns("-W "), "write-mostly failfast");
    assert_eq!(goes_and_returns("--nofailfast "), "write-mostly");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn levels_without_copies_and_options_with_no_member_behind_them_are_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 8 * MIB);
    for (level, count) in [("0", 3), ("4", 3), ("5", 3), ("6", 4), ("linear", 3)] {
        for flag in ["write-mostly", "failfast"] {
            let list = &["m0", "m1", "m2", "m3"][..count].join(" ");
            let done = scratch.uraid(words(&format!("create -l {level} -n {count} --{flag} {list}"), &members));
            let done = done.expect_refused(&["has no copies, which ", flag, "only raid1 and raid10 have"]);
            assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
        }
    }
    let none = |line: &str, option: &str| {
        let done = scratch.uraid(words(line, &members));
        let text = format!("error: {option} holds for the members behind it, and none is: put it before them\n");
        assert!(done.code == Some(2) && done.stderr.starts_with(&text), "{done:?}");
    };
    none("create -l 1 -n 2 m0 m1 -W", "--write-mostly");
    none("create -l 1 -n 2 m0 --failfast missing", "--failfast");
    none("add home m0 --nofailfast", "--nofailfast");
    let is_empty = |member: &PathBuf| fs::read(member).expect("a member").iter().all(|byte| *byte == 0);
    assert!(members.iter().all(is_empty), "nothing was changed");
    scratch.create("home", "-l 5 -n 3 --assume-clean", &members[..3]);
    let served = scratch.ready(&[], &members[..3]);
    scratch.uraid(words("add home --failfast m3", &members)).expect_refused(&["home: raid5 has no copies", "failfast"]);
    assert!(is_empty(&members[3]), "nothing was changed");
    assert_eq!(served.stop().code, Some(0));
}
