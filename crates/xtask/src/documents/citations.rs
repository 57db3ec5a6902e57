//! Citations in sources and documents must exist in the repository.
//! Owns: paths, headings, tests named with their file, numbers of docs/reliability.md, code that STYLE.md quotes, names of
//! papers that no clone has.
//! Not here: links without an anchor (`tidy`). Invariant: a finding names the file, the line and what is missing.
//!
//! ```text
//!   Spec: docs/md/formats.md#bitmap      a path below docs/ or crates/, in a comment or a document; the heading, if named
//!   `crates/NAME/tests/b.rs`: `a_test`   in a document: the file has a function of that name
//!   the ack comes too early (R4)         an entry of docs/reliability.md, in a comment, a string or a document
//!   // crates/block/src/units.rs         the first line of a block of STYLE.md: the rest of the block is in that file
//! ```

use crate::project::source::Source;
use crate::project::{self, Finding};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The page whose entries are cited by letter and number.
const ENTRIES: &str = "docs/reliability.md";

/// The page whose blocks of code are quotations.
const QUOTES: &str = "STYLE.md";

/// Files that are text.
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "txt", "sh"];

/// `D1` is an entry only below this folder; everywhere else it is the data chunk 1 of a picture.
const DATA_CHUNKS_AS_ENTRIES: &str = "crates/sim/src";

/// Papers that are not in the repository. Each is written in two parts, so that this list is not a finding.
const NOT_HERE: &[&str] = &[concat!("md-", "reference"), concat!("DESIGN ", "section"), concat!("../", "shared")];

/// All findings of the project at `root`.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let mut files: Vec<PathBuf> = Vec::new();
    for extension in EXTENSIONS {
        files.extend(project::files(root, Path::new("."), extension));
    }
    let read = |path: &Path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut known = Known::new(&read(Path::new(ENTRIES)));
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        known.headings.insert(path.clone(), headings(&read(path)));
    }
    let mut found = known.check_entries();
    for path in files {
        let text = read(&path);
        known.files.extend(cited_paths_in(&path, &text).into_iter().filter(|cited| root.join(cited).exists()));
        let tests = text.lines().flat_map(named_tests);
        known.tests.extend(tests.filter(|(file, test)| read(file).contains(&format!("fn {test}("))));
        found.extend(known.check(&path, &text));
        if path == Path::new(QUOTES) {
            found.extend(check_quotes(&path, &text, &read));
        }
    }
    found
}

/// The targets that a citation may name.
#[derive(Default)]
struct Known {
    /// Entries of [`ENTRIES`]: letter and number.
    entries: BTreeSet<String>,
    /// Entries that are there twice.
    doubled: Vec<(usize, String)>,
    /// The anchors of every document.
    headings: BTreeMap<PathBuf, BTreeSet<String>>,
    /// Cited paths that exist.
    files: BTreeSet<PathBuf>,
    /// Cited tests that exist, each with its file.
    tests: BTreeSet<(PathBuf, String)>,
}

impl Known {
    /// Takes the entries from the rows of tables that begin with `| **I8** |`.
    fn new(text: &str) -> Known {
        let mut known = Known::default();
        for (index, line) in text.lines().enumerate() {
            let Some((entry, _)) = line.strip_prefix("| **").and_then(|rest| rest.split_once("** |")) else { continue };
            if !known.entries.insert(entry.to_string()) {
                known.doubled.push((index + 1, entry.to_string()));
            }
        }
        known
    }

    fn check_entries(&self) -> Vec<Finding> {
        let finding = |line, what| Finding { path: PathBuf::from(ENTRIES), line, what };
        let mut found: Vec<Finding> =
            self.doubled.iter().map(|(line, entry)| finding(*line, format!("{entry} is there twice"))).collect();
        if self.entries.is_empty() {
            found.push(finding(0, "no entries: expected rows of tables that begin with `| **I8** |`".to_string()));
        }
        found
    }

