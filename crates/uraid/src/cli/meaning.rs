//! Words that are no verbs of uraid, and what people mean by them: the verb with that meaning, or what is missing.
//! Owns: the table. Not here: mdadm's modes and options (`mdadm`); words that are only misspelled, which clap answers with
//! the verb of nearest letters.
//! Invariant: no verb of uraid is in the table, and no word twice; every verb that it names exists.

/// What somebody may type who does not know the verb, and the answer to it, behind `WORD: uraid has no such verb: `.
const MEANINGS: &[(&[&str], &str)] = &[
    (
        &["state", "stat", "st", "progress", "print"],
        "`uraid status` says how arrays are, `uraid detail ARRAY` shows one, `uraid mdstat` all that run",
    ),
    (
        &["show", "info", "display", "inspect"],
        "`uraid detail ARRAY` shows an array, `uraid examine MEMBER...` superblocks",
    ),
    (&["ls", "lsarrays", "arrays", "ps", "lists", "lsblk", "running"], "`uraid list` shows the arrays that run"),
    (&["members", "disks", "devices", "slots"], "`uraid detail ARRAY` shows the members of an array"),
    (&["superblock", "superblocks", "sb", "metadata", "exam"], "`uraid examine MEMBER...` shows superblocks"),
    (
        &[
            "start", "run", "up", "activate", "open", "export", "attach", "connect", "load", "enable", "nbd", "fuse",
            "server",
        ],
        "`uraid serve MEMBER...` starts an array",
    ),
    (
        &["daemon", "daemonize", "daemonise", "background", "service"],
        "`uraid serve --background MEMBER...` starts an array and returns",
    ),
    (
        &[
            "end",
            "halt",
            "kill",
            "quit",
            "shutdown",
            "down",
            "close",
            "detach",
            "disconnect",
            "deactivate",
            "disable",
            "disassemble",
            "unserve",
            "terminate",
        ],
        "`uraid stop ARRAY` stops an array",
    ),
    (
        &["delete", "destroy", "rm", "del", "erase", "wipe", "wipefs", "clear", "zero", "format", "purge"],
        "`uraid stop ARRAY` stops an array, `uraid zero-superblock MEMBER...` wipes its superblocks",
    ),
    (&["new", "make", "mk", "init", "setup", "mkraid"], "`uraid create` makes an array"),
    (&["faulty", "fault", "offline", "set-failed", "break"], "`uraid fail ARRAY MEMBER...` declares members failed"),
    (&["spare", "insert", "hot-add", "hotadd", "join"], "`uraid add ARRAY DEVICE...` adds spares"),
    (&["readd", "online", "return", "rejoin", "reinsert"], "`uraid re-add ARRAY MEMBER...` takes former members back"),
    (&["eject", "unplug", "hot-remove", "hotremove", "drop"], "`uraid remove ARRAY MEMBER...` takes members out"),
    (
        &["exchange", "swap", "migrate", "substitute"],
        "`uraid replace ARRAY MEMBER... --with SPARE...` copies members to spares",
    ),
    (
        &["rebuild", "recover", "recovery", "heal"],
        "an array recovers by itself onto a spare: `uraid add ARRAY DEVICE...` gives it one",
    ),
    (
        &["resync", "sync"],
        "a dirty array is resynced by itself; `uraid repair ARRAY` compares all of it, `uraid update resync MEMBER...` has it \
         resynced at its next start",
    ),
    (&["verify", "validate", "compare", "test", "fsck", "patrol"], "`uraid check ARRAY` compares copies and parity"),
    (&["fix", "correct"], "`uraid repair ARRAY` makes copies and parity agree"),
    (&["mismatches", "mismatch", "errors"], "`uraid detail --mismatches ARRAY` shows what the last check found"),
    (&["pause", "suspend", "frozen", "hold"], "`uraid freeze ARRAY` pauses a pass"),
    (&["resume", "continue", "thaw", "unpause"], "`uraid unfreeze ARRAY` continues what is paused"),
    (&["cancel", "abort"], "`uraid idle ARRAY` ends a check or repair"),
    (&["limit", "throttle", "bandwidth", "rate"], "`uraid speed ARRAY --max SPEED` limits passes"),
    (&["ro", "read-only", "lock"], "`uraid readonly ARRAY` lets an array take no more writes"),
    (&["rw", "read-write", "writable", "unlock"], "`uraid readwrite ARRAY` lets an array take writes again"),
    (&["unmount", "u-mount"], "`uraid umount DIR` unmounts an array"),
    (
        &["rescue", "dump", "extract", "read", "cat", "clone", "backup", "save", "image", "dd", "undelete", "salvage"],
        "`uraid copy MEMBER... OUT` copies the bytes of an array",
    ),
    (
        &["rename", "name", "set", "edit", "modify", "change", "tune", "uuid"],
        "`uraid update WHAT MEMBER...` changes a stopped array: its name, UUID, policy",
    ),
    (&["write-behind"], "`uraid bitmap ARRAY internal --write-behind` sets it"),
    (&["draw", "layout", "map", "geometry"], "`uraid detail --draw ARRAY` shows which chunk lies where"),
    (
        &["benchmark", "perf", "performance", "measure", "fio", "stress"],
        "`uraid bench` measures arrays, members and NBD servers",
    ),
    (
        &["diagnose", "health", "advice", "advise", "analyze", "analyse", "lint", "align", "why"],
        "`uraid doctor ARRAY` says what costs I/O or safety",
    ),
    (&["version", "ver"], "`uraid --version` prints it"),
    (&["man", "usage", "commands"], "`uraid --help` lists the verbs"),
    (
        &["reshape", "resize", "extend", "expand", "shrink", "convert"],
        "it does not change the geometry of arrays yet; stop the array and use mdadm --grow",
    ),
    (&["events", "event", "alert", "notify", "top"], "`uraid monitor` tells what happens to arrays"),
    (
        &["log", "logs"],
        "`uraid history` has what happened, `uraid detail ARRAY` names the file that has the log of the server",
    ),
    (
        &["config", "conf", "configure", "mdadm.conf"],
        "`uraid assemble --scan` starts the arrays of mdadm.conf, `uraid examine --scan` prints lines for it",
    ),
    (&["snapshot", "snap"], "it has no snapshots"),
    (&["encrypt", "luks", "crypt"], "it does not encrypt"),
    (&["smart", "smartctl"], "it does not ask drives for SMART; `uraid detail ARRAY` counts their errors"),
    (&["prometheus", "exporter"], "`uraid metrics` counts for dashboards"),
    (&["undo", "rollback", "revert"], "it cannot undo"),
];

/// What to type in place of a word that is no verb.
pub(super) fn instead_of_word(word: &str) -> Option<String> {
    let plain = word.trim_start_matches('-').to_lowercase().replace('_', "-");
    let found = MEANINGS.iter().find(|(words, _)| words.contains(&&*plain));
    found.map(|(_, text)| format!("{word}: uraid has no such verb: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;
    use std::collections::BTreeSet;

    #[test]
    fn the_words_are_no_verbs_and_the_answers_name_verbs() {
        let line = cli::line();
        let mut words = BTreeSet::new();
        for word in MEANINGS.iter().flat_map(|(words, _)| *words) {
            assert!(line.find_subcommand(word).is_none(), "{word} is a verb");
            assert!(cli::mdadm::instead_of_mode(word).is_none(), "{word} is mdadm's");
            assert!(words.insert(word), "{word} is there twice");
        }
        for (_, text) in MEANINGS {
            for verb in text.split("`uraid ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()) {
                assert!(line.find_subcommand(verb).is_some() || verb.starts_with("--"), "{text}");
            }
        }
    }
}
