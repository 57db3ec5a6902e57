//! Every row of docs/operating/from-mdadm.md, in its three forms.
//! Owns: reading the page, arrays for its rows, that a row does what its last column says. Not here: what surrounds a line
//! (`mdadm`).
//! Invariant: no row is left out, and none meets the option parser's guesses.

use crate::common::{Done, MIB, Scratch, side_by_side, wait};
use crate::mdadm::{mdadm, number};
use std::fs;
use std::path::Path;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/from-mdadm.md");
/// What the page promises.
const ROWS_MIN: usize = 90;
const WORKING_MIN: usize = 70;
/// The disks of the page.
const DISKS: [&str; 6] = ["sdb", "sdc", "sdd", "sde", "sdf", "sdg"];

/// A row of a table of the page.
#[derive(Debug)]
struct Row {
    section: String,
    /// `uraid VERB`, `mdadm` in long words, `mdadm` as people write it.
    forms: [String; 3],
    outcome: String,
}

/// What is there before a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Disks without anything, for each row.
    Disks,
    /// An array that runs, for all rows of the section, which follow each other.
    Running,
    /// The same, for each row.
    RunningEach,
    /// An array that does not run, for each row.
    StoppedEach,
}

fn before(section: &str) -> Before {
    match section {
        "Making arrays" | "What is refused" => Before::Disks,
        "Looking" | "Members" | "Running arrays" => Before::Running,
        "Stopping" => Before::RunningEach,
        "Starting" | "Superblocks" => Before::StoppedEach,
        other => panic!("{other}: say what is there before its rows"),
    }
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(PAGE).expect("the page");
    let mut section = String::new();
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.to_owned();
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if let [uraid, long, short, outcome] = cells[..]
            && line.starts_with("| `")
        {
            let forms = [uraid, long, short].map(str::to_owned);
            rows.push(Row { section: section.clone(), forms, outcome: outcome.to_owned() });
        }
    }
    rows
}

/// The commands of a cell: `a`, or `a && b`.
fn commands(cell: &str) -> Vec<String> {
    let inside = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).expect("a cell is code");
    inside.split(" && ").map(str::to_owned).collect()
}

/// A form of the page on the disks of a folder.
struct Place {
    scratch: Scratch,
    form: usize,
}

impl Place {
    /// The page's /dev/sdb, /dev/md0 and /dev/conf in the folder's words.
    fn own(&self, command: &str) -> String {
        let below = self.scratch.path("");
        let below = |name: &str| below.join(name).display().to_string();
        let command = command.replace("/dev/sd", &below("sd")).replace("/dev/conf", &below("conf"));
        command.replace("/dev/md0", &format!("/dev/md{}", number(1 + self.form as u32)))
    }

    fn run(&self, command: &str) -> Done {
        match self.own(command).split_once(' ') {
            Some(("mdadm", words)) => mdadm(&self.scratch, words, None),
            Some(("uraid", words)) => self.scratch.uraid(words.split_whitespace()),
            _ => panic!("{command}: neither mdadm nor uraid"),
        }
    }

    fn must(&self, command: &str) {
        let done = self.run(command);
        assert_eq!(done.code, Some(0), "{command}: {done:?}");
    }

    fn fresh_disks(&self) {
        self.must("uraid stop --scan");
        for disk in DISKS {
            let _ = fs::remove_file(self.scratch.path(disk));
            self.scratch.member(disk, 16 * MIB);
        }
    }

    /// /dev/md0 on the first three disks; the others are free.
    fn running(&self) {
        self.fresh_disks();
        self.must(
            "mdadm --create /dev/md0 --name=home --level=1 --raid-devices=3 --bitmap=internal --assume-clean \
             --uuid=00112233:44556677:8899aabb:ccddeeff /dev/sdb /dev/sdc /dev/sdd",
        );
    }

    fn prepare(&self, what: Before, is_first: bool) {
        match what {
            Before::Disks => self.fresh_disks(),
            Before::Running if !is_first => {}
            Before::Running | Before::RunningEach => self.running(),
            Before::StoppedEach => {
                let members = self.own("/dev/sd*");
                fs::write(self.scratch.path("conf"), format!("URAID home members={members}\n")).expect("room");
                self.running();
                self.must("uraid stop --scan");
            }
        }
        // The row before may have begun a recovery, and md does one thing after the other, too.
        let is_quiet =
            || !["finish=", "PENDING", "DELAYED"].iter().any(|word| self.run("uraid mdstat").stdout.contains(word));
        wait(is_quiet).expect("a pass ends");
    }
}

fn check(row: &Row, command: &str, done: &Done, is_last: bool) {
    let Row { section, outcome, .. } = row;
    for guess in ["tip:", "unexpected argument", "Usage:", "similar "] {
        assert!(!done.stderr.contains(guess), "{section}: {command}: {done:?}");
    }
    if let Some(text) = outcome.strip_prefix("refused: ") {
        let lines = done.stderr.lines().count();
        assert!(done.code != Some(0) && lines == 1 && done.stderr.contains(text), "{section}: {command}: {done:?}");
        return;
    }
    assert!(outcome.starts_with("works"), "{section}: {command}: {outcome}");
    let code = outcome.split_once("exit code ").map_or(0, |(_, code)| code[..1].parse().expect("a digit"));
    assert_eq!(done.code, Some(if is_last { code } else { 0 }), "{section}: {command}: {done:?}");
}

#[test]
fn every_line_of_the_page_does_what_the_page_says() {
    let rows = rows();
    let working = rows.iter().filter(|row| row.outcome.starts_with("works")).count();
    assert!(rows.len() >= ROWS_MIN && working >= WORKING_MIN, "{working} of {} work", rows.len());
    side_by_side(0..3, |form| {
        let place = Place { scratch: Scratch::new(), form };
        let mut section = "";
        for row in &rows {
            place.prepare(before(&row.section), row.section != section);
            section = &row.section;
            let commands = commands(&row.forms[form]);
            for (nth, command) in commands.iter().enumerate() {
                check(row, command, &place.run(command), nth + 1 == commands.len());
            }
        }
        place.must("uraid stop --scan");
        let is_empty = || {
            !fs::read_dir(place.scratch.path(""))
                .expect("ours")
                .flatten()
                .any(|entry| Path::new(&entry.file_name()).extension().is_some_and(|end| end == "ctl"))
        };
        wait(is_empty).expect("every server ends");
    });
}
