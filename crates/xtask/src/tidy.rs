//! Rules of STYLE.md that a machine can check and clippy does not.
//! Owns: lengths, heads, SAFETY, reasons, leftovers, links of the documents. Not here: imports (`floors`), citations
//! (`citations`), which are checked with the rest.
//! Invariant: every finding names the file, the line and the bound.

use crate::citations;
use crate::project::{self, Finding};
use crate::source::{Source, words};
use std::path::Path;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Crates that may say `unsafe`. Tests of any crate may (a counting allocator needs it), with SAFETY all the same.
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
    findings.extend(citations::check(root));
    findings.sort();
    (findings, looked_at)
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut found: Vec<(usize, String)> = Vec::new();
    if source.lines.len() > FILE_LINES_MAX {
        found.push((source.lines.len(), format!("{} lines in a file, at most {FILE_LINES_MAX}", source.lines.len())));
    }
    for function in source.functions().iter().filter(|function| function.length > FUNCTION_LINES_MAX) {
        let (name, length) = (&function.name, function.length);
        found.push((function.first, format!("{length} lines in `{name}`, at most {FUNCTION_LINES_MAX} in a function")));
    }
    found.extend(check_head(source));
    found.extend(check_unsafe(source));
    found.extend(check_allows(source));
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

fn check_unsafe(source: &Source) -> Vec<(usize, String)> {
    let crate_name = source.path.iter().nth(1).and_then(|name| name.to_str()).unwrap_or("");
    let is_test = source.path.iter().nth(2).is_some_and(|folder| folder == "tests");
    let mut found = Vec::new();
    for (index, line) in source.code.iter().enumerate().filter(|(_, line)| !words(line, "unsafe").is_empty()) {
        if !UNSAFE_CRATES.contains(&crate_name) && !is_test && source.path != Path::new(UNSAFE_FILE) {
            found.push((index + 1, format!("`unsafe` in {crate_name}; only {} may", UNSAFE_CRATES.join(", "))));
        } else if !only_asks(line) && !has_safety(source, index) {
            found.push((
                index + 1,
                "`unsafe` without a SAFETY comment (or a `# Safety` section) right above".to_string(),
            ));
        }
    }
    found
}

/// `unsafe fn` passes the promise on to its caller (clippy requires `# Safety` if it is public); a block or an
/// `impl` makes it.
fn only_asks(line: &str) -> bool {
    words(line, "unsafe").into_iter().all(|at| {
        let next = line[at + "unsafe".len()..].trim_start();
        next.starts_with("fn") || next.starts_with("extern")
    })
}

/// Looks at the line itself, then upwards over comments, attributes and the start of the same statement.
fn has_safety(source: &Source, index: usize) -> bool {
    let says = |at: usize| source.comments[at].contains("SAFETY:") || source.comments[at].contains("# Safety");
    if says(index) {
        return true;
    }
    for above in (0..index).rev() {
        let code = source.code[above].trim();
        if says(above) {
            return true;
        }
        // A line that ends a statement or opens a block belongs to other code.
        if code.ends_with(';') || code.ends_with('{') || code.ends_with('}') || source.lines[above].trim().is_empty() {
            return false;
        }
    }
    false
}

/// `#[allow(..)]` and `#[expect(..)]` say why.
fn check_allows(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in source.code.iter().enumerate() {
        let compact: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        let Some(word) = ["allow", "expect"]
            .into_iter()
            .find(|word| compact.contains(&format!("#[{word}(")) || compact.contains(&format!("#![{word}(")))
        else {
            continue;
        };
        let attribute: String = source.code[index..]
            .iter()
            .scan(false, |is_over, line| {
                let was_over = *is_over;
                *is_over |= line.trim_end().ends_with(']') || line.contains(")]");
                (!was_over).then(|| line.clone())
            })
            .collect();
        if words(&attribute, "reason").is_empty() {
            found.push((index + 1, format!("`#[{word}` without a `reason = \"..\"`")));
        }
    }
    found
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
    for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| line.ends_with([' ', '\t'])) {
        // Text in quotes may end in a blank.
        if source.code[index].trim_end() == line.trim_end() {
            found.push((index + 1, "trailing blank".to_string()));
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
    fn a_function_of_71_lines_is_one_too_many() {
        let body = |lines: usize| format!("{HEAD}fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        assert_eq!(findings("crates/layout/src/a.rs", &body(70)).len(), 0);
        let found = findings("crates/layout/src/a.rs", &body(71));
        assert_eq!(found, ["crates/layout/src/a.rs:3: 71 lines in `a`, at most 70 in a function"]);
    }

    #[test]
    fn unsafe_needs_a_listed_crate_and_a_reason() {
        let bare = format!("{HEAD}fn a() {{\n    unsafe {{ b() }}\n}}\n");
        let reasoned =
            format!("{HEAD}fn a() {{\n    // SAFETY: b asks nothing.\n    let c =\n        unsafe {{ b() }};\n}}\n");
        assert_eq!(findings("crates/layout/src/a.rs", &reasoned).len(), 1);
        assert_eq!(findings("crates/parity/src/a.rs", &bare).len(), 1);
        assert_eq!(findings("crates/parity/src/a.rs", &reasoned).len(), 0);
    }

    #[test]
    fn an_allow_says_why_even_over_several_lines() {
        let bare = format!("{HEAD}#[allow(dead_code)]\nfn a() {{}}\n");
        let reasoned = format!("{HEAD}#[expect(\n    dead_code,\n    reason = \"later\"\n)]\nfn a() {{}}\n");
        assert_eq!(findings("crates/layout/src/a.rs", &bare).len(), 1);
        assert_eq!(findings("crates/layout/src/a.rs", &reasoned).len(), 0);
    }

    #[test]
    fn leftovers_and_history_are_reported_in_comments_only() {
        let text = format!("{HEAD}// {} later\n// {} slow\nfn a() {{ b(\"FIXME\") }}\n", "TODO", "It used to be");
        assert_eq!(findings("crates/layout/src/a.rs", &text).len(), 2);
    }
}
