//! The kept lists of faults, in the shape of patches: mutants in `tests/mutants/CRATE.txt`, canaries in
//! `tests/canaries/CRATE.txt`.
//! Owns: the shape of an entry, its parser, every rule that one entry alone can break. Not here: where its text is in
//! the sources (`instrument`).
//! Invariant: an entry that exists has a file, a fault and a text to look for; ids of mutants and all numbers are unique.
//!
//! ```text
//! ## row-fua-no-flush                        its id; `URAID_MUTANT` takes the number made from it
//! file: row_io.rs                            below crates/CRATE/src
//! fault: A row with a lost member is not flushed before a FUA write is answered.
//! quick: engine/requests                     optional: in the quick list, where this stage must catch it
//! equivalent: why no test could tell         optional: it does not count
//! -         if «fua == Fua::Yes» && lost_data {
//! + false
//! ```
//!
//! The text after `-` must be in the file exactly once; how lines are indented does not matter. What is between « and »,
//! or all of it, is replaced by what follows `+`. A text that ends in `;` or `}` is replaced as a statement, any other as
//! an expression. It must be no part of a constant, of a `const fn` or of a pattern, and end with no `let` that names
//! something: that would end with the choice, also without the fault.
//!
//! A canary has a name such as `SkipRecord` instead, by which the simulator chooses it. Several entries with one name are
//! the places of one mistake; an entry with several names, with a comma between them, is a place of each.

use std::path::{Path, PathBuf};

/// What a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A fault that some test must catch.
    Mutant,
    /// A mistake that the simulator must find.
    Canary,
}

impl Kind {
    /// Where its lists are.
    fn folder(self) -> &'static str {
        match self {
            Kind::Mutant => "tests/mutants",
            Kind::Canary => "tests/canaries",
        }
    }

    /// The module of the copy that says which fault is chosen.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Kind::Mutant => "mutant",
            Kind::Canary => "canary",
        }
    }

    /// The names in the head of an entry.
    fn ids(self, head: &str) -> Result<Vec<String>, String> {
        let is_good = |id: &&str| match self {
            Kind::Mutant => id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            Kind::Canary => {
                id.starts_with(|c: char| c.is_ascii_uppercase()) && id.chars().all(|c| c.is_ascii_alphanumeric())
            }
        };
        let ids: Vec<&str> = match self {
            Kind::Mutant => vec![head],
            Kind::Canary => head.split(", ").collect(),
        };
        match (ids.iter().find(|id| id.is_empty() || !is_good(id)), self) {
            (None, _) => Ok(ids.into_iter().map(str::to_string).collect()),
            (Some(id), Kind::Mutant) => {
                Err(format!("`{id}` is no id; expected lower case letters, digits and hyphens"))
            }
            (Some(id), Kind::Canary) => Err(format!("`{id}` is no name; expected words such as SkipRecord")),
        }
    }
}

/// One fault, or one place of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) id: String,
    /// The folder below `crates/`.
    pub(crate) package: String,
    /// Below the project's root.
    pub(crate) file: PathBuf,
    pub(crate) fault: String,
    /// The stage that catches it in the quick run.
    pub(crate) quick: Option<String>,
    /// Why it has no observable effect for a user or on a disk.
    pub(crate) equivalent: Option<String>,
    /// The source text, without the marks.
    pub(crate) find: String,
    /// The part of `find` that is replaced, in bytes.
    pub(crate) part: std::ops::Range<usize>,
    pub(crate) with: String,
    /// The list and the line of the head, for messages.
    pub(crate) place: String,
}

impl Entry {
    /// What chooses it, for mutants the value of `URAID_MUTANT`: FNV-1a of the id, so that a new entry does not change the
    /// code of other crates.
    pub(crate) fn number(&self) -> u32 {
        hash(self.id.bytes())
    }

    /// Changes when the fault itself does, not when its description does.
    pub(crate) fn fingerprint(&self) -> u32 {
        let part = format!("{} {} {}", self.part.start, self.part.end, self.file.display());
        hash(self.find.bytes().chain(part.bytes()).chain(self.with.bytes()))
    }

    /// The text that is replaced.
    pub(crate) fn original(&self) -> &str {
        &self.find[self.part.clone()]
    }

