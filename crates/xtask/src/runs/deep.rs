//! `cargo xtask deep [PART]...`: the proofs that take long, each noted in `docs/proof.md` with its commit and date.
//! Owns: the parts, which of them are due, how old their results are. Not here: any proof.
//! Invariant: a part that failed is noted as failed, never as run.

use crate::documents::proof_page::{self, Region};
use crate::mutants::{self, canaries};
use crate::programs::stage::{Tally, run_counted};
use crate::project;
use crate::proofs::{deny, fuzz, parsers, prove};
use crate::vm;
use std::process::Command;
use std::time::Instant;

/// Results that are older, in commits, are announced loudly.
const COMMITS_MAX: u64 = 30;

/// The documentation is for contributors: it includes private items, and may link to them.
const DOC_LINTS: &str = "-D warnings -A rustdoc::private_intra_doc_links";

/// A part, and what it does: whether it is good, and what it counted.
struct Part {
    name: &'static str,
    about: &'static str,
    run: fn() -> (bool, String),
}

const PARTS: [Part; 12] = [
    Part { name: "features", about: "clippy of what features of tests compile", run: features },
    Part { name: "documentation", about: "the documentation of all crates, the book", run: documentation },
    Part { name: "dependencies", about: "licences and weaknesses of the crates that we use", run: dependencies },
    Part { name: "prove", about: "every proof that counts, for 11 minutes", run: || prove::counted(660) },
    Part { name: "loom", about: "every order of a few events of threads", run: loom },
    Part { name: "shuttle", about: "stops and failures, in random orders of threads", run: shuttle },
    Part {
        name: "museum",
        about: "an engine with mistakes on purpose: historical bugs, rare branches, directed tests",
        run: museum,
    },
    Part { name: "vm", about: "the real md driver, every form", run: vm::everything },
    Part {
        name: "parsers",
        about: "programs that read mdadm's words, over every state",
        run: || counted(parsers::run(false)),
    },
    Part { name: "mutated", about: "every command over 20,000 changed sets of members", run: mutated },
    Part { name: "fuzz", about: "ten minutes of each target", run: || told(fuzz::run(&["--time", "10m"])) },
    Part { name: "mutants", about: "the whole list of faults", run: mutants::whole },
];

/// The parts that are named; without names those whose code has changed since their last run, or that failed in it.
/// Whether all that ran are good.
pub(crate) fn run(names: &[&str]) -> bool {
    let is_unknown = |name: &&&str| PARTS.iter().all(|part| part.name != **name);
    if let Some(name) = names.iter().find(is_unknown) {
        eprintln!("deep: there is no part {name}; there are");
        PARTS.iter().for_each(|part| eprintln!("  {:<14} {}", part.name, part.about));
        return false;
    }
    let mut is_good = true;
    for part in &PARTS {
        let row = proof_page::rows(Region::Deep).into_iter().find(|row| row[0] == part.name);
        let is_done =
            row.is_some_and(|row| !is_failed(&row) && !row[2].is_empty() && proof_page::is_same_code(&row[2]));
        if !names.is_empty() && !names.contains(&part.name) {
            continue;
        }
        if names.is_empty() && is_done {
            println!("deep: {}: it was run on this code: {0} runs it again", part.name);
            continue;
        }
        is_good &= run_part(part);
    }
    is_good
}

fn run_part(part: &Part) -> bool {
    println!("=== deep: {}: {}", part.name, part.about);
    let began = Instant::now();
    // What is checked out when the part ends may be another commit.
    let commit = proof_page::commit();
    let (is_good, result) = (part.run)();
    let seconds = began.elapsed().as_secs();
    let result = if is_good { result } else { format!("**failed**: {result}") };
    println!("--- deep: {}: {result} in {seconds} s", part.name);
    let (is_good, result) = if proof_page::commit() == commit {
        (is_good, result)
    } else {
        (false, format!("**failed**: the code changed while it ran ({result})"))
    };
    let commit = commit.unwrap_or_else(|| "unknown".to_string());
    let row = vec![part.name.to_string(), proof_page::today(), commit, seconds.to_string(), result.replace('|', "/")];
    let mut rows = proof_page::rows(Region::Deep);
    match rows.iter_mut().find(|row| row[0] == part.name) {
        Some(old) => *old = row,
        None => rows.push(row),
    }
    if let Err(error) = proof_page::write(Region::Deep, &rows) {
        println!("deep: the result is not noted: {error}");
        return false;
    }
    is_good
}

fn dependencies() -> (bool, String) {
    let (tally, lacks_advisories) = deny::run();
    let (is_good, result) = counted(tally);
    (is_good, if lacks_advisories { format!("{result}; advisories NOT CHECKED: no database") } else { result })
}

fn is_failed(row: &[String]) -> bool {
    row.last().is_none_or(|result| result.is_empty() || result.starts_with("**failed**"))
}

