//! `uraid --help`: the verbs in groups, on one screen; and the topics of `uraid help`.
//! Owns: the groups, the screen, the topics. Not here: a verb's line and its own help (the rooms of the verbs).
//! Invariant: every verb is in exactly one group, and the screen has at most 40 lines of 80 columns.

use super::mdadm;
use clap::Command;
use std::fmt::Write as _;

const TITLE: &str = "uraid VERB ...   Linux software RAID (md) in user space; options are mdadm's";

/// A line of the screen: verbs that belong together, and what they do. A verb that is alone in its line, or whose others the
/// command line does not have, is described by its own line in the definition of the command line.
struct Row {
    verbs: &'static [&'static str],
    about: &'static str,
}

const fn one(verb: &'static [&'static str; 1]) -> Row {
    Row { verbs: verb, about: "" }
}

const fn row(verbs: &'static [&'static str], about: &'static str) -> Row {
    Row { verbs, about }
}

/// What the verbs of a group are for, in at most two lines beside them; the rows. A verb that no row names has a row of its
/// own behind the verb before it in the definition of the command line. A hidden verb has none.
const GROUPS: [(&[&str], &[Row]); 9] = [
    (
        &["CREATE", "and start"],
        &[
            one(&["create"]),
            one(&["serve"]),
            row(&["assemble", "incremental"], "Start arrays of mdadm.conf; one device in"),
            one(&["stop"]),
            row(&["readonly", "readwrite"], "Stop writes to a running array; let them go on"),
            one(&["update"]),
            one(&["zero-superblock"]),
        ],
    ),
    (
        &["LOOK"],
        &[
            row(&["status", "history"], "Say what to do about an array; what happened to it"),
            row(&["list", "mdstat"], "Show the arrays that run; as /proc/mdstat does"),
            one(&["watch"]),
            one(&["detail"]),
            one(&["examine"]),
        ],
    ),
    (
        &["MEMBERS"],
        &[
            one(&["add"]),
            one(&["re-add"]),
            one(&["remove"]),
            one(&["fail"]),
            one(&["replace"]),
            row(&["write-mostly", "failfast"], "Mark members: read last; fail at first error"),
            one(&["bitmap"]),
        ],
    ),
    (
        &["CHECK"],
        &[
            one(&["check"]),
            one(&["repair"]),
            row(&["idle", "freeze", "unfreeze"], "End a check or repair; pause passes; go on"),
            one(&["speed"]),
            one(&["wait"]),
        ],
    ),
    (
        &["OPERATE"],
        &[
            row(&["monitor", "metrics"], "Mail what happens to arrays; count for dashboards"),
            row(&["scrub", "maintenance"], "Check at nights; let members go away for an hour"),
        ],
    ),
    (&["MOUNT"], &[row(&["mount", "umount"], "Serve an array and mount its file system; unmount it")]),
    (&["RESCUE"], &[one(&["copy"])]),
    (&["MEASURE"], &[one(&["bench"]), one(&["doctor"])]),
    (&["MDADM"], &[one(&["mdadm"])]),
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

In the state directory, which outlives the server and a boot:
  UUID.history   what happened to an array; UUID.history.old has what was before
  UUID.checks    its last complete check, and how far the next one is
It is $URAID_STATE_DIR, else /var/lib/uraid for root, else $XDG_STATE_HOME/uraid or ~/.local/state/uraid.

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
    let mut out = format!("{TITLE}\n\n");
    for (heading, rows) in groups(line) {
        for (nth, (verbs, about)) in rows.into_iter().enumerate() {
            let heading = heading.get(nth).copied().unwrap_or_default();
            let verbs = verbs.join(", ");
            writeln!(out, "{heading:<10}{verbs:<15}  {about}").expect("a string takes all");
        }
    }
    format!("{out}\n{EXAMPLES}\n{POINTER}")
}

/// The verbs of a row, and what they do.
type Shown<'a> = (Vec<&'a str>, String);

/// The groups, with all verbs of the command line. A group without verbs is left out.
fn groups(line: &Command) -> Vec<(&'static [&'static str], Vec<Shown<'_>>)> {
    let shown: Vec<&Command> = line.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let known = |verb: &str| shown.iter().find(|it| it.get_name() == verb).copied();
    let about = |verb: &Command| verb.get_about().map(ToString::to_string).unwrap_or_default();
    let row = |row: &Row| {
        let verbs: Vec<&Command> = row.verbs.iter().filter_map(|verb| known(verb)).collect();
        match verbs[..] {
            [] => None,
            [verb] => Some((vec![verb.get_name()], about(verb))),
            [_, _, ..] => Some((verbs.iter().map(|verb| verb.get_name()).collect(), row.about.to_owned())),
        }
    };
    let mut groups: Vec<(&'static [&'static str], Vec<Shown<'_>>)> =
        GROUPS.iter().map(|(heading, rows)| (*heading, rows.iter().filter_map(row).collect())).collect();
    let mut before: Option<&str> = None;
    for verb in &shown {
        let name = verb.get_name();
        let at = |groups: &[(_, Vec<Shown<'_>>)], verb: &str| {
            groups
                .iter()
                .enumerate()
                .find_map(|(group, (_, rows))| Some((group, rows.iter().position(|(verbs, _)| verbs.contains(&verb))?)))
        };
        if at(&groups, name).is_none()
            && let Some((group, row)) = before.and_then(|before| at(&groups, before))
        {
            groups[group].1.insert(row + 1, (vec![name], about(verb)));
        }
        before = Some(name);
    }
    groups.retain(|(_, rows)| !rows.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn every_verb_is_in_one_group_with_its_line() {
        let line = cli::line();
        let rows = groups(&line).into_iter().flat_map(|(_, rows)| rows);
        let mut grouped: Vec<&str> = rows.flat_map(|(verbs, _)| verbs).collect();
        let shown = line.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set());
        let mut verbs: Vec<&str> = shown.map(Command::get_name).collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        for (heading, rows) in groups(&line) {
            assert!(heading.len() <= rows.len() || heading.len() == 1, "{heading:?}");
            assert!(rows.iter().all(|(_, about)| !about.is_empty()), "{heading:?}");
        }
    }
    #[test]
    fn a_verb_without_a_place_stands_behind_the_one_before_it() {
        let verbs = ["create", "add", "later", "last", "list"];
        let line = Command::new("uraid").subcommands(verbs.map(Command::new));
        let (_, members) = groups(&line).into_iter().find(|(heading, _)| *heading == ["MEMBERS"]).expect("it is there");
        let verbs: Vec<&str> = members.into_iter().flat_map(|(verbs, _)| verbs).collect();
        assert_eq!(verbs, ["add", "later", "last"]);
    }

    #[test]
    fn a_row_has_the_verbs_that_exist_and_one_alone_has_its_own_line() {
        let both =
            Command::new("uraid").subcommands(["list", "mdstat"].map(|verb| Command::new(verb).about("Its own")));
        let one = Command::new("uraid").subcommand(Command::new("list").about("Its own"));
        assert!(
            screen(&both).contains("\nLOOK      list, mdstat     Show the arrays that run; as"),
            "{}",
            screen(&both)
        );
        assert!(screen(&one).contains("\nLOOK      list             Its own\n"), "{}", screen(&one));
        let hidden = Command::new("uraid").subcommand(Command::new("list").hide(true));
        assert!(!screen(&hidden).contains("LOOK"), "{}", screen(&hidden));
    }
}
