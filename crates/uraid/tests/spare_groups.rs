//! Spares that arrays of one process share, on the real binary.
//! Owns: when a spare moves and when not, the log, the next start, kill -9 and a stop during a move. Not here: the words of
//! the command line (`crate::serve::spare_groups`), a spare that takes a slot of its own array (`spares`).

use crate::common::stubborn::StubbornFile;
use crate::common::superblock::Raw;
use crate::common::{MIB, Scratch, Served, pattern, wait};
use fuser::Errno;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Two arrays of one group: `give`, whose last member is a spare, and `take`.
struct Rig {
    scratch: Scratch,
    give: Vec<PathBuf>,
    take: Vec<PathBuf>,
}

impl Rig {
    /// `spare`: how large the spare is, in MiB; the other members have 16.
    fn new(give_level: &str, take_level: &str, spare: u64) -> Rig {
        let scratch = Scratch::new();
        let slots = |level: &str| if level == "1" { 2 } else { 3 };
        let mut give = scratch.members("g", slots(give_level), 16 * MIB);
        give.push(scratch.member("spare", spare * MIB));
        let take = scratch.members("t", slots(take_level), 16 * MIB);
        let options = format!("-l {give_level} -n {} -x 1 --size 4M --assume-clean", slots(give_level));
        scratch.create("give", &options, &give);
        scratch.create("take", &format!("-l {take_level} -n {} --assume-clean", slots(take_level)), &take);
        Rig { scratch, give, take }
    }

    fn serve(&self, options: &[&str]) -> Served {
        let mut words: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        words.extend(["--spare-group", "pool", "--array"].map(str::to_owned));
        words.extend(self.give.iter().map(|member| text(member)));
        words.push("--array".to_owned());
        words.extend(self.take.iter().map(|member| text(member)));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let served = self.scratch.serve(&words, &[]);
        served.wait_until_ready();
        served
    }

    fn spare(&self) -> &Path {
        self.give.last().expect("a spare")
    }

    fn report(&self, array: &str) -> Value {
        let shown = self.scratch.uraid(["detail", "--json", array]).expect_done().stdout;
        serde_json::from_str(&shown).expect("JSON")
    }

    /// The states of an array's members that have this path.
    fn states_of(&self, array: &str, path: &Path) -> Vec<String> {
        let report = self.report(array);
        let members = report["members"].as_array().expect("a list").iter();
        let own = members.filter(|member| member["path"] == text(path));
        own.map(|member| member["state"].as_str().expect("a word").to_owned()).collect()
    }

    fn wait_until_whole(&self, array: &str) {
        let is_whole = || self.scratch.uraid(["detail", "--test", array]).code == Some(0);
        wait(is_whole).unwrap_or_else(|()| panic!("{:?}", self.scratch.uraid(["detail", array])));
    }

    fn field(&self, member: &Path, name: &str) -> String {
        let shown = self.scratch.uraid([Path::new("examine"), member]).expect_done().stdout;
        let line = shown.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches([' ', ':']).to_owned()
    }
}

/// Writes the whole of the array of this export.
fn fill(served: &Served, export: &str, seed: u64) -> Vec<u8> {
    let mut client = served.client_of(export);
    let content = pattern(seed, client.size as usize);
    for (at, part) in content.chunks(MIB as usize).enumerate() {
        assert_eq!(client.write(at as u64 * MIB, part).expect("connected"), 0);
    }
    content
}

#[track_caller]
fn expect_content(served: &Served, export: &str, content: &[u8]) {
    let mut client = served.client_of(export);
    for (at, part) in content.chunks(MIB as usize).enumerate() {
        let found = client.read(at as u64 * MIB, part.len()).expect("connected").expect("it can be read");
        assert!(found == part, "{export}: MiB {at} differs");
    }
}

