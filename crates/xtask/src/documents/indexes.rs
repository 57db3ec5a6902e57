//! Rules of the documents that a machine can check: indexes, the book, figures that are quoted.
//! Owns: these rules. Not here: links and citations (`tidy`, `citations`), pages made from sources (`messages`).
//! Invariant: every finding names the file, the line and what is missing.

use crate::project::{self, Finding};
use std::path::{Path, PathBuf};

/// Folders whose pages are all linked from one page in them.
const INDEXES: &[(&str, &str)] = &[("docs/decisions", "README.md"), ("docs/operating", "SUMMARY.md")];

/// The page whose figures are those of the pages that it links.
const QUOTES_FIGURES: &str = "README.md";

/// All findings of the project at `root`.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let read = |path: &Path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut found = Vec::new();
    for (folder, index) in INDEXES {
        let pages = project::files(root, Path::new(folder), "md");
        let path = Path::new(folder).join(index);
        found.extend(unlisted(&read(&path), &pages, &path));
    }
    found.extend(unsupported_figures(&read(Path::new(QUOTES_FIGURES)), &read));
    found
}

/// Pages beside the index that it does not link.
fn unlisted(index: &str, pages: &[PathBuf], path: &Path) -> Vec<Finding> {
    let names = pages.iter().filter(|page| *page != path).filter_map(|page| page.file_name()?.to_str());
    names
        .filter(|name| !index.contains(&format!("]({name})")))
        .map(|name| Finding { path: path.to_path_buf(), line: 1, what: format!("{name} is not in this index") })
        .collect()
}

/// Figures of the items of the first list of `text` that none of the pages has that the item links: numbers of two digits
/// or more, without what stands in backquotes.
fn unsupported_figures(text: &str, read: &dyn Fn(&Path) -> String) -> Vec<Finding> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("- ")).unwrap_or(lines.len());
    let last = first + lines[first..].iter().take_while(|line| !line.is_empty()).count();
    let mut at = first;
    while at < last {
        let more = lines[at + 1..last].iter().take_while(|line| !line.starts_with("- ")).count();
        let item = lines[at..=at + more].join(" ");
        let pages: String = links(&item).map(|target| read(Path::new(target))).collect();
        let known = numbers(&pages);
        for number in numbers(&prose(&item)).into_iter().filter(|number| !known.contains(number)) {
            let what = format!("{number} is on no page that this item links");
            found.push(Finding { path: PathBuf::from(QUOTES_FIGURES), line: at + 1, what });
        }
        at += more + 1;
    }
    found
}

/// The targets of the links, without headings.
fn links(item: &str) -> impl Iterator<Item = &str> {
    item.match_indices("](").filter_map(|(at, _)| item[at + 2..].split([')', '#']).next())
}

/// Without code and without the targets of links.
fn prose(item: &str) -> String {
    let outside = item.split('`').step_by(2).collect::<String>();
    let mut parts = outside.split("](");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Numbers of at least two digits, with their points; commas between digits and `k` are thousands: 560 k is 560000.
fn numbers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let is_part = |at: usize| {
            let next_is_digit = chars.get(at + 1).is_some_and(char::is_ascii_digit);
            chars.get(at).is_some_and(|c| c.is_ascii_digit() || (".,".contains(*c) && next_is_digit))
        };
        let length = (at..chars.len()).take_while(|at| is_part(*at)).count();
        let word: String = chars[at..at + length].iter().filter(|c| **c != ',').collect();
        let unit: String = chars[at + length..].iter().take(3).collect();
        let thousands = if unit.starts_with(" k/") { "000" } else { "" };
        if word.chars().filter(char::is_ascii_digit).count() > 1 {
            found.push(format!("{word}{thousands}"));
        }
        at += length.max(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_the_index_lacks_is_named() {
        let pages = ["d/a.md", "d/b.md", "d/README.md"].map(PathBuf::from);
        let found = unlisted("- [a](a.md)", &pages, Path::new("d/README.md"));
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["d/README.md:1: b.md is not in this index"]
        );
    }

    #[test]
    fn a_figure_is_on_a_page_that_its_item_links() {
        let read = |path: &Path| {
            if path == Path::new("p.md") { "12,495 checks, 0.79 of it, 560 k/s".to_string() } else { String::new() }
        };
        let check = |text: &str| unsupported_figures(text, &read).into_iter().map(|f| f.what).collect::<Vec<_>>();
        assert_eq!(check("- 12,495 `kill -99` of 560,000,\n  [all](p.md#a)\n\n99 here"), Vec::<String>::new());
        assert_eq!(
            check("- 0.78 [all](p.md)\n- 12,495 of it"),
            ["0.78 is on no page that this item links", "12495 is on no page that this item links"]
        );
    }
}
