//! The real md driver against uraid, both ways, every level that the kernel has.
//! Owns: the arrays, the order of the work, the table of results. Not here: how anything runs (`host`, `machine`).
//! Invariant: one boot does it all; a check that did not run has failed.
//!
//! Ours for the kernel: `uraid create` over members full of garbage, first resync, random data over NBD, stop,
//! `mdadm --examine`; in the guest assembled, compared, `check`ed, and read again without every tolerated set of members.
//! The kernel's for us: created and filled in the guest; on the host served read-only, whole and without every such set.

use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Machine, Scratch};
use super::{Lab, LabError, at, lab_error, output_of};
use crate::packages;
use crate::stage::Tally;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Some 240 rows of 64 KiB chunks: several turns of every layout.
const MEMBER_BYTES: u64 = 16 << 20;

/// What the guest does; it prints facts as `fact NAME KEY VALUE`.
const SCRIPT: &str = include_str!("../../../../tests/vm/matrix.sh");

/// A block of its second member is spoiled on the way to the guest: a kernel that finds no mismatch there proves nothing.
const CANARY: Case = Case { name: "canary", level: "5", layout: "", members: 3, tolerates: 1 };

/// One array of the matrix; `name` is at most 14 characters, a disk's serial has 20.
struct Case {
    name: &'static str,
    level: &'static str,
    layout: &'static str,
    members: usize,
    tolerates: usize,
}

const CASES: &[Case] = &[
    Case { name: "raid0", level: "0", layout: "", members: 3, tolerates: 0 },
    Case { name: "raid1", level: "1", layout: "", members: 2, tolerates: 1 },
    Case { name: "raid10-n2", level: "10", layout: "n2", members: 4, tolerates: 1 },
    Case { name: "raid10-f2", level: "10", layout: "f2", members: 4, tolerates: 1 },
    Case { name: "raid10-o2", level: "10", layout: "o2", members: 4, tolerates: 1 },
    Case { name: "raid4", level: "4", layout: "", members: 4, tolerates: 1 },
    Case { name: "raid5", level: "5", layout: "", members: 4, tolerates: 1 },
    Case { name: "raid6", level: "6", layout: "", members: 5, tolerates: 2 },
];

impl Case {
    fn members(&self, folder: &Path, maker: &str) -> Vec<PathBuf> {
        (0..self.members).map(|index| folder.join(format!("{maker}-{}-{index}", self.name))).collect()
    }

    /// Every set of members that the level can miss, but for the empty one.
    fn losses(&self) -> Vec<Vec<usize>> {
        match self.tolerates {
            0 => Vec::new(),
            1 => (0..self.members).map(|lost| vec![lost]).collect(),
            _ => (0..self.members).flat_map(|a| (a + 1..self.members).map(move |b| vec![a, b])).collect(),
        }
    }
}

/// The columns of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Examine,
    TheirWhole,
    Check,
    TheirDegraded,
    OurWhole,
    OurDegraded,
}

const COLUMNS: &[(Column, &str)] = &[
    (Column::Examine, "examine"),
    (Column::TheirWhole, "md reads"),
    (Column::Check, "md check"),
    (Column::TheirDegraded, "md reads less"),
    (Column::OurWhole, "we read"),
    (Column::OurDegraded, "we read less"),
];

/// Every check that was made, and what the failed ones found.
#[derive(Default)]
struct Results {
    cells: BTreeMap<(&'static str, Column), Tally>,
    failures: Vec<String>,
}

impl Results {
    fn add(&mut self, case: &Case, column: Column, result: Result<(), String>) {
        let tally = self.cells.entry((case.name, column)).or_default();
        match result {
            Ok(()) => tally.passed += 1,
            Err(what) => {
                tally.failed += 1;
                self.failures.push(format!("{}: {what}", case.name));
            }
        }
    }

