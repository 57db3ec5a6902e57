//! The project's files, found by walking its folder.
//! Owns: the root, the lists of crates and sources, findings; code, comments and text of a source (`source`); cargo and its
//! target folder, git. Not here: what is wrong with files (`checks`, `documents`). Called by all rooms above.

pub(crate) mod source;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One thing that a check found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the project.
    pub(crate) path: PathBuf,
    /// From 1; 0 when it concerns the file as a whole.
    pub(crate) line: usize,
    /// What is wrong, and the bound.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path.display(), self.line.max(1), self.what)
    }
}

/// The project's folder: where the workspace's Cargo.toml is.
pub(crate) fn root() -> PathBuf {
    let crate_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    crate_dir.ancestors().nth(2).expect("xtask lies two folders below the project").to_path_buf()
}

/// The cargo that started this program, so that there is one toolchain, in the project's folder.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    let root = root();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target)
}

/// What git answers, without its last line break. `None`: it failed, or this is no clone.
pub(crate) fn git(words: &[&str]) -> Option<String> {
    let done = Command::new("git").args(words).current_dir(root()).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim_end().to_string())
}

/// The packages' names without `uraid-`, and their folders: those under `crates/` with a Cargo.toml, in order; `fuzz`.
pub(crate) fn packages(root: &Path) -> Vec<(String, PathBuf)> {
    let mut folders = entries(&root.join("crates"));
    folders.push(root.join("fuzz"));
    let mut packages: Vec<(String, PathBuf)> = folders
        .into_iter()
        .filter(|path| path.join("Cargo.toml").is_file())
        .filter_map(|path| {
            let folder = path.strip_prefix(root).expect("found below the root").to_path_buf();
            Some((path.file_name()?.to_str()?.to_string(), folder))
        })
        .collect();
    packages.sort();
    packages
}

/// Every file under `folder` whose name ends in `.extension`, in order, relative to `root`; build output left out.
pub(crate) fn files(root: &Path, folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.join(folder)];
    while let Some(next) = todo.pop() {
        for path in entries(&next) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                todo.push(path);
            } else if path.is_file() && path.extension().is_some_and(|e| e == extension) {
                found.push(path.strip_prefix(root).expect("found below the root").to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// The test program of a crate that has the tests of many files: `tests/suite.rs`.
pub(crate) const SUITE: &str = "suite";

/// The files beside it that a test program of the package in `folder` names with `mod`; none without such a program.
pub(crate) fn modules(folder: &Path, program: &str) -> Vec<String> {
    let tests = folder.join("tests");
    named_modules(&tests.join(program).with_extension("rs"), &tests)
}

/// The files below a file of tests that it names with `mod`, and whether it has tests itself.
pub(crate) fn modules_below(folder: &Path, file: &str) -> (Vec<String>, bool) {
    let tests = folder.join("tests").join(file);
    let path = tests.with_extension("rs");
    let has_tests = std::fs::read_to_string(&path).is_ok_and(|text| text.contains("#[test]"));
    (named_modules(&path, &tests), has_tests)
}

fn named_modules(path: &Path, folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    names.map(str::to_string).filter(|name| folder.join(name).with_extension("rs").is_file()).collect()
}

/// The test programs of the package in `folder`: those that its manifest names and that are a file in `tests`.
pub(crate) fn programs(folder: &Path) -> Vec<String> {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let names = manifest.split("[[test]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let is_file = |name: &String| folder.join("tests").join(name).with_extension("rs").is_file();
    names.map(str::to_string).filter(is_file).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).map(|all| all.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}
