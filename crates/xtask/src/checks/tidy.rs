//! Rules of STYLE.md that a machine can check and neither clippy nor rustfmt does.
//! Owns: lengths of files, heads, leftovers, links of the documents, who may lift the lint against `unsafe`. Not here:
//! lengths of functions, SAFETY, reasons of exceptions, which are lints (`Cargo.toml`, `clippy.toml`); imports (`floors`);
//! citations (`citations`), the walks of ARCHITECTURE.md (`walks`), indexes and figures (`indexes`), pages made from
//! sources (`messages`) and width (`wrap`), which are checked with the rest.
//! Invariant: every finding names the file, the line and the bound.

use crate::documents::{citations, indexes, messages, walks, wrap};
use crate::project::source::{Source, words};
use crate::project::{self, Finding, SUITE};
use std::path::Path;

const FILE_LINES_MAX: usize = 600;

/// Crates that may lift the lint against `unsafe`. Tests of any crate may (a counting allocator needs it).
const UNSAFE_CRATES: &[&str] = &["block", "parity", "host"];

/// The one file of a tool that may: its counting allocator is shared by a test and a driver.
const UNSAFE_FILE: &str = "fuzz/src/allocation.rs";

/// Marks of unfinished work; they belong in an issue.
const LEFTOVERS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

/// Comments describe the present; the history is in the commits.
const HISTORY: &[&str] =
    &["formerly", "refactored", "renamed from", "moved here from", "was previously", "it used to", "this used to"];

/// All findings of the project at `root`, and how many files were looked at.
pub(crate) fn check(root: &Path) -> (Vec<Finding>, usize) {
    let mut sources = project::files(root, Path::new("crates"), "rs");
    sources.extend(project::files(root, Path::new("fuzz"), "rs"));
    let documents = project::files(root, Path::new("."), "md");
    let looked_at = sources.len() + documents.len();
    let mut findings: Vec<Finding> = Vec::new();
    for path in sources {
        match std::fs::read_to_string(root.join(&path)) {
            Ok(text) => findings.extend(check_source(&Source::new(&path, &text))),
            Err(error) => findings.push(Finding { path, line: 0, what: format!("cannot be read: {error}") }),
        }
    }
    for path in documents {
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        findings.extend(check_links(root, &path, &text));
    }
    findings.extend(check_manifests(root));
    findings.extend(project::packages(root).iter().flat_map(|(_, folder)| check_suite(root, folder)));
    findings.extend(citations::check(root));
    findings.extend(walks::check(root));
    findings.extend(indexes::check(root));
    findings.extend(messages::check(root));
    findings.extend(wrap::check(root));
    findings.sort();
    (findings, looked_at)
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut found: Vec<(usize, String)> = Vec::new();
    if source.lines.len() > FILE_LINES_MAX {
        found.push((source.lines.len(), format!("{} lines in a file, at most {FILE_LINES_MAX}", source.lines.len())));
    }
    found.extend(check_head(source));
    found.extend(check_unsafe(source));
    found.extend(check_words(source));
    found.into_iter().map(|(line, what)| Finding { path: source.path.clone(), line, what }).collect()
}

/// A file opens with what it owns and what it does not.
fn check_head(source: &Source) -> Option<(usize, String)> {
    let head: Vec<&str> = source.lines.iter().map(String::as_str).take_while(|line| line.starts_with("//!")).collect();
    if head.is_empty() {
        return Some((1, "the file opens without a `//!` head".to_string()));
    }
    let head = head.join("\n").to_lowercase();
    let has_both = head.contains("owns") && head.contains("not here");
    (is_library(&source.path) && !has_both)
        .then(|| (1, "the head says neither what the file owns nor what is \"not here\"; it needs both".to_string()))
}

/// Library files are those of `src/`, without `main.rs` and `src/bin/`.
fn is_library(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.get(2) == Some(&"src") && parts.get(3) != Some(&"bin") && !path.ends_with("main.rs")
}

/// `unsafe` is denied by a lint, which only the listed crates lift.
fn check_unsafe(source: &Source) -> Vec<(usize, String)> {
    let crate_name = source.path.iter().nth(1).and_then(|name| name.to_str()).unwrap_or("");
    let is_test = source.path.iter().nth(2).is_some_and(|folder| folder == "tests");
    if UNSAFE_CRATES.contains(&crate_name) || is_test || source.path == Path::new(UNSAFE_FILE) {
        return Vec::new();
    }
    let lines = source.code.iter().enumerate().filter(|(_, line)| !words(line, "unsafe_code").is_empty());
    let what = format!("`unsafe_code` is lifted in {crate_name}; only {} may", UNSAFE_CRATES.join(", "));
    lines.map(|(index, _)| (index + 1, what.clone())).collect()
}

fn check_words(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, comment) in source.comments.iter().enumerate() {
        for word in LEFTOVERS.iter().filter(|word| !words(comment, word).is_empty()) {
            found.push((index + 1, format!("{word} in a comment; do it, or file it")));
        }
        let lower = comment.to_lowercase();
        for word in HISTORY.iter().filter(|word| lower.contains(**word)) {
            found.push((index + 1, format!("\"{word}\" in a comment: say what is; what was is in the commits")));
        }
    }
    found
}

