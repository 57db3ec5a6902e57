//! The real md driver against uraid, both ways.
//! Owns: the order of the work, what is compared. Not here: the arrays (`cases`), the table (`compat`), how anything
//! runs (`host`, `machine`).
//! Invariant: a check that did not run has failed; a member that is read is not changed.
//!
//! From us to the kernel: `uraid create` over members full of garbage, first resync, random data over NBD, stop,
//! `mdadm --examine`; in the guest assembled, compared, `check`ed, and read again without every tolerated set of members.
//! From the kernel to us: created and filled in the guest; on the host served read-only and copied, with all members and
//! without every such set.

use super::cases::{self, Batch, Case};
use super::compat::{Column, Results};
use super::host::{self, Served};
use super::kernel::Release;
use super::machine::{Disk, Facts, Machine, Scratch};
use super::{Lab, LabError, at, output_of, superblock, twice};
use crate::programs::packages;
use crate::programs::stage::Tally;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What the guest does; it prints facts as `fact NAME KEY VALUE`.
const SCRIPT: &str = include_str!("../../../../tests/vm/matrix.sh");

/// A machine has two processors, but md works on one array at a time: two machines keep two cores busy.
const MACHINES: usize = 2;

/// Runs every level once.
pub(crate) fn run(release: Release) -> Lab<Tally> {
    let results = run_batches(cases::batches(cases::short(), release), None, &|_| Ok(()))?;
    Ok(results.print())
}

/// Runs a few arrays.
pub(crate) fn run_few(release: Release) -> Lab<Tally> {
    let results = run_batches(cases::batches(cases::few(), release), None, &|_| Ok(()))?;
    Ok(results.print())
}

/// Runs the full form and, unless a kernel was chosen, writes `docs/compat.md`; starts no further machine after this many
/// minutes.
pub(crate) fn run_full(chosen: Option<Release>, minutes: Option<u64>) -> Lab<Tally> {
    let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let all = cases::full();
    // After every machine, so that an interrupted run has recorded what it did.
    let batches = cases::batches(all.clone(), chosen.unwrap_or(Release::USUAL));
    let write = |results: &Results| if chosen.is_none() { results.write(&all, minutes) } else { Ok(()) };
    let results = run_batches(batches, until, &write)?;
    Ok(results.print())
}

fn run_batches(
    batches: Vec<Batch>,
    until: Option<Instant>,
    save: &(dyn Fn(&Results) -> Lab<()> + Sync),
) -> Lab<Results> {
    let uraid = host::uraid()?;
    let queue = Mutex::new(batches.into_iter());
    let results = Mutex::new(Results::default());
    std::thread::scope(|scope| {
        for _ in 0..MACHINES {
            scope.spawn(|| {
                loop {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        break;
                    }
                    let Some(batch) = queue.lock().expect("no thread panics while it holds the lock").next() else {
                        break;
                    };
                    let done = twice(&format!("{} arrays", batch.cases.len()), || run_batch(&uraid, &batch));
                    let done = done.unwrap_or_else(|error| {
                        let mut failed = Results::default();
                        let cases = batch.cases.iter();
                        cases.for_each(|case| failed.add(case, Column::TheirWhole, Err(error.to_string())));
                        failed
                    });
                    let mut sum = results.lock().expect("no thread panics while it holds the lock");
                    sum.merge(done);
                    if let Err(error) = save(&sum) {
                        println!("vm: {error}");
                    }
                }
            });
        }
    });
    Ok(results.into_inner().expect("no thread panics while it holds the lock"))
}

