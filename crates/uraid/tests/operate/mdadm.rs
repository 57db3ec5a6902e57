//! mdadm's command line: what surrounds a line that works.
//! Owns: that `--create` returns with the array being served, the question before something is overwritten, names that the
//! line gives, exit codes, lines without mdadm's name. Not here: which lines work (`mdadm_rows`).

use crate::common::{Done, MIB, Scratch};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

/// Numbers of arrays that no other test on this machine uses at this moment.
pub(crate) fn number(nth: u32) -> u32 {
    1000 + std::process::id() % 100_000 * 10 + nth
}

/// `mdadm WORDS`: the binary is called so.
pub(crate) fn mdadm(scratch: &Scratch, line: &str, answer: Option<&str>) -> Done {
    let mut command = scratch.command(line.split_whitespace());
    command.arg0("mdadm").current_dir(scratch.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    if answer.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().expect("the binary runs");
    if let (Some(answer), Some(mut stdin)) = (answer, child.stdin.take()) {
        // It may have ended without reading.
        let _ = stdin.write_all(answer.as_bytes());
    }
    let output = child.wait_with_output().expect("our child");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn names(members: &[PathBuf]) -> String {
    members.iter().map(|path| path.display().to_string()).collect::<Vec<String>>().join(" ")
}

#[test]
fn a_new_array_is_served_in_the_background_under_the_names_that_the_line_gives() {
    let scratch = Scratch::new();
    let members = names(&scratch.members("m", 2, 8 * MIB));
    let device = format!("/dev/md{}", number(0));
    let line = format!("--create {device} --level=1 --raid-devices=2 --name=home {members}");
    let done = mdadm(&scratch, &line, None);
    assert!(done.code == Some(0) && done.stderr.ends_with(&format!("mdadm: array {device} started.\n")), "{done:?}");
    for name in [&*device, "home", "/dev/md/home"] {
        let shown = scratch.uraid(["detail", "--json", name]).expect_done().stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!((&shown["name"], &shown["level"]), (&"home".into(), &"raid1".into()), "{name}");
        assert_eq!(format!("/dev/{}", shown["device"].as_str().expect("a name")), device);
    }
    // No array is made over one that runs.
    let again = mdadm(&scratch, &line, None);
    assert!(
        again.code == Some(1) && again.stderr.contains(&format!("{device}: is a running array already")),
        "{again:?}"
    );
    let stopped = mdadm(&scratch, &format!("--stop {device}"), None);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    // It keeps its number.
    let started = mdadm(&scratch, &format!("-A {device} {members}"), None);
    assert_eq!(started.code, Some(0), "{started:?}");
    assert_eq!(mdadm(&scratch, &format!("-S {device}"), None).code, Some(0));
}

#[test]
fn what_members_carry_is_overwritten_only_after_a_yes() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("old", "-l 1 -n 2 --assume-clean", &members);
    let read = || members.iter().map(|path| std::fs::read(path).expect("ours")).collect::<Vec<Vec<u8>>>();
    let (before, members) = (read(), names(&members));
    // mdadm's --force is no answer.
    let line = format!("--create /dev/md/new --force --level=0 --raid-devices=2 {members}");
    for answer in [None, Some(""), Some("n\n"), Some("maybe\n")] {
        let done = mdadm(&scratch, &line, answer);
        assert!(
            done.code == Some(1) && done.stderr.contains("Continue creating array [y/N]? "),
            "{answer:?}: {done:?}"
        );
        assert!(done.stderr.contains("carries ") && done.stderr.contains("/dev/md/new: no array was made"), "{done:?}");
        assert!(read() == before, "{answer:?}");
    }
    let done = mdadm(&scratch, &line, Some("y\n"));
    assert!(done.code == Some(0) && done.stderr.contains("mdadm: array /dev/md/new started."), "{done:?}");
    assert_eq!(mdadm(&scratch, "--stop --scan", None).code, Some(0));
    // Who says --run is not asked.
    let done = mdadm(&scratch, &format!("-C /dev/md/newer -R -l1 -n2 {members}"), None);
    assert!(done.code == Some(0) && !done.stderr.contains("Continue"), "{done:?}");
    assert_eq!(mdadm(&scratch, "-Ss", None).code, Some(0));
}

#[test]
fn exit_codes_are_those_of_the_mode() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    let made = mdadm(&scratch, &format!("-C home -l1 -n2 --assume-clean {}", names(&members[..2])), None);
    assert_eq!(made.code, Some(0), "{made:?}");
    let (second, spare) = (members[1].display(), members[2].display());
    for (line, code) in [
        ("--detail --test home".to_owned(), 0),
        ("--wait home".to_owned(), 1),
        ("--wait nowhere".to_owned(), 2),
        ("--detail nowhere".to_owned(), 1),
        ("--detail --test nowhere".to_owned(), 4),
        ("--test home --remove failed".to_owned(), 2),
        (format!("home --remove {second}"), 1),
        (format!("--test home --fail {second}"), 0),
        ("--detail --test home".to_owned(), 1),
        (format!("home --remove {second} --add nowhere --add {spare}"), 1),
        ("--bogus".to_owned(), 2),
        ("--create --detail home".to_owned(), 2),
        ("home --add".to_owned(), 2),
        (format!("-C other -l1 -n2 --size=3X {spare} missing"), 2),
        ("--examine nowhere".to_owned(), 1),
        (format!("--zero-superblock {spare}"), 0),
        ("--grow home -n 3".to_owned(), 1),
        (String::new(), 2),
        ("--version".to_owned(), 0),
        ("--help".to_owned(), 0),
        ("--stop home".to_owned(), 0),
        ("--stop home".to_owned(), 1),
    ] {
        let done = mdadm(&scratch, &line, None);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        assert!(!done.stderr.contains("Usage") && !done.stderr.contains("tip:"), "{line}: {done:?}");
    }
    let version = mdadm(&scratch, "-V", None);
    assert!(version.stdout.is_empty() && version.stderr.starts_with("mdadm - v"), "{version:?}");
    let help = mdadm(&scratch, "--create --help", None);
    assert!(help.stdout.contains("Usage: uraid mdadm") && help.stdout.contains("EXAMPLES"), "{help:?}");
}

