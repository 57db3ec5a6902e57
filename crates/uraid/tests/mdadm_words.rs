//! The words and options of mdadm on the command line of the binary.
//! Owns: which are answered with a subcommand, which are refused, and that each has a reason. Not here: what subcommands do.

use crate::common::Scratch;

#[test]
fn the_words_of_mdadm_are_answered_with_the_subcommand() {
    let scratch = Scratch::new();
    for (word, expected) in [
        ("--assemble", "uraid serve MEMBER..."),
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

/// mdadm takes a device, and options that say little, before its mode; letters may share a dash, and words be cut short.
#[test]
fn the_mode_of_mdadm_is_found_where_it_is_not_the_first_word() {
    let scratch = Scratch::new();
    scratch.member("disk9", 4096);
    for (line, expected) in [
        ("/dev/md0 --fail /dev/sdb", "--fail: uraid has subcommands where mdadm has modes: uraid fail ARRAY MEMBER..."),
        ("/dev/md0 -f sdb", "-f: uraid has subcommands where mdadm has modes: uraid fail ARRAY MEMBER..."),
        ("/dev/md0 --set-faulty sdb", "--set-faulty: uraid has subcommands where mdadm has modes: uraid fail ARRAY "),
        ("/dev/md0 --add /dev/sdc", "--add: uraid has subcommands where mdadm has modes: uraid add ARRAY DEVICE..."),
        ("/dev/md0 -a /dev/sdc", "-a: uraid has subcommands where mdadm has modes: uraid add ARRAY DEVICE..."),
        ("/dev/md0 --add-spare /dev/sdc", "--add-spare: uraid has subcommands where mdadm has modes: uraid add ARRAY "),
        ("/dev/md0 -r sdb", "-r: uraid has subcommands where mdadm has modes: uraid remove ARRAY MEMBER..."),
        ("/dev/md0 --remove failed", "--remove: uraid has subcommands where mdadm has modes: uraid remove ARRAY "),
        ("/dev/md/home --re-add sdb", "--re-add: uraid has subcommands where mdadm has modes: uraid re-add ARRAY "),
        ("md127 --replace a --with b", "--replace: uraid has subcommands where mdadm has modes: uraid replace ARRAY "),
        ("home --fail sdb", "--fail: uraid has subcommands where mdadm has modes: uraid fail ARRAY MEMBER..."),
        ("status --fail sdb", "--fail: uraid has subcommands where mdadm has modes: uraid fail ARRAY MEMBER..."),
        (
            "/dev/md0 --fail sdb --remove sdb --add sdc --add sdd",
            "--fail: uraid has subcommands where mdadm has modes: uraid fail ARRAY MEMBER..., then uraid remove ARRAY \
             MEMBER..., then uraid add ARRAY DEVICE...",
        ),
        ("--manage /dev/md0 -a sdc", "-a: uraid has subcommands where mdadm has modes: uraid add ARRAY DEVICE..."),
        ("--manage /dev/md0 --stop", "--stop: uraid has subcommands where mdadm has modes: uraid stop ARRAY"),
        ("--misc --detail /dev/md0", "--detail: uraid has subcommands where mdadm has modes: uraid detail ARRAY"),
        ("--manage", "--manage: uraid has no modes: see `uraid --help` for its subcommands"),
        (
            "-v --assemble /dev/md0 a b",
            "--assemble: uraid has subcommands where mdadm has modes: uraid serve MEMBER...",
        ),
        ("/dev/md0 --stop", "--stop: uraid has subcommands where mdadm has modes: uraid stop ARRAY"),
        ("/dev/md0 --run", "--run: uraid has subcommands where mdadm has modes: uraid serve --run MEMBER..."),
        ("/dev/md0 -o", "-o: uraid has subcommands where mdadm has modes: uraid readonly ARRAY"),
        ("-As", "-As: uraid has subcommands where mdadm has modes: uraid serve MEMBER..."),
        ("-vDs", "-vDs: uraid has subcommands where mdadm has modes: uraid detail ARRAY"),
        ("-Es", "-Es: uraid has subcommands where mdadm has modes: uraid examine MEMBER..."),
        ("-IRs", "-I: uraid looks for the members of one array at a time"),
        ("-Iq /dev/sdb", "-I: uraid looks for the members of one array at a time"),
        ("-I /dev/sdb", "-I: uraid looks for the members of one array at a time"),
        ("--assem a b", "--assemble: uraid has subcommands where mdadm has modes: uraid serve MEMBER..."),
        ("/dev/md0 --fai sdb", "--fail: uraid has subcommands where mdadm has modes: uraid fail ARRAY MEMBER..."),
        ("/dev/md0 --grow -n 5", "--grow: uraid does not change the geometry of arrays yet"),
        ("/dev/md0 --add-journal sdj", "--add-journal: uraid has no journal"),
        ("/dev/md0", "/dev/md0: is where the verb is expected: `uraid detail ARRAY` shows an array, `uraid serve "),
        ("disk9", "disk9: is where the verb is expected: `uraid detail ARRAY` shows an array, `uraid serve "),
    ] {
        let mut command = scratch.command(line.split(' '));
        let output = command.current_dir(scratch.path("")).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{line}: {said}");
        let expected = format!("error: {expected}");
        assert!(said.lines().count() == 1 && said.starts_with(&expected), "{line}: {said}");
        assert_eq!(said.contains(", then"), expected.contains(", then"), "{said}");
    }
}

/// The verb with the nearest meaning, or what is missing; only a word that is close to a verb is taken for a slip.
#[test]
fn a_word_that_is_no_verb_is_answered_by_what_it_means() {
    let scratch = Scratch::new();
    for (word, expected) in [
        ("state", "`uraid status` says how arrays are, `uraid detail ARRAY` shows one"),
        ("State", "`uraid status` says how arrays are, `uraid detail ARRAY` shows one"),
        ("--state", "`uraid status` says how arrays are, `uraid detail ARRAY` shows one"),
        ("start", "`uraid serve MEMBER...` starts an array"),
        ("run", "`uraid serve MEMBER...` starts an array"),
        ("ls", "`uraid list` shows the arrays that run"),
        ("info", "`uraid detail ARRAY` shows an array, `uraid examine MEMBER...` superblocks"),
        ("show", "`uraid detail ARRAY` shows an array, `uraid examine MEMBER...` superblocks"),
        ("rebuild", "an array recovers by itself onto a spare: `uraid add ARRAY DEVICE...` gives it one"),
        ("verify", "`uraid check ARRAY` compares copies and parity"),
        ("delete", "`uraid stop ARRAY` stops an array, `uraid zero-superblock MEMBER...` wipes its superblocks"),
        ("resize", "it does not change the geometry of arrays yet"),
        ("watch", "it has no monitor"),
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
        ("fail --test home m1", "error: --test: `uraid fail` does not take it, only detail, monitor\n"),
        ("create --stop home", "error: --stop: uraid has subcommands where mdadm has modes: uraid stop ARRAY\n"),
    ] {
        let done = scratch.uraid(line.split(' '));
        assert!(done.code == Some(2) && done.stderr.starts_with(expected), "{line}: {done:?}");
    }
}
