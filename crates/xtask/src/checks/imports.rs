//! Imports among the files of a crate, and their circles.
//! Owns: which file a path means, the circles. Not here: which direction is allowed (`rooms`), imports between crates
//! (`floors`).
//! Invariant: a path through the crate's root counts as an import of the file that the root takes the name from. A
//! `mod` line is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each module of a crate imports from it. `copy/map.rs` is `copy::map`; the crate's root is no module.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports among the files of a crate. `files` has paths below `src`, and their code.
pub(crate) fn of(files: &BTreeMap<PathBuf, String>) -> Imports {
    let modules: BTreeMap<String, &String> = files.iter().map(|(path, code)| (module_of(path), code)).collect();
    let exported = modules.get("").map_or_else(BTreeMap::new, |root| exports(root, &modules));
    let of_module = |module: &str, code: &str| {
        let paths = paths_in(code, module);
        let of_paths = paths.iter().filter_map(|path| file_of(path, &modules, &exported));
        of_paths.filter(|other| *other != module && !other.is_empty()).map(str::to_string).collect()
    };
    let named = modules.iter().filter(|(module, _)| !module.is_empty());
    named.map(|(module, code)| (module.clone(), of_module(module, code))).collect()
}

/// The circles of more than one file, each as a sorted list of modules.
pub(crate) fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|from| (from.as_str(), reach(from, imports))).collect();
    let mut circles = BTreeSet::new();
    for (module, all) in &reached {
        if all.contains(module) {
            let circle = all.iter().filter(|other| reached[**other].contains(module));
            circles.insert(circle.map(|other| (*other).to_string()).collect::<Vec<String>>());
        }
    }
    circles.into_iter().collect()
}

/// Everything that `from` imports, directly or indirectly.
fn reach<'a>(from: &str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for other in imports.get(module).into_iter().flatten() {
            if reached.insert(other.as_str()) {
                next.push(other);
            }
        }
    }
    reached
}

/// `lib.rs` is the module without a name, `copy/map.rs` is `copy::map`.
fn module_of(path: &Path) -> String {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let joined = parts.join("::");
    let name = joined.strip_suffix(".rs").unwrap_or(&joined);
    match name {
        "lib" | "main" => String::new(),
        _ => name.strip_suffix("::mod").unwrap_or(name).to_string(),
    }
}

/// The names that the root offers from its modules: `pub use world::{Pool, World};` -> World: world.
fn exports(root: &str, modules: &BTreeMap<String, &String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in
        root.split(';').filter_map(|text| text.split_once("pub use ").or(text.split_once("pub(crate) use ")))
    {
        for path in expand(statement.1) {
            let path: Vec<String> = path.into_iter().filter(|part| part != "crate" && part != "self").collect();
            if let (Some(name), Some(module)) = (path.last(), longest_module(&path, modules)) {
                found.insert(name.clone(), module);
            }
        }
    }
    found
}

/// All paths that begin with `crate` or `super`, or in a `use` with `self`, as lists of names from the root.
fn paths_in(code: &str, module: &str) -> Vec<Vec<String>> {
    let here: Vec<String> = module.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect();
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            for path in expand(&code[at..]) {
                found.push(from_root(path, &here));
            }
        }
    }
    found
}

/// A path that begins with `crate`, `self` or `super`, from the root.
fn from_root(path: Vec<String>, here: &[String]) -> Vec<String> {
    let mut base: Vec<String> = Vec::new();
    let mut rest = path.into_iter().peekable();
    match rest.peek().map(String::as_str) {
        Some("crate") => {
            rest.next();
        }
        Some("self") => {
            rest.next();
            base = here.to_vec();
        }
        _ => {
            base = here.to_vec();
            while rest.next_if(|part| part == "super").is_some() {
                base.pop();
            }
        }
    }
    base.extend(rest);
    base
}

/// The paths of one import, its braces expanded: `a::{b, c::d}` -> a::b, a::c::d.
fn expand(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    expand_below(text, &[], &mut paths);
    paths
}

/// Returns how many bytes of `text` the path takes.
fn expand_below(text: &str, before: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        if text[at..].starts_with('{') {
            at += 1;
            loop {
                at += expand_below(&text[at..], &path, paths);
                let rest = text[at..].trim_start();
                at = text.len() - rest.len();
                if rest.starts_with(',') {
                    at += 1;
                } else {
                    return at + usize::from(rest.starts_with('}'));
                }
            }
        }
        let name: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            break;
        }
        at += name.len();
        path.push(name);
        if !text[at..].starts_with("::") {
            break;
        }
        at += 2;
    }
    if path.len() > before.len() {
        paths.push(path);
    }
    at
}

/// The file that a path from the root means.
fn file_of<'a>(
    path: &[String],
    modules: &'a BTreeMap<String, &String>,
    exported: &'a BTreeMap<String, String>,
) -> Option<&'a str> {
    let module = longest_module(path, modules).or_else(|| exported.get(path.first()?).cloned())?;
    modules.keys().find(|name| **name == module).map(String::as_str)
}

fn longest_module(path: &[String], modules: &BTreeMap<String, &String>) -> Option<String> {
    (1..=path.len()).rev().map(|parts| path[..parts].join("::")).find(|name| modules.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        super::circles(&of(&files.iter().map(|(path, code)| (PathBuf::from(path), (*code).to_string())).collect()))
    }

    #[test]
    fn downward_imports_make_no_circle() {
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
        assert_eq!(circles(&files), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_circle_is_found_through_braces_the_root_and_super() {
        let braces = [("lib.rs", ""), ("a.rs", "use crate::{b::B, c};"), ("b.rs", "crate::a::x()"), ("c.rs", "")];
        assert_eq!(circles(&braces), [["a", "b"]]);
        let root = [("lib.rs", "pub use a::{A, C};"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::A;")];
        assert_eq!(circles(&root), [["a", "b"]]);
        let child = [("lib.rs", ""), ("a.rs", "use self::b::B;"), ("a/b.rs", "use super::A;")];
        assert_eq!(circles(&child), [["a", "a::b"]]);
    }

    #[test]
    fn two_circles_are_two() {
        let files = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::a; use crate::c;"),
            ("c.rs", "use crate::d;"),
            ("d.rs", "use crate::c;"),
        ];
        assert_eq!(circles(&files), [["a", "b"], ["c", "d"]]);
    }
}
