//! mdadm's words: what to type instead, or why uraid has nothing for them yet.
//! Owns: the tables, and the answer to an option in the wrong subcommand. Not here: uraid's own options (the other files
//! of `cli`), exit codes (`main`).
//! Invariant: no subcommand and no long option of uraid is in a table. Options are looked up only where uraid takes none.

use clap::{Arg, Command};
use std::ffi::OsString;

/// mdadm's mode, and uraid's subcommand for it.
const INSTEAD: &[(&[&str], &str)] = &[
    (&["-A", "--assemble"], "serve MEMBER..."),
    (&["-C", "--create"], "create --level LEVEL --raid-devices N MEMBER..."),
    (&["-D", "--detail", "-Q", "--query", "query"], "detail ARRAY"),
    (&["-E", "--examine"], "examine MEMBER..."),
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
    "has no command that shows a bitmap alone: `uraid examine MEMBER` does, `uraid bitmap ARRAY internal` adds one";
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
    (
        &[
            "-F",
            "--follow",
            "--monitor",
            "monitor",
            "follow",
            "--mail",
            "--program",
            "--alert",
            "--syslog",
            "-y",
            "--delay",
            "--increment",
            "--daemonise",
            "--pid-file",
            "--oneshot",
            "--no-sharing",
        ],
        "has no monitor: `uraid serve` logs what happens to members, `uraid detail --json ARRAY` is for scripts",
    ),
    (&["-B", "--build", "build"], "does not make arrays without superblocks. `uraid copy --assume` reads one"),
    (
        &[
            "-I",
            "--incremental",
            "incremental",
            "--auto-detect",
            "-s",
            "--super-minor",
            "--prefer",
            "--path",
            "--rebuild-map",
            "--udev-rules",
        ],
        NO_SEARCH,
    ),
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
        &["-U", "--update", "--update-subarray", "--kill-subarray"],
        "changes the superblocks of a stopped array with `uraid update WHAT MEMBER...`; `uraid serve` starts it afterwards",
    ),
    (&["--nodes", "--home-cluster", "--cluster-confirm"], "has no clusters of hosts that share an array"),
    (&["--rounding"], "rounds the members of a linear array to its --chunk"),
    (&["--auto", "--symlinks"], "makes no device nodes: `uraid serve` exports arrays over NBD"),
    (&["-a"], "has no -a: `uraid add ARRAY DEVICE...` adds members (--add), and it makes no device nodes (--auto)"),
    (&["-t"], "tells the state of an array by exit codes with `uraid detail --test ARRAY` only"),
    (&["--quiet", "-q", "-v"], "says on stderr what needs attention, no more and no less"),
    (&["--detail-platform", "--subarray", "--offroot"], "does not know the RAID of firmware (IMSM, DDF)"),
    (&["--examine-badblocks"], "has no command for them alone: `uraid examine MEMBER` shows the list of bad blocks"),
    (&["--sparc2.2"], "does not repair superblocks of Linux 2.2 on Sparc. Use mdadm"),
    (
        &["--write-zeroes"],
        "writes no zeroes to new members: a new array is made consistent while it serves, or takes --assume-clean",
    ),
    (&["--logical-block-size"], "does not choose the size of logical blocks: it serves sectors of 512 bytes"),
    (&["--help-options"], "lists the options of a subcommand with `uraid SUBCOMMAND --help`"),
    (&["--dump", "--restore"], "does not dump superblocks. `uraid examine --json` shows all of their fields"),
];

/// mdadm's `--grow --bitmap=internal ARRAY`, also without the dashes of the mode, as uraid's `bitmap ARRAY internal`, and
/// `[--misc] --action=check ARRAY` as `check ARRAY`. Any other line stays as it is. The error: why it is no action.
pub(super) fn with_subcommand(line: Vec<OsString>) -> Result<Vec<OsString>, String> {
    match with_bitmap(&line) {
        Some(line) => Ok(line),
        None => with_action(line),
    }
}

