//! Rust source split into what is code, what is comment, and what is text in quotes.
//! Owns: a lexer that knows comments, strings, raw strings and character literals; which files of a crate are shipped.
//! Not here: any rule (`tidy`, `floors`).
//! Invariant: every blanked copy has the lines and columns of the original.

use crate::project;
use std::path::{Path, PathBuf};

/// One file in three forms: the whole text, only its code, only its comments.
pub(crate) struct Source {
    /// Where it is, relative to the project.
    pub(crate) path: PathBuf,
    /// The whole text.
    pub(crate) lines: Vec<String>,
    /// Comments and the insides of quotes are blanks.
    pub(crate) code: Vec<String>,
    /// Everything but comments is blank.
    pub(crate) comments: Vec<String>,
}

impl Source {
    /// Splits `text`.
    pub(crate) fn new(path: &Path, text: &str) -> Source {
        let chars: Vec<char> = text.chars().collect();
        let kinds = classify(&chars);
        Source {
            path: path.to_path_buf(),
            lines: text.lines().map(str::to_string).collect(),
            code: keep(&chars, &kinds, Kind::Code),
            comments: keep(&chars, &kinds, Kind::Comment),
        }
    }

    /// Every function that has a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (index, line) in self.code.iter().enumerate() {
            for at in words(line, "fn") {
                let rest = line[at + 2..].trim_start();
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                // `fn(u8)` is a type, not a function.
                if name.is_empty() {
                    continue;
                }
                if let Some(last) = self.body_end(index, at) {
                    found.push(Function { name, length: last - index + 1 });
                }
            }
        }
        found
    }

    /// The line of the brace that closes the body of the item starting at `line`, `column`; `None` when it ends in `;`.
    fn body_end(&self, line: usize, column: usize) -> Option<usize> {
        let (mut round, mut curly) = (0i32, 0i32);
        for (index, text) in self.code.iter().enumerate().skip(line) {
            let from = if index == line { column } else { 0 };
            for c in text[from..].chars() {
                match c {
                    '(' | '[' => round += 1,
                    ')' | ']' => round -= 1,
                    '{' => curly += 1,
                    '}' if curly == 1 && round == 0 => return Some(index),
                    '}' => curly -= 1,
                    ';' if round == 0 && curly == 0 => return None,
                    _ => {}
                }
            }
        }
        None
    }
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    /// Lines from `fn` to its closing brace.
    pub(crate) length: usize,
}

/// The places where `word` stands alone in `line`, as byte offsets.
pub(crate) fn words(line: &str, word: &str) -> Vec<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .filter(|(at, _)| {
            !line[..*at].chars().next_back().is_some_and(is_part)
                && !line[at + word.len()..].chars().next().is_some_and(is_part)
        })
        .map(|(at, _)| at)
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Quoted,
}

fn keep(chars: &[char], kinds: &[Kind], kept: Kind) -> Vec<String> {
    let blanked: String =
        chars.iter().zip(kinds).map(|(c, kind)| if *c == '\n' || *kind == kept { *c } else { ' ' }).collect();
    blanked.lines().map(str::to_string).collect()
}

/// The kind of each character. The quotes themselves count as code.
fn classify(chars: &[char]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; chars.len()];
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => mark(&mut kinds, at, line_end(chars, at), Kind::Comment),
            '/' if chars.get(at + 1) == Some(&'*') => mark(&mut kinds, at, block_comment_end(chars, at), Kind::Comment),
            '"' => {
                let hashes = raw_hashes(chars, at);
                let close = string_end(chars, at, hashes);
                mark(&mut kinds, at + 1, close, Kind::Quoted) + 1 + hashes.unwrap_or(0)
            }
            '\'' => match char_literal_end(chars, at) {
                Some(close) => mark(&mut kinds, at + 1, close, Kind::Quoted) + 1,
                None => at + 1,
            },
            _ => at + 1,
        };
        at = end;
    }
    kinds
}