#[test]
fn a_spare_moves_to_an_array_that_lacks_a_member_and_is_recovered_there() {
    for (give_level, take_level) in [("1", "5"), ("5", "1"), ("1", "1")] {
        let rig = Rig::new(give_level, take_level, 16);
        let served = rig.serve(&[]);
        let contents = [("give", fill(&served, "give", 1)), ("take", fill(&served, "take", 2))];
        assert_eq!(rig.report("take")["spare_group"], "pool");
        let shown = rig.scratch.uraid(["detail", "give"]).expect_done().stdout;
        assert!(shown.contains("Spare Group : pool\n"), "{shown}");
        rig.scratch.uraid(["fail", "take", "1"]).expect_done();
        let spare = text(rig.spare());
        served.wait_for(&format!("take: spare group pool: lacks a member and has no spare: the spare {spare} of give"));
        served.wait_for(&format!("give: member {spare} is removed"));
        served.wait_for(&format!("take: member {spare} is added as a spare"));
        rig.wait_until_whole("take");
        assert_eq!(rig.states_of("take", rig.spare()), ["active sync"]);
        assert!(rig.states_of("give", rig.spare()).is_empty(), "it is no member there");
        rig.wait_until_whole("give");
        contents.iter().for_each(|(export, content)| expect_content(&served, export, content));
        // `give` lacks a member now, and no array has a spare for it.
        rig.scratch.uraid(["fail", "give", "0"]).expect_done();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(rig.states_of("take", rig.spare()), ["active sync"]);
        for array in ["give", "take"] {
            rig.scratch.uraid(["remove", array, "failed"]).expect_done();
        }
        rig.scratch.uraid(["add", "give", &text(&rig.take[1])]).expect_refused(&["carries"]);
        rig.scratch.uraid(["add", "--force", "give", &text(&rig.take[1])]).expect_done();
        rig.wait_until_whole("give");
        assert_eq!(served.stop().code, Some(0));
        // The same command line: each member goes to the array of its superblock.
        let served = rig.serve(&[]);
        contents.iter().for_each(|(export, content)| expect_content(&served, export, content));
        for array in ["give", "take"] {
            rig.wait_until_whole(array);
            rig.scratch.uraid(["check", "--wait", array]).expect_done();
        }
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_spare_that_is_too_small_stays_and_the_log_says_so_once() {
    let rig = Rig::new("1", "1", 8);
    let served = rig.serve(&[]);
    rig.scratch.uraid(["fail", "take", "0"]).expect_done();
    let spare = text(rig.spare());
    let line = format!("take: spare group pool: the spare {spare} of give is not moved to it: has 8 MiB, at least");
    served.wait_for(&line);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(served.stderr().matches(&line).count(), 1, "{}", served.stderr());
    assert_eq!(rig.states_of("give", rig.spare()), ["spare"]);
    // One that is large enough comes later.
    let large = rig.scratch.member("large", 24 * MIB);
    rig.scratch.uraid(["add", "give", &text(&large)]).expect_done();
    rig.wait_until_whole("take");
    assert_eq!(rig.states_of("take", &large), ["active sync"]);
    assert_eq!(rig.states_of("give", rig.spare()), ["spare"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn an_array_that_lacks_a_member_keeps_its_spare_and_one_without_a_group_gets_none() {
    // Paused, neither of its two spares takes the slot.
    let rig = Rig::new("1", "1", 16);
    let second = rig.scratch.member("second", 16 * MIB);
    let served = rig.serve(&[]);
    rig.scratch.uraid(["add", "give", &text(&second)]).expect_done();
    rig.scratch.uraid(["freeze", "give"]).expect_done();
    rig.scratch.uraid(["fail", "give", "0"]).expect_done();
    rig.scratch.uraid(["fail", "take", "0"]).expect_done();
    std::thread::sleep(Duration::from_millis(500));
    let spares = || [rig.spare(), &second].map(|spare| rig.states_of("give", spare)).concat();
    assert!(spares().iter().all(|state| state.starts_with("spare")), "{:?}", spares());
    assert_eq!(spares().len(), 2, "both stay while it is not whole");
    rig.scratch.uraid(["unfreeze", "give"]).expect_done();
    rig.wait_until_whole("give");
    rig.wait_until_whole("take");
    assert_eq!(served.stop().code, Some(0));

    let rig = Rig::new("1", "1", 16);
    let mut words = vec!["--array".to_owned()];
    words.extend(rig.give.iter().map(|member| text(member)));
    words.push("--array".to_owned());
    words.extend(rig.take.iter().map(|member| text(member)));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let served = rig.scratch.serve(&words, &[]);
    served.wait_until_ready();
    rig.scratch.uraid(["fail", "take", "0"]).expect_done();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(rig.states_of("give", rig.spare()), ["spare"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_spare_keeps_its_flags_where_the_level_has_them() {
    for (take_level, expected) in [("1", "write-mostly"), ("5", "")] {
        let rig = Rig::new("1", take_level, 16);
        let served = rig.serve(&[]);
        rig.scratch.uraid(["write-mostly", "give", &text(rig.spare())]).expect_done();
        rig.scratch.uraid(["fail", "take", "1"]).expect_done();
        rig.wait_until_whole("take");
        assert_eq!(rig.field(rig.spare(), "Flags"), expected, "raid{take_level}");
        assert_eq!(served.stop().code, Some(0));
    }
}

/// The spare is slow, so that the server is killed in the middle: before the one array lists it no more, before it is
/// wiped, before the other lists it, and behind that.
#[test]
fn a_kill_at_any_moment_of_a_move_leaves_a_device_in_one_array_at_most_and_the_next_start_works() {
    let moments = [
        ("moves to it", 0),
        ("is removed", 0),
        ("is removed", 200),
        ("is removed", 400),
        ("is removed", 700),
        ("is added as a spare", 0),
    ];
    let mut seen = [0; 2];
    for (line, millis) in moments {
        let mut rig = Rig::new("1", "1", 16);
        let at = rig.give.len() - 1;
        let slow = StubbornFile::in_place_of(&mut rig.give, at);
        let served = rig.serve(&[]);
        let contents = [("give", fill(&served, "give", 3)), ("take", fill(&served, "take", 4))];
        let uuid = |rig: &Rig, member: &Path| rig.field(member, "Array UUID");
        let uuids = [uuid(&rig, &rig.give[0]), uuid(&rig, &rig.take[0])];
        slow.slow_writes(Duration::from_millis(200));
        rig.scratch.uraid(["fail", "take", "1"]).expect_done();
        served.wait_for(line);
        std::thread::sleep(Duration::from_millis(millis));
        drop(served);
        slow.slow_writes(Duration::ZERO);
        let case = format!("{millis} ms behind {line:?}");
        // Its own superblock, if it has one, is of one of the two.
        let examined = rig.scratch.uraid([Path::new("examine"), rig.spare()]);
        if examined.code == Some(0) {
            assert!(uuids.contains(&uuid(&rig, rig.spare())), "{case}: {examined:?}");
        }
        // The same command line, and no --run.
        let served = rig.serve(&[]);
        contents.iter().for_each(|(export, content)| expect_content(&served, export, content));
        // In this order: it may move from `give` to `take` between the two.
        let places = || ["take", "give"].map(|array| rig.states_of(array, rig.spare())).concat().len();
        assert!(places() <= 1, "{case}: it is in one array at most");
        let log = || served.stderr();
        let is_in_none = places() == 0 && !log().contains("moves to it");
        seen[usize::from(is_in_none)] += 1;
        if is_in_none {
            rig.scratch.uraid(["add", "--force", "take", &text(rig.spare())]).expect_done();
        }
        rig.wait_until_whole("take");
        rig.wait_until_whole("give");
        assert_eq!(rig.states_of("take", rig.spare()), ["active sync"], "{case}");
        contents.iter().for_each(|(export, content)| expect_content(&served, export, content));
        assert_eq!(served.stop().code, Some(0));
    }
    assert!(seen[0] > 0, "no kill left it in an array");
}

#[test]
fn a_stop_lets_a_move_end() {
    let mut rig = Rig::new("1", "1", 16);
    let at = rig.give.len() - 1;
    let slow = StubbornFile::in_place_of(&mut rig.give, at);
    let served = rig.serve(&[]);
    slow.slow_writes(Duration::from_millis(200));
    rig.scratch.uraid(["fail", "take", "1"]).expect_done();
    served.wait_for(&format!("give: member {} is removed", text(rig.spare())));
    let done = served.stop();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains(&format!("take: member {} is added as a spare", text(rig.spare()))), "{done:?}");
    slow.slow_writes(Duration::ZERO);
    let served = rig.serve(&[]);
    rig.wait_until_whole("take");
    assert_eq!(rig.states_of("take", rig.spare()), ["active sync"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_member_of_the_giving_array_that_fails_during_a_move_gets_the_spare_or_lacks_it() {
    let mut rig = Rig::new("1", "1", 16);
    let at = rig.give.len() - 1;
    let slow = StubbornFile::in_place_of(&mut rig.give, at);
    let served = rig.serve(&[]);
    let contents = [("give", fill(&served, "give", 5)), ("take", fill(&served, "take", 6))];
    slow.slow_writes(Duration::from_millis(50));
    rig.scratch.uraid(["fail", "take", "1"]).expect_done();
    served.wait_for("moves to it");
    rig.scratch.uraid(["fail", "give", "0"]).expect_done();
    let states = || ["give", "take"].map(|array| rig.states_of(array, rig.spare()));
    let is_placed = || states().concat() == ["active sync"];
    wait(is_placed).unwrap_or_else(|()| panic!("{:?}\n{}", states(), served.stderr()));
    contents.iter().for_each(|(export, content)| expect_content(&served, export, content));
    assert_eq!(served.stop().code, Some(0));
    slow.slow_writes(Duration::ZERO);
    let served = rig.serve(&[]);
    assert!(is_placed(), "{:?}", states());
    contents.iter().for_each(|(export, content)| expect_content(&served, export, content));
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_spare_that_cannot_be_written_is_in_no_array_and_no_other_one_follows_it_at_once() {
    let mut rig = Rig::new("1", "1", 16);
    let at = rig.give.len() - 1;
    let sick = StubbornFile::in_place_of(&mut rig.give, at);
    let larger = rig.scratch.member("larger", 24 * MIB);
    let served = rig.serve(&[]);
    rig.scratch.uraid(["add", "give", &text(&larger)]).expect_done();
    sick.fail_next(Errno::EIO, u32::MAX);
    rig.scratch.uraid(["fail", "take", "1"]).expect_done();
    let spare = text(rig.spare());
    served.wait_for(&format!(
        "take: spare group pool: the spare {spare} was removed from give, and is in no array now: "
    ));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(rig.states_of("give", &larger), ["spare"]);
    assert_eq!(served.stderr().matches("moves to it").count(), 1, "{}", served.stderr());
    sick.fail_next(Errno::EIO, 0);
    assert_eq!(served.stop().code, Some(0));
}

/// Serves arrays of several groups.
fn serve_groups(scratch: &Scratch, groups: &[(&str, &[&[PathBuf]])]) -> Served {
    let mut words = Vec::new();
    for (group, arrays) in groups {
        words.extend(["--spare-group".to_owned(), (*group).to_owned()]);
        for members in *arrays {
            words.push("--array".to_owned());
            words.extend(members.iter().map(|member| text(member)));
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let served = scratch.serve(&words, &[]);
    served.wait_until_ready();
    served
}

#[test]
fn a_group_that_shares_nothing_is_refused_in_one_sentence() {
    let scratch = Scratch::new();
    for (words, expected) in [
        ("--spare-group x --array a b", "--spare-group x holds for the arrays behind it, and only one is: expected"),
        ("--spare-group x a b", "--spare-group x holds for the arrays behind it, and none is: expected"),
        (
            "--array a --array b --spare-group x",
            "--spare-group x holds for the arrays behind it, and none is: expected",
        ),
        ("--spare-groups x --array a --array b", "unexpected argument '--spare-groups' found"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let done = scratch.serve(&words, &[]).end();
        assert!(done.code == Some(2) && done.stderr.starts_with(&format!("error: {expected}")), "{words:?}: {done:?}");
    }
}

/// More spares have moved than members are left: what most members of the one `--array` name is the other array.
#[test]
fn all_spares_may_move_to_one_array_and_the_old_command_line_is_right() {
    let scratch = Scratch::new();
    let give = scratch.members("g", 5, 16 * MIB);
    let take = scratch.members("t", 4, 16 * MIB);
    scratch.create("give", "-l 1 -n 2 -x 3 --assume-clean", &give);
    scratch.create("take", "-l 1 -n 4 --assume-clean", &take);
    let rig = Rig { scratch, give, take };
    let served = rig.serve(&[]);
    let contents = [("give", fill(&served, "give", 7)), ("take", fill(&served, "take", 8))];
    rig.scratch.uraid(["fail", "take", "1", "2", "3"]).expect_done();
    rig.wait_until_whole("take");
    rig.wait_until_whole("give");
    assert_eq!(served.stop().code, Some(0));
    // The failed ones are gone.
    let Rig { scratch, give, mut take } = rig;
    take.truncate(1);
    let rig = Rig { scratch, give, take };
    let served = rig.serve(&[]);
    for (export, content) in &contents {
        expect_content(&served, export, content);
        rig.wait_until_whole(export);
        rig.scratch.uraid(["check", "--wait", export]).expect_done();
    }
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn of_two_arrays_that_lack_a_member_one_gets_the_spare_and_no_spare_leaves_its_group() {
    let scratch = Scratch::new();
    let arrays: Vec<Vec<PathBuf>> = ["a", "b", "c", "d", "e"]
        .map(|name| {
            let spares = usize::from(name == "a" || name == "d");
            let members = scratch.members(name, 2 + spares, 16 * MIB);
            scratch.create(name, &format!("-l 1 -n 2 -x {spares} --assume-clean"), &members);
            members
        })
        .into();
    let one: Vec<&[PathBuf]> = arrays[..3].iter().map(Vec::as_slice).collect();
    let other: Vec<&[PathBuf]> = arrays[3..].iter().map(Vec::as_slice).collect();
    let served = serve_groups(&scratch, &[("one", &one), ("the other", &other)]);
    for array in ["b", "c"] {
        scratch.uraid(["fail", array, "1"]).expect_done();
    }
    let is_whole = |array: &str| scratch.uraid(["detail", "--test", array]).code == Some(0);
    wait(|| is_whole("b") || is_whole("c")).expect("one of them gets the spare");
    std::thread::sleep(Duration::from_millis(500));
    assert_ne!(is_whole("b"), is_whole("c"), "there is one spare in their group");
    assert!(scratch.uraid(["detail", "d"]).expect_done().stdout.contains("Spare Group : the other\n"));
    assert!(scratch.uraid(["mdstat"]).expect_done().stdout.contains("(S)"), "that of d");
    // One is added to the array that is whole, and moves to the other one.
    let more = text(&scratch.member("more", 16 * MIB));
    scratch.uraid(["add", "a", &more]).expect_done();
    wait(|| is_whole("b") && is_whole("c")).expect("the other one gets that");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn arrays_that_are_paused_or_read_only_neither_give_nor_take() {
    for (array, verb, back) in [
        ("give", "freeze", "unfreeze"),
        ("take", "freeze", "unfreeze"),
        ("give", "readonly", "readwrite"),
        ("take", "readonly", "readwrite"),
    ] {
        let rig = Rig::new("1", "1", 16);
        let served = rig.serve(&[]);
        if array == "take" && verb == "readonly" {
            // It lacks a member before: a read-only array fails none.
            rig.scratch.uraid(["freeze", "give"]).expect_done();
            rig.scratch.uraid(["fail", "take", "1"]).expect_done();
        }
        rig.scratch.uraid([verb, array]).expect_done();
        if array == "take" && verb == "readonly" {
            rig.scratch.uraid(["unfreeze", "give"]).expect_done();
        } else {
            rig.scratch.uraid(["fail", "take", "1"]).expect_done();
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(rig.states_of("give", rig.spare()), ["spare"], "{verb} {array}");
        rig.scratch.uraid([back, array]).expect_done();
        rig.wait_until_whole("take");
        assert_eq!(served.stop().code, Some(0));
    }
}

/// uraid recovers nothing onto a member whose list of bad blocks names sectors. The list ends with the move: it is about
/// data that the spare no longer has.
#[test]
fn a_spare_with_listed_bad_blocks_does_not_count_as_one_and_moves_with_an_empty_list() {
    // In the array that lacks a member: another spare comes.
    let rig = Rig::new("1", "1", 16);
    let bad = rig.scratch.member("bad", 16 * MIB);
    let served = rig.serve(&[]);
    rig.scratch.uraid(["freeze", "give"]).expect_done();
    rig.scratch.uraid(["add", "take", &text(&bad)]).expect_done();
    assert_eq!(served.stop().code, Some(0));
    Raw::read(&bad).list_bad(&[(64, 8)]);
    let Rig { scratch, give, mut take } = rig;
    take.push(bad.clone());
    let rig = Rig { scratch, give, take };
    let served = rig.serve(&[]);
    rig.scratch.uraid(["fail", "take", "1"]).expect_done();
    rig.wait_until_whole("take");
    assert_eq!(
        (rig.states_of("take", rig.spare()), rig.states_of("take", &bad)),
        (vec!["active sync".to_owned()], vec!["spare".to_owned()])
    );
    assert_eq!(served.stop().code, Some(0));

    // In the array that gives.
    let rig = Rig::new("1", "1", 16);
    Raw::read(rig.spare()).list_bad(&[(64, 8)]);
    let served = rig.serve(&[]);
    rig.scratch.uraid(["fail", "take", "1"]).expect_done();
    rig.wait_until_whole("take");
    assert_eq!(rig.states_of("take", rig.spare()), ["active sync"]);
    let shown = rig.scratch.uraid([Path::new("examine"), rig.spare()]).expect_done().stdout;
    assert!(!shown.contains("bad blocks present"), "{shown}");
    assert_eq!(served.stop().code, Some(0));
}

/// The server opened the device with a capability that it has given up since.
#[test]
fn a_spare_that_the_server_may_not_open_any_more_moves_too() {
    let mut rig = Rig::new("1", "1", 16);
    if rustix::process::geteuid().is_root() {
        // Root can reach this only with a capability.
        let user = rustix::process::Uid::from_raw(12345);
        let folder = rig.scratch.path("folder");
        std::fs::create_dir(&folder).expect("made");
        std::fs::rename(rig.spare(), folder.join("spare")).expect("moved");
        rig.give[2] = folder.join("spare");
        for (path, mode) in [(rig.spare(), 0o600), (&folder, 0o700)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
            rustix::fs::chown(path, Some(user), None).expect("root may");
        }
    }
    let served = rig.serve(&["--shards", "2"]);
    let opened = || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", served.pid())).expect("it runs").flatten();
        descriptors.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == rig.spare())).count()
    };
    assert_eq!(opened(), 3, "for data, and for the flushes of each thread");
    let content = fill(&served, "take", 9);
    rig.scratch.uraid(["fail", "take", "1"]).expect_done();
    rig.wait_until_whole("take");
    assert_eq!(opened(), 3, "the same ones");
    assert_eq!(rig.states_of("take", rig.spare()), ["active sync"], "it has its path");
    let shown = rig.scratch.uraid(["detail", "take"]).expect_done().stdout;
    assert!(!shown.contains("its path leads"), "{shown}");
    expect_content(&served, "take", &content);
    assert_eq!(served.stop().code, Some(0));
}