    /// Whether it is replaced as a statement.
    pub(crate) fn is_statement(&self) -> bool {
        self.original().ends_with([';', '}'])
    }
}

fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Every list of a kind, or everything that is wrong with them.
pub(crate) fn read(root: &Path, kind: Kind) -> Result<Vec<Entry>, Vec<String>> {
    let folder = root.join(kind.folder());
    let mut entries = Vec::new();
    let mut wrong = Vec::new();
    for path in crate::project::files(root, Path::new(kind.folder()), "txt") {
        let package = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("").to_string();
        if !root.join("crates").join(&package).is_dir() {
            wrong.push(format!("{}: there is no crate {package}", path.display()));
            continue;
        }
        match std::fs::read_to_string(root.join(&path)) {
            Ok(text) => match parse(kind, &package, &path, &text) {
                Ok(found) => entries.extend(found),
                Err(found) => wrong.extend(found),
            },
            Err(error) => wrong.push(format!("{}: {error}", path.display())),
        }
    }
    wrong.extend(twins(&entries));
    if entries.is_empty() && wrong.is_empty() {
        wrong.push(format!("no faults are listed in {}", folder.display()));
    }
    if wrong.is_empty() { Ok(entries) } else { Err(wrong) }
}

/// Ids of mutants, and the numbers made of ids, are unique; 0 and 1 have meanings of their own.
fn twins(entries: &[Entry]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let is_twin =
            |other: &Entry| other.number() == entry.number() && (entry.kind == Kind::Mutant || other.id != entry.id);
        if entries[..index].iter().any(is_twin) || entry.number() < 2 {
            wrong.push(format!("{}: {} is taken, or has the number of another entry", entry.place, entry.id));
        }
    }
    wrong
}

/// The entries of one list.
fn parse(kind: Kind, package: &str, path: &Path, text: &str) -> Result<Vec<Entry>, Vec<String>> {
    let mut entries = Vec::new();
    let mut wrong = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let heads: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("## ")).collect();
    for (nth, head) in heads.iter().enumerate() {
        let end = heads.get(nth + 1).copied().unwrap_or(lines.len());
        let place = format!("{}:{}", path.display(), head + 1);
        match parse_entry(kind, package, &place, &lines[*head..end]) {
            Ok(found) => entries.extend(found),
            Err(what) => wrong.push(format!("{place}: {what}")),
        }
    }
    if wrong.is_empty() { Ok(entries) } else { Err(wrong) }
}

/// One entry for each name in the head.
fn parse_entry(kind: Kind, package: &str, place: &str, lines: &[&str]) -> Result<Vec<Entry>, String> {
    let ids = kind.ids(lines[0].trim_start_matches("## ").trim())?;
    let id = ids[0].clone();
    let (mut file, mut fault, mut quick, mut equivalent) = (None, None, None, None);
    let (mut find, mut with): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in lines[1..].iter().filter(|line| !line.trim().is_empty()) {
        match (line.as_bytes()[0], line.split_once(": ")) {
            (b'-', _) => find.push(line[1..].trim()),
            (b'+', _) => with.push(line[1..].trim()),
            (_, Some(("file", value))) => file = Some(value.trim()),
            (_, Some(("fault", value))) => fault = Some(value.trim().to_string()),
            (_, Some(("quick", value))) => quick = Some(value.trim().to_string()),
            (_, Some(("equivalent", value))) => equivalent = Some(value.trim().to_string()),
            (_, _) => return Err(format!("{id}: `{line}` is neither a field nor a line with - or +")),
        }
    }
    let file = file.ok_or(format!("{id} names no file"))?;
    let fault = fault.ok_or(format!("{id} does not say what the fault is"))?;
    let (find, part) = marked(&find.join("\n")).ok_or(format!("{id}: expected lines with -, and at most one « »"))?;
    let entry = Entry {
        kind,
        file: Path::new("crates").join(package).join("src").join(file),
        package: package.to_string(),
        with: with.join("\n"),
        place: place.to_string(),
        id,
        fault,
        quick,
        equivalent,
        find,
        part,
    };
    if entry.with.is_empty() && !entry.is_statement() {
        return Err(format!("{}: an expression needs something in its place", entry.id));
    }
    let last = entry.original().lines().next_back().unwrap_or_default();
    if last.starts_with("let ") && !last.starts_with("let _ ") {
        return Err(format!("{}: what its last `let` names would end with the choice; quote the value", entry.id));
    }
    if entry.original() == entry.with {
        return Err(format!("{}: it changes nothing", entry.id));
    }
    Ok(ids.into_iter().map(|id| Entry { id, ..entry.clone() }).collect())
}