    fn check(&self, path: &Path, text: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        let finding = |line, what| Finding { path: path.to_path_buf(), line, what };
        let (prose, words) = prose_and_words(path, text);
        for (index, line) in words.iter().enumerate() {
            for number in numbers(line).into_iter().filter(|number| self.is_missing(path, number)) {
                found.push(finding(index + 1, format!("{number} is no entry of {ENTRIES}")));
            }
        }
        for (index, line) in prose.iter().enumerate() {
            for (cited, anchor) in cited_paths(line) {
                found.extend(self.missing_path(&cited, anchor).map(|what| finding(index + 1, what)));
            }
            for anchor in link_anchors(path, line) {
                found.extend(self.missing_anchor(&anchor.0, &anchor.1).map(|what| finding(index + 1, what)));
            }
            let tests = if path.extension().is_some_and(|it| it == "md") { named_tests(line) } else { Vec::new() };
            for (file, test) in tests.into_iter().filter(|test| !self.tests.contains(test)) {
                found.push(finding(index + 1, format!("{} has no function {test}", file.display())));
            }
        }
        for (index, line) in text.lines().enumerate() {
            for paper in NOT_HERE.iter().filter(|paper| line.contains(**paper)) {
                found.push(finding(index + 1, format!("{paper} is not in the repository: cite a page of docs/")));
            }
        }
        found
    }

    fn is_missing(&self, path: &Path, number: &str) -> bool {
        let is_data_chunk = number.starts_with('D') && !path.starts_with(DATA_CHUNKS_AS_ENTRIES);
        let has_letter = self.entries.iter().any(|entry| entry[..1] == number[..1]);
        has_letter && !is_data_chunk && !self.entries.contains(number)
    }

    fn missing_path(&self, cited: &Path, anchor: Option<&str>) -> Option<String> {
        if !self.files.contains(cited) {
            return Some(format!("{} does not exist", cited.display()));
        }
        self.missing_anchor(cited, anchor?)
    }

    fn missing_anchor(&self, document: &Path, anchor: &str) -> Option<String> {
        let headings = self.headings.get(document)?;
        (!headings.contains(anchor)).then(|| format!("{} has no heading #{anchor}", document.display()))
    }
}

/// The lines to look for paths in (of a source: its comments), and those to look for numbers in (its comments and strings).
fn prose_and_words(path: &Path, text: &str) -> (Vec<String>, Vec<String>) {
    if path.extension().is_none_or(|extension| extension != "rs") {
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        return (lines.clone(), lines);
    }
    let source = Source::new(path, text);
    let without_code = |(line, code): (&String, &String)| {
        line.chars().zip(code.chars()).map(|(c, code)| if code == ' ' { c } else { ' ' }).collect()
    };
    let words = source.lines.iter().zip(&source.code).map(without_code).collect();
    (source.comments, words)
}

/// `R4` in "(R4)": a capital letter and one or two digits that stand alone.
fn numbers(line: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.split(|c: char| !is_part(c))
        .filter(|word| {
            let (letter, digits) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
            letter.chars().all(|c| c.is_ascii_uppercase())
                && (1..=2).contains(&digits.len())
                && digits.chars().all(|c| c.is_ascii_digit())
        })
        .map(str::to_string)
        .collect()
}

/// The paths below `docs/` and `crates/` in a line, each with its anchor. A pattern (`crates/*/src`, `crates/NAME`) is
/// no path.
fn cited_paths(line: &str) -> Vec<(PathBuf, Option<&str>)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let mut found = Vec::new();
    for start in ["docs/", "crates/"].iter().flat_map(|folder| line.match_indices(folder)).map(|(at, _)| at) {
        if line[..start].chars().next_back().is_some_and(is_part) {
            continue;
        }
        let length = line[start..].find(|c| !is_part(c)).unwrap_or(line.len() - start);
        let (path, rest) = line[start..].split_at(length);
        let is_pattern = rest.starts_with(['*', '{', '<']);
        let is_placeholder =
            path.split(['/', '.']).any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()));
        let path = path.trim_end_matches(['.', '/', '-']);
        if is_pattern || is_placeholder || !path.contains('/') {
            continue;
        }
        found.push((PathBuf::from(path), rest.strip_prefix('#').map(anchor)));
    }
    found
}

