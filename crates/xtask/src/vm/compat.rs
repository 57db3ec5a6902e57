//! The results of the matrix: the counts on the screen and in `docs/compat.md`.
//! Owns: the columns, the sums, the text of the document. Not here: the checks themselves (`matrix`); the section about
//! mdadm's tests (`mdadm_tests.md`).
//! Invariant: the document counts what was run, and names what belongs to the form and was not run.

use super::cases::Case;
use super::{Lab, at, output_of};
use crate::documents::wrap::wrapped;
use crate::programs::stage::Tally;
use crate::project;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

/// The columns of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// Debian's mdadm on our members.
    Examine,
    /// The kernel reads our array, all members there.
    TheirWhole,
    /// The kernel's `check` of our array: nothing to resync, no mismatch.
    Check,
    /// The kernel reads our array with members missing.
    TheirDegraded,
    /// `uraid serve --read-only` on the kernel's array.
    WeServe,
    /// The same with members missing.
    WeServeDegraded,
    /// `uraid copy` of the kernel's array.
    WeCopy,
    /// The same with members missing.
    WeCopyDegraded,
    /// The members after all these reads: not a byte has changed.
    Unchanged,
}

const COLUMNS: &[(Column, &str)] = &[
    (Column::Examine, "examine"),
    (Column::TheirWhole, "md reads"),
    (Column::Check, "md check"),
    (Column::TheirDegraded, "md degraded"),
    (Column::WeServe, "serve"),
    (Column::WeServeDegraded, "serve degraded"),
    (Column::WeCopy, "copy"),
    (Column::WeCopyDegraded, "copy degraded"),
    (Column::Unchanged, "unchanged"),
];

/// Every check that was made, and what the failed ones found.
#[derive(Default)]
pub(crate) struct Results {
    cells: BTreeMap<(String, Column), Tally>,
    ran: BTreeSet<String>,
    /// What the guests call their kernels.
    pub(crate) kernels: BTreeSet<String>,
    failures: Vec<String>,
}

impl Results {
    /// Counts one check; the findings of failed ones are printed at the end.
    pub(crate) fn add(&mut self, case: &Case, column: Column, result: Result<(), String>) {
        let row = if case.is_canary() { case.id.clone() } else { case.row() };
        let tally = self.cells.entry((row, column)).or_default();
        self.ran.insert(case.id.clone());
        match result {
            Ok(()) => tally.passed += 1,
            Err(what) => {
                tally.failed += 1;
                let Case { metadata, members, .. } = case;
                self.failures.push(format!("{}, {members} members, metadata {metadata}: {what}", case.row()));
            }
        }
    }

    /// Adds another's counts.
    pub(crate) fn merge(&mut self, other: Results) {
        for (cell, tally) in other.cells {
            let sum = self.cells.entry(cell).or_default();
            sum.passed += tally.passed;
            sum.failed += tally.failed;
        }
        self.ran.extend(other.ran);
        self.kernels.extend(other.kernels);
        self.failures.extend(other.failures);
    }

