//! What to claim: a whole file or device or a window of one, with sectors that must fail.
//! Owns: [`Target`], [`Window`], [`BadSectors`] and its syntax. Not here: opening (`open`), the other syntax for
//! windows on the command line.
//! Invariant: a list of bad sectors is sorted, and none of them is past the highest possible sector.

use std::path::{Path, PathBuf};
use uraid_block::{ErrorKind, IoError, Range, SECTOR_BYTES, Sector, Sectors};

/// The most stretches in a list of bad sectors.
const BAD_STRETCHES_MAX: usize = 4096;

/// Some bytes of a file or a block device, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first byte. It need not be at a sector's start, but direct I/O needs whole pages.
    pub offset: u64,
    /// How many bytes; `None`: up to the end.
    pub length: Option<u64>,
}

impl Window {
    /// The byte after the last one; `None` if that depends on the file.
    pub(super) fn end(self) -> Option<u64> {
        self.length.map(|length| self.offset.saturating_add(length))
    }
}

/// What to claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its name in messages, as the user gave it.
    pub name: String,
    /// A path, or `mem:...` or `null:...`, see [`super::Claimed::open`].
    pub path: PathBuf,
    /// A part of the file or device; `None`: all of it, exclusively.
    pub window: Option<Window>,
    /// Sectors, counted from the window's start, that fail.
    pub bad: BadSectors,
}

impl Target {
    /// The target that a name means, without a window; `bad:LIST:NAME` adds sectors that fail. `None` if the list is
    /// invalid.
    pub fn whole(name: &Path) -> Option<Target> {
        let text = name.to_string_lossy();
        let (bad, path) = match text.strip_prefix("bad:") {
            None => (BadSectors::default(), name.to_owned()),
            Some(rest) => {
                let (bad, path) = BadSectors::split(rest)?;
                (bad, path.into())
            }
        };
        Some(Target { name: text.into_owned(), path, window: None, bad })
    }
}

/// Sectors whose reads and writes fail with a medium error. None by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BadSectors(Vec<Range>);

impl BadSectors {
    /// A list of these stretches; they may overlap and be unsorted.
    pub fn new(stretches: impl IntoIterator<Item = Range>) -> BadSectors {
        let mut stretches: Vec<Range> = stretches.into_iter().collect();
        stretches.sort_by_key(|stretch| stretch.start);
        BadSectors(stretches)
    }

    /// The union of both lists.
    pub fn with(self, more: BadSectors) -> BadSectors {
        BadSectors::new(self.0.into_iter().chain(more.0))
    }

    /// Cuts `SECTOR[+COUNT][,SECTOR...]:REST`. `None` for anything else, a count of zero, or too long a list.
    pub fn split(text: &str) -> Option<(BadSectors, &str)> {
        let (list, rest) = text.split_once(':')?;
        let mut stretches = Vec::new();
        for word in list.split(',') {
            if stretches.len() == BAD_STRETCHES_MAX {
                return None;
            }
            let (start, count) = word.split_once('+').unwrap_or((word, "1"));
            let (start, count) = (number(start)?, number(count).filter(|count| *count > 0)?);
            start.checked_add(count).filter(|end| *end <= u64::MAX / SECTOR_BYTES as u64)?;
            stretches.push(Range::new(Sector(start), Sectors(count)));
        }
        (!rest.is_empty()).then_some((BadSectors::new(stretches), rest))
    }

    /// The first bad stretch that the range meets.
    pub fn first_in(&self, range: Range) -> Option<Range> {
        self.0.iter().copied().find(|stretch| stretch.overlaps(range))
    }

    /// Where the last sector below `end` ends that is not bad.
    pub fn good_below(&self, mut end: Sector) -> Sector {
        while let Some(last) = self.0.iter().find(|stretch| stretch.start < end && stretch.end() >= end) {
            end = last.start;
        }
        end
    }

    /// `Ok` if no sector of the range is bad, else a medium error without an errno.
    #[inline]
    pub fn check(&self, range: Range) -> Result<(), IoError> {
        if self.0.is_empty() || range.length.is_zero() || self.first_in(range).is_none() {
            return Ok(());
        }
        Err(IoError { kind: ErrorKind::Media, os: libc::EIO })
    }

    /// The same, for a range in bytes.
    pub fn check_bytes(&self, at: u64, length: u64) -> Result<(), IoError> {
        let (first, behind) = (at / SECTOR_BYTES as u64, at.saturating_add(length).div_ceil(SECTOR_BYTES as u64));
        self.check(Range::between(Sector(first), Sector(behind)))
    }
}

/// Parses digits only.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Whole sectors of `64M`, `2T`, `4096`. `None` for anything else, and above 8 EiB.
pub(super) fn parse_size(text: &str) -> Option<Sectors> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        (at, 'T' | 't') => (&text[..at], 40),
        _ => (text, 0),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes < 1 << 63).then_some(Sectors::from_bytes_floor(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_stretch_is_found_in_any_order_and_after_additions() {
        let range = |start, length| Range::new(Sector(start), Sectors(length));
        let bad = BadSectors::new([range(50, 4), range(10, 1)]).with(BadSectors::new([range(30, 8), range(28, 3)]));
        assert_eq!(bad.first_in(range(0, 100)), Some(range(10, 1)));
        assert_eq!(bad.first_in(range(11, 89)), Some(range(28, 3)));
        assert_eq!(bad.first_in(range(31, 69)), Some(range(30, 8)));
        assert_eq!((bad.first_in(range(38, 12)), bad.first_in(range(53, 1))), (None, Some(range(50, 4))));
    }

    #[test]
    fn a_list_of_bad_sectors_is_numbers_and_counts() {
        let (bad, rest) = BadSectors::split("100+8,5:a:b").expect("a list");
        assert_eq!(rest, "a:b");
        let range = |start, length| Range::new(Sector(start), Sectors(length));
        for good in [range(0, 5), range(6, 94), range(108, 1), range(5, 0), range(103, 0)] {
            assert_eq!(bad.check(good), Ok(()), "{good:?}");
        }
        for failing in [range(5, 1), range(0, 200), range(107, 1), range(99, 2)] {
            assert_eq!(bad.check(failing).expect_err("bad").kind, ErrorKind::Media, "{failing:?}");
        }
        assert_eq!(bad.check_bytes(6 * 512, 94 * 512), Ok(()));
        assert!(bad.check_bytes(6 * 512 - 1, 1).is_err());
        assert!(bad.check_bytes(100 * 512 - 1, 2).is_err());
        let long = format!("{}1:a", "1,".repeat(5000));
        let far = format!("{}:a", u64::MAX);
        for nonsense in ["", "5", "5:", ":a", "5,:a", "+5:a", "5+:a", "5+0:a", "-1:a", "5 :a", "5++1:a", &long, &far] {
            assert_eq!(BadSectors::split(nonsense), None, "{nonsense}");
        }
    }
}
