//! mdadm's words where uraid's verbs take none: what to type instead, or why uraid has nothing for them yet.
//! Owns: the tables, and the answer to an option in the wrong subcommand. Not here: whole lines of mdadm (`crate::mdadm`),
//! uraid's own options (the other files of `cli`), exit codes (`main`).
//! Invariant: no subcommand and no long option of uraid is in a table. Options are looked up only where uraid takes none.

use clap::{Arg, Command};

/// mdadm's mode, and uraid's subcommand for it.
const INSTEAD: &[(&[&str], &str)] = &[
    (&["-A", "--assemble"], "assemble ARRAY MEMBER..."),
    (&["-C", "--create"], "create --level LEVEL --raid-devices N MEMBER..."),
    (&["-D", "--detail", "-Q", "--query", "query"], "detail ARRAY"),
    (&["-E", "--examine"], "examine MEMBER..."),
    (&["-F", "--follow", "--monitor", "follow"], "monitor --scan --mail ADDRESS"),
    (&["-I", "--incremental"], "incremental DEVICE"),
    (&["-S", "--stop"], "stop ARRAY"),
    (&["-W", "--wait"], "wait ARRAY..."),
    (&["--add"], "add ARRAY DEVICE..."),
    (&["--re-add"], "re-add ARRAY DEVICE..."),
    (&["-r", "--remove"], "remove ARRAY MEMBER..."),
    (&["--replace"], "replace ARRAY MEMBER... --with SPARE..."),
    (&["-f", "--fail", "--set-faulty", "set-faulty"], "fail ARRAY MEMBER..."),
    (&["-o", "--readonly"], "readonly ARRAY"),
    (&["-w", "--readwrite"], "readwrite ARRAY"),
    (&["-s", "--scan", "scan"], "list"),
    (&["--zero-superblock"], "zero-superblock MEMBER..."),
];

const NO_SEARCH: &str =
    "looks for the members of one array at a time: `uraid serve --uuid UUID`, with the folders to look in or without";
const NO_BITMAP: &str =
    "shows a bitmap with `uraid examine --bitmap MEMBER`, and adds one with `uraid bitmap ARRAY internal`";
const NO_POLICY: &str = "has no journal: a raid5 with create --consistency-policy=ppl has no write hole";
const NO_ACTION: &str = "has subcommands for it: uraid check, repair, idle or freeze ARRAY";
const ACCESS: &str = "has a command for each: `uraid readonly ARRAY`, `uraid readwrite ARRAY`";

/// mdadm's modes and options that uraid lacks, and why. The reason continues a sentence that begins with "uraid".
const NOT_YET: &[(&[&str], &str)] = &[
    (
        &[
            "-G",
            "--grow",
            "grow",
            "--backup-file",
            "--invalid-backup",
            "-Z",
            "--array-size",
            "--continue",
            "--freeze-reshape",
        ],
        "does not change the geometry of arrays yet. Stop the array and use mdadm --grow",
    ),
    (&["-B", "--build", "build"], "does not make arrays without superblocks. `uraid copy --assume` reads one"),
    (&["--auto-detect", "-s", "--super-minor", "--prefer", "--path", "--rebuild-map", "--udev-rules"], NO_SEARCH),
    (&["--manage", "manage", "--misc", "misc"], "has no modes: see `uraid --help` for its subcommands"),
    (
        &["--add", "--re-add", "-r", "--remove", "--replace"],
        "has a command for each: `uraid add`, `uraid re-add`, `uraid remove`, `uraid replace`",
    ),
    (&["--add-spare", "add-spare"], "adds every member as a spare: `uraid add ARRAY DEVICE...`"),
    (&["-X", "--examine-bitmap"], NO_BITMAP),
    (&["--action"], NO_ACTION),
    (&["--wait-clean"], "marks idle arrays clean by itself, and every array when it stops"),
    (&["--write-journal", "--add-journal", "add-journal"], NO_POLICY),
    (&["--readonly", "-o", "-w", "--readwrite"], ACCESS),
    (
        &["-U", "--update"],
        "changes the superblocks of a stopped array with `uraid update WHAT MEMBER...`; `uraid serve` starts it afterwards",
    ),
    (&["--nodes", "--home-cluster", "--cluster-confirm"], "has no clusters of hosts that share an array"),
    (&["--rounding"], "rounds the members of a linear array to its --chunk"),
    (&["--auto", "--symlinks"], "makes no device nodes: `uraid serve` exports arrays over NBD"),
    (&["-a"], "has no -a: `uraid add ARRAY DEVICE...` adds members (--add), and it makes no device nodes (--auto)"),
    (&["-t"], "tells the state of an array by exit codes with `uraid detail --test ARRAY` only"),
    (&["--quiet", "-q", "-v"], "says on stderr what needs attention, no more and no less"),
    (
        &["--detail-platform", "--subarray", "--kill-subarray", "--update-subarray", "--offroot"],
        "does not know the RAID of firmware (IMSM, DDF)",
    ),
    (&["--examine-badblocks"], "shows the list of bad blocks with `uraid examine --bad-blocks MEMBER`"),
    (&["--sparc2.2"], "does not repair superblocks of Linux 2.2 on Sparc. Use mdadm"),
    (
        &["--write-zeroes"],
        "writes no zeroes to new members: a new array is made consistent while it serves, or takes --assume-clean",
    ),
    (&["--logical-block-size"], "does not choose the size of logical blocks: it serves sectors of 512 bytes"),
    (&["--help-options"], "lists the options of a subcommand with `uraid SUBCOMMAND --help`"),
    (&["--dump", "--restore"], "does not dump superblocks. `uraid examine --json` shows all of their fields"),
];

