//! `uraid examine` beside mdadm: the texts of members that the real md driver and mdadm wrote, and of those that uraid
//! makes. Owns: the comparison. Not here: what the fields mean (`engine`), the bytes (`format`).
//! Invariant: a line of mdadm's is compared whole. Normalised is: the member's path, our ` UTC`, and mdadm's remark that
//! the name's host is this one, where the text was made on another host.

mod common;

use common::{MIB, Scratch};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Members on which something else than the text of the superblock is to be seen.
const EXTRAS: [&str; 4] = ["Bitmap:", "Bad-blocks:", "Partial parity log:", "Journal:"];

/// What `uraid examine` says, without what is not mdadm's: the areas behind the superblock, and the time zone.
fn as_mdadm(stdout: &str) -> String {
    let own = stdout.lines().take_while(|line| !EXTRAS.contains(line));
    let text: String = own.map(|line| format!("{}\n", line.strip_suffix(" UTC").unwrap_or(line))).collect();
    format!("{}\n", text.trim_end())
}

fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/golden");
    let text = fs::read_to_string(folder.join(format!("{name}.json"))).expect("a golden array");
    serde_json::from_str(&text).expect("JSON")
}

fn golden_names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/golden");
    let files = fs::read_dir(folder).expect("the golden arrays").map(|file| file.expect("a file").path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() > 50, "{names:?}");
    names
}

/// `a92b4e` are bytes, `ff*512` is one byte repeated.
fn words(text: &str) -> Vec<u8> {
    let hex = |text: &str| u8::from_str_radix(text, 16).expect("two hex digits");
    let mut bytes = Vec::new();
    for word in text.split(' ') {
        match word.split_once('*') {
            Some((byte, times)) => bytes.resize(bytes.len() + times.parse::<usize>().expect("a count"), hex(byte)),
            None => bytes.extend((0..word.len()).step_by(2).map(|at| hex(&word[at..at + 2]))),
        }
    }
    bytes
}

/// The file that a golden member describes; `None` where the file system has no room for its size.
fn restored(scratch: &Scratch, member: &Value, name: &str) -> Option<PathBuf> {
    let path = scratch.path(name);
    let file = File::create(&path).expect("a file");
    file.set_len(member["sectors"].as_u64().expect("a size") * 512).ok()?;
    for piece in member["content"].as_array().expect("a list") {
        let at = piece[0].as_u64().expect("a sector") * 512;
        file.write_all_at(&words(piece[1].as_str().expect("words")), at).expect("written");
    }
    Some(path)
}

/// mdadm's text as this host would print it: the hosts of the golden texts are not this one.
fn elsewhere(text: &str) -> String {
    text.replace("  (local to host (none))", "")
}

#[test]
fn members_of_the_real_md_driver_are_told_in_mdadms_words() {
    let scratch = Scratch::new();
    let mut compared = 0;
    for name in golden_names().iter().filter(|name| !name.starts_with("v090-")) {
        let array = golden(name);
        for (at, member) in array["members"].as_array().expect("members").iter().enumerate() {
            let Some(path) = restored(&scratch, member, "MEMBER") else { continue };
            let expected = |key: &str| elsewhere(member[key].as_str().unwrap_or(""));
            let run = |words: &[&str]| {
                let words = ["examine"].iter().chain(words).map(PathBuf::from).chain([path.clone()]);
                let done = scratch.uraid(words).expect_done();
                done.stdout.replace(&path.display().to_string(), "MEMBER")
            };
            let shown = run(&[]);
            assert_eq!(as_mdadm(&shown), format!("{}\n", expected("examine").trim_end()), "{name} {at}");
            assert_eq!(run(&["--export"]), expected("export"), "{name} {at}");
            assert_eq!(run(&["--brief"]), expected("brief"), "{name} {at}");
            let listed = member["badblocks"].as_str().unwrap_or("").lines().filter(|line| line.contains(" for "));
            for line in listed {
                assert!(shown.contains(line), "{name} {at}: {line:?} is not in\n{shown}");
            }
            if let Some(bits) = member["bitmap"].as_str().unwrap_or("").lines().find(|line| line.contains("bits (")) {
                assert!(shown.contains(bits), "{name} {at}: {bits:?} is not in\n{shown}");
            }
            for mark in
                ["Partial parity log:\n          Error", "Journal:\n          Error", "Bitmap:\n          Error"]
            {
                assert!(!shown.contains(mark), "{name} {at}: {shown}");
            }
            compared += 1;
        }
    }
    assert!(compared > 120, "only {compared} members were compared");
}

