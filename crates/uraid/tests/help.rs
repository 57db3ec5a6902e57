//! `uraid --help`, `uraid help`, `uraid --version`.
//! Owns: the screen, the topics, the version. Not here: the help of each verb (the rooms of the verbs).

use crate::common::Scratch;
use std::process::Command;

/// A terminal of this size shows it without scrolling.
const LINES_MAX: usize = 40;
const COLUMNS_MAX: usize = 80;

#[test]
fn the_first_screen_fits_a_terminal_and_names_every_verb_once() {
    let scratch = Scratch::new();
    let screen = scratch.uraid(["--help"]).expect_done().stdout;
    assert!(screen.lines().count() <= LINES_MAX, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{screen}");
    for words in [&["-h"][..], &["help"]] {
        assert_eq!(scratch.uraid(words).expect_done().stdout, screen, "{words:?}");
    }
    let bare = scratch.uraid([""; 0]);
    assert_eq!((bare.code, &bare.stderr), (Some(2), &screen));
    let verbs = "create serve assemble stop readonly readwrite update zero-superblock list mdstat detail examine add re-add \
                 remove fail replace write-mostly failfast bitmap check repair idle freeze unfreeze speed wait mount \
                 umount copy bench doctor mdadm";
    for verb in verbs.split(' ') {
        let verbs_of = |line: &str| Some(line.get(10..)?.split("  ").next()?.split(", ").map(str::to_owned).collect());
        let is_of_verb =
            |line: &&str| verbs_of(line).is_some_and(|verbs: Vec<String>| verbs.iter().any(|it| it == verb));
        let lines: Vec<&str> = screen.lines().filter(is_of_verb).collect();
        assert!(lines.len() == 1 && lines[0].len() > 26, "{verb}: {lines:?}");
        // It takes the verb.
        let help = scratch.uraid([verb, "--help"]).expect_done().stdout;
        assert!(help.contains(&format!("Usage: uraid {verb}")) && help.contains("uraid help members"), "{help}");
        assert_eq!(help.contains("bad:SECTOR"), verb == "bench", "{help}");
    }
    for group in ["CREATE", "and start", "LOOK", "MEMBERS", "CHECK", "MOUNT", "RESCUE", "MEASURE", "MDADM"] {
        assert_eq!(screen.lines().filter(|line| line.starts_with(&format!("{group:<10}"))).count(), 1, "{group}");
    }
    assert!(!screen.contains("null:") && !screen.contains("bad:"), "{screen}");
}

#[test]
fn what_the_first_screen_leaves_out_is_a_topic() {
    let scratch = Scratch::new();
    for (topic, expected) in [
        ("members", "PATH@OFFSET[+LENGTH]"),
        ("members", "An ARRAY is a name"),
        ("files", "$XDG_RUNTIME_DIR/uraid"),
        ("files", "/tmp/uraid-UID"),
        ("exit-codes", "2  the command line is wrong"),
        ("mdadm", "  -A, --assemble\n      uraid assemble ARRAY MEMBER...\n"),
        ("mdadm", "uraid does not change the geometry of arrays yet"),
        ("serve", "Usage: uraid serve"),
    ] {
        let shown = scratch.uraid(["help", topic]).expect_done();
        assert!(shown.stdout.contains(expected) && shown.stderr.is_empty(), "{shown:?}");
    }
    assert_eq!(scratch.uraid(["help", "nonsense"]).code, Some(2));
}

/// `uraid 0.1.0 (03fb0548 2026-11-27)`, or, from an archive of the source, `uraid 0.1.0`.
#[test]
fn the_version_says_which_commit_it_is() {
    let scratch = Scratch::new();
    let long = scratch.uraid(["--version"]).expect_done().stdout;
    let shown = scratch.uraid(["-V"]).expect_done().stdout;
    let rest = long.strip_prefix(&shown).expect("the same line first");
    for part in ["built for ", "\nlevels: linear raid0 ", "\nfrontends: nbd fuse\n"] {
        assert!(rest.contains(part), "{long}");
    }
    let number = format!("uraid {}", env!("CARGO_PKG_VERSION"));
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let root = git(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == "crates/uraid/");
    let Some((commit, date)) =
        root.and_then(|_| Some((git(&["rev-parse", "HEAD"])?, git(&["log", "-1", "--format=%cs"])?)))
    else {
        assert_eq!(shown, format!("{number}\n"), "without a repository");
        return;
    };
    let shown = shown.strip_prefix(&format!("{number} (")).and_then(|rest| rest.strip_suffix(")\n"));
    let (short, of) = shown.and_then(|rest| rest.split_once(' ')).expect("a commit and a date");
    assert!(short.len() >= 8 && commit.starts_with(short), "{short} is not {commit}");
    assert_eq!(of, date);
}