/// The codes are those of mdadm 4.x: 0 for a member without a superblock, 2 for one that it cannot open.
#[test]
fn members_are_wiped_one_by_one_and_each_line_is_about_one() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let blank = scratch.members("blank", 1, 8 * MIB).remove(0);
    for (others, code, said) in [
        (blank.display().to_string(), 0, "blank0: no md superblock"),
        (format!("{} nowhere", blank.display()), 2, "nowhere: not found"),
        (format!("nowhere {}", blank.display()), 2, "blank0: no md superblock"),
    ] {
        scratch.create("home", "-l 1 -n 2 --assume-clean --run", &members);
        let line = format!("--zero-superblock {} {others} {}", members[0].display(), members[1].display());
        let done = mdadm(&scratch, &line, None);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        assert_eq!(done.stdout.matches(": superblock wiped\n").count(), 2, "{line}: {done:?}");
        assert!(!done.stderr.contains("nothing was wiped") && !done.stderr.contains("of the members"), "{done:?}");
        assert!(done.stderr.lines().all(|line| line.contains("not wiped: ")), "{done:?}");
        assert_eq!(done.stderr.lines().count(), others.split(' ').count(), "{done:?}");
        assert!(done.stderr.contains(said), "{done:?}");
    }
}

/// A step that fails is the last: what comes behind it is not done.
#[test]
fn a_line_of_several_steps_ends_at_the_first_that_fails() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    assert_eq!(
        mdadm(&scratch, &format!("-C home -l1 -n2 --assume-clean {}", names(&members[..2])), None).code,
        Some(0)
    );
    let line = format!("home --fail {} --add nowhere --remove {}", members[1].display(), members[1].display());
    assert_eq!(mdadm(&scratch, &line, None).code, Some(1));
    let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
    assert!(shown.contains("faulty"), "it is failed and not removed: {shown}");
    assert_eq!(mdadm(&scratch, "-S home", None).code, Some(0));
}

#[test]
fn a_line_of_mdadm_is_taken_without_its_name_and_other_lines_are_not() {
    let scratch = Scratch::new();
    let members = names(&scratch.members("m", 2, 8 * MIB));
    let uraid = |line: &str| {
        let mut command = scratch.command(line.split_whitespace());
        let output = command.current_dir(scratch.path("")).output().expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (line, code, said) in [
        (
            &*format!("--create /dev/md/home --level=1 --raid-devices=2 {members}"),
            0,
            "mdadm: array /dev/md/home started.",
        ),
        ("-D /dev/md/home", 0, ""),
        ("/dev/md/home --readonly", 0, ""),
        ("home -S", 0, ""),
        (&*format!("mdadm -A home {members}"), 0, ""),
        ("--stop --scan", 0, ""),
        ("--grow home -n 3", 1, "--grow: uraid does not change the geometry of arrays yet"),
        ("-B x -l0 -n2 a b", 1, "--build: uraid does not make arrays without superblocks"),
        ("home --add-journal j", 1, "--add-journal: uraid has no journal"),
        // Lines of uraid.
        ("/dev/md0", 2, "/dev/md0: is where the verb is expected: `uraid detail ARRAY` shows an array"),
        ("m0", 2, "m0: is where the verb is expected"),
        ("detial home", 2, "a similar subcommand exists: 'detail'"),
        ("--verison", 2, "a similar argument exists: '--version'"),
        ("grow home -n 5", 2, "grow: uraid does not change the geometry of arrays yet"),
    ] {
        let (found, stderr) = uraid(line);
        assert!(found == Some(code) && stderr.contains(said), "{line}: {found:?} {stderr}");
    }
}
