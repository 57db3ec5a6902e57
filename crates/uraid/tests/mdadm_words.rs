//! The words and options of mdadm where uraid's verbs and their options are.
//! Owns: which are answered with a verb, which are refused, and that each has a reason. Not here: whole lines of mdadm
//! (`operate::mdadm`), what verbs do.

use crate::common::Scratch;

/// The verb with the nearest meaning, or what is missing; only a word that is close to a verb is taken for a slip.
#[test]
fn a_word_that_is_no_verb_is_answered_by_what_it_means() {
    let scratch = Scratch::new();
    for (word, expected) in [
        ("state", "`uraid status` says how arrays are, `uraid detail ARRAY` shows one"),
        ("State", "`uraid status` says how arrays are"),
        ("--state", "`uraid status` says how arrays are"),
        ("start", "`uraid serve MEMBER...` starts an array"),
        ("run", "`uraid serve MEMBER...` starts an array"),
        ("ls", "`uraid list` shows the arrays that run"),
        ("info", "`uraid detail ARRAY` shows an array, `uraid examine MEMBER...` superblocks"),
        ("show", "`uraid detail ARRAY` shows an array, `uraid examine MEMBER...` superblocks"),
        ("rebuild", "an array recovers by itself onto a spare: `uraid add ARRAY DEVICE...` gives it one"),
        ("verify", "`uraid check ARRAY` compares copies and parity"),
        ("delete", "`uraid stop ARRAY` stops an array, `uraid zero-superblock MEMBER...` wipes its superblocks"),
        ("resize", "it does not change the geometry of arrays yet"),
        ("alert", "`uraid monitor` tells what happens to arrays"),
        ("snapshot", "it has no snapshots"),
        ("version", "`uraid --version` prints it"),
    ] {
        let done = scratch.uraid([word, "home"]);
        assert!(done.code == Some(2) && done.stdout.is_empty(), "{done:?}");
        let expected = format!("error: {word}: uraid has no such verb: {expected}");
        assert!(done.stderr.lines().count() == 1 && done.stderr.starts_with(&expected), "{done:?}");
    }
    let slip = scratch.uraid(["detial", "home"]);
    assert!(slip.code == Some(2) && slip.stderr.contains("a similar subcommand exists: 'detail'"), "{slip:?}");
    let nothing = scratch.uraid(["xyzzy"]);
    assert!(nothing.code == Some(2) && !nothing.stderr.contains("similar"), "{nothing:?}");
}

#[test]
fn words_of_mdadm_that_uraid_has_nothing_for_are_refused_by_name_with_a_reason() {
    let scratch = Scratch::new();
    for (line, expected) in [
        ("fail home --action=check m1", "--action: uraid has subcommands for it: uraid check, repair, idle or freeze"),
        ("create -l 5 -n 3 --write-journal j a b c", "--write-journal: uraid has no journal"),
        ("create -l 5 -n 3 --write-zeroes a b c", "--write-zeroes: uraid writes no zeroes to new members"),
        (
            "serve --update=name a b",
            "--update: uraid changes the superblocks of a stopped array with `uraid update WHAT",
        ),
        (
            "fail home --readwrite",
            "--readwrite: uraid has a command for each: `uraid readonly ARRAY`, `uraid readwrite",
        ),
        ("detail home -o", "-o: uraid has a command for each: `uraid readonly ARRAY`"),
        ("fail home --add m1", "--add: uraid has a command for each: `uraid add`"),
    ] {
        let done = scratch.uraid(line.split(' '));
        assert!(done.code == Some(2) && done.stdout.is_empty(), "{done:?}");
        let expected = format!("error: {expected}");
        assert!(done.stderr.lines().count() == 1 && done.stderr.starts_with(&expected), "{done:?}");
    }
}

/// The long options of mdadm(8). uraid takes them, or says in one line why not; the option parser guesses none.
#[test]
fn every_option_of_mdadm_is_taken_or_refused_by_name_with_a_reason() {
    const OPTIONS: &str = "action add add-journal add-spare array-size assemble assume-clean auto auto-detect \
        backup-file bitmap bitmap-chunk brief build chunk cluster-confirm config consistency-policy continue create \
        daemonise data-offset delay detail detail-platform dump examine examine-badblocks examine-bitmap export fail \
        failfast follow force freeze-reshape grow help-options home-cluster homehost increment incremental \
        invalid-backup kill-subarray layout level logical-block-size mail manage metadata misc monitor name \
        no-degraded no-sharing nodes nofailfast offroot oneshot parity path pid-file prefer program query quiet \
        raid-devices re-add readonly readwrite rebuild-map remove replace restore rounding run scan size \
        spare-devices sparc2.2 stop subarray super-minor symlinks syslog test udev-rules update update-subarray uuid \
        verbose wait wait-clean with write-behind write-journal write-mostly write-zeroes zero-superblock";
    let scratch = Scratch::new();
    for option in OPTIONS.split_whitespace().map(|word| format!("--{word}")) {
        for subcommand in ["create", "serve", "detail", "fail", "stop"] {
            let done = scratch.uraid([subcommand, &option, "x", "y"]);
            let said = done.stderr.as_str();
            assert!(!said.contains("unexpected argument") && !said.contains("tip:"), "{subcommand} {option}: {said}");
            let is_refused = said.starts_with(&format!("error: {option}: "));
            assert!(
                !is_refused || (done.code, said.lines().count()) == (Some(2), 1),
                "{subcommand} {option}: {done:?}"
            );
        }
    }
    for (line, expected) in [
        ("serve --chunk 64K a", "error: --chunk: `uraid serve` does not take it, only create, copy, detail, bench\n"),
        ("fail --test home m1", "error: --test: `uraid fail` does not take it, only detail, "),
        ("create --stop home", "error: --stop: uraid has subcommands where mdadm has modes: uraid stop ARRAY\n"),
    ] {
        let done = scratch.uraid(line.split(' '));
        assert!(done.code == Some(2) && done.stderr.starts_with(expected), "{line}: {done:?}");
    }
}
