//! Makes a copy of the workspace that has every fault of one kind in it, one of which is selected at run time.
//! Owns: finding the texts, what stands in their place, the copy's files. Not here: the list, building the copy.
//! Invariant: a text that is not in its file exactly once is an error that names the entry: the list cannot rot.

use super::list::{Entry, Kind};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// In each crate that has a mutant: one load, no lock, and no allocation even the first time, because tests count them.
const MODULE: &str = "\
//! Which of the listed faults this process has. Owns: one number of the environment. Not here: the faults.
#![allow(unsafe_code, reason = \"the environment as C has it allocates nothing\")]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// 0: not looked up yet; 1: none.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

unsafe extern \"C\" {
    fn getenv(name: *const std::ffi::c_char) -> *const std::ffi::c_char;
}

#[inline]
pub(crate) fn is(number: u32) -> bool {
    match CHOSEN.load(Relaxed) {
        0 => look_up() == number,
        chosen => chosen == number,
    }
}

#[cold]
fn look_up() -> u32 {
    // SAFETY: a text that ends in zero; no test changes the environment.
    let text = unsafe { getenv(c\"URAID_MUTANT\".as_ptr()) };
    let text = if text.is_null() { c\"1\" } else { unsafe { std::ffi::CStr::from_ptr(text) } };
    let digits = text.to_bytes().iter().map(|digit| u32::from(digit - b'0'));
    let chosen = digits.fold(0, |sum, digit| sum * 10 + digit);
    CHOSEN.store(chosen, Relaxed);
    chosen
}
";

/// In each crate that has a canary, before the table of names and numbers: chosen by code, so that one process can try all of
/// them, and for each thread, so that the threads of a test program do not disturb each other.
const CANARY_MODULE: &str = "\
//! Which of the listed mistakes this thread makes. Owns: their names. Not here: the mistakes.

use std::cell::Cell;

thread_local! {
    static CHOSEN: Cell<u32> = const { Cell::new(0) };
}

/// Makes this thread commit one mistake, or none.
pub fn set(name: Option<&str>) {
    let number = |name: &str| match LISTED.iter().find(|(known, _)| *known == name) {
        Some((_, number)) => *number,
        None => panic!(\"{name} is not in tests/canaries\"),
    };
    CHOSEN.set(name.map_or(0, number));
}

/// The names of all.
pub fn names() -> impl Iterator<Item = &'static str> {
    LISTED.iter().map(|(name, _)| *name)
}

#[inline]
pub(crate) fn is(number: u32) -> bool {
    CHOSEN.get() == number
}

static LISTED: &[(&str, u32)] = &[
";

/// Debug information of our own crates is most of what their builds cost. That of foreign ones stays, so that the copy
/// shares them with other builds.
const MANIFEST_EDIT: (&str, &str) = (
    "[profile.dev]\ndebug = \"line-tables-only\"\n",
    "[profile.dev.package.\"*\"]\ndebug = \"line-tables-only\"\n\n[profile.dev]\ndebug = 0\n",
);

/// An entry's place in its file, in bytes.
struct Spot<'a> {
    at: Range<usize>,
    entry: &'a Entry,
}

/// Copies every file of `root` to `copy`, with all entries, which are of this kind, in their places. Unchanged files are not written again, so
/// that cargo builds only what changed. All invalid entries are reported at once.
pub(crate) fn copy(root: &Path, copy: &Path, kind: Kind, entries: &[Entry]) -> Result<(), Vec<String>> {
    assert!(entries.iter().all(|entry| entry.kind == kind));
    let mut wrong = Vec::new();
    let mut kept: BTreeSet<PathBuf> = BTreeSet::new();
    let packages: BTreeSet<&str> = entries.iter().map(|entry| entry.package.as_str()).collect();
    let files = walk(root);
    for entry in entries.iter().filter(|entry| !files.contains(&entry.file)) {
        wrong.push(format!("{}: {}: {} does not exist", entry.place, entry.id, entry.file.display()));
    }
    for path in files {
        let of_file: Vec<&Entry> = entries.iter().filter(|entry| entry.file == path).collect();
        let head = packages.iter().find(|package| is_head(package, &path));
        let result = if path == Path::new("Cargo.toml") {
            let text = std::fs::read_to_string(root.join(&path)).map_err(|error| vec![error.to_string()]);
            text.map(|text| text.replace(MANIFEST_EDIT.0, MANIFEST_EDIT.1).into_bytes())
        } else if of_file.is_empty() && head.is_none() {
            std::fs::read(root.join(&path)).map_err(|error| vec![error.to_string()])
        } else {
            std::fs::read_to_string(root.join(&path))
                .map_err(|error| vec![error.to_string()])
                .and_then(|text| instrument(&text, &of_file))
                .map(|text| if head.is_some() { with_module(kind, &text) } else { text }.into_bytes())
        };
        match result {
            Ok(bytes) => wrong.extend(write(&copy.join(&path), &bytes).err()),
            Err(what) => wrong.extend(what),
        }
        kept.insert(path);
    }
    for package in packages {
        let path = Path::new("crates").join(package).join("src").join(format!("{}.rs", kind.module()));
        wrong.extend(write(&copy.join(&path), module(kind, package, entries).as_bytes()).err());
        kept.insert(path);
    }
    for path in walk(copy).into_iter().filter(|path| !kept.contains(path)) {
        wrong.extend(std::fs::remove_file(copy.join(&path)).err().map(|error| error.to_string()));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// The file that lists a crate's modules.
fn is_head(package: &str, path: &Path) -> bool {
    let source = Path::new("crates").join(package).join("src");
    path == source.join("lib.rs") || path == source.join("main.rs")
}

/// The module by which a crate's faults are chosen.
fn module(kind: Kind, package: &str, entries: &[Entry]) -> String {
    match kind {
        Kind::Mutant => MODULE.to_string(),
        Kind::Canary => {
            let mut text = CANARY_MODULE.to_string();
            let mut known = BTreeSet::new();
            let of_package = entries.iter().filter(|entry| entry.package == package);
            for entry in of_package.filter(|entry| known.insert(&entry.id)) {
                text.push_str(&format!("    (\"{}\", {}),\n", entry.id, entry.number()));
            }
            text + "];\n"
        }
    }
}

/// The module goes behind the head of the file; the copy's warnings are of no interest. Canaries are chosen from outside.
fn with_module(kind: Kind, text: &str) -> String {
    let end = text.split_inclusive('\n').take_while(|line| line.starts_with("//!")).map(str::len).sum();
    let (head, rest) = text.split_at(end);
    // Attributes of the whole crate come before the first item.
    let items = rest.find("\nmod ").into_iter().chain(rest.find("\npub mod ")).min().unwrap_or(0);
    let (attributes, items) = rest.split_at(items);
    let item = match kind {
        Kind::Mutant => "mod mutant;",
        Kind::Canary => "pub mod canary;",
    };
    format!("{head}#![allow(warnings)]{attributes}\n{item}\n{items}")
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    if std::fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().expect("a file has a folder")).map_err(told)?;
    std::fs::write(path, bytes).map_err(told)
}

/// Every file but those of builds and of version control, relative to `root`.
fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(next) = todo.pop() {
        let entries = std::fs::read_dir(&next).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && name != "target" && name != ".git" {
                todo.push(path);
            } else if !is_dir {
                found.push(path.strip_prefix(root).expect("found below the root").to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// The text with every entry of the file in its place.
fn instrument(text: &str, entries: &[&Entry]) -> Result<String, Vec<String>> {
    let mut spots = Vec::new();
    let mut wrong = Vec::new();
    for &entry in entries {
        match locate(text, entry) {
            Ok(at) => spots.push(Spot { at, entry }),
            Err(what) => wrong.push(what),
        }
    }
    // Outer spots first, and those of one place beside each other.
    spots.sort_by_key(|spot| (spot.at.start, std::cmp::Reverse(spot.at.end)));
    for (index, spot) in spots.iter().enumerate() {
        let is_cut = |other: &&Spot<'_>| {
            other.at.start < spot.at.start && spot.at.start < other.at.end && other.at.end < spot.at.end
        };
        if let Some(other) = spots[..index].iter().find(is_cut) {
            wrong.push(format!("{}: {} overlaps {}", spot.entry.place, spot.entry.id, other.entry.id));
        }
    }
    if wrong.is_empty() { Ok(render(text, 0..text.len(), &spots)) } else { Err(wrong) }
}

/// `text[range]` with the spots in it, of which outer ones hold inner ones.
fn render(text: &str, range: Range<usize>, mut spots: &[Spot<'_>]) -> String {
    let mut out = String::new();
    let mut at = range.start;
    while let Some(first) = spots.first() {
        let place = first.at.clone();
        let same = spots.iter().take_while(|spot| spot.at == place).count();
        let inner = spots[same..].iter().take_while(|spot| spot.at.start < place.end).count();
        out.push_str(&text[at..place.start]);
        let original = render(text, place.clone(), &spots[same..same + inner]);
        out.push_str(&choice(&spots[..same], &original));
        at = place.end;
        spots = &spots[same + inner..];
    }
    out.push_str(&text[at..range.end]);
    out
}

/// `(if crate::mutant::is(7) { a } else { b })`; a statement without the parentheses.
fn choice(spots: &[Spot<'_>], original: &str) -> String {
    let mut out = String::new();
    for spot in spots {
        let Entry { kind, with, .. } = spot.entry;
        out.push_str(&format!("if crate::{}::is({}) {{ {with} }} else ", kind.module(), spot.entry.number()));
    }
    out.push_str(&format!("{{ {original} }}"));
    if spots[0].entry.is_statement() { out } else { format!("({out})") }
}

/// Where the replaced part of an entry is; an error when its text is not there once.
fn locate(text: &str, entry: &Entry) -> Result<Range<usize>, String> {
    let found = matches(text, &entry.find);
    match found.as_slice() {
        [places] => {
            let from = places[entry.part.start];
            // The end is one behind the last character of the part, not before the next line's first one.
            let last = entry.original().chars().next_back().expect("the part is not empty").len_utf8();
            Ok(from..places[entry.part.end - last] + last)
        }
        others => Err(format!(
            "{}: {}: its text is in {} {} times, expected once",
            entry.place,
            entry.id,
            entry.file.display(),
            others.len()
        )),
    }
}

/// Every place where `find` is in `text`, as the place of each of its bytes. Lines may be indented differently.
fn matches(text: &str, find: &str) -> Vec<Vec<usize>> {
    let first = find.lines().next().unwrap_or("");
    let try_at = |start: usize| {
        let mut places = Vec::with_capacity(find.len());
        let mut at = start;
        for (index, line) in find.lines().enumerate() {
            if index > 0 {
                let rest = text[at..].strip_prefix('\n')?;
                places.push(at);
                at = text.len() - rest.trim_start_matches(' ').len();
            }
            let is_here = text[at..].starts_with(line);
            if !is_here {
                return None;
            }
            places.extend(at..at + line.len());
            at += line.len();
        }
        Some(places)
    };
    text.match_indices(first).filter_map(|(start, _)| try_at(start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, find: &str, with: &str) -> Entry {
        let clean = find.replace(['«', '»'], "");
        let part = match find.split_once('«') {
            Some((before, rest)) => before.len()..before.len() + rest.split('»').next().unwrap_or("").len(),
            None => 0..clean.len(),
        };
        Entry {
            kind: Kind::Mutant,
            id: id.to_string(),
            package: "a".to_string(),
            file: "crates/a/src/b.rs".into(),
            fault: "It is wrong.".to_string(),
            quick: None,
            equivalent: None,
            find: clean,
            part,
            with: with.to_string(),
            place: "a.txt:1".to_string(),
        }
    }

    fn instrumented(text: &str, entries: &[Entry]) -> Result<String, Vec<String>> {
        instrument(text, &entries.iter().collect::<Vec<_>>())
    }

    #[test]
    fn an_expression_gets_parentheses_and_a_statement_does_not() {
        let text = "fn f() {\n    if a < b {\n        flush();\n    }\n}\n";
        let entries = [entry("x", "if «a < b» {", "true"), entry("y", "flush();", "")];
        let (x, y) = (entries[0].number(), entries[1].number());
        let expected = format!(
            "fn f() {{\n    if (if crate::mutant::is({x}) {{ true }} else {{ a < b }}) {{\n        \
             if crate::mutant::is({y}) {{  }} else {{ flush(); }}\n    }}\n}}\n"
        );
        assert_eq!(instrumented(text, &entries), Ok(expected));
    }

    #[test]
    fn faults_at_one_place_are_combined_and_inner_ones_stay_in_the_original() {
        let text = "let a = b + c;";
        let entries = [entry("x", "a = «b + c»", "0"), entry("y", "a = «b + c»", "1"), entry("z", "+ «c»", "2")];
        let [x, y, z] = [0, 1, 2].map(|index| entries[index].number());
        let inner = format!("(if crate::mutant::is({z}) {{ 2 }} else {{ c }})");
        let expected = format!(
            "let a = (if crate::mutant::is({x}) {{ 0 }} else if crate::mutant::is({y}) {{ 1 }} else {{ b + {inner} }});"
        );
        assert_eq!(instrumented(text, &entries), Ok(expected));
    }

    #[test]
    fn a_missing_or_ambiguous_quote_is_an_error_that_names_the_entry() {
        for text in ["nothing", "a < b; a < b"] {
            let wrong = instrumented(text, &[entry("x", "a < b", "true")]).expect_err("not once");
            assert!(wrong[0].starts_with("a.txt:1: x: its text is in crates/a/src/b.rs"), "{wrong:?}");
        }
    }

    #[test]
    fn partly_overlapping_faults_are_refused() {
        let entries = [entry("x", "«a + b» + c", "0"), entry("y", "a + «b + c»", "0")];
        assert!(instrumented("a + b + c", &entries).expect_err("overlap")[0].contains("overlaps"));
    }

    #[test]
    fn quotes_of_several_lines_match_with_any_indentation() {
        let text = "    x(\n            a,\n        b);\n";
        let entry = entry("x", "x(\na,\n«b»);", "c");
        let number = entry.number();
        let expected =
            format!("    x(\n            a,\n        (if crate::mutant::is({number}) {{ c }} else {{ b }}));\n");
        assert_eq!(instrumented(text, &[entry]), Ok(expected));
    }

    #[test]
    fn the_module_is_inserted_after_the_crates_attributes() {
        let text = "//! Head.\n#![deny(x)]\n\nmod a;\npub mod b;\n";
        let expected = "//! Head.\n#![allow(warnings)]#![deny(x)]\n\nmod mutant;\n\nmod a;\npub mod b;\n";
        assert_eq!(with_module(Kind::Mutant, text), expected);
        let expected = "//! Head.\n#![allow(warnings)]#![deny(x)]\n\npub mod canary;\n\nmod a;\npub mod b;\n";
        assert_eq!(with_module(Kind::Canary, text), expected);
    }

    #[test]
    fn a_canary_is_listed_once_by_its_name_however_many_places_it_has() {
        let canary = |id: &str| Entry { kind: Kind::Canary, ..entry(id, "a < b", "true") };
        let entries = [canary("SkipIt"), canary("LoseIt"), canary("SkipIt")];
        let listed =
            format!("(\"SkipIt\", {}),\n    (\"LoseIt\", {}),\n];\n", entries[0].number(), entries[1].number());
        assert!(module(Kind::Canary, "a", &entries).ends_with(&listed));
        let chosen = instrumented("a < b", &entries[..1]).expect("it is there");
        assert!(chosen.starts_with("(if crate::canary::is("), "{chosen}");
    }
}
