//! The check runs: `ci` for every commit, `test` for everything.
//! Owns: which stages there are and in which order. Not here: how a stage runs and is counted (`stage`).
//! Invariant: one dev build and one release build; nothing is built twice.

use crate::stage::{Report, Tally, run_counted};
use crate::{demo, floors, mutants, packages, project, prove, tidy, vm};
use std::path::PathBuf;
use std::process::Command;

/// The documentation is for contributors: it includes private items, and may link to them.
const DOC_LINTS: &str = "-D warnings -A rustdoc::private_intra_doc_links";

/// How cargo starts a test program. The many tests of the binary wait for slow members and for its servers, and compute
/// little, so on two processors four of them run at a time.
const RUNNER: &str = concat!(
    r#"target."cfg(all())".runner=["sh", "-c", "case $CARGO_PKG_NAME/$0 in uraid/*/suite-*) "#,
    r#"RUST_TEST_THREADS=4; export RUST_TEST_THREADS;; esac; exec \"$0\" \"$@\""]"#
);

/// fmt, floors, tidy, clippy, docs, tests. Whether all passed.
pub(crate) fn ci() -> bool {
    let mut report = Report::default();
    static_checks(&mut report);
    tests(&mut report, &[]);
    report.finish()
}

/// Everything, on a fresh machine: packages beside the static checks, then `ci`'s tests with the clients required, then
/// release runs and the VM.
pub(crate) fn everything() -> bool {
    let mut report = Report::default();
    // They come over a network, and no static check needs more of them than the linker.
    let has_linker = packages::find("cc").is_some();
    let fetched = std::thread::spawn(|| packages::ensure() && vm::fetch_kernels());
    if has_linker {
        static_checks(&mut report);
    }
    report.stage("packages, guests' kernels", || Tally::one(fetched.join().unwrap_or(false)));
    if !has_linker {
        static_checks(&mut report);
    }
    // With this set, tests that need a foreign program fail instead of skipping.
    tests(&mut report, &[("URAID_CLIENTS", "required")]);
    // `prove` builds the simulator: its features are others than those of the binary.
    let binaries = ["build", "--release", "--bins", "-p", "uraid", "-p", "uraid-blackbox"];
    report.command("release build", cargo(&binaries));
    // Every layout, every erasure, crash images, long seeds, the museum, kill -9: each with its figure.
    report.stage("prove", || Tally::one(prove::run(&["--time", "3m", "--json"])));
    let loom = ["test", "--release", "-p", "uraid-host", "--features", "loom", "--test", "loom"];
    report.command("loom models", cargo(&loom));
    let simulator = |test| {
        let features = prove::SIMULATOR_FEATURES;
        cargo(&["test", "--release", "-p", "uraid-sim", "--features", features, "--test", test])
    };
    report.command("shuttle, stops and failures", simulator("shuttle"));
    // Deliberate mistakes of the engine, compiled in by a feature: each must be found.
    report.command("simulator, canaries", simulator("canaries"));
    // Faults of a kept list, put into a copy of the code: the tests must see each.
    report.stage("mutants, quick", mutants::quick);
    report.stage("equal traces, twice", equal_traces);
    report.stage("demo", || Tally::one(demo::run()));
    report.stage("vm matrix", vm::matrix);
    report.finish()
}

/// All findings of floors, printed. Whether there were none.
pub(crate) fn floors() -> bool {
    let (findings, imports) = floors::check(&project::root());
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("floors: {imports} imports, {} findings", findings.len());
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
    // What the features of tests compile, which are run late and not by `ci`.
    for (name, package, features) in
        [("clippy, simulator", "uraid-sim", "shuttle,sabotage,marks"), ("clippy, loom", "uraid-host", "loom")]
    {
        let clippy = ["clippy", "-p", package, "--all-targets", "--features", features, "--", "-D", "warnings"];
        report.command(name, cargo(&clippy));
    }
    report.stage("docs", || {
        run_counted(
            cargo(&["doc", "--workspace", "--no-deps", "--keep-going", "--document-private-items"])
                .env("RUSTDOCFLAGS", DOC_LINTS),
        )
    });
}

fn tests(report: &mut Report, environment: &[(&str, &str)]) {
    report.stage("tests", || {
        run_counted(
            cargo(&["test", "--config", RUNNER, "--workspace", "--no-fail-fast"]).envs(environment.iter().copied()),
        )
    });
}

/// The first 100 seeds leave the same trace in a dev build, in release, and in release again.
fn equal_traces() -> Tally {
    let built_dev = run_counted(&mut cargo(&["build", "--quiet", "-p", "uraid-sim"]));
    let traces = ["debug/uraid-sim", "release/uraid-sim", "release/uraid-sim"].map(|program| {
        let done = Command::new(built(program)).args(["--seeds", "0..100", "--hashes"]).output();
        done.map_or_else(|error| error.to_string(), |done| String::from_utf8_lossy(&done.stdout).into_owned())
    });
    let lines = traces[0].lines().count();
    let is_equal = lines >= 100 && traces.iter().all(|trace| *trace == traces[0]);
    println!("{lines} lines each, {}", if is_equal { "equal" } else { "NOT EQUAL" });
    Tally::one(is_equal && built_dev.failed == 0)
}

/// The path of a program that cargo built, from its path in the target folder.
fn built(path: &str) -> PathBuf {
    let root = project::root();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join(path)
}

fn cargo(words: &[&str]) -> Command {
    // The cargo that started this program, so that there is one toolchain.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(words).current_dir(project::root());
    command
}