/// The text without its marks, and what was between them.
fn marked(text: &str) -> Option<(String, std::ops::Range<usize>)> {
    let clean = text.replace(['«', '»'], "");
    let part = match (text.find('«'), text.find('»')) {
        (None, None) => 0..clean.len(),
        (Some(open), Some(close)) if open < close => open..close - '«'.len_utf8(),
        (_, _) => return None,
    };
    let is_single = text.matches(['«', '»']).count() <= 2;
    (is_single && !part.is_empty()).then_some((clean, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Words before the first entry say what the list is.\n\n## a-b\nfile: x/y.rs\n\
                        fault: It does wrong.\nquick: engine/lib\n-   if «a < b» &&\n-       c {\n+ a <= b\n\n\
                        ## c\nfile: y.rs\nfault: Nothing is flushed.\n- self.flush();\n";

    fn list(text: &str) -> Result<Vec<Entry>, Vec<String>> {
        parse(Kind::Mutant, "engine", Path::new("engine.txt"), text)
    }

    #[test]
    fn an_entry_is_a_file_a_fault_and_a_patch() {
        let entries = list(LIST).expect("a good list");
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].file, Path::new("crates/engine/src/x/y.rs"));
        assert_eq!(entries[0].find, "if a < b &&\nc {");
        assert_eq!((entries[0].original(), entries[0].with.as_str()), ("a < b", "a <= b"));
        assert_eq!(entries[0].quick.as_deref(), Some("engine/lib"));
        assert!(!entries[0].is_statement());
        assert!(entries[1].is_statement() && entries[1].with.is_empty());
        assert_eq!(entries[1].original(), "self.flush();");
    }

    #[test]
    fn a_missing_field_is_reported_with_its_line() {
        let without_fault = list("\n## a\nfile: a.rs\n- x\n+ y\n").expect_err("no fault");
        assert_eq!(without_fault, ["engine.txt:2: a does not say what the fault is"]);
        assert!(list("## a\nfile: a.rs\nfault: f\n- x\n").is_err(), "an expression is replaced by nothing");
        assert!(list("## a\nfile: a.rs\nfault: f\n- «x» «y»\n+ z\n").is_err(), "two marks");
        assert!(list("## a\nfile: a.rs\nfault: f\n- x\n+ x\n").is_err(), "no change");
        assert!(list("## a\nfile: a.rs\nfault: f\n- let _guard = x;\n+ let _guard = ();\n").is_err(), "it ends early");
        assert!(list("## a\nfile: a.rs\nfault: f\n- let _ = x();\n").is_ok(), "it names nothing");
        assert!(list("## A B\nfile: a.rs\nfault: f\n- x\n+ y\n").is_err(), "no id");
    }

    #[test]
    fn a_canary_may_have_several_places_and_a_place_several_canaries() {
        let canaries = |text: &str| parse(Kind::Canary, "engine", Path::new("engine.txt"), text);
        let places = "## SkipIt, LoseIt\nfile: a.rs\nfault: f\n- x\n+ y\n\n## SkipIt\nfile: b.rs\nfault: f\n- x\n+ y\n";
        let entries = canaries(places).expect("a good list");
        let found: Vec<(&str, bool)> = entries.iter().map(|it| (it.id.as_str(), it.file.ends_with("a.rs"))).collect();
        assert_eq!(found, [("SkipIt", true), ("LoseIt", true), ("SkipIt", false)]);
        assert_eq!(twins(&entries), Vec::<String>::new());
        for head in ["skip-it", "SkipIt,LoseIt", "SkipIt, ", ""] {
            assert!(canaries(&places.replace("SkipIt, LoseIt", head)).is_err(), "{head}");
        }
        assert!(list(places).is_err(), "no ids of mutants");
    }

    #[test]
    fn duplicate_ids_are_refused() {
        let mut entries = list(LIST).expect("a good list");
        assert_eq!(twins(&entries), Vec::<String>::new());
        entries.push(entries[0].clone());
        assert_eq!(twins(&entries).len(), 1);
    }
}
