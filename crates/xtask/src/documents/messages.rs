//! `cargo xtask errors`: the page of every error message, from the `#[error("...")]` of the sources.
//! Owns: finding the messages, the page's text, whether the page is up to date. Not here: what a message means and what
//! to do, which people write (docs/operating/errors.md).
//! Invariant: the page depends on the sources alone; the same sources make the same bytes.

use crate::project::source::Source;
use crate::project::{self, Finding};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/operating/error-messages.md";

/// The crates whose errors a user of the binary may meet, and what these are about.
const CRATES: &[(&str, &str)] = &[
    ("uraid", "Command lines, offline commands"),
    ("control", "Asking running arrays; the runtime directory, names of members"),
    ("config", "mdadm.conf"),
    ("operate", "Programs beside the server: status, history, monitor, metrics, scrub, watch"),
    ("serve", "Members, serving, commands to running arrays"),
    ("engine", "Starting arrays, and changing running ones"),
    ("format", "What is on a member: superblocks, bitmaps, logs, partitions; new arrays"),
    ("layout", "The geometry of an array"),
    ("arrays", "Building and starting arrays"),
    ("host", "Files, devices, sockets, threads"),
    ("export-nbd", "Serving NBD"),
    ("nbd", "NBD's bytes"),
    ("export-fuse", "Serving files"),
    ("fuse", "FUSE's messages"),
    ("block", "Requests"),
    ("doctor", "The search for the order of members"),
    ("bench", "Measuring"),
    ("bench-command", "Measuring: the command"),
    ("parity", "Parity"),
];

const HEAD: &str = "\
# Every error message

Made from the sources by `cargo xtask errors`. `…` stands for names, numbers and causes; a message
may be followed by its cause, after a colon. What the messages mean that you are most likely to
meet, and what to do: [errors.md](errors.md).
";

/// Writes the page; whether that worked.
pub(crate) fn write() -> bool {
    let root = project::root();
    let page = page(&root);
    match std::fs::write(root.join(PAGE), &page) {
        Ok(()) => println!("{PAGE}: {} messages", page.lines().filter(|line| line.starts_with("| `")).count()),
        Err(error) => eprintln!("{PAGE}: {error}"),
    }
    is_current(&root, &page)
}

/// A finding if the page is not what the sources make.
pub(crate) fn check(root: &Path) -> Option<Finding> {
    let what = "not up to date with the sources: run `cargo xtask errors`".to_string();
    (!is_current(root, &page(root))).then(|| Finding { path: PathBuf::from(PAGE), line: 1, what })
}

fn is_current(root: &Path, page: &str) -> bool {
    std::fs::read_to_string(root.join(PAGE)).is_ok_and(|text| text == page)
}

fn page(root: &Path) -> String {
    let mut page = HEAD.to_string();
    for (name, about) in CRATES {
        let mut rows = BTreeSet::new();
        for path in project::files(root, &Path::new("crates").join(name).join("src"), "rs") {
            let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
            rows.extend(messages(&path, &text).into_iter().map(|message| row(&message, &path)));
        }
        if !rows.is_empty() {
            let _ = write!(page, "\n## {about}\n\n| message | source |\n|---|---|\n");
            page.extend(rows);
        }
    }
    page
}

fn row(message: &str, path: &Path) -> String {
    let (open, close) = if message.contains('`') { ("`` ", " ``") } else { ("`", "`") };
    format!("| {open}{}{close} | `{}` |\n", message.replace('|', "\\|"), path.display())
}

/// The texts of all `#[error("...")]` in code, with `…` for what is put in. Those that put in everything are left out.
fn messages(path: &Path, text: &str) -> Vec<String> {
    let code = Source::new(path, text).code.join("\n");
    let chars: Vec<char> = text.chars().collect();
    let mark: Vec<char> = "#[error(".chars().collect();
    let code: Vec<char> = code.chars().collect();
    let places = (0..code.len().saturating_sub(mark.len())).filter(|at| code[*at..].starts_with(&mark));
    let texts = places.filter_map(|at| {
        let rest: String = chars[at + mark.len()..].iter().collect();
        rest.trim_start().strip_prefix('"').map(|rest| with_dots(&literal(rest)))
    });
    texts.filter(|text| text.chars().any(char::is_alphabetic)).collect()
}

/// The value of a string literal, from behind its opening quote on.
fn literal(rest: &str) -> String {
    let mut value = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                // The line goes on in the next one, at its first character.
                Some('\n') => chars = chars.as_str().trim_start().chars(),
                Some('n') => value.push(' '),
                Some(escaped) => value.push(escaped),
                None => break,
            },
            c => value.push(c),
        }
    }
    value
}

/// `{found} of {expected:?}` is `… of …`; doubled braces are braces.
fn with_dots(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        if rest[at + 1..].starts_with(brace) {
            text.push_str(brace);
            rest = &rest[at + 2..];
        } else {
            text.push('…');
            rest = rest[at..].split_once('}').map_or("", |(_, behind)| behind);
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_attributes_are_found_with_dots_for_what_is_put_in() {
        let text = r##"
            // #[error("in a comment")]
            #[error("{member}: has {found:#x}, expected {}", expected(*x))]
            A,
            #[error(
                "the \"first\" \
                 line"
            )]
            B,
            #[error(transparent)]
            C,
            #[error("{0}")]
            D,
            #[error("{{}} is a|b")]
            E,
        "##;
        let found = messages(Path::new("crates/a/src/b.rs"), text);
        assert_eq!(found, ["…: has …, expected …", "the \"first\" line", "{} is a|b"]);
        assert_eq!(row(&found[2], Path::new("b.rs")), "| `{} is a\\|b` | `b.rs` |\n");
    }

    #[test]
    fn every_crate_with_errors_is_on_the_page_or_a_tool() {
        let root = project::root();
        for (name, folder) in project::packages(&root) {
            let has_errors = project::files(&root, &folder.join("src"), "rs").iter().any(|path| {
                let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
                !messages(path, &text).is_empty()
            });
            let is_tool = ["blackbox", "sim", "fuzz", "xtask"].contains(&name.as_str());
            assert!(!has_errors || is_tool || CRATES.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}
