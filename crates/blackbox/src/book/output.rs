//! What a command prints, and what the page quotes.
//! Owns: the meaning of `...`. Not here: which command printed it (`shell`).

/// Whether the lines are those expected, where a line `...` stands for any lines.
pub fn fit(expected: &[&str], found: &[&str]) -> bool {
    match (expected.split_first(), found.split_first()) {
        (None, found) => found.is_none(),
        (Some((&"...", rest)), found_first) => {
            fit(rest, found) || found_first.is_some_and(|(_, behind)| fit(expected, behind))
        }
        (Some(_), None) => false,
        (Some((line, rest)), Some((first, behind))) => fits(line.trim_end(), first.trim_end()) && fit(rest, behind),
    }
}

/// Whether the line is the one expected, where `...` stands for any text.
fn fits(expected: &str, found: &str) -> bool {
    match expected.split_once("...") {
        None => expected == found,
        Some((start, rest)) => found.strip_prefix(start).is_some_and(|behind| {
            behind.char_indices().map(|(at, _)| at).chain([behind.len()]).any(|at| fits(rest, &behind[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{fit, fits};

    #[test]
    fn dots_stand_for_lines_and_for_text() {
        assert!(fits("a ... c", "a b c") && fits("a...", "a") && fits("...b", "ab") && !fits("a...c", "ab"));
        assert!(fit(&["a", "...", "d"], &["a", "b", "c", "d"]) && fit(&["..."], &[]) && fit(&[], &[]));
        assert!(!fit(&["a"], &["a", "b"]) && !fit(&["a", "b"], &["a"]) && !fit(&["...", "x"], &["a"]));
    }
}