/// Prints how old each part's result is, in commits and days.
pub(crate) fn print_age() {
    let rows = proof_page::rows(Region::Deep);
    println!("\n{:<16} {:<12} {:>8} {:>6}", "deep", "commit", "commits", "days");
    let mut is_loud = false;
    for part in &PARTS {
        let row = rows.iter().find(|row| row[0] == part.name);
        let commits = row.and_then(|row| commits_since(&row[2]));
        let days = row.and_then(|row| days_since(&row[1]));
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_string(), |number| number.to_string());
        let what = row.map_or("never run", |row| row[2].as_str());
        let failed = if row.is_some_and(|row| is_failed(row)) { "  FAILED" } else { "" };
        println!("{:<16} {what:<12} {:>8} {:>6}{failed}", part.name, number(commits), number(days));
        is_loud |= !failed.is_empty() || commits.is_none_or(|commits| commits > COMMITS_MAX);
    }
    if is_loud {
        println!("\n!!! Long proofs have not been run, have failed, or are more than {COMMITS_MAX} commits old.");
        println!("!!! `cargo xtask deep` runs those that are due; `cargo xtask deep PART` one of them.");
    }
}

fn commits_since(commit: &str) -> Option<u64> {
    project::git(&["rev-list", "--count", &format!("{}..HEAD", commit.trim_end_matches('+'))])?.parse().ok()
}

fn days_since(date: &str) -> Option<u64> {
    let seconds = Command::new("date").args(["-u", "-d", date, "+%s"]).output().ok()?;
    let seconds: u64 = String::from_utf8_lossy(&seconds.stdout).trim().parse().ok()?;
    Some(std::time::UNIX_EPOCH.elapsed().ok()?.as_secs().saturating_sub(seconds) / 86_400)
}

// ---- parts

fn told(is_good: bool) -> (bool, String) {
    (is_good, if is_good { "nothing found" } else { "see its output" }.to_string())
}

fn counted(tally: Tally) -> (bool, String) {
    (tally.failed == 0, format!("{} passed, {} failed", tally.passed, tally.failed))
}

fn features() -> (bool, String) {
    let mut tally = Tally::default();
    for (package, features) in [("uraid-sim", "shuttle,marks"), ("uraid-host", "loom")] {
        let words = ["clippy", "-p", package, "--all-targets", "--features", features, "--", "-D", "warnings"];
        tally.add(run_counted(&mut project::cargo(&words)));
    }
    tally.add(in_copy(canaries::clippy()));
    counted(tally)
}

fn documentation() -> (bool, String) {
    let words = ["doc", "--workspace", "--no-deps", "--keep-going", "--document-private-items"];
    let mut tally = run_counted(project::cargo(&words).env("RUSTDOCFLAGS", DOC_LINTS));
    // Not a part of a Rust toolchain: `cargo install mdbook`.
    tally.add(run_counted(Command::new("mdbook").args(["build", "docs/operating"]).current_dir(project::root())));
    counted(tally)
}

fn loom() -> (bool, String) {
    let words = ["test", "--release", "-p", "uraid-host", "--features", "loom", "--test", "loom"];
    counted(run_counted(&mut project::cargo(&words)))
}

fn shuttle() -> (bool, String) {
    counted(in_copy(canaries::shuttle(&[])))
}

/// Runs a command in the copy whose engine has mistakes, if the copy could be made.
fn in_copy(command: Result<Command, String>) -> Tally {
    match command {
        Ok(mut command) => run_counted(&mut command),
        Err(what) => {
            println!("{what}");
            Tally::one(false)
        }
    }
}

/// Changed members: commands in process, all commands as processes, servers as processes.
fn mutated() -> (bool, String) {
    let mut good = 0;
    let runs = [
        (&["--bin", "uraid"][..], 20_000, None),
        (&["--test", "suite"], 300, None),
        (&["--test", "suite"], 20_000, Some("serve")),
    ];
    for (target, count, only) in runs {
        let mut command = project::cargo(&["test", "--release", "-p", "uraid"]);
        command.args(target).args(["mutated", "--", "--nocapture"]).env("URAID_MUTATIONS", count.to_string());
        if let Some(word) = only {
            command.env("URAID_MUTATIONS_OF", word);
        }
        let tally = run_counted(&mut command);
        // A filter that meets nothing passes, too.
        good += usize::from(tally.passed == 1 && tally.failed == 0);
    }
    let text = "20,000 in process, 300 and 20,000 servers by the program: nothing found";
    (good == runs.len(), if good == runs.len() { text.to_owned() } else { "see its output".to_owned() })
}

/// What needs an engine with mistakes: checks of the simulator on itself, and directed tests.
fn museum() -> (bool, String) {
    let mut tally = Tally::one(canaries::build().is_ok());
    for name in canaries::SELF_CHECKS {
        tally.add(run_counted(&mut canaries::self_check(name)));
    }
    tally.add(in_copy(canaries::tests()));
    counted(tally)
}