/// The tests that a line of a document names with their file: "`crates/NAME/tests/b.rs`: `one`, `two`", or "`one`, `two`
/// in `crates/NAME/tests/b.rs`".
fn named_tests(line: &str) -> Vec<(PathBuf, String)> {
    let parts: Vec<&str> = line.split('`').collect();
    let is_name = |part: &str| part.contains('_') && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_file = |part: &str| part.starts_with("crates/") && part.ends_with(".rs");
    let mut found = Vec::new();
    // What is in backticks is in the odd parts.
    for file in (1..parts.len()).step_by(2).filter(|at| is_file(parts[*at])) {
        let mut take = |name: usize| found.push((PathBuf::from(parts[file]), parts[name].to_string()));
        let joint = |first| if first { ": " } else { ", " };
        let behind = (file..parts.len().saturating_sub(2)).step_by(2);
        behind
            .take_while(|at| parts[at + 1] == joint(*at == file) && is_name(parts[at + 2]))
            .for_each(|at| take(at + 2));
        let joint = |first| if first { " in " } else { ", " };
        let before = (3..=file).rev().step_by(2);
        before
            .take_while(|at| parts[at - 1] == joint(*at == file) && is_name(parts[at - 2]))
            .for_each(|at| take(at - 2));
    }
    found
}

/// Every path that a file cites.
fn cited_paths_in(path: &Path, text: &str) -> Vec<PathBuf> {
    let (prose, _) = prose_and_words(path, text);
    prose.iter().flat_map(|line| cited_paths(line)).map(|(cited, _)| cited).collect()
}

/// The anchor that a text begins with.
fn anchor(text: &str) -> &str {
    let length = text.find(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).unwrap_or(text.len());
    &text[..length]
}

/// The links of a document's line that name a heading: the document, from the project's root, and the anchor.
fn link_anchors(path: &Path, line: &str) -> Vec<(PathBuf, String)> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let links = line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split([')', ' ']).next());
    let with_anchor = links.filter(|target| !target.contains("://")).filter_map(|target| target.split_once('#'));
    with_anchor
        .map(|(file, anchor)| {
            let document = if file.is_empty() { path.to_path_buf() } else { plain(&folder.join(file)) };
            (document, anchor.to_string())
        })
        .collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.iter().filter_map(|part| part.to_str()) {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.iter().collect()
}

/// The anchors of a document, as GitHub makes them: `## Flush and FUA` is `flush-and-fua`.
fn headings(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        found.insert(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect());
    }
    found
}

/// Checks that every block of Rust names a file in its first line, and that the file contains the block. A line `//
/// ...` stands for omitted lines.
fn check_quotes(path: &Path, text: &str, read: &dyn Fn(&Path) -> String) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, _)) = lines.by_ref().find(|(_, line)| line.starts_with("```rust")) {
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        found.extend(check_quote(&block, read).map(|what| Finding { path: path.to_path_buf(), line: index + 1, what }));
    }
    found
}

