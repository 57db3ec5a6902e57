//! The VM tests: a real Linux kernel with the real md driver, in QEMU.
//! Owns: the commands `vm run`, `vm golden` and `vm matrix`, their errors. Not here: how it works (the modules below).
//! Called by the program and by `runs`.

mod bad_blocks;
mod bitmap;
mod cases;
mod compat;
mod day;
mod force;
mod golden;
mod golden_text;
mod handover;
mod host;
mod initramfs;
mod kernel;
mod killed;
mod load;
mod machine;
mod matrix;
mod mount;
mod ppl;
mod rebuild;
mod recovery;
mod reshape;
mod superblock;
pub(crate) mod systemd;
mod writers;

use crate::programs::stage::Tally;
use kernel::Release;
use machine::{Disk, Machine};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Why a VM run failed, with the facts. A problem of the VM setup, never a verdict about an array.
#[derive(Debug)]
pub(crate) enum LabError {
    /// Any other error.
    Trouble(String),
    /// A guest was ended by its time limit, or by a crash of QEMU.
    Hung(String),
}

impl fmt::Display for LabError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Trouble(what) | LabError::Hung(what) => out.write_str(what),
        }
    }
}

type Lab<T> = Result<T, LabError>;

fn lab_error<T>(what: impl Into<String>) -> Lab<T> {
    Err(LabError::Trouble(what.into()))
}

/// Adds the path to the system's error.
fn at<T>(path: &Path, result: std::io::Result<T>) -> Lab<T> {
    result.map_err(|error| LabError::Trouble(format!("{}: {error}", path.display())))
}

/// Runs a command to its end and returns its output; an exit code other than 0 is an error with the end of its output.
fn output_of(command: &mut Command) -> Lab<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| LabError::Trouble(format!("cannot run {name}: {error}")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let last_words = String::from_utf8_lossy(&done.stderr);
    lab_error(format!("{name} {}: {}: {}", words.join(" "), done.status, last_words.trim()))
}