    fn print(&self) -> Tally {
        print!("{:<12}", "");
        COLUMNS.iter().for_each(|(_, title)| print!("{title:>15}"));
        println!();
        let mut sum = Tally::default();
        for case in CASES.iter().chain([&CANARY]) {
            print!("{:<12}", case.name);
            for (column, _) in COLUMNS {
                let cell = self.cells.get(&(case.name, *column)).copied();
                print!("{:>15}", cell.map_or("-".to_string(), |it| format!("{}/{}", it.passed, it.passed + it.failed)));
                sum.passed += cell.unwrap_or_default().passed;
                sum.failed += cell.unwrap_or_default().failed;
            }
            println!();
        }
        self.failures.iter().for_each(|what| println!("FAILED {what}"));
        sum
    }
}

/// Runs the whole matrix.
pub(crate) fn run() -> Lab<Tally> {
    let uraid = host::uraid()?;
    let scratch = Scratch::new("uraid-matrix")?;
    let folder = scratch.path.as_path();
    let mut results = Results::default();
    let mut ours = BTreeMap::new();
    for case in CASES {
        let made = make_ours(&uraid, folder, case);
        results.add(
            case,
            Column::Examine,
            made.as_ref().map_err(LabError::to_string).and_then(|_| examine(folder, case)),
        );
        ours.insert(case.name, made.ok());
    }
    make_ours(&uraid, folder, &CANARY).and_then(|_| spoil(&CANARY.members(folder, "u")[1]))?;
    let facts = boot(folder)?;
    let canary = match facts.get(&(CANARY.name.to_string(), "ours-mismatches".to_string())).map(String::as_str) {
        Some("0") | None => Err("the kernel's check did not see the spoiled block".to_string()),
        Some(_) => Ok(()),
    };
    results.add(&CANARY, Column::Check, canary);
    for case in CASES {
        judge_guest(case, &facts, ours[case.name].as_deref(), &mut results);
        read_theirs(&uraid, folder, case, &facts, &mut results);
    }
    Ok(results.print())
}

/// Creates and fills one of our arrays; returns the sha256 of its whole content.
fn make_ours(uraid: &Path, folder: &Path, case: &Case) -> Lab<String> {
    let members = case.members(folder, "u");
    for member in &members {
        host::random_image(member, MEMBER_BYTES)?;
    }
    let mut create = Command::new(uraid);
    create.args(["create", "--level", case.level, "--raid-devices", &case.members.to_string(), "--name", case.name]);
    if !case.layout.is_empty() {
        create.args(["--layout", case.layout]);
    }
    if case.level != "1" {
        create.args(["--chunk", "64K"]);
    }
    output_of(create.args(&members))?;
    let served = Served::start(uraid, folder, &[], &members)?;
    // Part of the array is written, the rest keeps what the first resync made of the garbage.
    let (data, whole) = (folder.join("data"), folder.join("whole"));
    let data_members = (case.members - case.tolerates).max(1) as u64;
    host::random_image(&data, MEMBER_BYTES / 2 * data_members / if case.level == "10" { 2 } else { 1 } + 512 * 77)?;
    host::nbdcopy(&data.display().to_string(), &served.uri)?;
    host::nbdcopy(&served.uri, &whole.display().to_string())?;
    served.stop()?;
    let (wrote, read) = (at(&data, std::fs::read(&data))?, at(&whole, std::fs::read(&whole))?);
    if !read.starts_with(&wrote) {
        return lab_error("what was written over NBD is not what was read");
    }
    host::sha256(&whole)
}

/// Overwrites one block in the middle of the data.
fn spoil(member: &Path) -> Lab<()> {
    let file = at(member, std::fs::OpenOptions::new().write(true).open(member))?;
    at(member, file.write_all_at(&[0x5a; 4096], MEMBER_BYTES / 2))
}

/// Debian's mdadm on our members: no complaint, clean, and each in the slot that it was listed for.
fn examine(folder: &Path, case: &Case) -> Result<(), String> {
    let Some(mdadm) = packages::find("mdadm") else { return Err("mdadm is missing".to_string()) };
    for (slot, member) in case.members(folder, "u").iter().enumerate() {
        let text = output_of(Command::new(&mdadm).arg("--examine").arg(member)).map_err(|error| error.to_string())?;
        let role = format!("Active device {slot}");
        for (key, wanted) in [("Checksum", "correct"), ("State", "clean"), ("Device Role", role.as_str())] {
            let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(key)?.trim().strip_prefix(": "));
            if !line.is_some_and(|line| line.contains(wanted)) {
                return Err(format!("mdadm --examine, member {slot}: {key} is {line:?}, not {wanted}"));
            }
        }
    }
    Ok(())
}