/// The installed mdadm's output; `None`, loudly, where there is none.
fn mdadm(words: &[&str], path: &Path) -> Option<String> {
    let program = ["/usr/sbin/mdadm", "/sbin/mdadm"].into_iter().find(|file| Path::new(file).exists());
    let Some(program) = program else {
        let is_required = std::env::var_os("URAID_REQUIRE_CLIENTS").is_some_and(|value| value != "0")
            || std::env::var_os("URAID_CLIENTS").is_some_and(|value| value == "required");
        assert!(!is_required, "mdadm is not installed");
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED examine beside mdadm: mdadm is not installed");
        return None;
    };
    let output = Command::new(program).arg("--examine").args(words).arg(path).env("TZ", "UTC").output();
    let output = output.expect("mdadm runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compares every form of one member; false where there is no mdadm.
fn compare(scratch: &Scratch, path: &Path, what: &str) -> bool {
    for words in [&[][..], &["--export"], &["--brief"], &["--brief", "--verbose"]] {
        let Some(expected) = mdadm(words, path) else { return false };
        let own = ["examine"].iter().chain(words).map(PathBuf::from).chain([path.to_owned()]);
        let shown = scratch.uraid(own).expect_done().stdout;
        let shown = if words.is_empty() { as_mdadm(&shown) } else { shown };
        let expected = if words.is_empty() { format!("{}\n", expected.trim_end()) } else { expected };
        assert_eq!(shown, expected, "{what} {words:?}");
    }
    true
}

fn created(scratch: &Scratch, bytes: u64, options: &str, count: usize) -> Option<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = (0..count).map(|n| scratch.path(&format!("m{n}"))).collect();
    for path in &paths {
        File::create(path).expect("a file").set_len(bytes).ok()?;
    }
    let words = ["create"].into_iter().chain(options.split_whitespace()).map(PathBuf::from);
    scratch.uraid(words.chain(paths.iter().cloned())).expect_done();
    Some(paths)
}

#[test]
fn new_members_of_every_shape_and_size_are_told_as_mdadm_tells_them() {
    let parity = ["la", "ra", "ls", "rs", "parity-first", "parity-last", "ddf-zero-restart", "ddf-N-restart"];
    let mut shapes: Vec<(String, usize)> =
        ["linear", "0", "1", "4"].map(|level| (format!("-l {level} -n 3"), 3)).into();
    shapes.push(("-l 0 -n 3 -p alternate --homehost none".to_owned(), 3));
    shapes.push(("-l 5 -n 3 -x 1 --homehost elsewhere".to_owned(), 4));
    shapes.push(("-l 1 -n 2 --data-offset 3M --assume-clean".to_owned(), 2));
    shapes.extend(parity.map(|layout| (format!("-l 5 -n 3 -p {layout}"), 3)));
    shapes.extend(parity.map(|layout| (format!("-l 6 -n 4 -p {layout}"), 4)));
    for layout in ["left-symmetric-6", "parity-first-6"] {
        shapes.push((format!("-l 6 -n 5 -p {layout}"), 5));
    }
    shapes.extend(["n2", "f2", "o2", "n3"].map(|layout| (format!("-l 10 -n 4 -p {layout}"), 4)));
    let scratch = Scratch::new();
    for (nth, (options, count)) in shapes.iter().enumerate() {
        // Sizes take turns over the shapes, so that each level meets each size without a run for all pairs.
        for (_, bytes) in
            [20 * MIB, 8 << 30, 15 << 40].into_iter().enumerate().filter(|(n, _)| nth < 7 || n == &(nth % 3))
        {
            let options = format!("{options} --name a{nth}");
            let Some(members) = created(&scratch, bytes, &options, *count) else { continue };
            for path in [&members[0], &members[count - 1]] {
                if !compare(&scratch, path, &format!("{options}, {bytes} bytes")) {
                    return;
                }
            }
        }
    }
}

#[test]
fn an_18_tb_member_is_told_as_mdadm_tells_it() {
    // ext4 ends below 18 TB; a memory file system holds sparse files of that size.
    const BYTES: u64 = 18_000_207_937_536;
    let scratch = Scratch::new();
    let folders = [scratch.path(""), PathBuf::from("/dev/shm")];
    let name = |n: usize| format!("uraid-18tb-{}-{n}", std::process::id());
    let folder = folders.into_iter().find(|folder| {
        let path = folder.join(name(0));
        let is_taken = File::create(&path).and_then(|file| file.set_len(BYTES)).is_ok();
        let _ = fs::remove_file(&path);
        is_taken
    });
    let folder = folder.expect("the temporary folder or /dev/shm takes a sparse file of 18 TB");
    for (options, count) in [("linear", 2), ("0", 2), ("1", 2), ("4", 3), ("5", 3), ("6", 4), ("10 -p f2", 2)] {
        let paths: Vec<PathBuf> = (0..count).map(|n| folder.join(name(n))).collect();
        for path in &paths {
            File::create(path).and_then(|file| file.set_len(BYTES)).expect("there was room");
        }
        let options = format!("-n {count} -l {options} --name large");
        let words = ["create"].into_iter().chain(options.split(' ')).map(PathBuf::from);
        scratch.uraid(words.chain(paths.iter().cloned())).expect_done();
        compare(&scratch, &paths[0], &options);
        for path in &paths {
            fs::remove_file(path).expect("it was made here");
        }
    }
}

#[test]
fn a_wrong_checksum_is_shown_with_the_right_one_and_fails() {
    let scratch = Scratch::new();
    let members = created(&scratch, 20 * MIB, "-l 1 -n 2 --name sum", 2).expect("room");
    let file = OpenOptions::new().read(true).write(true).open(&members[0]).expect("a member");
    // The event count: 200 bytes into the superblock.
    file.write_all_at(&[7], 4096 + 200).expect("written");
    let done = scratch.uraid([Path::new("examine"), &members[0]]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stdout.contains("         Events : 7\n") && done.stdout.contains(" - expected "), "{}", done.stdout);
    if let Some(expected) = mdadm(&[], &members[0]) {
        assert_eq!(as_mdadm(&done.stdout), expected);
    }
    let json = scratch.uraid([Path::new("examine"), Path::new("--json"), &members[0], &members[1]]);
    assert_eq!(json.code, Some(1), "{json:?}");
    let facts: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&facts[0]["checksum_is_correct"], &facts[1]["checksum_is_correct"]), (&false.into(), &true.into()));
    assert_eq!((&facts[1]["device_role"], &facts[1]["slot"]), (&"Active device 1".into(), &1.into()));
    assert_eq!((&facts[1]["level"], &facts[1]["array_state"]), (&"raid1".into(), &"AA".into()));
}

#[test]
fn a_member_without_a_superblock_is_an_entry_with_an_error() {
    let scratch = Scratch::new();
    let empty = scratch.member("empty", MIB);
    let done = scratch.uraid([Path::new("examine"), Path::new("--json"), &empty]).expect_refused(&["no md superblock"]);
    let facts: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert!(facts[0]["error"].as_str().is_some_and(|text| text.contains("no md superblock")), "{facts}");
}

#[test]
fn what_cannot_be_printed_is_not_done() {
    let scratch = Scratch::new();
    let members = created(&scratch, 20 * MIB, "-l 1 -n 2 --name full", 2).expect("room");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = scratch.command([Path::new("examine"), &members[0]]).stdout(full).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout"), "{output:?}");
}
