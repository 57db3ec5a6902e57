//! Figures about the sources: their structure, and the size of the results.
//! Owns: asserts per function, longest function and file, the table of a tree. Not here: import circles (`imports`), rooms (`rooms`),
//! figures of proofs (`prove`) and of speed (`bench`).
//! Invariant: only shipped code counts in a crate's row: no tests, no test modules, no benches.

use crate::checks::imports;
use crate::checks::rooms;
use crate::project;
use crate::project::source::{self, words};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The others are crates of the product.
const TOOLS: &[&str] = &["sim", "blackbox", "fuzz", "xtask"];

/// The macros that stop at a wrong state, in release builds, too.
const ASSERTS: &[&str] = &["assert", "assert_eq", "assert_ne"];

/// The figures of one crate.
struct OfCrate {
    name: String,
    files: usize,
    lines: usize,
    functions: usize,
    asserts: usize,
    longest_function: (usize, String),
    longest_file: (usize, String),
    circles: Vec<Vec<String>>,
    /// Imports from a room into one above it.
    arrows_up: usize,
    top: rooms::Top,
    /// Files with an `impl` of the engine's `Array`.
    implement_array: usize,
}

pub(crate) fn run(words: &[&str]) -> bool {
    let (mut at, mut is_json, mut builds) = (None, false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--json" => is_json = true,
            "--build" => builds = true,
            "--at" => match words.next() {
                Some(commit) => at = Some(*commit),
                None => return refuse("--at expects a commit, such as HEAD~10"),
            },
            other => return refuse(&format!("figures has no option `{other}`; expected --at COMMIT, --build, --json")),
        }
    }
    match figures(at, builds) {
        Ok(figures) if is_json => println!("{figures:#}"),
        Ok(figures) => print!("{}", table(&figures)),
        Err(error) => return refuse(&error),
    }
    true
}

fn refuse(why: &str) -> bool {
    eprintln!("figures: {why}");
    false
}

/// The figures of the tree as it is, or of a commit in a separate clone.
fn figures(at: Option<&str>, builds: bool) -> Result<Value, String> {
    let root = project::root();
    if at.is_none() && !builds {
        return Ok(of_tree(&root));
    }
    let clone = root.join("target/figures");
    let _ = std::fs::remove_dir_all(&clone);
    let (from, to) = (root.display().to_string(), clone.display().to_string());
    succeed(Command::new("git").args(["clone", "--quiet", "--no-hardlinks", &from, &to]))?;
    if let Some(commit) = at {
        succeed(Command::new("git").args(["-C", &from, "rev-parse", "--verify", "--quiet", commit]))?;
        succeed(Command::new("git").args(["-C", &to, "checkout", "--quiet", "--detach", commit]))?;
    }
    let mut figures = of_tree(&clone);
    if builds {
        figures["build"] = build(&clone)?;
    }
    std::fs::remove_dir_all(&clone).map_err(|error| format!("{to}: {error}"))?;
    Ok(figures)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let outcome = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match outcome.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&outcome.stderr).trim())),
    }
}

/// A default build of a clone that has built nothing yet.
fn build(clone: &Path) -> Result<Value, String> {
    let began = Instant::now();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let outcome = Command::new(cargo)
        .args(["build", "--release"])
        .current_dir(clone)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .map_err(|error| format!("cargo build: {error}"))?;
    let said = String::from_utf8_lossy(&outcome.stderr);
    if !outcome.status.success() {
        return Err(format!("cargo build: {said}"));
    }
    let seconds = began.elapsed().as_secs();
    let crates = said.lines().filter(|line| line.trim_start().starts_with("Compiling ")).count();
    let binary = clone.join("target/release/uraid");
    succeed(Command::new("strip").arg(&binary))?;
    let bytes = std::fs::metadata(&binary).map_err(|error| format!("{}: {error}", binary.display()))?.len();
    Ok(json!({ "crates": crates, "seconds": seconds, "stripped_binary_bytes": bytes }))
}

fn of_tree(root: &Path) -> Value {
    let crates: Vec<OfCrate> =
        project::packages(root).into_iter().map(|(name, folder)| of_crate(root, name, &folder)).collect();
    let (tools, product): (Vec<&OfCrate>, Vec<&OfCrate>) =
        crates.iter().partition(|of| TOOLS.contains(&of.name.as_str()));
    let lines = |crates: &[&OfCrate]| crates.iter().map(|of| of.lines).sum::<usize>();
    let all: usize = ["crates", "fuzz"].iter().map(|folder| lines_below(root, folder)).sum();
    let (product, tools) = (lines(&product), lines(&tools));
    let crates: Vec<Value> = crates.iter().map(OfCrate::to_json).collect();
    let lines = json!({ "product": product, "tools": tools, "tests": all - product - tools });
    json!({ "crates": crates, "lines": lines, "tracked_bytes": tracked_bytes(root) })
}

fn lines_below(root: &Path, folder: &str) -> usize {
    let texts = project::files(root, Path::new(folder), "rs").into_iter();
    texts.filter_map(|path| std::fs::read_to_string(root.join(path)).ok()).map(|text| text.lines().count()).sum()
}

fn tracked_bytes(root: &Path) -> Option<u64> {
    let outcome = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().ok()?;
    let files = String::from_utf8(outcome.stdout).ok()?;
    let sizes = files.split('\0').filter(|file| !file.is_empty());
    Some(sizes.filter_map(|file| std::fs::symlink_metadata(root.join(file)).ok()).map(|file| file.len()).sum())
}