fn check_quote(block: &[&str], read: &dyn Fn(&Path) -> String) -> Option<String> {
    let (first, quoted) = block.split_first()?;
    let Some(file) = first.strip_prefix("// ").filter(|file| file.ends_with(".rs")) else {
        return Some("a block of code names its file in the first line: `// crates/..`".to_string());
    };
    let content = read(Path::new(file));
    let mut rest: Vec<&str> = content.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for part in quoted.split(|line| line.trim() == "// ...") {
        let part: Vec<&str> = part.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        let Some(first) = part.first() else { continue };
        let Some(at) = (0..rest.len()).find(|at| rest[*at..].starts_with(&part)) else {
            return Some(format!("{file} has no such lines: {first}"));
        };
        rest.drain(..at + part.len());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let mut known = Known::new("| **D1** | a stale member |\n| **R4** | an answer too early |\n");
        known.headings.insert(PathBuf::from("docs/a.md"), headings("# A\n\n## Flush, FUA: `now`\n"));
        known.files.insert(PathBuf::from("docs/a.md"));
        known.files.insert(PathBuf::from("crates/a/tests/b.rs"));
        known.tests.insert((PathBuf::from("crates/a/tests/b.rs"), "it_is_so".to_string()));
        known
    }

    fn findings(path: &str, text: &str) -> Vec<String> {
        known().check(Path::new(path), text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cited_number_without_an_entry_is_reported() {
        let (there, missing) = ("R4", concat!("R", "5"));
        for number in [there, missing] {
            let found = if number == missing { 1 } else { 0 };
            assert_eq!(findings("crates/a/src/b.rs", &format!("// so it is ({number})\n")).len(), found);
            assert_eq!(findings("crates/a/src/b.rs", &format!("f(\"{number}: {{a}}\")\n")).len(), found);
            assert_eq!(findings("README.md", &format!("see {number}'s twin\n")).len(), found);
        }
        let found = findings("README.md", &format!("a\nb {missing}\n"));
        assert_eq!(found, [format!("README.md:2: {missing} is no entry of docs/reliability.md")]);
    }

    #[test]
    fn code_and_longer_words_are_no_citations() {
        let text =
            format!("use a::{{{}}};\n// {}x a{} {}\n", concat!("R", "5"), concat!("R", "5"), concat!("R", "5"), "P7");
        assert_eq!(findings("crates/a/src/b.rs", &text), Vec::<String>::new());
    }

    #[test]
    fn a_data_chunk_is_an_entry_in_the_simulator_only() {
        let text = concat!("// D", "2\n");
        assert_eq!(findings("crates/layout/src/a.rs", text).len(), 0);
        assert_eq!(findings("crates/sim/src/a.rs", text).len(), 1);
        assert_eq!(findings("crates/sim/src/a.rs", "// D1\n").len(), 0);
    }

    #[test]
    fn cited_pages_and_headings_must_exist() {
        let cite = |path: &str| findings("crates/a/src/b.rs", &format!("//! Spec: {path}.\n"));
        assert_eq!(cite("docs/a.md"), Vec::<String>::new());
        assert_eq!(cite("docs/a.md#flush-fua-now"), Vec::<String>::new());
        assert_eq!(cite("docs/a.md#flush"), ["crates/a/src/b.rs:1: docs/a.md has no heading #flush"]);
        assert_eq!(cite("docs/b.md"), ["crates/a/src/b.rs:1: docs/b.md does not exist"]);
        assert_eq!(cite("docs/*.md, docs/NAME.md, other/docs/c.md"), Vec::<String>::new());
    }

    #[test]
    fn links_to_headings_must_resolve() {
        assert_eq!(findings("docs/md/c.md", "[a](../a.md#flush-fua-now), [b](http://x/#y)\n"), Vec::<String>::new());
        assert_eq!(findings("docs/md/c.md", "[a](../a.md#gone)\n"), ["docs/md/c.md:1: docs/a.md has no heading #gone"]);
        assert_eq!(findings("docs/a.md", "[a](#gone)\n").len(), 1);
    }

    #[test]
    fn cited_tests_must_exist() {
        let gone = "docs/a.md:1: crates/a/tests/b.rs has no function it_is_gone";
        for (line, expected) in [
            ("| a | `crates/a/tests/b.rs`: `it_is_so` |", Vec::new()),
            ("| `it_is_so` in `crates/a/tests/b.rs` | `it_is_gone` |", Vec::new()),
            ("`crates/a/tests/b.rs`: `it_is_so`, `it_is_gone`", vec![gone]),
            ("`it_is_gone`, `it_is_so` in `crates/a/tests/b.rs`", vec![gone]),
            ("`crates/a/tests/b.rs`: `it_is_gone`; `it_is_gone` in `crates/a/tests/b.rs`", vec![gone, gone]),
        ] {
            assert_eq!(findings("docs/a.md", line), expected, "{line}");
        }
    }

    #[test]
    fn papers_outside_the_repository_must_not_be_cited() {
        for paper in NOT_HERE {
            assert_eq!(findings("Cargo.toml", &format!("# Spec: {paper} 2.1\n")).len(), 1);
        }
    }

    #[test]
    fn entries_must_exist_once() {
        assert_eq!(known().check_entries().len(), 0);
        assert_eq!(Known::new("").check_entries().len(), 1);
        let twice = Known::new("| **R4** | a |\n| **R4** | b |\n").check_entries();
        assert_eq!(twice[0].to_string(), "docs/reliability.md:2: R4 is there twice");
    }

    #[test]
    fn quoted_code_must_exist_in_the_named_file() {
        let read = |_: &Path| "fn a() {\n    b();\n\n    c();\n    d();\n}\n".to_string();
        let check = |block: &str| {
            let text = format!("Text.\n```rust\n{block}\n```\n");
            check_quotes(Path::new("STYLE.md"), &text, &read).iter().map(ToString::to_string).collect::<Vec<String>>()
        };
        assert_eq!(check("// a.rs\nb();\nc();"), Vec::<String>::new());
        assert_eq!(check("// a.rs\nfn a() {\n// ...\n    d();"), Vec::<String>::new());
        assert_eq!(check("// a.rs\nc();\nb();"), ["STYLE.md:2: a.rs has no such lines: c();"]);
        assert_eq!(check("// a.rs\nb();\nd();").len(), 1, "nothing is left out silently");
        assert_eq!(check("b();").len(), 1, "the file is named");
    }
}
