//! Which imports between crates are allowed: down, never sideways or up.
//! Owns: the table of floors, reading manifests. Not here: style (`tidy`).
//! Invariant: a crate that is not in the table does not pass. Spec: ARCHITECTURE.md, "Floors".

use crate::project::source::{Source, words};
use crate::project::{self, Finding};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Directory under `crates/` and its floor. Tools have no floor: they may import anything except each other.
const FLOORS: &[(&str, Floor)] = &[
    ("block", Floor::Level(0)),
    ("layout", Floor::Level(1)),
    ("parity", Floor::Level(1)),
    ("format", Floor::Level(2)),
    ("nbd", Floor::Level(2)),
    ("fuse", Floor::Level(2)),
    ("engine", Floor::Level(3)),
    ("volume", Floor::Level(4)),
    ("doctor", Floor::Level(4)),
    ("host", Floor::Level(5)),
    ("config", Floor::Level(5)),
    ("arrays", Floor::Level(6)),
    ("control", Floor::Level(6)),
    ("export-nbd", Floor::Level(7)),
    ("export-fuse", Floor::Level(7)),
    ("bench", Floor::Level(7)),
    ("option-values", Floor::Level(7)),
    ("serve", Floor::Level(8)),
    ("bench-command", Floor::Level(9)),
    ("operate", Floor::Level(9)),
    ("uraid", Floor::Level(10)),
    ("sim", Floor::Tool),
    ("blackbox", Floor::Tool),
    ("fuzz", Floor::Tool),
    ("xtask", Floor::Tool),
];

/// The floor of `host`: crates below it do no I/O of their own.
const WATERLINE: u8 = 5;

/// External crates allowed below the waterline: no runtime, no randomness, no clock.
const OUTSIDE_BELOW_WATERLINE: &[&str] = &["crc", "smallvec", "thiserror", "zerocopy"];

/// `host` knows devices, never arrays; frontends know a device, never levels or bytes on disk.
const NEVER: &[(&str, &[&str])] = &[
    ("host", &["layout", "parity", "format", "nbd", "fuse", "engine"]),
    ("export-nbd", &["layout", "parity", "format", "engine", "arrays"]),
    ("export-fuse", &["layout", "parity", "format", "engine", "arrays"]),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Floor {
    Level(u8),
    Tool,
}

/// All findings of the project at `root`, and how many imports were looked at.
pub(crate) fn check(root: &Path) -> (Vec<Finding>, usize) {
    let (mut findings, mut imports) = (Vec::new(), 0);
    for (name, folder) in project::packages(root) {
        let manifest_path = folder.join("Cargo.toml");
        let Some(floor) = floor_of(&name) else {
            let what = format!("crate {name} has no floor; give it one in xtask's floors.rs and in ARCHITECTURE.md");
            findings.push(Finding { path: manifest_path, line: 1, what });
            continue;
        };
        let manifest = std::fs::read_to_string(root.join(&manifest_path)).unwrap_or_default();
        let found = dependencies(&manifest);
        imports += found.len();
        for dependency in &found {
            if let Some(what) = judge(&name, floor, dependency) {
                findings.push(Finding { path: manifest_path.clone(), line: dependency.line, what });
            }
        }
        if is_below_waterline(floor) && !root.join(&folder).join("clippy.toml").exists() {
            let what = "a crate below the waterline needs the guard list: link to ../block/clippy.toml".to_string();
            findings.push(Finding { path: folder.join("clippy.toml"), line: 1, what });
        }
        for path in project::files(root, &folder, "rs") {
            findings.extend(paths_in_source(root, &name, floor, &path));
        }
    }
    (findings, imports)
}

fn floor_of(name: &str) -> Option<Floor> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

fn is_below_waterline(floor: Floor) -> bool {
    matches!(floor, Floor::Level(level) if level < WATERLINE)
}

/// The folders of our own packages that a manifest names, those for tests too.
pub(crate) fn imports(manifest: &str) -> BTreeSet<String> {
    let found = dependencies(manifest);
    found.iter().filter_map(|dependency| folder_of(&dependency.package)).map(str::to_string).collect()
}

/// One line of a dependency table.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    package: String,
    line: usize,
    is_dev: bool,
}

/// The names in all dependency tables of a manifest: `[dependencies]`, dev and build ones, those of a target.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut table = String::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_string();
            // [dependencies.name] opens a table of its own.
            if let Some((head, name)) = table.rsplit_once("dependencies.") {
                found.push(Dependency { package: name.to_string(), line: index + 1, is_dev: head.ends_with("dev-") });
            }
        } else if table.ends_with("dependencies") && line.contains('=') {
            let name = line.split(['=', '.']).next().unwrap_or("").trim().trim_matches('"').to_string();
            found.push(Dependency { package: name, line: index + 1, is_dev: table.ends_with("dev-dependencies") });
        }
    }
    found
}

