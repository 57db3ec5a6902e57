//! The shape of a golden file: JSON, and bytes as text that is short where bytes repeat.
//! Owns: coding, decoding, quoting. Not here: which arrays there are (`golden`).
//! Invariant: decoding reverses encoding.
//!
//! Bytes are words: `a92b4e` three bytes, `ff*512` 512 times the byte ff.

use std::fmt::Write as _;

/// Shorter repetitions are cheaper as digits.
const RUN_MIN: usize = 6;
const SECTOR: usize = 512;

/// The bytes as words.
pub(crate) fn coded(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut is_in_digits = false;
    for run in bytes.chunk_by(|a, b| a == b) {
        let is_run = run.len() >= RUN_MIN;
        if !text.is_empty() && (is_run || !is_in_digits) {
            text.push(' ');
        }
        let written = if is_run {
            write!(text, "{:02x}*{}", run[0], run.len())
        } else {
            run.iter().try_for_each(|byte| write!(text, "{byte:02x}"))
        };
        written.expect("a string takes everything");
        is_in_digits = !is_run;
    }
    text
}

/// The bytes that `coded` was given; `None` for other words.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match word.split_once('*') {
            Some((byte, count)) => {
                let end = bytes.len() + count.parse::<usize>().ok()?;
                bytes.resize(end, u8::from_str_radix(byte, 16).ok()?);
            }
            None => {
                for at in (0..word.len()).step_by(2) {
                    bytes.push(u8::from_str_radix(word.get(at..at + 2)?, 16).ok()?);
                }
            }
        }
    }
    Some(bytes)
}

/// The stretches of whole sectors that hold anything but zeroes: first sector (counted from `first`) and bytes.
pub(crate) fn stretches(first: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    for (sector, content) in (first..).zip(bytes.chunks(SECTOR)) {
        if content.iter().all(|byte| *byte == 0) {
            continue;
        }
        match found.last_mut() {
            Some((start, known)) if *start + (known.len() / SECTOR) as u64 == sector => {
                known.extend_from_slice(content)
            }
            _ => found.push((sector, content.to_vec())),
        }
    }
    found
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                write!(out, "\\u{:04x}", u32::from(control)).expect("a string takes everything");
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_reverses_encoding() {
        let mut bytes = vec![0xa9, 0x2b, 0x4e, 0xfc, 1, 1, 1, 1, 1];
        bytes.extend([0xff; 512]);
        bytes.extend([0; 6]);
        bytes.extend([1, 2, 2]);
        assert_eq!(coded(&bytes), "a92b4efc0101010101 ff*512 00*6 010202");
        assert_eq!(decoded(&coded(&bytes)), Some(bytes));
        assert_eq!(decoded("ab c"), None);
    }

    #[test]
    fn stretches_are_the_sectors_with_data() {
        let mut bytes = vec![0; 5 * 512];
        bytes[600] = 1;
        bytes[1024] = 2;
        bytes[2500] = 3;
        let found: Vec<(u64, usize)> =
            stretches(100, &bytes).iter().map(|(sector, bytes)| (*sector, bytes.len())).collect();
        assert_eq!(found, [(101, 1024), (104, 512)]);
    }

    #[test]
    fn json_strings_are_quoted() {
        assert_eq!(quoted("a\"b\\\n\u{1}"), "\"a\\\"b\\\\\\n\\u0001\"");
    }
}
