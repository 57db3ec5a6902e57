//! `uraid examine` beside mdadm: the texts of members that the real md driver and mdadm wrote, and of those that uraid
//! makes. Owns: the comparison. Not here: what the fields mean (`engine`), the bytes (`format`).
//! Invariant: a line of mdadm's is compared whole; the test prints what it does not compare. The member's path is
//! replaced, and our ` UTC` left out. Of texts from another host, two things that mdadm prints only there are left out
//! too: ` (local to host ...)`, and device names after a 0.90 superblock's numbers.

use crate::common::golden::{golden, golden_names, restored};
use crate::common::{MIB, Scratch, Served, pattern};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The headings of the sections that uraid adds to mdadm's text of the superblock.
const EXTRAS: [&str; 4] = ["Bitmap:", "Bad-blocks:", "Partial parity log:", "Journal:"];

/// The part of `uraid examine`'s text that mdadm prints too: without the areas after the superblock and the time zone.
fn as_mdadm(stdout: &str) -> String {
    let mut is_extra = false;
    let mut own: Vec<&str> = Vec::new();
    for line in stdout.lines() {
        // The next member's text begins with its path.
        is_extra = (is_extra && !line.starts_with('/')) || EXTRAS.contains(&line);
        if EXTRAS.contains(&line) {
            // An empty line sets it off.
            own.pop_if(|last| last.is_empty());
        }
        if !is_extra {
            own.push(line.strip_suffix(" UTC").unwrap_or(line));
        }
    }
    let text = own.join("\n");
    format!("{}\n", text.trim_end())
}

/// Straight to the descriptor: a passing test's output is hidden.
fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("a standard error");
}

/// Whether a missing program fails the test instead of skipping it.
fn is_all_required() -> bool {
    std::env::var_os("URAID_REQUIRE_CLIENTS").is_some_and(|value| value != "0" && !value.is_empty())
        || std::env::var_os("URAID_CLIENTS").is_some_and(|value| value == "required")
}

/// A folder that goes with the test and takes sparse files of a certain size.
struct Folder(PathBuf);

impl Folder {
    /// ext4 ends at 16 TiB; the memory file system, which is tried next, does not.
    fn with_room_for(bytes: u64) -> Option<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("uraid-sparse-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        [std::env::temp_dir(), PathBuf::from("/dev/shm")].into_iter().find_map(|base| {
            fs::create_dir(base.join(&name)).ok()?;
            let folder = Folder(base.join(&name));
            let probe = folder.0.join("probe");
            File::create(&probe).and_then(|file| file.set_len(bytes)).ok()?;
            fs::remove_file(probe).expect("it was made here");
            Some(folder)
        })
    }

    /// For members of 18 TB. If no file system takes such a file: for smaller members, still of more than 2^32 sectors,
    /// and with a message that says so.
    fn for_large() -> (u64, Folder) {
        const LARGE: u64 = 18_000_207_937_536;
        const STAND_INS: [u64; 2] = [15 << 40, 3 << 40];
        if let Some(folder) = Folder::with_room_for(LARGE) {
            return (LARGE, folder);
        }
        let refusal = "no file system here takes a sparse file of 18 TB";
        assert!(!is_all_required(), "{refusal}");
        let found = STAND_INS.into_iter().find_map(|bytes| Some((bytes, Folder::with_room_for(bytes)?)));
        let (bytes, folder) = found.expect("a file system that takes a sparse file of more than 2^32 sectors");
        say(&format!("NOT COMPARED: members of 18 TB, because {refusal}; {bytes} bytes stand in for them"));
        (bytes, folder)
    }

    fn members(&self, count: usize, bytes: u64) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = (0..count).map(|n| self.0.join(format!("m{n}"))).collect();
        for path in &paths {
            File::create(path).and_then(|file| file.set_len(bytes)).expect("there was room");
        }
        paths
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// mdadm's text as it would print it on this host; the golden texts come from another one. Without the device names
/// after a descriptor of 0.90.
fn elsewhere(text: &str) -> String {
    let text = text.replace(" (local to host (none))", "");
    let names = ["   /dev/", "   MEMBER"];
    let plain = |line: &str| {
        names.into_iter().fold(line.to_owned(), |line, name| match line.split_once(name) {
            Some((before, _)) => before.to_owned(),
            None => line,
        })
    };
    text.lines().map(|line| format!("{}\n", plain(line).trim_end())).collect()
}

