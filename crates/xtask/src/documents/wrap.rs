//! `cargo xtask wrap`: prose of the documents at 100 columns.
//! Owns: what is a paragraph of Markdown, where it may be broken. Not here: the other rules of documents (`indexes`).
//! Invariant: only blanks and ends of lines change, and only in paragraphs with a line that is too long. Tables, headings,
//! code, comments and pictures stay as they are.

use crate::project::{self, Finding};
use std::path::Path;

const COLUMNS_MAX: usize = 100;

/// Wraps all documents; whether each could be written.
pub(crate) fn write() -> bool {
    let root = project::root();
    let mut is_good = true;
    for path in project::files(&root, Path::new("."), "md") {
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        let wrapped = wrapped(&text);
        if wrapped != text {
            println!("{}", path.display());
            is_good &= std::fs::write(root.join(&path), wrapped).is_ok();
        }
    }
    is_good
}

/// The first line of each document that `write` would change.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in project::files(root, Path::new("."), "md") {
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        let wrapped = wrapped(&text);
        if wrapped != text {
            let line = text.lines().zip(wrapped.lines()).take_while(|(old, new)| old == new).count() + 1;
            let what = format!("prose is longer than {COLUMNS_MAX} columns: `cargo xtask wrap` wraps it");
            found.push(Finding { path, line, what });
        }
    }
    found
}

/// A paragraph that is being read.
#[derive(Default)]
struct Paragraph<'a> {
    lines: Vec<&'a str>,
    /// Blanks before its further lines.
    indent: usize,
}

impl Paragraph<'_> {
    /// Its text, wrapped if a line is too long, and the empty paragraph.
    fn end(&mut self, out: &mut String) {
        let paragraph = std::mem::take(self);
        let is_long = paragraph.lines.iter().any(|line| columns(line) > COLUMNS_MAX);
        if is_long {
            paragraph.wrap(out);
        } else {
            paragraph.lines.iter().for_each(|line| push_line(out, line));
        }
    }

    fn wrap(&self, out: &mut String) {
        let text = self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let first = self.lines.first().map_or("", |line| line.trim_start());
        let (mark, text) = text.split_at(item(first));
        let before = self.indent - mark.len();
        let mut line = " ".repeat(before) + mark;
        let mut is_empty = true;
        for word in words(text) {
            if !is_empty && columns(&line) + 1 + columns(&word) > COLUMNS_MAX {
                push_line(out, &line);
                line = " ".repeat(self.indent);
                is_empty = true;
            }
            line.push_str(if is_empty { "" } else { " " });
            line.push_str(&word);
            is_empty = false;
        }
        push_line(out, &line);
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// The document with its long paragraphs wrapped.
pub(crate) fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut paragraph = Paragraph::default();
    let (mut is_code, mut is_comment, mut is_list, mut is_after_blank) = (false, false, false, true);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = columns(line) - columns(trimmed);
        let is_fence = trimmed.starts_with("```");
        let item = item(trimmed);
        let is_indented_code = indent >= 4 && is_after_blank && !is_list;
        let is_kept = trimmed.is_empty() || trimmed.starts_with(['|', '#', '<', '>']) || trimmed.starts_with("![");
        // Commands may be in a comment of several lines.
        is_comment |= trimmed.starts_with("<!--");
        if is_fence || is_code || is_comment || is_kept || is_indented_code {
            paragraph.end(&mut out);
            is_code ^= is_fence;
            is_comment &= !trimmed.ends_with("-->");
            out.push_str(line);
            out.push('\n');
            // A block of indented code goes on, also over blank lines.
            is_after_blank = trimmed.is_empty() || is_indented_code;
            continue;
        }
        if item > 0 || paragraph.lines.is_empty() {
            paragraph.end(&mut out);
            paragraph.indent = indent + item;
        }
        is_list = item > 0 || (is_list && indent > 0) || (is_list && !is_after_blank);
        is_after_blank = false;
        paragraph.lines.push(line);
    }
    paragraph.end(&mut out);
    out
}

/// How long the mark of an item of a list is, with the blank behind it; 0 without one.
fn item(trimmed: &str) -> usize {
    let digits = trimmed.chars().take_while(char::is_ascii_digit).count();
    let mark = &trimmed[digits..];
    let is_item = if digits > 0 { mark.starts_with(". ") } else { mark.starts_with("- ") || mark.starts_with("* ") };
    if is_item { digits + 2 } else { 0 }
}

/// The pieces between which a line may end: at blanks, but not inside of code, not between a file and the test that it is
/// cited with, and not before what begins something else at the start of a line.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    // The backquotes that the code which goes on began with.
    let mut open = 0;
    for (index, piece) in text.split(' ').filter(|piece| !piece.is_empty()).enumerate() {
        let is_cited = words.last().is_some_and(|last| last.ends_with("`:")) && piece.starts_with('`');
        let begins_other = index > 0 && is_mark(piece);
        match words.last_mut() {
            Some(last) if open > 0 || is_cited || begins_other => {
                last.push(' ');
                last.push_str(piece);
            }
            _ => words.push(piece.to_string()),
        }
        open = open_after(piece, open);
    }
    words
}

/// How many backquotes began the code that is open after `piece`, where `open` began the one before it; 0: none.
fn open_after(piece: &str, mut open: usize) -> usize {
    let mut rest = piece;
    while let Some(at) = rest.find('`') {
        rest = &rest[at..];
        let run = rest.len() - rest.trim_start_matches('`').len();
        match open {
            0 => open = run,
            begun if begun == run => open = 0,
            _ => {}
        }
        rest = &rest[run..];
    }
    open
}

/// What a line of a paragraph must not begin with.
fn is_mark(piece: &str) -> bool {
    let number = piece.trim_end_matches(['.', ')']);
    let is_number = number != piece && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        || piece.starts_with(['|', '<', '>', '#', '+', '=', '*']) && !piece.starts_with("**")
        || piece.starts_with("![")
        || piece == "-"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paragraphs_are_wrapped_and_all_else_stays() {
        let long = "word ".repeat(30);
        let long = long.trim_end();
        let (first, second) = (["word"; 20].join(" "), ["word"; 10].join(" "));
        for kept in [
            "| long |",
            "# long",
            "```\nlong\n```",
            "a\n\n    long\n\n    long",
            "<!-- long -->",
            "<!-- given:\nlong\nb\n-->",
            "a\nb",
            "- [a](link)",
        ] {
            let text = format!("{}\n", kept.replace("long", long).replace("link", &"x".repeat(120)));
            assert_eq!(wrapped(&text), text);
        }
        assert_eq!(wrapped(&format!("{long}\n\nb\n")), format!("{first}\n{second}\n\nb\n"));
        let (first, second) = (["word"; 19].join(" "), ["word"; 11].join(" "));
        assert_eq!(wrapped(&format!("10. {long}\n    b\n- c\n")), format!("10. {first}\n    {second} b\n- c\n"));
        assert_eq!(wrapped(&format!("- a\n\n  {long}\n")), format!("- a\n\n  {first}\n  {second}\n"));
    }

    #[test]
    fn code_and_cited_tests_stay_on_one_line_and_no_line_begins_a_list() {
        assert_eq!(words("a `b c` - d `e`: `f g` 1. h"), ["a", "`b c` -", "d", "`e`: `f g` 1.", "h"]);
        assert_eq!(words("- a **b** ``c ` d`` e"), ["-", "a", "**b**", "``c ` d``", "e"]);
    }
}
