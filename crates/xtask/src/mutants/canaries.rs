//! `cargo xtask canaries`: the engine makes one mistake of a list on purpose, and the simulator must find it.
//! Owns: the copy of the workspace whose engine has the mistakes, building it, what runs in it. Not here: the form of the
//! list (`list`), the copy's text (`instrument`), the checks (`uraid_sim::proof::self_check`). Called by the program, by
//! `proofs` and by `runs`.
//! Invariant: the copy has a target folder of its own: a program with mistakes in it is never where others are looked for.

use super::stages::CopiedTree;
use super::{instrument, list, list::Kind};
use crate::project;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "cargo xtask canaries [check | canaries | museum | marks | shrinking | tests | shuttle [WORD]...]";

/// Of every build of the simulator in the copy, so that its library is built once.
const FEATURES: &str = "canaries,shuttle";

/// Checks of the simulator on itself, by their names for it.
pub(crate) const SELF_CHECKS: [&str; 4] = ["canaries", "museum", "marks", "shrinking"];

/// One of the checks; without a name all but shuttle's. Whether all were good.
pub(crate) fn run(words: &[&str]) -> bool {
    let result = match words {
        [] => everything(),
        ["check"] => tree().and_then(|tree| ran(tree.command().args(words_of("check --quiet --all-targets")))),
        ["tests"] => tests().and_then(|mut command| ran(&mut command)),
        ["shuttle", words @ ..] => shuttle(words).and_then(|mut command| ran(&mut command)),
        [name] if SELF_CHECKS.contains(name) => build().and_then(|()| ran(&mut self_check(name))),
        _ => Err(USAGE.to_string()),
    };
    if let Err(what) = &result {
        eprintln!("canaries: {what}");
    }
    result.is_ok()
}

fn everything() -> Result<(), String> {
    build()?;
    for name in SELF_CHECKS {
        ran(&mut self_check(name))?;
    }
    ran(&mut tests()?)
}

/// Makes the copy, and builds its simulator in release.
pub(crate) fn build() -> Result<(), String> {
    ran(tree()?.command().args(words_of("build --release --quiet --bins")))
}

/// A check of the simulator that [`build`] has built, on itself.
pub(crate) fn self_check(name: &str) -> Command {
    let mut command = Command::new(folder().join("build/release/uraid-sim"));
    command.args(["--self-check", name]);
    command
}

/// The simulator's tests, with those that need a mistake. In release: 13 explorations of crash images take many minutes in
/// a dev build.
pub(crate) fn tests() -> Result<Command, String> {
    let mut command = tree()?.command();
    command.args(words_of("test --release --test suite"));
    Ok(command)
}

/// The engine on the host's shards in shuttle's hands: all scenarios, or the one that these words choose.
pub(crate) fn shuttle(words: &[&str]) -> Result<Command, String> {
    let mut command = tree()?.command();
    command.args(words_of("test --release --test shuttle")).arg("--").args(words);
    Ok(command)
}

/// Clippy of what compiles in the copy only; not of the engine, where mistakes make functions longer.
pub(crate) fn clippy() -> Result<Command, String> {
    let mut command = tree()?.command();
    command.args(words_of("clippy --quiet --no-deps --all-targets")).args(["--", "-D", "warnings"]);
    Ok(command)
}

fn folder() -> PathBuf {
    project::target().join("canaries")
}

/// The copy, which is made, or brought up to date.
fn tree() -> Result<CopiedTree, String> {
    let root = project::root();
    let tree = CopiedTree { tree: folder().join("tree"), target: folder().join("build") };
    let copied =
        list::read(&root, Kind::Canary).and_then(|entries| instrument::copy(&root, &tree.tree, Kind::Canary, &entries));
    copied.map_err(|wrong| wrong.join("\n"))?;
    Ok(tree)
}

/// What cargo does with the copy's simulator.
fn words_of(what: &str) -> Vec<&str> {
    what.split(' ').chain(["--package", "uraid-sim", "--features", FEATURES]).collect()
}

fn ran(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("it failed, see above".to_string()),
        Err(error) => Err(format!("{}: {error}", command.get_program().to_string_lossy())),
    }
}