/// `None`: it is no `--grow` with a bitmap.
fn with_bitmap(line: &[OsString]) -> Option<Vec<OsString>> {
    line.get(1).filter(|word| ["-G", "--grow", "grow"].iter().any(|mode| word == mode))?;
    let mut words = line.iter().skip(2);
    let (mut place, mut rest) = (None, Vec::new());
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-b" | "--bitmap") => place = Some(words.next()?.clone()),
            Some(text) => match text.strip_prefix("--bitmap=") {
                Some(text) => place = Some(text.into()),
                None => rest.push(word.clone()),
            },
            None => rest.push(word.clone()),
        }
    }
    let own = line.iter().take(1).cloned().chain(["bitmap".into()]);
    Some(own.chain(rest).chain([place?]).collect())
}

fn with_action(line: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let word = |at: usize| line.get(at).and_then(|word| word.to_str());
    let at = if word(1) == Some("--misc") { 2 } else { 1 };
    let (action, rest) = match word(at) {
        Some("--action") => (word(at + 1), at + 2),
        Some(option) => match option.strip_prefix("--action=") {
            Some(action) => (Some(action), at + 1),
            None => return Ok(line),
        },
        None => return Ok(line),
    };
    let subcommand = match action {
        Some("frozen") => "freeze",
        Some(action @ ("check" | "repair" | "idle")) => action,
        _ => {
            let action = action.unwrap_or_default();
            return Err(format!("--action={action}: expected check, repair, idle or frozen"));
        }
    };
    let own = line.iter().take(1).cloned().chain([subcommand.into()]);
    Ok(own.chain(line.iter().skip(rest).cloned()).collect())
}

fn find(table: &'static [(&[&str], &str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, text)| *text)
}

/// What to type instead of mdadm's `--assemble --update=WHAT`.
pub(super) fn instead_of_update(line: &[OsString]) -> Option<String> {
    line.get(1).filter(|word| *word == "-A" || *word == "--assemble")?;
    let mut words = line.iter().skip(2).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        let what = match word {
            "-U" | "--update" => words.next().unwrap_or("WHAT"),
            word => match word.strip_prefix("--update=") {
                Some(what) => what,
                None => continue,
            },
        };
        let steps = format!("uraid update {what} MEMBER..., then uraid serve MEMBER...");
        return Some(format!("--update: uraid has subcommands where mdadm has modes: {steps}"));
    }
    None
}

/// Why the first word of a command line is not a subcommand, if it is one of mdadm's modes.
pub(super) fn instead_of_mode(word: &str) -> Option<String> {
    instead_of(word).map(|instead| redirect(word, instead)).or_else(|| why_not(word))
}

/// What to type behind `uraid` instead of one of mdadm's modes or options.
pub(super) fn instead_of(word: &str) -> Option<&'static str> {
    find(INSTEAD, word)
}

/// The answer to a word of mdadm that other words stand for.
pub(super) fn redirect(word: &str, instead: &str) -> String {
    format!("{word}: uraid has subcommands where mdadm has modes: uraid {instead}")
}

/// The word of mdadm that somebody has cut short, as its parser allows: `--assem`.
pub(super) fn completed(start: &str) -> Option<&'static str> {
    let words = INSTEAD.iter().chain(NOT_YET).flat_map(|(words, _)| *words).copied();
    let mut whole = words.filter(|word| start.len() > 4 && word.starts_with(start));
    start.starts_with("--").then(|| whole.next()).flatten()
}

/// mdadm's modes, options and words, each with what uraid has in its place, or why it has nothing.
pub(super) fn table() -> String {
    let mut out = String::new();
    let mut write = |title: &str, start: &str, table: &[(&[&str], &str)]| {
        out.push_str(title);
        for (words, text) in table {
            out.push_str(&format!("  {}\n      {start}{text}\n", words.join(", ")));
        }
    };
    write("mdadm's modes and options, and what to type instead:\n", "uraid ", INSTEAD);
    write("\nWhat uraid does not have, or not as an option:\n", "uraid ", NOT_YET);
    out
}

/// Why no subcommand takes an option of mdadm.
pub(super) fn why_not(option: &str) -> Option<String> {
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