/// One boot's arrays, from their making to the last comparison.
fn run_batch(uraid: &Path, batch: &Batch) -> Lab<Results> {
    let scratch = Scratch::new("uraid-matrix")?;
    let folder = scratch.path.as_path();
    let mut results = Results::default();
    let mut ours = BTreeMap::new();
    for case in batch.cases.iter().filter(|case| case.is_ours_too()) {
        let made = make_ours(uraid, folder, case);
        let examined = made.as_ref().map_err(LabError::to_string).and_then(|_| examine(folder, case));
        results.add(case, Column::Examine, examined);
        ours.insert(case.id.as_str(), made.ok());
    }
    let canary = Case::canary();
    make_ours(uraid, folder, &canary)
        .and_then(|_| spoil(&canary.images(folder, "u")[1], canary.bytes - (256 << 10)))?;
    let facts = boot(folder, batch)?;
    let kernel = facts.get(&("guest".to_string(), "kernel".to_string()));
    results.kernels.extend(kernel.cloned());
    let saw = match facts.get(&(canary.id.clone(), "ours-mismatches".to_string())).map(String::as_str) {
        Some("0") | None => Err("the kernel's check did not see the spoiled block".to_string()),
        Some(_) => Ok(()),
    };
    results.add(&canary, Column::Check, saw);
    for case in &batch.cases {
        if let Some(sha) = ours.get(case.id.as_str()) {
            judge_guest(folder, case, &facts, sha.as_deref(), &mut results);
        }
        read_theirs(uraid, folder, case, &facts, &mut results)?;
    }
    Ok(results)
}

/// Creates and fills one of our arrays; returns the sha256 of its whole content.
fn make_ours(uraid: &Path, folder: &Path, case: &Case) -> Lab<String> {
    let members = case.images(folder, "u");
    for (slot, member) in members.iter().enumerate() {
        host::random_image(member, case.image_bytes(slot))?;
    }
    let mut create = Command::new(uraid);
    create.args(["create", "--level", case.level, "--raid-devices", &case.members.to_string(), "--name", &case.id]);
    create.args(["--metadata", case.metadata]);
    if !case.layout.is_empty() {
        create.args(["--layout", case.layout]);
    }
    if !matches!(case.level, "1" | "linear") {
        create.args(["--chunk", "64K"]);
    }
    output_of(create.args(&members))?;
    let served = Served::start(uraid, folder, &[], &members)?;
    // Part of the array is written, and some of that discarded; the rest keeps the garbage that the first resync made
    // consistent.
    served.fill_clear_and_stop(folder, case.data_bytes())
}

/// Overwrites one block in the middle of the data.
fn spoil(member: &Path, offset: u64) -> Lab<()> {
    let file = at(member, std::fs::OpenOptions::new().write(true).open(member))?;
    at(member, file.write_all_at(&[0x5a; 4096], offset))
}

