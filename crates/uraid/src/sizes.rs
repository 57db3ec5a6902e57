//! Sizes as people write and read them.
//! Owns: parsing `64K`, `10G`, `2048s`; printing `18.00 MiB`. Not here: which size an array may have (`format`).
//! Invariant: a size that is no whole number of sectors, or has no meaning, is refused with the text that was given.
//! Spec: mdadm(8): a bare number is in KiB; suffixes K, M, G, T are powers of 1024, `s` is sectors.

use uraid_block::Sectors;

/// Why a text is no size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// Not digits with an optional unit.
    #[error("{found:?} is no size, expected a number with K, M, G, T (powers of 1024) or s (sectors); bare: KiB")]
    NoSize {
        /// The text given.
        found: String,
    },
    /// Zero, where a size must be more.
    #[error("a size of zero has no meaning here")]
    Zero,
    /// Above what 64 bits of bytes hold.
    #[error("{found:?} is above the largest size, 2^63 bytes")]
    TooLarge {
        /// The text given.
        found: String,
    },
}

/// A size that may be zero. Bare numbers are KiB.
pub fn parse_size_or_zero(text: &str) -> Result<Sectors, SizeError> {
    let no_size = || SizeError::NoSize { found: text.to_owned() };
    let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(no_size());
    }
    // Sectors per unit. The `iB` and `B` endings are what people copy from other tools' output.
    let unit_sectors: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "k" | "kib" | "kb" => 2,
        "s" => 1,
        "m" | "mib" | "mb" => 2 << 10,
        "g" | "gib" | "gb" => 2 << 20,
        "t" | "tib" | "tb" => 2 << 30,
        _ => return Err(no_size()),
    };
    let too_large = || SizeError::TooLarge { found: text.to_owned() };
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    let sectors = number.checked_mul(unit_sectors).ok_or_else(too_large)?;
    if sectors > u64::MAX >> 10 { Err(too_large()) } else { Ok(Sectors(sectors)) }
}

/// A size above zero. Bare numbers are KiB.
pub fn parse_size(text: &str) -> Result<Sectors, SizeError> {
    let size = parse_size_or_zero(text)?;
    if size.is_zero() { Err(SizeError::Zero) } else { Ok(size) }
}

/// `--size`: `max`, or a size above zero. `None` is `max`: as much as the smallest member has.
pub fn parse_member_size(text: &str) -> Result<MemberSize, SizeError> {
    if text == "max" { Ok(MemberSize::Max) } else { parse_size(text).map(MemberSize::Exactly) }
}

/// How much of each member an array uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberSize {
    /// What the smallest member has.
    Max,
    /// So much.
    Exactly(Sectors),
}

/// `(18.00 MiB 18.87 MB)` as mdadm prints behind a number: binary and decimal, two digits.
pub fn in_both_units(size: Sectors) -> String {
    format!("({} {})", scaled(size, 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB"]), {
        scaled(size, 1000.0, &["KB", "MB", "GB", "TB", "PB"])
    })
}

/// `18.00 MiB`.
pub fn binary(size: Sectors) -> String {
    scaled(size, 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB"])
}

fn scaled(size: Sectors, step: f64, units: &[&str]) -> String {
    let mut value = size.bytes() as f64 / step;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{value:.2} {}", units[unit])
}

/// `512K`, `1M`: a chunk as mdadm prints it; with `s` when it is no whole number of KiB.
pub fn chunk(size: Sectors) -> String {
    match size.0 {
        n if n % 2 != 0 => format!("{n}s"),
        n if n % 2048 == 0 && n > 0 => format!("{}M", n / 2048),
        n => format!("{}K", n / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_kib_as_in_mdadm() {
        assert_eq!(parse_size("64"), Ok(Sectors(128)));
        assert_eq!(parse_size("64K"), Ok(Sectors(128)));
        assert_eq!(parse_size("64k"), Ok(Sectors(128)));
        assert_eq!(parse_size("1M"), Ok(Sectors(2048)));
        assert_eq!(parse_size("3GiB"), Ok(Sectors(3 << 21)));
        assert_eq!(parse_size("2T"), Ok(Sectors(2 << 31)));
        assert_eq!(parse_size("2047s"), Ok(Sectors(2047)));
        assert_eq!(parse_member_size("max"), Ok(MemberSize::Max));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.5G", "12X", "1 K", "0x10", "१२"] {
            assert!(matches!(parse_size(text), Err(SizeError::NoSize { .. })), "{text:?}");
        }
        for text in ["99999999999999999999", "18446744073709551615T", "8388608T"] {
            assert!(matches!(parse_size(text), Err(SizeError::TooLarge { .. })), "{text:?}");
        }
        assert_eq!(parse_size("0"), Err(SizeError::Zero));
        assert_eq!(parse_size_or_zero("0"), Ok(Sectors::ZERO));
    }

    #[test]
    fn sizes_print_as_mdadm_prints_them() {
        assert_eq!(in_both_units(Sectors(36_864)), "(18.00 MiB 18.87 MB)");
        assert_eq!(in_both_units(Sectors(110_592)), "(54.00 MiB 56.62 MB)");
        assert_eq!(chunk(Sectors(1024)), "512K");
        assert_eq!(chunk(Sectors(2048)), "1M");
        assert_eq!(chunk(Sectors(9)), "9s");
    }
}