type Facts = BTreeMap<(String, String), String>;

/// One boot: the kernel reads ours, and makes its own.
fn boot(folder: &Path) -> Lab<Facts> {
    let mut machine = Machine {
        release: Release::Trixie,
        disks: Vec::new(),
        script: SCRIPT.to_string(),
        arguments: Vec::new(),
        seconds_max: 420,
    };
    for case in CASES.iter().chain([&CANARY]) {
        let Case { name, level, layout, members, tolerates } = case;
        machine.arguments.push(format!("{name}:{level}:{layout}:{members}:{tolerates}"));
        let theirs = if case.name == CANARY.name { Vec::new() } else { case.members(folder, "k") };
        for image in &theirs {
            host::empty_image(image, MEMBER_BYTES)?;
        }
        for image in theirs.into_iter().chain(case.members(folder, "u")).filter(|image| image.is_file()) {
            machine.disks.push(Disk { image, is_read_only: false });
        }
    }
    let mut facts = Facts::new();
    let status = machine.run(&mut |line| match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["fact", name, key, value] => {
            facts.insert(((*name).to_string(), (*key).to_string()), (*value).to_string());
        }
        _ => println!("guest: {line}"),
    })?;
    if status == 0 { Ok(facts) } else { lab_error(format!("the guest's script ended with {status}")) }
}

fn fact(facts: &Facts, case: &Case, key: &str, wanted: &str) -> Result<(), String> {
    match facts.get(&(case.name.to_string(), key.to_string())) {
        Some(found) if found == wanted => Ok(()),
        Some(found) => Err(format!("{key} in the guest is {found}, not {wanted}")),
        None => Err(format!("the guest says nothing about {key}")),
    }
}

/// What the kernel found in our array.
fn judge_guest(case: &Case, facts: &Facts, sha: Option<&str>, results: &mut Results) {
    let sha = sha.unwrap_or("made");
    results.add(case, Column::TheirWhole, fact(facts, case, "ours-sha", sha));
    if case.tolerates > 0 {
        // It took the array for clean: nothing was to be resynced.
        results.add(case, Column::Check, fact(facts, case, "ours-action", "idle"));
        results.add(case, Column::Check, fact(facts, case, "ours-mismatches", "0"));
    }
    for lost in case.losses() {
        results.add(case, Column::TheirDegraded, fact(facts, case, &format!("ours-without-{}", joined(&lost)), sha));
    }
}

/// The kernel's array, read through us.
fn read_theirs(uraid: &Path, folder: &Path, case: &Case, facts: &Facts, results: &mut Results) {
    let key = (case.name.to_string(), "theirs-sha".to_string());
    let wanted = facts.get(&key).map_or("made", String::as_str);
    let read = |lost: &[usize]| {
        let found = read_through_us(uraid, folder, case, lost).map_err(|error| error.to_string())?;
        let without = joined(lost);
        if found == wanted {
            Ok(())
        } else {
            Err(format!("ours of the kernel's array without [{without}] is {found}, not {wanted}"))
        }
    };
    results.add(case, Column::OurWhole, read(&[]));
    for lost in case.losses() {
        results.add(case, Column::OurDegraded, read(&lost));
    }
}

fn read_through_us(uraid: &Path, folder: &Path, case: &Case, lost: &[usize]) -> Lab<String> {
    let members: Vec<PathBuf> = case
        .members(folder, "k")
        .into_iter()
        .enumerate()
        .filter_map(|(slot, member)| (!lost.contains(&slot)).then_some(member))
        .collect();
    let options: &[&str] = if lost.is_empty() { &["--read-only"] } else { &["--read-only", "--run"] };
    let served = Served::start(uraid, folder, options, &members)?;
    let whole = folder.join("whole");
    host::nbdcopy(&served.uri, &whole.display().to_string())?;
    served.stop()?;
    host::sha256(&whole)
}

fn joined(slots: &[usize]) -> String {
    slots.iter().map(usize::to_string).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raid6_of_five_can_lose_ten_pairs() {
        let raid6 = CASES.iter().find(|case| case.name == "raid6").expect("in the matrix");
        assert_eq!(raid6.losses().len(), 10);
        assert_eq!(joined(&raid6.losses()[9]), "3-4");
    }
}
