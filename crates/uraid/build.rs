//! The version that `uraid --version` prints: with the commit and its date, where the source is a Git work tree, and how it
//! was built.
//! Owns: `URAID_VERSION`, `URAID_BUILD`. Invariant: it runs again only when another commit is checked out or made.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    println!("cargo::rerun-if-changed=build.rs");
    let commit = commit().map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=URAID_VERSION={version}{commit}");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    let linked = if is_static { "static" } else { "dynamic" };
    let (target, profile) = (variable("TARGET"), variable("PROFILE"));
    // cargo takes one line.
    println!("cargo::rustc-env=URAID_BUILD={target} {linked} {profile}");
}

/// `03fb0548 2026-11-27`; `None`: this is an archive of the source, or there is no Git.
fn commit() -> Option<String> {
    // An archive may be unpacked in a repository of something else.
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").ok()?).join("../..").canonicalize().ok()?;
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    // What a commit changes: HEAD where it is detached, else the branch; packed, that is one of the lines of a file, until
    // the next commit. A file that does not exist would count as changed each time.
    let head = git_path("HEAD")?;
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]).and_then(|branch| git_path(&branch));
    let mut watched = vec![head];
    match branch {
        Some(branch) if branch.exists() => watched.push(branch),
        Some(_) => watched.extend(["packed-refs", "logs/HEAD"].iter().filter_map(|name| git_path(name))),
        None => {}
    }
    for path in watched.iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    git(&["-c", "core.abbrev=8", "log", "-1", "--no-show-signature", "--format=%h %cs"])
}

/// A file of the repository, which of a work tree beside the first one may lie elsewhere.
fn git_path(name: &str) -> Option<PathBuf> {
    git(&["rev-parse", "--git-path", name]).map(PathBuf::from)
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
