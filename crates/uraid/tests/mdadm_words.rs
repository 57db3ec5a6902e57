//! The words and options of mdadm on the command line of the binary.
//! Owns: which are answered with a subcommand, which are refused, and that each has a reason. Not here: what subcommands do.

use crate::common::Scratch;

#[test]
fn the_words_of_mdadm_are_answered_with_the_subcommand() {
    let scratch = Scratch::new();
    for (word, expected) in [
        ("--assemble", "uraid serve MEMBER..."),
        ("assemble", "uraid serve MEMBER..."),
        ("-A", "uraid serve MEMBER..."),
        ("--create", "uraid create --level"),
        ("-D", "uraid detail ARRAY"),
        ("-E", "uraid examine MEMBER..."),
        ("--examine", "uraid examine MEMBER..."),
        ("--stop", "uraid stop ARRAY"),
        ("--add", "uraid add ARRAY DEVICE..."),
        ("--re-add", "uraid re-add ARRAY DEVICE..."),
        ("-r", "uraid remove ARRAY MEMBER..."),
        ("--replace", "uraid replace ARRAY MEMBER... --with SPARE..."),
        ("--wait", "uraid wait ARRAY..."),
        ("-W", "uraid wait ARRAY..."),
        ("--readonly", "uraid readonly ARRAY"),
        ("-o", "uraid readonly ARRAY"),
        ("--readwrite", "uraid readwrite ARRAY"),
        ("-w", "uraid readwrite ARRAY"),
    ] {
        let done = scratch.uraid([word, "--scan"]);
        assert!(done.code == Some(2) && done.stdout.is_empty(), "{done:?}");
        assert!(done.stderr.lines().count() == 1 && done.stderr.contains(expected), "{done:?}");
    }
}

#[test]
fn words_of_mdadm_that_uraid_has_nothing_for_are_refused_by_name_with_a_reason() {
    let scratch = Scratch::new();
    for (line, expected) in [
        ("--grow home --raid-devices 5", "--grow: uraid does not change the geometry of arrays yet"),
        ("--monitor --scan", "--monitor: uraid has no monitor"),
        ("fail home --action=check m1", "--action: uraid has subcommands for it: uraid check, repair, idle or freeze"),
        ("--examine-bitmap a", "--examine-bitmap: uraid has no command that shows a bitmap alone"),
        ("create -l 5 -n 3 --write-journal j a b c", "--write-journal: uraid has no journal"),
        ("create -l 5 -n 3 --write-zeroes a b c", "--write-zeroes: uraid writes no zeroes to new members"),
        (
            "serve --update=name a b",
            "--update: uraid changes the superblocks of a stopped array with `uraid update WHAT",
        ),
        (
            "--assemble /dev/md0 --update=ppl a b",
            "--update: uraid has subcommands where mdadm has modes: uraid update ppl MEMBER..., then uraid serve",
        ),
        ("-A -U resync a b", "--update: uraid has subcommands where mdadm has modes: uraid update resync MEMBER..."),
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
        (
            "serve --scan",
            "error: --scan: `uraid serve` does not take it, only detail; uraid does not look for members ",
        ),
        ("fail --test home m1", "error: --test: `uraid fail` does not take it, only detail\n"),
        ("create --stop home", "error: --stop: uraid has subcommands where mdadm has modes: uraid stop ARRAY\n"),
    ] {
        let done = scratch.uraid(line.split(' '));
        assert!(done.code == Some(2) && done.stderr.starts_with(expected), "{line}: {done:?}");
    }
}
