//! The check runs: `ci` for every commit, `test` for every merge. What takes long is `deep`.
//! Owns: which stages there are and in which order, the record of their seconds. Not here: how a stage runs and is counted
//! (`stage`), how test programs share the machine (`runner`).
//! Invariant: one dev build and one release build; nothing is built twice, but the simulator for mistakes of the engine.

use crate::checks::{floors, rooms, tidy};
use crate::documents::proof_page::{self, Region};
use crate::mutants::canaries;
use crate::programs::stage::{Report, Tally};
use crate::programs::test_program::{TestProgram, documentation_tests};
use crate::programs::{packages, runner};
use crate::project::{self, cargo, target};
use crate::proofs::{parsers, prove};
use crate::runs::{deep, demo};
use crate::vm;
use std::process::Command;

/// Recorded runs that are kept.
const RECORDS_MAX: usize = 30;

/// `[--record]`: what every commit must pass. Whether all passed.
pub(crate) fn ci(words: &[&str]) -> bool {
    let Some(is_recorded) = parse("ci", words) else { return false };
    let mut report = Report::default();
    static_checks(&mut report);
    tests(&mut report, &[]);
    finish(&report, "ci", is_recorded)
}

/// `[--record]`: what every merge must pass, on a fresh machine. Packages come beside the static checks; then `ci`'s tests
/// with the clients required, release runs, and the VM's short form.
pub(crate) fn everything(words: &[&str]) -> bool {
    let Some(is_recorded) = parse("test", words) else { return false };
    let mut report = Report::default();
    // They come over a network, and no static check needs more of them than the linker.
    let has_linker = packages::find("cc").is_some();
    let fetched = std::thread::spawn(|| packages::ensure() && vm::fetch_kernel());
    if has_linker {
        static_checks(&mut report);
    }
    report.stage("packages, guest's kernel", || Tally::one(fetched.join().unwrap_or(false)));
    if !has_linker {
        static_checks(&mut report);
    }
    // With this set, tests that need a foreign program fail instead of skipping.
    tests(&mut report, &[("URAID_CLIENTS", "required")]);
    // `prove` builds the simulator: its features are others than those of the binary.
    let binaries = ["build", "--release", "--bins", "-p", "uraid", "-p", "uraid-blackbox"];
    report.command("release build", cargo(&binaries));
    // Every layout, every erasure, crash images, long seeds, the museum, kill -9: each with its figure.
    report.stage("prove, a minute", || Tally::one(prove::run(&["--time", "60s", "--json"])));
    // Deliberate mistakes of the engine, in the copy that `prove` has built: each must be found.
    report.command("simulator, canaries", canaries::self_check("canaries"));
    report.stage("equal traces, twice", equal_traces);
    report.stage("readers of mdadm's words, short", || parsers::run(true));
    report.stage("demo", || Tally::one(demo::run_built("release")));
    report.stage("vm matrix, short", vm::matrix_short);
    deep::print_age();
    finish(&report, "test", is_recorded)
}

/// Whether `--record` is given. `None`: the words are wrong, as was said.
fn parse(command: &str, words: &[&str]) -> Option<bool> {
    match words {
        [] => Some(false),
        ["--record"] => Some(true),
        _ => {
            eprintln!("cargo xtask {command} [--record]");
            None
        }
    }
}

/// Notes the seconds if they are wanted, and prints the table with the sum. Whether nothing failed.
fn finish(report: &Report, command: &str, is_recorded: bool) -> bool {
    let noted = if is_recorded { record(report, command) } else { Ok(()) };
    if let Err(error) = &noted {
        println!("the seconds are not recorded: {error}");
    }
    report.finish() && noted.is_ok()
}

/// Adds a row to `docs/proof.md`.
fn record(report: &Report, command: &str) -> Result<(), String> {
    let stages = report.seconds();
    let sum: f64 = stages.iter().map(|(_, seconds)| seconds).sum();
    let each: Vec<String> = stages.iter().map(|(name, seconds)| format!("{name} {seconds:.0}")).collect();
    let commit = proof_page::commit().unwrap_or_else(|| "unknown".to_string());
    let cells = [
        format!("`{command}`"),
        proof_page::today(),
        commit,
        proof_page::machine(),
        format!("{sum:.0}"),
        each.join("; "),
    ];
    let mut rows = proof_page::rows(Region::Ci);
    rows.push(cells.to_vec());
    let first = rows.len().saturating_sub(RECORDS_MAX);
    proof_page::write(Region::Ci, &rows[first..])
}

/// All findings of floors, printed. Whether there were none.
pub(crate) fn floors() -> bool {
    let (mut findings, between_crates) = floors::check(&project::root());
    let (inside, among_files) = rooms::check(&project::root());
    findings.extend(inside);
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("floors: {between_crates} imports of crates, {among_files} of files, {} findings", findings.len());
    findings.is_empty()
}

/// All findings of tidy, printed. Whether there were none.
pub(crate) fn tidy() -> bool {
    let (findings, files) = tidy::check(&project::root());
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("tidy: {files} files, {} findings", findings.len());
    findings.is_empty()
}

fn static_checks(report: &mut Report) {
    report.command("fmt", cargo(&["fmt", "--all", "--check"]));
    report.stage("floors", || Tally::one(floors()));
    report.stage("tidy", || Tally::one(tidy()));
    report
        .command("clippy", cargo(&["clippy", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"]));
}

/// All tests in the dev profile; before them seeds and crash images by the simulator of that build.
fn tests(report: &mut Report, environment: &[(&str, &str)]) {
    let mut programs = Vec::new();
    report.stage("build of the tests", || match TestProgram::build(cargo(&[]), &["--workspace"]) {
        Ok(built) => {
            programs = built;
            Tally::one(!programs.is_empty())
        }
        Err(what) => {
            println!("{what}");
            Tally::one(false)
        }
    });
    // They find most in a second: `cargo xtask mutants --stages`.
    let simulator = |words: &str| {
        let mut command = Command::new(target().join("debug/uraid-sim"));
        command.args(words.split(' '));
        command
    };
    report.command("400 seeds", simulator("--seeds 0..400"));
    report.command("30 large seeds", simulator("--swarm --seeds 0..30"));
    report.command("crash images, 20 s", simulator("--crash-images --short --time 20s"));
    report.stage("tests", || runner::run(std::mem::take(&mut programs), environment, &runner::logs()));
    report.command("tests in documentation", documentation_tests());
}

/// The first 100 seeds leave the same trace in a dev build, in release, and in release again.
fn equal_traces() -> Tally {
    let traces = ["debug/uraid-sim", "release/uraid-sim", "release/uraid-sim"].map(|program| {
        let done = Command::new(target().join(program)).args(["--seeds", "0..100", "--hashes"]).output();
        done.map_or_else(|error| error.to_string(), |done| String::from_utf8_lossy(&done.stdout).into_owned())
    });
    let lines = traces[0].lines().count();
    let is_equal = lines >= 100 && traces.iter().all(|trace| *trace == traces[0]);
    println!("{lines} lines each, {}", if is_equal { "equal" } else { "NOT EQUAL" });
    Tally::one(is_equal)
}
