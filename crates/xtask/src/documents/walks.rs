//! The walks through the code in ARCHITECTURE.md name functions that exist.
//! Owns: reading the tables of the section, looking for each function in its file. Not here: whether the order is that
//! of the code. Invariant: a finding names the line, the file and the function.
//!
//! ```text
//!   | where (`engine/src/`) | function | what it does |     the folder of the table, below crates/
//!   | `row.rs` | `write_batch` | all waiting writes |       a function of that file
//!   | | `hold_time_after` | whether the next is due |       a function of the same file
//! ```

use crate::project::Finding;
use std::path::{Path, PathBuf};

const PAGE: &str = "ARCHITECTURE.md";
const SECTION: &str = "## Four walks through the code";

/// All findings of the project at `root`.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let text = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let steps = steps(&text);
    let mut found: Vec<(usize, String)> = Vec::new();
    if steps.is_empty() {
        found.push((0, format!("no walk below `{SECTION}`")));
    }
    for Step { line, file, function } in steps {
        match std::fs::read_to_string(root.join(&file)) {
            Err(_) => found.push((line, format!("{} is not there", file.display()))),
            Ok(source) if !defines(&source, &function) => {
                found.push((line, format!("{} has no function `{function}`", file.display())));
            }
            Ok(_) => {}
        }
    }
    found.into_iter().map(|(line, what)| Finding { path: PathBuf::from(PAGE), line, what }).collect()
}

/// A row of a walk, for one of its functions.
#[derive(PartialEq, Eq, Debug)]
struct Step {
    line: usize,
    file: PathBuf,
    function: String,
}

fn steps(text: &str) -> Vec<Step> {
    let (mut steps, mut folder, mut file) = (Vec::new(), PathBuf::new(), PathBuf::new());
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != SECTION).skip(1);
    for (index, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        let Some((at, rest)) = line.strip_prefix('|').and_then(|rest| rest.split_once('|')) else { continue };
        let named = quoted(at).next();
        if at.trim_start().starts_with("where") {
            folder = Path::new("crates").join(named.unwrap_or(""));
            continue;
        }
        if let Some(named) = named {
            file = folder.join(named);
        }
        let functions = quoted(rest.split('|').next().unwrap_or(""));
        let name = |path: &str| path.rsplit("::").next().unwrap_or(path).to_string();
        steps.extend(functions.map(|path| Step { line: index + 1, file: file.clone(), function: name(path) }));
    }
    steps
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn defines(source: &str, function: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    let name = format!("fn {function}");
    source.match_indices(&name).any(|(at, _)| is_end(&source[at + name.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_of_a_row_is_looked_for_in_the_file_above_it() {
        let text = "## Four walks through the code\n\n| where (`engine/src/`) | function | what |\n|---|---|---|\n\
                    | `row.rs` | `Rows::write` | `not_this` |\n| | `a`, `b` | |\n## Next\n| `c.rs` | `c` | |\n";
        let step = |line, function: &str| Step {
            line,
            file: PathBuf::from("crates/engine/src/row.rs"),
            function: function.to_string(),
        };
        assert_eq!(steps(text), [step(5, "write"), step(6, "a"), step(6, "b")]);
    }

    #[test]
    fn a_longer_name_is_another_function() {
        assert!(defines("pub async fn write(&self)", "write"));
        assert!(defines("fn write<W>()", "write"));
        assert!(!defines("fn write_batch()", "write"));
    }
}