    /// Prints the table and the failures; returns the sums.
    pub(crate) fn print(&self) -> Tally {
        println!("kernels: {}", self.kernels.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
        print!("{:<25}", "");
        COLUMNS.iter().for_each(|(_, title)| print!("{title:>15}"));
        println!();
        for row in self.rows() {
            print!("{row:<25}");
            COLUMNS.iter().for_each(|(column, _)| print!("{:>15}", self.cell(&row, *column)));
            println!();
        }
        self.failures.iter().for_each(|what| println!("FAILED {what}"));
        let mut sum = Tally::default();
        for tally in self.cells.values() {
            sum.passed += tally.passed;
            sum.failed += tally.failed;
        }
        sum
    }

    fn rows(&self) -> BTreeSet<String> {
        self.cells.keys().map(|(row, _)| row.clone()).collect()
    }

    fn cell(&self, row: &str, column: Column) -> String {
        self.cells
            .get(&(row.to_string(), column))
            .map_or("-".to_string(), |it| format!("{}/{}", it.passed, it.passed + it.failed))
    }

    /// Writes `docs/compat.md`; `all` is the whole form, part of which may not have been run.
    pub(crate) fn write(&self, all: &[Case], minutes: Option<u64>) -> Lab<()> {
        let path = project::root().join("docs/compat.md");
        at(&path, std::fs::write(&path, self.document(all, minutes)?))
    }

    fn document(&self, all: &[Case], minutes: Option<u64>) -> Lab<String> {
        let date = output_of(Command::new("date").args(["-u", "+%F"]))?;
        let mdadm = crate::programs::packages::find("mdadm").map_or("mdadm".into(), std::path::PathBuf::into_os_string);
        // Some versions of mdadm print theirs to standard error.
        let said = Command::new(mdadm).arg("--version").output();
        let said = said.map(|said| [said.stdout, said.stderr].concat()).unwrap_or_default();
        let mdadm = String::from_utf8_lossy(&said).trim().to_string();
        let kernels: Vec<&str> = self.kernels.iter().map(String::as_str).collect();
        let minutes = minutes.map_or(String::new(), |minutes| format!(" {minutes}"));
        let ran = all.iter().filter(|case| self.ran.contains(&case.id)).count();
        let total = self
            .cells
            .values()
            .fold(Tally::default(), |sum, it| Tally { passed: sum.passed + it.passed, failed: sum.failed + it.failed });
        let mut text = [INTRODUCTION, MDADM_TESTS].concat();
        let _ = write!(
            text,
            "\n## The last run\n\nWritten by `cargo xtask vm matrix --full{minutes}` on {}. Kernels: {}. mdadm, on the host \
             and in the guest: {mdadm}.\n\n{ran} of the {} arrays of the form were run: {} checks passed, {} failed.\n\n",
            date.trim(),
            kernels.join(", "),
            all.len(),
            total.passed,
            total.failed
        );
        let titles: Vec<&str> = COLUMNS.iter().map(|(_, title)| *title).collect();
        let _ = writeln!(text, "| array | arrays run | {} |", titles.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(COLUMNS.len() + 1));
        for row in self.rows() {
            let form: Vec<&Case> = all.iter().filter(|case| case.row() == row).collect();
            let ran = form.iter().filter(|case| self.ran.contains(&case.id)).count();
            let arrays = if form.is_empty() { "-".to_string() } else { format!("{ran} of {}", form.len()) };
            let cells: Vec<String> = COLUMNS.iter().map(|(column, _)| self.cell(&row, *column)).collect();
            let _ = writeln!(text, "| {row} | {arrays} | {} |", cells.join(" | "));
        }
        self.tell_failures(&mut text);
        self.tell_missing(&mut text, all);
        Ok(wrapped(&text))
    }

    fn tell_failures(&self, text: &mut String) {
        if !self.failures.is_empty() {
            text.push_str("\n## What failed\n\n");
            self.failures.iter().for_each(|what| text.push_str(&format!("- {what}\n")));
        }
    }

    fn tell_missing(&self, text: &mut String, all: &[Case]) {
        let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for case in all.iter().filter(|case| !self.ran.contains(&case.id)) {
            missing.entry(case.row()).or_default().push(format!("{}×{}", case.members, case.metadata));
        }
        text.push_str("\n## Of this form not run\n\n");
        if missing.is_empty() {
            text.push_str("Nothing: all of it was run.\n");
            return;
        }
        text.push_str("Members × metadata:\n\n");
        for (row, cases) in missing {
            let _ = writeln!(text, "- {row}: {}", cases.join(", "));
        }
    }
}

const INTRODUCTION: &str = "\
# The real md driver against uraid

The full matrix: a virtual machine boots Debian's kernel with its md driver and Debian's mdadm, and arrays go both
ways. Linear arrays are run on the Debian 12 kernel, the last one that has the level; all others on Debian 13's, which is
Linux 6.12. `cargo xtask vm matrix`, and each form of it, runs on Debian's newest kernel with `--linux-newest`: on 7.2.13 all
checks of the first pass. `cargo xtask vm matrix --short` is a raid1, a raid10 of far copies, two raid5 and a raid6 of
this table, and three arrays of `--bitmap`.

Every array of the form has a level, a layout, 4 to 6 members and metadata 1.0, 1.1 or 1.2; chunks are 64 KiB where
there are chunks. Members are of 1.5 MiB; those of linear and raid0 are 1 MiB larger from slot to slot, so that raid0 has
several zones. Metadata 0.90 goes from the kernel to uraid only, with 4 members: uraid does not write it.
Where an array can miss members, every single one is left out, and every pair where it can miss two or more.

| column | a check is |
|---|---|
| examine | `mdadm --examine` of all members of an array that uraid created over garbage, resynced, filled over NBD, and discarded and punched in the middle of chunks: checksum correct, clean, each in its slot |
| md reads | the kernel assembles that array; sha256 of the whole content is equal, and the superblocks still record no logical block size, which kernels before 6.19 refuse |
| md check | the kernel had nothing to resync, and `mismatch_cnt` is 0 after `check` |
| md degraded | the kernel assembles it without a set of members; sha256 equal |
| serve | an array that the kernel created and filled, through `uraid serve --read-only` and NBD; sha256 equal |
| serve degraded | the same without a set of members |
| copy | the same array through `uraid copy`; sha256 equal |
| copy degraded | the same without a set of members |
| unchanged | after all that reading, the sha256 of every member is what it was before |

`canary` is the control: one of our arrays in every boot has a spoiled block, and `check` must find it.

Arrays that change hands while a member is missing are another command's: `cargo xtask vm matrix --handover` has a
raid1, raid5, raid6 and raid10 written without one member, by uraid and by the kernel in turn; the other side reads the
same bytes, and the kernel then rebuilds the member, `check`s to `mismatch_cnt` 0, and reads the same bytes without
another one. Here uraid is never given a disk for the slot, so that end is the kernel's in both directions.

`cargo xtask vm matrix --force`: uraid makes and fills an array of every redundant level, members are declared failed -
with and without a client that writes all the time - and uraid is killed, at once or after more writes. The kernel is
given all members with `mdadm --assemble --force --run`: it must leave the failed ones out and read every byte that was
written and flushed.

`cargo xtask vm matrix --rebuild`: one side begins to recover a member and the other ends it, at every redundant level,
with metadata 1.0, 1.1 and 1.2. The kernel begins - with the last member of a new raid4 or raid5, a spare, an added disk,
a replacement - and is stopped, or loses its power, half way. `uraid serve --read-only` reads the same bytes and changes
no byte of a member. Then:

- `uraid serve` recovers the member to the end while a client writes, and the kernel finds all members active.
- `uraid serve` recovers a part while a client writes, without what the kernel had recovered, and is stopped. The kernel
  goes on from the sector that uraid recorded. These members are of 128 MiB, the others of 2 MiB.
- Of an array that was whole, `uraid fail` fails a member, and the spare that the kernel had added is recovered in its
  slot. The kernel gets all of them, leaves the failed one out, and finds the others active.
- `uraid replace` copies a member that works to the kernel's spare, all of it or a part. The kernel leaves the old member
  out, or goes on with the copy from the sector that uraid recorded. uraid does the same with a replacement that the
  kernel began.
- The kernel is cut off in the first resync of a new array. uraid resyncs the rest, or a part of it without what the
  kernel had resynced, and is stopped; the kernel goes on from the sector that uraid recorded.

In the end the kernel `check`s to `mismatch_cnt` 0, and reads what was there before and what the client wrote, also
without slot 0. `--force` and `--rebuild` are run on Linux 6.1 and 6.12; some of each is part of `cargo xtask vm matrix`.

`cargo xtask vm matrix --killed`: on each of the kernels 6.12, 6.1 and Debian's newest, 20 arrays of each redundant level
and 20 raid5 with a log are left by uraid in the middle of a recovery or a replacement; raid1, raid10 of four layouts, raid4,
raid5 and raid6 with and without a bitmap. Five clients write all over the array, in requests of 512 bytes to several
chunks, and uraid is killed. A member of a mirror that recovers, and any that replaces another one, is a spare in what is
left, because the kernel takes it for a copy in a dirty array, or never copies the rest. The kernel then:

- starts it by `mdadm --assemble` without options, in half of the recoveries with the failed member given, too; reads every
  answered write at once, and again when it has recovered the member; `check`s to `mismatch_cnt` 0, and reads the same
  bytes without each neighbour of the slot. A sector in flight holds the old or the new data; on a raid5 with a log whose
  member recovers, anything. The parity of what was in flight, or is named by a log, is spoiled before, as if it had not been written.
- refuses a raid4, 5 or 6 without a log while a member recovers, as its own, and starts it with `--force`: then only sectors
  that share their parity with a write in flight may be wrong. A raid4 whose parity member recovers is started by neither,
  and the kernel's own is not: uraid starts it, or the kernel with `md_mod.start_dirty_degraded=1`, and loses nothing.
- goes on from the sector that uraid recorded where uraid was stopped while clients wrote, or was killed while the array was
  clean: four arrays of each kind on larger members.

After a crash in a replacement, the kernel has the new member as a spare and copies nothing to it until it is told to. Two
arrays of each kind are part of `cargo xtask vm matrix`. An engine that lists these members in their slots fails the form:
Linux 6.12 loses 4,800 of 28,672 sectors of a raid10, and leaves 2,688 sectors of a raid5's parity wrong.

An array of the kernel's own is not safe from this: while Linux 6.12 and 7.2 make a dirty raid1 of three consistent, they
read from a member in recovery that is in slot 0, and give what it held before; Linux 6.1 recovers first.

`cargo xtask vm matrix --bitmap`: arrays with a write-intent bitmap, made by uraid and by the kernel, at every redundant
level, with metadata 1.0, 1.1 and 1.2, on members of 32 MiB of which three writes have made at most four chunks of
64 KiB dirty. The side that makes the array right may move 4 MiB of a member, and moves about 0.5 MiB:

- The kernel loses its power after writes. `uraid serve` resyncs what the bits name, a client writes, and uraid is killed.
  The kernel resyncs what the bits name.
- `uraid fail` takes a member away, a client writes, and uraid is stopped. The kernel takes the member back with
  `--re-add`.
- The kernel fails and removes a member, writes, and is stopped. `uraid re-add` takes the member back.

Each side reads what the other has written. In the end the kernel `check`s to `mismatch_cnt` 0, and reads the same bytes
without slot 0.

`cargo xtask vm matrix --bad-blocks`: the kernel makes an array of every redundant level, with metadata 1.0, 1.1 and 1.2,
and lists two ranges of a member, which are then spoiled. uraid knows the list and reads none of these sectors; a client
writes, also over the first range, and another member cannot write eight sectors. The kernel then knows both lists as
uraid left them, reads what was written, and `check`s to `mismatch_cnt` 0. Run on Linux 6.1 and 6.12; a raid1 and a raid5
are part of `cargo xtask vm matrix`.

`cargo xtask vm matrix --ppl`: raid5 arrays with a partial parity log, made by uraid and by the kernel, in five layouts,
with 3 and 4 members and metadata 1.0, 1.1 and 1.2. `mdadm --examine` has no complaint and uraid's text is the same; the
superblocks of both makers are equal but for ids, times, events and state. Five clients write at once, in requests of 512
bytes to several chunks, and are cut off:

- The kernel loses its power, while one member of each array is behind the others. `uraid serve` reads every answered
  write; clients write, and uraid is killed. It starts once more, moves little of a member, and is killed again. After
  each kill the parity of rows that the logs name is spoiled, as if it had not been written.
- The kernel reads every answered write, `check`s to `mismatch_cnt` 0, writes, and loses its power again.
- `uraid serve` reads every answered write, and stops. The kernel does too, and `check`s to `mismatch_cnt` 0.

In half of the arrays a member is lost with each crash, another one each time. uraid starts without it and needs no
`--force`, the kernel starts with `mdadm --assemble --run`; each recovers the member before the next crash. Only sectors
that were in flight may hold something else. Run on Linux 6.12, every fifth array also on 6.1; two arrays are part of
`cargo xtask vm matrix`.

`cargo xtask vm matrix --day`: an XFS on a raid6 is written by the real binary while members fail, are recovered, removed,
added and taken back, a check and a repair run, and uraid is killed in each of these. The kernel then finds nothing to
recover, the bitmap, and `mismatch_cnt` 0. Both forms are run on Linux 6.12, the first also on 6.1; some of the first and
all of the second is part of `cargo xtask vm matrix`.

`cargo xtask vm matrix --reshape`: the kernel reshapes an array - more or fewer members, another chunk, layout or level -
and is stopped, or loses its power, half way, after writes on both sides of the position. `uraid copy` must read the same
bytes and change no byte of a member. This form has not passed as a whole yet: the guest's mdadm wants a backup file for
some reshapes, and an emulated one is hard to stop half way.

Not in the form: raid5's three `ddf` names (mdadm 4.2 makes of them the layouts of other names), raid0 with metadata
0.90 and unequal members, raid10's improved far sets (mdadm 4.2 makes none), more than two members missing, chunks of
other sizes, external bitmaps and journals.
";

/// The section about mdadm's test suite.
const MDADM_TESTS: &str = include_str!("mdadm_tests.md");

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    #[test]
    fn the_committed_document_has_the_sections_that_no_run_changes() {
        let committed =
            std::fs::read_to_string(project::root().join("docs/compat.md")).expect("it is in the repository");
        assert!(
            committed.starts_with(&wrapped(&[INTRODUCTION, MDADM_TESTS].concat())),
            "docs/compat.md is not from this source"
        );
    }

    #[test]
    fn the_document_names_what_was_not_run() {
        let all = cases::full();
        let mut results = Results::default();
        results.add(&all[0], Column::WeServe, Ok(()));
        let mut text = String::new();
        results.tell_missing(&mut text, &all);
        assert!(text.contains("- raid6 ddf-N-continue: "));
        let Case { members, metadata, .. } = &all[0];
        let row = text.lines().find(|line| line.starts_with(&format!("- {}:", all[0].row()))).expect("others are left");
        assert!(!row.contains(&format!("{members}×{metadata}")), "{row}");
    }
}