/// `vm run [KERNEL] [--disk IMAGE[,ro]]... SCRIPT [ARG]...`; the guest script's exit status becomes ours.
pub(crate) fn run_command(words: &[&str]) -> ExitCode {
    let (mut disks, mut rest) = (Vec::new(), words);
    let chosen = rest.first().and_then(|word| Release::named(word));
    rest = if chosen.is_some() { &rest[1..] } else { rest };
    while let ["--disk", spec, others @ ..] = rest {
        let (image, is_read_only) = spec.strip_suffix(",ro").map_or((*spec, false), |image| (image, true));
        disks.push(Disk { image: PathBuf::from(image), is_read_only });
        rest = others;
    }
    let [script, arguments @ ..] = rest else {
        eprintln!("vm run needs a script; see `cargo xtask help`");
        return ExitCode::from(2);
    };
    let done = at(Path::new(script), std::fs::read_to_string(script)).and_then(|script| {
        let arguments = arguments.iter().map(|word| (*word).to_string()).collect();
        let release = chosen.unwrap_or(Release::USUAL);
        Machine { release, disks, script, arguments, seconds_max: 600, programs: Vec::new() }
            .run(&mut |line| println!("{line}"))
    });
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("vm: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs it once more if the guest hung. Emulated processors occasionally lose a timer, and the guest then hangs for
/// good, or QEMU crashes; a second failure counts.
fn twice<T>(what: &str, run: impl Fn() -> Lab<T>) -> Lab<T> {
    match run() {
        Err(LabError::Hung(why)) => {
            println!("vm: once more from the start, {what}: {why}");
            run()
        }
        done => done,
    }
}

/// One check: prints its title, and the result if it differs from the expected one.
fn checked(title: &str, found: Lab<String>, wanted: &str) -> Tally {
    let found = found.unwrap_or_else(|error| error.to_string());
    let holds = found == wanted;
    if holds {
        println!("{title}")
    } else {
        println!("FAILED {title}: {found}, not {wanted}")
    }
    Tally::one(holds)
}

/// Fetches the kernel of the short form ahead of the first machine. Whether it is there.
pub(crate) fn fetch_kernel() -> bool {
    match kernel::kernel(Release::USUAL) {
        Ok(_) => true,
        Err(error) => {
            println!("vm: {error}");
            false
        }
    }
}

/// `vm matrix --short`, as a stage of a check run.
pub(crate) fn matrix_short() -> Tally {
    matrix_short_on(Release::USUAL)
}

/// A few arrays in both directions and a few with a bitmap: what shows most in half a minute.
fn matrix_short_on(release: Release) -> Tally {
    let (whole, changed) = std::thread::scope(|scope| {
        let whole = scope.spawn(|| matrix::run_few(release));
        let changed = bitmap::run_short(release);
        (whole.join().expect("it answers with an error"), changed)
    });
    let mut sum = tally_of(whole);
    sum.add(tally_of(changed));
    sum
}

/// Some of every form, on one kernel; linear on the last one that has it.
fn matrix_on(release: Release) -> Tally {
    let mut sum = tally_of(matrix::run(release));
    // Two processors: one half creates its arrays while the guest of the other half works.
    let (forced, rebuilt) = std::thread::scope(|scope| {
        let forced = scope.spawn(|| force::run_short(release));
        let rebuilt = rebuild::run_short(release);
        (forced.join().expect("it answers with an error"), rebuilt)
    });
    sum.add(tally_of(forced));
    sum.add(tally_of(rebuilt));
    sum.add(tally_of(bitmap::run_short(release)));
    sum.add(tally_of(bad_blocks::run_short(release)));
    sum.add(tally_of(ppl::run_short(release)));
    sum.add(tally_of(killed::run_short(release)));
    sum.add(tally_of(day::run(release)));
    sum.add(tally_of(mount::run(release)));
    sum
}

fn tally_of(outcome: Lab<Tally>) -> Tally {
    outcome.unwrap_or_else(|error| {
        println!("vm: {error}");
        Tally::one(false)
    })
}

const FORMS: &str = "--short, --full [MINUTES], --bad-blocks, --bitmap, --day, --handover, --force, --killed [SEED [ARRAY]...], --mount, --ppl, --rebuild, \
                     --reshape, or nothing; each also with --linux-6.1, --linux-6.12 or --linux-newest";

/// `vm matrix [FORM] [KERNEL]`, by itself. Without KERNEL a form runs on the kernels that its module names. After MINUTES the
/// full form starts no other machine.
pub(crate) fn matrix_command(words: &[&str]) -> bool {
    let kernels: Vec<Release> = words.iter().filter_map(|word| Release::named(word)).collect();
    let words: Vec<&str> = words.iter().copied().filter(|word| Release::named(word).is_none()).collect();
    if kernels.len() > 1 {
        println!("vm matrix runs on one kernel at a time");
        return false;
    }
    let Some(tally) = form(&words, kernels.first().copied()) else { return false };
    println!("{} passed, {} failed", tally.passed, tally.failed);
    tally.failed == 0 && tally.passed > 0
}

/// Every form, each on its own kernels, and the short one on the newest: whether all passed, and what was counted.
pub(crate) fn everything() -> (bool, String) {
    let forms: [&[&str]; 11] = [
        &[],
        &["--full"],
        &["--bad-blocks"],
        &["--bitmap"],
        &["--handover"],
        &["--force"],
        &["--killed"],
        &["--ppl"],
        &["--rebuild"],
        &["--reshape"],
        &["--short"],
    ];
    let mut sum = Tally::default();
    for words in forms {
        let release = (words == ["--short"]).then_some(Release::Sid);
        println!("=== vm matrix {}", words.join(" "));
        sum.add(form(words, release).unwrap_or(Tally::one(false)));
    }
    (sum.failed == 0, format!("{} passed, {} failed", sum.passed, sum.failed))
}

/// One form. `None`: there is no such form, as was said.
fn form(words: &[&str], chosen: Option<Release>) -> Option<Tally> {
    let one = chosen.unwrap_or(Release::USUAL);
    let tally = match words {
        [] => matrix_on(one),
        ["--short"] => matrix_short_on(one),
        ["--full", rest @ ..] => {
            let minutes = rest.first().map(|word| word.parse::<u64>());
            let (true, Ok(minutes)) = (rest.len() <= 1, minutes.transpose()) else {
                println!("vm matrix --full takes a number of minutes, or nothing");
                return None;
            };
            tally_of(matrix::run_full(chosen, minutes))
        }
        ["--bad-blocks"] => bad_blocks::run_full(chosen),
        ["--bitmap"] => bitmap::run_full(chosen),
        ["--day"] => tally_of(day::run(one)),
        ["--handover"] => tally_of(handover::run(one)),
        ["--force"] => force::run_full(chosen),
        ["--killed", rest @ ..] => {
            let seed = rest.first().map(|word| word.parse::<u64>()).transpose();
            let Ok(seed) = seed else {
                println!("vm matrix --killed takes a number and names of arrays, or nothing");
                return None;
            };
            killed::run_full(chosen, seed.unwrap_or(0), rest.get(1..).unwrap_or_default())
        }
        ["--mount"] => tally_of(mount::run(one)),
        ["--ppl"] => ppl::run_full(chosen),
        ["--rebuild"] => rebuild::run_full(chosen),
        ["--reshape"] => reshape::run_full(chosen),
        _ => {
            println!("vm matrix takes {FORMS}");
            return None;
        }
    };
    Some(tally)
}

/// `vm golden [NAME]...`: makes the golden files anew.
pub(crate) fn golden_command(names: &[&str]) -> bool {
    match golden::run(names) {
        Ok(()) => true,
        Err(error) => {
            println!("vm: {error}");
            false
        }
    }
}