fn find(table: &'static [(&[&str], &str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, text)| *text)
}

/// Why the first word of a command line is not a subcommand, if it is one of mdadm's modes.
pub(super) fn instead_of_mode(word: &str) -> Option<String> {
    instead_of(word).map(|instead| redirect(word, instead)).or_else(|| why_not(word))
}

/// What to type behind `uraid` instead of one of mdadm's modes or options.
fn instead_of(word: &str) -> Option<&'static str> {
    find(INSTEAD, word)
}

/// The answer to a word of mdadm that other words stand for.
fn redirect(word: &str, instead: &str) -> String {
    format!("{word}: uraid has subcommands where mdadm has modes: uraid {instead}")
}

/// mdadm's modes, options and words, each with what uraid has in its place, or why it has nothing.
pub(super) fn table() -> String {
    let mut out =
        "`uraid mdadm ...` takes mdadm's lines as they are, and so does the binary when it is called mdadm.\n\n"
            .to_owned();
    let mut write = |title: &str, start: &str, table: &[(&[&str], &str)]| {
        out.push_str(title);
        for (words, text) in table {
            out.push_str(&format!("  {}\n      {start}{text}\n", words.join(", ")));
        }
    };
    write("mdadm's modes and options, and uraid's own words:\n", "uraid ", INSTEAD);
    write("\nWhat uraid does not have, or not as an option:\n", "uraid ", NOT_YET);
    out
}

/// Why no subcommand takes an option of mdadm.
pub(crate) fn why_not(option: &str) -> Option<String> {
    find(NOT_YET, option).map(|reason| format!("{option}: uraid {reason}"))
}

/// Why a subcommand of `line` does not take an option: mdadm has it, or another subcommand has.
pub(super) fn why_not_here(line: &Command, subcommand: &str, option: &str) -> Option<String> {
    let wanted = option.strip_prefix("--");
    let takes = |command: &&Command| {
        command.get_arguments().filter_map(Arg::get_long_and_visible_aliases).flatten().any(|own| Some(own) == wanted)
    };
    let others: Vec<&str> = line.get_subcommands().filter(takes).map(Command::get_name).collect();
    let elsewhere = || format!("{option}: `uraid {subcommand}` does not take it, only {}", others.join(", "));
    why_not(option).or_else(|| (!others.is_empty()).then(elsewhere)).or_else(|| instead_of_mode(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uraid_s_own_words_are_in_no_table() {
        let line = super::super::line();
        for command in line.get_subcommands() {
            let name = command.get_name();
            assert_eq!(instead_of_mode(name), None, "{name}");
            // Short ones differ between subcommands, as between mdadm's modes: -b is --brief there, --bitmap here.
            for long in command.get_arguments().filter_map(Arg::get_long) {
                assert_eq!(why_not(&format!("--{long}")), None, "{name}");
            }
        }
    }
}
