//! Array and device ids as text.
//! Owns: text <-> 16 bytes. Not here: making new ones, which needs randomness (`uraid`).
//! Spec: docs/md/formats.md#version-1-superblock: four groups of eight hex digits, in byte order.

/// As mdadm prints it: `10111213:14151617:18191a1b:1c1d1e1f`.
pub fn text(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(35);
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 && at % 4 == 0 {
            text.push(':');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Reads 32 hex digits with `:`, `-`, `.` or blanks anywhere between them, as mdadm does; `None` for anything else.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let mut digits = Vec::with_capacity(32);
    for letter in text.chars() {
        if matches!(letter, ':' | '-' | '.' | ' ') {
            continue;
        }
        let digit = letter.to_digit(16)?;
        if digits.len() == 32 {
            return None;
        }
        digits.push(digit as u8);
    }
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_parsed_and_mdadms_is_printed() {
        let bytes = parse("10111213:14151617:18191a1b:1c1d1e1f").unwrap();
        assert_eq!(bytes, std::array::from_fn(|n| 0x10 + n as u8));
        assert_eq!(parse("10111213-1415-1617-1819-1A1B1C1D1E1F"), Some(bytes));
        assert_eq!(text(&bytes), "10111213:14151617:18191a1b:1c1d1e1f");
        assert_eq!(parse("10111213:14151617:18191a1b:1c1d1e1"), None);
        assert_eq!(parse("10111213:14151617:18191a1b:1c1d1e1f0"), None);
        assert_eq!(parse("x0111213:14151617:18191a1b:1c1d1e1f"), None);
    }
}