/// Debian's mdadm on our members: no complaint, clean, and each in the slot that it was listed for.
fn examine(folder: &Path, case: &Case) -> Result<(), String> {
    let Some(mdadm) = packages::find("mdadm") else { return Err("mdadm is missing".to_string()) };
    for (slot, member) in case.images(folder, "u").iter().enumerate() {
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

/// One boot: the kernel reads ours, and makes its own.
fn boot(folder: &Path, batch: &Batch) -> Lab<Facts> {
    let canary = Case::canary();
    let mut machine = Machine {
        release: batch.release,
        disks: Vec::new(),
        script: SCRIPT.to_string(),
        arguments: Vec::new(),
        seconds_max: 600,
        programs: Vec::new(),
    };
    for case in batch.cases.iter().chain([&canary]) {
        let Case { id, level, layout, metadata, members, .. } = case;
        // The canary is checked, and not read without members.
        let tolerates = if case.is_canary() { 0 } else { case.tolerates };
        machine.arguments.push(format!("{id}:{level}:{layout}:{members}:{tolerates}:{metadata}"));
        let theirs = if case.is_canary() { Vec::new() } else { case.images(folder, "k") };
        for (slot, image) in theirs.iter().enumerate() {
            host::empty_image(image, case.image_bytes(slot))?;
        }
        for image in theirs.into_iter().chain(case.images(folder, "u")).filter(|image| image.is_file()) {
            machine.disks.push(Disk { image, is_read_only: false });
        }
    }
    machine.facts()
}

fn fact(facts: &Facts, case: &Case, key: &str, wanted: &str) -> Result<(), String> {
    match facts.get(&(case.id.clone(), key.to_string())) {
        Some(found) if found == wanted => Ok(()),
        Some(found) => Err(format!("{key} in the guest is {found}, not {wanted}")),
        None => Err(format!("the guest says nothing about {key}")),
    }
}

/// What the kernel found in our array.
fn judge_guest(folder: &Path, case: &Case, facts: &Facts, sha: Option<&str>, results: &mut Results) {
    let sha = sha.unwrap_or("made");
    let read = fact(facts, case, "ours-sha", sha);
    results.add(case, Column::TheirWhole, read.and_then(|()| suits_old_kernels(folder, case)));
    if case.tolerates > 0 {
        // The kernel considered the array clean and resynced nothing.
        let was_idle = fact(facts, case, "ours-action", "idle");
        results.add(case, Column::Check, was_idle.and_then(|()| fact(facts, case, "ours-mismatches", "0")));
    }
    for lost in case.losses() {
        results.add(case, Column::TheirDegraded, fact(facts, case, &format!("ours-without-{}", joined(&lost)), sha));
    }
}

/// A kernel that can record the logical block size of our array has not: older ones would not start it any more.
fn suits_old_kernels(folder: &Path, case: &Case) -> Result<(), String> {
    let images = case.images(folder, "u");
    let sizes = superblock::logical_block_sizes(case.metadata, images.iter().map(PathBuf::as_path));
    match sizes.map_err(|error| error.to_string())?.as_str() {
        "0" => Ok(()),
        sizes => Err(format!("the kernel recorded a logical block size: {sizes}")),
    }
}

/// The kernel's array, read through us; afterwards its members must be what they were.
fn read_theirs(uraid: &Path, folder: &Path, case: &Case, facts: &Facts, results: &mut Results) -> Lab<()> {
    let key = (case.id.clone(), "theirs-sha".to_string());
    let wanted = facts.get(&key).map_or("made", String::as_str);
    let images = case.images(folder, "k");
    let before: Vec<String> = images.iter().map(|image| host::sha256(image)).collect::<Lab<_>>()?;
    for lost in [Vec::new()].into_iter().chain(case.losses()) {
        let staying = images.iter().enumerate().filter(|(slot, _)| !lost.contains(slot));
        let staying: Vec<PathBuf> = staying.map(|(_, path)| path.clone()).collect();
        let served = if lost.is_empty() { Column::WeServe } else { Column::WeServeDegraded };
        let copied = if lost.is_empty() { Column::WeCopy } else { Column::WeCopyDegraded };
        for (column, found) in
            [(served, serve(uraid, folder, &staying, &lost)), (copied, copy(uraid, folder, &staying, &lost))]
        {
            let without = joined(&lost);
            results.add(
                case,
                column,
                match found {
                    Ok(found) if found == wanted => Ok(()),
                    Ok(found) => {
                        Err(format!("ours of the kernel's array without [{without}] is {found}, not {wanted}"))
                    }
                    Err(error) => Err(format!("the kernel's array without [{without}]: {error}")),
                },
            );
        }
    }
    let after: Vec<String> = images.iter().map(|image| host::sha256(image)).collect::<Lab<_>>()?;
    let unchanged = if after == before { Ok(()) } else { Err("reading changed a member".to_string()) };
    results.add(case, Column::Unchanged, unchanged);
    Ok(())
}

/// The sha256 of the array as a read-only server gives it.
fn serve(uraid: &Path, folder: &Path, members: &[PathBuf], lost: &[usize]) -> Lab<String> {
    let options: &[&str] = if lost.is_empty() { &["--read-only"] } else { &["--read-only", "--run"] };
    let served = Served::start(uraid, folder, options, members)?;
    let whole = folder.join("whole");
    host::nbdcopy(&served.uri, &whole.display().to_string())?;
    served.stop()?;
    host::sha256(&whole)
}

/// The sha256 of the array as `uraid copy` gives it.
fn copy(uraid: &Path, folder: &Path, members: &[PathBuf], lost: &[usize]) -> Lab<String> {
    let (copy, map) = (folder.join("copy"), folder.join("copy.map"));
    for old in [&copy, &map] {
        let _ = std::fs::remove_file(old);
    }
    let mut command = Command::new(uraid);
    command.arg("copy");
    if !lost.is_empty() {
        command.arg("--run");
    }
    output_of(command.args(members).arg(&copy))?;
    host::sha256(&copy)
}

fn joined(slots: &[usize]) -> String {
    slots.iter().map(usize::to_string).collect::<Vec<_>>().join("-")
}