fn of_crate(root: &Path, name: String, folder: &Path) -> OfCrate {
    let folder_of_sources = folder.join("src");
    let files = source::shipped_files(root, folder);
    let mut figures = OfCrate {
        name,
        files: files.len(),
        lines: 0,
        functions: 0,
        asserts: 0,
        longest_function: (0, String::new()),
        longest_file: (0, String::new()),
        circles: Vec::new(),
        arrows_up: 0,
        top: rooms::Top::default(),
        implement_array: 0,
    };
    for (path, source) in &files {
        let short = path.strip_prefix(&folder_of_sources).unwrap_or(path).display().to_string();
        let functions = source.functions();
        figures.lines += source.lines.len();
        figures.functions += functions.len();
        figures.asserts += source.code.iter().map(|line| asserts_in(line)).sum::<usize>();
        figures.implement_array += usize::from(source.code.iter().any(|line| implements_array(line)));
        figures.longest_file = figures.longest_file.max((source.lines.len(), short.clone()));
        for function in functions {
            figures.longest_function = figures.longest_function.clone().max((function.length, function.name));
        }
    }
    let imports = rooms::imports_of(&folder_of_sources, &files);
    figures.circles = imports::circles(&imports);
    figures.arrows_up = rooms::arrows_up(&figures.name, &imports).len();
    figures.top = rooms::Top::of(&root.join(&folder_of_sources));
    figures
}

fn asserts_in(line: &str) -> usize {
    let calls =
        |name: &str| words(line, name).into_iter().filter(|at| line[at + name.len()..].starts_with('!')).count();
    ASSERTS.iter().map(|name| calls(name)).sum()
}

fn implements_array(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("impl") && words(line, "Array").into_iter().any(|at| line[at + 5..].starts_with('<'))
}

impl OfCrate {
    fn to_json(&self) -> Value {
        json!({
            "crate": self.name,
            "files": self.files,
            "lines": self.lines,
            "functions": self.functions,
            "asserts": self.asserts,
            "longest_function": { "lines": self.longest_function.0, "name": self.longest_function.1 },
            "longest_file": { "lines": self.longest_file.0, "name": self.longest_file.1 },
            "circles": self.circles,
            "arrows_up": self.arrows_up,
            "rooms": self.top.rooms,
            "loose_files": self.top.files,
            "files_that_implement_array": self.implement_array,
        })
    }
}

fn table(figures: &Value) -> String {
    let mut out = String::from(
        "crate       rooms  loose files  files   lines  functions  asserts  a function  circles (files)  arrows up  longest function\n",
    );
    for of in figures["crates"].as_array().into_iter().flatten() {
        let number = |key: &str| of[key].as_u64().unwrap_or_default();
        let circles = of["circles"].as_array().map_or(0, Vec::len);
        let largest = of["circles"].as_array().into_iter().flatten().filter_map(Value::as_array).map(Vec::len).max();
        let per_function = number("asserts") as f64 / number("functions").max(1) as f64;
        let longest =
            format!("{} {}", of["longest_function"]["lines"], of["longest_function"]["name"].as_str().unwrap_or(""));
        out += &format!(
            "{:<11} {:>5} {:>12} {:>6} {:>7} {:>10} {:>8} {:>11.2} {:>8} {:<7} {:>9}  {longest}\n",
            of["crate"].as_str().unwrap_or(""),
            number("rooms"),
            number("loose_files"),
            number("files"),
            number("lines"),
            number("functions"),
            number("asserts"),
            per_function,
            circles,
            largest.map_or(String::new(), |files| format!("({files})")),
            number("arrows_up"),
        );
    }
    for of in figures["crates"].as_array().into_iter().flatten() {
        if let Some(files) = of["files_that_implement_array"].as_u64().filter(|files| *files > 0) {
            out += &format!("files of {} that implement Array: {files}\n", of["crate"].as_str().unwrap_or(""));
        }
    }
    let lines = |of: &str| figures["lines"][of].as_u64().unwrap_or_default();
    let (product, tests, tools) = (lines("product"), lines("tests"), lines("tools"));
    out += &format!("lines of Rust: product {product}, tests {tests}, tools {tools}\n");
    out += &format!("bytes of the files in a clone: {}\n", figures["tracked_bytes"]);
    if let Some(build) = figures.get("build") {
        out += &format!(
            "default build of a cold clone: {} crates in {} s; binary, stripped: {} bytes\n",
            build["crates"], build["seconds"], build["stripped_binary_bytes"]
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::source::{Source, shipped};

    #[test]
    fn only_asserts_of_shipped_code_count() {
        let text = "fn a() {\n    assert!(x);\n    assert_eq!(1, 1);\n    // assert!(no);\n    debug_assert!(no);\n}\nconst _: () = assert!(true);\n#[cfg(test)]\nmod tests {\n    fn b() { assert!(no) }\n}\n";
        let source = shipped(&Source::new(Path::new("a.rs"), text));
        assert_eq!(source.functions().len(), 1);
        assert_eq!(source.code.iter().map(|line| asserts_in(line)).sum::<usize>(), 3);
    }

    #[test]
    fn an_impl_of_array_is_recognized() {
        assert!(implements_array("impl<W: World> Array<W> {"));
        assert!(implements_array("impl<W: World> Device for Array<W> {"));
        assert!(!implements_array("impl<W: World> Steward<W> {"));
        assert!(!implements_array("    array: &'a Array<W>,"));
    }
}