/// Every relative link of a document leads to a file.
fn check_links(root: &Path, path: &Path, text: &str) -> Vec<Finding> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', '#', ' ']).next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !root.join(folder).join(target).exists() {
                let what = format!("link to {target}, which does not exist");
                found.push(Finding { path: path.to_path_buf(), line: index + 1, what });
            }
        }
    }
    found
}

/// Every crate takes the workspace's lints.
fn check_manifests(root: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, folder) in project::packages(root) {
        let path = folder.join("Cargo.toml");
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        if !text.contains("[lints]\nworkspace = true") {
            found.push(Finding { path, line: 1, what: "no `[lints]` with `workspace = true`".to_string() });
        }
    }
    found
}

/// Where a `tests/suite.rs` stands for many test programs, a file beside it runs only if a program or the manifest names
/// it.
fn check_suite(root: &Path, folder: &Path) -> Vec<Finding> {
    let path = folder.join("tests").join(SUITE).with_extension("rs");
    if !root.join(&path).is_file() {
        return Vec::new();
    }
    let programs = project::programs(&root.join(folder));
    let modules: Vec<Vec<String>> =
        programs.iter().map(|program| project::modules(&root.join(folder), program)).collect();
    let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap_or_default();
    let files =
        project::files(root, &folder.join("tests"), "rs").into_iter().filter(|file| file.parent() == path.parent());
    let names: Vec<String> = files.filter_map(|file| Some(file.file_stem()?.to_str()?.to_string())).collect();
    let mut what = Vec::new();
    for name in &names {
        match modules.iter().chain([&programs]).filter(|list| list.contains(name)).count() {
            0 => what.push(format!("{name}.rs runs nowhere: `mod {name};` is missing here")),
            1 => {}
            2.. => what.push(format!("{name}.rs is in two programs: it would run twice")),
        }
    }
    if !manifest.contains("autotests = false") {
        what.push("the manifest lacks `autotests = false`: every file would be a program, too".to_string());
    }
    // A filter of the test program finds a module by the end of its name.
    for suite in &modules {
        let pairs = suite.iter().flat_map(|long| suite.iter().map(move |short| (long, short)));
        let alike = pairs.filter(|(long, short)| long != short && long.ends_with(short.as_str()));
        what.extend(alike.map(|(long, short)| format!("`{short}::` would also run the tests of {long}.rs")));
    }
    what.into_iter().map(|what| Finding { path: path.clone(), line: 1, what }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "//! A thing.\n//! Owns: it. Not here: the rest.\n";

    fn findings(path: &str, text: &str) -> Vec<String> {
        check_source(&Source::new(Path::new(path), text)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_tidy_file_has_no_findings() {
        let text = format!("{HEAD}\n/// Says so.\npub fn a() -> bool {{\n    true\n}}\n");
        assert_eq!(findings("crates/layout/src/a.rs", &text), Vec::<String>::new());
    }

    #[test]
    fn a_library_file_says_what_it_owns_but_a_test_needs_only_a_head() {
        assert_eq!(findings("crates/layout/src/a.rs", "//! A thing.\n").len(), 1);
        assert_eq!(findings("crates/layout/tests/a.rs", "//! A thing.\n").len(), 0);
        assert_eq!(findings("crates/layout/tests/a.rs", "fn a() {}\n").len(), 1);
    }

    #[test]
    fn only_listed_crates_and_tests_lift_the_lint_against_unsafe() {
        let lifted = format!("{HEAD}#![allow(unsafe_code, reason = \"speed\")]\nfn a() {{}}\n");
        assert_eq!(findings("crates/layout/src/a.rs", &lifted).len(), 1);
        assert_eq!(findings("crates/parity/src/a.rs", &lifted).len(), 0);
        assert_eq!(findings("crates/layout/tests/a.rs", &lifted).len(), 0);
    }

    #[test]
    fn a_test_file_that_no_program_has_is_reported() {
        let root = std::env::temp_dir().join(format!("uraid-tidy-{}", std::process::id()));
        let tests = root.join("crates/a/tests");
        std::fs::create_dir_all(&tests).expect("room");
        let write = |name: &str, text: &str| std::fs::write(tests.join(name), text).expect("room");
        let found =
            || check_suite(&root, Path::new("crates/a")).into_iter().map(|found| found.what).collect::<Vec<_>>();
        for name in ["log.rs", "speed.rs"] {
            write(name, "");
        }
        assert_eq!(found(), Vec::<String>::new(), "every file is a program");
        write("suite.rs", "mod common;\nmod log;\n");
        let manifest = "autotests = false\n[[test]]\nname = \"speed\"\n\n[[test]]\nname = \"suite\"\n";
        write("../Cargo.toml", manifest);
        assert_eq!(found(), Vec::<String>::new());
        write("lost.rs", "");
        assert_eq!(found(), ["lost.rs runs nowhere: `mod lost;` is missing here"]);
        write("suite.rs", "mod log;\nmod lost;\nmod speed;\nmod backlog;\n");
        write("backlog.rs", "");
        write("../Cargo.toml", &manifest.replace("autotests = false", ""));
        assert_eq!(found().len(), 3, "{:?}", found());
        let _ = std::fs::remove_dir_all(&root);
    }

    #[test]
    fn leftovers_and_history_are_reported_in_comments_only() {
        let text = format!("{HEAD}// {} later\n// {} slow\nfn a() {{ b(\"FIXME\") }}\n", "TODO", "It used to be");
        assert_eq!(findings("crates/layout/src/a.rs", &text).len(), 2);
    }
}
