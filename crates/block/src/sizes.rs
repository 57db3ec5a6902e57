//! Sizes and counts as text.
//! Owns: parsing `64K`, `10G`, `2048s`; printing `18.00 MiB`, mdadm's ` (18.00 MiB 18.87 MB)`, and `1 read`, `2 reads`.
//! Not here: which size an array may have (`format`). Invariant: a size that is not a whole number of sectors, or invalid, is refused with
//! the given text. Spec: mdadm(8): a bare number is in KiB; suffixes K, M, G, T are powers of 1024, `s` is sectors.

use crate::units::Sectors;

/// Why a text is not a size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// Not digits with an optional unit.
    #[error("{found:?} is not a size, expected a number with K, M, G, T (powers of 1024) or s (sectors); bare: KiB")]
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

/// `1 read`, `2 reads`.
pub fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// A size that may be zero. Bare numbers are KiB.
pub fn parse_size_or_zero(text: &str) -> Result<Sectors, SizeError> {
    let no_size = || SizeError::NoSize { found: text.to_owned() };
    let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(no_size());
    }
    // Sectors per unit. The `iB` and `B` endings occur in other tools' output.
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
    /// The size of the smallest member.
    Max,
    /// This size.
    Exactly(Sectors),
}

/// ` (18.00 MiB 18.87 MB)`: rounded as mdadm does it, from 5000 KiB on and up to TiB.
pub fn human(bytes: u128) -> String {
    let Some((index, _)) = unit_of(bytes) else { return String::new() };
    let (binary, decimal) = (1024u128.pow(index + 2), 1000u128.pow(index + 2));
    let letter = ["M", "G", "T"][index as usize];
    format!(" ({} {letter}iB {} {letter}B)", hundredths(bytes, binary), hundredths(bytes, decimal))
}

/// `94.37MB`: as [`human`], without the binary half; empty below 5000 KiB.
pub fn human_brief(bytes: u128) -> String {
    unit_of(bytes)
        .map_or(String::new(), |(index, letter)| format!("{}{letter}B", hundredths(bytes, 1000u128.pow(index + 2))))
}

/// Below 2 GiB in mega, below 2 TiB in giga, else in tera.
fn unit_of(bytes: u128) -> Option<(u32, char)> {
    match bytes {
        0..5_120_000 => None,
        5_120_000..0x8000_0000 => Some((0, 'M')),
        0x8000_0000..0x200_0000_0000 => Some((1, 'G')),
        0x200_0000_0000.. => Some((2, 'T')),
    }
}

fn hundredths(bytes: u128, unit: u128) -> String {
    let rounded = (bytes * 200 / unit).div_ceil(2);
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

/// `1049600 KiB (1025.00 MiB 1074.79 MB)`: to the sector, and as mdadm rounds it.
pub fn exact(size: Sectors) -> String {
    let half = if size.0.is_multiple_of(2) { "" } else { ".5" };
    format!("{}{half} KiB{}", size.0 / 2, human(size.bytes().into()))
}

/// `18.00 MiB`.
pub fn binary(size: Sectors) -> String {
    const STEP: f64 = 1024.0;
    // A size that would be printed as 1024 of a unit is printed as 1 of the next unit.
    const LIMIT: f64 = STEP - 0.005;
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = size.bytes() as f64 / STEP;
    let mut unit = 0;
    while value >= LIMIT && unit + 1 < units.len() {
        value /= STEP;
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
    fn a_size_is_never_1024_of_a_unit_that_has_a_larger_one() {
        for (sectors, text) in [
            (0, "0.00 KiB"),
            (1, "0.50 KiB"),
            (2047, "1023.50 KiB"),
            (2048, "1.00 MiB"),
            (2_097_141, "1023.99 MiB"),
            (2_097_151, "1.00 GiB"),
            (2_147_483_647, "1.00 TiB"),
            (1 << 54, "8192.00 PiB"),
        ] {
            assert_eq!(binary(Sectors(sectors)), text, "{sectors}");
        }
    }

    #[test]
    fn an_exact_size_is_right_to_the_sector() {
        for (sectors, text) in [
            (1, "0.5 KiB"),
            (2_099_200, "1049600 KiB (1025.00 MiB 1074.79 MB)"),
            (2_099_201, "1049600.5 KiB (1025.00 MiB 1074.79 MB)"),
            (4_194_304, "2097152 KiB (2.00 GiB 2.15 GB)"),
        ] {
            assert_eq!(exact(Sectors(sectors)), text);
        }
    }

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
        for (sectors, text) in [
            (0, ""),
            (9_999, ""),
            (10_000, " (4.88 MiB 5.12 MB)"),
            (36_864, " (18.00 MiB 18.87 MB)"),
            (110_592, " (54.00 MiB 56.62 MB)"),
            (2_097_151, " (1024.00 MiB 1073.74 MB)"),
            (3_145_728, " (1536.00 MiB 1610.61 MB)"),
            (4_194_303, " (2048.00 MiB 2147.48 MB)"),
            (4_194_304, " (2.00 GiB 2.15 GB)"),
            (3_333_333_333, " (1589.46 GiB 1706.67 GB)"),
            (4_294_967_295, " (2048.00 GiB 2199.02 GB)"),
            (4_294_967_296, " (2.00 TiB 2.20 TB)"),
            (1 << 40, " (512.00 TiB 562.95 TB)"),
        ] {
            assert_eq!(human(Sectors(sectors).bytes().into()), text, "{sectors}");
        }
        assert_eq!(human_brief(94_371_840), "94.37MB");
        assert_eq!(chunk(Sectors(1024)), "512K");
        assert_eq!(chunk(Sectors(2048)), "1M");
        assert_eq!(chunk(Sectors(9)), "9s");
    }
}
