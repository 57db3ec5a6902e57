//! `uraid --help`: the verbs in groups, on one screen; and the topics of `uraid help`.
//! Owns: the groups, the screen, the topics. Not here: a verb's line and its own help (the rooms of the verbs).
//! Invariant: every verb is in exactly one group, and the screen has at most 40 lines of 80 columns.

use super::mdadm;
use clap::Command;
use std::fmt::Write as _;

const TITLE: &str = "uraid VERB ...   Linux software RAID (md) in user space; options are mdadm's";

/// What the verbs of a group are for, in at most two lines beside them; the verbs. One that no group names stands behind the
/// verb before it in the definition of the command line.
const GROUPS: [(&[&str], &[&str]); 7] = [
    (&["CREATE", "and start"], &["create", "serve", "stop", "readonly", "readwrite", "update", "zero-superblock"]),
    (&["LOOK"], &["status", "list", "mdstat", "detail", "examine"]),
    (&["MEMBERS"], &["add", "re-add", "remove", "fail", "replace", "write-mostly", "failfast", "bitmap"]),
    (&["CHECK"], &["check", "repair", "idle", "freeze", "unfreeze", "speed", "wait"]),
    (&["MOUNT"], &["mount", "umount"]),
    (&["RESCUE"], &["copy"]),
    (&["MEASURE"], &["bench", "doctor"]),
];

const EXAMPLES: &str = "\
EXAMPLES  truncate -s 1G disk0 disk1 disk2
          uraid create --level 5 --raid-devices 3 --name home disk0 disk1 disk2
          uraid serve --background disk0 disk1 disk2
          uraid detail home";

const POINTER: &str = "More: uraid VERB --help; uraid help members, files, exit-codes or mdadm";

/// What every verb's `--help` ends with.
pub(super) const SEE_ALSO: &str = "\
SEE ALSO
  uraid help members      how arrays, members and parts of files are named
  uraid help files        sockets and logs
  uraid help exit-codes";

const MEMBERS: &str = "\
An ARRAY is a name (as `uraid list` shows it), one or more of its members, or `--control SOCK`.
A MEMBER is a file or a block device, or a part of one:
  PATH@OFFSET[+LENGTH]  from byte OFFSET on, LENGTH bytes or up to the end; K, M, G, T are powers of 1024
  PATH@pN               partition N of the GPT or MBR inside
A file whose own name looks like this, such as `disk@p2`, is taken as that file. Parts that do not
overlap may be members at the same time, of one array or of several. A part of a block device is
locked against other uraid processes only: the system can still mount it.

The bytes on the members are those of the kernel's md and of mdadm.
";

const FILES: &str = "\
In the runtime directory:
  NAME.nbd   where a running array is served, if `serve --nbd` says nothing else
  NAME.ctl   where the other commands reach it: JSON-RPC 2.0, one object per line
  NAME.log   the log of `serve --background`; NAME.log.old is the one before
  .map       which device name (md127) each array has, in the lines of mdadm's map

The runtime directory is the first of these:
  $URAID_RUNTIME_DIR       if it is set
  /run/uraid               for root
  $XDG_RUNTIME_DIR/uraid   if that variable names a directory of this user
  /run/user/UID/uraid      if /run/user/UID exists and is this user's
  /tmp/uraid-UID           otherwise, with mode 700

It is refused if others than this user and root could change it, or a directory on the way to it.
";

const EXIT_CODES: &str = "\
  0  done
  1  refused, or failed; the reason is on stderr
  2  the command line is wrong
`detail --test` has mdadm's codes, `wait` adds 4 to mdadm's, `check --wait` and `repair --wait` have 3
for what disagrees: see their --help.
";

/// The text of `uraid help TOPIC`.
pub(super) fn topic(name: &str) -> Option<String> {
    match name {
        "members" | "member" | "array" | "arrays" => Some(MEMBERS.to_owned()),
        "files" => Some(FILES.to_owned()),
        "exit-codes" => Some(EXIT_CODES.to_owned()),
        "mdadm" => Some(mdadm::table()),
        _ => None,
    }
}

/// The screen of `uraid --help`.
pub(super) fn screen(line: &Command) -> String {
    let about = |verb: &str| line.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
    let mut out = format!("{TITLE}\n\n");
    for (heading, verbs) in groups(line) {
        for (nth, verb) in verbs.into_iter().enumerate() {
            let heading = heading.get(nth).copied().unwrap_or_default();
            let about = about(verb).unwrap_or_default();
            writeln!(out, "{heading:<10}{verb:<16}{about}").expect("a string takes all");
        }
    }
    format!("{out}\n{EXAMPLES}\n{POINTER}")
}

/// The groups, with all verbs of the command line.
fn groups(line: &Command) -> Vec<(&'static [&'static str], Vec<&str>)> {
    let mut groups: Vec<(&'static [&'static str], Vec<&str>)> =
        GROUPS.iter().map(|(heading, verbs)| (*heading, verbs.to_vec())).collect();
    let mut before = None;
    for verb in line.get_subcommands().map(Command::get_name) {
        let is_placed = groups.iter().any(|(_, verbs)| verbs.contains(&verb));
        if let (false, Some(before)) = (is_placed, before) {
            for (_, verbs) in &mut groups {
                if let Some(at) = verbs.iter().position(|other| *other == before) {
                    verbs.insert(at + 1, verb);
                }
            }
        }
        before = Some(verb);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn every_verb_is_in_one_group_with_its_line() {
        let line = cli::line();
        let mut grouped: Vec<&str> = groups(&line).into_iter().flat_map(|(_, verbs)| verbs).collect();
        let mut verbs: Vec<&str> =
            line.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        for (heading, verbs) in GROUPS {
            assert!(heading.len() <= verbs.len() || heading.len() == 1, "{heading:?}");
            assert!(verbs.iter().all(|verb| line.find_subcommand(verb).is_some_and(|it| it.get_about().is_some())));
        }
    }
    #[test]
    fn a_verb_without_a_place_stands_behind_the_one_before_it() {
        let verbs = ["create", "add", "later", "last", "list"];
        let line = Command::new("uraid").subcommands(verbs.map(Command::new));
        let (_, members) = groups(&line).into_iter().find(|(_, verbs)| verbs.contains(&"add")).expect("it is named");
        assert_eq!(members[..4], ["add", "later", "last", "re-add"]);
    }
}
