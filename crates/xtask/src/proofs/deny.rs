//! Licences and origins of the crates that we use, and their known weaknesses, by cargo-deny.
//! Owns: which of its checks run, saying what could not be checked. Not here: what is allowed (`deny.toml`).
//! Invariant: without cargo-deny the run fails. If the advisories could not be looked up, that is said, and counts neither way.

use crate::programs::stage::{Tally, run_counted};
use crate::project;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Checks that need nothing but the crates themselves. Each is one check.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

/// All checks, and whether the advisories are not among them. cargo-deny missing is a failure.
pub(crate) fn run() -> (Tally, bool) {
    if !answers(&["--version"]) {
        println!("cargo-deny is missing: install it with `cargo install cargo-deny --locked`");
        return (Tally::one(false), true);
    }
    let mut tally = Tally::default();
    for check in CHECKS {
        tally.add(run_counted(&mut deny(&["check", "--hide-inclusion-graph", check])));
    }
    // It fails without a network; a database of an earlier run then serves.
    let is_fetched = answers(&["fetch", "db"]);
    let has_advisories = is_fetched || has_database(cargo_home().as_deref());
    if has_advisories {
        tally.add(run_counted(&mut deny(&["check", "--hide-inclusion-graph", "--disable-fetch", "advisories"])));
    } else {
        println!("advisories: NOT CHECKED, because the database of RustSec could not be fetched and no copy is there");
    }
    (tally, !has_advisories)
}

fn deny(words: &[&str]) -> Command {
    let mut command = project::cargo(&["deny"]);
    command.args(words);
    command
}

fn answers(words: &[&str]) -> bool {
    let status = deny(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn cargo_home() -> Option<PathBuf> {
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Whether cargo-deny has left a database of advisories, in the folder where it keeps them.
fn has_database(cargo_home: Option<&Path>) -> bool {
    let Some(entries) = cargo_home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok()) else {
        return false;
    };
    entries.flatten().any(|entry| entry.path().join("crates").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_folder_with_crates_in_it() {
        let home = std::env::temp_dir().join(format!("uraid-deny-{}", std::process::id()));
        let database = home.join("advisory-dbs/advisory-db-0123");
        assert!(!has_database(None) && !has_database(Some(&home)));
        std::fs::create_dir_all(&database).expect("a folder for it");
        assert!(!has_database(Some(&home)));
        std::fs::create_dir(database.join("crates")).expect("inside of it");
        assert!(has_database(Some(&home)));
        std::fs::remove_dir_all(&home).expect("it is ours");
    }
}