fn mark(kinds: &mut [Kind], from: usize, to: usize, kind: Kind) -> usize {
    let to = to.min(kinds.len());
    kinds[from.min(to)..to].fill(kind);
    to
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| at + n)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            (_, _) => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

/// For the quote at `at`: `Some(n)` in a raw string with n hashes, `None` in a plain one.
fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[..at].iter().rev().take_while(|c| **c == '#').count();
    let before = at - hashes;
    let is_raw = before > 0 && chars[before - 1] == 'r';
    let prefix = chars[..before.saturating_sub(1)].iter().rev().take_while(|c| c.is_alphanumeric() || **c == '_');
    // `r`, `br` and `cr` open a raw string; a name that happens to end in r does not.
    let is_prefix_short = prefix.clone().count() <= 1 && prefix.clone().all(|c| *c == 'b' || *c == 'c');
    (is_raw && is_prefix_short).then_some(hashes)
}

/// The index of the quote that closes the string opened at `at`.
fn string_end(chars: &[char], at: usize, raw: Option<usize>) -> usize {
    let mut next = at + 1;
    while next < chars.len() {
        match (chars[next], raw) {
            ('\\', None) => next += 1,
            ('"', None) => return next,
            ('"', Some(hashes)) if chars[next + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes => {
                return next;
            }
            (_, _) => {}
        }
        next += 1;
    }
    chars.len()
}

/// The index of the closing quote of a character literal at `at`; `None` for a lifetime.
fn char_literal_end(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        // Longest: '\u{10ffff}'.
        '\\' => (at + 3..at + 14).find(|next| chars.get(*next) == Some(&'\'')),
        _ => (chars.get(at + 2) == Some(&'\'')).then_some(at + 2),
    }
}

/// The sources below `folder/src` that are shipped: no file of tests, and none's test module. Paths from `root` on.
pub(crate) fn shipped_files(root: &Path, folder: &Path) -> Vec<(PathBuf, Source)> {
    let paths = project::files(root, &folder.join("src"), "rs").into_iter().filter(|path| !is_test_file(path));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(root.join(&path)).ok()?;
        let source = shipped(&Source::new(&path, &text));
        Some((path, source))
    };
    paths.filter_map(read).collect()
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name == "tests" || name.ends_with("_tests")
}

/// The file without its test module, which stands at its end.
pub(crate) fn shipped(source: &Source) -> Source {
    let is_tests = |at: usize| {
        source.code[at].trim() == "#[cfg(test)]"
            && source.code.get(at + 1).is_some_and(|next| next.contains("mod ") && next.contains('{'))
    };
    let end = (0..source.code.len()).find(|at| is_tests(*at)).unwrap_or(source.code.len());
    Source {
        path: source.path.clone(),
        lines: source.lines[..end].to_vec(),
        code: source.code[..end].to_vec(),
        comments: source.comments[..end].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new(Path::new("a.rs"), text)
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let source =
            source("let a = \"unsafe // no\"; // unsafe\nlet b = r#\"fn x() {\"#; /* { */ let c = '\"'; let d = 'a';");
        assert!(!source.code.join("\n").contains("unsafe"));
        assert!(!source.code[1].contains("fn"));
        assert!(source.code[1].contains("let d"));
        assert_eq!(source.comments[0].trim(), "// unsafe");
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let source = source("fn a<'x>(b: &'x str) -> &'x str { b }\nfn c() {}");
        assert_eq!(source.functions().len(), 2);
    }

    #[test]
    fn a_function_is_counted_from_its_fn_line_to_its_brace() {
        let source = source("fn a(\n    b: [u8; 4],\n) {\n    let s = \"}\";\n}\ntrait T {\n    fn d(&self);\n}\n");
        let functions = source.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!((functions[0].name.as_str(), functions[0].length), ("a", 5));
    }

    #[test]
    fn a_word_inside_another_word_is_not_found() {
        assert_eq!(words("unsafe_code unsafe notunsafe", "unsafe"), vec![12]);
    }
}