#[test]
fn members_of_the_real_md_driver_are_told_in_mdadms_words() {
    let scratch = Scratch::new();
    let (_, folder) = Folder::for_large();
    let (mut compared, mut lines) = (0, 0);
    for name in golden_names() {
        let array = golden(&name);
        for (at, member) in array["members"].as_array().expect("members").iter().enumerate() {
            let path = restored(folder.0.join("MEMBER"), member);
            let expected = |key: &str| elsewhere(member[key].as_str().unwrap_or(""));
            let run = |words: &[&str]| {
                let words = ["examine"].iter().chain(words).map(PathBuf::from).chain([path.clone()]);
                let done = scratch.uraid(words).expect_done();
                done.stdout.replace(&path.display().to_string(), "MEMBER")
            };
            let shown = run(&[]);
            let text = elsewhere(&as_mdadm(&shown));
            assert_eq!(text, format!("{}\n", expected("examine").trim_end()), "{name} {at}");
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
            lines += text.lines().count();
        }
    }
    println!("{compared} golden members, {lines} lines of their texts");
    assert!(compared > 150, "only {compared} members were compared");
}

/// The installed mdadm's output. `None`, with a message, if there is no mdadm.
fn mdadm(words: &[&str], paths: &[PathBuf]) -> Option<String> {
    let program = ["/usr/sbin/mdadm", "/sbin/mdadm"].into_iter().find(|file| Path::new(file).exists());
    let Some(program) = program else {
        assert!(!is_all_required(), "mdadm is not installed");
        say("SKIPPED examine beside mdadm: mdadm is not installed");
        return None;
    };
    let output = Command::new(program).arg("--examine").args(words).args(paths).env("TZ", "UTC").output();
    let output = output.expect("mdadm runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compares every form of the members of an array, and gives how many lines there were; `None` where there is no mdadm.
fn compare(scratch: &Scratch, paths: &[PathBuf], what: &str) -> Option<usize> {
    let mut lines = 0;
    for words in [&[][..], &["--export"], &["--brief"], &["--brief", "--verbose"]] {
        // mdadm has no word for a level that it does not know, and prints what C makes of that.
        let expected = mdadm(words, paths)?.replace("MD_LEVEL=(null)", "MD_LEVEL=-unknown-");
        let own = ["examine"].iter().chain(words).map(PathBuf::from).chain(paths.iter().cloned());
        let shown = scratch.uraid(own).expect_done().stdout;
        let shown = if words.is_empty() { as_mdadm(&shown) } else { shown };
        let expected = if words.is_empty() { format!("{}\n", expected.trim_end()) } else { expected };
        assert_eq!(shown, expected, "{what} {words:?}");
        lines += expected.lines().filter(|line| !line.is_empty()).count();
    }
    Some(lines)
}

/// `create OPTIONS MEMBERS` on new members.
fn created(scratch: &Scratch, folder: &Folder, bytes: u64, options: &str, count: usize) -> Vec<PathBuf> {
    let paths = folder.members(count, bytes);
    let words = ["create"].into_iter().chain(options.split_whitespace()).map(PathBuf::from);
    scratch.uraid(words.chain(paths.iter().cloned())).expect_done();
    paths
}

/// Every level with every version on members of this size: all fields of all members.
fn compare_levels_and_versions(bytes: u64, folder: &Folder) {
    const LEVELS: [(&str, usize); 7] = [("linear", 3), ("0", 3), ("1", 2), ("4", 3), ("5", 3), ("6", 4), ("10", 4)];
    let scratch = Scratch::new();
    let (mut members, mut lines) = (0, 0);
    for (level, count) in LEVELS {
        for version in ["1.0", "1.1", "1.2"] {
            let options = format!("-l {level} -n {count} -e {version} --name level-{level}");
            let paths = created(&scratch, folder, bytes, &options, count);
            let Some(compared) = compare(&scratch, &paths, &format!("{options}, {bytes} bytes")) else { return };
            members += paths.len();
            lines += compared;
        }
    }
    assert_eq!(members, 3 * LEVELS.map(|(_, count)| count).iter().sum::<usize>());
    println!("7 levels, 3 versions, {bytes} bytes: {members} members, {lines} lines as mdadm's");
}

#[test]
fn every_level_and_version_on_small_members_is_told_as_mdadm_tells_it() {
    compare_levels_and_versions(20 * MIB, &Folder::with_room_for(20 * MIB).expect("room for a small file"));
}

#[test]
fn every_level_and_version_on_8_gib_members_is_told_as_mdadm_tells_it() {
    compare_levels_and_versions(8 << 30, &Folder::with_room_for(8 << 30).expect("room for a sparse file of 8 GiB"));
}

#[test]
fn every_level_and_version_on_18_tb_members_is_told_as_mdadm_tells_it() {
    let (bytes, folder) = Folder::for_large();
    compare_levels_and_versions(bytes, &folder);
}

#[test]
fn new_members_of_every_layout_are_told_as_mdadm_tells_them() {
    let parity = ["la", "ra", "ls", "rs", "parity-first", "parity-last", "ddf-zero-restart", "ddf-N-restart"];
    let mut shapes: Vec<(String, usize)> = vec![
        ("-l 0 -n 3 -p alternate --homehost none".to_owned(), 3),
        ("-l 5 -n 3 -x 1 --homehost elsewhere".to_owned(), 4),
        ("-l 1 -n 2 --data-offset 3M --assume-clean".to_owned(), 2),
    ];
    shapes.extend(parity.map(|layout| (format!("-l 5 -n 3 -p {layout}"), 3)));
    shapes.extend(parity.map(|layout| (format!("-l 6 -n 4 -p {layout}"), 4)));
    for layout in ["left-symmetric-6", "parity-first-6"] {
        shapes.push((format!("-l 6 -n 5 -p {layout}"), 5));
    }
    shapes.extend(["n2", "f2", "o2", "n3"].map(|layout| (format!("-l 10 -n 4 -p {layout}"), 4)));
    let scratch = Scratch::new();
    let (large, folder) = Folder::for_large();
    for (nth, (options, count)) in shapes.iter().enumerate() {
        // One size for each, in turn: another test has every level with every size.
        let bytes = [20 * MIB, 8 << 30, large][nth % 3];
        let options = format!("{options} --name a{nth}");
        let members = created(&scratch, &folder, bytes, &options, *count);
        if compare(&scratch, &members, &format!("{options}, {bytes} bytes")).is_none() {
            return;
        }
    }
}

/// The little-endian word of 32 bits at a byte.
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

fn set_word(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Puts the right sum at `at`: that of the words of `block`, without itself.
fn seal(block: &mut [u8], at: usize) {
    set_word(block, at, 0);
    let sum: u64 = (0..block.len()).step_by(4).map(|at| u64::from(word(block, at))).sum();
    set_word(block, at, (sum as u32).wrapping_add((sum >> 32) as u32));
}

#[test]
fn what_a_0_90_superblock_can_say_is_told_as_mdadm_tells_it() {
    const AT: usize = 16_256 * 512;
    const DISK: usize = 32;
    let reshape = [(2, 91), (44, 70_000), (46, 6), (47, 1), (48, 3), (49, 131_072)];
    let variants: [(&str, Vec<(usize, u32)>); 14] = [
        ("as it was", vec![]),
        ("reshaped to one more, raid6", reshape.into()),
        ("reshaped to one less", [&reshape[..3], &[(46, 5), (47, u32::MAX), (48, 2), (49, 65_536)]].concat()),
        ("reshaped raid10", [&reshape[..], &[(7, 10), (46, 10), (64, 0x102), (48, 0x201), (49, 65_536)]].concat()),
        ("no reshape position", vec![(2, 91), (44, u32::MAX), (45, u32::MAX), (46, 5)]),
        ("errors", vec![(33, 1 << 1)]),
        ("never updated", vec![(32, 0)]),
        ("patched, many events", vec![(3, 3), (39, 5), (40, 7), (11, 127)]),
        ("raid6, strange layout", vec![(7, 6), (64, 77), (65, 512)]),
        ("raid10 offset", vec![(7, 10), (10, 4), (64, 0x1_0201), (65, 1 << 20)]),
        ("raid0", vec![(7, 0), (8, 0)]),
        ("linear", vec![(7, u32::MAX), (8, 0), (65, 65_536)]),
        ("an unknown level", vec![(7, 7)]),
        (
            "all states",
            vec![
                (128 + 4, 1),
                (128 + DISK + 4, 1 | 1 << 3),
                (128 + 2 * DISK + 4, 6 | 1 << 9),
                (128 + 3 * DISK + 4, 1 << 10),
                (37, 2),
                (36, 2),
                (992 + 4, 6 | 1 << 9 | 1 << 10),
            ],
        ),
    ];
    let scratch = Scratch::new();
    let folder = Folder::with_room_for(MIB).expect("room for a small file");
    let path = restored(folder.0.join("MEMBER"), &golden("v090-r5-dirty")["members"][0]);
    let original = fs::read(&path).expect("it was just written");
    let mut lines = 0;
    for (what, changes) in variants {
        let mut bytes = original.clone();
        let block = &mut bytes[AT..AT + 4096];
        for (word, value) in changes {
            set_word(block, word * 4, value);
        }
        seal(block, 38 * 4);
        fs::write(&path, &bytes).expect("our file");
        let Some(compared) = compare(&scratch, std::slice::from_ref(&path), what) else { return };
        lines += compared;
    }
    println!("14 superblocks 0.90 that md did not write: {lines} lines as mdadm's");
    // A wrong sum, whose place is another one than in the later versions.
    let mut bytes = original.clone();
    bytes[AT + 39 * 4] ^= 1;
    fs::write(&path, &bytes).expect("our file");
    let done = scratch.uraid([Path::new("examine"), &path]).expect_refused(&["superblock checksum is 0x61822436"]);
    assert!(done.stdout.contains("Checksum : 61822436 - expected 61822437\n"), "{}", done.stdout);
    assert_eq!(as_mdadm(&done.stdout), mdadm(&[], &[path]).expect("it was there").trim_end().to_owned() + "\n");
}

#[test]
fn a_0_90_superblock_that_cannot_be_used_says_why() {
    const AT: usize = 16_256 * 512;
    let scratch = Scratch::new();
    let folder = Folder::with_room_for(MIB).expect("room for a small file");
    let path = restored(folder.0.join("MEMBER"), &golden("v090-r5-dirty")["members"][0]);
    let original = fs::read(&path).expect("it was just written");
    let refused = |change: &dyn Fn(&mut [u8]), texts: &[&str]| {
        let mut bytes = original.clone();
        let block = &mut bytes[AT..AT + 4096];
        change(block);
        seal(block, 38 * 4);
        fs::write(&path, &bytes).expect("our file");
        scratch.uraid([Path::new("examine"), &path]).expect_refused(texts);
        scratch.uraid([Path::new("serve"), &path]).expect_refused(texts);
    };
    let swap = |block: &mut [u8]| block.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    refused(&swap, &["superblock 0.90 is in big-endian byte order, expected little-endian"]);
    let set = |at: usize, value: u32| move |block: &mut [u8]| set_word(block, at * 4, value);
    refused(&set(2, 36), &["superblock has version 0.36, expected 0.90 or 0.91"]);
    refused(&set(65, 1000), &["superblock has a chunk of 1000 bytes, expected a multiple of 512"]);
    refused(&set(128 + 3, 27), &["superblock puts device 0 in slot 27, expected at most 26"]);
    refused(&set(8, 8129), &["superblock uses 16258 sectors of each member, this one has only 16256 for data"]);
    refused(&set(10, 0), &["superblock counts 0 slots, expected 1 to 27"]);
}

/// Makes the array of a member 1.0 older by an hour, as if it had been made before.
fn age(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a member");
    let at = ((file.metadata().expect("a file").len() / 512 - 16) & !7) * 512;
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, at).expect("it has one");
    let covered = 256 + 2 * word(&block, 220) as usize;
    let created = word(&block, 64);
    set_word(&mut block, 64, created - 3600);
    seal(&mut block[..covered], 216);
    file.write_all_at(&block, at).expect("our file");
}

#[test]
fn a_member_of_an_inner_array_1_0_is_never_taken_for_one_of_the_array_over_it() {
    // The outer superblock stands where the members of a mirror have sector 8, or sector 0, of their own; a stripe's and
    // a raid5's first member too, and there the outer array's data is longer than the device.
    for (inner, count, outer) in [("1", 2, "-l 0 -c 64K -e 1.2"), ("0", 2, "-l 1 -e 1.1"), ("5", 3, "-l 0 -c 64K")] {
        let scratch = Scratch::new();
        let groups = [scratch.members("l", count, 8 * MIB), scratch.members("r", count, 8 * MIB)];
        for (name, members) in ["left", "right"].into_iter().zip(&groups) {
            scratch.create(name, &format!("-e 1.0 -l {inner} -n {count}"), members);
            members.iter().for_each(|member| age(member));
        }
        let arrays: Vec<PathBuf> = groups
            .iter()
            .flat_map(|group| [PathBuf::from("--array")].into_iter().chain(group.iter().cloned()))
            .collect();
        let words = format!("create --homehost none --name wide -n 2 {outer}");
        let words = words.split(' ').map(PathBuf::from);
        scratch.uraid(words.chain(arrays.iter().cloned())).expect_done();
        let serve = || {
            let words = [PathBuf::from("serve")].into_iter().chain(arrays.iter().cloned());
            let served = Served::start(&mut scratch.command(words));
            served.wait_until_ready();
            served
        };
        let served = serve();
        let mut client = served.client_of("wide");
        let data = pattern(41, client.size as usize);
        assert_eq!(client.write(0, &data).expect("connected"), 0);
        assert_eq!(served.stop().code, Some(0));
        for (name, members) in ["left", "right"].into_iter().zip(&groups) {
            for member in members {
                let done = scratch.uraid([Path::new("examine"), member]).expect_done();
                for line in ["Version : 1.0".to_owned(), format!("Raid Level : raid{inner}"), format!("Name : {name}")]
                {
                    assert!(done.stdout.contains(&format!("{line}\n")), "raid{inner}: {line:?} is not in {done:?}");
                }
                assert_eq!(done.stderr, "", "nothing is in doubt");
            }
        }
        let served = serve();
        assert!(served.client_of("wide").read(0, data.len()).expect("connected").as_ref() == Ok(&data), "raid{inner}");
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn where_a_leftover_may_be_the_right_one_the_later_counts_and_that_is_said() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    scratch.create("first", "-e 1.0 -l 1 -n 2", &members);
    age(&members[0]);
    let old = fs::read(&members[0]).expect("a member");
    scratch.create("second", "-l 1 -n 2 --assume-clean --run", &members);
    let at = 16 * MIB - 8192;
    let file = OpenOptions::new().write(true).open(&members[0]).expect("a member");
    file.write_all_at(&old[at as usize..][..4096], at).expect("our file");
    let said = "superblocks of two arrays: the one of version 1.2 (sector 8) is used, because it is not older than the \
                one of version 1.0 (sector 32752)";
    let done = scratch.uraid([Path::new("examine"), &members[0]]).expect_done().expect_said(&[said]);
    assert!(done.stdout.contains("Name : second\n"), "{done:?}");
    let served = scratch.ready(&[], &members);
    served.wait_for(said);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_wrong_checksum_is_shown_with_the_right_one_and_fails() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 20 * MIB);
    scratch.create("sum", "-l 1 -n 2", &members);
    let file = OpenOptions::new().read(true).write(true).open(&members[0]).expect("a member");
    // The event count: 200 bytes into the superblock.
    file.write_all_at(&[7], 4096 + 200).expect("written");
    let done = scratch.uraid([Path::new("examine"), &members[0]]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stdout.contains("         Events : 7\n") && done.stdout.contains(" - expected "), "{}", done.stdout);
    if let Some(expected) = mdadm(&[], &members[..1]) {
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
    let members = scratch.members("m", 2, 20 * MIB);
    scratch.create("full", "-l 1 -n 2", &members);
    let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = scratch.command([Path::new("examine"), &members[0]]).stdout(full).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout"), "{output:?}");
}
