//! Counts of short byte strings in the members.
//! Owns: the counts of strings of up to four bytes. Not here: conclusions from them (`seams`).
//! Invariant: at most [`WINDOWS_MAX`] strings are kept, and none of them crosses a candidate seam.

use crate::order::bench::Bench;
use crate::order::places;
use uraid_block::Sector;

/// The most four-byte strings that are kept: random bytes repeat almost none of them, text most.
const WINDOWS_MAX: usize = 1 << 18;

/// Strings of four bytes, sorted; a shorter one is a range of them.
pub(crate) struct Counts {
    sorted: Vec<u32>,
    /// The first index of the strings that begin with each two bytes.
    starts: Vec<u32>,
}

impl Counts {
    /// The counts over the blocks at these places. Only strings within one sector are counted: every seam lies between
    /// two sectors, so the strings across a candidate seam do not count as evidence for that seam. Four equal bytes are
    /// padding and are skipped.
    pub(crate) fn of(bench: &mut Bench<'_>, members: usize, places: &[Sector]) -> Counts {
        let of_each = (WINDOWS_MAX / (places.len() * members).max(1)).max(1);
        let mut sorted = Vec::new();
        for place in places {
            for member in 0..members {
                let mut left = of_each;
                for at in places::sectors(*place) {
                    let Some(sector) = bench.sector(member, at) else { break };
                    let varied = sector.windows(4).filter(|four| four.iter().any(|byte| *byte != four[0]));
                    let taken = sorted.len();
                    sorted.extend(
                        varied.take(left).map(|four| u32::from_be_bytes(four.try_into().expect("windows of four"))),
                    );
                    left -= sorted.len() - taken;
                }
            }
        }
        Counts::new(sorted)
    }

    fn new(mut sorted: Vec<u32>) -> Counts {
        sorted.sort_unstable();
        let mut starts = vec![0_u32; (1 << 16) + 1];
        sorted.iter().for_each(|four| starts[(four >> 16) as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Counts { sorted, starts }
    }

    /// How often a string of one to four bytes occurs.
    fn count(&self, bytes: &[u8]) -> f64 {
        let mut four = [0; 4];
        four[..bytes.len()].copy_from_slice(bytes);
        let first = u32::from_be_bytes(four);
        let last = first | u32::MAX.checked_shr(8 * bytes.len() as u32).unwrap_or(0);
        let (from, to) = (self.starts[(first >> 16) as usize], self.starts[(last >> 16) as usize + 1]);
        let range = &self.sorted[from as usize..to as usize];
        let found = match bytes.len() {
            1 | 2 => range.len(),
            _ => range.partition_point(|other| *other <= last) - range.partition_point(|other| *other < first),
        };
        found as f64
    }

    /// How much likelier `head` is after `tail` than elsewhere, in bits. Uses the five strings of three and four bytes
    /// that cross the seam. One is added to each count, found or expected, because a single count is not significant.
    ///
    /// `..the qui|ck brown`: "uick" occurs 9 times, and "uic" and "k" would meet 0.2 times by chance: log2(10 / 1.2) = 3.
    /// `..the qui|Total 17`: "uiTo" never occurs, and "ui" and "To" would meet 0.3 times by chance: log2(1 / 1.3) =
    /// -0.4.
    pub(crate) fn gain(&self, tail: [u8; 3], head: [u8; 3]) -> f64 {
        let six = [tail[0], tail[1], tail[2], head[0], head[1], head[2]];
        let all = (self.sorted.len() as f64).max(1.0);
        let of = |from: usize, to: usize| {
            let expected = self.count(&six[from..3]) * self.count(&six[3..to]) / all;
            ((self.count(&six[from..to]) + 1.0) / (expected + 1.0)).log2()
        };
        of(0, 4) + of(1, 5) + of(2, 6) + of(1, 4) + of(2, 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_are_counted() {
        let text = b"abcabdabc";
        let fours = text.windows(4).map(|four| u32::from_be_bytes(four.try_into().expect("four")));
        let counts = Counts::new(fours.collect());
        for (bytes, expected) in [(&b"a"[..], 2.0), (b"ab", 2.0), (b"abc", 1.0), (b"abda", 1.0), (b"zz", 0.0)] {
            assert_eq!(counts.count(bytes), expected, "{bytes:?}");
        }
        assert_eq!(Counts::new(vec![u32::MAX]).count(&[0xff]), 1.0);
        assert_eq!(Counts::new(Vec::new()).gain(*b"abc", *b"def"), 0.0);
    }
}
