//! Words and lines of mdadm.conf.
//! Owns: blanks, quotes, comments, lines that continue others. Not here: what a word means (`reader`).
//! Invariant: every text has lines; nothing is refused here.
//!
//! ```text
//!   ARRAY /dev/md/home         # a comment begins where a word would
//!      UUID=c9d3d9fb:...       a line that begins with a blank or tab continues the one before, also past comments
//!   DEVICE '/disks of mine/*'  quotes of either kind keep blanks and #
//! ```

/// A line with those that continue it.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// Where it begins, from 1 on.
    pub(crate) number: usize,
    /// Its words; at least one.
    pub(crate) words: Vec<String>,
    /// A quote is not closed.
    pub(crate) is_unclosed: bool,
}

/// All lines that have words.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines: Vec<Line> = Vec::new();
    for (nth, physical) in text.split('\n').enumerate() {
        let (words, is_unclosed) = split(physical);
        if words.is_empty() {
            continue;
        }
        match lines.last_mut() {
            Some(line) if physical.starts_with([' ', '\t']) => {
                line.words.extend(words);
                line.is_unclosed |= is_unclosed;
            }
            Some(_) | None => lines.push(Line { number: nth + 1, words, is_unclosed }),
        }
    }
    lines
}

/// The words of one line, such as `MDADM_CONF_AUTO` has them.
pub fn words(line: &str) -> Vec<String> {
    split(line).0
}

/// The words, and whether a quote is not closed.
fn split(line: &str) -> (Vec<String>, bool) {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match quote {
            Some(own) if own == letter => quote = None,
            Some(_) => word.get_or_insert_default().push(letter),
            None if letter.is_ascii_whitespace() => words.extend(word.take()),
            None if letter == '#' && word.is_none() => break,
            None if letter == '\'' || letter == '"' => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            None => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    (words, quote.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_lines(text: &str) -> Vec<(usize, Vec<String>)> {
        lines(text).into_iter().map(|line| (line.number, line.words)).collect()
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn words_split_at_blanks_and_quotes_keep_them() {
        for (line, expected) in [
            ("DEVICE /dev/sd*\t/dev/hd*", &["DEVICE", "/dev/sd*", "/dev/hd*"][..]),
            ("a 'b c' \"d 'e\" f'g h'i", &["a", "b c", "d 'e", "fg hi"]),
            ("a '' b", &["a", "", "b"]),
            ("windows line\r", &["windows", "line"]),
            ("a#b # c", &["a#b"]),
            ("a '#b' \"# c\"", &["a", "#b", "# c"]),
            ("  # only a comment", &[]),
            ("", &[]),
        ] {
            assert_eq!(words(line), owned(expected), "{line:?}");
        }
    }

    #[test]
    fn a_line_that_begins_with_a_blank_continues_the_one_before() {
        let text = "ARRAY a\n  uuid=1 # x\n# comment\n\n\tdevices=b\nDEVICE c\n";
        assert_eq!(
            split_lines(text),
            [(1, owned(&["ARRAY", "a", "uuid=1", "devices=b"])), (6, owned(&["DEVICE", "c"]))]
        );
    }

    #[test]
    fn the_first_line_may_begin_with_a_blank_or_a_mark_of_utf_8() {
        assert_eq!(split_lines("  DEVICE a"), [(1, owned(&["DEVICE", "a"]))]);
        assert_eq!(split_lines("\u{feff}DEVICE a"), [(1, owned(&["DEVICE", "a"]))]);
    }

    #[test]
    fn a_quote_ends_with_its_line() {
        let found = lines("DEVICE 'a b\nDEVICE c");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].words.len(), found[0].is_unclosed), (2, true));
        assert!(!found[1].is_unclosed);
    }
}