/// Why `name` on `floor` may not have this dependency; `None` when it may.
fn judge(name: &str, floor: Floor, dependency: &Dependency) -> Option<String> {
    match folder_of(&dependency.package) {
        Some(target) => judge_import(name, floor, target),
        None if is_below_waterline(floor)
            && !dependency.is_dev
            && !OUTSIDE_BELOW_WATERLINE.contains(&dependency.package.as_str()) =>
        {
            Some(format!(
                "{name} is below the waterline and may use from outside only {}, not {}",
                OUTSIDE_BELOW_WATERLINE.join(", "),
                dependency.package
            ))
        }
        None => None,
    }
}

/// The folder of one of our own packages: `uraid-block` and `uraid_block` are `block`.
fn folder_of(package: &str) -> Option<&str> {
    let name = package.strip_prefix("uraid-").unwrap_or(package);
    FLOORS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

fn judge_import(name: &str, floor: Floor, target: &str) -> Option<String> {
    let is_banned = NEVER.iter().any(|(from, banned)| *from == name && banned.contains(&target));
    // Only the frontend of a protocol may use its codec.
    if is_banned {
        return Some(format!("{name} must never know {target}"));
    }
    match (floor, floor_of(target)?) {
        (_, Floor::Tool) => Some(format!("{target} is a tool, and no crate may import a tool")),
        (Floor::Tool, Floor::Level(_)) => None,
        (Floor::Level(own), Floor::Level(other)) if other < own => None,
        (Floor::Level(own), Floor::Level(other)) => {
            let direction = if own == other { "sideways" } else { "up" };
            Some(format!("{name} (floor {own}) imports {direction}: {target} (floor {other})"))
        }
    }
}

/// Paths like `uraid_layout::` in code, whatever the manifest says.
fn paths_in_source(root: &Path, name: &str, floor: Floor, path: &PathBuf) -> Vec<Finding> {
    let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let source = Source::new(path, &text);
    let mut findings = Vec::new();
    for (index, line) in source.code.iter().enumerate() {
        for (target, _) in FLOORS.iter().filter(|(target, _)| *target != name) {
            let module = format!("uraid_{}", target.replace('-', "_"));
            if words(line, &module).is_empty() {
                continue;
            }
            if let Some(what) = judge_import(name, floor, target) {
                findings.push(Finding { path: path.clone(), line: index + 1, what });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &str, package: &str) -> Option<String> {
        let dependency = Dependency { package: package.to_string(), line: 1, is_dev: false };
        judge(name, floor_of(name).expect("a known crate"), &dependency)
    }

    #[test]
    fn imports_down_are_allowed() {
        assert_eq!(verdict("engine", "uraid-format"), None);
        assert_eq!(verdict("uraid", "uraid-host"), None);
        assert_eq!(verdict("sim", "uraid-engine"), None);
        assert_eq!(verdict("export-nbd", "uraid-nbd"), None);
    }

    #[test]
    fn imports_up_sideways_or_of_tools_are_refused() {
        assert!(verdict("layout", "uraid-parity").is_some_and(|what| what.contains("sideways")));
        assert!(verdict("format", "uraid-engine").is_some_and(|what| what.contains("up")));
        assert!(verdict("bench", "uraid-export-nbd").is_some_and(|what| what.contains("sideways")));
        assert!(verdict("uraid", "uraid-sim").is_some_and(|what| what.contains("tool")));
        assert!(verdict("sim", "xtask").is_some_and(|what| what.contains("tool")));
        assert!(verdict("block", "uraid").is_some_and(|what| what.contains("up")));
    }

    #[test]
    fn the_host_imports_no_array_crate_and_a_frontend_no_format() {
        assert!(verdict("host", "uraid-format").is_some());
        assert!(verdict("export-nbd", "uraid-engine").is_some());
        assert!(verdict("export-nbd", "uraid-arrays").is_some());
    }

    #[test]
    fn below_the_waterline_only_listed_external_crates_are_allowed() {
        assert_eq!(verdict("engine", "smallvec"), None);
        assert!(verdict("engine", "tokio").is_some());
        assert_eq!(verdict("host", "libc"), None);
    }

    #[test]
    fn every_kind_of_dependency_table_is_parsed() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nuraid-block.workspace = true # why\nlibc = \"0.2\"\n\
                        [dev-dependencies]\nuraid-sim = { path = \"../sim\" }\n[dependencies.uraid-nbd]\npath = \"x\"\n\
                        [target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n";
        let names: Vec<String> = dependencies(manifest).into_iter().map(|found| found.package).collect();
        assert_eq!(names, ["uraid-block", "libc", "uraid-sim", "uraid-nbd", "rustix"]);
    }
}
